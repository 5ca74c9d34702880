"""Memory in whole pages, and transfers over the slower of two links."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelfit.kernel import (
    DatasheetKernel,
    Direction,
    InvalidArgument,
    Placement,
    Pool,
    Refusal,
    Tier,
)
from kernelfit.kernel.model import parameter_count
from tests.kernel.builders import CHIP, EAGER, dense, mixture

KERNEL = DatasheetKernel(dense(), CHIP, EAGER)


def test_weights_of_one_rank_are_the_parameters_times_their_size() -> None:
    assert KERNEL.fixed_bytes().weights_bytes == 2 * parameter_count(dense())
    moe = DatasheetKernel(mixture(), CHIP, EAGER)
    assert moe.fixed_bytes().weights_bytes == 2 * parameter_count(mixture())


def test_sharding_halves_matrices_and_keeps_norms() -> None:
    two = DatasheetKernel(dense(), CHIP, replace(EAGER, tp=2))
    norms = 2 * (1024 + 4 * 2 * 1024)
    whole = KERNEL.fixed_bytes().weights_bytes - norms
    assert two.fixed_bytes().weights_bytes == whole // 2 + norms


def test_total_is_the_sum_of_the_parts() -> None:
    parts = KERNEL.fixed_bytes()
    assert parts.total() == (
        parts.weights_bytes
        + parts.activation_peak_bytes
        + parts.cuda_graph_bytes
        + parts.redundant_experts_bytes
        + parts.comm_buffers_bytes
    )
    assert parts.cuda_graph_bytes == 0


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (16, 1), (17, 2), (4000, 250)])
def test_kv_comes_in_whole_pages(tokens: int, pages: int) -> None:
    # 4 layers, keys and values, 2 heads of 128, 2 bytes: 4096 bytes per token.
    assert KERNEL.sequence_variable_bytes(tokens) == pages * 16 * 4096


def test_a_cpu_tier_is_bound_by_the_slower_link() -> None:
    gigabyte = 10**9
    # PCIe at 0.8 of 32 GB/s is slower than the host's memory.
    one = KERNEL.tier_time(Tier.CPU, Direction.TO_TIER, gigabyte, 1)
    assert one == pytest.approx(1e-5 + 1e9 / 25.6e9)
    assert KERNEL.tier_time(Tier.CPU, Direction.TO_TIER, gigabyte, 3) == pytest.approx(
        1e-5 + 3e9 / 25.6e9
    )
    fast = DatasheetKernel(dense(), replace(CHIP, pcie_bytes_per_s=500e9), EAGER)
    assert fast.tier_time(Tier.CPU, Direction.FROM_TIER, gigabyte, 1) == pytest.approx(
        1e-5 + 1e9 / 100e9
    )


def test_tiers_without_a_rate_are_refused() -> None:
    with pytest.raises(Refusal, match="no rate"):
        KERNEL.tier_time(Tier.STORAGE, Direction.TO_TIER, 1, 1)
    bare = DatasheetKernel(dense(), replace(CHIP, pcie_bytes_per_s=0.0), EAGER)
    with pytest.raises(Refusal, match="host link"):
        bare.tier_time(Tier.CPU, Direction.TO_TIER, 1, 1)
    with pytest.raises(InvalidArgument, match="queue_depth"):
        KERNEL.tier_time(Tier.CPU, Direction.TO_TIER, 1, 0)


def test_a_prefill_transfer_takes_the_link_that_the_placement_needs() -> None:
    here, there = Placement(0, 0), Placement(1, 0)
    nbytes = KERNEL.sequence_variable_bytes(1000)
    near = KERNEL.pd_transfer_time(1000, here, here)
    far = KERNEL.pd_transfer_time(1000, here, there)
    assert near == pytest.approx(1e-5 + nbytes / 80e9)
    assert far == pytest.approx(1e-5 + nbytes / 40e9)
    alone = DatasheetKernel(dense(), replace(CHIP, nic_bytes_per_s=0.0), EAGER)
    alone.pd_transfer_time(10, here, here)
    with pytest.raises(Refusal, match="nic"):
        alone.pd_transfer_time(10, here, there)


def test_what_is_not_charged_is_zero_and_says_so() -> None:
    methods = {o.name: o.method for o in KERNEL.provenance()}
    assert KERNEL.admission_overhead(100) == KERNEL.output_token_overhead() == 0.0
    assert KERNEL.completion_overhead() == 0.0
    assert methods["admission_request_s"] == methods["completion_s"] == "not_charged"
    assert methods["hbm_weight_eff"] == "vendor_spec"


def test_the_pool_is_returned_as_it_was_stated() -> None:
    pool = Pool(tp=2)
    kernel = DatasheetKernel(dense(), CHIP, pool)
    assert kernel.deployment() is pool
    assert kernel.deployment().block_size is None
    assert kernel.resolved().block_size == 16
