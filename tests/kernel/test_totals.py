"""Totals: exact sums that add, subtract and never hold anything but whole numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelfit.kernel import Batch, BatchTotals, InvalidArgument, RequestShape, WindowTotals
from kernelfit.kernel.tables import alike_windows, table_of
from kernelfit.kernel.totals import TOTAL_FIELDS, WINDOW_FIELDS, window_column
from tests.kernel.builders import shapes

WINDOWS = (16, 700)
SOME = st.lists(shapes(), max_size=8)


@given(SOME, st.integers(0, 5))
def test_totals_match_a_walk_over_tokens(requests: list[RequestShape], threshold: int) -> None:
    sums = dict.fromkeys(TOTAL_FIELDS, 0)
    for r in requests:
        path = "decode" if r.scheduled <= threshold else "prefill"
        sums["requests"] += 1
        sums["tokens"] += r.scheduled
        sums["decode_requests"] += path == "decode"
        sums[f"{path}_context_tokens"] += r.computed + r.scheduled
        sums[f"{path}_pairs"] += sum(range(r.computed + 1, r.computed + r.scheduled + 1))
    assert BatchTotals.of(requests, threshold) == BatchTotals(**sums)


@given(SOME, SOME, st.integers(0, 3), st.sampled_from([(), WINDOWS]))
def test_totals_add_and_subtract_exactly(
    left: list, right: list, threshold: int, windows: tuple[int, ...]
) -> None:
    a, b = (BatchTotals.of(part, threshold, windows) for part in (left, right))
    assert BatchTotals.of([*left, *right], threshold, windows) == a + b
    assert (a + b) - b == a
    assert a + b == b + a


@given(SOME, st.randoms(), st.sampled_from([(), WINDOWS]))
def test_the_order_of_requests_changes_no_total(
    requests: list, random: object, windows: tuple[int, ...]
) -> None:
    mixed = list(requests)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert BatchTotals.of(mixed, 1, windows) == BatchTotals.of(requests, 1, windows)


def test_totals_of_other_windows_do_not_mix() -> None:
    one, other = (BatchTotals.of([RequestShape(1, 5, 3)], 1, w) for w in ((16,), (32,)))
    assert (one + one).windows[0].decode_pairs == 12
    for wrong in (other, BatchTotals()):
        with pytest.raises(InvalidArgument, match="windows"):
            one + wrong
        with pytest.raises(InvalidArgument, match="windows"):
            wrong - one


def test_anything_that_yields_requests_is_reduced() -> None:
    requests = [RequestShape(1, 5, 3), RequestShape(7, 0, 9)]
    assert BatchTotals.of(iter(requests)) == BatchTotals.of(tuple(requests))
    assert Batch(requests).requests == tuple(requests)  # type: ignore[arg-type]


# What is a whole number and what is not. Decimals that happen to be whole are refused as
# well: where one comes from, the next is not whole.
REFUSED = (
    1.0,
    1.5,
    math.nan,
    math.inf,
    "3",
    None,
    True,
    np.True_,
    np.float64(2),
    Fraction(2),
    b"1",
)
ACCEPTED = (2, np.int64(2), np.uint8(2), np.int32(2), np.asarray(2))


@pytest.mark.parametrize("field", ["scheduled", "computed", "prompt_len", "cached_tokens"])
@pytest.mark.parametrize("value", REFUSED, ids=repr)
def test_counts_of_a_request_are_whole_numbers(field: str, value: object) -> None:
    good = {"scheduled": 2, "computed": 2, "prompt_len": 2, "cached_tokens": 2}
    for whole in ACCEPTED:
        shape = RequestShape(**{**good, field: whole})  # type: ignore[arg-type]
        assert type(getattr(shape, field)) is int
        assert shape == RequestShape(**good)
    with pytest.raises(InvalidArgument, match=f"^{field}: got"):
        RequestShape(**{**good, field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["decode_threshold", "sm_budget"])
@pytest.mark.parametrize("value", [*REFUSED, -1], ids=repr)
def test_settings_of_a_batch_are_whole_numbers(field: str, value: object) -> None:
    requests = (RequestShape(1, 5, 3),)
    for whole in (0, *ACCEPTED):
        batch = Batch(requests, **{field: whole})  # type: ignore[arg-type]
        assert type(getattr(batch, field)) is int
    with pytest.raises(InvalidArgument, match=f"^{field}: got"):
        Batch(requests, **{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", TOTAL_FIELDS)
@pytest.mark.parametrize("value", REFUSED, ids=repr)
def test_totals_hold_whole_numbers(field: str, value: object) -> None:
    for whole in ACCEPTED:
        totals = BatchTotals(**{field: whole})  # type: ignore[arg-type]
        assert type(getattr(totals, field)) is int
    with pytest.raises(InvalidArgument, match=f"^{field}: got"):
        BatchTotals(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["window_tokens", *WINDOW_FIELDS])
@pytest.mark.parametrize("value", REFUSED, ids=repr)
def test_totals_of_a_window_hold_whole_numbers(field: str, value: object) -> None:
    for whole in ACCEPTED:
        totals = WindowTotals(**{"window_tokens": 16, field: whole})  # type: ignore[arg-type]
        assert type(getattr(totals, field)) is int
    with pytest.raises(InvalidArgument, match=f"^{field}: got"):
        WindowTotals(**{"window_tokens": 16, field: value})  # type: ignore[arg-type]


def test_counts_from_arrays_do_not_wrap_around() -> None:
    # 32 bits would: a million tokens square to 5e11 pairs.
    big = np.int32(1_000_000)
    totals = BatchTotals.of([RequestShape(big, np.int32(0), big)])  # type: ignore[arg-type]
    assert totals.prefill_pairs == 1_000_000 * 1_000_001 // 2


def test_requests_are_requests() -> None:
    with pytest.raises(InvalidArgument, match="only RequestShape"):
        BatchTotals.of((RequestShape(1, 5, 3), (1, 5, 3)))  # type: ignore[arg-type]


COUNTS = ("scheduled", "computed", "prompt_len", "cached_tokens")


@pytest.mark.parametrize(
    ("counts", "field", "near"),
    [
        ((0, 5, 3, 0), "scheduled", (1, 5, 3, 0)),
        ((-1, 5, 3, 0), "scheduled", (1, 5, 3, 0)),
        ((1, -1, 3, 0), "computed", (1, 0, 3, 0)),
        ((1, 5, 0, 0), "prompt_len", (1, 5, 1, 0)),
        ((1, 5, 3, -1), "cached_tokens", (1, 5, 3, 0)),
        ((1, 5, 3, 6), "cached_tokens", (1, 5, 3, 5)),
    ],
)
def test_counts_that_no_request_has_are_refused(
    counts: tuple[int, ...], field: str, near: tuple[int, ...]
) -> None:
    RequestShape(*near)
    got = counts[COUNTS.index(field)]
    with pytest.raises(InvalidArgument, match=f"^{field}: got {got}"):
        RequestShape(*counts)


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="at least one request"):
        Batch(())


def test_a_table_holds_one_column_per_total() -> None:
    some = [
        BatchTotals.of([RequestShape(1, 5, 3)], 1, WINDOWS),
        BatchTotals.of([RequestShape(4, 5, 30)], 1, WINDOWS),
    ]
    table = table_of(some)
    for name in TOTAL_FIELDS:
        assert list(table[name]) == [getattr(t, name) for t in some]
    for at, window in enumerate(WINDOWS):
        for name in WINDOW_FIELDS:
            column = table[window_column(window, name)]
            assert list(column) == [getattr(t.windows[at], name) for t in some]
    with pytest.raises(InvalidArgument, match="windows"):
        table_of([some[0], BatchTotals.of([RequestShape(1, 5, 3)])])
    assert {name: len(column) for name, column in table_of([]).items()} == dict.fromkeys(
        TOTAL_FIELDS, 0
    )


@given(st.integers(1, 30), st.integers(0, 900), st.integers(0, 3), st.integers(2, 90))
def test_windows_of_alike_requests_follow_from_their_totals(
    decoding: int, context: int, chunks: int, size: int
) -> None:
    requests = [RequestShape(1, context, 1)] * decoding
    requests += [RequestShape(size, context, 1)] * chunks
    columns = table_of([BatchTotals.of(requests)])
    exact = table_of([BatchTotals.of(requests, 1, WINDOWS)])
    for name, values in alike_windows(columns, WINDOWS).items():
        assert values == pytest.approx(exact[name], rel=1e-9)


def test_unlike_requests_only_overstate_the_context() -> None:
    # One of 10 and one of 2,000 tokens within a window of 700: 11 and 700 are read.
    unlike = [RequestShape(1, 10, 1), RequestShape(1, 2000, 1)]
    columns = table_of([BatchTotals.of(unlike)])
    (read,) = alike_windows(columns, (700,))[window_column(700, "decode_context_tokens")]
    assert read == pytest.approx(2 * 700)
    assert read >= 11 + 700
