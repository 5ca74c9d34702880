"""The part of a result that concerns one GPU type."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

SCHEMA = "kernelfit.report/1"

POINT_COLUMNS = (
    "run",
    "model",
    "phase",
    "step",
    "measured_s",
    "predicted_s",
    "overlap_s",
    "no_overlap_s",
    "requests",
    "context_tokens",
    "tokens",
)
_TEXT_COLUMNS = ("run", "model", "phase")
_WHOLE_COLUMNS = ("step", "requests", "context_tokens", "tokens")
# More digits than a figure can show, few enough to keep the file small.
_DIGITS = 6


class NoCalibration(ValueError):
    """The result holds no calibration of the GPU type asked for."""


def step_share(view: Mapping[str, Any], entry: Mapping[str, Any]) -> float | None:
    """Return the share of the measured step time that a coefficient prices.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.
    entry : mapping
        One of its coefficients.

    Returns
    -------
    float or None
        None where it is not known, and for host work around the step, whose share is one of
        its own events and adds up with no step's [1].
    """
    share = (entry.get("evidence") or {}).get("time_share")
    around = (view["calibration"].get("front_end") or {}).get("scope")
    if share is None or (around is not None and entry.get("scope") == around):
        return None
    return float(share)


def one_gpu(result: Mapping[str, Any], gpu: str) -> dict[str, Any]:
    """Return what a result says about one GPU type.

    Parameters
    ----------
    result : mapping
        The result document of a fit.
    gpu : str
        The GPU type.

    Returns
    -------
    dict
        JSON-shaped; what the report draws and keeps.

    Raises
    ------
    NoCalibration
        When the result has no calibration of it.
    """
    calibrations = result.get("calibrations") or ()
    mine = [entry for entry in calibrations if entry["gpu"] == gpu]
    if not mine:
        known = ", ".join(str(entry["gpu"]) for entry in calibrations) or "none"
        raise NoCalibration(f"no calibration of {gpu!r} in the result; there are: {known}")
    calibration = mine[0]
    other_runs = {
        str(run["run"])
        for entry in calibrations
        if entry["gpu"] != gpu
        for run in entry.get("runs") or ()
    } - {str(run["run"]) for run in calibration.get("runs") or ()}
    kernels = [entry for entry in result.get("kernels") or () if entry["gpu"] == gpu]
    my_pools = {str(entry["pool"]) for entry in kernels}
    other_pools = {
        str(entry["pool"]) for entry in result.get("kernels") or () if entry["gpu"] != gpu
    } - my_pools
    flags = (result.get("flips") or {}).get("flags") or ()
    return {
        "schema": SCHEMA,
        "gpu": gpu,
        "version": str(result.get("version") or ""),
        "command": str(result.get("command") or ""),
        "seed": result.get("seed"),
        "ingest": [
            entry
            for entry in result.get("ingest") or ()
            if not other_runs.intersection(str(entry["file"]).split("/"))
        ],
        "gates": [entry for entry in result.get("gates") or () if entry["run"] not in other_runs],
        "calibration": calibration,
        "validation": _of(result, "validation", gpu),
        "bounds": _of(result, "bounds", gpu),
        "coverage": _of(result, "coverage", gpu),
        "flips": [
            flag
            for flag in flags
            if flag.get("gpu", gpu) == gpu and str(flag["pool"]) not in other_pools
        ],
        "kernels": kernels,
        "coarse": [
            entry for entry in result.get("coarse") or () if entry.get("gpu") in (None, gpu)
        ],
        "breakdown": _of(result, "breakdown", gpu),
        "correlation": _of(result, "correlation", gpu),
        "plan": _plan(result.get("plan"), gpu),
        "points": _points(_of(result, "points", gpu)),
    }


def as_result(view: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result document that holds what a report knows.

    Parameters
    ----------
    view : mapping
        From :func:`one_gpu`, or read back from a report's folder.

    Returns
    -------
    dict
        The result document of one GPU type.
    """
    kept = ("version", "command", "seed", "ingest", "gates", "kernels", "plan")
    lists = ("validation", "bounds", "coverage", "breakdown", "correlation")
    return {
        "schema": "kernelfit.fit/1",
        **{key: view.get(key) for key in kept},
        **{key: view.get(key) or [] for key in lists},
        "calibrations": [view["calibration"]],
        "flips": {"flags": view["flips"]},
        "points": [{"gpu": view["gpu"], **view["points"]}],
    }


def _of(result: Mapping[str, Any], key: str, gpu: str) -> list[Any]:
    return [entry for entry in result.get(key) or () if entry["gpu"] == gpu]


def _plan(plan: Any, gpu: str) -> Any:
    """Return the plan without what it says of other GPU types."""
    if isinstance(plan, Mapping):
        return {key: _plan(value, gpu) for key, value in plan.items()}
    if isinstance(plan, (list, tuple)):
        return [
            value
            for value in plan
            if not isinstance(value, Mapping) or value.get("gpu", gpu) == gpu
        ]
    return plan


def _points(entries: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Join the points of a GPU and round them to what a figure can show."""
    columns: dict[str, list[Any]] = {name: [] for name in POINT_COLUMNS}
    for entry in entries:
        for name in POINT_COLUMNS:
            values = entry.get(name) or [None] * len(entry["measured_s"])
            columns[name].extend(_rounded(name, value) for value in values)
    return columns


def _rounded(name: str, value: Any) -> Any:
    if value is None or name in _TEXT_COLUMNS:
        return value
    if not math.isfinite(value):
        return None
    if name in _WHOLE_COLUMNS:
        return int(value)
    return float(f"{float(value):.{_DIGITS}g}")
