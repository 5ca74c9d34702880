"""What ``flips`` and ``plan`` ask about: kernels, candidates, questions, measured steps."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelfit.cli.files import read_calibration, read_kernel, read_object, refuse
from kernelfit.cli.screen import Screen
from kernelfit.documents.problems import InputError, Place, Problem

if TYPE_CHECKING:
    from kernelfit.documents.candidates import CandidatePool
    from kernelfit.documents.questions import Question
    from kernelfit.fit.calibration import Calibration
    from kernelfit.fit.steps import RunSteps
    from kernelfit.flips.given import Recorded
    from kernelfit.flips.measured import MeasuredShape
    from kernelfit.flips.pools import NotPriced
    from kernelfit.kernel.fitted import FittedKernel


@dataclass(frozen=True, slots=True)
class Asking:
    """Everything that conclusions are drawn from.

    Attributes
    ----------
    kernels : tuple of FittedKernel
        The pools.
    names : tuple of str or None
        Their names; None where their widths are their name.
    questions : tuple of Question
        What is asked; empty asks what the kernels suggest.
    calibrations : tuple of Calibration
        Those behind the kernels.
    refused : tuple of NotPriced
        Candidates that no kernel could be made for.
    """

    kernels: tuple[FittedKernel, ...]
    names: tuple[str | None, ...]
    questions: tuple[Question, ...]
    calibrations: tuple[Calibration, ...]
    refused: tuple[NotPriced, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the pools, widths where they have no other."""
        from kernelfit.fit.steps import pool_label

        return tuple(
            name or pool_label(kernel.plan.pool)
            for name, kernel in zip(self.names, self.kernels, strict=True)
        )

    @property
    def recorded(self) -> dict[str, Recorded]:
        """By digest of a calibration, what it was fitted on."""
        from kernelfit.flips.given import Recorded

        return {c.digest: Recorded.of(c) for c in self.calibrations}


def gather(
    screen: Screen,
    paths: Sequence[Path],
    questions: Sequence[Question],
    candidates: Sequence[CandidatePool],
    calib: Path | None,
) -> Asking:
    """Read kernels and calibrations, and make kernels for candidates.

    Parameters
    ----------
    screen : Screen
        Where notes go.
    paths : sequence of pathlib.Path
        Kernels, calibrations, or folders that hold them.
    questions : sequence of Question
        What is asked.
    candidates : sequence of CandidatePool
        Pools beside those of the kernels.
    calib : pathlib.Path or None
        Holds the chip and model documents of candidates.

    Returns
    -------
    Asking
        Pools and questions.

    Raises
    ------
    InputError
        When a file is neither, a calibration is missing, or a candidate is on a GPU type
        that none is of.
    """
    from kernelfit.cli.checking import documents_under

    files: list[tuple[Path, FittedKernel]] = []
    found: dict[str, Calibration] = {}
    for path in documents_under(paths, suffixes=(".json",)):
        if read_object(path).get("kind") == "Calibration":
            calibration = read_calibration(path)
            found[calibration.digest] = calibration
        else:
            files.append((path, read_kernel(path)))
    found |= _behind(screen, files, found)
    kernels = tuple(kernel for _, kernel in files)
    made, refused = _made(candidates, tuple(found.values()), calib)
    for item in refused:
        screen.note(f"not priced: {item.model} {item.pool} ({item.gpu}): {item.reason}")
    return Asking(
        (*kernels, *(kernel for _, kernel in made)),
        (*(None for _ in kernels), *(name for name, _ in made)),
        tuple(questions),
        tuple(found.values()),
        refused,
    )


def _behind(
    screen: Screen, files: Sequence[tuple[Path, FittedKernel]], known: Mapping[str, Calibration]
) -> dict[str, Calibration]:
    """Return the calibrations that kernels were frozen from, beside their folder."""
    wanted = {kernel.fitted.calibration for _, kernel in files} - set(known)
    if not wanted:
        return {}
    found: dict[str, Calibration] = {}
    folders = dict.fromkeys(path.resolve().parent.parent / "calibrations" for path, _ in files)
    for path in (p for folder in folders for p in sorted(folder.glob("*.json"))):
        calibration = read_calibration(path)
        if calibration.digest in wanted:
            found[calibration.digest] = calibration
    if not found and not known:
        raise refuse(
            files[0][0],
            "the calibration that the kernels were frozen from is not in ../calibrations",
            got=", ".join(sorted(wanted)),
            hint="it says how noisy a measurement is; fit again, or move the kernels back",
        )
    if len(found) < len(wanted):
        screen.note("some kernels are from a calibration that is not there any more")
    return found


