"""The program's entry."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup
from typer.main import get_command

from kernelfit import __version__
from kernelfit.cli import (
    diff_verb,
    documents_verbs,
    fit_verbs,
    flips_verb,
    freeze_verb,
    kernel_verbs,
    plan_verb,
    record_verb,
    result_verbs,
    show_verb,
    validate_verb,
)
from kernelfit.cli.screen import Screen
from kernelfit.cli.settings import PREFIX, default_map, from_file
from kernelfit.cli.verb import close_output, run

SUMMARY = """Step logs of LLM serving engines in, a calibrated cost model out.

\b
Example:
  kernelfit fit traces/

Results go to standard output, everything else to standard error. Exit status: 0 fine, 1 the check
said no, 2 bad usage or bad input. Options may also stand in kernelfit.toml or in variables such as
KERNELFIT_FIT_DRAWS; kernelfit env shows which do, and from where.
"""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kernelfit {__version__}")
        raise typer.Exit


def build() -> typer.Typer:
    """Return the command line with every verb.

    Returns
    -------
    typer.Typer
        The application; nothing heavy is imported yet.
    """
    app = typer.Typer(
        name="kernelfit",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )

    @app.callback(help=SUMMARY)
    def root(
        version: Annotated[
            bool,
            typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
        ] = False,
    ) -> None:
        del version

    groups = (
        fit_verbs,
        freeze_verb,
        validate_verb,
        diff_verb,
        flips_verb,
        plan_verb,
        kernel_verbs,
        record_verb,
        result_verbs,
        show_verb,
        documents_verbs,
    )
    for group in groups:
        group.register(app)
    return app


def command_line() -> TyperGroup:
    """Return the command line as one group of commands.

    Returns
    -------
    typer.core.TyperGroup
        Verbs with their options; what the reference and the settings are made from.
    """
    group = get_command(build())
    assert isinstance(group, TyperGroup)
    for command in group.commands.values():
        for parameter in command.params:
            # Said once for all of them in the program's own help.
            vars(parameter)["show_envvar"] = False
    return group


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after the program's name; those of the process when None.

    Returns
    -------
    int
        The exit status.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)

    def command() -> int:
        group = command_line()
        defaults = default_map(from_file(group, Path()))
        try:
            group(
                args=words,
                prog_name="kernelfit",
                obj=words,
                auto_envvar_prefix=PREFIX,
                default_map=defaults,
            )
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        return 0

    code = run(Screen(debug="--debug" in words), command)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        close_output()
    return code


if __name__ == "__main__":
    raise SystemExit(main())
