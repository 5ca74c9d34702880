"""Bytes on one rank: weights, buffers, the KV cache in whole pages, and the room for it."""

from __future__ import annotations

from typing import Protocol

from kernelfit.kernel.cache import sequence_bytes, sequence_state_bytes
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.dtypes import dtype_bytes
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.estimate import MemoryBreakdown
from kernelfit.kernel.integers import ceil_div
from kernelfit.kernel.layers import LayerKind
from kernelfit.kernel.model import Model
from kernelfit.kernel.pool import Pool
from kernelfit.kernel.resolved import Resolution
from kernelfit.kernel.weights import absorbed_bytes, redundant_expert_bytes, weight_bytes_per_rank

_MIB = 1 << 20

NCCL_BYTES: tuple[tuple[int, int], ...] = ((2, 358_612_992), (4, 411_041_792))
"""One communicator's buffers from this group width up [bytes]; NVIDIA AIConfigurator
``system.yaml``, which states the same for 4 and 8 ranks. Wider groups take the last: a ring
keeps its buffers per channel and neighbour, not per rank."""

CUSTOM_ALL_REDUCE_BYTES = 32 * _MIB
"""Shared buffers of vLLM's custom all-reduce [bytes]: 8 MiB for intermediate results, 16 MiB
for what is exchanged, 8 MiB of addresses; ``custom_all_reduce.py``, 0.32.0."""

DEEPEP_BUFFER_BYTES = 1024 * _MIB
"""DeepEP's buffer for NVLink, and once more for the network [bytes]; vLLM's default of
``VLLM_DEEPEP_BUFFER_SIZE_MB``."""

DEEPEP_TOKENS = 256
"""Tokens that a rank may send at once under DeepEP's low-latency kernels [tokens]; vLLM's
``DEFAULT_MAX_NUM_BATCHED_TOKENS_FOR_BATCHED_DP``."""

GRAPH_BYTES: tuple[tuple[str, int], ...] = (
    ("NONE", 0),
    ("PIECEWISE", round(0.73 * 1024) * _MIB),
    ("FULL", round(0.55 * 1024) * _MIB),
    ("FULL_DECODE_ONLY", round(0.55 * 1024) * _MIB),
    ("FULL_AND_PIECEWISE", round(0.55 * 1024) * _MIB),
)
"""Memory of the captured graphs [bytes], assumed: medians of vLLM start-up lines that stand
in ``docs/vllm-cudagraph-capture-samples.csv`` of inference-sim/blis-registry (f7519b1): 146 of
FULL_AND_PIECEWISE, 93 of PIECEWISE. They range from nothing to several GiB and say neither
model nor number of captures; the two other modes have 5 lines between them and take the
first's."""

LOGIT_BYTES = 20
"""Bytes alive per request and row of the vocabulary while sampling, assumed: the logits in 32
bit, a sorted copy, its indices in 64 bit, and probabilities."""

CONSTANTS: tuple[tuple[str, str], ...] = (
    ("graph_bytes", "assumed"),
    ("logit_bytes", "assumed"),
    ("communicator_bytes", "literature"),
    ("custom_all_reduce_bytes", "literature"),
    ("expert_exchange_bytes", "literature"),
)
"""Name and method of every constant here, for a kernel's provenance."""


class Deployed(Protocol):
    """What memory and transfers need to know of a plan.

    Attributes
    ----------
    model : Model
        The model.
    chip : Chip
        The GPU type.
    pool : Pool
        The pool as stated.
    resolution : Resolution
        What will run.
    """

    @property
    def model(self) -> Model:
        """The model."""

    @property
    def chip(self) -> Chip:
        """The GPU type."""

    @property
    def pool(self) -> Pool:
        """The pool as stated."""

    @property
    def resolution(self) -> Resolution:
        """What will run."""


def sequence_variable_bytes(plan: Deployed, tokens: int) -> int:
    """Return the KV bytes of one sequence on one rank.

    Parameters
    ----------
    plan : Deployed
        The deployment.
    tokens : int
        Length of the sequence [tokens].

    Returns
    -------
    int
        Bytes in whole pages [bytes]; see ``cache.sequence_bytes`` for what each kind of
        attention keeps.

    Raises
    ------
    InvalidArgument
        When ``tokens`` is negative.
    """
    return sequence_bytes(plan.model, plan.resolution, tokens)


def sequence_fixed_bytes(plan: Deployed) -> int:
    """Return the bytes of one sequence on one rank whatever its length.

    Parameters
    ----------
    plan : Deployed
        The deployment.

    Returns
    -------
    int
        Recurrent states in whole pages [bytes]; 0 for pure attention.

    Raises
    ------
    InvalidArgument
        When ``mamba_cache_mode`` is unknown.
    """
    return sequence_state_bytes(plan.model, plan.resolution)


def _widest(model: Model, kind: LayerKind, tp: int) -> float:
    """Elements per token that one layer keeps alive beside the residual, at the most."""
    a = kind.attention
    heads = a.heads / tp
    if a.latent is not None:
        m = a.latent
        query = m.nope_head_dim + m.rope_head_dim
        alive = heads * (query + m.nope_head_dim + 2 * m.value_head_dim)
        alive += m.query_rank + m.kv_rank + m.rope_head_dim
    elif a.linear is not None:
        n = a.linear
        alive = (2 * n.key_heads * n.key_head_dim + 3 * n.value_heads * n.value_head_dim) / tp
    else:
        queries = (3 if a.output_gate else 2) * heads
        alive = a.head_dim * (queries + 2 * max(1.0, a.kv_heads / tp))
    widths = [alive]
    if kind.mlp is not None:
        widths.append((3 if kind.mlp.gated else 2) * kind.mlp.intermediate / tp)
    if kind.experts is not None:
        e = kind.experts
        # The first product and the output of the second share one workspace.
        width = e.intermediate / tp
        first = max((2 if e.gated else 1) * width, model.hidden)
        shared = (3 if e.gated else 2) * e.shared_intermediate / tp
        widths.append(e.per_token * (first + width) + shared)
    return max(widths)


