"""The targets a calibration can be written for, and what each can hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelfit.export.base import Export, ExportOptions
from kernelfit.export.blis import blis_chip_name, export_blis
from kernelfit.export.blis_names import MISSING, expressible
from kernelfit.export.plain import export_plain
from kernelfit.export.source import summary_of


@dataclass(frozen=True, slots=True)
class Target:
    """One format.

    Attributes
    ----------
    name : str
        What the command line calls it.
    title : str
        What it is, in a line.
    suffix : str
        Ending of the file.
    holds : tuple of str
        What it can express.
    lacks : tuple of str
        What it cannot.
    write : callable
        From one calibration (its document or its entry in a result) and the options to the
        export.
    """

    name: str
    title: str
    suffix: str
    holds: tuple[str, ...]
    lacks: tuple[str, ...]
    write: Callable[[Mapping[str, Any], ExportOptions], Export]


def _plain(calibration: Mapping[str, Any], options: ExportOptions) -> Export:
    return export_plain(
        summary_of(calibration),
        version=options.version,
        kernels=options.kernels,
        only_identified=options.only_identified,
    )


def _blis(calibration: Mapping[str, Any], options: ExportOptions) -> Export:
    summary = summary_of(calibration)
    chip = options.chip_name or blis_chip_name(str(summary["gpu"]))
    return export_blis(summary, chip, only_identified=options.only_identified)


def targets() -> tuple[Target, ...]:
    """Return every target, by name.

    Returns
    -------
    tuple of Target
        Sorted by name.
    """
    blis = Target(
        name="blis",
        title="BLIS CoefficientSet (YAML); listed last in a scenario it overrides by name",
        suffix=".yaml",
        holds=(*expressible(), "95 % intervals", "evidence of each value"),
        lacks=(*MISSING, "composition", "host CPU, engine version and driver in the scope"),
        write=_blis,
    )
    plain = Target(
        name="plain",
        title="plain JSON with a published JSON Schema; every number, SI units",
        suffix=".json",
        holds=("every coefficient", "verdicts and aliases", "composition", "domain", "noise"),
        lacks=("resampling draws", "held-out errors"),
        write=_plain,
    )
    return (blis, plain)


def find_target(name: str) -> Target:
    """Return one target by name.

    Parameters
    ----------
    name : str
        Name of a target.

    Returns
    -------
    Target
        The target.

    Raises
    ------
    KeyError
        When there is none of that name; the message lists those there are.
    """
    for target in targets():
        if target.name == name:
            return target
    known = ", ".join(target.name for target in targets())
    raise KeyError(f"no export target {name!r}; there are {known}")
