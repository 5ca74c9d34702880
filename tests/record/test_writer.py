"""Rows reach the file within 0.2 s, because the engine core is killed at a normal shutdown."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelfit.record import writer as writer_module
from kernelfit.record.writer import FLUSH_INTERVAL_S, RowEncoder, RowWriter, write_all


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


def test_rows_of_another_thread_are_there_within_half_a_second(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    writer = RowWriter(path, {"t": "header"})
    waits_s = []
    for number in range(3):  # the fastest of three: the machine may be busy
        mark = f'"i":{number}}}\n'.encode()
        begin_s = time.monotonic()
        thread = threading.Thread(target=writer.put, args=({"t": "step", "i": number},))
        thread.start()
        thread.join()
        while mark not in path.read_bytes() and time.monotonic() < begin_s + 20:
            time.sleep(0.01)
        waits_s.append(time.monotonic() - begin_s)
    assert min(waits_s) < 0.5
    first, second = path.read_text(encoding="utf-8").splitlines()[:2]
    assert json.loads(first) == {"t": "header"}
    assert sorted(json.loads(second)) == ["mono_ns", "t", "wall_ns"]


def test_a_kill_amid_writing_loses_only_the_newest_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    code = (
        "import pathlib, sys, time\nfrom kernelfit.record.writer import RowWriter\n"
        "writer = RowWriter(pathlib.Path(sys.argv[1]), {'t': 'header'})\n"
        "for i in range(10**6):\n"
        "    writer.put({'t': 'step', 'i': i})\n"
        "    print(i, time.monotonic_ns(), flush=True)\n"
        "    time.sleep(0.001)\n"
    )
    program = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    told = [tuple(map(int, program.stdout.readline().split()))]
    while told[-1][1] - told[0][1] < 4 * 10**8:
        told.append(tuple(map(int, program.stdout.readline().split())))
    os.kill(program.pid, signal.SIGKILL)
    # The last line may be cut short.
    lines = [line.split() for line in program.stdout.read().split("\n")[:-1]]
    told += [(int(i), int(moment)) for i, moment in lines]
    program.wait()
    program.stdout.close()
    text = path.read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.split("\n")[:-1]]
    kept = [row["i"] for row in rows if row["t"] == "step"]
    assert [row["t"] for row in rows[:2]] == ["header", "clock"]
    assert kept == list(range(len(kept)))
    # At most 0.2 s are lost; an exit handler would have lost every row.
    last_ns = told[-1][1]
    old = [i for i, moment in told if last_ns - moment > 2 * 10**8]
    assert old
    assert set(old) <= set(kept)


def test_clocks_are_paired_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "CLOCK_INTERVAL_S", 0.1)
    monkeypatch.setattr(writer_module, "FLUSH_INTERVAL_S", 0.02)
    path = tmp_path / "rows.jsonl"
    RowWriter(path, {"t": "header"})
    deadline = time.monotonic() + 20
    while path.read_bytes().count(b'"clock"') < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    clocks = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    moments = [row["mono_ns"] for row in clocks]
    assert len(moments) >= 3
    # The pairs are taken at least the interval apart; the first is due after one.
    assert moments[1] - moments[0] >= 9 * 10**7
    assert moments == sorted(moments)


def test_two_pauses_stay_within_what_a_kill_may_lose() -> None:
    # A row that was put just after a flush waits a whole pause, and then for its writing.
    assert 2 * FLUSH_INTERVAL_S <= 0.2


Values = st.one_of(st.integers(-1, 5), st.none(), st.floats(0, 1), st.text("abc", max_size=2))


@given(
    lists=st.lists(st.lists(st.one_of(st.integers(0, 9), st.none())), min_size=1, max_size=4),
    picks=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=8),
    plain=st.dictionaries(st.sampled_from(["n", "i", "kv_usage", "t"]), Values),
)
def test_a_row_reads_back_as_it_was_whatever_came_before(
    lists: list[list[int | None]],
    picks: list[tuple[int, int]],
    plain: dict[str, object],
) -> None:
    encoder = RowEncoder()
    for one, other in picks:
        # The same list object again, equal ones that are others, under one key or two.
        row = {
            **plain,
            "computed": lists[one % len(lists)],
            "cached": list(lists[other % len(lists)]),
            "prompt_len": lists[other % len(lists)],
        }
        text = encoder.encode(row)
        assert json.loads(text) == row
        assert "\n" not in text


def test_a_list_that_comes_again_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = RowEncoder()
    seen = []
    real = writer_module._dumps

    def dumps(value: object) -> str:
        seen.append(value)
        return real(value)

    monkeypatch.setattr(writer_module, "_dumps", dumps)
    lasting = list(range(100))
    texts = [encoder.encode({"i": i, "prompt_len": lasting}) for i in range(5)]
    assert seen.count(lasting) == 1
    assert [json.loads(text)["i"] for text in texts] == list(range(5))
    # A list kept by the encoder cannot lend its identity to another one.
    assert json.loads(encoder.encode({"prompt_len": [7, 8, 9]})) == {"prompt_len": [7, 8, 9]}


def test_the_writer_tells_what_it_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "BUSY_CLOCK_INTERVAL_S", 0.0)
    path = tmp_path / "rows.jsonl"
    writer = RowWriter(path, {"t": "header"})
    deadline = time.monotonic() + 20
    while path.read_bytes().count(b'"writer_ns"') < 3 and time.monotonic() < deadline:
        writer.put({"t": "step", "scheduled": list(range(5000)), "i": 1})
        time.sleep(0.02)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    took = [row["writer_ns"] for row in rows if "writer_ns" in row]
    assert len(took) >= 3
    assert took == sorted(took)
    # More than nothing, and no more than the time there was.
    moments = [row["mono_ns"] for row in rows if row["t"] == "clock"]
    assert 0 < took[-1] < moments[-1] - moments[0]


def test_everything_is_written_where_the_system_takes_less_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = bytearray()

    def some(file: int, data: memoryview) -> int:
        assert file == 9
        taken.extend(data[:3])
        return len(data[:3])

    monkeypatch.setattr(os, "write", some)
    write_all(9, b"ten bytes.")
    monkeypatch.undo()
    assert bytes(taken) == b"ten bytes."
