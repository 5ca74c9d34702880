"""The targets that a kernel can be written for.

Each target is one module with a ``TARGET``; adding one is an import and an entry here.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelfit.export import (
    aiconfigurator,
    blis,
    grid,
    inference_sim,
    llmservingsim,
    mock,
    plain,
    vidur,
)
from kernelfit.export.base import ExportOptions, Target
from kernelfit.kernel.errors import InvalidArgument

TARGETS: tuple[Target, ...] = tuple(
    sorted(
        (
            aiconfigurator.TARGET,
            blis.TARGET,
            grid.TARGET,
            inference_sim.TARGET,
            llmservingsim.TARGET,
            mock.TARGET,
            plain.TARGET,
            vidur.TARGET,
        ),
        key=lambda target: target.name,
    )
)
"""Every target, by name."""


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
    InvalidArgument
        When there is none of that name; the message lists those there are.
    """
    for target in TARGETS:
        if target.name == name:
            return target
    raise InvalidArgument("target", name, ", ".join(target.name for target in TARGETS))


def options_for(
    target: Target, kernel_file: str, version: str, settings: Mapping[str, str]
) -> ExportOptions:
    """Return the options of an export, with what was chosen checked by name.

    Parameters
    ----------
    target : Target
        The target.
    kernel_file : str
        Name of the kernel's file, without its folder.
    version : str
        Version of kernelfit.
    settings : mapping of str to str
        What was chosen.

    Returns
    -------
    ExportOptions
        The options.

    Raises
    ------
    InvalidArgument
        When the target has no such setting.
    """
    known = [each.name for each in target.settings]
    for name in settings:
        if name not in known:
            allowed = ", ".join(known) or f"nothing: {target.name} has no settings"
            raise InvalidArgument("setting", name, allowed)
    return ExportOptions(kernel_file, version, dict(settings))
