"""What a target is, what it answers with, and what it may be asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.fitted import FittedKernel


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
class ExportedFile:
    """One file of an export.

    Attributes
    ----------
    path : str
        Its place within the export's folder, with slashes.
    data : str or bytes
        Its whole content; text is written as UTF-8.
    """

    path: str
    data: str | bytes

    @property
    def content(self) -> bytes:
        """The bytes of the file."""
        return self.data.encode("utf-8") if isinstance(self.data, str) else self.data


@dataclass(frozen=True, slots=True)
class Setting:
    """Something that a target lets the caller choose.

    Attributes
    ----------
    name : str
        Its name, as in ``--set NAME=VALUE``.
    default : str
        What holds where nothing is said.
    meaning : str
        One line for lists and help.
    """

    name: str
    default: str
    meaning: str


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What an export needs beside the kernel.

    Attributes
    ----------
    kernel_file : str
        Name of the kernel's file, without its folder; it stands in the command that every
        export carries, and its stem begins the names of the files.
    version : str
        Version of kernelfit.
    settings : mapping of str to str
        What was chosen with ``--set``.
    """

    kernel_file: str = "kernel.json"
    version: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        """The kernel's file name without its ending."""
        return self.kernel_file.removesuffix(".json")

    def command(self, target: str) -> str:
        """Return the command that makes the export.

        Parameters
        ----------
        target : str
            Name of the target.

        Returns
        -------
        str
            To be run in the kernel's folder.
        """
        chosen = "".join(f" --set {name}={self.settings[name]}" for name in sorted(self.settings))
        return f"kernelfit export {target} {self.kernel_file}{chosen}"


Files = tuple[ExportedFile, ...]
Write = Callable[[FittedKernel, ExportOptions], Files]
Missing = Callable[[FittedKernel, ExportOptions], tuple[NotExpressed, ...]]
Check = Callable[[Files], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Target:
    """One format.

    Attributes
    ----------
    name : str
        What the command line calls it.
    title : str
        What it is, in a line.
    holds : tuple of str
        What it can express, whatever the kernel.
    lacks : tuple of str
        What it cannot, whatever the kernel.
    source : str
        Where its rules are published, with the version that they were read from.
    export : callable
        From a kernel and the options to the files.
    check : callable
        From the files to what is wrong with them under the target's own loading rules, one
        line each; empty where they load.
    missing : callable
        From a kernel and the options to what this export of this kernel leaves out.
    settings : tuple of Setting
        What ``--set`` may choose.
    """

    name: str
    title: str
    holds: tuple[str, ...]
    lacks: tuple[str, ...]
    source: str
    export: Write
    check: Check
    missing: Missing = lambda _kernel, _options: ()
    settings: tuple[Setting, ...] = ()


def setting(target_settings: tuple[Setting, ...], options: ExportOptions, name: str) -> str:
    """Return what holds for a setting: what was chosen, else its default.

    Parameters
    ----------
    target_settings : tuple of Setting
        What the target lets the caller choose.
    options : ExportOptions
        What was chosen.
    name : str
        Name of the setting.

    Returns
    -------
    str
        The value.
    """
    default = next(each.default for each in target_settings if each.name == name)
    return options.settings.get(name, default)


def integers(name: str, text: str, least: int = 0) -> tuple[int, ...]:
    """Read a list of whole numbers, ``1,2,4``.

    Parameters
    ----------
    name : str
        Name of the setting, for the message.
    text : str
        The list.
    least : int
        Smallest number that is allowed.

    Returns
    -------
    tuple of int
        Ascending, each once.

    Raises
    ------
    InvalidArgument
        When it is none, or a number is too small.
    """
    allowed = f"whole numbers from {least} on, separated by commas, as in 1,2,4"
    try:
        numbers = sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise InvalidArgument(name, text, allowed) from None
    if numbers[0] < least:
        raise InvalidArgument(name, text, allowed)
    return tuple(numbers)


def number(name: str, text: str) -> float:
    """Read a number that is finite and not negative.

    Parameters
    ----------
    name : str
        Name of the setting, for the message.
    text : str
        The number.

    Returns
    -------
    float
        Its value, in the unit of the setting [1].

    Raises
    ------
    InvalidArgument
        When it is none.
    """
    try:
        value = float(text)
    except ValueError:
        raise InvalidArgument(name, text, "a number >= 0") from None
    if not 0.0 <= value < float("inf"):
        raise InvalidArgument(name, text, "a finite number >= 0")
    return value


def provenance(target: str, kernel: FittedKernel, options: ExportOptions) -> dict[str, str]:
    """Return where an export comes from: the same kernel always gives the same words.

    Parameters
    ----------
    target : str
        Name of the target.
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options.

    Returns
    -------
    dict of str to str
        ``made_by``, ``command``, ``kernel`` and ``calibration`` (digests), ``model``,
        ``gpu``, ``engine_version``. No date, no place.
    """
    return {
        "made_by": f"kernelfit {options.version}".rstrip(),
        "command": options.command(target),
        "kernel": kernel.digest,
        "calibration": kernel.fitted.calibration,
        "model": kernel.plan.model.name,
        "gpu": kernel.plan.chip.name,
        "engine_version": kernel.plan.engine_version,
    }


def comment(target: str, kernel: FittedKernel, options: ExportOptions) -> str:
    """Return the provenance as comment lines for formats that know ``#``.

    Parameters
    ----------
    target : str
        Name of the target.
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options.

    Returns
    -------
    str
        One line per entry, each ending in a newline.
    """
    entries = provenance(target, kernel, options).items()
    return "".join(f"# {name}: {value}\n" for name, value in entries)
