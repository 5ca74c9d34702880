"""``diff``: whether a GPU type, or the engine on it, is still what it was."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelfit.cli.screen import Screen
from kernelfit.cli.verb import CHECK_SAID_NO, OK, verb

if TYPE_CHECKING:
    from kernelfit.fit.calibration import Calibration
    from kernelfit.kernel.fitted import FittedKernel

SCHEMA = "kernelfit.diff/1"


def register(app: typer.Typer) -> None:
    """Add the verb.

    Parameters
    ----------
    app : typer.Typer
        The command line.
    """
    verb(
        app,
        "diff",
        summary="Compare two calibrations: what moved beyond the intervals, and what that does.",
        example="kernelfit diff old/calib/calibrations/GPU.json calib/calibrations/GPU.json",
        details="A coefficient moved when its two intervals lie apart by more than the "
        "tolerance; one that only kept its prior on either side is unknown. Step times are "
        "compared for deployments that both have seen, over batches inside both domains, with "
        "the kernels in the folders kernels/ beside calibrations/, or with those of --kernel. "
        "The exit status is 1 when something moved.",
    )(diff)


def diff(
    screen: Screen,
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A calibration.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="A later one.")],
    kernel: Annotated[
        list[Path] | None,
        typer.Option(
            "--kernel",
            metavar="FILE",
            help="Frozen kernel, or a folder of them: compare these deployments.",
        ),
    ] = None,
    across: Annotated[
        bool, typer.Option("--across", help="Compare calibrations of two GPU types.")
    ] = False,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance", metavar="SHARE", min=0.0, help="Change that is none, as a fraction."
        ),
    ] = 0.02,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Exit status 0 even when something moved.")
    ] = False,
) -> int:
    """Compare two calibrations.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    before, after : pathlib.Path
        The calibrations.
    kernel : list of pathlib.Path, optional
        Kernels that say which deployments are compared.
    across : bool
        Accept two GPU types.
    tolerance : float
        Change that is none, as a fraction [1].
    exit_zero : bool
        Do not say in the exit status that something moved.

    Returns
    -------
    int
        Exit status.
    """
    from kernelfit.cli.files import read_calibration, refuse
    from kernelfit.kernel.errors import InvalidArgument
    from kernelfit.validate.drift import MOVED, check_comparable

    old, new = read_calibration(before), read_calibration(after)
    try:
        check_comparable(old, new, across=across)
    except InvalidArgument as error:
        raise refuse(
            after,
            "is a calibration of another GPU type",
            got=str(error.got),
            allowed=error.allowed,
            hint="--across compares them all the same",
        ) from None
    kernels = _kernels(screen, (before, old), (after, new), kernel)
    document = diff_document((before, old), (after, new), kernels, tolerance)
    if screen.json:
        screen.document(document)
    else:
        show_diff(screen, document)
    return CHECK_SAID_NO if document["verdict"] == MOVED and not exit_zero else OK


def _kernels(
    screen: Screen,
    before: tuple[Path, Calibration],
    after: tuple[Path, Calibration],
    named: Sequence[Path] | None,
) -> tuple[FittedKernel, ...]:
    """Return the kernels that were named, else those of both calibrations' deployments."""
    from kernelfit.cli.checking import documents_under
    from kernelfit.cli.files import read_kernel, read_object
    from kernelfit.fit.steps import pool_label
    from kernelfit.validate.drift_predictions import seen_by_both

    if named:
        return tuple(read_kernel(path) for path in documents_under(named, suffixes=(".json",)))
    sides = (before, after)
    digests = {calibration.digest for _, calibration in sides}
    both = seen_by_both(before[1], after[1])
    folders = dict.fromkeys(path.resolve().parent.parent / "kernels" for path, _ in sides)
    found = []
    for path in (p for folder in folders for p in sorted(folder.glob("*.json"))):
        # Whose it is is read first: to price the draws of a kernel takes longer.
        fitted = read_object(path).get("fitted")
        if isinstance(fitted, dict) and fitted.get("calibration") in digests:
            kernel = read_kernel(path)
            if (kernel.plan.model.name, pool_label(kernel.plan.pool)) in both:
                found.append(kernel)
    if not found:
        screen.note(
            "no step times are compared: "
            + (
                "no kernel of theirs stands beside the calibrations; --kernel names one"
                if both
                else "the calibrations have no deployment in common; --kernel names one"
            )
        )
    return tuple(found)


def diff_document(
    before: tuple[Path, Calibration],
    after: tuple[Path, Calibration],
    kernels: Sequence[FittedKernel],
    tolerance: float,
) -> dict[str, Any]:
    """Return the comparison as data.

    Parameters
    ----------
    before, after : tuple of (pathlib.Path, Calibration)
        The calibrations and their files.
    kernels : sequence of FittedKernel
        They say which deployments are compared.
    tolerance : float
        Change that is none [1].

    Returns
    -------
    dict
        Schema ``kernelfit.diff/1``, SI units, shares and changes as fractions.
    """
    from kernelfit.kernel.frozen import to_data
    from kernelfit.validate import drift
    from kernelfit.validate.drift_predictions import pair_kernels, prediction_drift

    old, new = before[1], after[1]
    coefficients = drift.coefficient_drift(old, new, tolerance)
    composition = drift.composition_drift(old, new, tolerance)
    deployments, refused = pair_kernels(old, new, kernels)
    predictions = [row for pair in deployments for row in prediction_drift(pair, tolerance)]
    verdicts = {composition.verdict, *(c.verdict for c in coefficients)}
    verdicts.update(row.verdict for row in predictions)
    said = [word for word in (drift.MOVED, drift.SAME) if word in verdicts]
    return {
        "schema": SCHEMA,
        "before": _side(*before),
        "after": _side(*after),
        "tolerance": tolerance,
        "peaks_that_differ": list(drift.peaks_that_differ(old, new)),
        "coefficients": [_coefficient(row, old, new) for row in coefficients],
        "composition": to_data(composition),
        "predictions": [to_data(row) for row in predictions],
        "not_priced": [to_data(row) for row in refused],
        "verdict": said[0] if said else drift.UNKNOWN,
    }


