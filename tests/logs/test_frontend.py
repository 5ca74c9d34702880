"""Rows of the front end and of its clients become host work and requests served."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelfit.documents.problems import InputError
from kernelfit.logs.frontend import HostSide, read_host_side
from kernelfit.logs.hostwork import EVENT_KINDS, OBSERVERS
from tests.logs.recording import MS, Recording, read

HEADER = {"t": "header", "format": "kernelfit", "version": 1, "pid": 7}


def write(folder: Path, name: str, rows: Iterable[dict[str, Any] | str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    header = {**HEADER, "role": name.partition("-")[0]}
    lines = [row if isinstance(row, str) else json.dumps(row) for row in (header, *rows)]
    (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def admission(req: str, start: int, **more: Any) -> dict[str, Any]:
    parts = {"http_ns": 5, "render_ns": 7, "tokenize_ns": 11, "process_ns": 13, "send_ns": 17}
    row = {"t": "admission", "start_ns": start, "end_ns": start + 100, "tokens": 40, "text": True}
    return {**row, "req": req, "client": f"c-{req}", **parts, **more}


def accept(req: str, start: int) -> dict[str, Any]:
    return {"t": "accept", "start_ns": start, "end_ns": start + 20, "tokens": 40, "req": req}


def done(req: str, arrival: int, **more: Any) -> dict[str, Any]:
    row = {"t": "done", "start_ns": arrival + 800, "end_ns": arrival + 900, "req": req}
    times = {"queued_ns": 10, "prefill_ns": 200, "decode_ns": 500}
    counts = {"prompt": 40, "output": 6, "cached": 16}
    moments = {"arrival_ns": arrival, "first_ns": arrival + 300}
    return {**row, **moments, **counts, **times, "client": f"c-{req}", **more}


def served(req: str, arrival: int, **more: Any) -> dict[str, Any]:
    row = {"t": "served", "i": 0, "req": f"c-{req}", "status": 200, "arrival_ns": arrival}
    moments = {"first_ns": arrival + 310, "last_ns": arrival + 810, "end_ns": arrival + 910}
    counts = {"prompt": 40, "output": 6, "cached": 16, "chunks": 6}
    return {**row, **moments, **counts, **more}


OUTPUT = {
    "t": "output",
    "start_ns": 5_000,
    "end_ns": 5_100,
    "requests": 3,
    "tokens": 4,
    "finished": 1,
    "made_ns": 4_000,
    "transport_ns": 30,
    "stream_ns": 60,
    "streamed": 3,
    "stats_ns": 9,
    "cost_ns": 2,
}


def kind(host: HostSide, name: str) -> np.ndarray:
    return host.events.kind == EVENT_KINDS.index(name)


def test_an_admission_is_its_parts_and_the_way_to_the_core(tmp_path: Path) -> None:
    write(tmp_path, "frontend-1", [admission("a", 1_000)])
    write(tmp_path, "frontend-2", [accept("a", 1_140)])
    host = read_host_side(tmp_path)
    # 53 ns of its own, then 40 ns on the way and 20 ns in the engine core.
    assert host.events.duration_s == pytest.approx([(53 + 60) * 1e-9])
    assert host.events.start_s == pytest.approx([1e-6])
    assert host.events.tokens.tolist() == [40]
    assert host.rejects == ()
    assert (host.lines, host.recognised) == (4, 4)


def test_a_core_that_was_quicker_than_the_front_end_adds_what_is_left(tmp_path: Path) -> None:
    write(tmp_path, "frontend-1", [admission("a", 1_000), admission("b", 2_000)])
    write(tmp_path, "frontend-2", [accept("a", 1_090), accept("b", 2_050)])
    host = read_host_side(tmp_path)
    assert host.events.duration_s == pytest.approx([(53 + 10) * 1e-9, 53e-9])


def test_an_output_call_is_all_that_is_done_for_it(tmp_path: Path) -> None:
    write(tmp_path, "frontend-1", [OUTPUT])
    host = read_host_side(tmp_path)
    assert host.events.duration_s == pytest.approx([(30 + 100 + 60 + 9) * 1e-9])
    assert (host.events.tokens.tolist(), host.events.requests.tolist()) == ([4], [3])


def test_calls_without_a_stream_are_no_measure_of_one(tmp_path: Path) -> None:
    rows = [{k: v for k, v in OUTPUT.items() if k not in ("stream_ns", "streamed")}]
    write(tmp_path, "frontend-1", rows)
    host = read_host_side(tmp_path)
    assert host.events.kind.size == 0
    assert host.lines == host.recognised == 2


def test_both_observers_and_one_number_per_request(tmp_path: Path) -> None:
    write(tmp_path, "frontend-1", [done("b", 4_000), done("a", 1_000)])
    write(tmp_path, "client-2", [served("b", 3_950), served("a", 980)])
    host = read_host_side(tmp_path)
    rows = zip(host.served.observer, host.served.request, host.served.arrival_s, strict=True)
    assert [(OBSERVERS[o], int(r), round(s * 1e9)) for o, r, s in rows] == [
        ("client", 0, 980),
        ("engine", 0, 1_000),
        ("client", 1, 3_950),
        ("engine", 1, 4_000),
    ]
    engine = host.served.observer == OBSERVERS.index("engine")
    assert host.served.queue_s[engine] == pytest.approx([1e-8, 1e-8])
    assert np.isnan(host.served.queue_s[~engine]).all()
    finish = host.served.finish_s - host.served.arrival_s
    assert finish == pytest.approx([810e-9, 800e-9, 810e-9, 800e-9])
    completion = host.events.duration_s[kind(host, "completion")]
    assert completion == pytest.approx([100e-9, 100e-9])
    assert host.events.request[kind(host, "completion")].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (served("a", 900, status=500), "was not served"),
        (served("a", 900, error=True), "was not served"),
        (served("a", 900, first_ns=None, last_ns=None), "no token of the answer"),
        (served("a", 900, first_ns=800), "out of order"),
        (served("a", 900, output=None), "without the server's token counts"),
    ],
)
def test_a_request_that_was_not_served_is_named(
    row: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    write(tmp_path, "client-2", [served("b", 100), row])
    host = read_host_side(tmp_path)
    (reject,) = host.rejects
    assert reason in reject.reason
    assert reject.line == 3
    assert host.served.request.size == 1
    assert host.lines == host.recognised + len(host.rejects)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([admission("a", 10, tokenize_ns=None)], "tokenised where the recorder did not see"),
        ([admission("a", 10, end_ns=5)], "ends before it starts"),
        ([admission("z", 10)], "engine core's part of the admission is missing"),
        ([done("a", 10, end_ns=20)], "closed before its last token"),
    ],
)
def test_work_that_is_not_whole_is_named(
    rows: list[dict[str, Any]], reason: str, tmp_path: Path
) -> None:
    write(tmp_path, "frontend-1", rows)
    write(tmp_path, "frontend-2", [accept("a", 5_000)])
    host = read_host_side(tmp_path)
    assert [reason in reject.reason for reject in host.rejects] == [True]
    assert host.events.kind.size == 0


def test_ids_need_no_tokenising_and_old_engines_no_accept(tmp_path: Path) -> None:
    row = admission("a", 10, text=False)
    del row["tokenize_ns"]
    write(tmp_path, "frontend-1", [row])
    host = read_host_side(tmp_path)
    assert host.rejects == ()
    assert host.events.duration_s == pytest.approx([42e-9])


def test_broken_lines_are_rejected_and_others_kept(tmp_path: Path) -> None:
    write(tmp_path, "frontend-1", [OUTPUT, '{"t":"output","start_ns":1', '{"t":"other"}', ""])
    host = read_host_side(tmp_path)
    assert [reject.line for reject in host.rejects] == [3, 4]
    assert host.lines == host.recognised + 2 == 5


def test_the_host_is_named_where_all_say_the_same(tmp_path: Path) -> None:
    cpu = {"t": "host", "cpu": "AMD EPYC", "missing": []}
    write(tmp_path, "frontend-1", [cpu, {"t": "host", "tokenizer": "Fast of 8192 tokens"}])
    write(tmp_path, "frontend-2", [cpu])
    host = read_host_side(tmp_path)
    assert (host.cpu, host.tokenizer) == ("AMD EPYC", "Fast of 8192 tokens")
    write(tmp_path, "frontend-3", [{**cpu, "cpu": "another"}])
    assert read_host_side(tmp_path).cpu is None


def test_a_recording_carries_its_host_side(tmp_path: Path) -> None:
    recording = Recording()
    for _ in range(4):
        recording.step([(1, 5, 4, 0)])
    folder = recording.write(tmp_path / "run")
    start = recording.start_ns
    write(folder, "frontend-1", [admission("a", start), OUTPUT, done("a", start)])
    write(folder, "frontend-2", [accept("a", start + 200)])
    write(folder, "client-3", [served("a", start), served("b", start, status=404)])
    (run,) = read(folder)
    assert run.events.kind.size == 3
    assert run.served.request.size == 2
    assert run.counts.rejected == 1
    counts = run.counts
    assert counts.lines == counts.steps + counts.recognised + counts.rejected
    assert run.steps.count == 4


def test_each_life_of_an_engine_has_its_own_host_side(tmp_path: Path) -> None:
    first, second = Recording(), Recording(start_ns=90_000 * MS)
    for recording in (first, second):
        for _ in range(4):
            recording.step([(1, 5, 4, 0)])
    folder = first.write(tmp_path / "run")
    other = second.write(tmp_path / "other")
    for path in other.glob("*.jsonl"):
        path.rename(folder / path.name.replace("-", "-9"))
    # Before the first step of a life, as a first admission is, and among its steps.
    moments = (first.start_ns - MS, first.start_ns + MS, second.start_ns - MS)
    rows = [admission(str(n), at) for n, at in enumerate(moments)]
    write(folder, "frontend-1", rows)
    write(folder, "frontend-2", [accept(str(n), at + 200) for n, at in enumerate(moments)])
    runs = read(folder)
    assert [run.events.kind.size for run in runs] == [2, 1]
    assert sum(run.counts.lines for run in runs) == 2 * 2 * 6 + 2 * 4


def test_a_file_that_is_none_of_the_recorders_is_refused(tmp_path: Path) -> None:
    recording = Recording()
    recording.step([(1, 5, 4, 0)])
    folder = recording.write(tmp_path / "run")
    (folder / "client-1.jsonl").write_text('{"a": 1}\n', encoding="utf-8")
    with pytest.raises(InputError, match="no header row"):
        read(folder)
