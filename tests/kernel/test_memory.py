"""Parts of a rank's memory, each by hand, and the room that is left for KV."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelfit.kernel import memory
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.model import Attention, LayerKind, Mlp, Model
from tests.kernel.builders import CHIP
from tests.kernel.deployed import EVERY_KIND, EXPERTS, GQA, HYBRID, LATENT, deployed, one_kind

GIB = 1 << 30
MIB = 1 << 20
LLAMA_8B = Model(
    "8b",
    4096,
    128256,
    (LayerKind("dense", 32, Attention("full", 32, 8, 128), Mlp(14336)),),
    "bf16",
    "bf16",
    tied_head=False,
)
MOE = one_kind(GQA, experts=EXPERTS)
CPU = replace(CHIP, name="round-cpu", kind="cpu", hbm_bytes=64 * GIB)


@pytest.mark.parametrize(("tp", "gib"), [(1, 14.96), (2, 7.48)])
def test_weights_as_an_engine_prints_them(tp: int, gib: float) -> None:
    # vLLM pull request 10511, Meta-Llama-3-8B on an H100: "model weights take 14.96GiB", 7.48GiB
    # with two ranks.
    parts = memory.fixed_bytes(deployed(LLAMA_8B, tp=tp))
    assert parts.weights_bytes / GIB == pytest.approx(gib, abs=0.006)


def test_activations_grow_as_an_engine_s_peak_does() -> None:
    # vLLM issue 10517, Llama-3.1-8B: 17.06 GiB at batches of 20,000 tokens, 17.98 GiB at 29,000.
    measured = (17.98 - 17.06) * GIB / 9000
    few, many = (
        memory.activation_peak_bytes(
            LLAMA_8B, deployed(LLAMA_8B, max_num_batched_tokens=tokens).resolution
        )
        for tokens in (20_000, 29_000)
    )
    assert (many - few) / 9000 == pytest.approx(measured, rel=0.1)


def test_the_larger_of_a_layer_and_of_sampling_is_the_peak() -> None:
    # Residual and its copy, and gate, up and their product of the rank.
    wide = deployed(one_kind(GQA), tp=2, max_num_seqs=1)
    expected = 8192 * (2 * 256 + 3 * 512 // 2) * 2
    assert memory.fixed_bytes(wide).activation_peak_bytes == expected
    # The last hidden states, and 20 bytes for each logit of the whole vocabulary.
    many = deployed(one_kind(GQA, vocab=64_000), tp=2)
    expected = 8192 * 256 * 2 + 256 * 64_000 * 20
    assert memory.fixed_bytes(many).activation_peak_bytes == expected
    # A step cannot sample for more requests than it has tokens.
    few = deployed(one_kind(GQA, vocab=64_000), max_num_batched_tokens=16)
    assert memory.fixed_bytes(few).activation_peak_bytes == 16 * 256 * 2 + 16 * 64_000 * 20


def test_graphs_take_memory_by_mode() -> None:
    def graphs(mode: str) -> int:
        return memory.fixed_bytes(deployed(one_kind(GQA), graph_mode=mode)).cuda_graph_bytes

    assert graphs("NONE") == 0
    # Medians of start-up lines, 0.545 and 0.73 GiB.
    assert graphs("FULL_AND_PIECEWISE") / GIB == pytest.approx(0.545, rel=0.02)
    assert graphs("PIECEWISE") / GIB == pytest.approx(0.73, rel=0.01)
    assert graphs("FULL") == graphs("FULL_DECODE_ONLY") == graphs("FULL_AND_PIECEWISE")
    with pytest.raises(InvalidArgument, match="graph_mode"):
        graphs("SOME")


def buffers(model: Model = MOE, chip: object = CHIP, **words: object) -> int:
    """Communication buffers of a deployment."""
    plan = deployed(model, chip, **words)  # type: ignore[arg-type]
    return memory.fixed_bytes(plan).comm_buffers_bytes


def test_communication_buffers_by_width_and_backend() -> None:
    assert buffers() == 0
    assert buffers(tp=2, all_reduce_backend="nccl") == 358_612_992
    # Eight ranks are published with four's figure; wider groups take the last one too.
    for tp in (4, 8, 16):
        assert buffers(tp=tp, all_reduce_backend="nccl") == 411_041_792
    assert buffers(tp=2, all_reduce_backend="custom") == 358_612_992 + 32 * MIB
    assert buffers(tp=2, chip=CPU, all_reduce_backend="shared_memory") == 0
    # Ranks that hold copies of a dense model exchange nothing.
    assert buffers(one_kind(GQA), dp=4) == 0
    assert buffers(dp=4, ep=4) == 411_041_792


def test_buffers_of_an_exchange_of_experts() -> None:
    plain = buffers(dp=4, ep=4, all2all_backend="allgather_reducescatter")
    high = buffers(dp=4, ep=4, all2all_backend="deepep_high_throughput")
    assert high - plain == 1024 * MIB
    across = buffers(dp=4, ep=4, all2all_backend="deepep_high_throughput", nodes_spanned=2)
    assert across - plain == 2048 * MIB
    low = buffers(dp=4, ep=4, all2all_backend="deepep_low_latency")
    # 16 experts, 256 tokens of 256 elements in 16 bit with a header of 16 bytes, sent and
    # received, each twice.
    assert low - plain == 1024 * MIB + 4 * 16 * 256 * (512 + 16)


def test_a_latent_s_second_copy_is_a_gpu_s() -> None:
    gpu = memory.fixed_bytes(deployed(one_kind(LATENT))).weights_bytes
    cpu = memory.fixed_bytes(deployed(one_kind(LATENT), CPU)).weights_bytes
    assert gpu - cpu == 2 * 2 * 64 * 8 * 56


def test_redundant_experts_stand_apart() -> None:
    parts = memory.fixed_bytes(deployed(MOE, tp=2, ep=2, redundant_experts=2))
    assert parts.redundant_experts_bytes == 2 * 2 * 3 * 256 * 64
    assert parts.total() == sum(
        (
            parts.weights_bytes,
            parts.activation_peak_bytes,
            parts.cuda_graph_bytes,
            parts.redundant_experts_bytes,
            parts.comm_buffers_bytes,
        )
    )


def test_room_on_gpus_is_each_rank_s_own() -> None:
    for tp in (1, 2):
        plan = deployed(LLAMA_8B, tp=tp)
        expected = int(80 * GIB * 0.9) - memory.fixed_bytes(plan).total()
        assert memory.kv_room_bytes(plan) == expected


def test_ranks_on_a_cpu_share_the_memory_of_the_machine() -> None:
    model = one_kind(GQA)
    for tp, share in ((1, 0.9), (2, 0.5), (4, 0.25)):
        plan = deployed(model, CPU, tp=tp)
        room = memory.kv_room_bytes(plan)
        assert room == int(64 * GIB * share) - memory.fixed_bytes(plan).total()
        assert tp * room < 64 * GIB
    # Less than an equal part is what it says; two machines have two memories.
    modest = deployed(model, CPU, tp=2, gpu_memory_utilization=0.3)
    fixed = memory.fixed_bytes(modest).total()
    assert memory.kv_room_bytes(modest) == int(64 * GIB * 0.3) - fixed
    apart = deployed(model, CPU, tp=2, nodes_spanned=2)
    assert memory.kv_room_bytes(apart) == int(64 * GIB * 0.9) - memory.fixed_bytes(apart).total()


def test_a_model_that_does_not_fit_has_no_room() -> None:
    small = replace(CHIP, hbm_bytes=8 * GIB)
    assert memory.kv_room_bytes(deployed(LLAMA_8B, small)) == 0


def test_sequences_of_a_deployment() -> None:
    plan = deployed(HYBRID)
    assert memory.sequence_fixed_bytes(plan) > 0
    assert memory.sequence_fixed_bytes(deployed(one_kind(GQA))) == 0
    assert memory.sequence_variable_bytes(deployed(one_kind(GQA)), 17) == 2 * 16 * 2 * 256
    with pytest.raises(InvalidArgument, match="tokens"):
        memory.sequence_variable_bytes(plan, -1)


@given(
    st.sampled_from(EVERY_KIND),
    st.sampled_from((1, 2, 4)),
    st.integers(1, 20_000),
    st.integers(1, 2000),
)
def test_every_part_is_a_size(model: Model, tp: int, tokens: int, seqs: int) -> None:
    words: dict[str, Any] = {"tp": tp, "max_num_batched_tokens": tokens, "max_num_seqs": seqs}
    parts = memory.fixed_bytes(deployed(model, **words))
    assert parts.weights_bytes > 0
    assert parts.activation_peak_bytes > 0
    more = memory.fixed_bytes(deployed(model, **{**words, "max_num_batched_tokens": tokens + 1}))
    assert more.activation_peak_bytes >= parts.activation_peak_bytes
    assert more.weights_bytes == parts.weights_bytes


def test_constants_say_their_evidence() -> None:
    assert {method for _, method in memory.CONSTANTS} <= {"literature", "assumed"}
    assert len({name for name, _ in memory.CONSTANTS}) == len(memory.CONSTANTS)
