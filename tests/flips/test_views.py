from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.flips.loads import decode_columns, limit_of, load_text, time_text
from kernelfit.flips.owed import RESOURCES, Shares, owed
from kernelfit.flips.pricing import DRAWS_USED, Draws, Pricer
from kernelfit.flips.relieve import telling_batch
from kernelfit.flips.steady import Load
from kernelfit.flips.views import look
from kernelfit.kernel.batch import Batch
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.totals import TOTAL_FIELDS, BatchTotals
from tests.flips.planted import KV_BYTES_PER_TOKEN, PAGE_TOKENS, kernel


@given(requests=st.integers(1, 500), context=st.integers(1, 100_000))
def test_columns_are_the_totals_of_the_batch(requests: int, context: int) -> None:
    columns = decode_columns([requests], [context])
    totals = BatchTotals.of(Batch.decode(requests, context).requests)
    assert {name: getattr(totals, name) for name in TOTAL_FIELDS} == {
        name: values[0] for name, values in columns.items()
    }


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_views_are_what_the_kernel_says_batch_by_batch(async_scheduling: bool) -> None:
    pool = kernel(host_s=0.012, async_scheduling=async_scheduling, draws=((0.7, 1.0), (1.0, 0.9)))
    pricer = Pricer.of(pool)
    for context in (100, 1023):
        views = look(pricer, Load(context)).views
        assert views.fitted_s.shape == (64,)
        for requests in (1, 7, 64):
            batch = Batch.decode(requests, context)
            step = pool.step_time(batch)
            at = requests - 1
            assert views.overlap_s[at] == pytest.approx(step.overlap_s, rel=1e-12)
            assert views.no_overlap_s[at] == pytest.approx(step.no_overlap_s, rel=1e-12)
            mean_s = pool.calibrated_step_time(batch).mean_s
            assert views.fitted_s[at] == pytest.approx(mean_s, rel=1e-12)
            for draw in range(2):
                mean_s = pool.with_draw(draw).calibrated_step_time(batch).mean_s
                assert views.draws_s[draw, at] == pytest.approx(mean_s, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    share=st.floats(0.0, 1.0),
    host_s=st.floats(1e-6, 0.05),
    attention_s=st.floats(1e-6, 0.01),
    hidden=st.booleans(),
    requests=st.integers(1, 64),
)
def test_parts_add_up_to_the_step(
    share: float, host_s: float, attention_s: float, hidden: bool, requests: int
) -> None:
    pool = kernel(share=share, host_s=host_s, attention_s=attention_s, async_scheduling=hidden)
    shares = owed(pool, decode_columns([requests], [1023]))
    batch = Batch.decode(requests, 1023)
    step = pool.step_time(batch)
    assert shares.overlap_s.sum() == pytest.approx(step.overlap_s, rel=1e-9)
    assert shares.no_overlap_s.sum() == pytest.approx(step.no_overlap_s, rel=1e-9)
    fitted_s = pool.calibrated_step_time(batch).mean_s
    assert shares.fitted_s.sum() == pytest.approx(fitted_s, rel=1e-9)
    per_resource = {resource.value: time for resource, time in step.per_resource_s}
    for name, time in zip(RESOURCES, shares.no_overlap_s[0], strict=True):
        assert time == pytest.approx(per_resource.get(name, 0.0), rel=1e-9, abs=1e-15)


def test_draws_are_chosen_evenly_and_alike() -> None:
    draws = tuple((1.0 + i / 1000, 1.0) for i in range(250))
    one, two = Draws.of(kernel(draws=draws)), Draws.of(kernel(tp=2, draws=draws))
    assert one.count == two.count == DRAWS_USED
    assert Draws.of(kernel()).count == 0
    assert Draws.of(kernel(draws=draws[:3])).count == 3
    assert Draws.of(kernel(draws=draws[:3]), fitted=True).count == 4


def test_the_batch_that_tells_most() -> None:
    # Over four draws the lead of hbm over sm in batch 0 goes 1, 2, 3, 4 ms; the total of
    # batch 1 goes with it, that of batch 0 does not.
    lead = np.array([1.0, 2.0, 3.0, 4.0])
    parts = np.zeros((4, 2, len(RESOURCES)))
    parts[:, 0, RESOURCES.index("hbm")] = 10.0 + lead / 2
    parts[:, 0, RESOURCES.index("sm")] = 10.0 - lead / 2
    fitted = np.zeros((2, len(RESOURCES)))
    fitted[0, RESOURCES.index("hbm")], fitted[0, RESOURCES.index("sm")] = 11.0, 9.0
    none = np.zeros((2, len(RESOURCES)))
    shares = Shares(
        none,
        none,
        fitted,
        parts,
        device_s=np.stack([none, none]),
        launch_s=np.zeros(2),
        host_s=np.zeros(2),
        hidden=False,
        share=0.5,
    )
    draws_s = np.stack([np.full(4, 20.0), 5.0 + lead], axis=1)
    assert telling_batch(shares, np.array([20.0, 7.0]), draws_s, 0) == 1


def test_limits_are_the_smallest_of_all() -> None:
    assert limit_of(kernel(max_num_seqs=4096), 16).requests == 4096  # max_num_batched_tokens
    assert limit_of(kernel(hbm_bytes=1000), 16).requests == 0
    assert limit_of(kernel(hbm_bytes=1000), 16).reason == "memory"


def test_memory_holds_what_weights_and_buffers_leave() -> None:
    # Half of the memory, less what is there anyway; 17 tokens take two pages of 16.
    small = kernel(max_num_seqs=4096)
    fixed = small.fixed_bytes().total()
    page = PAGE_TOKENS * KV_BYTES_PER_TOKEN
    room = kernel(hbm_bytes=2 * (fixed + 7 * page), max_num_seqs=4096)
    assert (limit_of(room, 15).requests, limit_of(room, 16).requests) == (7, 3)


@pytest.mark.parametrize(("kind", "share"), [("gpu", 1.0), ("cpu", 0.5)])
def test_ranks_of_a_machine_share_its_memory_and_gpus_have_their_own(
    kind: str, share: float
) -> None:
    def pool(hbm_bytes: int) -> FittedKernel:
        return kernel(tp=2, utilization=1.0, hbm_bytes=hbm_bytes, max_num_seqs=4096, kind=kind)

    # A request of 17 tokens takes two pages of 16, with half of the heads on each rank.
    rank_bytes = pool(1 << 34).fixed_bytes().total() + 101 * PAGE_TOKENS * KV_BYTES_PER_TOKEN
    assert limit_of(pool(int(rank_bytes / share)), 16).requests == 101
    assert limit_of(pool(int(rank_bytes / share) - 8), 16).requests == 100


@pytest.mark.parametrize(
    ("time_s", "text"),
    [(0.05, "50 ms"), (1.5, "1.5 s"), (0.0002, "200 us"), (0.0126, "12.6 ms"), (1.0, "1 s")],
)
def test_times_in_words(time_s: float, text: str) -> None:
    assert time_text(time_s) == text
    assert load_text("2,048 tokens", 32, time_s) == f"32 x 2,048 tokens, target {text}"
