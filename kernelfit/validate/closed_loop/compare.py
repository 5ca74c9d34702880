"""How far a replay is from what was measured, beside how far the machine is from itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelfit.validate.closed_loop.requests import LATENCIES, Floats, Latencies

STATISTICS: tuple[str, ...] = ("mean", "p50", "p90", "p99")
_KEPT_POINTS = 200


def statistic(values: Floats, name: str) -> float:
    """Return one statistic of latencies.

    Parameters
    ----------
    values : ndarray of float64
        Latencies [s]; NaN where a request has none.
    name : str
        One of ``STATISTICS``.

    Returns
    -------
    float
        The statistic [s]; NaN where no request has the latency.
    """
    known = values[np.isfinite(values)]
    if known.size == 0:
        return float("nan")
    if name == "mean":
        return float(known.mean())
    return float(np.percentile(known, float(name[1:])))


@dataclass(frozen=True, slots=True)
class LoopError:
    """One statistic of one latency, replayed and measured.

    Attributes
    ----------
    latency : str
        One of ``LATENCIES``.
    statistic : str
        One of ``STATISTICS``.
    host : str
        Which host terms the replay charged.
    measured_s, replayed_s : float
        The statistic [s].
    error : float
        ``replayed_s / measured_s - 1`` [1].
    repeat : float or None
        The same of the repeated run against this one [1]; None where there is none.
    """

    latency: str
    statistic: str
    host: str
    measured_s: float
    replayed_s: float
    error: float
    repeat: float | None


def loop_errors(
    measured: Latencies,
    replayed: Mapping[str, Latencies],
    repeats: Sequence[Latencies] = (),
) -> tuple[LoopError, ...]:
    """Compare replays with a measured run.

    Parameters
    ----------
    measured : Latencies
        What the run measured.
    replayed : mapping of str to Latencies
        Replays of the same trace, by the host terms that they charge.
    repeats : sequence of Latencies
        The same load, run again.

    Returns
    -------
    tuple of LoopError
        By host terms, latency and statistic.
    """
    rows = []
    for host, times in replayed.items():
        for latency in LATENCIES:
            ours, theirs = getattr(times, latency), getattr(measured, latency)
            for name in STATISTICS:
                was, is_ = statistic(theirs, name), statistic(ours, name)
                again = [statistic(getattr(r, latency), name) / was - 1.0 for r in repeats]
                repeat = max(again, key=abs) if again else None
                rows.append(LoopError(latency, name, host, was, is_, is_ / was - 1.0, repeat))
    return tuple(rows)


def distribution(values: Floats) -> list[float]:
    """Return evenly spaced quantiles of latencies, for a figure.

    Parameters
    ----------
    values : ndarray of float64
        Latencies [s]; NaN where a request has none.

    Returns
    -------
    list of float
        At most 200 quantiles from the smallest to the largest [s].
    """
    known = np.sort(values[np.isfinite(values)])
    if known.size == 0:
        return []
    count = min(known.size, _KEPT_POINTS)
    return [float(v) for v in np.quantile(known, np.linspace(0.0, 1.0, count))]


def summary(latencies: Latencies) -> dict[str, Any]:
    """Return the distributions of all latencies as plain data.

    Parameters
    ----------
    latencies : Latencies
        Of one run or replay.

    Returns
    -------
    dict
        Quantiles by latency [s].
    """
    return {name: distribution(getattr(latencies, name)) for name in LATENCIES}
