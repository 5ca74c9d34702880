"""Whether a recording is whole: what it holds, what is missing, and what can be fitted from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelfit.documents.problems import InputError
from kernelfit.documents.runs import load_run
from kernelfit.kernel.pool import Pool
from kernelfit.logs.columns import FITTED_TIMINGS, ParsedRun
from kernelfit.logs.compare import LOG_NAMES, iteration_mismatches
from kernelfit.logs.recorder import KernelfitReader
from kernelfit.logs.sides import Side, engine_sides, worker_sides
from kernelfit.logs.source import RunSource
from kernelfit.logs.vllm_log import iteration_tokens

SHOWN = 5
"""Instances of a fault that its message names; the others are counted."""


@dataclass(frozen=True, slots=True)
class Aligned:
    """Steps that data-parallel ranks took together, by wave and step counter.

    Attributes
    ----------
    ranks : int
        Ranks that counted.
    together : int
        Steps at which every rank has a row, of a step or of a dummy.
    apart : int
        Steps, within the time that all recorded, at which a rank has none.
    dummies : int
        Dummy steps of all ranks.
    """

    ranks: int
    together: int
    apart: int
    dummies: int


@dataclass(frozen=True, slots=True)
class Wholeness:
    """What a recording holds and what it lacks.

    Attributes
    ----------
    engines, workers : int
        Files of either kind.
    steps : int
        Steps that are joined and usable.
    idle : int
        Steps without tokens.
    tokens : int
        Tokens of all steps, by the engines' rows [tokens].
    worker_tokens : tuple of (str, int)
        Tokens that each worker computed, by its file's name [tokens].
    rejected : int
        Lines that could not be used.
    unfinished : int
        Lines of steps that the engine's end cut off.
    last_unfinished : int or None
        The last step that was begun and not finished; None when all were.
    missing_ranks : tuple of str
        Ranks that the pool has and the recording has not.
    aligned : Aligned or None
        None without data-parallel counters.
    hook_share, writer_share : float or None
        Time of the recorder's hooks by the time of the steps, and of its writer's threads by
        the time recorded [1]; None where nothing is known.
    timing : str
        What the durations mean; empty when there are none.
    fit_refused_reason : str or None
        Why a fit would not use them; None when it would.
    printed, disagreeing : int or None
        Steps that the engine printed itself, and at how many of them its tokens are others;
        None without its log, or with several engines.
    faults : tuple of str
        Why it is not whole; none when it is.
    """

    engines: int
    workers: int
    steps: int
    idle: int
    tokens: int
    worker_tokens: tuple[tuple[str, int], ...]
    rejected: int
    unfinished: int
    last_unfinished: int | None
    missing_ranks: tuple[str, ...]
    aligned: Aligned | None
    hook_share: float | None
    writer_share: float | None
    timing: str
    fit_refused_reason: str | None
    printed: int | None
    disagreeing: int | None
    faults: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether nothing is missing."""
        return not self.faults


def check_recording(folder: Path) -> Wholeness:
    """Check a recording.

    Parameters
    ----------
    folder : pathlib.Path
        A folder that the recorder wrote.

    Returns
    -------
    Wholeness
        What it holds; a file that is no recording at all is a fault like any other.
    """
    engines, workers = engine_sides(folder), worker_sides(folder)
    faults: list[str] = []
    runs = _read(folder, faults)
    pool = _pool(folder, faults)
    missing = () if pool is None else _missing_ranks(pool, engines, workers)
    faults += [f"nothing was recorded by {rank}" for rank in missing]
    for side in engines:
        faults += _gaps(side)
    for run in runs:
        faults += _rejects(run)
    steps = sum(run.steps.count for run in runs)
    if runs and not steps:
        faults.append("no step is usable")
    aligned = _aligned(engines)
    if aligned is not None and aligned.apart:
        faults.append(
            f"the data-parallel ranks do not keep step: {aligned.apart} steps of "
            f"{aligned.apart + aligned.together} are missing on a rank"
        )
    printed, disagreeing = _printed(folder, engines, faults)
    shares = [run.recorder_cost_share for run in runs if run.recorder_cost_share is not None]
    writers = [s.writer_share for s in (*engines, *workers) if s.writer_share is not None]
    unfinished = sum(run.unfinished for run in runs)
    return Wholeness(
        engines=len(engines),
        workers=len(workers),
        steps=steps,
        idle=sum(sum(n == 0 for _, n in side.rows) for side in engines),
        tokens=sum(n for side in engines for _, n in side.rows),
        worker_tokens=tuple((s.name, sum(n for _, n in s.rows)) for s in workers),
        rejected=sum(len(run.rejects) for run in runs),
        unfinished=unfinished,
        last_unfinished=_last_ordinal((*engines, *workers)) if unfinished else None,
        missing_ranks=missing,
        aligned=aligned,
        hook_share=max(shares, default=None),
        writer_share=max(writers, default=None),
        timing=runs[0].timing if runs else "",
        fit_refused_reason=_refused(runs, pool),
        printed=printed,
        disagreeing=disagreeing,
        faults=tuple(faults),
    )


