"""What a pool resolves to, and each refusal beside the nearest pool that is accepted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kernelfit.kernel import (
    Attention,
    Chip,
    InvalidArgument,
    LayerKind,
    Mlp,
    Model,
    Pool,
    Refusal,
    Resolution,
)
from kernelfit.kernel.resolution import accepted, parse_version, resolve
from kernelfit.kernel.rules import generation, rules_for
from tests.kernel.builders import CHIP, EAGER, dense, mixture
from tests.kernel.shapes import CPU, hybrid, latent, with_attention

SMALL = replace(CHIP, hbm_bytes=48 << 30)
GIB = 1 << 30
NGRAM = {"speculative_method": "ngram", "num_speculative_tokens": 3}


def run(
    pool: Pool, model: Model | None = None, chip: Chip = CHIP, version: str = "0.32.0"
) -> Resolution:
    return resolve(pool, model or dense(), chip, version)


def reasons(pool: Pool, version: str = "0.32.0", chip: Chip = CHIP) -> dict[str, str]:
    return {o.field: o.reason for o in run(pool, None, chip, version).overrides}


@pytest.mark.parametrize(
    ("refused", "accepted_pool", "model", "word"),
    [
        (Pool(pp=2), Pool(pp=1), dense(), "pipeline"),
        (Pool(pcp=2), Pool(pcp=1), dense(), "by position"),
        (Pool(dcp=2), Pool(dcp=1), dense(), "by position"),
        (Pool(enable_dbo=True), Pool(enable_dbo=False), mixture(), "halves"),
        (Pool(speculative_method="suffix"), Pool(), dense(), "another number"),
        (Pool(speculative_method="ngram_gpu"), Pool(), dense(), "on the device"),
        (Pool(speculative_method="eagle"), Pool(**NGRAM), dense(), "draft"),
        (Pool(speculative_method="mtp"), Pool(**NGRAM), dense(), "draft"),
        (Pool(speculative_method="my.Proposer"), Pool(**NGRAM), dense(), "draft"),
        (Pool(**NGRAM), Pool(), hybrid(), "recurrent"),
        (Pool(cache_dtype="turbo"), Pool(cache_dtype="fp8"), dense(), "page layout"),
        (Pool(quantization="fp8"), Pool(quantization=None), dense(), "states bf16"),
    ],
)
def test_refusals_say_why_beside_what_is_accepted(
    refused: Pool, accepted_pool: Pool, model: Model, word: str
) -> None:
    run(accepted_pool, model)
    with pytest.raises(Refusal, match=word):
        run(refused, model)


@pytest.mark.parametrize(
    ("bad", "good", "field"),
    [
        (Pool(tp=0), Pool(tp=1), "tp"),
        (Pool(dcp=0), Pool(dcp=1), "dcp"),
        (Pool(gpus_per_node=9), Pool(gpus_per_node=8), "gpus_per_node"),
        (Pool(cudagraph_mode="HALF"), Pool(cudagraph_mode="FULL"), "cudagraph_mode"),
        (Pool(gpu_memory_utilization=0.0), Pool(gpu_memory_utilization=0.01), "gpu_memory"),
        (Pool(gpu_memory_utilization=1.1), Pool(gpu_memory_utilization=1.0), "gpu_memory"),
        (Pool(max_num_seqs=0), Pool(max_num_seqs=1), "max_num_seqs"),
        (Pool(max_model_len=0), Pool(max_model_len=1), "max_model_len"),
        (
            Pool(max_num_seqs=65, max_num_batched_tokens=64),
            Pool(max_num_seqs=64, max_num_batched_tokens=64),
            "max_num_batched_tokens",
        ),
        (Pool(num_speculative_tokens=2), Pool(), "num_speculative_tokens"),
        (Pool(speculative_method="ngram"), Pool(**NGRAM), "num_speculative_tokens"),
        (
            Pool(speculative_method="ngram", num_speculative_tokens=0),
            Pool(speculative_method="ngram", num_speculative_tokens=1),
            "num_speculative_tokens",
        ),
        (Pool(num_redundant_experts=-1), Pool(num_redundant_experts=0), "num_redundant"),
        (Pool(block_size=0), Pool(block_size=1), "block_size"),
        (Pool(all2all_backend="pigeon"), Pool(all2all_backend="nixl_ep"), "all2all_backend"),
    ],
)
def test_values_outside_their_range_are_bad_arguments(bad: Pool, good: Pool, field: str) -> None:
    run(good)
    with pytest.raises(InvalidArgument, match=field):
        run(bad)


def test_every_kind_of_attention_is_accepted_and_unknown_ones_are_not() -> None:
    window = Attention("sliding", 8, 2, 128, window_tokens=128)
    for model in (dense(), latent(), hybrid(), with_attention(window)):
        run(Pool(), model)
    with pytest.raises(Refusal, match="no law"):
        run(Pool(), with_attention(Attention("sparse", 8, 2, 128)))


def test_tensor_parallelism_needs_a_link() -> None:
    lonely = replace(CHIP, nvlink_bytes_per_s=0.0)
    run(Pool(tp=1), None, lonely)
    with pytest.raises(Refusal, match="no link"):
        run(Pool(tp=2), None, lonely)


@pytest.mark.parametrize(
    ("pool", "version", "expected"),
    [
        (Pool(), "0.13.0", False),
        (Pool(), "0.14.0", True),
        (Pool(), "", True),
        (Pool(async_scheduling=False), "0.32.0", False),
        (Pool(async_scheduling=True), "0.11.0", True),
        # The engine turns it off by itself with these.
        (Pool(**NGRAM), "0.32.0", False),
        (Pool(distributed_executor_backend="ray"), "0.20.0", False),
        (Pool(distributed_executor_backend="ray"), "0.21.0", True),
        (Pool(distributed_executor_backend="uni"), "0.32.0", True),
        (Pool(distributed_executor_backend="my.Executor"), "0.32.0", False),
    ],
)
def test_asynchronous_scheduling_follows_version_and_request(
    pool: Pool, version: str, expected: bool
) -> None:
    resolution = run(pool, version=version)
    assert resolution.async_scheduling is expected
    if pool.async_scheduling is None:
        assert "async_scheduling" in {o.field for o in resolution.overrides}


@pytest.mark.parametrize(
    ("refused", "accepted_pool", "version", "word"),
    [
        (NGRAM, {**NGRAM, "async_scheduling": False}, "0.32.0", "ngram"),
        ({"distributed_executor_backend": "ray"}, {}, "0.20.0", "executor ray"),
        ({"distributed_executor_backend": "my.Executor"}, {}, "0.32.0", "executor my"),
    ],
)
def test_asynchronous_scheduling_that_the_engine_would_not_start_with_is_refused(
    refused: dict[str, Any], accepted_pool: dict[str, Any], version: str, word: str
) -> None:
    run(Pool(**{"async_scheduling": True, **accepted_pool}), version=version)
    with pytest.raises(Refusal, match=word):
        run(Pool(async_scheduling=True, **refused), version=version)


def test_a_cpu_schedules_one_step_at_a_time() -> None:
    assert not run(Pool(), None, CPU).async_scheduling
    wish = run(Pool(async_scheduling=True), None, CPU)
    assert not wish.async_scheduling
    assert "switches it off" in {o.field: o.reason for o in wish.overrides}["async_scheduling"]
    assert run(Pool(async_scheduling=True), None, CPU, "0.13.0").async_scheduling
    assert not run(Pool(), None, CPU).launches_run_ahead
    assert run(Pool()).launches_run_ahead


def test_a_cpu_switches_overlapped_halves_off() -> None:
    assert "enable_dbo" in reasons(Pool(enable_dbo=True), chip=CPU)
    assert "enable_dbo" not in reasons(Pool(enable_dbo=False), chip=CPU)


def test_a_speculating_request_schedules_its_proposals_too() -> None:
    resolution = run(Pool(**NGRAM))
    assert resolution.decode_query_tokens == 4
    assert "not charged" in {o.field: o.reason for o in resolution.overrides}["speculative_method"]
    assert run(Pool()).decode_query_tokens == 1


def test_unstated_settings_are_recorded_as_assumed() -> None:
    assert reasons(EAGER) == {}
    for reason in reasons(Pool()).values():
        assert reason.startswith("assumed:")
    assert "block_size" in reasons(Pool())


def test_what_is_overruled_says_what_and_why() -> None:
    wish = replace(
        EAGER, cudagraph_mode="FULL", disable_cascade_attn=False, enable_expert_parallel=True
    )
    assert set(reasons(wish)) == {
        "cudagraph_mode",
        "disable_cascade_attn",
        "enable_expert_parallel",
    }
    assert run(wish).graph_mode == "NONE"


def test_cascade_attention_is_never_priced_and_its_default_is_known() -> None:
    for pool, version, noted in (
        (EAGER, "0.32.0", False),
        (EAGER, "0.17.0", True),  # on by default until 0.18
        (replace(EAGER, disable_cascade_attn=True), "0.17.0", False),
        (replace(EAGER, disable_cascade_attn=False), "0.32.0", True),
    ):
        assert ("disable_cascade_attn" in reasons(pool, version)) is noted
        assert not run(pool, version=version).cascade_attention
    assert reasons(EAGER, "0.17.0")["disable_cascade_attn"].startswith("assumed:")


@pytest.mark.parametrize(
    ("version", "name", "gib", "limits"),
    [
        ("0.32.0", "round-gpu", 80, (1024, 8192)),
        ("0.32.0", "A100-SXM-80GB", 80, (256, 2048)),
        ("0.32.0", "round-gpu", 48, (256, 2048)),
        ("0.32.0", "round-gpu", 180, (1024, 16384)),
        ("0.27.0", "round-gpu", 180, (1024, 8192)),
        ("", "round-gpu", 180, (1024, 16384)),
    ],
)
def test_default_limits_follow_memory_name_and_release(
    version: str, name: str, gib: int, limits: tuple[int, int]
) -> None:
    chip = replace(CHIP, name=name, hbm_bytes=gib * GIB)
    resolution = run(Pool(), None, chip, version)
    assert (resolution.max_num_seqs, resolution.max_num_batched_tokens) == limits


@pytest.mark.parametrize(
    ("pool", "limits"),
    [
        (Pool(max_num_batched_tokens=100), (100, 100)),
        (Pool(max_num_seqs=4, max_model_len=512), (4, 2048)),
        (Pool(max_num_seqs=400, max_model_len=4096), (400, 8192)),
    ],
)
def test_one_stated_limit_clips_the_default_of_the_other(
    pool: Pool, limits: tuple[int, int]
) -> None:
    resolution = run(pool)
    assert (resolution.max_num_seqs, resolution.max_num_batched_tokens) == limits


def test_limits_of_a_cpu_grow_with_its_ranks() -> None:
    resolution = run(Pool(tp=2), None, CPU)
    assert (resolution.max_num_seqs, resolution.max_num_batched_tokens) == (256, 4096)


def test_the_share_of_memory_follows_the_release() -> None:
    assert run(Pool(), version="0.19.0").gpu_memory_utilization == 0.9
    assert run(Pool(), version="0.20.0").gpu_memory_utilization == 0.92
    assert run(Pool(gpu_memory_utilization=0.5)).gpu_memory_utilization == 0.5


@pytest.mark.parametrize(
    ("method", "weight", "noted"),
    [("fp8", "fp8", False), ("awq", "int4", False), ("brandnew", "bf16", True)],
)
def test_a_method_of_quantisation_agrees_with_the_weights(
    method: str, weight: str, noted: bool
) -> None:
    model = replace(dense(), weight_dtype=weight)
    resolution = run(replace(EAGER, quantization=method), model)
    assert ("quantization" in {o.field for o in resolution.overrides}) is noted


def test_weights_that_a_chip_cannot_multiply_are_expanded() -> None:
    plain = replace(CHIP, peak_flop_per_s=(("bf16", 100e12),))
    model = replace(dense(), weight_dtype="fp8")
    assert "weight_dtype" not in {o.field for o in run(EAGER, model).overrides}
    noted = {o.field: o for o in run(EAGER, model, plain).overrides}["weight_dtype"]
    assert (noted.requested, noted.resolved) == ("fp8", "bf16")


@pytest.mark.parametrize(
    ("text", "numbers"), [("0.32.0", (0, 32, 0)), ("v0.14.1rc1", (0, 14)), ("", ()), ("dev", ())]
)
def test_versions(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_version(text) == numbers


@pytest.mark.parametrize(
    ("text", "rules", "word"),
    [
        ("0.32.0", (0, 32), ""),
        ("0.11.2", (0, 11), ""),
        ("0.33.0", (0, 32), "after"),
        ("0.10.2", (0, 11), "before"),
        ("", (0, 32), "no release"),
        ("dev", (0, 32), "no release"),
    ],
)
def test_releases_that_were_not_read_take_the_nearest_rules(
    text: str, rules: tuple[int, ...], word: str
) -> None:
    taken, reason = rules_for(text)
    assert taken == rules
    assert (word in reason) if word else reason == ""
    noted = reasons(EAGER, text)
    assert ("engine_version" in noted) is bool(word)
    assert noted.get("engine_version", "assumed:").startswith("assumed:")


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("H100-SXM", "hopper"),
        ("NVIDIA B200", "blackwell"),
        ("L40S", "ada"),
        ("A100-SXM-80GB", "ampere"),
        ("round-gpu", ""),
        ("AB200X", ""),
    ],
)
def test_generations_by_name(name: str, label: str) -> None:
    assert generation(name) == label


def test_what_is_accepted_is_what_resolves() -> None:
    fields = {choice.setting: choice for choice in accepted()}
    for field, model in (
        ("cudagraph_mode", dense()),
        ("cache_dtype", latent()),
        ("state_dtype", hybrid()),
        ("mamba_cache_mode", hybrid()),
        ("all2all_backend", mixture()),
    ):
        for value in fields[field].accepted:
            run(Pool(**{field: value}), model)
    for value, _ in fields["speculative_method"].refused:
        with pytest.raises(Refusal):
            run(Pool(speculative_method=value, num_speculative_tokens=1))
    exchanges = fields["all2all_backend"]
    assert exchanges.refused
    for value, why in exchanges.refused:
        pool = Pool(dp=2, enable_expert_parallel=True, all2all_backend=value)
        with pytest.raises(Refusal, match=why):
            run(pool, mixture())


def test_an_mlp_that_does_not_divide_is_a_bad_argument() -> None:
    kind = LayerKind("odd", 1, Attention("full", 8, 8, 128), Mlp(4100))
    model = Model("odd", 1024, 32000, (kind,), "bf16", "bf16", tied_head=False)
    run(Pool(tp=4), model)
    with pytest.raises(InvalidArgument, match="MLP width"):
        run(Pool(tp=8), model)


def test_rounded_capture_sizes_read_differently_from_those_asked_for() -> None:
    # Two lists of as many sizes up to the same largest once read alike.
    pool = Pool(
        speculative_method="ngram", num_speculative_tokens=1, cudagraph_capture_sizes=(1, 4)
    )
    resolution = resolve(pool, dense(), CHIP, "0.20.0")
    (change,) = [o for o in resolution.overrides if o.field == "cudagraph_capture_sizes"]
    assert (change.requested, change.resolved) == ("1, 4", "2, 4")
