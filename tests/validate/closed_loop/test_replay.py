"""A replay is what an engine of known laws and known host costs does, to the last digit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.kernel.batch import RequestShape
from kernelfit.kernel.front_end import FrontEnd
from kernelfit.validate.closed_loop.replay import Prices, replay
from kernelfit.validate.closed_loop.requests import Arrival
from kernelfit.validate.closed_loop.scheduler import Limits
from tests.validate.closed_loop.engine import serve

FRONT = FrontEnd(
    admission_request_s=3e-3,
    admission_token_s=2e-5,
    output_call_s=4e-4,
    output_token_s=1.5e-4,
    completion_s=9e-4,
)


def law(batch: Sequence[tuple[int, int]]) -> float:
    """A step's time, from the tokens and contexts of its requests [s]."""
    return 0.02 + 1e-3 * sum(t for t, _ in batch) + 3e-6 * sum(t * c for t, c in batch)


def price(shapes: Sequence[RequestShape]) -> float:
    """The same, from shapes."""
    return law([(s.scheduled, s.computed) for s in shapes])


PRICES = Prices(price, FRONT)
LIMITS = Limits(max_num_batched_tokens=64, max_num_seqs=4)


@st.composite
def traces(draw: Any) -> list[Arrival]:
    now, trace = 0.0, []
    for _ in range(draw(st.integers(1, 14))):
        now += draw(st.floats(1e-6, 0.4))
        prompt = draw(st.integers(1, 150))
        cached = draw(st.integers(0, prompt - 1)) if draw(st.booleans()) else 0
        trace.append(Arrival(now, prompt, draw(st.integers(1, 12)), cached))
    return trace


@settings(max_examples=60, deadline=None)
@given(traces())
def test_a_known_engine_is_reproduced(trace: list[Arrival]) -> None:
    seen = serve(trace, law, FRONT, LIMITS.max_num_batched_tokens, LIMITS.max_num_seqs)
    found = replay(trace, PRICES, LIMITS)
    first = [seen.first_s[i] - a.arrival_s for i, a in enumerate(trace)]
    last = [seen.last_s[i] - a.arrival_s for i, a in enumerate(trace)]
    assert found.latencies.ttft_s == pytest.approx(first, rel=1e-9)
    assert found.latencies.e2e_s == pytest.approx(last, rel=1e-9)
    assert [(n, t) for _, _, n, t in found.steps] == [
        (len(batch), sum(t for t, _ in batch)) for batch in seen.batches
    ]


def test_one_request_alone_is_a_sum() -> None:
    found = replay([Arrival(5.0, 40, 3)], PRICES, LIMITS)
    admission = 3e-3 + 40 * 2e-5
    prefill = 0.02 + 40e-3
    hand_out = 4e-4 + 1.5e-4
    first = admission + prefill + hand_out
    decode = sum(0.02 + 1e-3 + 3e-6 * context for context in (40, 41))
    assert found.latencies.ttft_s == pytest.approx([first])
    assert found.latencies.e2e_s == pytest.approx([first + decode])
    assert found.latencies.tpot_s == pytest.approx([decode / 2])
    assert found.front_end_busy_s == pytest.approx(admission + 3 * hand_out + 9e-4)


def test_without_a_front_end_there_are_only_steps() -> None:
    found = replay([Arrival(0.0, 40, 2)], Prices(price, FrontEnd()), LIMITS)
    assert found.latencies.ttft_s == pytest.approx([0.06])
    assert found.front_end_busy_s == 0.0


def test_an_answer_of_one_token_has_no_time_per_token() -> None:
    found = replay([Arrival(0.0, 4, 1)], PRICES, LIMITS)
    assert np.isnan(found.latencies.tpot_s).tolist() == [True]
    assert found.latencies.e2e_s == pytest.approx(found.latencies.ttft_s)


@settings(max_examples=25, deadline=None)
@given(traces(), st.floats(0.25, 4.0))
def test_a_slower_clock_slows_everything(trace: list[Arrival], factor: float) -> None:
    one = replay(trace, PRICES, LIMITS)
    slow = replay(
        [replace(a, arrival_s=a.arrival_s * factor) for a in trace],
        Prices(
            lambda shapes: factor * price(shapes),
            FrontEnd(*(factor * v for v in (3e-3, 2e-5, 4e-4, 1.5e-4, 0.0, 9e-4))),
        ),
        LIMITS,
    )
    assert slow.latencies.e2e_s == pytest.approx(factor * one.latencies.e2e_s, rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(traces())
def test_alone_in_the_engine_more_host_work_never_helps(trace: list[Arrival]) -> None:
    far = [replace(a, arrival_s=60.0 * n) for n, a in enumerate(trace)]
    with_host = replay(far, PRICES, LIMITS).latencies
    without = replay(far, Prices(price, FrontEnd()), LIMITS).latencies
    assert (with_host.ttft_s > without.ttft_s).all()
    assert (with_host.e2e_s > without.e2e_s).all()
