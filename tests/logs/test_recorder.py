from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.documents.problems import InputError
from kernelfit.logs.columns import UNKNOWN
from kernelfit.logs.marks import mark_names
from tests.logs.recording import MS, Recording, adds_up, header, read, small, write_rows


def test_a_small_recording(tmp_path: Path) -> None:
    (run,) = read(small().write(tmp_path / "run"))
    steps = run.steps
    assert adds_up(run)
    # 4 steps, 2 headers, 2 clocks and 4 joined spans.
    assert (run.counts.lines, run.counts.steps, run.counts.recognised) == (12, 4, 8)
    assert run.timing == "device"
    assert run.composition == "per_request"
    assert run.fit_refused_reason is None
    assert steps.step.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(steps.duration_s, 10e-3)
    np.testing.assert_allclose(steps.schedule_s, 1e-3)
    np.testing.assert_allclose(steps.update_s, 1e-3)
    np.testing.assert_allclose(steps.wait_s, 12e-3)
    # 13 ms from the start to the update, less 1 ms of scheduling and 10 ms of work.
    np.testing.assert_allclose(steps.dispatch_s, 2e-3)
    np.testing.assert_allclose(steps.start_s, [1.0, 1.02, 1.04, 1.06])
    assert steps.phases() == ("prefill", "prefill", "decode", "mixed")
    assert steps.scheduled_tokens.tolist() == [64, 36, 1, 41]
    assert steps.context_tokens.tolist() == [64, 100, 101, 102 + 72]
    assert steps.decode_requests.tolist() == [0, 0, 1, 1]
    assert steps.marks.tolist() == [0, 0, 0, 0]
    assert run.requests.step.tolist() == [0, 1, 2, 3, 3]
    assert run.requests.cached.tolist() == [0, 0, 0, 0, 32]
    assert run.recorder_cost_share == pytest.approx(1e-5 / 10e-3)
    assert run.stated["engine_version"] == "0.32.0"


def test_with_two_ranks_the_slowest_counts(tmp_path: Path) -> None:
    (run,) = read(small(ranks=2).write(tmp_path / "run"))
    np.testing.assert_allclose(run.steps.duration_s, 10.5e-3)
    assert run.counts.recognised == 3 + 3 + 8
    assert adds_up(run)


def test_gpu_time_wins_over_the_host_span(tmp_path: Path) -> None:
    recording = small()
    for row in recording.workers[0]:
        row["gpu_ms"] = 7.25
    del recording.workers[0][1]["gpu_ms"]
    (run,) = read(recording.write(tmp_path / "run"))
    np.testing.assert_allclose(run.steps.duration_s, 7.25e-3)
    assert run.steps.step.tolist() == [0, 2, 3]
    assert "GPU time" in run.rejects[0].reason
    assert adds_up(run)


@given(st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_the_order_of_rows_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, rng: random.Random
) -> None:
    folder = tmp_path_factory.mktemp("r")
    recording = small(ranks=2)
    for number, row in enumerate(recording.workers[1]):
        row["span_ns"][1] += number * MS
    straight = read(recording.write(folder / "a"))[0]
    for rows in (recording.steps, *recording.workers):
        rng.shuffle(rows)
    shuffled = read(recording.write(folder / "b"))[0]
    for name in ("step", "duration_s", "dispatch_s", "context_tokens", "requests"):
        np.testing.assert_array_equal(getattr(straight.steps, name), getattr(shuffled.steps, name))
    np.testing.assert_array_equal(straight.requests.computed, shuffled.requests.computed)
    assert adds_up(shuffled)


def test_the_first_mismatch_ends_the_join(tmp_path: Path) -> None:
    recording = small()
    recording.workers[0][2]["n"] = 9
    (run,) = read(recording.write(tmp_path / "run"))
    assert run.steps.step.tolist() == [0, 1]
    # Two steps and the two spans that they would have had.
    assert run.counts.rejected == 4
    assert adds_up(run)
    reason = next(r.reason for r in run.rejects if r.file.startswith("engine"))
    assert "at ordinal 2 the engine scheduled 1 tokens and worker-11.jsonl computed 9" in reason


def test_a_missing_span_costs_only_its_step(tmp_path: Path) -> None:
    recording = small(ranks=2)
    del recording.workers[1][1]
    (run,) = read(recording.write(tmp_path / "run"))
    assert run.steps.step.tolist() == [0, 2, 3]
    assert [r.reason for r in run.rejects] == ["not joined: worker-12.jsonl has no span for it"]
    assert run.rejects[0].line == 4
    assert run.rejects[0].text.startswith('{"t": "step", "i": 0, ')


