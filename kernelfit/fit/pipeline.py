"""From the trace store to calibrations and frozen kernels, one GPU type at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from kernelfit.fit.calibrate import Options, calibrate, with_front_end
from kernelfit.fit.calibration import Calibration
from kernelfit.fit.front_end_runs import FrontEndRun
from kernelfit.fit.gates import GateCount, apply_gates, with_copies, with_probe_reference
from kernelfit.fit.given import of_chip
from kernelfit.fit.steps import FITTED_TIMINGS, Floats, RunSteps, make_run
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.errors import KernelError
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.totals import window_column
from kernelfit.store.scan import RunRecord

SMALLEST_FIT_STEPS = 200
"""Steps below which a GPU type is not fitted."""

MOST_RUN_STEPS = 600_000
"""Steps of one run above which stretches of it are fitted: its coefficients are then known
far better than they carry over to anything else."""

HOST_COLUMNS: tuple[str, ...] = ("schedule_s", "dispatch_s", "update_s")
"""Host time outside the worker's span: schedule, hand over, update."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Refused:
    """A run that is not fitted.

    Attributes
    ----------
    run : str
        The run.
    reason : str
        Why, and what would be accepted.
    """

    run: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class GpuFit:
    """The fit of one GPU type.

    Attributes
    ----------
    runs : tuple of RunSteps
        The gated runs behind it.
    gates : tuple of GateCount
        What the gates dropped.
    calibration : Calibration
        The calibration.
    """

    runs: tuple[RunSteps, ...]
    gates: tuple[GateCount, ...]
    calibration: Calibration


def _floats(table: pa.Table, name: str) -> Floats:
    column = table.column(name).cast(pa.float64())
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def run_steps(record: RunRecord, chip: Chip) -> RunSteps:
    """Return a stored run as arrays.

    Parameters
    ----------
    record : RunRecord
        The run.
    chip : Chip
        Its GPU type.

    Returns
    -------
    RunSteps
        The run, every step of it; what is missing is NaN.

    Raises
    ------
    KernelError
        When its deployment cannot be priced truthfully, or it states no model.
    """
    table = record.sample("steps", MOST_RUN_STEPS)
    model = record.model
    if model is None:
        raise KernelError("the run states no model")
    columns = {
        "step": table.column("step").to_numpy(),
        "duration_s": _floats(table, "duration_s"),
        "probe_s": _floats(table, "probe_s"),
        "start_s": _floats(table, "start_s"),
        "host_s": np.sum([_floats(table, name) for name in HOST_COLUMNS], axis=0),
        "requests": _floats(table, "requests"),
        "tokens": _floats(table, "scheduled_tokens"),
    }
    for name in (
        "decode_requests",
        "decode_context_tokens",
        "decode_pairs",
        "prefill_context_tokens",
        "prefill_pairs",
    ):
        columns[name] = _floats(table, name)
    windows = tuple(
        sorted({k.attention.window_tokens for k in model.layers if k.attention.window_tokens})
    )
    if windows:
        columns |= window_columns(record, table, windows)
    share = record.row["recorder_cost_share"]
    phases = table.column("phase").to_pylist()
    decoding = columns["decode_requests"] == columns["requests"]
    return make_run(
        record.run_id,
        model,
        chip,
        record.pool,
        str(record.row["engine_version"] or ""),
        record.timing,
        columns,
        phase=[
            p if p is not None else ("decode" if d else "mixed")
            for p, d in zip(phases, decoding, strict=True)
        ],
        marks=table.column("marks").to_pylist(),
        recorder_cost_share=0.0 if share is None else float(share),
        recorded_steps=record.rows("steps"),
    )


def window_columns(record: RunRecord, steps: pa.Table, windows: Sequence[int]) -> dict[str, Floats]:
    """Return the totals of sliding windows where the log holds every request.

    Parameters
    ----------
    record : RunRecord
        The run.
    steps : pyarrow.Table
        The steps that are fitted.
    windows : sequence of int
        Sliding windows of the model [tokens].

    Returns
    -------
    dict of str to ndarray, shape (n_steps,)
        One ``window_column`` per total of each window; nothing where the log holds sums
        alone, or does not say what a request had computed.
    """
    requests = record.requests
    if requests.num_rows == 0 or requests.column("computed").null_count:
        return {}
    key = _floats(requests, "step") * 4096.0 + _floats(requests, "engine")
    wanted = _floats(steps, "step") * 4096.0 + _floats(steps, "engine")
    order = np.argsort(wanted, kind="stable")
    place = np.minimum(np.searchsorted(wanted[order], key), wanted.size - 1)
    row = order[place]
    held = wanted[row] == key
    scheduled, computed = _floats(requests, "scheduled"), _floats(requests, "computed")
    out: dict[str, Floats] = {}
    for window in windows:
        ramp = np.clip(window - computed, 0.0, scheduled)
        pairs = ramp * computed + ramp * (ramp + 1.0) / 2.0 + (scheduled - ramp) * window
        context = np.minimum(computed + scheduled, scheduled + window - 1.0)
        for path, on_path in (("decode", scheduled <= 1.0), ("prefill", scheduled > 1.0)):
            for what, values in (("context_tokens", context), ("pairs", pairs)):
                used = held & on_path
                total = np.bincount(row[used], values[used], minlength=wanted.size)
                out[window_column(window, f"{path}_{what}")] = np.asarray(total, dtype=np.float64)
    return out


