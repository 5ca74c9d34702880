"""A recording against the engine's own printed steps of the same run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernelfit.documents.problems import InputError, Problem
from kernelfit.logs.feed import Feed, recorder_files
from kernelfit.logs.row_columns import StepColumns
from kernelfit.logs.vllm_log import iteration_tokens

LOG_NAMES = ("engine.log", "engine.log.gz")


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One step at which the recording and the engine's log disagree.

    Attributes
    ----------
    iteration : int
        Index that the engine printed; -1 where it printed no such step.
    ordinal : int
        Ordinal that the recorder wrote; -1 where it wrote no such step.
    printed_tokens, recorded_tokens : int
        Tokens of the step on either side [tokens]; -1 where missing.
    """

    iteration: int
    ordinal: int
    printed_tokens: int
    recorded_tokens: int


def iteration_mismatches(run_folder: Path) -> tuple[Mismatch, ...]:
    """Compare token totals at every step of a recording with one engine.

    The engine does not print steps without tokens and does not count them, while the
    recorder's ordinals count every call: so the n-th printed step is the n-th
    recorded step that has tokens. Both files may end early, as the engine is killed
    at shutdown and its last lines wait in a pipe; a missing end is reported too.

    Parameters
    ----------
    run_folder : pathlib.Path
        A recording with ``engine.log`` or ``engine.log.gz`` beside it.

    Returns
    -------
    tuple of Mismatch
        Empty when both agree at every step.

    Raises
    ------
    InputError
        When the folder lacks either side, or the recording has several engines.
    """
    log = next((p for n in LOG_NAMES if (p := run_folder / n).is_file()), None)
    files = recorder_files(run_folder, "engine")
    problems = []
    if log is None:
        message = "the recording has no engine.log beside it"
        problems.append(Problem(str(run_folder), None, None, message))
    if len(files) != 1:
        message = "the comparison needs a recording with exactly one engine"
        got = f"{len(files)} engine files"
        problems.append(Problem(str(run_folder), None, None, message, got=got))
    if problems or log is None:
        raise InputError(problems)
    printed = [(index, tokens) for _, index, tokens in iteration_tokens(log)]
    rows = _recorded(files[0])
    found = []
    for place in range(max(len(printed), len(rows))):
        iteration, said = printed[place] if place < len(printed) else (-1, -1)
        ordinal, recorded = rows[place] if place < len(rows) else (-1, -1)
        if said != recorded:
            found.append(Mismatch(iteration, ordinal, said, recorded))
    return tuple(found)


def _recorded(path: Path) -> list[tuple[int, int]]:
    """Return ordinal and tokens of every step that has tokens, in order."""
    feed: Feed[StepColumns] = Feed(path, "engine")
    while feed.advance():
        pass
    steps = feed.take(None)
    if steps is None:
        return []
    rows = zip(steps.ordinal.tolist(), steps.tokens.tolist(), strict=True)
    return [(ordinal, tokens) for ordinal, tokens in rows if tokens > 0]
