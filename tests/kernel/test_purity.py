"""Pure and immutable: same arguments, same bits, on every path and in any order."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.kernel import Batch, BatchTotals, DatasheetKernel, FittedKernel, Kernel
from kernelfit.kernel.tables import table_of
from tests.kernel.builders import DEPLOYED, batches, fitted, kernels

DRAWS = ({}, {"hbm_kv_eff": 0.6, "allreduce_custom_floor_s": 9e-6})
KERNELS = kernels(fitted(share=0.3, draws=DRAWS))
SHEETS = {n: DatasheetKernel(d.model, d.chip, d.pool, "0.32.0") for n, d in DEPLOYED.items()}
NAMES = tuple(KERNELS)
each = pytest.mark.parametrize("name", NAMES)
few = settings(max_examples=10)


@each
@few
@given(batch=batches())
def test_the_mean_lies_between_the_bounds(name: str, batch: Batch) -> None:
    kernel = KERNELS[name]
    estimate = kernel.step_time(batch)
    assert 0.0 < estimate.overlap_s <= estimate.no_overlap_s
    mean = kernel.calibrated_step_time(batch).mean_s
    assert estimate.overlap_s * (1 - 1e-12) <= mean <= estimate.no_overlap_s * (1 + 1e-12)
    sheet = SHEETS[name].step_time(batch)
    assert 0.0 < sheet.overlap_s <= sheet.no_overlap_s <= estimate.no_overlap_s


@each
@few
@given(batch=batches(), random=st.randoms())
def test_the_order_of_requests_changes_no_bit(name: str, batch: Batch, random: Any) -> None:
    mixed = list(batch.requests)
    random.shuffle(mixed)
    assert KERNELS[name].step_time(Batch(tuple(mixed))) == KERNELS[name].step_time(batch)


@each
@few
@given(parts=st.lists(batches(4), min_size=2, max_size=4))
def test_totals_kept_by_the_caller_price_like_the_batch(name: str, parts: list[Batch]) -> None:
    kernel = KERNELS[name]
    whole = Batch(tuple(r for part in parts for r in part.requests))
    totals = kernel.totals(parts[0])
    for part in parts[1:]:
        totals = totals + kernel.totals(part)
    assert totals == kernel.totals(whole)
    assert kernel.totals_time(totals) == kernel.step_time(whole)
    assert kernel.totals_time(totals, 7) == kernel.step_time(Batch(whole.requests, sm_budget=7))
    assert kernel.mean_step_time(totals) == kernel.calibrated_step_time(whole).mean_s
    # Requests that leave give back what they brought.
    left = totals - kernel.totals(parts[-1])
    stayed = Batch(tuple(r for part in parts[:-1] for r in part.requests))
    assert kernel.totals_time(left) == kernel.step_time(stayed)


@each
@few
@given(many=st.lists(batches(), min_size=1, max_size=6), fused=st.booleans())
def test_the_vector_path_gives_the_scalar_numbers(
    name: str, many: list[Batch], fused: bool
) -> None:
    kernel = KERNELS[name]
    if fused:
        many = [Batch.decode(len(b.requests), b.requests[0].computed) for b in many]
    table = table_of([kernel.totals(batch) for batch in many])
    before = {column: values.copy() for column, values in table.items()}
    times = kernel.step_times(table)
    means = kernel.mean_step_times(table)
    for i, batch in enumerate(many):
        estimate = kernel.step_time(batch)
        expected = {
            "overlap_s": estimate.overlap_s,
            "no_overlap_s": estimate.no_overlap_s,
            **{f"{resource}_s": time for resource, time in estimate.per_resource_s},
        }
        assert {n: v[i] for n, v in times.items()} == pytest.approx(expected, rel=1e-12, abs=0.0)
        assert means[i] == pytest.approx(
            kernel.calibrated_step_time(batch).mean_s, rel=1e-12, abs=0.0
        )
    for column, values in table.items():
        np.testing.assert_array_equal(values, before[column])
        assert not any(np.shares_memory(values, answer) for answer in (means, *times.values()))


@each
@few
@given(batch=batches())
def test_what_is_passed_in_is_left_as_it_was(name: str, batch: Batch) -> None:
    before = copy.deepcopy(batch)
    kernel = KERNELS[name]
    document = kernel.to_json()
    kernel.step_time(batch)
    kernel.calibrated_step_time(batch)
    assert batch == before
    assert kernel.to_json() == document


@each
@settings(max_examples=4)
@given(many=st.lists(batches(), min_size=2, max_size=5), random=st.randoms())
def test_copies_threads_and_reloads_give_the_same_bits_in_any_order(
    name: str, many: list[Batch], random: Any
) -> None:
    kernel = KERNELS[name]
    expected = {batch: kernel.step_time(batch) for batch in many}
    intervals = {batch: kernel.calibrated_step_time(batch) for batch in many}
    order = many * 4
    random.shuffle(order)
    for other in COPIES[name]:
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(other.step_time, order))
            calibrated = list(pool.map(other.calibrated_step_time, order))
        assert answers == [expected[batch] for batch in order]
        assert calibrated == [intervals[batch] for batch in order]
    sheet = SHEETS[name]
    again = pickle.loads(pickle.dumps(sheet))
    assert [sheet.step_time(b) for b in many] == [again.step_time(b) for b in many]


def copies(kernel: FittedKernel) -> tuple[FittedKernel, ...]:
    return (
        kernel,
        pickle.loads(pickle.dumps(kernel)),
        copy.deepcopy(kernel),
        FittedKernel.from_document(json.loads(kernel.to_json())),
    )


COPIES = {name: copies(kernel) for name, kernel in KERNELS.items()}


@each
def test_copies_are_equal_and_have_one_digest(name: str) -> None:
    kernel = KERNELS[name]
    for other in COPIES[name]:
        assert other == kernel
        assert hash(other) == hash(kernel)
        assert other.digest == kernel.digest
    assert isinstance(kernel, Kernel)
    assert isinstance(SHEETS[name], Kernel)


@each
def test_a_drawn_kernel_is_what_its_file_says(name: str) -> None:
    drawn = KERNELS[name].with_draw(1)
    again = FittedKernel.from_document(json.loads(drawn.to_json()))
    batch = Batch.decode(5, 300)
    assert drawn.step_time(batch) != KERNELS[name].step_time(batch)
    assert again.step_time(batch) == drawn.step_time(batch)
    assert again.mean_step_time(drawn.totals(batch)) == drawn.mean_step_time(drawn.totals(batch))
    # A draw that moves nothing gives the kernel's own numbers.
    assert KERNELS[name].with_draw(0).step_time(batch) == KERNELS[name].step_time(batch)


@each
@few
@given(batch=batches())
def test_answers_can_be_kept_by_the_totals_of_a_batch(name: str, batch: Batch) -> None:
    kernel = KERNELS[name]
    kept: dict[BatchTotals, Any] = {kernel.totals(batch): kernel.step_time(batch)}
    same = Batch(tuple(dataclasses.replace(r) for r in reversed(batch.requests)))
    assert kept[kernel.totals(same)] == kernel.step_time(same)
    assert {batch: 1}[Batch(batch.requests)] == 1


def mutable(value: Any, where: str, seen: set[int]) -> list[str]:
    """Paths of everything in an object's graph that could be changed."""
    if id(value) in seen:
        return []
    seen.add(id(value))
    if value is None or isinstance(value, str | int | float | bool | Enum):
        return []
    if isinstance(value, tuple):
        return [p for i, v in enumerate(value) for p in mutable(v, f"{where}[{i}]", seen)]
    if isinstance(value, np.ndarray):
        return [f"{where}: array that can be written to"] if value.flags.writeable else []
    if dataclasses.is_dataclass(value) and type(value).__dataclass_params__.frozen:
        found = [f"{where}: has a __dict__"] if hasattr(value, "__dict__") else []
        for field in dataclasses.fields(value):
            found += mutable(getattr(value, field.name), f"{where}.{field.name}", seen)
        return found
    return [f"{where}: {type(value).__name__}"]


@each
def test_nothing_in_a_kernel_can_be_changed(name: str) -> None:
    for kernel in (*COPIES[name], KERNELS[name].with_draw(1), SHEETS[name]):
        assert mutable(kernel, type(kernel).__name__, set()) == []
        with pytest.raises(dataclasses.FrozenInstanceError):
            kernel.cells = ()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (Batch.decode(2, 5), 0),
        ((1, [2]), 1),
        (np.zeros(2), 1),
        ({"a": 1}, 1),
        ((1.0, (None, "x", True)), 0),
    ],
)
def test_the_walk_finds_what_can_be_changed(value: Any, found: int) -> None:
    assert len(mutable(value, "value", set())) == found


@each
@few
@given(batch=batches())
def test_answers_hold_plain_numbers(name: str, batch: Batch) -> None:
    answers = (KERNELS[name].step_time(batch), KERNELS[name].calibrated_step_time(batch))
    for answer in answers:
        assert mutable(answer, "answer", set()) == []
    times = [answers[0].overlap_s, answers[0].no_overlap_s, answers[1].mean_s]
    times += [time for _, time in answers[0].per_resource_s]
    assert {type(time) for time in times} == {float}
    assert all(0.0 <= time < float("inf") for time in times)
