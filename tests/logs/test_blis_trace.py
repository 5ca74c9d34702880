"""Steps rebuilt from chunk times, against the steps that made them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.documents.problems import InputError
from kernelfit.logs.blis_trace import BlisTraceReader
from kernelfit.logs.columns import UNKNOWN, ParsedRun
from kernelfit.logs.source import RunSource
from tests.logs.recording import adds_up

HEADER_YAML = """\
trace_version: 3
time_unit: us
mode: real
server:
  type: vllm
  model: org/Qwen3-14B
  tensor_parallel: 2
  max_num_seqs: 64
"""
PLAIN = {"enable_prefix_caching": False, "max_num_batched_tokens": 8192}


@dataclass
class Engine:
    """Continuous batching on one engine: prompts run whole in the first step after arrival."""

    seed: int = 0
    requests: int = 12
    gap_us: float = 40_000.0
    twins: bool = True
    chunks: list[tuple[int, int, float]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    steps: list[tuple[float, float, list[tuple[int, int]]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        arrivals = 1e6 + np.cumsum(rng.exponential(self.gap_us, self.requests))
        prompt = rng.integers(20, 400, self.requests)
        output = rng.integers(3, 40, self.requests)
        done = np.zeros(self.requests, int)
        times: list[list[float]] = [[] for _ in range(self.requests)]
        now = 0.0
        while (done < output).any():
            active = [r for r in range(self.requests) if arrivals[r] < now and done[r] < output[r]]
            if not active:
                now = float(arrivals[done < output].min()) + 300.0
                continue
            shape = [
                (int(prompt[r]), 0) if done[r] == 0 else (1, int(prompt[r] + done[r] - 1))
                for r in active
            ]
            took = 9_000.0 + 40.0 * len(active) + 10.0 * sum(s for s, _ in shape if s > 1)
            self.steps.append((now, took, shape))
            now += took
            for order, r in enumerate(active):
                times[r].append(now + 15.0 * order + float(rng.uniform(0, 10)))
                done[r] += 1
        for r in range(self.requests):
            sent = [times[r][0] - 12.0, *times[r], times[r][-1] + 8.0] if self.twins else times[r]
            self.chunks += [(r, k, t) for k, t in enumerate(sent)]
            self.rows.append(
                {
                    "request_id": f"req-{r}",
                    "input_tokens": int(prompt[r]),
                    "server_input_tokens": int(prompt[r]),
                    "output_tokens": int(output[r]),
                    "send_time_us": f"{arrivals[r]:.1f}",
                    "status": "ok",
                    "error_message": "",
                }
            )

    def write(self, folder: Path, header: str | None = HEADER_YAML) -> Path:
        names = list(self.rows[0])
        lines = [",".join(names)] + [",".join(str(r[n]) for n in names) for r in self.rows]
        (folder / "trace.csv").write_text("\n".join(lines) + "\n")
        if header is not None:
            (folder / "trace.yaml").write_text(header)
        path = folder / "trace.itl.csv"
        body = "".join(f"req-{r},{k},{t:.1f}\n" for r, k, t in self.chunks)
        path.write_text("request_id,chunk_index,timestamp_us\n" + body)
        return path


def read(path: Path, **said: object) -> ParsedRun:
    source = RunSource(path, None, "blis-trace", path.name, "r", said)
    (run,) = BlisTraceReader().read(source, None)
    assert adds_up(run)
    return run


def planted(engine: Engine) -> list[tuple[float, list[tuple[int, int]]]]:
    """Steps that began when the one before ended, with their requests."""
    found = []
    for before, step in zip(engine.steps, engine.steps[1:], strict=False):
        if abs(before[0] + before[1] - step[0]) < 1e-6:
            found.append((step[1] * 1e-6, sorted(step[2])))
    return found


def rebuilt(run: ParsedRun) -> list[tuple[float, list[tuple[int, int]]]]:
    steps, requests = run.steps, run.requests
    return [
        (
            float(steps.duration_s[place]),
            sorted(
                zip(
                    requests.scheduled[requests.step == step].tolist(),
                    requests.computed[requests.step == step].tolist(),
                    strict=True,
                )
            ),
        )
        for place, step in enumerate(steps.step.tolist())
    ]


def assert_were(got: list[Any], was: list[Any]) -> None:
    """Every row is a step that was, in order, its time within the scatter of arrivals."""
    at = 0
    for took_s, shape in got:
        while at < len(was) and (was[at][1] != shape or abs(was[at][0] - took_s) > 60e-6):
            at += 1
        assert at < len(was), f"no step was {shape} in {took_s} s"
        at += 1


@pytest.mark.parametrize("seed", range(4))
def test_every_row_is_a_step_that_was(tmp_path: Path, seed: int) -> None:
    engine = Engine(seed)
    run = read(engine.write(tmp_path), **PLAIN)
    was = planted(engine)
    got = rebuilt(run)
    assert len(got) > 0.8 * len(was)
    assert_were(got, was)
    assert run.timing == "cycle"
    assert run.fit_refused_reason is None
    assert run.composition == "per_request"
    assert run.stated["tp"] == 2
    assert run.stated["model_name"] == "Qwen3-14B"
    assert set(run.requests.cached.tolist()) == {0}


def test_first_tokens_need_to_know_the_prompt(tmp_path: Path) -> None:
    path = Engine(1).write(tmp_path)
    sure = read(path, **PLAIN)
    unsure = read(path)
    assert (sure.requests.scheduled > 1).any()
    assert not (unsure.requests.scheduled > 1).any()
    assert set(unsure.requests.cached.tolist()) == {UNKNOWN}
    # A budget that the prompts exceed leaves their split unknown too.
    small = read(path, enable_prefix_caching=False, max_num_batched_tokens=100)
    assert small.requests.scheduled.max() <= 100
    assert (
        set(unsure.steps.step.tolist())
        < set(small.steps.step.tolist())
        < set(sure.steps.step.tolist())
    )


def test_without_twins_nothing_is_dropped(tmp_path: Path) -> None:
    with_them = tmp_path / "a"
    without = tmp_path / "b"
    with_them.mkdir()
    without.mkdir()
    first = read(Engine(2).write(with_them), **PLAIN)
    second = read(Engine(2, twins=False).write(without), **PLAIN)
    assert len(rebuilt(first)) == len(rebuilt(second)) > 0
    assert [s for _, s in rebuilt(first)] == [s for _, s in rebuilt(second)]


def test_two_chunks_a_token_are_refused(tmp_path: Path) -> None:
    engine = Engine(3)
    for row in engine.rows:
        row["output_tokens"] = max(1, row["output_tokens"] // 2)
    run = read(engine.write(tmp_path), **PLAIN)
    assert run.steps.count == 0
    assert len(run.rejects) == engine.requests
    assert "chunks for" in run.rejects[0].reason


def test_a_request_that_cannot_be_used_spoils_its_steps(tmp_path: Path) -> None:
    engine = Engine(1)
    path = engine.write(tmp_path)
    clean = read(path, **PLAIN).steps.count
    engine.chunks = [c for c in engine.chunks if c[:2] != (5, 2)]
    run = read(engine.write(tmp_path), **PLAIN)
    assert [r.reason for r in run.rejects] == ["chunks are missing or repeated"]
    assert (run.rejects[0].file, run.rejects[0].line) == ("trace.csv", 7)
    times = [t * 1e-6 for r, _, t in engine.chunks if r == 5]
    for start, _ in zip(*_rows(run), strict=True):
        assert not min(times) < start < max(times)
    assert 0 < run.steps.count < clean


def _rows(run: ParsedRun) -> tuple[list[float], list[float]]:
    return run.steps.start_s.tolist(), run.steps.duration_s.tolist()


def test_failed_requests_spoil_what_they_may_have_run_in(tmp_path: Path) -> None:
    engine = Engine(1)
    whole = read(engine.write(tmp_path), **PLAIN)
    engine.rows[3]["status"] = "error"
    run = read(engine.write(tmp_path), **PLAIN)
    assert 0 < run.steps.count < whole.steps.count
    assert_were(rebuilt(run), planted(engine))


def test_other_modes_are_no_measurement(tmp_path: Path) -> None:
    run = read(Engine(1).write(tmp_path, HEADER_YAML.replace("real", "generated")), **PLAIN)
    assert "no server was measured" in str(run.fit_refused_reason)
    path = Engine(1).write(tmp_path)
    path.with_name("trace.yaml").unlink()
    assert read(path, **PLAIN).fit_refused_reason is None


def test_bundles_that_do_not_separate_are_refused(tmp_path: Path) -> None:
    engine = Engine(1)
    rng = np.random.default_rng(0)
    engine.chunks = [(r, k, t + float(rng.uniform(0, 9e3))) for r, k, t in engine.chunks]
    engine.chunks.sort(key=lambda c: (c[0], c[2]))
    number = {}
    again = []
    for r, _, t in engine.chunks:
        number[r] = number.get(r, -1) + 1
        again.append((r, number[r], t))
    engine.chunks = again
    run = read(engine.write(tmp_path), **PLAIN)
    # Either the bundles are seen not to separate, or no chunk count fits any more.
    assert run.fit_refused_reason is not None or run.steps.count == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: p.with_name("trace.csv").unlink(), "requests of the trace are missing"),
        (lambda p: p.with_name("trace.yaml").write_text("time_unit: ms\n"), "not in microseconds"),
        (lambda p: p.write_text("a,b\n1,2\n"), "no column request_id"),
        (lambda p: p.write_text(""), "empty"),
    ],
)
def test_what_is_no_trace(tmp_path: Path, change: Any, words: str) -> None:
    path = Engine(1).write(tmp_path)
    change(path)
    with pytest.raises(InputError, match=words):
        read(path)


def test_several_engines_cannot_be_told_apart(tmp_path: Path) -> None:
    path = Engine(1).write(tmp_path)
    with pytest.raises(InputError, match="several engines"):
        read(path, dp=2)
    assert read(path, dp=1).steps.count


noise = st.one_of(
    st.sampled_from(["", "x", "-1", "nan", "1e999", "req-1", '"', "\x00", "9" * 30, ","]),
    st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=8),
)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 60), noise), max_size=6))
@settings(max_examples=60, deadline=None)
def test_damage_never_crashes_and_loses_no_line(
    tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[bool, int, str]]
) -> None:
    folder = tmp_path_factory.mktemp("t")
    path = Engine(1, requests=4).write(folder)
    for requests, place, text in damage:
        file = path.with_name("trace.csv") if requests else path
        lines = file.read_text().split("\n")
        number = place % len(lines)
        lines[number] = text if len(text) % 2 else lines[number][: len(text)] + text
        file.write_text("\n".join(lines))
    try:
        run = read(path, **PLAIN)
    except InputError:
        return
    total = 0
    for name in ("trace.csv", "trace.itl.csv"):
        data = path.with_name(name).read_bytes()
        total += data.count(b"\n") + (not data.endswith(b"\n"))
    assert run.counts.lines == total
