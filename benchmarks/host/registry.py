"""The host overheads that the BLIS registry assumes, beside what was measured.

Source: blis-registry, ``coefficients/cost-model-host-overheads.yaml`` at ``b3789be``; all seven
are ``assumed`` and not fitted there, with every catalogued chip as their scope.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelfit.kernel.catalog import Coefficient

ENTRIES: tuple[tuple[str, float, str, str], ...] = (
    ("host_admission_per_request", 40_000.0, "us per request", "admission_request_s"),
    ("host_admission_per_token", 0.35, "us per prompt token", "admission_token_s"),
    ("host_output_token", 45.9, "us per output token", "output_token_s"),
    ("host_completion", 777.3, "us per request", "completion_s"),
    ("host_launch_eager_per_layer", 7.0, "us per layer", "launch_layer_s"),
    ("host_replay_graph_per_step", 7.0, "us per step", "launch_graph_s"),
    ("host_launch_per_kernel", 3.2, "us per launch", ""),
)
"""Name, value, unit, and the coefficient of ours that means the same."""

_NONE = "no coefficient of ours counts single launches"
_NOT_HERE = "not recorded on this machine"
_CPU = "on a CPU a layer's launch is its operators' fixed time, not a GPU's launch"


@dataclass(frozen=True, slots=True)
class Beside:
    """One assumed value beside what was measured.

    Attributes
    ----------
    name, unit : str
        The registry's entry.
    assumed_us : float
        Its value [us].
    measured : Coefficient or None
        Ours; None where it was not recorded.
    finding : str
        What the comparison says.
    """

    name: str
    unit: str
    assumed_us: float
    measured: Coefficient | None
    finding: str


def beside(known: Mapping[str, Coefficient], on_cpu: bool) -> tuple[Beside, ...]:
    """Hold every assumed value against the interval of the measured one.

    Parameters
    ----------
    known : mapping of str to Coefficient
        Coefficients by name.
    on_cpu : bool
        Whether the steps ran on a CPU.

    Returns
    -------
    tuple of Beside
        In the registry's order.
    """
    return tuple(
        Beside(name, unit, assumed, known.get(own), _finding(known.get(own), own, assumed, on_cpu))
        for name, assumed, unit, own in ENTRIES
    )


def _finding(c: Coefficient | None, own: str, assumed_us: float, on_cpu: bool) -> str:
    if not own:
        return _NONE
    if c is None:
        return _NOT_HERE
    if on_cpu and own.startswith("launch"):
        return _CPU
    if c.verdict == "prior":
        return "says nothing: the data do not identify it"
    low, high = (1e6 * edge for edge in c.ci95)
    if low <= assumed_us <= high:
        return "agrees: within the interval"
    ratio = assumed_us / (1e6 * c.value)
    much = f"{ratio:.3g} times what is measured"
    times = much if ratio > 1 else f"{1 / ratio:.3g} times too small"
    sure = "CONTRADICTED" if c.verdict == "identified" else "contradicted, by a weak coefficient"
    return f"{sure}: {times}"
