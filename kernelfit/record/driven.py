"""Watching the engine's own calls: how long a coroutine ran, and hooks that never break it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from kernelfit.record.frontend import FrontEnd

_now = time.monotonic_ns


class Driven:
    """An awaitable that drives a coroutine and tells how long it ran each time.

    Parameters
    ----------
    coroutine : coroutine
        What is driven.
    ran : callable
        Told of start and end [ns] of each stretch between two suspensions.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], ran: Callable[[int, int], None]):
        self._coroutine = coroutine
        self._ran = ran

    def __await__(self) -> Generator[Any, Any, Any]:
        """Drive it to its end."""
        coroutine, ran = self._coroutine, self._ran
        value: Any = None
        error: BaseException | None = None
        while True:
            start_ns = _now()
            try:
                waited = coroutine.throw(error) if error else coroutine.send(value)
            except StopIteration as stop:
                ran(start_ns, _now())
                return stop.value
            except BaseException:
                ran(start_ns, _now())
                raise
            ran(start_ns, _now())
            value = error = None
            try:
                value = yield waited
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as raised:  # noqa: BLE001 - it is handed on
                error = raised


def driven(work: Awaitable[Any], ran: Callable[[int, int], None]) -> Awaitable[Any]:
    """Return some work as it is driven, or as it is where it is no plain coroutine.

    Parameters
    ----------
    work : awaitable
        What is awaited.
    ran : callable
        As for ``Driven``.

    Returns
    -------
    awaitable
        Gives the same result.
    """
    return Driven(work, ran) if isinstance(work, Coroutine) else work


def guarded(front: FrontEnd, where: str) -> Callable[[Callable[[], None]], None]:
    """Return what runs a hook's own work.

    Parameters
    ----------
    front : FrontEnd
        Whose recording is switched off when the work fails.
    where : str
        Name of the hook, for the warning.

    Returns
    -------
    callable
        Runs an action while recording is on; an exception switches it off.
    """

    def run(action: Callable[[], None]) -> None:
        if front.recorder.alive:
            try:
                action()
            except Exception as error:  # noqa: BLE001 - a hook must never break the engine
                front.recorder.fail(where, error)

    return run
