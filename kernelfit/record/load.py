"""Send a seeded arrival trace to a server's streaming completions, and note what comes when.

For a recording of ``vllm serve`` from both sides, on one machine::

    KERNELFIT_TRACE_DIR=traces/my-run vllm serve MODEL --port 8000 ...
    KERNELFIT_TRACE_DIR=traces/my-run python -m kernelfit.record.load \
        --port 8000 --rate 2 --requests 100 --prompt 16:512 --output 8:64

Prompts are cut from the sources of Python's standard library, which every machine has; only
their lengths are kept. Standard library only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import sysconfig
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from kernelfit.record.arrivals import Load, Planned, Span, arrivals
from kernelfit.record.call import hashed
from kernelfit.record.events import EventReader
from kernelfit.record.facts import FORMAT_VERSION
from kernelfit.record.server import Server, characters_per_token, wait_for
from kernelfit.record.writer import RowWriter

_now = time.monotonic_ns
_CONNECT_AHEAD_S = 0.05
_TEXT_BYTES = 6_000_000


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the driver's command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after the program's name; those of the process when None.

    Returns
    -------
    argparse.Namespace
        The options, one attribute each.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--out", default=os.environ.get("KERNELFIT_TRACE_DIR"))
    parser.add_argument("--name", help="name of the load, for cutting the recording later")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--rate", type=float, help="arrivals per second; without it all at once")
    parser.add_argument("--concurrency", type=int, help="most requests in flight at a time")
    parser.add_argument("--prompt", type=Span.parse, default=Span(16, 512), help="tokens, low:high")
    parser.add_argument("--output", type=Span.parse, default=Span(8, 64), help="tokens, low:high")
    parser.add_argument("--shared", type=float, default=0.0, help="share with a common beginning")
    parser.add_argument("--wait", type=float, default=300.0, help="seconds to wait for the server")
    options = parser.parse_args(arguments)
    if not options.out:
        parser.error("name a folder: --out or KERNELFIT_TRACE_DIR")
    return options


def library_text(limit: int = _TEXT_BYTES) -> str:
    """Return the sources of the standard library, one after the other.

    Parameters
    ----------
    limit : int
        About how much [bytes].

    Returns
    -------
    str
        Text; always the same for one version of Python.
    """
    parts = []
    size = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        parts.append(text)
        size += len(text)
        if size >= limit:
            break
    return "\n".join(parts)


class Prompts:
    """Prompts of wanted lengths, cut from a text.

    Parameters
    ----------
    text : str
        What they are cut from.
    characters_per_token : float
        About how many characters make a token [1].
    """

    def __init__(self, text: str, characters_per_token: float) -> None:
        self._text = text
        self._ratio = characters_per_token

    def cut(self, planned: Planned) -> str:
        """Return the prompt of a request.

        Parameters
        ----------
        planned : Planned
            The request.

        Returns
        -------
        str
            About as many tokens as wanted; one character at least.
        """
        shared = self._text[: round(planned.shared_tokens * self._ratio)]
        count = max(1, round(planned.prompt_tokens * self._ratio) - len(shared))
        # What is shared is the text's beginning, which no other prompt is cut from.
        low = len(self._text) // 4
        start = low + round(planned.text_at * max(0, len(self._text) - count - low))
        return shared + self._text[start : start + count]


async def serve_one(
    server: Server, name: str, body: dict[str, Any], due_ns: int, planned: tuple[int, int]
) -> dict[str, Any]:
    """Send one request when it is due and read its answer to the end.

    Parameters
    ----------
    server : Server
        Where it goes.
    name : str
        The request's own id.
    body : dict
        What is asked.
    due_ns : int
        When it is sent [ns].
    planned : tuple of (int, int)
        Its number in the trace and the output it asks for [tokens].

    Returns
    -------
    dict
        A ``served`` row.
    """
    data = server.request("/v1/completions", body, name)
    await asyncio.sleep(max(0.0, (due_ns - _now()) * 1e-9 - _CONNECT_AHEAD_S))
    reader, writer = await asyncio.open_connection(server.host, server.port)
    await asyncio.sleep(max(0.0, (due_ns - _now()) * 1e-9))
    row: dict[str, Any] = {
        "t": "served",
        "i": planned[0],
        "req": hashed(name),
        "asked": planned[1],
        "due_ns": due_ns,
        "arrival_ns": _now(),
    }
    writer.write(data)
    answer = EventReader()
    moments: list[int] = []
    client_ns = 0
    usage: dict[str, Any] = {}
    while not answer.ended:
        received = await reader.read(1 << 16)
        now_ns = _now()
        for event in answer.feed(received):
            if event == b"[DONE]":
                row["end_ns"] = now_ns
            elif b'"choices":[]' in event:
                usage = json.loads(event).get("usage") or {}
            elif event.startswith(b'{"error"'):
                row["error"] = True
            else:
                moments.append(now_ns)
        client_ns += _now() - now_ns
        if not received:
            break
    writer.close()
    row["status"] = answer.status
    row.setdefault("end_ns", _now())
    row["first_ns"] = moments[0] if moments else None
    row["last_ns"] = moments[-1] if moments else None
    row["prompt"] = usage.get("prompt_tokens")
    row["output"] = usage.get("completion_tokens")
    row["cached"] = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    row["chunks"] = len(moments)
    row["gaps_us"] = [(b - a) // 1000 for a, b in pairwise(moments)]
    row["client_ns"] = client_ns
    return row


async def send(options: argparse.Namespace, writer: RowWriter) -> tuple[int, int]:
    """Send a trace and note every request.

    Parameters
    ----------
    options : argparse.Namespace
        As ``parse`` returns them.
    writer : RowWriter
        Where rows go.

    Returns
    -------
    tuple of (int, int)
        Requests sent, and those that failed.
    """
    server = Server(options.host, options.port)
    model = await wait_for(server, options.wait)
    text = library_text()
    prompts = Prompts(text, await characters_per_token(server, model, text))
    load = Load(options.requests, options.rate, options.prompt, options.output, options.shared)
    trace = arrivals(options.seed, load)
    slots = asyncio.Semaphore(options.concurrency or len(trace) or 1)
    bodies = [
        {
            "model": model,
            "prompt": prompts.cut(planned),
            "max_tokens": planned.output_tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        for planned in trace
    ]
    start_ns = _now() + 500_000_000
    failed = 0

    async def one(number: int, planned: Planned) -> None:
        nonlocal failed
        async with slots:
            due_ns = max(_now(), start_ns + round(planned.due_s * 1e9))
            name = f"kf-{os.getpid()}-{number}"
            try:
                row = await serve_one(
                    server, name, bodies[number], due_ns, (number, planned.output_tokens)
                )
            except (OSError, ValueError) as error:
                print(f"request {number}: {error}", file=sys.stderr)
                failed += 1
                return
        failed += row["status"] != 200 or "error" in row
        writer.put(row)

    await asyncio.gather(*(one(number, planned) for number, planned in enumerate(trace)))
    return len(trace), failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Send a trace and return the exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after the program's name; those of the process when None.

    Returns
    -------
    int
        0 when every request was served, 1 when some were not.
    """
    options = parse(arguments)
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    header = {
        "t": "header",
        "format": "kernelfit",
        "version": FORMAT_VERSION,
        "role": "client",
        "pid": os.getpid(),
        "name": options.name,
        "seed": options.seed,
        "requests": options.requests,
        "rate_per_s": options.rate,
        "concurrency": options.concurrency,
    }
    writer = RowWriter(folder / f"client-{os.getpid()}.jsonl", header)
    begin_s = time.monotonic()
    try:
        sent, failed = asyncio.run(send(options, writer))
    except TimeoutError as error:
        print(f"kernelfit: {error}", file=sys.stderr)
        return 1
    finally:
        writer.flush()
    seconds = time.monotonic() - begin_s
    print(f"kernelfit: {sent} requests in {seconds:.1f} s, {failed} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
