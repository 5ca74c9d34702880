"""Where each coefficient of a kernel goes in a BLIS set, and where it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernelfit.kernel.costs import peak_of, resource_of
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.launches import launches, plain_launches
from kernelfit.kernel.links import nodes_of_group
from kernelfit.kernel.plan import Plan

_US = 1e6

GEMM_TYPES: tuple[str, ...] = ("bf16", "fp8", "nvfp4")
"""Data types whose envelope BLIS's kernel looks up (blis-latency-kernel, ``dtypeFit``)."""

# Chips whose name in the BLIS catalogue is not simply ours in lower case.
_CATALOGUE = {"a100-sxm-80gb": "a100-sxm", "h100-sxm": "h100", "h200-sxm": "h200"}

UNKNOWN = "no cost law of BLIS takes such a coefficient"
MISSING: tuple[tuple[str, str], ...] = (
    ("output_call_s", "BLIS charges output by the token, with nothing for a call that holds them"),
    ("output_extra_token_s", "BLIS charges every token of a request's output alike"),
    (
        "attention_head_s",
        "BLIS charges attention a floor per layer, not per request and key-value head",
    ),
    ("recurrent_eff", "BLIS prices a recurrence by tokens per time, not by a share of the peak"),
    ("hbm_activation_eff", "BLIS derates weights and activations by the one hbm_derate"),
    ("hbm_expert_eff", "BLIS derates experts and other weights by the one hbm_derate"),
    ("expert_floor_s", "BLIS charges experts by bytes and FLOP, with no floor per expert"),
    ("internode", "BLIS stretches a collective by the fabric's ratio, with no law across nodes"),
    ("allreduce_shared_memory", "BLIS prices collectives between GPUs only"),
    (
        "launch_attention_s",
        "BLIS charges one replay per piece of a graph, with nothing for what is launched between",
    ),
    ("launch_linear_s", "BLIS charges the host per layer or replay, whatever kind the layer is"),
    ("launch_step_s", "BLIS charges the host per layer or graph replay, not per step"),
    ("launch_request_s", "BLIS has no host cost per request in a step"),
    ("schedule_step_s", "BLIS has no cost of the scheduler per step"),
    ("schedule_request_s", "BLIS has no cost of the scheduler per request"),
    ("nvlink_eff", "one share of the link cannot fill a rate per collective and width"),
    ("allreduce_floor_s", "fitted over all widths; BLIS keeps one floor per collective and width"),
    ("attention_request_s", "BLIS charges attention a floor per layer, not per request"),
)
"""Coefficients, or beginnings of their names, that have no entry, and why."""


@dataclass(frozen=True, slots=True)
class Place:
    """The entry that holds a coefficient.

    Attributes
    ----------
    coefficient : str
        The coefficient.
    name : str
        Name of the entry.
    units : str
        Its unit, one of the closed list.
    factor : float
        From the coefficient's value to the entry's.
    note : str
        What differs between the two cost laws.
    exact : bool
        Whether the entry means the same as the coefficient; a value that only comes close is
        never published as measured.
    of_model : bool
        Whether the factor depends on the model, which then stands in the scope.
    """

    coefficient: str
    name: str
    units: str
    factor: float = 1.0
    note: str = ""
    exact: bool = True
    of_model: bool = False


def blis_chip_name(gpu: str) -> str:
    """Return the name under which BLIS's catalogue knows a GPU type.

    Parameters
    ----------
    gpu : str
        Name of a chip document.

    Returns
    -------
    str
        The catalogue's name; the same in lower case where no other is known.
    """
    return _CATALOGUE.get(gpu.lower(), gpu.lower())


def places(kernel: FittedKernel, chip: str) -> tuple[Place, ...]:
    """Return every entry that a kernel's coefficients fill.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    chip : str
        The chip as the catalogue spells it; the names of collectives end in it.

    Returns
    -------
    tuple of Place
        In the order of the cost laws: multiplications, memory, attention, collectives, host.
    """
    return (
        *_gemm(kernel),
        *_memory(kernel),
        *_attention(kernel),
        *_collectives(kernel, chip),
        *_host(kernel),
        *_front_end(kernel),
    )