def test_steps_without_tokens_are_recognised(tmp_path: Path) -> None:
    recording = small()
    recording.step([])
    (run,) = read(recording.write(tmp_path / "run"))
    assert run.steps.count == 4
    assert run.counts.rejected == 0
    assert adds_up(run)


def test_marks(tmp_path: Path) -> None:
    recording = Recording()
    recording.step([(1, 5, 5, 0)], resumed=1)
    recording.step([(1, 5, 5, 0)], preempted=2)
    recording.step([(3, 5, 5, 0)], drafts=2)
    recording.step([(1, 5, 5, 0)], in_flight=2)
    recording.step([(1, 5, 5, 0)], span_ms=0.0)
    recording.step([(1, 5, 5, 0)])
    (run,) = read(recording.write(tmp_path / "run"))
    assert [mark_names(b) for b in run.steps.marks.tolist()] == [
        ("resumed",),
        ("preempted",),
        ("spec",),
        ("in_flight",),
        ("zero_duration",),
        (),
    ]
    # With two steps in flight the time outside the worker cannot be told.
    assert np.isnan(run.steps.dispatch_s).tolist() == [False, False, False, True, False, False]


def test_a_compiling_first_step_is_marked_and_a_slow_one_is_not(tmp_path: Path) -> None:
    for span_ms, marked in ((101.0, True), (99.0, False)):
        recording = Recording()
        recording.step([(8, 0, 8, 0)], span_ms=span_ms, update_ns=None)
        recording.step([(1, 8, 8, 0)])
        (run,) = read(recording.write(tmp_path / f"{span_ms}"))
        assert (mark_names(int(run.steps.marks[0])) == ("warmup",)) is marked


