"""Putting finished runs in their place: each whole, whatever kills the process."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

STAGING_PREFIX = ".stage-"
OLD_SUFFIX = ".old"

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


@contextlib.contextmanager
def staging(out: Path) -> Iterator[Path]:
    """Make a folder for an ingestion beside the runs of a store, and clear it away.

    Parameters
    ----------
    out : pathlib.Path
        The store; made when missing, and removed again when it stays empty.

    Yields
    ------
    pathlib.Path
        The folder. Those that killed ingestions left are removed.

    Raises
    ------
    OSError
        When the store cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    sweep(out)
    folder = out / f"{STAGING_PREFIX}{secrets.token_hex(6)}"
    folder.mkdir()
    try:
        with _locked(folder, wait=True):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        # A store that an ingestion left without a run need not stay.
        with contextlib.suppress(OSError):
            out.rmdir()


def sweep(out: Path) -> None:
    """Remove what killed ingestions left; a living one holds the lock of its folder.

    Parameters
    ----------
    out : pathlib.Path
        The store.
    """
    for folder in out.glob(f"{STAGING_PREFIX}*"):
        with contextlib.suppress(OSError), _locked(folder, wait=False):
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path, *, wait: bool) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def committing(out: Path) -> Iterator[None]:
    """Hold a store so that no other process changes it, and mend what a killed one left.

    Parameters
    ----------
    out : pathlib.Path
        The store.

    Yields
    ------
    None
        While it is held.
    """
    with _locked(out, wait=True):
        for old in out.glob(f".*{OLD_SUFFIX}"):
            target = out / replaced_name(old)
            if target.exists():
                shutil.rmtree(old, ignore_errors=True)
            else:
                old.rename(target)
        yield


def replaced_name(old: Path) -> str:
    """Return the name of the run that a set-aside folder holds.

    Parameters
    ----------
    old : pathlib.Path
        A folder whose name begins with a dot and ends in ``.old``.

    Returns
    -------
    str
        The run's name.
    """
    return old.name.removeprefix(".").removesuffix(OLD_SUFFIX).rpartition(".")[0]


def put_in_place(folder: Path, target: Path) -> None:
    """Make a finished folder a run of the store.

    Where the file system can exchange two folders, a reader sees the old run or the new
    one and never none. Elsewhere the old one is set aside for a moment; a store whose
    ingestion was killed right then is read, and mended, from what was set aside.

    Parameters
    ----------
    folder : pathlib.Path
        The finished folder, in the same file system.
    target : pathlib.Path
        The run's place.

    Raises
    ------
    OSError
        When it cannot be moved.
    """
    sync(folder)
    if not target.exists():
        folder.rename(target)
    elif _exchange(folder, target):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        old = target.with_name(f".{target.name}.{secrets.token_hex(4)}{OLD_SUFFIX}")
        target.rename(old)
        folder.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    _sync_folder(target.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders at once; False where that cannot be done."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    names = (os.fsencode(one), os.fsencode(other))
    if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM):
        return False
    raise OSError(code, os.strerror(code), str(other))


def sync(folder: Path) -> None:
    """Have the files of a folder written to the disk.

    Parameters
    ----------
    folder : pathlib.Path
        The folder.
    """
    for path in folder.iterdir():
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
