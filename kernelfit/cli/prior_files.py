"""Files that ``fit --prior`` takes: documents of priors, and earlier calibrations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernelfit.cli.files import read_calibration, refuse

if TYPE_CHECKING:
    from kernelfit.fit.given import GivenPrior


def read_priors(paths: Sequence[Path]) -> tuple[GivenPrior, ...]:
    """Read files of priors, in the order in which they were named.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        YAML documents of priors, or JSON calibrations.

    Returns
    -------
    tuple of GivenPrior
        Priors of any GPU types; of two about one coefficient the later one counts.

    Raises
    ------
    InputError
        When a file is neither, is not valid, or says nothing.
    """
    out: list[GivenPrior] = []
    for path in paths:
        given = _document(path) if path.suffix in {".yaml", ".yml"} else _calibration(path)
        if not given:
            raise refuse(
                path,
                "knows nothing beforehand: no coefficient of it is identified or weak",
                hint="a calibration whose every coefficient kept its prior adds nothing",
            )
        out.extend(given)
    return tuple(out)


def _document(path: Path) -> tuple[GivenPrior, ...]:
    from kernelfit.documents.priors import chip_of_priors, load_priors
    from kernelfit.fit.transfer import given_in

    return given_in(load_priors(path), chip_of_priors(path), path.name)


def _calibration(path: Path) -> tuple[GivenPrior, ...]:
    from kernelfit.fit.transfer import given_by

    return given_by(read_calibration(path), path.name)


def check_chips(paths: Sequence[Path], given: Sequence[GivenPrior], chips: Sequence[str]) -> None:
    """Refuse files of priors that are about none of the GPU types that are fitted.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        The files.
    given : sequence of GivenPrior
        What they say.
    chips : sequence of str
        GPU types that are fitted.

    Raises
    ------
    InputError
        With the first file that is about another GPU type.
    """
    fitted = {chip.casefold() for chip in chips}
    for path in paths:
        about = {prior.chip for prior in given if prior.file == path.name}
        if not fitted.intersection(chip.casefold() for chip in about):
            raise refuse(
                path,
                "holds priors of another GPU type",
                got=", ".join(sorted(about)),
                allowed=", ".join(sorted(chips)),
            )
