"""Whatever a pool asks for: the same answer twice, an error of the core, or sound fields."""

from __future__ import annotations

from dataclasses import fields, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.kernel import Chip, InvalidArgument, Model, Pool, Refusal, Resolution
from kernelfit.kernel.resolution import GRAPH_MODES, resolve
from kernelfit.kernel.rules import EXCHANGES
from tests.kernel.builders import CHIP, dense, mixture
from tests.kernel.shapes import CPU, hybrid, latent

MODELS = (dense(), mixture(), mixture(experts=12), latent(), hybrid())
CHIPS = (CHIP, CPU, *(replace(CHIP, name=name) for name in ("H100-SXM", "A100-80GB", "B200")))
VERSIONS = ("", "dev", "0.9.0", "0.11.0", "0.14.1", "0.18.0", "0.24.0", "0.29.0", "0.32.0", "1.0.0")
NAMES = tuple(sorted({name for _, names in EXCHANGES for name in names}))

# The setting, and the field that it becomes.
DIRECT = (
    ("max_num_seqs", "max_num_seqs"),
    ("max_num_batched_tokens", "max_num_batched_tokens"),
    ("block_size", "block_size"),
    ("gpu_memory_utilization", "gpu_memory_utilization"),
    ("async_scheduling", "async_scheduling"),
    ("cudagraph_mode", "graph_mode"),
    ("all2all_backend", "all2all_backend"),
    ("routing_imbalance", "routing_imbalance"),
    ("mamba_cache_mode", "mamba_cache_mode"),
)


def mostly_unstated(*values: object) -> st.SearchStrategy:
    return st.sampled_from((*(None,) * (2 * len(values)), *values))


POOLS = st.builds(
    Pool,
    tp=st.sampled_from((1, 2, 4, 8)),
    dp=st.sampled_from((1, 1, 1, 2, 4)),
    nodes=st.sampled_from((1, 1, 1, 2)),
    enable_expert_parallel=st.booleans(),
    max_num_seqs=st.none() | st.integers(1, 600),
    max_num_batched_tokens=st.none() | st.integers(500, 20000),
    block_size=mostly_unstated(1, 16, 64, 128),
    max_model_len=st.none() | st.integers(1, 5000),
    cache_dtype=mostly_unstated("auto", "fp8", "bfloat16", "fp8_ds_mla"),
    gpu_memory_utilization=mostly_unstated(0.5, 1.0),
    async_scheduling=mostly_unstated(True, False),
    enforce_eager=mostly_unstated(True, False),
    cudagraph_mode=mostly_unstated(*GRAPH_MODES),
    cudagraph_capture_sizes=st.just(()) | st.lists(st.integers(1, 600), max_size=4).map(tuple),
    disable_custom_all_reduce=mostly_unstated(True, False),
    disable_cascade_attn=mostly_unstated(True, False),
    enable_prefix_caching=mostly_unstated(True, False),
    all2all_backend=mostly_unstated(*NAMES),
    distributed_executor_backend=mostly_unstated("mp", "uni", "ray"),
    routing_imbalance=mostly_unstated(1.0, 1.5),
    num_redundant_experts=mostly_unstated(0),
    max_cudagraph_capture_size=mostly_unstated(1, 64, 100, 600),
    state_dtype=mostly_unstated("auto", "float32", "bf16"),
    mamba_cache_mode=mostly_unstated("none", "align", "all"),
    gpus_per_node=mostly_unstated(4, 8),
)
CHANGES = st.sampled_from(
    (
        *({},) * 6,
        {"pp": 2},
        {"speculative_method": "ngram", "num_speculative_tokens": 1},
        {"speculative_method": "ngram", "num_speculative_tokens": 4},
        {"speculative_method": "ngram"},
        {"speculative_method": "eagle", "num_speculative_tokens": 2},
        {"enable_eplb": True, "num_redundant_experts": 4},
    )
)


def outcome(pool: Pool, model: Model, chip: Chip, version: str) -> Resolution | str:
    try:
        return resolve(pool, model, chip, version)
    except (InvalidArgument, Refusal) as error:
        return f"{error.field}: {error}"


@settings(max_examples=400)
@given(POOLS, CHANGES, st.sampled_from(MODELS), st.sampled_from(CHIPS), st.sampled_from(VERSIONS))
def test_any_pool_resolves_soundly_or_is_refused(
    pool: Pool, changes: dict[str, object], model: Model, chip: Chip, version: str
) -> None:
    pool = replace(pool, **changes)  # type: ignore[arg-type]
    before = tuple(getattr(pool, item.name) for item in fields(pool))
    found = outcome(pool, model, chip, version)
    assert found == outcome(pool, model, chip, version)
    assert before == tuple(getattr(pool, item.name) for item in fields(pool))
    if isinstance(found, str):
        # An error names the setting at fault.
        assert found.split(":")[0]
        return
    check_requests(pool, found)
    check_fields(pool, model, chip, found)


def check_requests(pool: Pool, found: Resolution) -> None:
    noted = {o.field for o in found.overrides}
    for setting, field in DIRECT:
        wanted, runs = getattr(pool, setting), getattr(found, field)
        # Experts on one rank cannot be unbalanced: 1 and "not applicable" are the same.
        same = wanted == runs or (setting, wanted, runs) == ("routing_imbalance", 1.0, 0.0)
        assert wanted is None or same or setting in noted, (setting, wanted, runs)
    for override in found.overrides:
        assert override.reason
        assert override.requested != override.resolved
        assert override.requested != "unstated" or override.reason.startswith("assumed:")


def check_fields(pool: Pool, model: Model, chip: Chip, found: Resolution) -> None:
    ranks = pool.tp * pool.dp
    has_experts = any(kind.experts for kind in model.layers)
    assert found.capture_sizes == tuple(sorted(set(found.capture_sizes)))
    assert (found.capture_sizes == ()) is (found.graph_mode == "NONE")
    assert all(1 <= size <= found.max_num_batched_tokens for size in found.capture_sizes)
    assert 1 <= found.max_num_seqs <= found.max_num_batched_tokens
    assert found.block_size >= 1
    spread = pool.enable_expert_parallel and has_experts
    assert found.expert_parallel_width == (ranks if spread else 1)
    assert found.ranks_per_node * pool.nodes == ranks
    assert 1 <= found.nodes_spanned <= pool.nodes
    assert found.decode_query_tokens == 1 + (pool.num_speculative_tokens or 0)
    assert found.routing_imbalance == 0.0 or found.routing_imbalance >= 1.0
    assert found.launches_run_ahead is (chip.kind != "cpu")
    assert (found.all2all_backend != "none") is (pool.dp > 1 and has_experts)
    assert not found.sequence_parallel_moe or found.all2all_backend != "none"
    assert (found.all_reduce_backend == "none") is (pool.tp == 1)
    assert (found.all_reduce_backend == "shared_memory") is (chip.kind == "cpu" and pool.tp > 1)
    assert found.mamba_cache_mode in ("none", "align")
