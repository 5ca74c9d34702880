"""Running the program as a user does, inside the test's own process."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema

from kernelfit.cli.main import command_line, main
from kernelfit.cli.schemas import schema_of, verbs_with_schema

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "cli"
VERBS = tuple(command_line().commands)


@dataclass(frozen=True)
class Outcome:
    """What one command left."""

    code: int
    out: str
    err: str
    verb: str = ""

    def json(self) -> Any:
        """Return standard output as one strict JSON document that follows its schema."""
        document = json.loads(self.out, parse_constant=_refuse)
        if self.verb in verbs_with_schema():
            jsonschema.Draft202012Validator(schema_of(self.verb)).validate(document)
        return document


def _refuse(word: str) -> float:
    raise AssertionError(f"{word} in the output is no JSON")


def kernelfit(*words: str | Path) -> Outcome:
    """Run one command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return Outcome(code, out.getvalue(), err.getvalue(), str(words[0]) if words else "")


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder with its contents."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
