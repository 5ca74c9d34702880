"""Lines taken apart together give the very rows that lines read with care give."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.logs import vllm_log, vllm_parse
from kernelfit.logs.vllm_lines import Printed, printed_steps
from kernelfit.logs.vllm_parse import parse
from kernelfit.logs.vllm_shapes import MARGIN_BYTES, Shapes
from tests.logs.forms import all_forms
from tests.logs.forms.vllm_averages import BASE, V1
from tests.logs.forms.vllm_steps import INIT, REQUEST

VLLM = tuple(form for form in all_forms() if form.reader == "vllm-log")


def same(path: Path, block_bytes: int) -> None:
    fast = parse(path, block_bytes=block_bytes)
    careful = parse(path, fast=False, block_bytes=1 << 22)
    one, other = list(fast.lives), list(careful.lives)
    assert len(one) == len(other)
    assert fast.is_log == careful.is_log
    for mine, theirs in zip(one, other, strict=True):
        for a, b in zip(mine.table(), theirs.table(), strict=True):
            np.testing.assert_array_equal(a, b)
        for name in ("tally", "stated", "startup", "intervals", "last", "pids", "when"):
            assert getattr(mine, name) == getattr(theirs, name), name
        run, again = vllm_log._run(mine), vllm_log._run(theirs)
        assert (run.counts, run.clock, run.rejects) == (again.counts, again.clock, again.rejects)


@pytest.mark.parametrize("form", VLLM, ids=lambda form: form.name)
@pytest.mark.parametrize("times", [1, 3])
def test_every_form_reads_the_same(tmp_path: Path, form: object, times: int) -> None:
    path = tmp_path / "x.log"
    path.write_bytes((form.data() + b"\n") * times)  # type: ignore[attr-defined]
    for block_bytes in (64, 700, 1 << 20):
        same(path, block_bytes)


number = st.one_of(st.integers(0, 9), st.integers(0, 99_999), st.integers(9_999_990, 10_000_010))
decimal = st.one_of(
    st.decimals(0, 5000, places=2).map(lambda d: f"{d:.2f}"),
    st.sampled_from(["nan", "1", "0.1234567", "0.12345678", "99999999.5", "1.", ".5", "-1.00"]),
)
stamp = st.builds(
    lambda m, d, s: f"{m:02d}-{d:02d} 06:{s // 60:02d}:{s % 60:02d}",
    st.sampled_from([1, 11, 12]),
    st.sampled_from([1, 30, 31]),
    st.integers(0, 3599),
)


@st.composite
def step_line(draw: st.DrawFn) -> str:
    context, generation = draw(number), draw(number)
    context_tokens = context + draw(st.sampled_from([0, 0, 5, -1])) if context else 0
    generation_tokens = generation + draw(st.sampled_from([0, 0, 0, 700]))
    head = draw(
        st.sampled_from(
            [
                "(APIServer pid=9) INFO {t} [loggers.py:199] Engine {e:03d}: ",
                "(EngineCore_DP{e} pid=4{e}) INFO {t} [core.py:344] ",
                "\x1b[0;36m(APIServer pid=9)\x1b[0;0m \x1b[32mINFO\x1b[0m {t} Engine {e:03d}: ",
                "2026-{d}T{c}.12345Z Engine {e:03d}: ",
                "INFO {t} prompt: ",
                "{t}",
            ]
        )
    )
    when = draw(stamp)
    head = head.format(t=when, e=draw(st.integers(0, 2)), d=when[:5], c=when[6:])
    tail = draw(
        st.sampled_from(
            ["", ", GPU KV cache usage: {k}%", ", CPU KV cache usage: {k}%\r", " (dummy)", "x"]
        )
    ).format(k=draw(decimal))
    return (
        f"{head}Iteration({draw(number)}): {context} context requests, {context_tokens} context "
        f"tokens, {generation} generation requests, {generation_tokens} generation tokens, "
        f"iteration elapsed time: {draw(decimal)} ms{tail}"
    )


chatter = st.sampled_from(
    [
        "",
        "tqdm 12%",
        'INFO:     10.0.0.1:5010 - "POST /v1/completions HTTP/1.1" 200 OK',
        INIT.format(tp=2),
        REQUEST.format(q="Iteration(3): it"),
        f"{V1}Engine 001: {BASE}Waiting: 3 reqs, GPU KV cache usage: 12.5%",
        "\x00\x00",
    ]
)


@given(st.lists(st.one_of(step_line(), step_line(), chatter), max_size=40), st.data())
@settings(max_examples=150, deadline=None)
def test_both_ways_agree(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("t") / "x.log"
    # Runs of like lines are what the shapes are for.
    again = data.draw(st.lists(st.sampled_from(lines), max_size=20)) if lines else []
    path.write_bytes("\n".join([*lines, *again]).encode())
    same(path, data.draw(st.sampled_from([50, 1000, 1 << 20])))


@given(step_line())
@settings(max_examples=200, deadline=None)
def test_a_learned_line_fits_its_own_shape(text: str) -> None:
    line = text.encode()
    found = printed_steps(line)
    shapes = Shapes()
    if len(found) != 1 or not isinstance(found[0], Printed) or not shapes.learn(line, found[0]):
        return
    block = line + b"\n" + bytes(MARGIN_BYTES)
    rows, left = shapes.match(block, np.array([0]), np.array([0]), np.array([len(line)]))
    if found[0].complaint() is not None or found[0].idle:
        assert rows is None or rows.count == 0
        assert left.tolist() == [0]
        return
    assert rows is not None
    assert left.size == 0
    printed = dataclasses.asdict(found[0])
    names = ("index", "context", "context_tokens", "generation", "generation_tokens")
    assert rows.counts[:, 0].tolist() == [printed[name] for name in names]
    assert rows.elapsed_s.tolist() == [printed["elapsed_s"]]
    np.testing.assert_array_equal(rows.usage, [printed["usage"]])


def test_most_lines_of_a_real_log_need_no_care(tmp_path: Path) -> None:
    """Otherwise the speed is gone, and no other test would notice."""
    head = "(APIServer pid=9) INFO 11-30 06:19:12 [loggers.py:199] Engine 000: "
    body = "0 context requests, 0 context tokens, 8 generation requests, 8 generation tokens"
    lines = [
        f"{head}Iteration({i}): {body}, iteration elapsed time: {i % 90}.{i % 100:02d} ms, "
        f"GPU KV cache usage: {i % 100}.5%"
        for i in range(2000)
    ]
    path = tmp_path / "x.log"
    path.write_text("\n".join(lines) + "\n")
    careful: list[int] = []

    class Counting(vllm_parse.Parser):
        def _line(self, number: int, line: bytes, place: int = 0) -> None:
            careful.append(number)
            super()._line(number, line, place)

    parser = Counting(path.name, Shapes())
    parser.feed(1, path.read_bytes() + bytes(MARGIN_BYTES))
    assert careful == []
    assert parser.lives.now.steps == 2000
