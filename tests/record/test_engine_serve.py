"""``kernelfit record -- vllm serve``: one server, several, and data-parallel engines.

With several API servers the engine prints no line per step; then the tokens of all steps are
those that the responses account for.
"""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from kernelfit.logs.whole import check_recording
from tests.record.engine_script import make_tokenizer_in
from tests.record.engines import DENSE, HERE, engine_python, environment, model

pytestmark = pytest.mark.engine

REQUESTS = 12


class Server:
    """A ``vllm serve`` below ``kernelfit record``."""

    def __init__(self, folder: Path, config: dict[str, Any], options: list[str]) -> None:
        python = engine_python()
        self.run, self.model = folder / "run", str(model(folder / "tiny", config))
        make_tokenizer_in(python, self.model)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        serve = [python, str(HERE / "engine_serve.py"), "serve", self.model]
        serve += ["--load-format", "dummy", "--dtype", "float32", "--enforce-eager"]
        serve += ["--max-model-len", "1024", "--max-num-seqs", "16", "--port", str(self.port)]
        serve += ["--host", "127.0.0.1", "--no-enable-prefix-caching", *options]
        record = [sys.executable, "-m", "kernelfit.cli.main", "record", "--json"]
        self.log = (folder / "serve.log").open("w", encoding="utf-8")
        self.process = subprocess.Popen(
            [*record, "--out", str(self.run), "--", *serve],
            cwd=folder,
            env=environment(
                VLLM_CPU_OMP_THREADS_BIND="0|1" if "--data-parallel-size" in options else "auto"
            ),
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )

    def said(self) -> str:
        """Return the end of what the engine said."""
        return Path(self.log.name).read_text(encoding="utf-8", errors="replace")[-4000:]

    def wait(self) -> None:
        """Wait until it serves."""
        deadline = time.monotonic() + 500
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.said()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        raise AssertionError(self.said())

    def complete(self, prompt: list[int], tokens: int) -> dict[str, int]:
        """Send one request and return what the response accounts for."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=300) as response:
            usage: dict[str, int] = json.load(response)["usage"]
        return usage

    def stop(self) -> tuple[int, dict[str, Any]]:
        """Stop the engine through the recorder; return its status and document."""
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=120)
        self.log.close()
        return self.process.returncode, json.loads(out)


def load(server: Server) -> int:
    """Send requests, several at a time; return the tokens that they make the engine compute."""
    rng = random.Random(3)
    plans = [
        ([rng.randrange(40, 4000) for _ in range(rng.randrange(20, 300))], 15 + n)
        for n in range(REQUESTS)
    ]
    usages: list[dict[str, int]] = []
    threads = [
        threading.Thread(target=lambda plan=plan: usages.append(server.complete(*plan)))
        for plan in plans
    ]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    assert len(usages) == REQUESTS
    # Every prompt token is computed once, and so is every output token but the last.
    return sum(u["prompt_tokens"] + u["completion_tokens"] - 1 for u in usages)


@pytest.mark.parametrize(
    ("config", "options", "engines"),
    [
        (DENSE, [], 1),
        (DENSE, ["--api-server-count", "2"], 1),
        # Dense: a mixture of experts, whose replicas keep step, does not run on the CPU build.
        (DENSE, ["--data-parallel-size", "2"], 2),
    ],
    ids=["one-server", "two-servers", "data-parallel"],
)
def test_a_server(config: dict[str, Any], options: list[str], engines: int, tmp_path: Path) -> None:
    server = Server(tmp_path, config, options)
    try:
        server.wait()
        tokens = load(server)
        time.sleep(0.5)
        status, document = server.stop()
    finally:
        server.process.kill()
    assert status == 0, server.said()
    assert document["whole"] is True
    assert (document["engines"], document["workers"]) == (engines, engines)
    assert document["tokens"] == tokens
    assert sum(document["worker_tokens"].values()) == tokens
    assert check_recording(server.run).whole