def _gemm(kernel: FittedKernel) -> Iterator[Place]:
    used = set(kernel.plan.coefficients)
    for dtype in GEMM_TYPES:
        if f"gemm_eff_{dtype}" in used:
            yield Place(f"gemm_eff_{dtype}", f"gemm_eps_max_{dtype}", "dimensionless")
            yield Place(f"gemm_m_half_{dtype}", f"gemm_m_half_{dtype}", "tokens")


def _memory(kernel: FittedKernel) -> Iterator[Place]:
    if "hbm_weight_eff" in kernel.plan.coefficients:
        yield Place("hbm_weight_eff", "hbm_derate", "dimensionless")


def _suffixes(plan: Plan) -> dict[str, float]:
    """Return BLIS's suffix of each kind of attention, with its launches over a plain layer's."""
    out: dict[str, tuple[int, float]] = {}
    for kind in plan.model.layers:
        a = kind.attention
        if a.linear is not None:
            continue
        suffix = "_mla" if a.latent is not None else "_swa" if a.window_tokens else ""
        ratio = launches(kind, plan.chip.kind) / plain_launches(plan.chip.kind)
        count, total = out.get(suffix, (0, 0.0))
        out[suffix] = (count + kind.count, total + kind.count * ratio)
    return {suffix: total / count for suffix, (count, total) in out.items()}


def _attention(kernel: FittedKernel) -> Iterator[Place]:
    plan = kernel.plan
    suffixes = _suffixes(plan)
    floored = "layer_floor_s" in plan.coefficients
    for suffix, ratio in suffixes.items():
        if floored:
            yield Place(
                "layer_floor_s",
                f"attention_decode_floor{suffix}",
                "us_per_transfer",
                _US * ratio,
                "The floor of the whole layer stands here, since BLIS has none of its own; a step "
                "that decodes and prefills pays it twice.",
                exact=False,
                of_model=True,
            )
        if "hbm_kv_eff" in plan.coefficients:
            yield Place(
                "hbm_kv_eff",
                f"attention_decode_rate{suffix}",
                "bytes_per_us",
                plan.chip.hbm_bytes_per_s / _US,
                "Share of the datasheet bandwidth times that bandwidth.",
            )
    if not suffixes:
        return
    if floored:
        mean = sum(suffixes.values()) / len(suffixes)
        yield Place(
            "layer_floor_s",
            "attention_prefill_floor",
            "us_per_transfer",
            _US * mean,
            "The floor of the whole layer, as in attention_decode_floor.",
            exact=False,
            of_model=True,
        )
    dtype = plan.model.dtype
    values = kernel.fitted.values()
    if dtype in GEMM_TYPES and f"attention_eff_{dtype}" in plan.coefficients:
        rows = plan.resolution.max_num_batched_tokens
        envelope = values[f"gemm_eff_{dtype}"] * rows / (rows + values[f"gemm_m_half_{dtype}"])
        yield Place(
            f"attention_eff_{dtype}",
            "attention_prefill_work_scale",
            "dimensionless",
            1.0 / envelope,
            f"BLIS multiplies the scale by its envelope of matrix products; the share of the peak "
            f"is divided by that envelope at {rows} tokens, so smaller steps come out longer.",
            exact=False,
        )


