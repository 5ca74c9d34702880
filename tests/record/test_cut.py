"""One server's recording, cut into its loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelfit.record.cut import cut, main
from tests.record.fakes import rows_of

S = 1_000_000_000


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def served(arrival_s: float, end_s: float) -> dict[str, Any]:
    return {"t": "served", "arrival_ns": round(arrival_s * S), "end_ns": round(end_s * S)}


def step(ordinal: int, at_s: float) -> dict[str, Any]:
    return {"t": "step", "i": ordinal, "sched_ns": [round(at_s * S), round(at_s * S) + 5]}


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    header = {"t": "header", "role": "engine"}
    # A warm-up at 1 s, one load of two drivers from 10 to 22 s, another from 30 to 40 s.
    write(folder / "engine-1.jsonl", [header, *(step(n, s) for n, s in enumerate((1, 11, 21, 33)))])
    workers = [{"t": "worker", "i": n, "span_ns": [0, 1]} for n in range(4)]
    write(folder / "worker-2.jsonl", [header, *workers])
    front = [
        {"t": "host", "cpu": "x"},
        {"t": "admission", "start_ns": S, "tokens": 9},
        {"t": "admission", "start_ns": 10 * S, "tokens": 1},
        {"t": "done", "start_ns": 23 * S, "arrival_ns": 20 * S},
        {"t": "output", "start_ns": 31 * S},
    ]
    write(folder / "frontend-3.jsonl", [header, *front])
    for pid, name, rows in (
        (4, "light", [served(10, 15)]),
        (5, "light", [served(20, 22)]),
        (6, "busy", [served(30, 40)]),
        (7, None, [served(0.5, 1.5)]),
    ):
        write(
            folder / f"client-{pid}.jsonl", [{"t": "header", "role": "client", "name": name}, *rows]
        )
    (folder / "run.yaml").write_text("kind: Run\n")
    return folder


def test_each_load_has_what_was_done_for_it(recording: Path, tmp_path: Path) -> None:
    light, busy = cut(recording, tmp_path / "out")
    assert (light.name, busy.name) == ("light", "busy")
    assert [row["i"] for row in rows_of(light, "step")] == [1, 2]
    assert [row["i"] for row in rows_of(light, "worker")] == [1, 2]
    assert [row["tokens"] for row in rows_of(light, "admission")] == [1]
    assert len(rows_of(light, "done")) == 1
    assert len(rows_of(light, "served")) == 2
    assert [row["i"] for row in rows_of(busy, "step")] == [3]
    assert len(rows_of(busy, "output")) == 1
    for folder in (light, busy):
        assert (folder / "run.yaml").read_text() == "kind: Run\n"
        assert [row["cpu"] for row in rows_of(folder, "host")] == ["x"]
        for path in folder.glob("*.jsonl"):
            assert json.loads(path.read_text().splitlines()[0])["t"] == "header"


def test_a_line_cut_short_ends_a_file(recording: Path, tmp_path: Path) -> None:
    with (recording / "engine-1.jsonl").open("a") as file:
        file.write('{"t":"step","i":4')
    assert len(cut(recording, tmp_path / "out")) == 2


def test_loads_that_overlap_are_refused(
    recording: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(
        recording / "client-8.jsonl",
        [{"t": "header", "role": "client", "name": "late"}, served(39, 41)],
    )
    assert main([str(recording), "--out", str(tmp_path / "out")]) == 2
    assert "loads busy and late overlap" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_recording_without_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no client file names its load"):
        cut(tmp_path, tmp_path / "out")
