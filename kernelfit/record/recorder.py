"""What one process records: its files, its two sides, and the switch that ends it."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

from kernelfit.record.facts import FORMAT_VERSION
from kernelfit.record.spans import WorkerSpans
from kernelfit.record.steps import EngineSteps
from kernelfit.record.writer import RowWriter

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_hash() -> str | None:
    """Return a short hash of the machine's boot, without naming the machine.

    Returns
    -------
    str or None
        Twelve hexadecimal digits, equal in processes that share a monotonic clock;
        None where the system does not state its boot.
    """
    try:
        boot = _BOOT_ID.read_bytes().strip()
    except OSError:
        return None
    return hashlib.sha256(boot).hexdigest()[:12]


class Recorder:
    """What is recorded in one process.

    Parameters
    ----------
    folder : pathlib.Path
        The recording's folder; made when missing.
    engine_version : str
        The version string of the engine.

    Attributes
    ----------
    alive : bool
        Whether recording is on; a fault switches it off for good.
    engine : EngineSteps
        The side of the scheduler.
    worker : WorkerSpans
        The side of the worker.
    """

    def __init__(self, folder: Path, engine_version: str) -> None:
        self.folder = folder
        self.engine_version = engine_version
        self._begin()
        # A forked process inherits the hooks, but neither the writer's thread nor its file.
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self.alive = True
        self.engine = EngineSteps(self)
        self.worker = WorkerSpans(self)
        self._writers: dict[str, RowWriter] = {}

    def fail(self, where: str, error: BaseException) -> None:
        """Switch recording off in this process and say so once.

        Parameters
        ----------
        where : str
            The hook that failed.
        error : BaseException
            What it raised.
        """
        if self.alive:
            self.alive = False
            self.engine.forget()
            self.worker.forget()
            print(
                f"kernelfit: recording switched off in this process ({where}: {error!r})",
                file=sys.stderr,
                flush=True,
            )

    def writer(self, role: str, **facts: Any) -> RowWriter:
        """Return the writer of a role, made on first use.

        Parameters
        ----------
        role : str
            ``engine``, ``worker`` or ``frontend``.
        **facts
            What else the file's header states when it is made; None is left out.

        Returns
        -------
        RowWriter
            The writer of this process's file for the role.
        """
        writer = self._writers.get(role)
        if writer is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            header = {
                "t": "header",
                "format": "kernelfit",
                "version": FORMAT_VERSION,
                "role": role,
                "pid": os.getpid(),
                "ppid": os.getppid(),
                "boot": boot_hash(),
                "engine": "vllm",
                "engine_version": self.engine_version,
                **facts,
            }
            stated = {key: value for key, value in header.items() if value is not None}
            writer = self._writers[role] = RowWriter(
                self.folder / f"{role}-{os.getpid()}.jsonl",
                stated,
                lambda error: self.fail("writing rows", error),
            )
        return writer
