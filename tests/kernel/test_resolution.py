"""What a pool resolves to, and each refusal beside the nearest pool that is accepted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelfit.kernel import Attention, InvalidArgument, LayerKind, Mlp, Model, Pool, Refusal
from kernelfit.kernel.resolution import default_capture_sizes, parse_version, resolve
from tests.kernel.builders import CHIP, EAGER, dense, mixture

CPU = replace(CHIP, name="cpu", kind="cpu", pcie_bytes_per_s=0.0)


def reasons(pool: Pool, version: str = "0.32.0", chip: object = CHIP) -> dict[str, str]:
    resolution = resolve(pool, dense(), chip, version)  # type: ignore[arg-type]
    return {o.field: o.reason for o in resolution.overrides}


def windowed() -> Model:
    kind = LayerKind("sliding", 4, Attention("sliding", 8, 2, 128, window_tokens=128), Mlp(4096))
    return Model("windowed", 1024, 32000, (kind,), "bf16", "bf16", tied_head=False)


@pytest.mark.parametrize(
    ("refused", "accepted", "word"),
    [
        ((Pool(pp=2), dense()), (Pool(pp=1), dense()), "pipeline"),
        ((Pool(nodes=2), dense()), (Pool(nodes=1), dense()), "across nodes"),
        ((Pool(dp=2), mixture()), (Pool(dp=2), dense()), "lock-step"),
        ((Pool(), windowed()), (Pool(), dense()), "no law yet"),
        ((Pool(speculative_method="eagle"), dense()), (Pool(), dense()), "draft"),
        ((Pool(cache_dtype="turbo"), dense()), (Pool(cache_dtype="fp8"), dense()), "page layout"),
    ],
)
def test_refusals_say_why_beside_what_is_accepted(
    refused: tuple[Pool, Model], accepted: tuple[Pool, Model], word: str
) -> None:
    resolve(accepted[0], accepted[1], CHIP, "0.32.0")
    with pytest.raises(Refusal, match=word):
        resolve(refused[0], refused[1], CHIP, "0.32.0")


def test_tensor_parallelism_needs_a_link() -> None:
    lonely = replace(CHIP, nvlink_bytes_per_s=0.0)
    resolve(Pool(tp=1), dense(), lonely, "0.32.0")
    with pytest.raises(Refusal, match="no link"):
        resolve(Pool(tp=2), dense(), lonely, "0.32.0")


@pytest.mark.parametrize(("bad", "good"), [(3, 2), (16, 8), (0, 1)])
def test_widths_must_divide_and_fit_the_node(bad: int, good: int) -> None:
    resolve(Pool(tp=good), dense(), CHIP, "0.32.0")
    with pytest.raises(InvalidArgument, match="tp"):
        resolve(Pool(tp=bad), dense(), CHIP, "0.32.0")


def test_custom_all_reduce_needs_one_of_its_widths() -> None:
    model = dense(heads=24, kv_heads=24, intermediate=4608)
    assert resolve(Pool(tp=2), model, CHIP, "").all_reduce_backend == "custom"
    three = resolve(Pool(tp=3), model, CHIP, "")
    assert three.all_reduce_backend == "nccl"
    assert any(o.field == "all_reduce_backend" for o in three.overrides)
    off = resolve(Pool(tp=2, disable_custom_all_reduce=True), model, CHIP, "")
    # What was asked for is no override.
    assert off.all_reduce_backend == "nccl"
    assert not any(o.field == "all_reduce_backend" for o in off.overrides)


@pytest.mark.parametrize(
    ("pool", "version", "expected"),
    [
        (Pool(), "0.13.0", False),
        (Pool(), "0.14.0", True),
        (Pool(async_scheduling=False), "0.32.0", False),
        (Pool(async_scheduling=True), "0.11.0", True),
    ],
)
def test_asynchronous_scheduling_follows_version_and_request(
    pool: Pool, version: str, expected: bool
) -> None:
    assert resolve(pool, dense(), CHIP, version).async_scheduling is expected


def test_asynchronous_scheduling_is_off_on_a_cpu_unless_forced() -> None:
    assert not resolve(Pool(), dense(), CPU, "0.32.0").async_scheduling
    assert resolve(Pool(async_scheduling=True), dense(), CPU, "0.32.0").async_scheduling


def test_unstated_settings_are_recorded_as_assumed() -> None:
    assert reasons(EAGER) == {}
    for reason in reasons(Pool()).values():
        assert reason.startswith("assumed")
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
    assert resolve(wish, dense(), CHIP, "").graph_mode == "NONE"


def test_default_limits_follow_memory() -> None:
    small = replace(CHIP, hbm_bytes=48 << 30)
    assert resolve(Pool(), dense(), CHIP, "").max_num_batched_tokens == 8192
    assert resolve(Pool(), dense(), small, "").max_num_batched_tokens == 2048
    assert (
        resolve(Pool(), dense(), replace(CHIP, hbm_bytes=180 << 30), "").max_num_batched_tokens
        == 16384
    )


def test_default_capture_sizes_as_published() -> None:
    sizes = default_capture_sizes(512)
    assert sizes[:6] == (1, 2, 4, 8, 16, 24)
    assert sizes[-3:] == (480, 496, 512)
    assert len(sizes) == 3 + 31 + 17


@pytest.mark.parametrize(
    ("text", "numbers"), [("0.32.0", (0, 32, 0)), ("v0.14.1rc1", (0, 14)), ("", ()), ("dev", ())]
)
def test_versions(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_version(text) == numbers