def _made(
    candidates: Sequence[CandidatePool], calibrations: Sequence[Calibration], calib: Path | None
) -> tuple[tuple[tuple[str | None, FittedKernel], ...], tuple[NotPriced, ...]]:
    if not candidates:
        return (), ()
    from kernelfit.cli.places import calib_folder
    from kernelfit.documents.chips import find_chip
    from kernelfit.documents.models import find_model
    from kernelfit.flips.pools import Wanted, kernels_for

    folder = calib_folder(calib)
    known = {c.chip.name.casefold(): c for c in calibrations}
    wanted: dict[str, list[Wanted]] = {}
    problems: list[Problem] = []
    for item in candidates:
        place = Place(f"candidate {item.name or item.model}")
        name = item.gpu
        if name.casefold() not in known:
            name = find_chip(item.gpu, folder / "chips", place).name
        if name.casefold() not in known:
            problem = Problem.at(
                place,
                "no calibration of its GPU type was given",
                got=item.gpu,
                allowed=", ".join(c.chip.name for c in calibrations) or "nothing yet",
                hint="name the calibration's file or folder",
            )
            if problem not in problems:
                problems.append(problem)
            continue
        model = _model_of(item, folder, place, find_model)
        wanted.setdefault(name.casefold(), []).append(
            Wanted(item.name, model, item.pool, item.engine_version)
        )
    if problems:
        raise InputError(problems)
    made: list[tuple[str | None, FittedKernel]] = []
    refused: list[NotPriced] = []
    for name, items in wanted.items():
        priced, left = kernels_for(known[name], items)
        made += priced
        refused += left
    return tuple(made), tuple(refused)


def _model_of(item: CandidatePool, folder: Path, place: Place, find_model: Any) -> Any:
    return find_model(item.model, folder / "models", place, item.dtype)


def questions_of(
    documents: Sequence[Path], asked: Mapping[str, Any], rest: Mapping[str, Any]
) -> tuple[tuple[Question, ...], tuple[CandidatePool, ...]]:
    """Read questions from documents and from flags.

    Parameters
    ----------
    documents : sequence of pathlib.Path
        Question documents.
    asked : mapping
        One question from flags, as an entry of a document; empty for none.
    rest : mapping
        Candidates and prices from flags.

    Returns
    -------
    tuple of Question
        All questions.
    tuple of CandidatePool
        All candidates.

    Raises
    ------
    InputError
        With every problem.
    """
    from kernelfit.documents.questions import load_question_document, questions_from_flags

    found = [load_question_document(path) for path in documents]
    if asked:
        found.append(questions_from_flags(asked, rest))
    elif rest:
        raise InputError(
            [
                Problem(
                    "command line",
                    None,
                    None,
                    "candidate pools or prices without a question",
                    allowed="--context, or --prompt and --output, with --target or "
                    "--first-token-target",
                )
            ]
        )
    return (
        tuple(question for document in found for question in document.questions),
        tuple(pool for document in found for pool in document.candidates),
    )


def gated_runs(screen: Screen, sources: Sequence[Path], calib: Path | None) -> tuple[RunSteps, ...]:
    """Read logs and apply the gates, leaving nothing behind.

    Parameters
    ----------
    screen : Screen
        Where notes go.
    sources : sequence of pathlib.Path
        Run folders, logs, or folders that hold them.
    calib : pathlib.Path or None
        Holds the chip and model documents.

    Returns
    -------
    tuple of RunSteps
        Runs with at least one step left.

    Raises
    ------
    InputError
        With the problems of all inputs.
    """
    from kernelfit.cli.ingesting import Reading, read_logs, stored_runs
    from kernelfit.cli.places import calib_folder
    from kernelfit.documents.chips import find_chip
    from kernelfit.fit.gates import apply_gates, with_copies, with_probe_reference
    from kernelfit.fit.pipeline import collect_runs

    folder = calib_folder(calib)
    with tempfile.TemporaryDirectory() as work:
        ingested = read_logs(screen, sources, Path(work), Reading({}, folder))
        records = stored_runs(Path(work), ingested)
        names = {record.gpu for record in records if record.gpu is not None}
        chips = {name: find_chip(name, folder / "chips") for name in sorted(names)}
        runs, refused = collect_runs(records, chips)
    for item in refused:
        screen.note(f"not used: {item.run}: {item.reason}")
    kept = []
    for name in dict.fromkeys(run.plan.chip.name for run in runs):
        mine = [run for run in with_copies(runs) if run.plan.chip.name == name]
        kept += [apply_gates(run)[0] for run in with_probe_reference(mine)]
    return tuple(run for run in kept if run.size)


def measured_of(
    screen: Screen, sources: Sequence[Path], asking: Asking, calib: Path | None
) -> tuple[MeasuredShape, ...]:
    """Read measured steps that conclusions are to pass through.

    Parameters
    ----------
    screen : Screen
        Where notes go.
    sources : sequence of pathlib.Path
        Their logs.
    asking : Asking
        What is asked.
    calib : pathlib.Path or None
        Holds the chip and model documents.

    Returns
    -------
    tuple of MeasuredShape
        One per deployment and shape with enough steps.
    """
    from kernelfit.flips.measured import measured_shapes

    if not sources:
        return ()
    inflation = max(c.inflation for c in asking.calibrations)
    shapes = measured_shapes(gated_runs(screen, sources, calib), inflation)
    screen.note(f"{len(shapes)} measured shapes")
    return shapes
