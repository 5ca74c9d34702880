"""Pure, permutation-blind, additive, and the same on the scalar and the vector path."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.kernel import (
    Batch,
    BatchTotals,
    DatasheetKernel,
    FittedKernel,
    InvalidArgument,
    Kernel,
)
from kernelfit.kernel.totals import TOTAL_FIELDS
from tests.kernel.builders import CHIP, EAGER, batches, dense, fitted, mixture, shapes

KERNEL = FittedKernel.of(mixture(), CHIP, EAGER, "0.32.0", fitted(share=0.3))


@given(batches())
def test_overlap_never_exceeds_no_overlap(batch: Batch) -> None:
    estimate = KERNEL.step_time(batch)
    assert 0.0 < estimate.overlap_s <= estimate.no_overlap_s
    mean = KERNEL.calibrated_step_time(batch).mean_s
    assert estimate.overlap_s * (1 - 1e-12) <= mean <= estimate.no_overlap_s * (1 + 1e-12)


@given(batches(), st.randoms())
def test_the_order_of_requests_changes_nothing(batch: Batch, random: object) -> None:
    mixed = list(batch.requests)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert KERNEL.step_time(Batch(tuple(mixed))) == KERNEL.step_time(batch)


@given(st.lists(shapes(), max_size=8), st.lists(shapes(), max_size=8))
def test_totals_add_and_subtract_exactly(left: list, right: list) -> None:
    a, b = BatchTotals.of(left), BatchTotals.of(right)
    assert BatchTotals.of([*left, *right]) == a + b
    assert (a + b) - b == a


@given(batches())
def test_totals_price_like_the_batch(batch: Batch) -> None:
    assert KERNEL.totals_time(BatchTotals.of(batch.requests)) == KERNEL.step_time(batch)


@given(st.lists(batches(), min_size=1, max_size=6))
def test_the_vector_path_gives_the_scalar_numbers(many: list[Batch]) -> None:
    totals = [BatchTotals.of(b.requests) for b in many]
    table = {n: np.array([getattr(t, n) for t in totals]) for n in TOTAL_FIELDS}
    times = KERNEL.step_times(table)
    means = KERNEL.mean_step_times(table)
    for i, batch in enumerate(many):
        estimate = KERNEL.step_time(batch)
        assert times["overlap_s"][i] == pytest.approx(estimate.overlap_s, rel=1e-12)
        assert times["no_overlap_s"][i] == pytest.approx(estimate.no_overlap_s, rel=1e-12)
        assert means[i] == pytest.approx(KERNEL.calibrated_step_time(batch).mean_s, rel=1e-12)


@settings(max_examples=20)
@given(batches())
def test_copies_threads_and_reloads_give_the_same_bits(batch: Batch) -> None:
    expected = KERNEL.step_time(batch)
    copy = pickle.loads(pickle.dumps(KERNEL))
    again = FittedKernel.from_document(json.loads(KERNEL.to_json()))
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(KERNEL.step_time, [batch] * 8))
    assert {expected} == {copy.step_time(batch), again.step_time(batch), *answers}
    assert again == KERNEL
    assert again.digest == KERNEL.digest


def test_kernels_are_hashable_and_answer_the_interface() -> None:
    assert isinstance(KERNEL, Kernel)
    assert isinstance(DatasheetKernel(dense(), CHIP, EAGER), Kernel)
    assert hash(KERNEL) == hash(pickle.loads(pickle.dumps(KERNEL)))


def test_a_tampered_file_is_refused() -> None:
    document = json.loads(KERNEL.to_json())
    FittedKernel.from_document(document)
    document["fitted"]["overlap_share"] = 0.4
    with pytest.raises(InvalidArgument, match="digest"):
        FittedKernel.from_document(document)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: KERNEL.step_time(Batch.decode(257, 1)), "max_num_seqs = 256"),
        (lambda: KERNEL.admission_overhead(-1), "prompt_tokens"),
        (lambda: KERNEL.sequence_variable_bytes(-1), "tokens"),
        (lambda: KERNEL.calibrated_step_time(Batch.decode(1, 1), level=1.0), "level"),
        (lambda: KERNEL.totals_time(BatchTotals()), "requests"),
        (lambda: KERNEL.totals_time(BatchTotals(requests=2, tokens=1)), "tokens"),
        (lambda: KERNEL.totals_time(BatchTotals(1, 1, 2)), "decode_requests"),
        (lambda: KERNEL.totals_time(BatchTotals(1, 1, 1, -100)), "decode_context_tokens"),
        (lambda: KERNEL.totals_time(BatchTotals(257, 257, 257)), "max_num_seqs = 256"),
        (lambda: Batch.decode(0, 10), "requests"),
    ],
)
def test_arguments_outside_the_domain_name_the_field(build: object, message: str) -> None:
    KERNEL.step_time(Batch.decode(256, 1))
    with pytest.raises(InvalidArgument, match=message):
        build()  # type: ignore[operator]


def test_the_interval_joins_draws_and_residuals() -> None:
    # Draws that double every host time move a host-bound step; residuals add +-10 %.
    base = fitted()
    slow = {
        c.name: c.value * (2.0 if c.name == "launch_step_s" else 1.0) for c in base.coefficients
    }
    kernel = FittedKernel.of(dense(), CHIP, EAGER, "0.32.0", fitted(draws=({}, slow)))
    answer = kernel.calibrated_step_time(Batch.decode(1, 16), level=0.98)
    doubled = kernel.with_draw(1).calibrated_step_time(Batch.decode(1, 16)).mean_s
    assert doubled == pytest.approx(answer.mean_s + 1e-3, rel=1e-9)
    assert answer.low_s == pytest.approx(answer.mean_s * np.exp(-0.1), rel=0.01)
    assert answer.high_s == pytest.approx(doubled * np.exp(0.1), rel=0.02)
    assert answer.in_domain
    assert not kernel.calibrated_step_time(Batch.decode(65, 16)).in_domain


def test_a_draw_brings_its_own_overlap_share() -> None:
    base = fitted(share=0.2, draws=({}, {}))
    kernel = FittedKernel.of(dense(), CHIP, EAGER, "", replace(base, draw_shares=(0.0, 1.0)))
    estimate = kernel.step_time(Batch.decode(8, 500))
    none, full = (kernel.with_draw(i).calibrated_step_time(Batch.decode(8, 500)) for i in (0, 1))
    assert none.mean_s == pytest.approx(estimate.no_overlap_s)
    assert full.mean_s == pytest.approx(estimate.overlap_s)
    with pytest.raises(InvalidArgument, match="draw_shares"):
        replace(base, draw_shares=(0.5,))


def test_what_is_no_kernel_file_is_refused_as_such(tmp_path: Path) -> None:
    path = tmp_path / "kernel.json"
    for text, message in (("{", "frozen kernel"), ("[]", "an object"), ("{}", "kind")):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(InvalidArgument, match=message):
            FittedKernel.load(path)
    path.write_text(KERNEL.to_json(), encoding="utf-8")
    assert FittedKernel.load(path) == KERNEL
