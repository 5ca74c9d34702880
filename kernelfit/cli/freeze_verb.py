"""``freeze``: kernels for pools that nobody has measured yet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelfit.cli import options
from kernelfit.cli.screen import Screen
from kernelfit.cli.verb import OK, verb

if TYPE_CHECKING:
    from kernelfit.kernel.fitted import FittedKernel


def register(app: typer.Typer) -> None:
    """Add the verb.

    Parameters
    ----------
    app : typer.Typer
        The command line.
    """
    verb(
        app,
        "freeze",
        summary="Freeze a calibration into one kernel per pool of a deployment.",
        example="kernelfit freeze calib/calibrations/GPU.json calib/deployments/NAME.yaml",
        details="Writes OUT/calib/kernels/NAME.json, self-contained and with a digest. The "
        "deployment must be on the calibration's GPU type.",
    )(freeze)


def freeze(
    screen: Screen,
    calibration: Annotated[
        Path, typer.Argument(metavar="CALIBRATION", help="calib/calibrations/GPU.json.")
    ],
    deployment: Annotated[
        Path, typer.Argument(metavar="DEPLOYMENT", help="A deployment document.")
    ],
    pool: Annotated[
        list[str] | None, typer.Option("--pool", metavar="NAME", help="Only this pool.")
    ] = None,
    out: options.Out = Path(),
    calib: options.Calib = None,
    dry_run: options.DryRun = False,
) -> int:
    """Freeze kernels.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    calibration : pathlib.Path
        The calibration.
    deployment : pathlib.Path
        Names the pools.
    pool : list of str, optional
        Names of the pools to freeze; all of them when None.
    out : pathlib.Path
        Receives ``calib/kernels``.
    calib : pathlib.Path, optional
        Holds the chip and model documents.
    dry_run : bool
        Write nothing.

    Returns
    -------
    int
        Exit status.
    """
    from kernelfit.cli.files import write
    from kernelfit.cli.places import calib_folder

    found = frozen_kernels(calibration, deployment, pool or (), calib_folder(calib))
    rows: list[dict[str, Any]] = []
    for path, kernel in kernel_files(out, found):
        write(screen, path, kernel.to_json(), dry_run=dry_run)
        rows.append(kernel_row(path, kernel))
    if screen.json:
        screen.document({"schema": "kernelfit.freeze/1", "kernels": rows})
    else:
        screen.table(
            ("kernel", "model", "pool", "digest"),
            [(row["file"], row["model"], row["pool"], row["digest"]) for row in rows],
            left=4,
        )
    return OK


def frozen_kernels(
    calibration: Path, deployment: Path, wanted: tuple[str, ...] | list[str], calib: Path
) -> tuple[FittedKernel, ...]:
    """Return a kernel for each wanted pool of a deployment.

    Parameters
    ----------
    calibration : pathlib.Path
        The calibration.
    deployment : pathlib.Path
        The deployment document.
    wanted : sequence of str
        Names of its pools; all of them when empty.
    calib : pathlib.Path
        Holds the chip and model documents.

    Returns
    -------
    tuple of FittedKernel
        In the order of the document.

    Raises
    ------
    InputError
        When a name is unknown, or the deployment is on another GPU type.
    """
    from kernelfit.cli.files import read_calibration, refuse
    from kernelfit.documents.chips import find_chip
    from kernelfit.documents.deployments import load_deployment
    from kernelfit.documents.models import find_model
    from kernelfit.documents.problems import InputError, Place, Problem, did_you_mean
    from kernelfit.kernel.errors import KernelError
    from kernelfit.kernel.fitted import FittedKernel

    source = read_calibration(calibration)
    pools = load_deployment(deployment)
    place = Place(str(deployment))
    names = [item.name for item in pools]
    for name in wanted:
        if name not in names:
            raise refuse(
                deployment,
                "has no such pool",
                got=name,
                allowed=", ".join(names),
                hint=did_you_mean(name, names),
            )
    kernels: list[FittedKernel] = []
    problems: list[Problem] = []
    for item in pools:
        if wanted and item.name not in wanted:
            continue
        chip = find_chip(item.gpu, calib / "chips", place)
        if chip.name != source.chip.name:
            raise refuse(
                deployment,
                f"pool {item.name} is on another GPU type than the calibration",
                got=chip.name,
                allowed=source.chip.name,
            )
        model = find_model(item.model, calib / "models", place, item.dtype)
        try:
            kernels.append(
                FittedKernel.of(
                    model, source.chip, item.pool, item.engine_version or "", source.fitted()
                )
            )
        except KernelError as error:
            hint = "fit a run of such a pool, too" if "missing" in str(error) else None
            message = f"pool {item.name} cannot be frozen: {error}"
            problems.append(Problem.at(place, message, hint=hint))
    if problems:
        raise InputError(problems)
    return tuple(kernels)


def kernel_files(
    out: Path, kernels: tuple[FittedKernel, ...]
) -> tuple[tuple[Path, FittedKernel], ...]:
    """Return where each kernel is written.

    Parameters
    ----------
    out : pathlib.Path
        Receives ``calib/kernels``.
    kernels : tuple of FittedKernel
        The kernels.

    Returns
    -------
    tuple of (pathlib.Path, FittedKernel)
        Named after GPU, model and pool; a number follows where that is not enough.
    """
    from kernelfit.cli.places import file_name

    placed: dict[Path, FittedKernel] = {}
    for kernel in kernels:
        base = file_name(f"{kernel.plan.chip.name} {kernel.plan.model.name} {pool_name(kernel)}")
        path, number = out / "calib" / "kernels" / f"{base}.json", 2
        while path in placed:
            path, number = path.with_name(f"{base}-{number}.json"), number + 1
        placed[path] = kernel
    return tuple(placed.items())


def pool_name(kernel: FittedKernel) -> str:
    """Return a pool's widths in a few characters.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.

    Returns
    -------
    str
        For example ``tp2``.
    """
    from kernelfit.fit.steps import pool_label

    return pool_label(kernel.plan.pool)


def kernel_row(path: Path, kernel: FittedKernel) -> dict[str, Any]:
    """Return what a result document says about one kernel.

    Parameters
    ----------
    path : pathlib.Path
        Its file.
    kernel : FittedKernel
        The kernel.

    Returns
    -------
    dict
        JSON-shaped.
    """
    return {
        "file": path.as_posix(),
        "pool": pool_name(kernel),
        "model": kernel.plan.model.name,
        "gpu": kernel.plan.chip.name,
        "digest": kernel.digest,
    }