def _read(folder: Path, faults: list[str]) -> tuple[ParsedRun, ...]:
    source = RunSource(folder, None, KernelfitReader.name, folder.name, folder.name)
    try:
        return KernelfitReader().read(source, None)
    except InputError as error:
        faults += [problem.render() for problem in error.problems]
        return ()


def _pool(folder: Path, faults: list[str]) -> Pool | None:
    document = folder / "run.yaml"
    if not document.is_file():
        faults.append("run.yaml is missing: no step was scheduled, or the engine hid its settings")
        return None
    try:
        return load_run(document).pool
    except InputError as error:
        faults += [problem.render() for problem in error.problems]
        return None


def _missing_ranks(pool: Pool, engines: Sequence[Side], workers: Sequence[Side]) -> tuple[str, ...]:
    """Return which ranks of the pool have no file, engine by engine."""
    replicas = {side.dp for side in engines}
    found = [f"the engine of rank {r}" for r in range(pool.dp) if pool.dp > 1 and r not in replicas]
    width = pool.tp * pool.pp
    for engine in engines:
        own = [w for w in workers if engine.owns(w, alone=len(engines) == 1)]
        ranks = {w.rank for w in own if w.rows or w.rank is not None}
        where = f" of {engine.name}" if len(engines) > 1 else ""
        found += [f"worker rank {r}{where}" for r in range(width) if r not in ranks]
    return tuple(found)


def _gaps(side: Side) -> list[str]:
    """Return a fault for steps whose ordinals are missing within an engine's file."""
    numbers = sorted({i for i, _ in side.rows})
    if not numbers:
        return [f"{side.name} holds no step"]
    edges = zip((-1, *numbers), numbers, strict=False)
    holes = [(before + 1, after - 1) for before, after in edges if after > before + 1]
    if not holes:
        return []
    lost = sum(last - first + 1 for first, last in holes)
    words = ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in holes[:SHOWN])
    return [f"{side.name} lacks {lost} steps ({words}{', ...' if len(holes) > SHOWN else ''})"]


def _rejects(run: ParsedRun) -> list[str]:
    words = [f"{r.file}:{r.line}: {r.reason}" for r in run.rejects[:SHOWN]]
    more = len(run.rejects) - len(words)
    return [*words, f"and {more:,} more lines that cannot be used"] if more > 0 else words


def _aligned(engines: Sequence[Side]) -> Aligned | None:
    """Compare the steps of data-parallel ranks by wave and counter."""
    counted = [side for side in engines if side.counters]
    if len(counted) < 2:
        return None
    first = max(min(side.counters) for side in counted)
    last = min(max(side.counters) for side in counted)
    seen = [{c for c in side.counters if first <= c <= last} for side in counted]
    together = set.intersection(*seen)
    return Aligned(
        ranks=len(counted),
        together=len(together),
        apart=len(set.union(*seen)) - len(together),
        dummies=sum(side.dummies for side in counted),
    )


def _printed(
    folder: Path, engines: Sequence[Side], faults: list[str]
) -> tuple[int | None, int | None]:
    """Compare with the engine's own log, where it stands beside a single engine."""
    log = next((p for name in LOG_NAMES if (p := folder / name).is_file()), None)
    if log is None or len(engines) != 1:
        return None, None
    printed = sum(1 for _ in iteration_tokens(log))
    if not printed:
        return 0, 0
    # The last lines wait in a pipe when the engine is killed, or the last rows in the recorder.
    found = [m for m in iteration_mismatches(folder) if m.iteration >= 0 and m.ordinal >= 0]
    if found:
        one = found[0]
        faults.append(
            f"the engine's own log disagrees at {len(found)} steps: at iteration {one.iteration} "
            f"it printed {one.printed_tokens} tokens and {one.recorded_tokens} were recorded"
        )
    return printed, len(found)


def _last_ordinal(sides: Sequence[Side]) -> int | None:
    return max((i for side in sides for i, _ in side.rows), default=None)


def _refused(runs: Sequence[ParsedRun], pool: Pool | None) -> str | None:
    if not runs:
        return "there are no steps"
    for run in runs:
        if run.fit_refused_reason is not None:
            return run.fit_refused_reason
        if run.timing not in FITTED_TIMINGS:
            return f"its durations are {run.timing}, a part of a step only"
    if pool is not None and pool.pp > 1:
        return f"with pipeline parallelism (pp {pool.pp}) the span of one stage is not the step"
    return None
