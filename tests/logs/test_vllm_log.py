"""The text-log reader on lines built from the published templates."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.documents.problems import InputError
from kernelfit.logs.columns import UNKNOWN, ParsedRun
from kernelfit.logs.marks import mark_names
from kernelfit.logs.source import RunSource
from kernelfit.logs.vllm_log import VllmLogReader
from tests.logs.recording import adds_up


def body(
    index: int,
    context: str = "0 context requests, 0 context tokens",
    generation: str = "8",
    **k: str,
) -> str:
    return (
        f"Iteration({index}): {context}, {generation} generation requests, "
        f"{k.get('tokens', generation)} generation tokens, "
        f"iteration elapsed time: {k.get('ms', '10.99')} ms"
    )


HEAD = "INFO 11-30 06:19:12 [loggers.py:199] "
KV = ", GPU KV cache usage: 12.5%"


def read(path: Path) -> tuple[ParsedRun, ...]:
    runs = VllmLogReader().read(RunSource(path, None, "vllm-log", path.name, "r"), None)
    assert all(adds_up(run) for run in runs)
    return runs


def parse(tmp_path: Path, *lines: str) -> tuple[ParsedRun, ...]:
    path = tmp_path / "engine.log"
    path.write_text("\n".join(lines) + "\n")
    return read(path)


@pytest.mark.parametrize(
    "line",
    [
        f"INFO 01-05 10:00:00 [core.py:344] {body(3)}",
        f"(EngineCore_DP0 pid=41) INFO 01-05 10:00:00 [core.py:344] {body(3)}",
        f"\x1b[1;36m(EngineCore_DP0 pid=41)\x1b[0;0m INFO 01-05 10:00:00 [core.py:344] {body(3)}",
        f"\x1b[0;36m(APIServer pid=9)\x1b[0;0m \x1b[32mINFO\x1b[0m \x1b[90m11-30 06:19:12\x1b[0m "
        f"\x1b[90m[loggers.py:199]\x1b[0m Engine 000: {body(3)}{KV}",
        f"(APIServer pid=9) {HEAD}Engine 000: {body(3)}{KV}",
        f"(APIServer pid=9) {HEAD}Engine 000: {body(3)}, CPU KV cache usage: 12.5%",
        f"{HEAD}Engine 000: {body(3)}{KV}, encoder inputs: 2, encoder output embeddings: 640",
        f"{HEAD}Engine 000: {body(3)}{KV}, result wait time: 9.1",
        f"2026-05-12T07:54:39.312201059Z {HEAD}Engine 000: {body(3)}{KV}",
        f"vllm_server  | (APIServer pid=1) {HEAD}Engine 000: {body(3)}{KV}",
        f"(RayWorkerProc pid=7, ip=10.0.0.1) {HEAD}{body(3)}{KV} [repeated 7x across cluster]",
        f"{HEAD}Engine 000: {body(3)}{KV}      │",
        f"2026-02-17 15:54:51,123 INFO vllm.v1.metrics.loggers: Engine 000: {body(3)}{KV}",
        f"DEBUG 11-30 06:19:12 [v1/.../loggers.py:199] {body(3)}{KV}",
        json.dumps(
            {
                "asctime": "2026-11-30 06:35:56,886",
                "levelname": "INFO",
                "name": "vllm.v1.metrics.loggers",
                "process": 14,
                "message": f"Engine 000: {body(3)}{KV}",
                "vllm_process_name": "APIServer",
            }
        ),
        json.dumps(
            {"log": f"{HEAD}Engine 000: {body(3)}{KV}\n", "stream": "stdout", "time": "2026-05Z"}
        ),
        f"{HEAD}Engine 000: {body(3)}{KV}\r",
    ],
)
def test_every_form_of_the_line(tmp_path: Path, line: str) -> None:
    (run,) = parse(tmp_path, line)
    steps = run.steps
    assert (steps.step.tolist(), steps.engine.tolist()) == ([3], [0])
    assert steps.requests.tolist() == steps.scheduled_tokens.tolist() == [8]
    assert steps.decode_requests.tolist() == [8]
    assert steps.phases() == ("decode",)
    np.testing.assert_allclose(steps.duration_s, 10.99e-3)
    if "KV cache" in line:
        np.testing.assert_allclose(steps.kv_usage, 0.125)
    else:
        assert np.isnan(steps.kv_usage).all()
    assert run.timing == "wait"
    assert run.composition == "aggregated"
    assert run.counts.rejected == 0


def test_what_a_line_says_and_what_it_does_not(tmp_path: Path) -> None:
    mixed = "2 context requests, 300 context tokens"
    one = "1 context requests, 300 context tokens"
    single = "1 context requests, 1 context tokens"
    lines = (body(0, mixed), body(1, one, "0"), body(2, single), body(3, tokens="801"))
    (run,) = parse(tmp_path, *(HEAD + line for line in lines))
    steps = run.steps
    assert steps.requests.tolist() == [10, 1, 9, 8]
    assert steps.scheduled_tokens.tolist() == [308, 300, 9, 801]
    # Two prompts may hold a chunk of one token, and drafts hide how many decode.
    assert steps.decode_requests.tolist() == [UNKNOWN, 0, 9, UNKNOWN]
    assert steps.phases() == ("mixed", "prefill", "mixed", None)
    assert set(steps.context_tokens.tolist()) == {UNKNOWN}
    assert [mark_names(b) for b in steps.marks.tolist()] == [(), (), (), ("resume_or_spec",)]


def test_engines_and_restarts(tmp_path: Path) -> None:
    def line(engine: int, index: int) -> str:
        return f"(APIServer pid=9) {HEAD}Engine {engine:03d}: {body(index)}"

    init = (
        "(EngineCore pid=5) INFO 11-30 06:18:47 [core.py:133] Initializing a V1 LLM engine "
        "(v0.32.0) with config: model='folder/of/tiny', dtype=torch.bfloat16, max_seq_len=2048, "
        "tensor_parallel_size=2, pipeline_parallel_size=1, enforce_eager=True"
    )
    first, second = parse(
        tmp_path,
        init,
        line(0, 0),
        line(1, 0),
        line(0, 1),
        line(1, 1),
        init.replace("tensor_parallel_size=2", "tensor_parallel_size=4"),
        line(0, 2),
    )
    assert first.steps.engine.tolist() == [0, 1, 0, 1]
    assert (first.stated["tp"], second.stated["tp"]) == (2, 4)
    assert first.stated["dtype"] == "bfloat16"
    assert first.stated["engine_version"] == "0.32.0"
    assert first.stated["model_name"] == "tiny"
    assert (first.counts.lines, second.counts.lines) == (5, 2)
    # A falling index is a restart too, a lagging peer is not.
    runs = parse(tmp_path, line(0, 4), line(0, 5), line(1, 3), line(0, 0), line(0, 1))
    assert [r.steps.step.tolist() for r in runs] == [[4, 5, 3], [0, 1]]
    # So is another process.
    other = line(0, 6).replace("pid=9", "pid=10")
    assert len(parse(tmp_path, line(0, 4), line(0, 5), other)) == 2


def test_facts_of_the_start(tmp_path: Path) -> None:
    (run,) = parse(
        tmp_path,
        f"{HEAD}non-default args: {{'max_num_seqs': 64, 'block_size': 16}}",
        f"{HEAD}Chunked prefill is enabled with max_num_batched_tokens=512.",
        f"{HEAD}Asynchronous scheduling is enabled.",
        HEAD + body(0),
    )
    assert run.stated["max_num_seqs"] == 64
    assert run.stated["block_size"] == 16
    assert run.stated["max_num_batched_tokens"] == 512
    assert run.stated["async_scheduling"] is True
    assert "asynchronous scheduling is on" in str(run.fit_refused_reason)


def test_even_synchronous_durations_are_only_a_wait(tmp_path: Path) -> None:
    (run,) = parse(tmp_path, f"{HEAD}Asynchronous scheduling is disabled.", HEAD + body(0))
    assert run.timing == "wait"
    assert run.fit_refused_reason is not None
    assert "recorder" in run.fit_refused_reason


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (HEAD + body(5)[:-3], "cut"),
        (HEAD + body(5)[:60], "cut"),
        (HEAD + body(5, ms="nan"), "elapsed time is not a finite number (got nan)"),
        (HEAD + body(5, ms="-3.0"), "elapsed time is negative (got -3.0)"),
        (HEAD + body(5, tokens="-8"), "generation tokens is negative (got -8)"),
        (HEAD + body(5, tokens="8.5"), "generation tokens is not a whole number"),
        (HEAD + body(5, tokens="7"), "each request has a token"),
        (HEAD + body(5, tokens="0"), "each request has a token"),
        (HEAD + body(5) + ", GPU KV ca", "followed by something"),
        (HEAD + body(5) + ", GPU KV cache usage: 130.0%", "above 100 %"),
        ('{"message": "' + body(5)[:40], "JSON line is cut"),
        (HEAD + body(1), "iteration 1 of engine 0 is repeated"),
    ],
)
def test_a_bad_step_line_is_rejected_with_its_place(tmp_path: Path, line: str, reason: str) -> None:
    (run,) = parse(tmp_path, HEAD + body(0), HEAD + body(1), line, HEAD + body(9))
    assert run.steps.step.tolist() == [0, 1, 9]
    (reject,) = run.rejects
    assert reason in reject.reason
    assert (reject.file, reject.line) == ("engine.log", 3)
    assert reject.text.startswith("Iteration(")


def test_quoted_lines_are_no_steps_and_are_not_stored(tmp_path: Path) -> None:
    quoted = body(7)
    (run,) = parse(
        tmp_path,
        HEAD + body(0),
        f"{HEAD}Received request cmpl-1: prompt: 'what is {quoted}?', params: x",
        f"{HEAD}Received request cmpl-1: prompt: 'Iteration(3): my secret', params: x",
        f"{HEAD}Generated response cmpl-1: output: 'it is {quoted[:30]}', finish_reason: stop",
        '{"log": "Received request x: prompt: \'secret Iteration(2): ',
    )
    assert run.steps.step.tolist() == [0]
    assert run.counts.recognised == 4
    assert run.rejects == ()


def test_dummy_and_empty_steps_are_recognised(tmp_path: Path) -> None:
    (run,) = parse(
        tmp_path, HEAD + body(0), HEAD + body(1) + " (dummy)", HEAD + body(2, generation="0")
    )
    assert run.steps.step.tolist() == [0]
    assert run.counts.recognised == 2


def test_glued_records_are_two(tmp_path: Path) -> None:
    (run,) = parse(tmp_path, f"{HEAD}{body(0)}{KV}(APIServer pid=3) {HEAD}{body(1)}{KV}")
    assert run.steps.step.tolist() == [0, 1]
    assert run.counts.lines == 2


def test_compilation_in_step_0_is_marked(tmp_path: Path) -> None:
    (run,) = parse(tmp_path, HEAD + body(0, ms="1039.41"), HEAD + body(1, ms="14.37"))
    assert [mark_names(b) for b in run.steps.marks.tolist()] == [("warmup",), ()]
    (run,) = parse(tmp_path, HEAD + body(0, ms="143.6"), HEAD + body(1, ms="14.37"))
    assert run.steps.marks.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the log is empty"),
        ("Dear diary,\ntoday nothing happened.\n", "not a log of vLLM"),
        (HEAD + "Using max model len 2048\n", "holds no Iteration"),
        (HEAD + body(0, ms="nan") + "\n", "elapsed time is not a finite number"),
    ],
)
def test_what_is_no_usable_log(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.log"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read(path)


def test_a_compressed_log_that_ends_early(tmp_path: Path) -> None:
    lines = "".join(f"{HEAD}{body(i, ms=f'{i % 97}.{i % 89:02d}')}\n" for i in range(3000))
    data = gzip.compress(lines.encode())
    path = tmp_path / "x.log.gz"
    path.write_bytes(data[: len(data) // 2])
    (run,) = read(path)
    assert 0 < run.steps.count < 3000
    assert "ends early" in run.rejects[-1].reason


good = f"{HEAD}Engine 000: {body(1)}{KV}".encode()
fragment = st.one_of(
    st.binary(max_size=40),
    st.builds(lambda a, b: good[a:b], st.integers(0, len(good)), st.integers(0, len(good))),
    st.just(b"Iteration("),
    st.just(b'{"log": "'),
    st.just(b"\x1b[0m"),
    st.just(b"Iteration(99999999999999999999): "),
    st.just(body(2, tokens="9" * 30).encode()),
    st.just(b"Initializing a V1 LLM engine (v1) with config: tensor_parallel_size=x"),
)


@given(st.lists(st.lists(fragment, max_size=4).map(b"".join), max_size=15))
@settings(max_examples=300, deadline=None)
def test_no_line_crashes_and_none_is_lost(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    clean = [line.replace(b"\n", b"").replace(b"\r", b"") for line in [good, *lines]]
    path = tmp_path_factory.mktemp("fuzz") / "x.log"
    path.write_bytes(b"\n".join(clean) + b"\n")
    runs = read(path)
    total = sum(run.counts.lines for run in runs)
    # Only a line with glued records counts more than once.
    assert len(clean) <= total <= sum(max(1, line.count(b"Iteration(")) for line in clean)


def test_the_record_kind_of_the_clock(tmp_path: Path) -> None:
    stamped = json.dumps({"asctime": "2026-11-30 06:35:56,886", "message": body(1)})
    assert "date and milliseconds" in parse(tmp_path, stamped)[0].clock
    assert "no year" in parse(tmp_path, HEAD + body(1))[0].clock
