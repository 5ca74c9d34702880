"""What each coefficient is, and the prior that holds until data speak.

An efficiency divides a datasheet peak and lies in (0, 1]; everything else is a time
per counted thing, except ``gemm_m_half``, which is a number of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

COLLECTIVE_OPS: tuple[tuple[str, str, float, float, float, float, str, str], ...] = (
    # op, what it is, floor [s], transition and rate as shares of the link's peak, spread of
    # the floor, method, source
    (
        "allreduce_custom",
        "the engine's custom all-reduce",
        4e-6,
        0.6,
        0.75,
        1.0,
        "literature",
        "BLIS registry, H100: 0.635 of NCCL's 5.85 to 15.6 us; 0.71 and 0.78 of the link at 2 "
        "and 4 ranks (its rates count 16-bit elements)",
    ),
    (
        "allreduce_nccl",
        "NCCL's all-reduce",
        8e-6,
        0.6,
        0.75,
        1.0,
        "literature",
        "BLIS registry, H100: 5.85, 9.31 and 15.6 us at 2, 4 and 8 ranks; rates as above",
    ),
    (
        "allreduce_shared_memory",
        "the all-reduce of ranks on CPUs, through shared memory",
        5e-5,
        0.5,
        0.5,
        2.3,
        "assumed",
        "order of magnitude; the spread of the prior is a factor of 10 either way",
    ),
    (
        "allgather",
        "gathering a shard from every rank",
        8e-6,
        0.65,
        0.85,
        1.0,
        "literature",
        "BLIS registry, H100: 10.4 us at 8 ranks, 0.65 and 0.85 of the link",
    ),
    (
        "reducescatter",
        "summing shards and leaving each rank its own",
        8e-6,
        0.5,
        0.7,
        1.0,
        "copied",
        "as gathering, which moves the same bytes",
    ),
    (
        "alltoall",
        "sending rows to the ranks that hold their experts",
        7e-6,
        0.5,
        0.7,
        1.0,
        "literature",
        "BLIS registry, H200: 6.4 to 7.4 us at 2 to 8 ranks",
    ),
    (
        "internode",
        "the part of a collective that crosses nodes",
        2e-5,
        0.3,
        0.7,
        1.5,
        "assumed",
        "order of magnitude: 10 us per point-to-point transfer (AIConfigurator), two of them",
    ),
)
"""Collectives: each has a floor, a transition rate and a rate, in the law
``max(floor + bytes / transition, bytes / rate)``."""


@dataclass(frozen=True, slots=True)
class Definition:
    """What one coefficient is.

    Attributes
    ----------
    name : str
        Its name; a data type may follow as a suffix.
    unit : str
        Unit of its value; ``1`` for a share of a peak.
    kind : str
        ``efficiency``, ``m_half`` or ``time``.
    meaning : str
        One line for reports.
    prior : float
        Value that holds where data say nothing, in ``unit``.
    prior_spread : float
        One standard deviation of the natural logarithm of the prior [1].
    method : str
        Evidence of the prior.
    source : str
        Where the prior comes from.
    """

    name: str
    unit: str
    kind: str
    meaning: str
    prior: float
    prior_spread: float
    method: str
    source: str


_DERATE = "0.8 of the datasheet peak, the field's usual derate (AIConfigurator system.yaml)"
_ORDER = "order of magnitude; the spread of the prior is a factor of {} either way"

_PLAIN: tuple[Definition, ...] = (
    Definition(
        "gemm_eff",
        "1",
        "efficiency",
        "share of the peak that large matrix multiplications reach",
        0.8,
        0.5,
        "literature",
        "BLIS registry GEMM envelopes, 0.74 to 1.0 for 16-bit types",
    ),
    Definition(
        "gemm_m_half",
        "tokens",
        "m_half",
        "tokens at which a matrix multiplication reaches half of its peak efficiency",
        120.0,
        1.5,
        "literature",
        "BLIS registry GEMM envelopes, 90 to 170 tokens",
    ),
    Definition(
        "attention_eff",
        "1",
        "efficiency",
        "share of the peak that attention's multiplications reach",
        0.4,
        1.0,
        "literature",
        "BLIS registry prefill attention, work scale 0.38 to 0.50",
    ),
    Definition(
        "recurrent_eff",
        "1",
        "efficiency",
        "share of the peak that the recurrence of linear attention reaches",
        0.1,
        1.0,
        "assumed",
        _ORDER.format("2.7"),
    ),
    Definition(
        "hbm_weight_eff",
        "1",
        "efficiency",
        "share of the memory bandwidth that reading weights reaches",
        0.8,
        0.3,
        "literature",
        _DERATE,
    ),
    Definition(
        "hbm_expert_eff",
        "1",
        "efficiency",
        "share of the memory bandwidth at which the experts that uniform routing would touch "
        "are read; skewed routing touches fewer, so it can exceed 1",
        0.8,
        0.3,
        "literature",
        _DERATE,
    ),
    Definition(
        "hbm_kv_eff",
        "1",
        "efficiency",
        "share of the memory bandwidth that reading the KV cache reaches",
        0.7,
        0.5,
        "literature",
        "BLIS registry decode attention, 0.54 to 0.88 of the peak",
    ),
    Definition(
        "hbm_activation_eff",
        "1",
        "efficiency",
        "share of the memory bandwidth that elementwise passes over activations reach",
        0.5,
        1.0,
        "assumed",
        _ORDER.format("2.7"),
    ),
    Definition(
        "attention_head_s",
        "s",
        "time",
        "attention's fixed time per request, layer and key-value head of a rank",
        1e-7,
        2.3,
        "assumed",
        _ORDER.format("10"),
    ),
    Definition(
        "expert_floor_s",
        "s",
        "time",
        "fixed time per touched expert and layer",
        1e-7,
        2.3,
        "assumed",
        "order of magnitude: a start of 3 us, shared by the tens of experts that run at once",
    ),
    Definition(
        "layer_floor_s",
        "s",
        "time",
        "fixed device time of one plain dense layer on a GPU; other layers by their launches",
        3e-5,
        0.7,
        "literature",
        "BLIS registry: 3 us of latency per operation, of which such a layer has ten; decode "
        "attention alone has a floor of 9.5 to 18.5 us",
    ),
    Definition(
        "launch_graph_s",
        "s",
        "time",
        "host time of replaying one captured graph",
        7e-6,
        1.5,
        "literature",
        "BLIS registry host_replay_graph_per_step, itself assumed",
    ),
    Definition(
        "launch_attention_s",
        "s",
        "time",
        "host time of launching one attention between two pieces of a graph",
        1e-4,
        1.5,
        "assumed",
        _ORDER.format("4.5"),
    ),
    Definition(
        "launch_linear_s",
        "s",
        "time",
        "host time of launching one layer's linear attention, which is never in a graph",
        3e-4,
        1.5,
        "assumed",
        _ORDER.format("4.5"),
    ),
    Definition(
        "launch_layer_s",
        "s",
        "time",
        "host time of launching one plain dense layer without a graph",
        1e-4,
        2.3,
        "assumed",
        _ORDER.format("10"),
    ),
    Definition(
        "launch_step_s",
        "s",
        "time",
        "host time of preparing and sampling one step",
        1e-3,
        1.2,
        "assumed",
        _ORDER.format("3.3"),
    ),
    Definition(
        "launch_request_s",
        "s",
        "time",
        "host time per request of preparing and sampling one step",
        1e-5,
        1.5,
        "assumed",
        _ORDER.format("4.5"),
    ),
    Definition(
        "schedule_step_s",
        "s",
        "time",
        "host time of scheduling a step and updating from its output",
        3e-4,
        1.2,
        "assumed",
        _ORDER.format("3.3"),
    ),
    Definition(
        "schedule_request_s",
        "s",
        "time",
        "host time per request of scheduling a step and updating from its output",
        1e-5,
        1.5,
        "assumed",
        _ORDER.format("4.5"),
    ),
)


def _of_collective(
    op: str,
    what: str,
    floor_s: float,
    transition: float,
    rate: float,
    spread: float,
    method: str,
    source: str,
) -> tuple[Definition, ...]:
    """Return the three coefficients of a collective's law."""
    small = f"share of the link's peak at which small messages of {what} outgrow the floor"
    large = f"share of the link's peak that large messages of {what} reach"
    return (
        Definition(
            f"{op}_floor_s", "s", "time", f"fixed time of {what}", floor_s, spread, method, source
        ),
        Definition(
            f"{op}_transition_eff", "1", "efficiency", small, transition, 0.7, method, source
        ),
        Definition(f"{op}_eff", "1", "efficiency", large, rate, 0.7, method, source),
    )


