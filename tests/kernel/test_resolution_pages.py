"""Graphs, pages and recurrent state: what a pool's steps replay and keep."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelfit.kernel import Chip, InvalidArgument, Model, Pool, Refusal, Resolution
from kernelfit.kernel.model import LinearState
from kernelfit.kernel.resolution import default_capture_sizes, resolve
from tests.kernel.builders import CHIP, dense, mixture
from tests.kernel.shapes import CPU, hybrid, latent, with_attention

H100 = replace(CHIP, name="H100-SXM")
A100 = replace(CHIP, name="A100-SXM-80GB")
B200 = replace(CHIP, name="B200", hbm_bytes=180 << 30)


def run(
    pool: Pool, model: Model | None = None, chip: Chip = CHIP, version: str = "0.32.0"
) -> Resolution:
    return resolve(pool, model or dense(), chip, version)


def noted(resolution: Resolution) -> dict[str, str]:
    return {o.field: o.reason for o in resolution.overrides}


@pytest.mark.parametrize(
    ("pool", "model", "chip", "mode"),
    [
        (Pool(), dense(), CHIP, "FULL_AND_PIECEWISE"),
        (Pool(enforce_eager=True), dense(), CHIP, "NONE"),
        (Pool(enforce_eager=True, cudagraph_mode="FULL"), dense(), CHIP, "NONE"),
        (Pool(cudagraph_mode="FULL"), dense(), CPU, "NONE"),
        (Pool(cudagraph_mode="FULL"), dense(), CHIP, "FULL"),
        (Pool(cudagraph_mode="FULL"), dense(), H100, "FULL"),
        (Pool(cudagraph_mode="FULL"), dense(), A100, "FULL_AND_PIECEWISE"),
        (Pool(cudagraph_mode="FULL"), dense(), B200, "FULL_AND_PIECEWISE"),
        (Pool(cudagraph_mode="FULL"), hybrid(), H100, "FULL_AND_PIECEWISE"),
        (Pool(cudagraph_mode="FULL"), latent(), H100, "FULL_AND_PIECEWISE"),
        (Pool(cudagraph_mode="FULL_DECODE_ONLY"), latent(), H100, "FULL_DECODE_ONLY"),
        (Pool(cudagraph_mode="PIECEWISE"), hybrid(), H100, "PIECEWISE"),
    ],
)
def test_graph_modes_fall_to_what_attention_is_captured_for(
    pool: Pool, model: Model, chip: Chip, mode: str
) -> None:
    resolution = run(pool, model, chip)
    assert resolution.graph_mode == mode
    if pool.cudagraph_mode not in (None, mode):
        assert noted(resolution)["cudagraph_mode"]


def test_an_exchange_that_no_graph_holds_switches_graphs_off() -> None:
    pool = Pool(dp=2, enable_expert_parallel=True, all2all_backend="deepep_high_throughput")
    resolution = run(pool, mixture())
    assert (resolution.graph_mode, resolution.capture_sizes) == ("NONE", ())
    assert "no graph" in noted(resolution)["cudagraph_mode"]
    other = run(replace(pool, all2all_backend="deepep_low_latency"), mixture())
    assert other.graph_mode == "FULL_AND_PIECEWISE"


def test_default_capture_sizes_as_published() -> None:
    sizes = default_capture_sizes(512)
    assert sizes[:6] == (1, 2, 4, 8, 16, 24)
    assert sizes[-3:] == (480, 496, 512)
    assert len(sizes) == 3 + 31 + 17


@pytest.mark.parametrize(
    ("pool", "chip", "version", "head", "tail", "count"),
    [
        # Counted by hand: 3 small ones, 31 eights below 256, sixteens from 256 on.
        (Pool(), CHIP, "0.32.0", (1, 2, 4, 8), (496, 512), 51),
        (Pool(), B200, "0.32.0", (1, 2, 4, 8), (1008, 1024), 83),
        (Pool(), B200, "0.27.0", (1, 2, 4, 8), (496, 512), 51),
        # Eights all the way before 0.12.
        (Pool(), CHIP, "0.11.0", (1, 2, 4, 8), (504, 512), 67),
        (Pool(max_num_seqs=20), CHIP, "0.13.0", (1, 2, 4, 8), (32, 40), 8),
        # The engine's own function of 0.32.0, run on these limits, adds max_num_seqs.
        (Pool(max_num_seqs=20), CHIP, "0.32.0", (1, 2, 4, 8), (32, 40), 9),
        (
            Pool(max_num_seqs=100, max_num_batched_tokens=150),
            CHIP,
            "0.32.0",
            (1, 2, 4, 8),
            (144, 150),
            23,
        ),
        (Pool(max_cudagraph_capture_size=64), CHIP, "0.32.0", (1, 2, 4, 8), (56, 64), 11),
    ],
)
def test_which_sizes_are_captured_by_default(
    pool: Pool,
    chip: Chip,
    version: str,
    head: tuple[int, ...],
    tail: tuple[int, ...],
    count: int,
) -> None:
    sizes = run(pool, None, chip, version).capture_sizes
    assert (sizes[:4], sizes[-2:], len(sizes)) == (head, tail, count)


@pytest.mark.parametrize(
    ("version", "seqs", "sizes"),
    [
        # 1, 2, 4, 8, 16 up to 2 x seqs = 16, unrounded.
        ("0.11.0", 8, (1, 2, 4, 8, 16)),
        # Each up to a multiple of three, none above 16.
        ("0.12.0", 8, (3, 6, 9)),
        # The ceiling counts three tokens a request: 2 x 3 x 8 = 48.
        ("0.13.0", 8, (3, 6, 9, 18, 24, 33, 42, 48)),
        # And whole batches of 1, 2, 4 and 8 requests are captured.
        ("0.29.0", 8, (3, 6, 9, 12, 18, 24, 33, 42, 48)),
    ],
)
def test_speculation_captures_whole_requests(
    version: str, seqs: int, sizes: tuple[int, ...]
) -> None:
    pool = Pool(max_num_seqs=seqs, speculative_method="ngram", num_speculative_tokens=2)
    assert run(pool, version=version).capture_sizes == sizes
    # Without whole graphs for decode batches nothing is rounded.
    piecewise = run(replace(pool, cudagraph_mode="PIECEWISE"), version=version)
    assert piecewise.capture_sizes[:2] == (1, 2)


def test_stated_sizes_are_sorted_and_those_no_step_reaches_are_dropped() -> None:
    plain = run(Pool(cudagraph_capture_sizes=(8, 1, 8)))
    assert plain.capture_sizes == (1, 8)
    assert "cudagraph_capture_sizes" not in noted(plain)
    limited = run(Pool(cudagraph_capture_sizes=(8, 64), max_num_batched_tokens=32, max_num_seqs=8))
    assert limited.capture_sizes == (8,)
    assert "no step is larger" in noted(limited)["cudagraph_capture_sizes"]


@pytest.mark.parametrize(
    ("bad", "good", "field"),
    [
        (
            Pool(cudagraph_capture_sizes=(8,), max_cudagraph_capture_size=16),
            Pool(cudagraph_capture_sizes=(8, 16), max_cudagraph_capture_size=16),
            "max_cudagraph_capture_size",
        ),
        (
            Pool(cudagraph_capture_sizes=(64,), max_num_seqs=8, max_num_batched_tokens=32),
            Pool(cudagraph_capture_sizes=(32,), max_num_seqs=8, max_num_batched_tokens=32),
            "cudagraph_capture_sizes",
        ),
        (
            Pool(cudagraph_capture_sizes=(0, 8)),
            Pool(cudagraph_capture_sizes=(1, 8)),
            "cudagraph_capture_sizes",
        ),
        (
            Pool(
                cudagraph_capture_sizes=(2,), speculative_method="ngram", num_speculative_tokens=3
            ),
            Pool(
                cudagraph_capture_sizes=(4,), speculative_method="ngram", num_speculative_tokens=3
            ),
            "num_speculative_tokens",
        ),
    ],
)
def test_sizes_that_the_engine_would_not_start_with(bad: Pool, good: Pool, field: str) -> None:
    run(good)
    with pytest.raises(InvalidArgument, match=field):
        run(bad)


def test_a_largest_size_off_the_list_is_cut() -> None:
    resolution = run(Pool(max_cudagraph_capture_size=100))
    assert resolution.capture_sizes[-1] == 96
    assert "max_cudagraph_capture_size" in noted(resolution)


@pytest.mark.parametrize(
    ("pool", "model", "chip", "version", "size"),
    [
        (Pool(), dense(), CHIP, "0.32.0", 16),
        (Pool(), dense(), CPU, "0.32.0", 128),
        (Pool(block_size=32), dense(), CHIP, "0.32.0", 32),
        (Pool(), latent(), H100, "0.32.0", 16),
        (Pool(), latent(), H100, "0.17.0", 64),
        (Pool(block_size=16), latent(), H100, "0.17.0", 64),
        (Pool(block_size=128), latent(), H100, "0.17.0", 128),
        (Pool(), latent(), B200, "0.32.0", 32),
        (Pool(), latent(), B200, "0.14.0", 128),
        (Pool(), latent(), A100, "0.32.0", 16),
        (Pool(), latent(), CPU, "0.32.0", 16),
    ],
)
def test_pages_by_platform_attention_and_release(
    pool: Pool, model: Model, chip: Chip, version: str, size: int
) -> None:
    resolution = run(pool, model, chip, version)
    assert resolution.block_size == size
    assert ("block_size" in noted(resolution)) is (pool.block_size != size)


def test_a_page_holds_a_recurrent_state_as_the_engine_printed() -> None:
    # vLLM's pull request 37467 shows "Setting attention block size to 528 tokens" and a
    # padding of 0.76 %. Per rank of two: 8 key and 16 value heads of 128 in fp32, three
    # inputs of the convolution in bf16, two key-value heads of 256 in bf16.
    state = 16 * 128 * 128 * 4 + (2 * 8 * 128 + 16 * 128) * 3 * 2
    page = 528 * 2 * 2 * 256 * 2
    assert round(100 * (page - state) / state, 2) == 0.76
    resolution = run(Pool(tp=2), hybrid(key_heads=16, value_heads=32, kv_heads=4))
    assert resolution.block_size == 528
    stated = run(Pool(tp=2, block_size=16), hybrid())
    assert stated.block_size == 528
    assert "recurrent state" in noted(stated)["block_size"]
    assert run(Pool(tp=2, block_size=1024), hybrid()).block_size == 1024


@pytest.mark.parametrize(
    ("asked", "model", "resolved"),
    [
        (None, dense(), "bf16"),
        ("auto", dense(), "bf16"),
        ("bfloat16", dense(), "bf16"),
        ("fp8_e5m2", dense(), "fp8"),
        ("fp8", latent(), "fp8"),
        ("fp8_ds_mla", latent(), "fp8_ds_mla"),
    ],
)
def test_the_type_of_the_cache(asked: str | None, model: Model, resolved: str) -> None:
    resolution = run(Pool(cache_dtype=asked), model)
    assert resolution.cache_dtype == resolved
    assert ("cache_dtype" in noted(resolution)) is (asked is None)


def test_the_packed_cache_is_laid_out_for_one_latent() -> None:
    for model in (dense(), latent(rank=256)):
        run(Pool(cache_dtype="fp8"), model)
        with pytest.raises(InvalidArgument, match="packs latents"):
            run(Pool(cache_dtype="fp8_ds_mla"), model)


def test_the_type_of_recurrent_states() -> None:
    assert run(Pool(), hybrid()).state_dtype == "fp32"
    assert noted(run(Pool(), hybrid()))["state_dtype"].startswith("assumed:")
    stated = run(Pool(state_dtype="bfloat16"), hybrid())
    assert stated.state_dtype == "bf16"
    assert "state_dtype" not in noted(stated)
    assert run(Pool(), dense()).state_dtype == "bf16"
    assert "state_dtype" in noted(run(Pool(state_dtype="float32"), dense()))
    with pytest.raises(InvalidArgument, match="state_dtype"):
        run(Pool(state_dtype="fp8"), hybrid())


def test_layers_with_two_types_of_state_need_one_stated() -> None:
    first = hybrid().layers[0].attention
    assert first.linear is not None
    other: LinearState = replace(first.linear, state_dtype="bf16")
    model = with_attention(first, replace(first, linear=other))
    run(Pool(state_dtype="float32"), model)
    with pytest.raises(Refusal, match="state one type"):
        run(Pool(), model)


@pytest.mark.parametrize(
    ("pool", "model", "version", "mode"),
    [
        (Pool(), dense(), "0.32.0", "none"),
        (Pool(), hybrid(), "0.32.0", "align"),
        (Pool(), hybrid(), "0.25.0", "none"),  # no prefix caching by default until 0.26
        (Pool(enable_prefix_caching=True), hybrid(), "0.25.0", "align"),
        (Pool(enable_prefix_caching=False), hybrid(), "0.32.0", "none"),
        (Pool(enable_prefix_caching=False, mamba_cache_mode="align"), hybrid(), "", "none"),
        (Pool(enable_prefix_caching=True), hybrid(), "0.14.0", "none"),
        (Pool(mamba_cache_mode="all"), hybrid(), "0.31.0", "align"),
        (Pool(mamba_cache_mode="align"), dense(), "0.32.0", "none"),
    ],
)
def test_which_recurrent_states_are_kept(pool: Pool, model: Model, version: str, mode: str) -> None:
    resolution = run(pool, model, version=version)
    assert resolution.mamba_cache_mode == mode
    if pool.mamba_cache_mode not in (None, mode):
        assert "mamba_cache_mode" in noted(resolution)


def test_modes_of_recurrent_state_belong_to_releases() -> None:
    run(Pool(mamba_cache_mode="all"), hybrid(), version="0.31.0")
    with pytest.raises(InvalidArgument, match="mamba_cache_mode"):
        run(Pool(mamba_cache_mode="all"), hybrid(), version="0.32.0")
