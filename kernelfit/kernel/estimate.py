"""The value types that a kernel answers with."""

from __future__ import annotations

from dataclasses import dataclass

from kernelfit.kernel.resources import Resource


@dataclass(frozen=True, slots=True)
class StepEstimate:
    """The time of one step, on both sides.

    Attributes
    ----------
    overlap_s : float
        Everything within a layer overlaps perfectly [s].
    no_overlap_s : float
        Nothing overlaps [s]; never below ``overlap_s``.
    bottleneck : Resource
        The resource with the most time over the step.
    per_resource_s : tuple of (Resource, float)
        Time on each resource over the step [s].
    """

    overlap_s: float
    no_overlap_s: float
    bottleneck: Resource
    per_resource_s: tuple[tuple[Resource, float], ...]


@dataclass(frozen=True, slots=True)
class CalibratedStepTime:
    """The fitted step time with its prediction interval.

    Attributes
    ----------
    mean_s : float
        Fitted step time [s].
    low_s, high_s : float
        Prediction interval [s] at ``level``.
    level : float
        Nominal coverage of the interval [1].
    in_domain : bool
        Whether the batch lies inside what the calibration has seen.
    """

    mean_s: float
    low_s: float
    high_s: float
    level: float
    in_domain: bool


@dataclass(frozen=True, slots=True)
class MemoryBreakdown:
    """Bytes on one rank whatever the requests.

    Attributes
    ----------
    weights_bytes, activation_peak_bytes, cuda_graph_bytes : int
        Weights, activation peak and captured graphs [bytes].
    redundant_experts_bytes, comm_buffers_bytes : int
        Redundant experts and communication buffers [bytes].
    """

    weights_bytes: int
    activation_peak_bytes: int
    cuda_graph_bytes: int
    redundant_experts_bytes: int
    comm_buffers_bytes: int

    def total(self) -> int:
        """Return the sum.

        Returns
        -------
        int
            Bytes on one rank [bytes].
        """
        return (
            self.weights_bytes
            + self.activation_peak_bytes
            + self.cuda_graph_bytes
            + self.redundant_experts_bytes
            + self.comm_buffers_bytes
        )


@dataclass(frozen=True, slots=True)
class CoefficientOrigin:
    """Where one coefficient came from.

    Attributes
    ----------
    name : str
        The coefficient.
    set : str
        The calibration or document that holds it.
    method : str
        Its evidence: ``measured``, ``literature``, ``vendor_spec``, ``copied``,
        ``assumed`` or ``not_charged``.
    scope : str
        What it holds for.
    """

    name: str
    set: str
    method: str
    scope: str