def _side(path: Path, calibration: Calibration) -> dict[str, Any]:
    return {
        "file": str(path),
        "gpu": calibration.chip.name,
        "digest": calibration.digest,
        "runs": [used.run for used in calibration.runs],
        "steps": sum(used.kept for used in calibration.runs),
    }


def _coefficient(row: Any, old: Calibration, new: Calibration) -> dict[str, Any]:
    from kernelfit.kernel.frozen import to_data

    data = dict(to_data(row))
    for side, calibration in (("before", old), ("after", new)):
        if data[side] is not None:
            shown = next(c for c in calibration.summary()["coefficients"] if c["name"] == row.name)
            keep = ("value", "unit", "ci95", "verdict", "method", "peak", "peak_unit")
            data[side] = {key: shown[key] for key in keep}
    return data


def show_diff(screen: Screen, document: dict[str, Any]) -> None:
    """Print a comparison as tables.

    Parameters
    ----------
    screen : Screen
        Where it is printed.
    document : dict
        From ``diff_document``.
    """
    from kernelfit.report.words import plural

    for word in ("before", "after"):
        side = document[word]
        screen.line(
            f"{word + ':':8}{side['gpu']}, {plural(len(side['runs']), 'run')}, "
            f"{plural(side['steps'], 'step')}, "
            f"{side['digest'].removeprefix('sha256:')[:12]}"
        )
    if document["peaks_that_differ"]:
        screen.line(
            f"the datasheets differ in {', '.join(document['peaks_that_differ'])}: "
            "shares of those peaks do not compare"
        )
    screen.line()
    screen.table(
        ("coefficient", "verdict", "before", "after", "unit", "ratio", "95 % interval", "differ %"),
        [_coefficient_row(row) for row in _moved_first(document["coefficients"])],
        left=2,
    )
    screen.line(_composition_words(document["composition"]))
    screen.line()
    if document["predictions"]:
        screen.table(
            (
                "step times",
                "phase",
                "verdict",
                "worst at",
                "batches",
                "median %",
                "95 % interval",
                "worst %",
            ),
            [_prediction_row(row) for row in document["predictions"]],
            left=4,
        )
    for row in document["not_priced"]:
        screen.line(f"not priced: {row['model']} {row['pool']}: {row['reason']}")
    rows = document["coefficients"]
    words = ("moved", "same", "unknown", "appeared", "disappeared")
    counts = [(sum(row["verdict"] == word for row in rows), word) for word in words]
    screen.line("coefficients: " + ", ".join(f"{n} {word}" for n, word in counts if n))


def _moved_first(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    order = ("moved", "appeared", "disappeared", "same", "unknown")
    return sorted(rows, key=lambda row: order.index(row["verdict"]))


def _coefficient_row(row: dict[str, Any]) -> tuple[str, ...]:
    from kernelfit.report.units import MISSING, interval_texts, percent, show

    sides, unit = [], ""
    for side in (row["before"], row["after"]):
        if side is None:
            sides.append(MISSING)
            continue
        shown = show({**side, "name": row["name"]})
        mark = " (prior)" if side["verdict"] == "prior" else ""
        if unit and shown.unit != unit:
            mark = f" {shown.unit}{mark}"
        unit = unit or shown.unit
        sides.append(f"{shown.value}{mark}")
    ratio = row["ratio"]
    if ratio is not None:
        value, low, high = interval_texts(ratio["value"], ratio["low"], ratio["high"])
    return (
        row["name"],
        row["verdict"],
        *sides,
        unit,
        *((value, f"[{low}, {high}]") if ratio is not None else (MISSING, MISSING)),
        percent(row["p_differ"]),
    )


def _composition_words(row: dict[str, Any]) -> str:
    from kernelfit.report.units import percent

    sides = []
    for side in ("before", "after"):
        share = row[f"share_{side}"]
        words = str(row[f"rule_{side}"])
        if words.startswith("share"):
            words += (
                f" {percent(share['value'])} % [{percent(share['low'])}, {percent(share['high'])}]"
            )
        sides.append(words)
    said = f"composition: {sides[0]} before, {sides[1]} after: {row['verdict']}"
    if row["rule_before"] != row["rule_after"]:
        said += " (rules are chosen by held-out score; compare step times, not coefficients)"
    return said


def _prediction_row(row: dict[str, Any]) -> tuple[str, ...]:
    from kernelfit.report.units import MISSING, percent

    median, worst = row["median"], row["worst"]
    place = (f"{row['model']} {row['pool']}", row["phase"], row["verdict"])
    if median is None:
        return (*place, MISSING, "0", MISSING, MISSING, MISSING)
    ends = ", ".join(percent(median[end], signed=True) for end in ("low", "high"))
    return (
        *place,
        row["worst_batch"],
        str(row["batches"]),
        percent(median["value"], signed=True),
        f"[{ends}]",
        percent(worst["value"], signed=True),
    )
