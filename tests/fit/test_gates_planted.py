"""How much of planted faults the gates find, and how much of clean steps they drop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.fit.gates import apply_gates, gate_marks, with_copies
from kernelfit.fit.steps import Floats, RunSteps
from kernelfit.kernel import RequestShape
from tests.fit.simulate import random_batches, simulate
from tests.kernel.builders import CHIP, EAGER, dense, mixture

LARGE = dense(hidden=4096, layers=16, intermediate=14336, heads=32, kv_heads=8)
MODELS = (dense(), LARGE, mixture())
STEPS = 3000
STEADY = [[RequestShape(1, 200 + i, 100)] * 8 for i in range(50)]


def served_batches(rng: np.random.Generator, steps: int) -> list[list[RequestShape]]:
    """Up to 32 requests that stay, grow by a token a step and leave, and prompts."""
    live: list[list[int]] = []
    out = []
    for _ in range(steps):
        requests = [RequestShape(1, done, prompt) for done, prompt, _ in live]
        live = [[done + 1, prompt, end] for done, prompt, end in live if done + 1 < end]
        if len(live) < 32 and (not requests or rng.random() < 0.3):
            prompt = int(64 * (2000 / 64) ** rng.random())
            requests.append(RequestShape(prompt, 0, prompt))
            live.append([prompt, prompt, prompt + int(rng.integers(20, 200))])
        out.append(requests or [RequestShape(64, 0, 64)])
    return out


@cache
def clean_run(kind: str, seed: int, model: int) -> RunSteps:
    """A clean run with 2 % noise."""
    make = random_batches if kind == "random" else served_batches
    batches = make(np.random.default_rng(seed), STEPS)
    return simulate("run", MODELS[model], CHIP, EAGER, seed=seed, outliers=0.0, batches=batches)


def clean_runs(kind: str, seeds: int = 2) -> Iterator[tuple[RunSteps, np.random.Generator]]:
    """Clean runs of three models, each with a generator for what is planted in it."""
    for seed in range(seeds):
        for model in range(len(MODELS)):
            yield clean_run(kind, seed, model), np.random.default_rng(seed + 100)


def recall(run: RunSteps, planted: Floats) -> tuple[int, int, int]:
    """Rows planted, rows of them that a gate drops, and others dropped past the warm-up."""
    hit = planted != run.duration_s
    dropped = np.asarray([m is not None for m in gate_marks(replace(run, duration_s=planted))])
    rest = ~hit
    rest[:5] = False
    return int(hit.sum()), int((dropped & hit).sum()), int((dropped & rest).sum())


def total(results: list[tuple[int, int, int]]) -> tuple[float, float]:
    """Recall, and the share of sound rows that were dropped beside the planted ones."""
    planted, found, wrong = np.sum(results, axis=0)
    assert planted > 100
    return found / planted, wrong / (len(results) * STEPS)


@pytest.mark.parametrize("kind", ["random", "served"])
def test_clean_steps_are_kept(kind: str) -> None:
    rows = 0
    counts: dict[str, int] = {}
    for run, _ in clean_runs(kind, seeds=4):
        rows += run.size
        kept, gates = apply_gates(run)
        assert kept.size + sum(gate.rows for gate in gates) == run.size
        for gate in gates:
            counts[gate.id] = counts.get(gate.id, 0) + gate.rows
    assert counts.pop("warm_up") == 5 * rows / STEPS
    assert all(count < 0.001 * rows for count in counts.values()), counts
    assert sum(counts.values()) < 0.005 * rows


@pytest.mark.parametrize(
    ("kind", "low", "high", "least"),
    [("random", 2.0, 30.0, 0.88), ("served", 2.0, 30.0, 0.97), ("served", 1.5, 2.0, 0.85)],
)
def test_bursts_are_found(kind: str, low: float, high: float, least: float) -> None:
    results = []
    for run, rng in clean_runs(kind):
        factor = low * (high / low) ** rng.random(run.size)
        hit = (rng.random(run.size) < 0.03) & (np.arange(run.size) >= 5)
        results.append(recall(run, np.where(hit, run.duration_s * factor, run.duration_s)))
    found, wrong = total(results)
    assert found > least
    assert wrong < 0.001


@pytest.mark.parametrize(("kind", "least"), [("random", 0.9), ("served", 0.88)])
def test_swapped_neighbours_are_found(kind: str, least: float) -> None:
    results = []
    for run, rng in clean_runs(kind):
        took = run.duration_s.copy()
        apart = np.abs(np.log(took[1:] / took[:-1])) > np.log(1.8)
        for place in rng.permutation(np.flatnonzero(apart))[:60]:
            if place > 6 and (took[place : place + 2] == run.duration_s[place : place + 2]).all():
                took[[place, place + 1]] = took[[place + 1, place]]
        results.append(recall(run, took))
    found, wrong = total(results)
    assert found > least
    assert wrong < 0.001


@pytest.mark.parametrize(
    ("kind", "share", "least"),
    [("random", 0.97, 0.88), ("served", 0.97, 0.95), ("served", 0.5, 0.92)],
)
def test_merged_neighbours_are_found(kind: str, share: float, least: float) -> None:
    results = []
    for run, rng in clean_runs(kind):
        took = run.duration_s.copy()
        for place in rng.permutation(np.arange(3, STEPS // 2 - 1))[:60] * 2:
            moved = share * took[place + 1]
            took[place] += moved
            took[place + 1] -= moved
        results.append(recall(run, took))
    found, wrong = total(results)
    assert found > least
    assert wrong < 0.001


def test_a_step_that_always_takes_the_next_ones_time_is_not_called_usual() -> None:
    """Every long prompt in two chunks, the second always paid for by the first."""
    prompt = [RequestShape(2048, 0, 2976)], [RequestShape(928, 2048, 2976)]
    batches = [*STEADY[:50], *(batch for _ in range(30) for batch in (*prompt, *STEADY[:5]))]
    run = simulate("run", LARGE, CHIP, EAGER, seed=1, outliers=0.0, batches=batches)
    second = np.flatnonzero(run.totals["tokens"] == 928)
    took = run.duration_s.copy()
    took[second - 1] += 0.97 * took[second]
    took[second] *= 0.03
    marks = gate_marks(replace(run, duration_s=took))
    assert [place for place, mark in enumerate(marks) if mark == "merged"] == sorted(
        [*second, *(second - 1)]
    )
    assert set(gate_marks(run)) == {"warm_up", None}


def test_time_taken_by_decode_steps_before_prompts_is_found_as_a_class() -> None:
    run, _ = next(clean_runs("served"))
    decode = run.totals["decode_requests"] == run.totals["requests"]
    before = np.flatnonzero(decode[:-1] & ~decode[1:])
    before = before[before >= 5]
    took = run.duration_s.copy()
    took[before] *= 1.25
    marks = gate_marks(replace(run, duration_s=took))
    assert {marks[place] for place in before} <= {"spilled", "merged", "burst"}
    assert marks.count("spilled") > 0.9 * before.size
    # A few slow steps of the class are no class.
    took = run.duration_s.copy()
    took[before[: before.size // 3]] *= 1.25
    assert "spilled" not in gate_marks(replace(run, duration_s=took))


@pytest.mark.parametrize("ratio", [1.0, 1.3, 0.731])
@pytest.mark.parametrize("decimals", [15, 6])
def test_an_exact_multiple_of_another_run_is_a_copy(ratio: float, decimals: int) -> None:
    run, rng = next(clean_runs("served"))
    run = replace(run, duration_s=np.round(run.duration_s, decimals))
    order = np.arange(run.size) < 1000
    multiple = np.round(run.duration_s * ratio, decimals)
    copy = replace(run, run="copy", duration_s=multiple).take(order)
    first, second = with_copies([run, copy])
    assert "copied" not in gate_marks(first)
    assert gate_marks(second).count("copied") > 990
    # A second measurement of the same batches is none.
    again = run.duration_s * ratio * np.exp(0.005 * rng.standard_normal(run.size))
    other = replace(run, run="again", duration_s=np.round(again, decimals))
    assert all("copied" not in marks for marks in with_copies([run, other])[1].marks)


def test_coarse_durations_and_few_steps_prove_no_copy() -> None:
    run, _ = next(clean_runs("served"))
    coarse = replace(run, duration_s=np.maximum(np.round(run.duration_s, 3), 0.001))
    assert not any(with_copies([coarse, replace(coarse, run="b")])[1].marks)
    few = run.take(np.arange(run.size) < 19)
    assert not any(with_copies([run, replace(few, run="few")])[1].marks)
    more = run.take(np.arange(run.size) < 20)
    assert all(with_copies([run, replace(more, run="more")])[1].marks)


@settings(max_examples=15, deadline=None)
@given(st.floats(1.0, 3.0), st.integers(0, 5))
def test_what_neighbours_tell_does_not_depend_on_the_speed_of_the_machine(
    factor: float, seed: int
) -> None:
    run = simulate("run", dense(), CHIP, EAGER, seed=seed, steps=600)
    slower = replace(run, duration_s=run.duration_s * factor)
    names = ("burst", "stray", "merged", "spilled")
    marks, others = (
        gate_marks(run, off=["above_ceiling"]),
        gate_marks(slower, off=["above_ceiling"]),
    )
    same = sum((a in names) != (b in names) for a, b in zip(marks, others, strict=True))
    assert same <= 2
