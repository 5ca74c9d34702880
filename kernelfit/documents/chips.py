"""Chip documents: the datasheet of a GPU type, every figure with its source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from kernelfit.documents.library import Entry, find, index
from kernelfit.documents.problems import InputError, Place, Problem, shown
from kernelfit.documents.strict import Strict, parse_as
from kernelfit.documents.yamldoc import Document, load_yaml, problem_at
from kernelfit.kernel.chip import Chip

Word = Annotated[str, Field(min_length=1)]
Unit = Literal["flop/s", "byte/s", "byte", "count"]
Method = Literal["vendor_spec", "measured", "literature", "copied", "assumed"]

# What no real part has left, in either direction: a slip of a prefix falls out of it.
_WINDOWS: dict[str, dict[str, tuple[str, float, float]]] = {
    "gpu": {
        "peak_flop_per_s": ("flop/s", 5e12, 1e17),
        "hbm_bytes_per_s": ("byte/s", 1e11, 1e14),
        "hbm_bytes": ("byte", 4e9, 4e12),
        "nvlink_bytes_per_s": ("byte/s", 1e10, 1e13),
        "nic_bytes_per_s": ("byte/s", 1e9, 1e12),
        "pcie_bytes_per_s": ("byte/s", 4e9, 1e12),
        "sm_count": ("count", 8, 1024),
        "gpus_per_node": ("count", 1, 1024),
    },
    "cpu": {
        "peak_flop_per_s": ("flop/s", 1e9, 1e14),
        "hbm_bytes_per_s": ("byte/s", 1e9, 4e12),
        "hbm_bytes": ("byte", 5e8, 1e13),
        "nvlink_bytes_per_s": ("byte/s", 1e8, 1e12),
        "nic_bytes_per_s": ("byte/s", 1e7, 1e12),
        "pcie_bytes_per_s": ("byte/s", 1e8, 1e12),
        "sm_count": ("count", 1, 1024),
        "gpus_per_node": ("count", 1, 4096),
    },
}
_SINGLE = tuple(name for name in _WINDOWS["gpu"] if name != "peak_flop_per_s")
_WHOLE = ("hbm_bytes", "sm_count", "gpus_per_node")


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a chip document with its evidence.

    Attributes
    ----------
    name : str
        The figure, for example ``hbm_bytes_per_s`` or ``peak_flop_per_s.bf16``.
    value : float
        Its value, in its unit.
    unit : str
        ``flop/s``, ``byte/s``, ``byte`` or ``count``.
    method : str
        ``vendor_spec``, ``measured``, ``literature``, ``copied`` or ``assumed``.
    source : str
        Where it comes from.
    """

    name: str
    value: float
    unit: str
    method: str
    source: str


class _Figure(Strict):
    value: Annotated[float, Field(gt=0)]
    unit: Unit
    method: Method
    source: Annotated[str, Field(min_length=8)]


