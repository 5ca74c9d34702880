"""A server that streams completions, as a client reaches it."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

from kernelfit.record.events import EventReader

_PROBE_CHARACTERS = 20_000


@dataclass(frozen=True)
class Server:
    """Where requests go.

    Attributes
    ----------
    host : str
        Its address.
    port : int
        Its port.
    """

    host: str
    port: int

    def request(self, path: str, body: dict[str, Any] | None, request_id: str = "") -> bytes:
        """Return the bytes of one HTTP request; a GET where there is no body.

        Parameters
        ----------
        path : str
            What is asked for.
        body : dict or None
            What is sent, as JSON.
        request_id : str
            Goes into ``X-Request-Id``; none where empty.

        Returns
        -------
        bytes
            Head and body.
        """
        data = b"" if body is None else json.dumps(body).encode()
        lines = [
            f"{'GET' if body is None else 'POST'} {path} HTTP/1.1",
            f"Host: {self.host}:{self.port}",
            "Content-Type: application/json",
            f"Content-Length: {len(data)}",
            "Connection: close",
        ]
        if request_id:
            lines.append(f"X-Request-Id: {request_id}")
        return "\r\n".join([*lines, "", ""]).encode() + data

    async def ask(self, path: str, body: dict[str, Any] | None) -> tuple[int, bytes]:
        """Return the status and the body of a whole answer.

        Parameters
        ----------
        path : str
            What is asked for.
        body : dict or None
            What is sent, as JSON.

        Returns
        -------
        tuple of (int, bytes)
            Status and body.
        """
        reader, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(self.request(path, body))
        answer = EventReader()
        while not answer.ended:
            data = await reader.read(1 << 16)
            answer.feed(data)
            if not data:
                break
        writer.close()
        return answer.status or 0, answer.rest()


async def wait_for(server: Server, patience_s: float) -> str:
    """Wait until a server is ready.

    Parameters
    ----------
    server : Server
        Where it will be.
    patience_s : float
        How long to wait [s].

    Returns
    -------
    str
        The name of its model.

    Raises
    ------
    TimeoutError
        When it is not there in time.
    """
    end_s = time.monotonic() + patience_s
    while time.monotonic() < end_s:
        try:
            status, body = await server.ask("/v1/models", None)
            if status == 200:
                return str(json.loads(body)["data"][0]["id"])
        except OSError:
            pass
        await asyncio.sleep(0.5)
    raise TimeoutError(f"no server at {server.host}:{server.port} within {patience_s:g} s")


async def characters_per_token(server: Server, model: str, text: str) -> float:
    """Return how many characters of a text make a token, as the server counts [1].

    Parameters
    ----------
    server : Server
        Who tokenises.
    model : str
        The name of its model.
    text : str
        What prompts are cut from.

    Returns
    -------
    float
        Characters per token [1]; 4 where the server does not tokenise.
    """
    sample = text[len(text) // 4 :][:_PROBE_CHARACTERS]
    status, body = await server.ask("/tokenize", {"model": model, "prompt": sample})
    if status != 200:
        return 4.0
    return len(sample) / max(1, int(json.loads(body)["count"]))
