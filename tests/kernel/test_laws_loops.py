"""Every deployment on one node against loops over tokens."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given, settings

from kernelfit.kernel import Batch, Resource
from tests.kernel.builders import DEPLOYED, SIZES, batches, coefficients, fitted
from tests.kernel.law_v2 import Step

# Values far from one another and from 1, so that no two terms can be mistaken.
TRUTH: dict[str, float] = {
    "gemm_eff_bf16": 0.61,
    "gemm_m_half_bf16": 37.0,
    "attention_eff_bf16": 0.29,
    "recurrent_eff_bf16": 0.13,
    "hbm_weight_eff": 0.73,
    "hbm_expert_eff": 0.83,
    "hbm_kv_eff": 0.53,
    "hbm_activation_eff": 0.17,
    "allreduce_custom_floor_s": 1.9e-5,
    "allreduce_custom_transition_eff": 0.19,
    "allreduce_custom_eff": 0.07,
    "allreduce_shared_memory_floor_s": 2.3e-5,
    "allreduce_shared_memory_transition_eff": 0.31,
    "allreduce_shared_memory_eff": 0.11,
    "allgather_floor_s": 4.3e-5,
    "allgather_transition_eff": 0.41,
    "allgather_eff": 0.23,
    "attention_head_s": 1.1e-6,
    "expert_floor_s": 1.3e-5,
    "layer_floor_s": 2.9e-5,
    "launch_graph_s": 7e-6,
    "launch_attention_s": 1.7e-5,
    "launch_linear_s": 3.7e-5,
    "launch_layer_s": 8.3e-5,
}
NAMES = ("dense", "graphs", "moe", "mla", "mla-packed", "alternating", "hybrid", "cpu")
GIVEN = fitted(**TRUTH)
KERNELS = {name: DEPLOYED[name].kernel(GIVEN) for name in NAMES}
VALUES = {c.name: c.value for c in coefficients(**TRUTH)}


def step_of(name: str, batch: Batch) -> Step:
    deployed = DEPLOYED[name]
    requests = batch.requests
    tokens, rows, slots = sum(r.scheduled for r in requests), 0, 0
    if deployed.pool.cudagraph_mode and tokens <= SIZES[-1]:
        rows = SIZES[bisect_left(SIZES, tokens)]
        # A whole graph replays attention for as many requests as it was captured for.
        slots = rows if all(r.scheduled == 1 for r in requests) else 0
    return Step(
        deployed.model,
        deployed.chip,
        deployed.pool.tp,
        requests,
        VALUES,
        rows,
        slots,
        "shared_memory" if deployed.chip.kind == "cpu" else "custom",
        "fp8_ds_mla" if name == "mla-packed" else "bf16",
    )


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15)
@given(batch=batches(6))
def test_every_resource_and_both_bounds_match_loops_over_tokens(name: str, batch: Batch) -> None:
    step = step_of(name, batch)
    estimate = KERNELS[name].step_time(batch)
    times = dict(estimate.per_resource_s)
    host = times[Resource.HOST]
    for resource in (Resource.SM, Resource.HBM, Resource.NVLINK):
        expected = sum(getattr(stage, str(resource)) for stage in step.stages)
        assert times.get(resource, 0.0) == pytest.approx(expected, rel=1e-9)
    assert estimate.no_overlap_s == pytest.approx(step.no_overlap() + host, rel=1e-9)
    ahead, waited = host_of(name, batch)
    assert host == pytest.approx(ahead + waited, rel=1e-9)
    assert estimate.overlap_s == pytest.approx(max(step.overlap(), ahead) + waited, rel=1e-9)


def host_of(name: str, batch: Batch) -> tuple[float, float]:
    """Host time that runs ahead of the device, and host time that it waits for."""
    model, chip = DEPLOYED[name].model, DEPLOYED[name].chip
    operations = {"full": 7, "sliding": 7, "mla": 12, "linear": 9}
    if chip.kind == "cpu":
        operations = {"full": 2 * 7 + 5}
    plain = 10 if chip.kind == "gpu" else 22
    plain_layers = sum(k.count * (operations[k.attention.kind] + 3) / plain for k in model.layers)
    linear = sum(k.count for k in model.layers if k.attention.linear is not None)
    layers = sum(k.count for k in model.layers)
    launch = plain_layers * VALUES["launch_layer_s"] + linear * VALUES["launch_linear_s"]
    tokens = sum(r.scheduled for r in batch.requests)
    if DEPLOYED[name].pool.cudagraph_mode and tokens <= SIZES[-1]:
        launch = VALUES["launch_graph_s"]
        if any(r.scheduled > 1 for r in batch.requests):
            # A graph before, between and after attentions, which are launched one by one.
            launch = (layers + 1) * VALUES["launch_graph_s"]
            launch += (layers - linear) * VALUES["launch_attention_s"]
            launch += linear * VALUES["launch_linear_s"]
    count = len(batch.requests)
    rest = sum(
        VALUES[f"{what}_step_s"] + count * VALUES[f"{what}_request_s"]
        for what in ("launch", "schedule")
    )
    return (launch, rest) if chip.kind == "gpu" else (0.0, launch + rest)
