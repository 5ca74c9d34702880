"""The coefficients: their names, units, meaning and the prior that holds until data speak.

An efficiency divides a datasheet peak and lies in (0, 1]; everything else is a time
per counted thing, except ``gemm_m_half``, which is a number of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelfit.kernel.errors import InvalidArgument

METHODS: tuple[str, ...] = (
    "measured",
    "literature",
    "vendor_spec",
    "copied",
    "assumed",
    "not_charged",
)
VERDICTS: tuple[str, ...] = ("identified", "weak", "prior", "at_bound")


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

DEFINITIONS: tuple[Definition, ...] = (
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
    Definition(
        "expert_floor_s",
        "s",
        "time",
        "fixed time per touched expert and layer",
        1e-6,
        2.3,
        "assumed",
        _ORDER.format("10"),
    ),
    Definition(
        "layer_floor_s",
        "s",
        "time",
        "fixed device time of one layer when its launches are replayed from a graph",
        1e-5,
        1.0,
        "literature",
        "BLIS registry decode attention floors, 9.5 to 18.5 us",
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
        2.3,
        "assumed",
        _ORDER.format("10"),
    ),
    Definition(
        "launch_request_s",
        "s",
        "time",
        "host time per request of preparing and sampling one step",
        1e-5,
        2.3,
        "assumed",
        _ORDER.format("10"),
    ),
    Definition(
        "schedule_step_s",
        "s",
        "time",
        "host time of scheduling a step and updating from its output",
        3e-4,
        2.3,
        "assumed",
        _ORDER.format("10"),
    ),
    Definition(
        "schedule_request_s",
        "s",
        "time",
        "host time per request of scheduling a step and updating from its output",
        1e-5,
        2.3,
        "assumed",
        _ORDER.format("10"),
    ),
)

TYPED: tuple[str, ...] = ("gemm_eff", "gemm_m_half", "attention_eff")
"""Coefficients that exist once per data type, with the type as a suffix."""


def definition(name: str) -> Definition:
    """Return what a coefficient is.

    Parameters
    ----------
    name : str
        A coefficient's name, with its data type where it has one.

    Returns
    -------
    Definition
        The entry of ``DEFINITIONS``.

    Raises
    ------
    InvalidArgument
        When there is no such coefficient.
    """
    for entry in DEFINITIONS:
        if name == entry.name and entry.name not in TYPED:
            return entry
        if entry.name in TYPED and name.rpartition("_")[0] == entry.name:
            return entry
    raise InvalidArgument("coefficient", name, ", ".join(d.name for d in DEFINITIONS))


@dataclass(frozen=True, slots=True)
class Coefficient:
    """One number of a law, with its evidence.

    Attributes
    ----------
    name : str
        Its name, see ``DEFINITIONS``.
    value : float
        Its value in ``unit``.
    unit : str
        ``1``, ``s`` or ``tokens``.
    scope : str
        What it holds for.
    method : str
        Its evidence, one of ``METHODS``.
    verdict : str
        How well the data pin it, one of ``VERDICTS``.
    ci95 : tuple of (float, float)
        95 % interval in ``unit``; it holds ``value``.
    """

    name: str
    value: float
    unit: str
    scope: str
    method: str
    verdict: str
    ci95: tuple[float, float]

    def __post_init__(self) -> None:
        """Check the number.

        Raises
        ------
        InvalidArgument
            When it is not positive and finite, or lies outside its interval.
        """
        low, high = self.ci95
        if not 0.0 < self.value < float("inf"):
            raise InvalidArgument(f"{self.name}.value", self.value, "positive and finite")
        if not low <= self.value <= high < float("inf"):
            raise InvalidArgument(f"{self.name}.ci95", self.ci95, "an interval around the value")
        if self.method not in METHODS:
            raise InvalidArgument(f"{self.name}.method", self.method, ", ".join(METHODS))
        if self.verdict not in VERDICTS:
            raise InvalidArgument(f"{self.name}.verdict", self.verdict, ", ".join(VERDICTS))
