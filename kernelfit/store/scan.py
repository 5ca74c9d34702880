"""Reading the store back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from kernelfit.documents.problems import InputError, Problem
from kernelfit.kernel.model import Model
from kernelfit.kernel.pool import Pool
from kernelfit.store.commit import OLD_SUFFIX, replaced_name
from kernelfit.store.pruning import Scan, scan_files
from kernelfit.store.schema import ADDED_TABLES, SCHEMAS, STORE_VERSION, VERSION_KEY
from kernelfit.store.write import table_file


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of the store; tables are read when they are asked for.

    Attributes
    ----------
    folder : pathlib.Path
        The run's folder.
    row : mapping of str to object
        Its row of the ``runs`` table.
    """

    folder: Path
    row: Mapping[str, Any]

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return str(self.row["run_id"])

    @property
    def gpu(self) -> str | None:
        """Name of the chip document; None when the run does not say."""
        value = self.row["gpu"]
        return None if value is None else str(value)

    @property
    def model_name(self) -> str | None:
        """The model's name in reports; None when the run does not say."""
        value = self.row["model_name"]
        return None if value is None else str(value)

    @property
    def timing(self) -> str:
        """What a duration means."""
        return str(self.row["timing"])

    @property
    def fit_refused_reason(self) -> str | None:
        """Why a fit must not use the run; None when it may."""
        value = self.row["fit_refused_reason"]
        return None if value is None else str(value)

    @property
    def steps_kept_for_checking(self) -> bool:
        """Whether a fit leaves the run's steps alone."""
        return self.row.get("fit") == "host"

    @property
    def model(self) -> Model | None:
        """The model; None when the run does not say."""
        text = self.row["model_json"]
        return None if text is None else _rebuild(Model, json.loads(text))

    @property
    def pool(self) -> Pool:
        """The pool as the run states it."""
        pool: Pool = _rebuild(Pool, json.loads(self.row["pool_json"]))
        return pool

    def files(self, name: str) -> tuple[Path, ...]:
        """Return the files of one of the run's tables.

        Parameters
        ----------
        name : str
            A name from ``SCHEMAS``.

        Returns
        -------
        tuple of pathlib.Path
            One; several for a run that was followed, in order; none where the run was
            written before there was such a table.
        """
        parts = 1 if name == "runs" else int(self.row.get("parts") or 1)
        paths = tuple(self.folder / table_file(name, part) for part in range(parts))
        if name in ADDED_TABLES:
            return tuple(path for path in paths if path.is_file())
        return paths

    def table(self, name: str) -> pa.Table:
        """Read one of the run's tables.

        Parameters
        ----------
        name : str
            A name from ``SCHEMAS``.

        Returns
        -------
        pyarrow.Table
            The table, with the store's schema; empty where the run was written before
            there was such a table.
        """
        schema = SCHEMAS[name]
        tables = [pq.read_table(path, schema=schema) for path in self.files(name)]
        return pa.concat_tables(tables) if tables else schema.empty_table()

    def scan(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        where: Mapping[str, tuple[float, float]] | None = None,
    ) -> Scan:
        """Read what is needed of one of the run's tables.

        Parameters
        ----------
        name : str
            A name from ``SCHEMAS``.
        columns : sequence of str, optional
            Columns that are read; all without it.
        where : mapping of str to (float, float), optional
            Least and largest value of a column that is wanted. Row groups whose statistics
            rule out every row are not read; in the others null is never wanted.

        Returns
        -------
        Scan
            The rows, and how much of the files was read for them.
        """
        return scan_files(self.files(name), SCHEMAS[name], columns, where or {})

    def sample(self, name: str, most_rows: int) -> pa.Table:
        """Read evenly spaced stretches of a table that is too long to read whole.

        Parameters
        ----------
        name : str
            ``steps`` or another of the run's tables.
        most_rows : int
            Rows above which not all are read.

        Returns
        -------
        pyarrow.Table
            Whole row groups in their order, about ``most_rows`` rows of them; the table
            itself where it is no longer.
        """
        rows = self.rows(name)
        if rows <= most_rows:
            return self.table(name)
        places = [
            (path, group)
            for path in self.files(name)
            for group in range(pq.read_metadata(path).num_row_groups)
        ]
        wanted = max(1, len(places) * most_rows // rows)
        chosen = [places[number * len(places) // wanted] for number in range(wanted)]
        tables = []
        for path in dict.fromkeys(path for path, _ in chosen):
            with pq.ParquetFile(path) as file:
                groups = [group for one, group in chosen if one == path]
                tables.append(file.read_row_groups(groups).cast(SCHEMAS[name]))
        return pa.concat_tables(tables)

    def rows(self, name: str) -> int:
        """Return how many rows a table of the run has.

        Parameters
        ----------
        name : str
            The table.

        Returns
        -------
        int
            Its rows.
        """
        return sum(int(pq.read_metadata(path).num_rows) for path in self.files(name))

    @property
    def steps(self) -> pa.Table:
        """The run's steps."""
        return self.table("steps")

    @property
    def requests(self) -> pa.Table:
        """The requests of every step; empty for aggregated logs."""
        return self.table("requests")

    @property
    def events(self) -> pa.Table:
        """Host work outside steps."""
        return self.table("events")

    @property
    def served(self) -> pa.Table:
        """Requests as served."""
        return self.table("served")

    @property
    def observed(self) -> pa.Table:
        """Statistics that the source publishes in place of single requests."""
        return self.table("observed")

    @property
    def intervals(self) -> pa.Table:
        """Lines of the log about stretches of time."""
        return self.table("intervals")


@dataclass(frozen=True, slots=True)
class Store:
    """The runs of a store.

    Attributes
    ----------
    runs : tuple of RunRecord
        In the order of their names.
    """

    runs: tuple[RunRecord, ...]

    def run(self, run_id: str) -> RunRecord:
        """Return one run.

        Parameters
        ----------
        run_id : str
            Its name.

        Returns
        -------
        RunRecord
            The run.

        Raises
        ------
        KeyError
            When the store does not hold it.
        """
        for record in self.runs:
            if record.run_id == run_id:
                return record
        raise KeyError(run_id)


def _rebuild(kind: Any, value: Any) -> Any:
    """Return a dataclass of the core from its JSON form."""
    if value is None:
        return None
    if get_origin(kind) in (Union, UnionType):
        inner = [arg for arg in get_args(kind) if arg is not type(None)]
        return _rebuild(inner[0], value) if len(inner) == 1 else value
    if get_origin(kind) is tuple:
        return tuple(_rebuild(get_args(kind)[0], item) for item in value)
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        return value
    hints = get_type_hints(kind)
    # A store written before a field existed leaves it at its default.
    given = {
        f.name: _rebuild(hints[f.name], value[f.name])
        for f in dataclasses.fields(kind)
        if f.name in value
    }
    return kind(**given)


def _record(folder: Path) -> RunRecord:
    path = folder / "runs.parquet"
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        first = str(error).splitlines()[0][:200]
        raise InputError([Problem(str(path), None, None, f"cannot be read: {first}")]) from error
    stated = (table.schema.metadata or {}).get(VERSION_KEY)
    if stated != str(STORE_VERSION).encode():
        raise InputError(
            [
                Problem(
                    str(path),
                    None,
                    None,
                    "a trace store of another version",
                    got="no version" if stated is None else stated.decode("utf-8", "replace"),
                    allowed=str(STORE_VERSION),
                    hint="ingest the logs again into an empty folder",
                )
            ]
        )
    missing: list[str] = []
    record = None
    if table.num_rows == 1:
        record = RunRecord(folder, table.to_pylist()[0])
        missing = [
            file.name for name in SCHEMAS for file in record.files(name) if not file.is_file()
        ]
    if record is None or missing:
        message = f"the run is not complete: {', '.join(missing) or 'one row is needed'}"
        raise InputError([Problem(str(folder), None, None, message, hint="ingest its log again")])
    return record


def load_store(out: Path) -> Store:
    """Open a trace store.

    Parameters
    ----------
    out : pathlib.Path
        The store's folder; one that does not exist holds no run.

    Returns
    -------
    Store
        Its runs, in the order of their names.

    Raises
    ------
    InputError
        When a run is damaged or of another store version.
    """
    if not out.is_dir():
        return Store(())
    records: list[RunRecord] = []
    problems: list[Problem] = []
    found = {path.parent.name: path.parent for path in out.glob("*/runs.parquet")}
    # What a killed ingestion had set aside to make room, and nothing has taken its place.
    aside = [folder for name, folder in found.items() if name.endswith(OLD_SUFFIX)]
    found = {name: folder for name, folder in found.items() if not name.startswith(".")}
    for folder in aside:
        found.setdefault(replaced_name(folder), folder)
    for _, folder in sorted(found.items()):
        try:
            records.append(_record(folder))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return Store(tuple(records))