def _collectives(kernel: FittedKernel, chip: str) -> Iterator[Place]:
    """One triple per collective and width that the deployment runs within a node.

    BLIS's bytes are those of the message, ours those that one rank moves over its link; the
    rate is stretched by the quotient. An all-gather's and a reduce-scatter's message is taken
    as the whole tensor, as NCCL's own tests count it.
    """
    plan = kernel.plan
    r = plan.resolution
    tp, dp, ep = r.tensor_parallel_width, r.data_parallel_width, r.expert_parallel_width
    used = set(plan.coefficients)
    groups: dict[tuple[str, str, int], float] = {}
    exchange = (tp * dp, 1) if r.sequence_parallel_moe else (dp, tp)
    for op, name, ranks, stride in (
        (f"allreduce_{r.all_reduce_backend}", "all_reduce", tp, 1),
        ("allgather", "all_gather", tp, 1),
        ("allgather", "all_gather", *exchange),
        ("reducescatter", "reduce_scatter", *exchange),
        ("alltoall", "alltoall", ep, 1),
    ):
        inside = ranks > 1 and nodes_of_group(ranks, stride, r.ranks_per_node) == 1
        if inside and f"{op}_eff" in used and not op.endswith("shared_memory"):
            moved = (ranks - 1) / ranks
            groups[op, name, ranks] = 2.0 * moved if name == "all_reduce" else moved
    for (op, name, ranks), moved in groups.items():
        stem = f"{name}_fp16_{ranks}rank_{chip.replace('-', '_')}"
        link = peak_of(f"{op}_eff", resource_of(f"{op}_eff"), plan.chip) / moved / _US
        note = f"Per byte of the message, of which a rank moves {moved:.6g} over its link."
        yield Place(f"{op}_floor_s", f"collective_floor_{stem}", "us_per_transfer", _US)
        yield Place(
            f"{op}_transition_eff",
            f"collective_transition_rate_{stem}",
            "bytes_per_us",
            link,
            note,
        )
        yield Place(f"{op}_eff", f"collective_peak_rate_{stem}", "bytes_per_us", link, note)


def _host(kernel: FittedKernel) -> Iterator[Place]:
    plan = kernel.plan
    used = set(plan.coefficients)
    if "launch_layer_s" in used:
        layers = sum(k.count * launches(k, plan.chip.kind) for k in plan.model.layers)
        ratio = layers / plain_launches(plan.chip.kind) / plan.model.layer_count
        yield Place(
            "launch_layer_s",
            "host_launch_eager_per_layer",
            "us_per_layer",
            _US * ratio,
            "Mean over the model's layers, by what each launches. BLIS never hides it behind the "
            "device.",
            of_model=True,
        )
    if "launch_graph_s" in used:
        yield Place(
            "launch_graph_s",
            "host_replay_graph_per_step",
            "us_per_step",
            _US,
            "BLIS never hides it behind the device.",
        )


_FRONT_END: tuple[tuple[str, str, str, str], ...] = (
    ("admission_request_s", "host_admission_per_request", "us_per_request", ""),
    ("admission_token_s", "host_admission_per_token", "us_per_token", ""),
    (
        "output_token_s",
        "host_output_token",
        "us_per_token",
        "What a further request output adds to a call; what a call takes whatever it holds "
        "(output_call_s) has no entry.",
    ),
    ("completion_s", "host_completion", "us_per_request", ""),
)


def _front_end(kernel: FittedKernel) -> Iterator[Place]:
    known = {c.name: c for c in kernel.fitted.coefficients}
    for coefficient, name, units, note in _FRONT_END:
        if coefficient in known:
            # The set has no scope for CPU, engine version and tokeniser.
            holds = f"Holds for {known[coefficient].scope}."
            yield Place(coefficient, name, units, _US, f"{note} {holds}".strip())


def reason_for(coefficient: str) -> str:
    """Return why a coefficient has no entry.

    Parameters
    ----------
    coefficient : str
        Its name.

    Returns
    -------
    str
        The reason.
    """
    for beginning, why in MISSING:
        if coefficient.startswith(beginning):
            return why
    if coefficient.startswith(("gemm_", "attention_eff")):
        return f"BLIS looks up envelopes of {', '.join(GEMM_TYPES)} alone"
    if coefficient.startswith(("allreduce", "allgather", "reducescatter", "alltoall")):
        return "the group crosses nodes, where BLIS stretches its rate inside a node"
    if coefficient == "layer_floor_s":
        return "BLIS has a floor for attention alone, and the model has none that it knows"
    return UNKNOWN
