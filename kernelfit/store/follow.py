"""Storing a log while it grows: finished parts are added to its run, one after the other."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from kernelfit.documents.problems import InputError, Problem
from kernelfit.logs.growing import FOLLOWED, Followed, FollowedRecording, FollowedText, Rotated
from kernelfit.logs.registry import readers
from kernelfit.logs.source import RunSource
from kernelfit.logs.stream import Piece
from kernelfit.store.commit import committing, put_in_place, sync
from kernelfit.store.facts import Documents
from kernelfit.store.ingest import source_key
from kernelfit.store.scan import RunRecord, load_store
from kernelfit.store.schema import SCHEMAS
from kernelfit.store.stage import check_documents, life_name, run_row
from kernelfit.store.write import ROW_GROUP_ROWS, RunWriter, merge_parts, table_file, write_row

MOST_PARTS = 256
"""Parts of a run above which they are merged into one."""

_NEW_ROW = "runs.new"


class Follower:
    """A log on its way into the store, for as long as it grows.

    What was committed is a run of the store like any other, whatever happens next. A log
    that was followed before is read again from its beginning; its earlier runs make way
    when the new one has caught up.

    Parameters
    ----------
    source : RunSource
        The log.
    out : pathlib.Path
        The store; it exists.
    staging : pathlib.Path
        A folder beside its runs for what is not committed yet.
    flags : mapping of str to object
        Facts from flags.
    calib : pathlib.Path
        Folder with ``chips`` and ``models``.

    Attributes
    ----------
    run_ids : list of str
        Runs that were committed.
    steps, rejected, lines : int
        Steps stored, lines rejected and lines read, over all runs.
    pending_steps : int
        Steps that are not committed yet.

    Raises
    ------
    InputError
        When the log's reader cannot follow, or a document is not valid.
    """

    def __init__(
        self,
        source: RunSource,
        out: Path,
        staging: Path,
        flags: Mapping[str, object],
        calib: Path,
    ) -> None:
        if source.reader not in FOLLOWED:
            message = "logs of this reader cannot be followed"
            allowed = ", ".join(FOLLOWED)
            place = str(source.path)
            raise InputError([Problem(place, None, None, message, source.reader, allowed)])
        self._source = source
        self._out = out
        self._staging = staging
        self._flags = flags
        self._documents = Documents(calib)
        check_documents(source, flags, self._documents)
        self._reader = readers()[source.reader]
        self._run: Followed
        if source.reader == "kernelfit":
            self._run = FollowedRecording(source.path)
        else:
            self._run = FollowedText(source, self._reader)
        self._key = source_key(source.path)
        self._stale = tuple(r for r in load_store(out).runs if r.row.get("source_key") == self._key)
        self._base = self._named()
        self._life = 1
        self._part = 0
        self._intervals = 0
        self._writer: RunWriter | None = None
        self.run_ids: list[str] = []
        self.steps = self.rejected = self.lines = 0
        self.pending_steps = 0
        self.rotations = 0

    def _named(self) -> str:
        taken = {r.run_id for r in load_store(self._out).runs} - {r.run_id for r in self._stale}
        base = self._source.run_id
        return base if base not in taken else f"{base}-{self._key[:8]}"

    @property
    def name(self) -> str:
        """The run that is being written."""
        return life_name(self._base, self._life)

    def poll(self) -> bool:
        """Read what is new.

        Returns
        -------
        bool
            Whether there was anything; committed it is not yet.

        Raises
        ------
        InputError
            When a fact of the run is not valid, or the source is no log of its format.
        """
        try:
            return self._read(final=False)
        except Rotated:
            self._end_run()
            self._run = self._run.successor()
            self.rotations += 1
            return True

    def _read(self, *, final: bool) -> bool:
        found = False
        for piece in self._run.poll(final=final):
            if piece.steps.count or piece.rejects:
                found = True
                self._add(piece)
        return found

    def _add(self, piece: Piece) -> None:
        if self._writer is None:
            folder = self._staging / secrets.token_hex(4)
            self._writer = RunWriter(folder, self.name, self._run.summary(), self._part)
        self._writer.add(piece)
        self.pending_steps += piece.steps.count
        if self._part and self.pending_steps >= ROW_GROUP_ROWS:
            self.commit()

    def commit(self) -> bool:
        """Make what was read a part of the store.

        Returns
        -------
        bool
            Whether there was anything to commit.

        Raises
        ------
        InputError
            When a fact of the run is not valid.
        OSError
            When the store cannot be written.
        """
        writer = self._writer
        if writer is None:
            return False
        summary = self._run.summary()
        with writer:
            fresh = summary.intervals[self._intervals :]
            writer.finish(replace(summary, intervals=fresh))
        self._intervals = len(summary.intervals)
        row = run_row(self._source, self._reader, summary, self._flags, self._documents)
        row |= {
            "run_id": self.name,
            "source_digest": f"followed:{self._key}:{self._life}",
            "source_key": self._key,
            "life": 1,
            "lives": 1,
            "parts": self._part + 1,
        }
        target = self._out / self.name
        with committing(self._out):
            if self._part == 0:
                write_row(writer.folder / table_file("runs"), row)
                put_in_place(writer.folder, target)
                self._clear_earlier()
                self.run_ids.append(self.name)
            else:
                self._append(writer.folder, target, row)
        self._part += 1
        self._writer = None
        self.pending_steps = 0
        if self._part > MOST_PARTS:
            self.merge()
        return True

    @staticmethod
    def _append(folder: Path, target: Path, row: Mapping[str, object]) -> None:
        sync(folder)
        for path in sorted(folder.iterdir()):
            path.replace(target / path.name)
        folder.rmdir()
        # The row says how many parts count: only now do the new ones.
        write_row(target / _NEW_ROW, row)
        sync(target)
        (target / _NEW_ROW).replace(target / table_file("runs"))

    def _clear_earlier(self) -> None:
        for record in self._stale:
            if record.run_id != self.name:
                shutil.rmtree(record.folder, ignore_errors=True)
        self._stale = ()

    def merge(self) -> None:
        """Merge the parts of the run into one file per table; the rows stay the same.

        Raises
        ------
        OSError
            When the store cannot be written.
        """
        if self._part < 2:
            return
        record = load_run(self._out, self.name)
        folder = self._staging / secrets.token_hex(4)
        folder.mkdir()
        files = {name: record.files(name) for name in SCHEMAS if name != "runs"}
        merge_parts(folder, self.name, files, record.folder)
        write_row(folder / table_file("runs"), {**record.row, "parts": 1})
        with committing(self._out):
            put_in_place(folder, record.folder)
        self._part = 1

    def _end_run(self) -> None:
        """Store the rest of the run and go on to the next."""
        self._read(final=True)
        self.commit()
        if self._part:
            self.merge()
            counts = self._run.summary().counts
            self.steps += counts.steps
            self.rejected += counts.rejected
            self.lines += counts.lines
            self._life += 1
        self._part = self._intervals = 0

    def totals(self) -> tuple[int, int, int]:
        """Return what was read so far, over all runs.

        Returns
        -------
        tuple of (int, int, int)
            Lines, steps and rejects.
        """
        if not self._part and self._writer is None:
            return self.lines, self.steps, self.rejected
        counts = self._run.summary().counts
        return (
            self.lines + counts.lines,
            self.steps + counts.steps,
            self.rejected + counts.rejected,
        )

    def finish(self) -> None:
        """Store what is left, and merge the parts.

        Raises
        ------
        InputError
            When a fact of the run is not valid.
        """
        # What follows after a rotation was not asked for any more.
        with contextlib.suppress(Rotated):
            self._read(final=False)
        self._end_run()


def load_run(out: Path, name: str) -> RunRecord:
    """Return one run of a store.

    Parameters
    ----------
    out : pathlib.Path
        The store.
    name : str
        The run.

    Returns
    -------
    RunRecord
        The run.
    """
    row = pq.read_table(out / name / table_file("runs")).to_pylist()[0]
    return RunRecord(out / name, row)
