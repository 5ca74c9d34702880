"""The same work over many files: here, on all cores, or on the machines of a cluster."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from kernelfit.documents.problems import InputError, Problem

Given = TypeVar("Given")
Found = TypeVar("Found")

SMALLEST_SHARED_BYTES = 64 << 20
"""Bytes of logs below which further processes take longer to start than they save."""


def usual_jobs(tasks: int, total_bytes: int) -> int:
    """Return how many processes read logs when the user does not say.

    Parameters
    ----------
    tasks : int
        Sources.
    total_bytes : int
        Their size [bytes].

    Returns
    -------
    int
        At least 1, at most a process per source and per core.
    """
    if total_bytes < SMALLEST_SHARED_BYTES:
        return 1
    return max(1, min(tasks, len(os.sched_getaffinity(0))))


def spread(
    work: Callable[[Given], Found],
    tasks: Sequence[Given],
    *,
    jobs: int = 1,
    scheduler: str | None = None,
) -> Iterator[Found]:
    """Do the same work for every task.

    Parameters
    ----------
    work : callable
        A function of a module; it is called in any process, perhaps more than once.
    tasks : sequence
        What it is called with.
    jobs : int
        Processes on this machine.
    scheduler : str, optional
        Address of a Dask scheduler whose workers see the same files; it hands the work of
        a worker that dies to another one.

    Yields
    ------
    object
        The results, in the order of the tasks.

    Raises
    ------
    InputError
        When the scheduler cannot be reached, or Dask is not installed.
    """
    if scheduler is None and (jobs <= 1 or len(tasks) <= 1):
        yield from map(work, tasks)
        return
    from joblib import Parallel, delayed, parallel_config

    with contextlib.ExitStack() as stack:
        if scheduler is not None:
            stack.enter_context(_client(scheduler))
            stack.enter_context(parallel_config(backend="dask"))
            # One task per call: a worker that dies takes no finished one with it.
            pool = Parallel(n_jobs=-1, batch_size=1, return_as="generator")
        else:
            pool = Parallel(n_jobs=min(jobs, len(tasks)), batch_size=1, return_as="generator")
        yield from pool(delayed(work)(task) for task in tasks)


def _client(scheduler: str) -> contextlib.AbstractContextManager[Any]:
    try:
        from distributed import Client
    except ImportError:
        raise _refused(
            scheduler, "needs Dask", "install it: pip install 'kernelfit[dask]'"
        ) from None
    try:
        client: contextlib.AbstractContextManager[Any] = Client(
            scheduler, timeout=10, set_as_default=True
        )
    except (OSError, ValueError, TimeoutError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise _refused(scheduler, f"cannot be reached: {first}", "is it running?") from error
    return client


def _refused(scheduler: str, message: str, hint: str) -> InputError:
    return InputError([Problem(f"--scheduler {scheduler}", None, None, message, hint=hint)])
