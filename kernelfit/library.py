"""The main job as a function, and its result as tables: for notebooks and programs.

``fit`` does what ``kernelfit fit`` does and prints nothing; what it found is a
:class:`FitResult` with frames of pandas, frozen kernels and the same report.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelfit.kernel.fitted import FittedKernel

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, repr=False)
class FitResult:
    """What a fit found.

    Attributes
    ----------
    document : mapping
        The result document, as ``kernelfit fit --json`` prints it, with the held-out steps
        under ``points``; SI units, fractions not percent.
    files : tuple of (str, str)
        Paths below the output folder and contents: calibrations and frozen kernels.
    """

    document: Mapping[str, Any]
    files: tuple[tuple[str, str], ...] = ()

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPU types that were calibrated."""
        return tuple(str(entry["gpu"]) for entry in self.document["calibrations"])

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdict on each GPU type, in a sentence."""
        from kernelfit.report.select import one_gpu
        from kernelfit.report.verdict import verdict

        return {gpu: str(verdict(one_gpu(self.document, gpu))["sentence"]) for gpu in self.gpus}

    @property
    def kernels(self) -> dict[str, FittedKernel]:
        """The frozen kernels by the name of their file, ready to be called."""
        return {
            Path(path).stem: FittedKernel.from_document(json.loads(text))
            for path, text in self.files
            if "/kernels/" in f"/{path}"
        }

    def coefficients(self) -> pd.DataFrame:
        """Return the coefficients of every GPU type.

        Returns
        -------
        pandas.DataFrame
            One row a coefficient, values and intervals in the unit beside them.
        """
        rows = []
        for calibration in self.document["calibrations"]:
            for entry in calibration["coefficients"]:
                low, high = entry["ci95"]
                rows.append(
                    {
                        "gpu": calibration["gpu"],
                        "name": entry["name"],
                        "value": entry["value"],
                        "low": low,
                        "high": high,
                        "unit": entry["unit"],
                        "share_of_peak": entry["share_of_peak"],
                        "verdict": entry["verdict"],
                        "method": entry["method"],
                        "alias": ", ".join(entry["alias"]),
                        "meaning": entry["meaning"],
                    }
                )
        return _frame(rows)

    def errors(self) -> pd.DataFrame:
        """Return the held-out errors of kernelfit and of every baseline.

        Returns
        -------
        pandas.DataFrame
            One row a GPU type, predictor, split, group and phase; fractions [1].
        """
        return _frame(self.document["validation"])

    def steps(self) -> pd.DataFrame:
        """Return the held-out steps that the figures draw.

        Returns
        -------
        pandas.DataFrame
            One row a step: measured, predicted and both bounds [s], and the batch's totals.
        """
        rows: list[dict[str, Any]] = []
        for part in self.document.get("points") or ():
            columns = {name: values for name, values in part.items() if isinstance(values, list)}
            rows += [
                {"gpu": part["gpu"], **dict(zip(columns, row, strict=True))}
                for row in zip(*columns.values(), strict=True)
            ]
        return _frame(rows)

    def flips(self) -> pd.DataFrame:
        """Return the conclusions under both bounds.

        Returns
        -------
        pandas.DataFrame
            One row a pool, load and conclusion.
        """
        return _frame(self.document["flips"]["flags"])

    def gates(self) -> pd.DataFrame:
        """Return what the gates dropped.

        Returns
        -------
        pandas.DataFrame
            One row a gate and run.
        """
        return _frame(self.document["gates"])

    def write(self, out: str | Path) -> tuple[Path, ...]:
        """Write what the command would: ``calib/`` and one page per GPU type.

        Parameters
        ----------
        out : str or pathlib.Path
            The folder.

        Returns
        -------
        tuple of pathlib.Path
            Every file written, pages last; each is written whole or not at all.
        """
        from kernelfit.documents.canonical import write_atomic

        written = []
        for path, text in self.files:
            write_atomic(Path(out) / path, text)
            written.append(Path(out) / path)
        return (*written, *self.report(Path(out) / "reports"))

    def report(self, folder: str | Path) -> tuple[Path, ...]:
        """Write one page per GPU type.

        Parameters
        ----------
        folder : str or pathlib.Path
            Receives a folder per GPU type.

        Returns
        -------
        tuple of pathlib.Path
            The pages.
        """
        from kernelfit.cli.places import file_name
        from kernelfit.report.overview import write_overview
        from kernelfit.report.write import write_report

        pages = tuple(
            write_report(self.document, gpu, Path(folder) / file_name(gpu))[0] for gpu in self.gpus
        )
        write_overview(Path(folder))
        return pages

    def __repr__(self) -> str:
        """Return the verdicts and the tables as plain text."""
        from kernelfit.report.text import coefficient_table

        lines = [f"{gpu}: {words}" for gpu, words in self.verdicts.items()]
        return "\n\n".join([*lines, coefficient_table(self.document).rstrip()])

    def _repr_html_(self) -> str:
        """Return the verdicts and the tables for a notebook."""
        from kernelfit.report.notebook import result_html

        return result_html(self.document)


def _frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame([dict(row) for row in rows])


def fit(
    *logs: str | Path,
    calib: str | Path | None = None,
    store: str | Path | None = None,
    seed: int = 0,
    draws: int = 100,
    priors: Iterable[str | Path] = (),
    max_rejected: int = 0,
    **facts: object,
) -> FitResult:
    """Fit step logs, freeze one kernel per pool seen and validate held out.

    Parameters
    ----------
    *logs : str or pathlib.Path
        Run folders, logs, or folders that hold them.
    calib : str or pathlib.Path, optional
        Folder with ``chips`` and ``models``; without it ``./calib``, else the package's own.
    store : str or pathlib.Path, optional
        Folder below which the trace store is kept for the next fit; without it the store is
        thrown away afterwards.
    seed : int
        Seed of every resampling.
    draws : int
        Bootstrap resamples behind the intervals.
    priors : iterable of str or pathlib.Path
        Documents of priors and earlier calibrations.
    max_rejected : int
        Bad lines a log may have and be fitted.
    **facts : object
        What a run does not say or what overrules it: ``gpu``, ``model``, ``dtype``,
        ``engine``, ``engine_version``, ``reader``, ``tp``, ``pp``, ``dp``.

    Returns
    -------
    FitResult
        The result; nothing is written but the store.

    Raises
    ------
    InputError
        When an input cannot be used, or nothing is left to fit; it holds every problem.
    TypeError
        When a fact is unknown.
    """
    from kernelfit.cli.main_job import Job, compute
    from kernelfit.cli.places import calib_folder
    from kernelfit.cli.screen import Screen

    if unknown := set(facts) - set(FACTS):
        raise TypeError(f"no such fact: {', '.join(sorted(unknown))}; allowed {', '.join(FACTS)}")
    with tempfile.TemporaryDirectory(prefix="kernelfit-") as scratch:
        out = Path(scratch if store is None else store)
        job = Job(
            sources=tuple(Path(log) for log in logs),
            out=out,
            report=out / "reports",
            calib=calib_folder(None if calib is None else Path(calib)),
            seed=seed,
            draws=draws,
            max_rejected=max_rejected,
            overrides={name: value for name, value in facts.items() if value is not None},
            command=f"kernelfit.fit({', '.join(repr(str(log)) for log in logs)})",
            priors=tuple(Path(prior) for prior in priors),
        )
        document, files = compute(Screen(quiet=True), job)
    return FitResult(
        document, tuple((path.relative_to(out).as_posix(), text) for path, text in files)
    )


FACTS = ("gpu", "model", "dtype", "engine", "engine_version", "reader", "tp", "pp", "dp")
"""Facts of the runs that a caller may state."""


def read_result(folder: str | Path) -> FitResult:
    """Read a result back from a report's folder.

    Parameters
    ----------
    folder : str or pathlib.Path
        ``reports/GPU``, with ``report.json`` and ``points.json``.

    Returns
    -------
    FitResult
        The result on that GPU type, without the kernels' files.

    Raises
    ------
    InputError
        When the folder holds no report.
    """
    from kernelfit.cli.files import read_object, refuse
    from kernelfit.report.select import as_result
    from kernelfit.report.write import NUMBERS, POINTS

    view = read_object(Path(folder) / NUMBERS)
    if view.get("schema") != "kernelfit.report/1":
        raise refuse(
            Path(folder) / NUMBERS,
            "is no report",
            got=repr(view.get("schema")),
            allowed="kernelfit.report/1",
        )
    return FitResult(as_result({**view, "points": read_object(Path(folder) / POINTS)}))
