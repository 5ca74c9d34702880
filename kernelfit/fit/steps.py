"""The steps of one run as arrays, with what is needed to price them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kernelfit.kernel.chip import Chip
from kernelfit.kernel.model import Model
from kernelfit.kernel.plan import Plan
from kernelfit.kernel.pool import Pool
from kernelfit.kernel.tables import alike_windows
from kernelfit.kernel.totals import TOTAL_FIELDS

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

FITTED_TIMINGS: tuple[str, ...] = ("device", "cycle", "step")
"""Timings that say how long a step took; ``wait`` and ``dispatch`` do not."""


@dataclass(frozen=True, slots=True, eq=False)
class RunSteps:
    """One run.

    Attributes
    ----------
    run : str
        The run's id.
    plan : Plan
        The deployment that made it, resolved.
    timing : str
        What ``duration_s`` covers, one of ``FITTED_TIMINGS``.
    step : ndarray of int, shape (n_steps,)
        Step indices in the engine's order.
    totals : dict of str to ndarray, shape (n_steps,)
        One column per field of ``BatchTotals``.
    duration_s : ndarray, shape (n_steps,)
        Measured duration [s].
    host_s : ndarray, shape (n_steps,)
        Measured host time outside the duration [s]; NaN where unknown.
    phase : tuple of str
        ``decode``, ``mixed`` or ``prefill`` per step.
    marks : tuple of tuple of str
        What the reader noted about each step.
    probe_s : ndarray, shape (n_steps,)
        Time of the recorder's speed probe beside each step [s]; NaN where unknown.
    start_s : ndarray, shape (n_steps,)
        When each step started, on a clock of the run's own [s]; NaN where unknown.
    recorder_cost_share : float
        Share of the run's time that recording took [1]; 0 where unknown.
    probe_reference_s : float
        What the probe usually takes on this machine [s]; NaN where unknown.
    chunks_per_token : float
        Streamed chunks per output token of a client-side record [1]; NaN where unknown.
    windows_alike : bool
        Whether the totals of sliding windows were worked out from sums over requests, taken
        as alike, in steps of more than one request.
    recorded_steps : int
        Steps of the run in the store, where only stretches of it were read; else 0 or as
        many as were read.
    """

    run: str
    plan: Plan
    timing: str
    step: npt.NDArray[np.int64]
    totals: Mapping[str, Floats]
    duration_s: Floats
    host_s: Floats
    phase: tuple[str, ...]
    marks: tuple[tuple[str, ...], ...]
    probe_s: Floats
    start_s: Floats
    recorder_cost_share: float = 0.0
    probe_reference_s: float = float("nan")
    chunks_per_token: float = float("nan")
    windows_alike: bool = False
    recorded_steps: int = 0

    @property
    def size(self) -> int:
        """Number of steps."""
        return int(self.duration_s.size)

    @property
    def group(self) -> str:
        """Model and pool, the deployment that a report groups by."""
        return f"{self.plan.model.name} {self.pool_label}"

    @property
    def pool_label(self) -> str:
        """Widths of the pool in a few characters."""
        return pool_label(self.plan.pool)

    @property
    def measured_s(self) -> Floats:
        """Whole step: the duration, and the host time outside it where known [s]."""
        return self.duration_s + np.nan_to_num(self.host_s, nan=0.0)

    def take(self, keep: Bools) -> RunSteps:
        """Return the steps that a mask keeps.

        Parameters
        ----------
        keep : ndarray of bool, shape (n_steps,)
            Which steps to keep.

        Returns
        -------
        RunSteps
            The same run with fewer steps.
        """
        chosen = np.flatnonzero(keep)
        return replace(
            self,
            step=self.step[chosen],
            totals={name: values[chosen] for name, values in self.totals.items()},
            duration_s=self.duration_s[chosen],
            host_s=self.host_s[chosen],
            phase=tuple(self.phase[i] for i in chosen),
            marks=tuple(self.marks[i] for i in chosen),
            probe_s=self.probe_s[chosen],
            start_s=self.start_s[chosen],
        )


def pool_label(pool: Pool) -> str:
    """Return the widths of a pool in a few characters.

    Parameters
    ----------
    pool : Pool
        The pool.

    Returns
    -------
    str
        For example ``tp2`` or ``tp4 ep4``.
    """
    parts = [f"tp{pool.tp}"]
    if pool.dp > 1:
        parts.append(f"dp{pool.dp}")
    if pool.enable_expert_parallel:
        parts.append(f"ep{pool.tp * pool.dp}")
    return " ".join(parts)


def phase_mask(phases: Sequence[str], phase: str) -> Bools:
    """Return which steps belong to a phase.

    Parameters
    ----------
    phases : sequence of str, length n_steps
        Phase of each step.
    phase : str
        A phase, or ``all``.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        The mask.
    """
    if phase == "all":
        return np.ones(len(phases), dtype=bool)
    return np.asarray([p == phase for p in phases], dtype=bool)


def make_run(
    run: str,
    model: Model,
    chip: Chip,
    pool: Pool,
    engine_version: str,
    timing: str,
    columns: Mapping[str, npt.ArrayLike],
    *,
    phase: Sequence[str] | None = None,
    marks: Sequence[Sequence[str]] | None = None,
    recorder_cost_share: float = 0.0,
    chunks_per_token: float = float("nan"),
    recorded_steps: int = 0,
) -> RunSteps:
    """Build a run from columns.

    Parameters
    ----------
    run : str
        The run's id.
    model : Model
        The model.
    chip : Chip
        The GPU type.
    pool : Pool
        The pool.
    engine_version : str
        The engine's version.
    timing : str
        What the durations cover.
    columns : mapping of str to array_like, shape (n_steps,)
        ``duration_s``, every field of ``BatchTotals``, and where known the totals of the
        model's sliding windows (``alike_windows`` of the others where not), ``step``,
        ``host_s``, ``probe_s`` and ``start_s``.
    phase : sequence of str, optional
        Phase per step; derived from the attention path where not given.
    marks : sequence of sequence of str, optional
        Reader's marks per step.
    recorder_cost_share : float
        Share of the run's time that recording took [1].
    chunks_per_token : float
        Streamed chunks per output token of a client-side record [1].
    recorded_steps : int
        Steps of the run in the store, where only some were read.

    Returns
    -------
    RunSteps
        The run.

    Raises
    ------
    Refusal
        When the deployment cannot be priced truthfully.
    """
    duration = np.asarray(columns["duration_s"], dtype=np.float64)
    size = duration.size
    totals = {name: np.asarray(columns[name], dtype=np.float64) for name in TOTAL_FIELDS}
    plan = Plan.of(model, chip, pool, engine_version)
    alike = alike_windows(totals, plan.basis.windows)
    several = np.maximum(totals["decode_requests"], totals["requests"] - totals["decode_requests"])
    windows_alike = not alike.keys() <= columns.keys() and bool(np.any(several > 1.0))
    totals |= {
        name: np.asarray(columns.get(name, values), dtype=np.float64)
        for name, values in alike.items()
    }
    unknown = np.full(size, np.nan)
    host = np.asarray(columns.get("host_s", unknown), dtype=np.float64)
    if phase is None:
        decode = totals["decode_requests"]
        phase = [
            "decode" if d == r else ("mixed" if d else "prefill")
            for d, r in zip(decode, totals["requests"], strict=True)
        ]
    return RunSteps(
        run=run,
        plan=plan,
        timing=timing,
        step=np.asarray(columns.get("step", np.arange(size)), dtype=np.int64),
        totals=totals,
        duration_s=duration,
        host_s=host,
        phase=tuple(phase),
        marks=tuple(tuple(m) for m in marks) if marks is not None else ((),) * size,
        probe_s=np.asarray(columns.get("probe_s", unknown), dtype=np.float64),
        start_s=np.asarray(columns.get("start_s", unknown), dtype=np.float64),
        recorder_cost_share=recorder_cost_share,
        chunks_per_token=chunks_per_token,
        windows_alike=windows_alike,
        recorded_steps=recorded_steps,
    )
