"""What every export answers with, and what it may be asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class NotExpressed:
    """One thing that the target's format has no place for.

    Attributes
    ----------
    name : str
        The coefficient or field that was left out.
    reason : str
        Why the target cannot hold it.
    """

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Export:
    """The text of an export, and what it leaves out.

    Attributes
    ----------
    text : str
        The whole file.
    not_expressed : tuple of NotExpressed
        What the format cannot hold, in the order of the calibration.
    """

    text: str
    not_expressed: tuple[NotExpressed, ...]


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What a target may need beside the calibration.

    Attributes
    ----------
    chip_name : str or None
        The chip as the target's catalogue spells it; None takes the target's own
        spelling of the calibration's GPU.
    version : str
        Version of kernelfit that wrote the calibration.
    only_identified : bool
        Leave out whatever the step logs did not identify.
    kernels : tuple of mappings
        Frozen kernels made from this calibration: ``file``, ``pool``, ``model``,
        ``gpu``, ``digest``.
    """

    chip_name: str | None = None
    version: str = ""
    only_identified: bool = False
    kernels: tuple[Mapping[str, Any], ...] = ()
