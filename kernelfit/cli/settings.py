"""Options from a configuration file and from the environment, and where each came from.

A flag wins over the environment, the environment over ``kernelfit.toml`` (or the table
``[tool.kernelfit]`` of ``pyproject.toml``) in the working directory, that over the default.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelfit.documents.problems import InputError, Problem, did_you_mean, shown

if TYPE_CHECKING:
    from typer.core import TyperGroup, TyperOption

PREFIX = "KERNELFIT"
FILES = ("kernelfit.toml", "pyproject.toml")
OTHER_VARIABLES = {
    "KERNELFIT_TRACE_DIR": "where the recorder writes, inside the engine",
    "KERNELFIT_GPU": "the GPU type that the recorder states",
    "KERNELFIT_SPEED_PROBE": "how often the recorder times a fixed piece of work",
}
"""Variables of the recorder, which are no options of a verb."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One option that is not left at its default.

    Attributes
    ----------
    verb, option : str
        Which option.
    value : object
        Its value as it was written.
    origin : str
        ``file:line`` or the variable's name.
    own : bool
        Whether it is said of this verb alone.
    """

    verb: str
    option: str
    value: Any
    origin: str
    own: bool = True


def from_file(group: TyperGroup, folder: Path) -> tuple[Setting, ...]:
    """Read the configuration file of a folder.

    Parameters
    ----------
    group : TyperGroup
        The command line, whose verbs and options are known.
    folder : pathlib.Path
        The working directory.

    Returns
    -------
    tuple of Setting
        What it sets, a key before the tables for every verb that has the option; empty where
        there is no file.

    Raises
    ------
    InputError
        With every key that is unknown and every value that its option does not take.
    """
    for name in FILES:
        path = folder / name
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            data = _parsed(path.name, text)
            table = data if name == FILES[0] else data.get("tool", {}).get("kernelfit")
            if isinstance(table, dict):
                return _settings(group, path.name, text, table)
    return ()


def _parsed(name: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        line, column = (int(place[1]), int(place[2])) if place else (None, None)
        words = re.sub(r" \(at .*\)$", "", str(error))
        raise InputError([Problem(name, line, column, f"is no TOML: {words}")]) from None


def _settings(
    group: TyperGroup, file: str, text: str, table: Mapping[str, Any]
) -> tuple[Setting, ...]:
    problems: list[Problem] = []
    found: list[Setting] = []
    everywhere = {name for _, options in _verbs(group) for name in options}
    for key, value in table.items():
        if isinstance(value, dict):
            verbs = dict(_verbs(group))
            if key not in verbs:
                problems.append(_unknown(file, text, key, "", "verb", list(verbs)))
                continue
            for option, each in value.items():
                line = _line(text, option, key)
                if _field(option) not in verbs[key]:
                    problems.append(
                        _unknown(file, text, option, key, f"option of {key}", list(verbs[key]))
                    )
                    continue
                problems += _refused(group, file, line, key, option, each)
                found.append(Setting(key, _field(option), each, f"{file}:{line}"))
        elif _field(key) not in everywhere:
            problems.append(_unknown(file, text, key, "", "option", sorted(everywhere)))
        else:
            line = _line(text, key, "")
            for verb, options in _verbs(group):
                if _field(key) in options:
                    problems += _refused(group, file, line, verb, key, value)
                    found.append(Setting(verb, _field(key), value, f"{file}:{line}", own=False))
    if problems:
        raise InputError(problems)
    # What a verb's own table says comes last and wins.
    return tuple(sorted(found, key=lambda setting: setting.own))


def _unknown(file: str, text: str, key: str, table: str, what: str, known: list[str]) -> Problem:
    names = [name.replace("_", "-") for name in known]
    return Problem(
        file,
        _line(text, key, table),
        1,
        f"no {what} is called {key}",
        allowed=", ".join(names),
        hint=did_you_mean(key.replace("_", "-"), names),
    )


def _refused(
    group: TyperGroup, file: str, line: int | None, verb: str, key: str, value: Any
) -> list[Problem]:
    """Ask the option itself whether it takes a value."""
    from typer import BadParameter, Context

    command = group.commands[verb]
    option = dict(_verbs(group))[verb][_field(key)]
    try:
        option.process_value(Context(command, info_name=verb), value)
    except BadParameter as error:
        words = " ".join(str(error).split())
        return [Problem(file, line, None, f"{verb}: {key}: {words}", got=shown(value))]
    return []


def _line(text: str, key: str, table: str) -> int | None:
    """Return the line of a key in a table; tomllib does not keep it."""
    current = ""
    spelled = {key, key.replace("_", "-"), key.replace("-", "_")}
    for number, line in enumerate(text.splitlines(), 1):
        head = re.match(r"\s*\[\s*([\w.\"-]+)\s*\]", line)
        if head:
            current = head[1].removeprefix("tool.kernelfit").removeprefix(".").strip('"')
            if not table and current in spelled:
                return number
            continue
        found = re.match(r"\s*\"?([\w-]+)\"?\s*=", line)
        if found and found[1] in spelled and current == table:
            return number
    return None


def _field(key: str) -> str:
    return key.replace("-", "_")


def _verbs(group: TyperGroup) -> Iterator[tuple[str, dict[str, TyperOption]]]:
    from typer.core import TyperOption

    for verb, command in group.commands.items():
        yield (
            verb,
            {
                str(param.name): param
                for param in command.params
                if isinstance(param, TyperOption) and param.name not in (None, "help")
            },
        )


def from_environment(
    group: TyperGroup, environment: Mapping[str, str] | None = None
) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """Return the options that the environment sets.

    Parameters
    ----------
    group : TyperGroup
        The command line.
    environment : mapping of str to str, optional
        The environment; that of the process when not given.

    Returns
    -------
    tuple of Setting
        What it sets.
    tuple of str
        Variables that begin like ours and are none.
    """
    stated = os.environ if environment is None else environment
    known = {
        variable(verb, option): (verb, option)
        for verb, options in _verbs(group)
        for option in options
    }
    ours = sorted(
        name for name in stated if name.startswith(f"{PREFIX}_") and name not in OTHER_VARIABLES
    )
    found = tuple(Setting(*known[name], stated[name], name) for name in ours if name in known)
    return found, tuple(name for name in ours if name not in known)


def variable(verb: str, option: str) -> str:
    """Return the variable that sets an option.

    Parameters
    ----------
    verb, option : str
        Such as ``fit`` and ``draws``.

    Returns
    -------
    str
        Such as ``KERNELFIT_FIT_DRAWS``.
    """
    return f"{PREFIX}_{verb}_{option}".replace("-", "_").upper()


def default_map(settings: tuple[Setting, ...]) -> dict[str, dict[str, Any]]:
    """Return settings as the command line takes them for defaults.

    Parameters
    ----------
    settings : tuple of Setting
        From :func:`from_file`.

    Returns
    -------
    dict
        Values by verb and option.
    """
    defaults: dict[str, dict[str, Any]] = {}
    for setting in settings:  # the last one wins
        defaults.setdefault(setting.verb, {})[setting.option] = setting.value
    return defaults
