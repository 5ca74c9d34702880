"""Closing the loop from the command line: kernel, runs, comparison, figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelfit.cli.screen import Screen
from kernelfit.cli.verb import OK

if TYPE_CHECKING:
    from kernelfit.kernel.fitted import FittedKernel
    from kernelfit.store.scan import RunRecord


def close(
    screen: Screen,
    source: Path,
    runs: Sequence[Path],
    *,
    kv_blocks: int | None,
    report: Path | None,
    out: Path,
    calib: Path | None,
) -> int:
    """Replay recorded loads and compare latencies.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    source : pathlib.Path
        A calibration, or the frozen kernel of the runs' pool.
    runs : sequence of pathlib.Path
        Run folders. Runs that served the same requests are repeats of each other.
    kv_blocks : int, optional
        Blocks of the KV cache; without it the cache never fills.
    report : pathlib.Path, optional
        Receives figures and numbers.
    out : pathlib.Path
        The trace store stands below it.
    calib : pathlib.Path, optional
        Holds the chip and model documents.

    Returns
    -------
    int
        Exit status.
    """
    from kernelfit.cli.ingesting import Reading, read_logs, stored_runs
    from kernelfit.cli.places import calib_folder
    from kernelfit.validate.closed_loop.close import close_loop
    from kernelfit.validate.closed_loop.served import repeats_of

    ingested = read_logs(screen, list(runs), out, Reading({}, calib_folder(calib)))
    records = stored_runs(out, ingested)
    kernel_for = _Pricer(source)
    loops = []
    with screen.progress("replaying") as progress:
        for number, record in enumerate(records):
            progress(number, len(records), record.run_id)
            again = repeats_of(record, records)
            loops.append(close_loop(kernel_for(record), record, again, kv_blocks))
    if report is not None:
        from kernelfit.report.loop import write_loops

        for path in write_loops(loops, report):
            screen.note(f"wrote {path}")
    if screen.json:
        document: dict[str, Any] = {"schema": "kernelfit.closed_loop/1", "closed_loop": loops}
        screen.document(document)
        return OK
    from kernelfit.report.loop import loop_text

    screen.text("\n".join(loop_text(loop) for loop in loops))
    return OK


class _Pricer:
    """From a run to the kernel that prices it."""

    def __init__(self, source: Path) -> None:
        from kernelfit.cli.files import read_calibration, read_kernel, read_object

        self._source = source
        self._kernel: FittedKernel | None = None
        if read_object(source).get("kind") == "FittedKernel":
            self._kernel = read_kernel(source)
        else:
            self._calibration = read_calibration(source)

    def __call__(self, record: RunRecord) -> FittedKernel:
        from kernelfit.documents.problems import InputError, Problem
        from kernelfit.kernel.fitted import FittedKernel

        model = record.model
        chip = self._kernel.plan.chip if self._kernel else self._calibration.chip
        problems = []
        if record.gpu != chip.name:
            problems.append(("is on another GPU type", str(record.gpu), chip.name))
        if model is None:
            problems.append(("does not say its model", "nothing", "a model"))
        elif self._kernel is not None and self._kernel.plan.model != model:
            problems.append(("served another model", model.name, self._kernel.plan.model.name))
        if problems or model is None:
            raise InputError(
                Problem(record.run_id, None, None, message, got=got, allowed=allowed)
                for message, got, allowed in problems
            )
        if self._kernel is not None:
            return self._kernel
        version = str(record.row["engine_version"] or "")
        return FittedKernel.of(model, chip, record.pool, version, self._calibration.fitted())
