"""Input that no engine would give: refused by name, beside the nearest that is accepted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelfit.kernel import (
    Batch,
    BatchTotals,
    FittedKernel,
    InvalidArgument,
    RequestShape,
    WindowTotals,
)
from kernelfit.kernel.tables import table_of
from kernelfit.kernel.totals import TOTAL_FIELDS
from tests.kernel.builders import CHIP, DEPLOYED, EAGER, alternating, dense, fitted, mixture

KERNEL = FittedKernel.of(mixture(), CHIP, EAGER, "0.32.0", fitted(share=0.3))
SLIDING = FittedKernel.of(alternating(), CHIP, EAGER, "0.32.0", fitted())


@pytest.mark.parametrize(
    ("bad", "good", "message"),
    [
        (Batch.decode(257, 1), Batch.decode(256, 1), "requests: got 257.*max_num_seqs = 256"),
        (
            Batch((RequestShape(8193, 0, 9000),)),
            Batch((RequestShape(8192, 0, 9000),)),
            "tokens: got 8193.*max_num_batched_tokens = 8192",
        ),
        (
            Batch((RequestShape(1, 1, 1),), sm_budget=101),
            Batch((RequestShape(1, 1, 1),), sm_budget=100),
            "sm_budget: got 101.*0 to 100 SMs",
        ),
    ],
)
def test_batches_beyond_the_pool_are_refused(bad: Batch, good: Batch, message: str) -> None:
    KERNEL.step_time(good)
    with pytest.raises(InvalidArgument, match=message):
        KERNEL.step_time(bad)


def test_a_request_longer_than_the_model_allows_is_refused() -> None:
    kernel = FittedKernel.of(dense(), CHIP, replace(EAGER, max_model_len=100), "", fitted())
    kernel.step_time(Batch((RequestShape(10, 90, 50),)))
    with pytest.raises(InvalidArgument, match=r"computed \+ scheduled: got 101.*100"):
        kernel.step_time(Batch((RequestShape(11, 90, 50),)))


GOOD = BatchTotals(3, 12, 2, 40, 40, 30, 100)
BAD_TOTALS = (
    ({"requests": 0}, "requests"),
    ({"requests": -1}, "requests"),
    ({"requests": 257, "tokens": 300}, "requests"),
    ({"tokens": 2}, "tokens"),
    ({"tokens": 8193}, "tokens"),
    ({"decode_requests": 4}, "decode_requests"),
    ({"decode_requests": -1}, "decode_requests"),
    ({"decode_context_tokens": 1}, "decode_context_tokens"),
    ({"decode_context_tokens": -40}, "decode_context_tokens"),
    ({"decode_pairs": 39}, "decode_pairs"),
    ({"prefill_context_tokens": 0}, "prefill_context_tokens"),
    ({"prefill_pairs": 29}, "prefill_pairs"),
    # A path without requests reads and multiplies nothing.
    ({"decode_requests": 0}, "decode_context_tokens"),
    ({"decode_requests": 0, "decode_context_tokens": 0}, "decode_pairs"),
    ({"decode_requests": 3}, "prefill_context_tokens"),
)


@pytest.mark.parametrize(("change", "field"), BAD_TOTALS)
def test_totals_that_no_batch_has_are_refused(change: dict[str, int], field: str) -> None:
    KERNEL.totals_time(GOOD)
    with pytest.raises(InvalidArgument, match=f"^{field}: got"):
        KERNEL.totals_time(replace(GOOD, **change))


WINDOW = WindowTotals(128, 40, 40, 30, 100)


@pytest.mark.parametrize(
    ("windows", "field"),
    [
        ((), "windows"),
        ((replace(WINDOW, window_tokens=64),), "windows"),
        ((WINDOW, replace(WINDOW, window_tokens=256)), "windows"),
        ((replace(WINDOW, decode_context_tokens=1),), "window_128_decode_context_tokens"),
        ((replace(WINDOW, decode_context_tokens=41),), "window_128_decode_context_tokens"),
        ((replace(WINDOW, decode_pairs=-1),), "window_128_decode_pairs"),
        ((replace(WINDOW, decode_pairs=41),), "window_128_decode_pairs"),
        ((replace(WINDOW, prefill_context_tokens=0),), "window_128_prefill_context_tokens"),
        ((replace(WINDOW, prefill_pairs=101),), "window_128_prefill_pairs"),
    ],
)
def test_totals_of_windows_that_no_batch_has_are_refused(
    windows: tuple[WindowTotals, ...], field: str
) -> None:
    SLIDING.totals_time(replace(GOOD, windows=(WINDOW,)))
    with pytest.raises(InvalidArgument, match=f"^{field}: got"):
        SLIDING.totals_time(replace(GOOD, windows=windows))
    # A model without windows takes none.
    KERNEL.totals_time(GOOD)
    with pytest.raises(InvalidArgument, match=r"^windows: got"):
        KERNEL.totals_time(replace(GOOD, windows=(WINDOW,)))


@pytest.mark.parametrize("budget", [-1, 101])
def test_a_budget_of_sms_that_the_chip_has_not_is_refused(budget: int) -> None:
    KERNEL.totals_time(GOOD, 100)
    with pytest.raises(InvalidArgument, match=f"sm_budget: got {budget}"):
        KERNEL.totals_time(GOOD, budget)


BAD = (np.nan, np.inf, -np.inf, -1.0)


@pytest.mark.parametrize("name", TOTAL_FIELDS)
@pytest.mark.parametrize("value", BAD)
def test_a_table_with_a_bad_value_is_refused_by_column_and_row(name: str, value: float) -> None:
    table = table_of([GOOD, GOOD, GOOD])
    answers = (KERNEL.step_times(table), {"mean": KERNEL.mean_step_times(table)})
    assert all(np.isfinite(column).all() for answer in answers for column in answer.values())
    broken = {**table, name: np.array([table[name][0], value, table[name][2]])}
    for price in (KERNEL.step_times, KERNEL.mean_step_times):
        with pytest.raises(InvalidArgument, match=rf"^{name}\[1\]: got"):
            price(broken)


@pytest.mark.parametrize("value", BAD)
def test_a_bad_value_of_a_window_is_refused(value: float) -> None:
    table = table_of([replace(GOOD, windows=(WINDOW,))])
    SLIDING.step_times(table)
    with pytest.raises(InvalidArgument, match=r"^window_128_decode_pairs\[0\]: got"):
        SLIDING.step_times({**table, "window_128_decode_pairs": [value]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": [12.0]}, "tokens: got.*one value per batch"),
        ({"tokens": [[12.0, 12.0]]}, "tokens: got.*one value per batch"),
        ({"tokens": 12.0}, "one value per batch"),
        ({"tokens": ["many", "few"]}, "tokens: got.*numbers"),
        ({"tokens": [None, None]}, "tokens"),
        ({"tokens": [[1.0], [1.0, 2.0]]}, "tokens: got.*numbers"),
    ],
)
def test_columns_that_are_none_are_refused(change: dict[str, object], message: str) -> None:
    table = table_of([GOOD, GOOD])
    KERNEL.step_times(table)
    with pytest.raises(InvalidArgument, match=message):
        KERNEL.step_times({**table, **change})  # type: ignore[dict-item]


@pytest.mark.parametrize("name", TOTAL_FIELDS)
def test_a_missing_column_is_named_and_more_of_them_are_left_alone(name: str) -> None:
    table: dict[str, object] = dict(table_of([GOOD]))
    KERNEL.step_times({**table, "phase": ["decode"], "measured": [np.nan]})  # type: ignore[dict-item]
    del table[name]
    with pytest.raises(InvalidArgument, match=f"^{name}: got 'nothing'"):
        KERNEL.step_times(table)  # type: ignore[arg-type]


def test_a_missing_column_of_a_window_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"^window_128_decode_context_tokens"):
        SLIDING.step_times(table_of([GOOD]))


def test_an_empty_table_has_no_times() -> None:
    for name in ("dense", "graphs", "moe-spread", "alternating", "hybrid"):
        kernel = DEPLOYED[name].kernel(fitted())
        columns: dict[str, list[float]] = {n: [] for n in table_of([])}
        columns |= {
            f"window_{w}_{path}_{what}": []
            for w in kernel.plan.basis.windows
            for path in ("decode", "prefill")
            for what in ("context_tokens", "pairs")
        }
        assert {column.size for column in kernel.step_times(columns).values()} == {0}
        assert kernel.mean_step_times(columns).size == 0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: KERNEL.admission_overhead(-1), "prompt_tokens"),
        (lambda: KERNEL.sequence_variable_bytes(-1), "tokens"),
        (lambda: KERNEL.calibrated_step_time(Batch.decode(1, 1), level=0.0), "level"),
        (lambda: KERNEL.calibrated_step_time(Batch.decode(1, 1), level=1.0), "level"),
        (lambda: KERNEL.calibrated_step_time(Batch.decode(257, 1)), "max_num_seqs = 256"),
        (lambda: Batch.decode(0, 10), "requests"),
        (lambda: Batch.decode(1, -1), "computed"),
    ],
)
def test_arguments_outside_the_domain_name_the_field(build: object, message: str) -> None:
    KERNEL.calibrated_step_time(Batch.decode(256, 0), level=0.5)
    with pytest.raises(InvalidArgument, match=message):
        build()  # type: ignore[operator]


@pytest.mark.parametrize(
    "name", sorted({c for d in DEPLOYED.values() for c in d.kernel(fitted()).plan.coefficients})
)
def test_a_coefficient_that_a_deployment_needs_is_named_where_it_is_missing(name: str) -> None:
    full = fitted()
    without = replace(
        full, draw_names=(), coefficients=tuple(c for c in full.coefficients if c.name != name)
    )
    needing = [d for d in DEPLOYED.values() if name in d.kernel(full).plan.coefficients]
    for deployed in needing[:2]:
        with pytest.raises(InvalidArgument, match=f"coefficients: got '.*{name} missing"):
            deployed.kernel(without)
    others = [d for d in DEPLOYED.values() if name not in d.kernel(full).plan.coefficients]
    for deployed in others[:2]:
        deployed.kernel(without)
