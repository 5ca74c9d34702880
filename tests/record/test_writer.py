"""Rows reach the file within 0.2 s, because the engine core is killed at a normal shutdown."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from kernelfit.record.writer import FLUSH_INTERVAL_S, RowWriter


def test_rows_are_there_without_an_exit_handler(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    code = (
        "import pathlib, sys, time\nfrom kernelfit.record.writer import RowWriter\n"
        "writer = RowWriter(pathlib.Path(sys.argv[1]), {'t': 'header'})\n"
        "for i in range(500): writer.put({'t': 'step', 'i': i})\n"
        "print('put', flush=True)\ntime.sleep(60)"
    )
    program = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert program.stdout is not None
    assert program.stdout.readline() == b"put\n"
    deadline = time.monotonic() + 20 * FLUSH_INTERVAL_S
    while time.monotonic() < deadline and path.read_bytes().count(b"\n") < 502:
        time.sleep(0.02)
    os.kill(program.pid, signal.SIGKILL)
    program.wait()
    program.stdout.close()
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [row["t"] for row in rows[:2]] == ["header", "clock"]
    assert [row["i"] for row in rows if row["t"] == "step"] == list(range(500))


def test_flush_writes_what_was_put_and_clocks_pair(tmp_path: Path) -> None:
    writer = RowWriter(tmp_path / "rows.jsonl", {"t": "header"})
    before_ns = time.monotonic_ns()
    writer.put({"t": "step", "i": 1})
    writer.flush()
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert rows[-1] == {"t": "step", "i": 1}
    clock = next(row for row in rows if row["t"] == "clock")
    assert 0 <= before_ns - clock["mono_ns"] < 60 * 10**9
    assert abs(clock["wall_ns"] - time.time_ns()) < 60 * 10**9
