"""Measured steps of one shape, and views that are made to pass through them.

A bound says what a step may take at the least or the most. Where the very batch has been
measured, nothing is left to bound: each view is multiplied by measured over priced there,
and between two measured batches by what lies between. Away from them the views keep their
own slopes, so that they part again as far as they really differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernelfit.fit.steps import Floats, RunSteps
from kernelfit.flips.pricing import Priced, Pricer
from kernelfit.flips.steady import Load, Steady
from kernelfit.kernel.plan import Plan
from kernelfit.kernel.tables import alike_windows
from kernelfit.kernel.totals import TOTAL_FIELDS

FEWEST_MEASURED = 20
"""Steps of one shape below which their mean is taken for no measurement."""

LIKE = 0.05
"""Context, and tokens of a chunk, within this share of each other are of one shape [1]."""

NEAR_REQUESTS = 0.1
"""Requests within this share of a measured batch count as seen [1]."""

TRUSTED = 6.0
"""Robust deviations beyond which a step is taken for disturbed [1], as in the fit."""

NORMAL = 1.4826

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredShape:
    """The mean of measured steps that are alike.

    Attributes
    ----------
    key : tuple
        The deployment, from ``deployment_key``.
    totals : mapping of str to float
        Mean of every total of the steps.
    mean_s : float
        Geometric mean of their times [s].
    error : float
        Relative standard error of it [1].
    steps : int
        Steps behind it.
    """

    key: Key
    totals: Mapping[str, float]
    mean_s: float
    error: float
    steps: int


def deployment_key(plan: Plan) -> Key:
    """Return what two deployments must share for their steps to take the same time.

    Parameters
    ----------
    plan : Plan
        A deployment.

    Returns
    -------
    tuple
        GPU type, model with its data types, and what will run, without how it was asked
        for and without limits on the size of a batch.
    """
    resolution = replace(
        plan.resolution,
        overrides=(),
        max_num_seqs=0,
        max_num_batched_tokens=0,
        gpu_memory_utilization=0.0,
        block_size=0,
    )
    model = plan.model
    return (plan.chip.name, model.name, model.dtype, model.weight_dtype, resolution)


def measured_shapes(
    runs: Iterable[RunSteps], inflation: float, fewest: int = FEWEST_MEASURED
) -> tuple[MeasuredShape, ...]:
    """Gather steps that are alike and average them.

    Parameters
    ----------
    runs : iterable of RunSteps
        Gated runs.
    inflation : float
        Factor by which autocorrelation inflates the variance of a mean [1].
    fewest : int
        Steps of one shape that make a measurement.

    Returns
    -------
    tuple of MeasuredShape
        One per deployment and shape of which at least as many steps are there:
        equal requests and decoding requests; context and tokens within some percent.
        Steps whose time leaves out the host's are passed over, and so are, within a shape,
        those more than six robust deviations from its median.
    """
    groups: dict[tuple[Key, tuple[int, ...]], list[tuple[RunSteps, int]]] = {}
    width = np.log1p(LIKE / 2.0)
    for run in runs:
        whole = run.timing != "device" or bool(np.isfinite(run.host_s).any())
        if not whole:
            continue
        key = deployment_key(run.plan)
        logs = {n: np.round(np.log1p(run.totals[n]) / width).astype(int) for n in TOTAL_FIELDS}
        for at in np.flatnonzero(np.isfinite(run.measured_s)):
            shape = (
                int(run.totals["requests"][at]),
                int(run.totals["decode_requests"][at]),
                *(int(logs[name][at]) for name in _BINNED),
            )
            groups.setdefault((key, shape), []).append((run, int(at)))
    found = []
    for (key, _), members in groups.items():
        if len(members) >= fewest:
            averaged = _averaged(key, members, inflation, fewest)
            if averaged is not None:
                found.append(averaged)
    return tuple(found)


_BINNED = ("tokens", "decode_context_tokens", "prefill_context_tokens")


def _averaged(
    key: Key, members: Sequence[tuple[RunSteps, int]], inflation: float, fewest: int
) -> MeasuredShape | None:
    times = np.log([float(run.measured_s[at]) for run, at in members])
    spread = NORMAL * float(np.median(np.abs(times - np.median(times))))
    kept = np.abs(times - np.median(times)) <= max(TRUSTED * spread, 1e-9)
    count = int(np.count_nonzero(kept))
    if count < fewest:
        return None
    names = members[0][0].totals
    totals = {
        name: float(
            np.mean([run.totals[name][at] for (run, at), k in zip(members, kept, strict=True) if k])
        )
        for name in names
    }
    error = float(np.std(times[kept], ddof=1)) * float(np.sqrt(inflation / count))
    return MeasuredShape(key, totals, float(np.exp(times[kept].mean())), error, count)


def measured_shape(
    plan: Plan, totals: Mapping[str, float], mean_s: float, error: float, steps: int
) -> MeasuredShape:
    """State a measurement.

    Parameters
    ----------
    plan : Plan
        The deployment it was taken on.
    totals : mapping of str to float
        Totals of the batch; those of sliding windows follow where they are left out.
    mean_s : float
        Mean step time [s].
    error : float
        Its relative standard error [1].
    steps : int
        Steps behind it.

    Returns
    -------
    MeasuredShape
        The measurement.
    """
    return MeasuredShape(deployment_key(plan), dict(totals), mean_s, error, steps)


@dataclass(frozen=True, slots=True, eq=False)
class Anchors:
    """The measurements of one deployment.

    Attributes
    ----------
    shapes : tuple of MeasuredShape
        Its measurements.
    """

    shapes: tuple[MeasuredShape, ...]

    @staticmethod
    def of(plan: Plan, measured: Sequence[MeasuredShape]) -> Anchors | None:
        """Return a deployment's measurements.

        Parameters
        ----------
        plan : Plan
            The deployment.
        measured : sequence of MeasuredShape
            Measurements of any deployment.

        Returns
        -------
        Anchors or None
            None where there is none of it.
        """
        if not measured:
            return None
        key = deployment_key(plan)
        mine = tuple(shape for shape in measured if shape.key == key)
        return Anchors(mine) if mine else None

    def through(
        self, pricer: Pricer, load: Load, batches: Steady, decode: Priced, chunk: Priced
    ) -> tuple[Priced, Priced]:
        """Make the views of a load pass through what was measured.

        Parameters
        ----------
        pricer : Pricer
            The pool.
        load : Load
            The load.
        batches : Steady
            Its batches.
        decode, chunk : Priced
            Their times.

        Returns
        -------
        Priced
            Times of the decode steps.
        Priced
            Times of the steps with a chunk.
        """
        size = batches.size
        decode = _anchored(pricer, self.on_line(batches, chunk=False), decode)
        if load.prompt_tokens and size:
            chunk = _anchored(pricer, self.on_line(batches, chunk=True), chunk)
        return decode, chunk

    def on_line(self, batches: Steady, *, chunk: bool) -> tuple[MeasuredShape, ...]:
        """Return the measurements that lie among the batches of a load.

        Parameters
        ----------
        batches : Steady
            Its batches.
        chunk : bool
            Whether the steps hold a chunk.

        Returns
        -------
        tuple of MeasuredShape
            Those whose totals are those of the load's batch of as many requests, to a few
            percent; by requests, one per number of them.
        """
        found: dict[int, MeasuredShape] = {}
        for shape in self.shapes:
            requests = round(shape.totals["requests"])
            if not 1 <= requests <= batches.size:
                continue
            at = requests - 1 + (batches.size if chunk else 0)
            row = {name: float(batches.columns[name][at]) for name in TOTAL_FIELDS}
            if not _alike(row, shape.totals):
                continue
            known = found.get(requests)
            if known is None or shape.error < known.error:
                found[requests] = shape
        return tuple(found[n] for n in sorted(found))

    def seen(self, batches: Steady, requests: int, *, chunk: bool) -> bool:
        """Return whether a batch, or one near it, was measured.

        Parameters
        ----------
        batches : Steady
            The load's batches.
        requests : int
            Requests of the batch.
        chunk : bool
            Whether the step holds a chunk.

        Returns
        -------
        bool
            Whether a measurement of as many requests, to a tenth, is there.
        """
        return any(
            abs(shape.totals["requests"] - requests) <= NEAR_REQUESTS * requests + 1e-9
            for shape in self.on_line(batches, chunk=chunk)
        )


def _alike(row: Mapping[str, float], totals: Mapping[str, float]) -> bool:
    return all(abs(totals[name] - row[name]) <= LIKE * row[name] + 0.5 for name in _COMPARED)


_COMPARED = (
    "requests",
    "tokens",
    "decode_requests",
    "decode_context_tokens",
    "prefill_context_tokens",
)


def _anchored(pricer: Pricer, shapes: Sequence[MeasuredShape], priced: Priced) -> Priced:
    if not shapes or priced.fitted_s.size == 0:
        return priced
    columns: dict[str, Any] = {
        name: np.asarray([shape.totals[name] for shape in shapes]) for name in TOTAL_FIELDS
    }
    columns |= alike_windows(columns, pricer.kernel.plan.basis.windows)
    here = pricer.price(columns)
    measured = np.log([shape.mean_s for shape in shapes])
    places = np.log([shape.totals["requests"] for shape in shapes])
    sizes = np.log(np.arange(1, priced.fitted_s.size + 1))

    def moved(times: Floats, at: Floats, error: Floats | float = 0.0) -> Floats:
        return np.asarray(times * np.exp(np.interp(sizes, places, measured + error - np.log(at))))

    count = priced.draws_s.shape[0]
    errors = np.random.default_rng(count).standard_normal((count, len(shapes)))
    errors *= np.asarray([shape.error for shape in shapes])
    draws = [
        moved(times, at, error)
        for times, at, error in zip(priced.draws_s, here.draws_s, errors, strict=True)
    ]
    return Priced(
        moved(priced.overlap_s, here.overlap_s),
        moved(priced.no_overlap_s, here.no_overlap_s),
        moved(priced.fitted_s, here.fitted_s),
        np.stack(draws) if draws else priced.draws_s,
    )
