"""The front end's recorder in a real ``vllm serve``: every request and every token is there.

Needs what test_engine.py needs.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from kernelfit.logs.frontend import read_host_side
from kernelfit.logs.hostwork import EVENT_KINDS, OBSERVERS
from tests.logs.recording import read
from tests.record.engines import DENSE as TINY
from tests.record.engines import PYTHON

REQUESTS = 12

pytestmark = pytest.mark.engine


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a module of the package with the engine's own interpreter."""
    assert PYTHON
    return subprocess.run(
        [PYTHON, "-m", *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the recording of a server and its client."""
    if not PYTHON:
        pytest.skip("KERNELFIT_ENGINE_PYTHON names no interpreter with vLLM; see make test-engine")
    folder = tmp_path_factory.mktemp("serve")
    trace, model = folder / "run", folder / "tiny"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(TINY), encoding="utf-8")
    size = str(TINY["vocab_size"])
    run(folder, "kernelfit.record.tokenizer", "--out", "tokenizer", "--size", size)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    options = f"--model {model} --tokenizer tokenizer --port {port} --load-format dummy"
    options += (
        " --dtype float32 --enforce-eager --max-model-len 2000 --enable-prompt-tokens-details"
    )
    environment = {
        **os.environ,
        "KERNELFIT_TRACE_DIR": str(trace),
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    assert PYTHON
    words = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", *options.split()]
    with (folder / "server.log").open("w", encoding="utf-8") as log:
        server = subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            load = f"--port {port} --out {trace} --requests {REQUESTS} --rate 8"
            load += " --prompt 1:900 --output 1:30 --shared 0.3 --wait 400"
            run(folder, "kernelfit.record.load", *load.split())
        finally:
            server.terminate()
            server.wait(60)
    said = (folder / "server.log").read_text(encoding="utf-8", errors="replace")
    assert "kernelfit: recording" not in said, said[-4000:]
    return trace


def test_every_request_and_every_token_is_there(recording: Path) -> None:
    host = read_host_side(recording)
    assert host.rejects == ()
    kinds = {name: host.events.kind == number for number, name in enumerate(EVENT_KINDS)}
    assert {name: int(found.sum()) for name, found in kinds.items() if name != "output"} == {
        "admission": REQUESTS,
        "completion": REQUESTS,
    }
    client = host.served.observer == OBSERVERS.index("client")
    assert client.sum() == (~client).sum() == REQUESTS
    for name in ("prompt_tokens", "output_tokens", "cached_tokens", "request"):
        column = getattr(host.served, name)
        assert sorted(column[client]) == sorted(column[~client]), name
    tokens = int(host.served.output_tokens[client].sum())
    assert host.events.tokens[kinds["output"]].sum() == tokens
    assert sorted(host.events.tokens[kinds["admission"]]) == sorted(
        host.served.prompt_tokens[client]
    )


def test_both_observers_agree_on_the_order_of_things(recording: Path) -> None:
    host = read_host_side(recording)
    client = host.served.observer == OBSERVERS.index("client")
    order, server = (
        rows[host.served.request[rows].argsort()]
        for rows in (client.nonzero()[0], (~client).nonzero()[0])
    )
    # What the client sends arrives later, and what the server sends, too.
    assert (host.served.arrival_s[order] <= host.served.arrival_s[server]).all()
    assert (host.served.queue_s[server] >= 0).all()
    waits = host.served.first_token_s[server] - host.served.arrival_s[server]
    assert (waits > host.served.queue_s[server] + host.served.prefill_s[server]).all()


def test_the_steps_are_there_as_without_a_front_end(recording: Path) -> None:
    (found,) = read(recording)
    counts = found.counts
    assert counts.lines == counts.steps + counts.recognised + counts.rejected
    assert counts.rejected == 0
    assert found.host_cpu
    assert found.tokenizer
