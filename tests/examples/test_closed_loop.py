"""The example replays a file of requests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kernelfit.validate.closed_loop.replay import kernel_prices, replay
from kernelfit.validate.closed_loop.served import limits_of
from tests.cli.kernels import frozen_kernel, write_kernel
from tests.cli.served import TRACE

ROOT = Path(__file__).resolve().parents[2]


def test_it_meets_what_its_own_kernel_made(tmp_path: Path) -> None:
    kernel = frozen_kernel()
    found = replay(TRACE, kernel_prices(kernel), limits_of(kernel)).latencies
    lines = ["arrival,first_token,finish,prompt,output,cached"]
    for n, request in enumerate(TRACE):
        at = 100.0 + request.arrival_s
        first, last = (float(at + taken[n]) for taken in (found.ttft_s, found.e2e_s))
        counts = f"{request.prompt_tokens},{request.output_tokens},{request.cached_tokens}"
        lines.append(f"{at!r},{first!r},{last!r},{counts}")
    file = tmp_path / "requests.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = [sys.executable, ROOT / "examples" / "closed_loop.py", write_kernel(tmp_path), file]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert len(rows) == 3 * 3 * 4
    assert {row[-1] for row in rows if row[4] == "all"} <= {"+0.0%", "-0.0%"}