def activation_peak_bytes(model: Model, resolution: Resolution) -> int:
    """Return the most bytes of activations alive at once on one rank.

    Parameters
    ----------
    model : Model
        The model.
    resolution : Resolution
        What will run.

    Returns
    -------
    int
        The larger of a full batch in the widest layer (residual, its copy and the layer's
        tensors) and of sampling for every request over the whole vocabulary [bytes].

    Notes
    -----
    Derived, not measured. Two start-up logs of vLLM issue 10517 (Llama-3.1-8B, batches of
    20,000 and 29,000 tokens) differ by 0.92 GiB, 110 kB per token, where this rule says
    102 kB. Workspaces of attention and matrix libraries are not counted.
    """
    element = dtype_bytes(model.dtype)
    tp = resolution.tensor_parallel_width
    widest = max(_widest(model, kind, tp) for kind in model.layers)
    batch = resolution.max_num_batched_tokens
    layer = batch * (2 * model.hidden + widest) * element
    sampling = batch * model.hidden * element
    sampling += min(resolution.max_num_seqs, batch) * model.vocab * LOGIT_BYTES
    return round(max(layer, sampling))


def _communicator_bytes(width: int) -> int:
    return max((size for least, size in NCCL_BYTES if width >= least), default=0)


def comm_buffer_bytes(model: Model, chip: Chip, resolution: Resolution) -> int:
    """Return the bytes of communication buffers on one rank.

    Parameters
    ----------
    model : Model
        The model.
    chip : Chip
        The GPU type.
    resolution : Resolution
        What will run.

    Returns
    -------
    int
        Buffers [bytes]: a communicator for tensor parallelism, which exists beside the
        custom all-reduce too; the custom all-reduce's own; a communicator for experts of
        data-parallel ranks; DeepEP's buffers. Other exchanges add none that is published.
        0 on a CPU, whose ranks exchange through memory of the machine, and on one rank.

    Notes
    -----
    DeepEP's low-latency buffer holds, twice each, a message to send and one to receive per
    expert and token, in 16 bit with a scale per 128 elements (``csrc/config.hpp``).
    """
    if chip.kind != "gpu":
        return 0
    tp, dp = resolution.tensor_parallel_width, resolution.data_parallel_width
    total = _communicator_bytes(tp)
    if tp > 1 and resolution.all_reduce_backend == "custom":
        total += CUSTOM_ALL_REDUCE_BYTES
    experts = max((k.experts.experts for k in model.layers if k.experts is not None), default=0)
    if dp == 1 or not experts:
        return total
    total += _communicator_bytes(tp * dp)
    if resolution.all2all_backend == "deepep_high_throughput":
        total += DEEPEP_BUFFER_BYTES * (2 if resolution.nodes_spanned > 1 else 1)
    if resolution.all2all_backend == "deepep_low_latency":
        message = 2 * model.hidden + max(16, 4 * (model.hidden // 128))
        messages = (experts + resolution.redundant_experts) * DEEPEP_TOKENS
        total += DEEPEP_BUFFER_BYTES + 4 * messages * message
    return total


def fixed_bytes(plan: Deployed) -> MemoryBreakdown:
    """Return the bytes on one rank whatever the requests.

    Parameters
    ----------
    plan : Deployed
        The deployment.

    Returns
    -------
    MemoryBreakdown
        Parts in [bytes]. Weights are the checkpoint's share of the rank and, on a GPU, the
        copies that decoding from a latent needs; the activation peak is derived; graphs
        and communication buffers are published or assumed constants.

    Raises
    ------
    InvalidArgument
        When the graph mode is unknown.
    """
    resolution = plan.resolution
    graphs = dict(GRAPH_BYTES)
    if resolution.graph_mode not in graphs:
        raise InvalidArgument("graph_mode", resolution.graph_mode, ", ".join(graphs))
    weights = weight_bytes_per_rank(plan.model, resolution)
    if plan.chip.kind == "gpu":
        weights += absorbed_bytes(plan.model, resolution)
    return MemoryBreakdown(
        weights_bytes=weights,
        activation_peak_bytes=activation_peak_bytes(plan.model, resolution),
        cuda_graph_bytes=graphs[resolution.graph_mode],
        redundant_experts_bytes=redundant_expert_bytes(plan.model, resolution),
        comm_buffers_bytes=comm_buffer_bytes(plan.model, plan.chip, resolution),
    )


def kv_room_bytes(plan: Deployed) -> int:
    """Return the bytes that one rank has for KV and recurrent state.

    Parameters
    ----------
    plan : Deployed
        The deployment.

    Returns
    -------
    int
        ``capacity x utilisation - fixed`` [bytes], at least 0. Ranks on GPUs have a memory
        each. A CPU document states the memory of the machine, which its ranks share: each
        gets the stated share of it, and no more than an equal part.

    Notes
    -----
    vLLM counts the share of the memory for every rank on a CPU too (``cpu_worker.py``) and
    refuses to start where they do not fit together; here they are made to fit.
    """
    resolution = plan.resolution
    share = resolution.gpu_memory_utilization
    if plan.chip.kind == "cpu":
        ranks = resolution.tensor_parallel_width * resolution.data_parallel_width
        on_machine = ceil_div(ranks, max(1, resolution.nodes_spanned))
        share = min(share, 1.0 / on_machine)
    return max(0, int(plan.chip.hbm_bytes * share) - fixed_bytes(plan).total())