class _ChipDocument(Strict):
    kind: Literal["Chip"]
    schema_version: Literal[1]
    name: Word
    aliases: list[Word] = Field(default_factory=list)
    chip_kind: Literal["gpu", "cpu"]
    description: Word | None = None
    peak_flop_per_s: Annotated[
        dict[Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4", "fp4"], _Figure],
        Field(min_length=1),
    ]
    hbm_bytes_per_s: _Figure
    hbm_bytes: _Figure
    nvlink_bytes_per_s: _Figure | None
    nic_bytes_per_s: _Figure | None
    pcie_bytes_per_s: _Figure | None
    sm_count: _Figure
    gpus_per_node: _Figure


def _without_none_words(data: Any) -> Any:
    """Read the word ``none`` where a link may be absent."""
    links = ("nvlink_bytes_per_s", "nic_bytes_per_s", "pcie_bytes_per_s")
    if not isinstance(data, dict):
        return data
    return {k: None if k in links and v == "none" else v for k, v in data.items()}


def _check_figure(
    document: Document, kind: str, path: tuple[str, ...], figure: _Figure
) -> list[Problem]:
    unit, low, high = _WINDOWS[kind][path[0]]
    label = ".".join(path)
    if figure.unit != unit:
        message = f"wrong unit for {label}"
        got = shown(figure.unit)
        return [problem_at(document, (*path, "unit"), message, got=got, allowed=unit)]
    problems = []
    if not low <= figure.value <= high:
        problems.append(
            problem_at(
                document,
                (*path, "value"),
                f"{label} is not plausible for a {kind} in {unit}",
                got=f"{figure.value:g}",
                allowed=f"{low:g} to {high:g}",
                hint="write it in SI units, for example 3.35e12 for 3.35 TB/s"
                if unit != "count"
                else None,
            )
        )
    elif path[0] in _WHOLE and figure.value != int(figure.value):
        message = f"{label} must be a whole number"
        problems.append(problem_at(document, (*path, "value"), message, got=f"{figure.value!r}"))
    return problems


def _parsed(path: Path) -> _ChipDocument:
    document = load_yaml(path)
    plain = Document(
        document.file, _without_none_words(document.data), document.keys, document.values
    )
    parsed = parse_as(plain, _ChipDocument)
    problems = []
    for dtype, figure in parsed.peak_flop_per_s.items():
        where = ("peak_flop_per_s", dtype)
        problems += _check_figure(document, parsed.chip_kind, where, figure)
    for name in _SINGLE:
        figure_or_none = getattr(parsed, name)
        if figure_or_none is not None:
            problems += _check_figure(document, parsed.chip_kind, (name,), figure_or_none)
    if problems:
        raise InputError(problems)
    return parsed


def load_chip(path: Path) -> Chip:
    """Read a chip document.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Returns
    -------
    Chip
        The chip; a link that the document calls ``none`` is 0.

    Raises
    ------
    InputError
        With every problem: unknown, repeated or missing keys, wrong types or units,
        values that no part can have.
    """
    parsed = _parsed(path)

    def rate(figure: _Figure | None) -> float:
        return figure.value if figure is not None else 0.0

    return Chip(
        name=parsed.name,
        peak_flop_per_s=tuple(
            (dtype, figure.value) for dtype, figure in sorted(parsed.peak_flop_per_s.items())
        ),
        hbm_bytes_per_s=parsed.hbm_bytes_per_s.value,
        hbm_bytes=int(parsed.hbm_bytes.value),
        nvlink_bytes_per_s=rate(parsed.nvlink_bytes_per_s),
        nic_bytes_per_s=rate(parsed.nic_bytes_per_s),
        pcie_bytes_per_s=rate(parsed.pcie_bytes_per_s),
        sm_count=int(parsed.sm_count.value),
        gpus_per_node=int(parsed.gpus_per_node.value),
        kind=parsed.chip_kind,
    )


def chip_figures(path: Path) -> tuple[Figure, ...]:
    """Read the figures of a chip document with their evidence.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Returns
    -------
    tuple of Figure
        Peaks first, by data type, then the others in the order of ``Chip``.

    Raises
    ------
    InputError
        As :func:`load_chip`.
    """
    parsed = _parsed(path)
    named: list[tuple[str, _Figure | None]] = [
        (f"peak_flop_per_s.{dtype}", figure)
        for dtype, figure in sorted(parsed.peak_flop_per_s.items())
    ]
    named += [(name, getattr(parsed, name)) for name in _SINGLE]
    return tuple(
        Figure(name, figure.value, figure.unit, figure.method, figure.source)
        for name, figure in named
        if figure is not None
    )


def chip_entries(folder: Path) -> tuple[Entry, ...]:
    """Return the names and aliases of the chip documents of a folder.

    Parameters
    ----------
    folder : pathlib.Path
        The folder, for example ``calib/chips``.

    Returns
    -------
    tuple of Entry
        One per document, by file name.

    Raises
    ------
    InputError
        When the folder is missing, a document is not valid, or two share a name.
    """

    def names(path: Path) -> tuple[str, ...]:
        parsed = _parsed(path)
        return (parsed.name, *parsed.aliases)

    return index(folder, "chip", names)


def find_chip(name: str, folder: Path, place: Place | None = None) -> Chip:
    """Find a chip document by name or alias.

    Parameters
    ----------
    name : str
        The name, or an alias as engines and NVML print it; case does not matter.
    folder : pathlib.Path
        The folder of chip documents.
    place : Place, optional
        Where the name was stated, for the complaint; by default the folder.

    Returns
    -------
    Chip
        The chip.

    Raises
    ------
    InputError
        When no document has the name; it lists the known names and the nearest one.
    """
    return load_chip(find(name, chip_entries(folder), "GPU", place or Place(str(folder))))
