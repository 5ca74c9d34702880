"""``ingest --follow``: storing a log while it grows, and saying how it goes."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING

from kernelfit.cli.files import STANDARD_INPUT, refuse
from kernelfit.cli.ingesting import Reading
from kernelfit.cli.places import store_folder
from kernelfit.cli.screen import Screen
from kernelfit.cli.verb import OK

if TYPE_CHECKING:
    from kernelfit.store.follow import Follower

POLL_S = 0.5
"""Pause between two looks at the log [s]."""

COMMIT_S = 10.0
"""Time after which new steps become a part of the store [s]."""

SAID_S = 10.0
"""Pause between two lines about the progress where there is no terminal [s]."""


def follow_log(screen: Screen, sources: Sequence[Path], out: Path, reading: Reading) -> int:
    """Store a log while it grows, until the process is interrupted.

    Parameters
    ----------
    screen : Screen
        Where it is said.
    sources : sequence of pathlib.Path
        One log or recording.
    out : pathlib.Path
        The store stands below it.
    reading : Reading
        What the user said about the log.

    Returns
    -------
    int
        Exit status.

    Raises
    ------
    InputError
        When there is not exactly one log, or it cannot be followed.
    """
    from kernelfit.logs.discover import discover
    from kernelfit.store.commit import staging
    from kernelfit.store.follow import Follower

    if len(sources) != 1 or str(sources[0]) == STANDARD_INPUT:
        raise refuse("--follow", "takes one log", got=" ".join(map(str, sources)), allowed="1 path")
    if reading.dry_run or reading.scheduler is not None:
        raise refuse("--follow", "cannot be used with --dry-run or --scheduler")
    found = discover(sources[0], reading.overrides)
    if len(found) != 1:
        names = ", ".join(source.name for source in found[:5])
        raise refuse(sources[0], "holds several logs", got=names, allowed="one to follow")
    stop = Event()
    with _signals(stop), staging(store_folder(out)) as folder:
        follower = Follower(found[0], store_folder(out), folder, reading.overrides, reading.calib)
        with _told(screen) as tell:
            _follow(follower, stop, tell)
        follower.finish()
    lines, steps, rejected = follower.totals()
    runs = ", ".join(follower.run_ids) or "nothing"
    if screen.json:
        screen.document(
            {
                "schema": "kernelfit.follow/1",
                "lines": lines,
                "steps": steps,
                "rejected": rejected,
                "runs": follower.run_ids,
            }
        )
    else:
        screen.line(f"stopped: {steps:,} steps, {rejected:,} lines rejected; stored {runs}")
    return OK


def _follow(follower: Follower, stop: Event, tell: Callable[[str], None]) -> None:
    committed = began = time.monotonic()
    before = (began, 0)
    rotations = 0
    while not stop.is_set():
        moved = follower.poll()
        now = time.monotonic()
        _, steps, rejected = follower.totals()
        # The first part waits until the log's past is read, so that a run that was
        # followed before is not replaced by less than it held.
        if not moved and (now - committed >= COMMIT_S or not follower.run_ids):
            follower.commit()
            committed = now
        if now - before[0] >= 1.0 or not moved:
            rate = (steps - before[1]) / max(now - before[0], 1e-9)
            before = (now, steps)
            tell(f"{follower.name}: {steps:,} steps, {rate:,.0f}/s, {rejected:,} rejected")
        if follower.rotations > rotations:
            rotations = follower.rotations
            tell(f"the log was rotated or the engine was started anew: run {follower.name}")
        if not moved:
            stop.wait(POLL_S)


@contextlib.contextmanager
def _signals(stop: Event) -> Iterator[None]:
    """Take the first interrupt as a request to stop."""

    def ask(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _told(screen: Screen) -> Iterator[Callable[[str], None]]:
    """Show one living line on a terminal, and a line now and then elsewhere."""
    if not screen.quiet and sys.stderr.isatty():
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(console=Console(file=sys.stderr), transient=True) as live:
            yield lambda text: live.update(Text(text))
        return
    last_s, last = float("-inf"), ""

    def say(text: str) -> None:
        nonlocal last_s, last
        now = time.monotonic()
        news = text.startswith("the log")
        if news or (now - last_s >= SAID_S and text != last):
            last_s, last = (last_s if news else now), text
            screen.note(text)

    yield say