def test_unknown_counts(tmp_path: Path) -> None:
    recording = Recording()
    recording.step([(1, None, 5, None), (1, 4, 4, 0)])
    recording.step([(1, 4, None, 0)])
    recording.step([(1, 4, 0, 0)])
    (run,) = read(recording.write(tmp_path / "run"))
    assert run.steps.context_tokens.tolist() == [UNKNOWN, 5, 5]
    assert run.steps.phases() == (None, None, None)
    assert run.requests.computed.tolist() == [UNKNOWN, 4, 4, 4]
    assert run.requests.prompt_len.tolist() == [5, 4, UNKNOWN, UNKNOWN]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"n": 3}, "schedule 1 tokens and the step 3"),
        ({"scheduled": [-1], "n": -1}, ">= 0"),
        ({"computed": [-4]}, ">= 0"),
        ({"computed": [2**24 + 1]}, "<= 16777216"),
        ({"scheduled": [1, 1]}, "differ in length"),
        ({"cached": [101]}, "prefix-cache hit exceeds"),
        ({"i": 1}, "ordinal 1 is repeated"),
        ({"sched_ns": [5, 4]}, "sched_ns runs backwards"),
        ({"kv_usage": 1.5}, "<= 1.0"),
        ({"kv_usage": float("nan")}, "not a number"),
        ({"resumed": -1}, ">= 0"),
        ({"scheduled": [1.5]}, "Expected `int`"),
        ({"computed": None}, "Expected `array`"),
    ],
)
def test_a_bad_step_is_rejected_with_its_place(
    tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    recording = small()
    recording.steps[2].update(change)
    (run,) = read(recording.write(tmp_path / "run"))
    assert run.steps.step.tolist() == [0, 1, 3]
    first = run.rejects[0]
    assert reason in first.reason
    assert (first.file, first.line) == ("engine-10.jsonl", 5)
    assert first.text.startswith('{"t": "step"')
    assert adds_up(run)


def test_bad_spans_are_rejected(tmp_path: Path) -> None:
    recording = small()
    recording.workers[0][0]["span_ns"] = [10, 5]
    recording.workers[0][1]["span_ns"] = [10]
    (run,) = read(recording.write(tmp_path / "run"))
    assert run.steps.step.tolist() == [2, 3]
    assert "the span is negative" in run.rejects[0].reason
    assert adds_up(run)


def test_one_ranks_negative_span_does_not_hide_behind_another(tmp_path: Path) -> None:
    recording = small(ranks=3)
    recording.workers[1][0]["span_ns"] = [10, 5]
    (run,) = read(recording.write(tmp_path / "run"))
    assert run.steps.step.tolist() == [1, 2, 3]


def test_a_cut_last_line_is_a_step_that_was_not_finished(tmp_path: Path) -> None:
    folder = small().write(tmp_path / "run")
    path = folder / "engine-10.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    (run,) = read(folder)
    assert run.steps.count == 3
    # The cut line, and the span of the step that it was.
    assert (run.unfinished, run.rejects) == (2, ())
    assert adds_up(run)


def test_a_cut_line_within_a_file_is_a_reject(tmp_path: Path) -> None:
    folder = small().write(tmp_path / "run")
    path = folder / "engine-10.jsonl"
    path.write_bytes(path.read_bytes()[:-30] + b"\n")
    (run,) = read(folder)
    assert [r.reason for r in run.rejects] == ["the line is cut short"]
    assert adds_up(run)


def test_compressed_files_and_one_that_ends_early(tmp_path: Path) -> None:
    folder = Recording()
    rng = random.Random(3)
    for _ in range(400):
        folder.step([(1, rng.randrange(5, 4000), 5, 0)])
    path = folder.write(tmp_path / "run")
    plain = read(path)[0]
    for file in path.glob("*.jsonl"):
        (path / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    packed = read(path)[0]
    np.testing.assert_array_equal(plain.steps.context_tokens, packed.steps.context_tokens)
    engine = path / "engine-10.jsonl.gz"
    data = engine.read_bytes()
    engine.write_bytes(data[: len(data) // 2])
    (cut,) = read(path)
    assert 0 < cut.steps.count < 400
    assert any("ends early" in r.reason for r in cut.rejects)
    assert adds_up(cut)


def test_recorder_cost_above_one_percent_is_refused(tmp_path: Path) -> None:
    for cost_ns, refused in ((101_000, True), (99_000, False)):
        recording = Recording()
        recording.step([(1, 5, 5, 0)], cost_ns=cost_ns)
        (run,) = read(recording.write(tmp_path / f"{cost_ns}"))
        assert (run.fit_refused_reason is not None) is refused


def test_engines_side_by_side_are_ranks_and_one_after_another_are_runs(tmp_path: Path) -> None:
    folder = tmp_path / "both"
    first, second = small(), Recording()
    for number in range(4):
        second.step([(2 + number, 7, 20, 0)], span_ms=8.0)
    first.write(folder, pid=10)
    second.write(folder, pid=20)
    (run,) = read(folder)
    assert run.steps.engine.tolist() == [0] * 4 + [1] * 4
    np.testing.assert_allclose(run.steps.duration_s, [10e-3] * 4 + [8e-3] * 4)
    assert run.requests.engine.tolist() == [0] * 5 + [1] * 4
    assert adds_up(run)

    folder = tmp_path / "restart"
    later = Recording(start_ns=500_000 * MS)
    later.step([(3, 7, 20, 0)], span_ms=6.0)
    first.write(folder, pid=10)
    later.write(folder, pid=20)
    runs = read(folder)
    assert [r.steps.count for r in runs] == [4, 1]
    assert all(adds_up(r) for r in runs)


def test_a_worker_that_fits_two_engines_is_not_guessed(tmp_path: Path) -> None:
    folder = tmp_path / "twins"
    small().write(folder, pid=10)
    small().write(folder, pid=20)
    (run,) = read(folder)
    assert run.steps.count == 0
    assert any("cannot be told" in r.reason for r in run.rejects)
    assert adds_up(run)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: None, "no engine-*.jsonl"),
        (lambda p: (p / "engine-1.jsonl").write_text(""), "the log is empty"),
        (lambda p: (p / "engine-1.jsonl").write_text("hello\nworld\n"), "no header row"),
        (lambda p: write_rows(p / "engine-1.jsonl", "worker", []), "role does not fit"),
        (
            lambda p: (p / "engine-1.jsonl").write_text(
                json.dumps(header("engine") | {"version": 3}) + "\n"
            ),
            "unknown recorder format",
        ),
    ],
)
def test_what_is_no_recording(tmp_path: Path, make: object, message: str) -> None:
    make(tmp_path)  # type: ignore[operator]
    with pytest.raises(InputError, match=message.replace("*", r"\*")) as caught:
        read(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_plain_and_compressed_together_are_refused(tmp_path: Path) -> None:
    folder = small().write(tmp_path / "run")
    (folder / "engine-10.jsonl.gz").write_bytes(gzip.compress(b"x"))
    with pytest.raises(InputError, match="plain and compressed"):
        read(folder)


piece = st.sampled_from(
    [
        b'{"t":"step"',
        b'{"t":"worker","i":0,"rank":0,"n":1,"span_ns":[1,2]}',
        b'{"t":"step","i":0,"n":1,"sched_ns":[1,2],"scheduled":[1],"computed":[0],'
        b'"prompt_len":[1],"cached":[0],"update_ns":[5,6]}',
        b'{"t":"step","i":18446744073709551615,"n":1,"sched_ns":[1,2],"scheduled":[1],'
        b'"computed":[0],"prompt_len":[1],"cached":[0]}',
        b'{"t":"clock","wall_ns":1,"mono_ns":2}',
        b'{"t":"other"}',
        b"[" * 3000,
        b"\xff\xfe\x00",
        b"",
        b"NaN",
    ]
)


@given(st.lists(st.one_of(piece, st.binary(max_size=60)), max_size=12), st.booleans())
@settings(max_examples=150, deadline=None)
def test_no_line_crashes_and_none_is_lost(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], worker: bool
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    small().write(folder)
    text = b"".join(line.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n" for line in lines)
    path = folder / ("worker-11.jsonl" if worker else "engine-10.jsonl")
    path.write_bytes(path.read_bytes() + text)
    (run,) = read(folder)
    assert run.counts.lines == 12 + len(lines)
    assert adds_up(run)


def test_engines_that_look_alike_are_told_apart_by_who_started_the_worker(tmp_path: Path) -> None:
    # Two replicas with the same batches at the same moments: only the headers tell them apart,
    # and the data-parallel rank, not the process's number, says which engine is which.
    folder = tmp_path / "run"
    for pid, rank, span_ms in ((30, 1, 8.0), (40, 0, 5.0)):
        made = Recording()
        for number in range(6):
            made.step([(1, 100 + number, 50, 0)], span_ms=span_ms)
        made.write(folder, pid=pid)
        for role, own in (("engine", pid), ("worker", pid + 1)):
            path = folder / f"{role}-{own}.jsonl"
            lines = path.read_text().splitlines()
            said = header(role) | {"version": 2, "pid": own, "ppid": pid, "dp": rank, "boot": "b"}
            path.write_text("\n".join([json.dumps(said), *lines[1:]]) + "\n")
    (run,) = read(folder)
    assert (run.rejects, run.steps.count) == ((), 12)
    for engine, span_s in ((0, 5e-3), (1, 8e-3)):
        np.testing.assert_allclose(run.steps.duration_s[run.steps.engine == engine], span_s)
    assert adds_up(run)


def test_waiting_for_the_engine_is_no_part_of_the_pass(tmp_path: Path) -> None:
    recording = small()
    # 10 ms from the first call to the end of the second, 3 ms of them between the calls.
    recording.workers[0][2]["gap_ns"] = 3 * MS
    (run,) = read(recording.write(tmp_path / "run"))
    np.testing.assert_allclose(run.steps.duration_s, [10e-3, 10e-3, 7e-3, 10e-3])
    # What the pass does not take is the engine's: 13 ms less 1 ms of scheduling.
    np.testing.assert_allclose(run.steps.dispatch_s, [2e-3, 2e-3, 5e-3, 2e-3])


def test_the_recorders_time_in_the_slowest_worker_counts_too(tmp_path: Path) -> None:
    recording = small(ranks=2)
    for rank, cost_ns in enumerate((20_000, 30_000)):
        for row in recording.workers[rank]:
            row["cost_ns"] = cost_ns
    (run,) = read(recording.write(tmp_path / "run"))
    assert run.recorder_cost_share == pytest.approx((10_000 + 30_000) / 10.5e6)


def test_dummy_rows_are_recognised_on_both_sides(tmp_path: Path) -> None:
    folder = small().write(tmp_path / "run")
    for name in ("engine-10.jsonl", "worker-11.jsonl"):
        with (folder / name).open("a") as file:
            dummy = {"t": "dummy", "i": 0, "run_ns": [5, 6], "wave": 1, "counter": 7}
            file.write(json.dumps(dummy) + "\n")
    (run,) = read(folder)
    assert run.rejects == ()
    assert (run.counts.lines, run.counts.steps, run.counts.recognised) == (14, 4, 10)
