"""The admission rules, one at a time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.kernel.errors import InvalidArgument
from kernelfit.validate.closed_loop.requests import Arrival
from kernelfit.validate.closed_loop.scheduler import Limits, Scheduler


def counts(scheduler: Scheduler) -> list[tuple[int, int, int]]:
    """Take one step; return number, tokens and context of each request in it."""
    chosen = scheduler.step()
    scheduler.done(chosen)
    return [(r.number, s.scheduled, s.computed) for r, s in chosen]


def scheduler(*prompts: int, outputs: int = 3, cached: int = 0, **limits: int) -> Scheduler:
    given_limits = {"max_num_batched_tokens": 10, "max_num_seqs": 8, **limits}
    made = Scheduler(Limits(**given_limits))
    for number, prompt in enumerate(prompts):
        made.add(number, Arrival(0.0, prompt, outputs, cached))
    return made


def test_a_prompt_comes_in_chunks_of_the_budget() -> None:
    made = scheduler(25)
    assert counts(made) == [(0, 10, 0)]
    assert counts(made) == [(0, 10, 10)]
    assert counts(made) == [(0, 5, 20)]
    assert counts(made) == [(0, 1, 25)]


def test_those_that_run_come_first_and_the_rest_of_the_budget_is_a_chunk() -> None:
    made = scheduler(4, 20)
    assert counts(made) == [(0, 4, 0), (1, 6, 0)]
    assert counts(made) == [(0, 1, 4), (1, 9, 6)]
    assert counts(made) == [(0, 1, 5), (1, 5, 15)]
    assert counts(made) == [(1, 1, 20)]


def test_no_more_run_than_there_are_seats() -> None:
    made = scheduler(1, 1, 1, outputs=2, max_num_seqs=2)
    assert [n for n, _, _ in counts(made)] == [0, 1]
    assert [n for n, _, _ in counts(made)] == [0, 1]
    assert counts(made) == [(2, 1, 0)]


def test_what_is_cached_is_not_computed() -> None:
    made = scheduler(9, cached=6)
    ((_, shape),) = made.step()
    assert (shape.scheduled, shape.computed, shape.cached_tokens) == (3, 6, 6)


def test_the_newest_makes_way_and_is_computed_anew() -> None:
    made = scheduler(4, 4, outputs=4, block_size=2, kv_blocks=5)
    assert counts(made) == [(0, 4, 0), (1, 4, 0)]  # two blocks each, one is left
    first = counts(made)
    # The older takes the last block; the newer has to make way within the same step.
    assert first == [(0, 1, 4)]
    assert [r.number for r in made.waiting] == [1]
    assert counts(made) == [(0, 1, 5)]
    # Four tokens of the prompt and one of its answer are computed again, when there is room.
    assert counts(made) == [(0, 1, 6)]
    assert counts(made) == [(1, 5, 0)]


def test_nobody_is_admitted_in_a_step_that_made_somebody_wait() -> None:
    limits = {"max_num_batched_tokens": 4, "block_size": 2, "kv_blocks": 6}
    made = scheduler(4, 4, outputs=6, **limits)
    assert counts(made) == [(0, 4, 0)]
    assert counts(made) == [(0, 1, 4), (1, 3, 0)]
    assert counts(made) == [(0, 1, 5), (1, 1, 3)]
    # The newer finds no block and makes way; a chunk of it would fit, but not in this step.
    assert counts(made) == [(0, 1, 6)]
    assert counts(made) == [(0, 1, 7), (1, 3, 0)]


def test_a_request_that_never_fits_is_refused_beside_one_that_just_does() -> None:
    made = scheduler(block_size=2, kv_blocks=5)
    made.add(0, Arrival(0.0, 7, 4))  # the last token of an answer needs no KV
    with pytest.raises(InvalidArgument, match=">= 6 KV blocks, which request 1 needs"):
        made.add(1, Arrival(0.0, 8, 4))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 8)), min_size=1, max_size=10),
    st.integers(1, 16),
    st.integers(1, 4),
    st.integers(10, 40),
)
def test_everything_is_served_within_the_limits(
    lengths: list[tuple[int, int]], budget: int, seats: int, blocks: int
) -> None:
    made = Scheduler(Limits(budget, seats, block_size=4, kv_blocks=blocks))
    for number, (prompt, output) in enumerate(lengths):
        made.add(number, Arrival(0.0, prompt, output))
    emitted = dict.fromkeys(range(len(lengths)), 0)
    for _ in range(10_000):
        chosen = made.step()
        if not chosen:
            break
        assert sum(shape.scheduled for _, shape in chosen) <= budget
        assert len(made.running) <= seats
        assert sum(r.blocks for r in made.running) <= blocks
        for request, _ in made.done(chosen):
            emitted[request.number] += 1
    assert emitted == {n: output for n, (_, output) in enumerate(lengths)}
    assert not made.waiting
    assert not made.running


def test_what_no_request_can_be_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        Arrival(0.0, 0, 1)
    with pytest.raises(ValueError, match="never holds the whole prompt"):
        Arrival(0.0, 4, 1, 4)
    assert Arrival(0.0, 4, 1, 3).cached_tokens == 3