def collect_runs(
    records: Sequence[RunRecord], chips: Mapping[str, Chip], *, checking: bool = False
) -> tuple[tuple[RunSteps, ...], tuple[Refused, ...]]:
    """Return the runs that can be fitted, and why the others cannot.

    Parameters
    ----------
    records : sequence of RunRecord
        Stored runs.
    chips : mapping of str to Chip
        Chips by the name that the runs state.
    checking : bool
        Take also the runs whose steps are kept for checking a calibration.

    Returns
    -------
    tuple of RunSteps
        Runs to fit.
    tuple of Refused
        The others, each with a reason.
    """
    runs: list[RunSteps] = []
    refused: list[Refused] = []
    for record in records:
        reason = record.fit_refused_reason
        if reason is None and record.steps_kept_for_checking and not checking:
            reason = "its run.yaml keeps its steps for checking (fit: host)"
        if reason is None and record.timing not in FITTED_TIMINGS:
            reason = (
                f"timing {record.timing} is no step time; {', '.join(FITTED_TIMINGS)} can be fitted"
            )
        if reason is None and record.gpu is None:
            reason = "the run states no GPU type"
        if reason is None and record.gpu not in chips:
            reason = f"no chip document for {record.gpu}"
        if reason is not None:
            refused.append(Refused(record.run_id, reason))
            continue
        try:
            runs.append(run_steps(record, chips[str(record.gpu)]))
        except KernelError as error:
            refused.append(Refused(record.run_id, str(error)))
    return tuple(runs), tuple(refused)


def fit_gpus(
    runs: Sequence[RunSteps],
    options: Options,
    gates_off: Sequence[str] = (),
    progress: Progress | None = None,
    front_ends: Sequence[FrontEndRun] = (),
) -> tuple[tuple[GpuFit, ...], tuple[Refused, ...]]:
    """Gate and fit every GPU type.

    Parameters
    ----------
    runs : sequence of RunSteps
        Runs of any GPU types.
    options : Options
        How to fit; each GPU type takes the priors that are about it.
    gates_off : sequence of str
        Ids of gates that are switched off.
    progress : callable, optional
        Called with a label, the number done and the number wanted.
    front_ends : sequence of FrontEndRun
        Recorded host work around the steps, of any GPU types.

    Returns
    -------
    tuple of GpuFit
        One per GPU type with enough steps, in order of first appearance.
    tuple of Refused
        Runs with nothing left after the gates, and GPU types with too few steps.
    """
    fits: list[GpuFit] = []
    refused: list[Refused] = []
    # A copy may be stated to come from another GPU type, so all runs are compared.
    runs = with_copies(runs)
    for name in dict.fromkeys(run.plan.chip.name for run in runs):
        kept: list[RunSteps] = []
        stored: list[int] = []
        counts: list[GateCount] = []
        for run in with_probe_reference([r for r in runs if r.plan.chip.name == name]):
            passed, dropped = apply_gates(run, gates_off)
            counts.extend(dropped)
            if passed.size:
                kept.append(passed)
                stored.append(max(run.size, run.recorded_steps))
            else:
                rules = "; ".join(f"{c.id}: {c.rule}" for c in dropped)
                refused.append(Refused(run.run, f"no step is left after the gates ({rules})"))
        steps = sum(run.size for run in kept)
        if steps < SMALLEST_FIT_STEPS:
            if kept:
                refused.append(
                    Refused(
                        ", ".join(run.run for run in kept),
                        f"{steps} steps on {name} are too few to fit; "
                        f"at least {SMALLEST_FIT_STEPS} are needed",
                    )
                )
            continue
        own = replace(options, priors=of_chip(options.priors, name))
        around = [run for run in front_ends if run.gpu == name]
        calibration = with_front_end(calibrate(kept, stored, own, progress), around, own)
        fits.append(GpuFit(tuple(kept), tuple(counts), calibration))
    return tuple(fits), tuple(refused)


def freeze(fit: GpuFit) -> tuple[tuple[str, FittedKernel], ...]:
    """Freeze one kernel per deployment seen.

    Parameters
    ----------
    fit : GpuFit
        The fit of one GPU type.

    Returns
    -------
    tuple of (str, FittedKernel)
        File stem and kernel, in order of first appearance.
    """
    kernels: dict[str, FittedKernel] = {}
    handed = fit.calibration.fitted()
    for run in fit.runs:
        plan = run.plan
        stem = "--".join([plan.chip.name, plan.model.name, run.pool_label.replace(" ", "-")])
        if stem not in kernels:
            kernels[stem] = FittedKernel.of(
                plan.model, plan.chip, plan.pool, plan.engine_version, handed
            )
    return tuple(kernels.items())