DEFINITIONS: tuple[Definition, ...] = (
    *_PLAIN,
    *(entry for facts in COLLECTIVE_OPS for entry in _of_collective(*facts)),
)
"""Every coefficient of today's laws."""

LEGACY: tuple[Definition, ...] = (
    Definition(
        "nvlink_eff",
        "1",
        "efficiency",
        "share of the link's one-direction bandwidth that collectives reach",
        0.5,
        0.7,
        "literature",
        "BLIS registry all-reduce rates against the link's peak, 0.3 to 0.85",
    ),
    Definition(
        "allreduce_floor_s",
        "s",
        "time",
        "fixed time of one collective",
        5e-6,
        1.5,
        "literature",
        "BLIS registry all-reduce floors, 5.9 us at 2 ranks",
    ),
    Definition(
        "attention_request_s",
        "s",
        "time",
        "attention's fixed time per request and layer",
        1e-7,
        2.3,
        "assumed",
        _ORDER.format("10"),
    ),
)
"""Coefficients that only files of format version 1 hold."""

MOST: dict[str, float] = {"hbm_expert_eff": 1.5}
"""Efficiencies that may exceed the peak, with the largest value allowed [1]."""

TYPED: tuple[str, ...] = ("gemm_eff", "gemm_m_half", "attention_eff", "recurrent_eff")
"""Coefficients that exist once per data type, with the type as a suffix."""
