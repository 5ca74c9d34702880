"""Where each coefficient of a calibration goes in a BLIS set, and where it cannot."""

from __future__ import annotations

from dataclasses import dataclass

_US = 1e6

UNKNOWN = "no cost law of BLIS takes such a coefficient"


@dataclass(frozen=True, slots=True)
class Place:
    """The entry that holds a coefficient.

    Attributes
    ----------
    name : str
        Name of the entry.
    units : str
        Its unit, one of the closed list.
    factor : float
        From the SI value to that unit.
    times_peak : bool
        The entry is a rate [byte/us]: the ratio is multiplied by the datasheet peak.
    note : str
        What differs between the two cost laws.
    """

    name: str
    units: str
    factor: float = 1.0
    times_peak: bool = False
    note: str = ""


_EXACT = {
    "hbm_weight_eff": Place("hbm_derate", "dimensionless"),
    "hbm_kv_eff": Place(
        "attention_decode_rate",
        "bytes_per_us",
        times_peak=True,
        note="Share of the datasheet bandwidth times that bandwidth.",
    ),
    "launch_layer_s": Place("host_launch_eager_per_layer", "us_per_layer", _US),
    "graph_replay_s": Place("host_replay_graph_per_step", "us_per_step", _US),
    "admission_request_s": Place("host_admission_per_request", "us_per_request", _US),
    "admission_token_s": Place("host_admission_per_token", "us_per_token", _US),
    "output_token_s": Place("host_output_token", "us_per_token", _US),
    "completion_s": Place("host_completion", "us_per_request", _US),
}

# The data type is part of the entry's name.
_BY_DTYPE = {
    "gemm_eff_": ("gemm_eps_max_", "dimensionless"),
    "gemm_m_half_": ("gemm_m_half_", "tokens"),
}

MISSING = {
    "attention_eff": (
        "BLIS scales prefill attention by the ramp of its matrix products; "
        "a share of the peak of its own is another law"
    ),
    "attention_request_s": "BLIS charges attention a floor per layer, not per request",
    "hbm_activation_eff": "BLIS derates weights and activations by the one hbm_derate",
    "nvlink_eff": (
        "BLIS keeps a peak and a transition rate for each collective, data type and width; "
        "one share of the link cannot fill them"
    ),
    "allreduce_floor_s": (
        "BLIS keeps one floor for each collective, data type and width; "
        "this one was fitted over all widths"
    ),
    "expert_floor_s": "BLIS charges experts by bytes and FLOP, with no floor per expert",
    "layer_floor_s": "BLIS has no floor per layer",
    "launch_step_s": "BLIS charges the host per layer or per graph replay, not per step",
    "launch_request_s": "BLIS has no host cost per request in a step",
    "schedule_step_s": "BLIS has no cost of the scheduler per step",
    "schedule_request_s": "BLIS has no cost of the scheduler per request",
}


def place_of(name: str) -> Place | None:
    """Return where a coefficient goes.

    Parameters
    ----------
    name : str
        Name of a coefficient of a calibration.

    Returns
    -------
    Place or None
        The entry, or None when BLIS has none for it.
    """
    if name in _EXACT:
        return _EXACT[name]
    for prefix, (target, units) in _BY_DTYPE.items():
        dtype = name.removeprefix(prefix)
        if dtype != name and dtype:
            return Place(target + dtype, units)
    return None


def expressible() -> tuple[str, ...]:
    """Return the coefficients that have a place, ``<dtype>`` standing for a data type.

    Returns
    -------
    tuple of str
        Names, sorted.
    """
    return tuple(sorted([*_EXACT, *(f"{prefix}<dtype>" for prefix in _BY_DTYPE)]))
