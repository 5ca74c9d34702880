"""How a function becomes a verb: common options, exit status, one line for every mistake."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from typing import Annotated

import typer

from kernelfit.cli.screen import Screen
from kernelfit.documents.problems import InputError

OK, CHECK_SAID_NO, FAILED = 0, 1, 2
"""Exit status: fine; the check said no; bad usage, bad input or a crash."""
INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

Command = Callable[..., int]

_COMMON = (
    (
        "json",
        Annotated[bool, typer.Option("--json", help="Print one JSON document, SI units.")],
    ),
    (
        "quiet",
        Annotated[bool, typer.Option("--quiet", "-q", help="No notes and no progress.")],
    ),
    (
        "debug",
        Annotated[bool, typer.Option("--debug", help="Show the traceback of a crash.")],
    ),
)

_CONTEXT = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)


def run(screen: Screen, command: Callable[[], int]) -> int:
    """Run a command and turn what goes wrong into words and an exit status.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    command : callable
        Does the work and returns its exit status.

    Returns
    -------
    int
        The exit status.
    """
    try:
        return command()
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except BrokenPipeError:
        # Whoever read the result has read enough; that is no mistake of anyone's.
        close_output()
        return OK
    except KeyboardInterrupt:
        _tell_what_is_left(screen)
        return INTERRUPTED
    except InputError as error:
        for problem in error.problems:
            screen.error(problem.render())
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        screen.error(f"{place}{error.strerror or error}")
        _explain(screen)
    except Exception as error:  # noqa: BLE001 - a crash is told in one line, too
        words = " ".join(str(error).split())
        if _is_refusal(error):
            screen.error(f"kernelfit: {words}")
            _explain(screen)
            return FAILED
        hint = "" if screen.debug else "; --debug shows where"
        screen.error(f"kernelfit: internal error: {type(error).__name__}: {words}{hint}")
        _explain(screen)
    return FAILED


def close_output() -> None:
    """Point standard output at nothing, so that what is still buffered breaks no pipe."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _tell_what_is_left(screen: Screen) -> None:
    """Say what an interrupted run left: every file is whole, and which were written."""
    if screen.left:
        screen.error(f"interrupted; written and whole: {', '.join(screen.left)}")
    else:
        screen.error("interrupted; no result was written, and no file is half-written")


def _is_refusal(error: Exception) -> bool:
    # Imported here, because the core brings numpy along and --help must not wait for it.
    from kernelfit.kernel.errors import KernelError

    return isinstance(error, KernelError)


def _explain(screen: Screen) -> None:
    if screen.debug:
        screen.error(traceback.format_exc().rstrip())


def verb(
    app: typer.Typer, name: str, *, summary: str, example: str, details: str = ""
) -> Callable[[Command], Command]:
    """Return a decorator that makes a function a verb of the command line.

    Parameters
    ----------
    app : typer.Typer
        The command line.
    name : str
        The verb.
    summary : str
        What it does, in a line.
    example : str
        A command that works, shown first in its help.
    details : str
        What else a user needs to know.

    Returns
    -------
    callable
        The decorator; the function takes a :class:`Screen` first, then its own options, and
        returns its exit status.
    """

    def register(function: Command) -> Command:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        common = [
            inspect.Parameter(
                option, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation
            )
            for option, annotation in _COMMON
        ]
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]

        @functools.wraps(function)
        def command(
            *, context: typer.Context, json: bool, quiet: bool, debug: bool, **options: object
        ) -> None:
            screen = Screen(json=json, quiet=quiet, debug=debug, words=tuple(context.obj or ()))
            code = run(screen, lambda: function(screen, **options))
            raise typer.Exit(code)

        parameters = [*own, *common, _CONTEXT]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {item.name: item.annotation for item in parameters}
        text = f"{summary}\n\n\b\nExample:\n  {example}"
        if details:
            text += f"\n\n{details}"
        app.command(name, help=text, short_help=summary)(command)
        return function

    return register
