"""A table of step times over a grid of batches, as CSV and Parquet with described columns."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kernelfit.documents.canonical import dumps
from kernelfit.export.base import (
    ExportedFile,
    ExportOptions,
    Files,
    NotExpressed,
    Setting,
    Target,
    integers,
    number,
    provenance,
    setting,
)
from kernelfit.kernel.batch import Batch, RequestShape
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.limits import check_batch
from kernelfit.kernel.resources import Resource

SCHEMA = "kernelfit.grid/1"
_RESOURCES = (Resource.SM, Resource.HBM, Resource.NVLINK, Resource.NIC, Resource.HOST)

COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("kind", "", "decode, prefill or mixed"),
    ("decode_requests", "requests", "requests that schedule one token each"),
    ("decode_context", "tokens", "tokens in the KV cache of each of them before the step"),
    ("prefill_requests", "requests", "requests that schedule a chunk of their prompt"),
    ("prefill_tokens", "tokens", "tokens of that chunk"),
    ("prefill_computed", "tokens", "tokens of the prompt that were computed before"),
    ("requests", "requests", "requests in the step"),
    ("tokens", "tokens", "tokens scheduled in the step"),
    ("launched", "", "full, piecewise or none: how the step is captured as a graph"),
    ("overlap_s", "s", "least step time: resources of a layer work at the same time"),
    ("no_overlap_s", "s", "most step time: nothing overlaps"),
    ("mean_s", "s", "fitted step time"),
    ("low_s", "s", "lower end of the prediction interval around mean_s"),
    ("high_s", "s", "upper end of it"),
    ("level", "1", "nominal coverage of the interval"),
    *((f"{r.value}_s", "s", f"time on {r.value}, without regard to overlap") for r in _RESOURCES),
    ("bottleneck", "", "the resource that most time is spent on"),
    ("in_domain", "", "whether the calibration has seen such batches; else extrapolated"),
)
"""Name, unit and meaning of every column, in their order."""

_SETTINGS = (
    Setting("requests", "1,2,4,8,16,32,64,128,256,512,1024", "decoding requests"),
    Setting("context", "128,512,1024,2048,4096,8192,16384,32768", "tokens in each one's KV"),
    Setting("chunk", "16,64,256,512,1024,2048,4096,8192,16384", "tokens of a prompt in a step"),
    Setting("computed", "0,2048,8192", "tokens of the prompt computed before"),
    Setting("beside", "1,8,64,256", "decoding requests beside a chunk; 0 leaves mixed steps out"),
    Setting("level", "0.9", "coverage of the interval"),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One batch of the grid.

    Attributes
    ----------
    kind : str
        ``decode``, ``prefill`` or ``mixed``.
    decode_requests, decode_context : int
        Requests that schedule one token, and what each has in its KV.
    prefill_tokens, prefill_computed : int
        Tokens of a prompt that are scheduled, and those before them; both 0 without one
        [tokens].
    """

    kind: str
    decode_requests: int
    decode_context: int
    prefill_tokens: int
    prefill_computed: int

    def batch(self) -> Batch:
        """Return the batch.

        Returns
        -------
        Batch
            Decodes, then the chunk.
        """
        shapes: tuple[RequestShape, ...] = ()
        if self.decode_requests:
            shapes = Batch.decode(self.decode_requests, self.decode_context).requests
        if self.prefill_tokens:
            length = self.prefill_tokens + self.prefill_computed
            shapes += (RequestShape(self.prefill_tokens, self.prefill_computed, length),)
        return Batch(shapes)


def _grid(options: ExportOptions) -> Iterator[Cell]:
    def axis(name: str, least: int) -> tuple[int, ...]:
        return integers(name, setting(_SETTINGS, options, name), least)

    chunks, contexts = axis("chunk", 2), axis("context", 1)
    for requests in axis("requests", 1):
        for context in contexts:
            yield Cell("decode", requests, context, 0, 0)
    for chunk in chunks:
        for computed in axis("computed", 0):
            yield Cell("prefill", 0, 0, chunk, computed)
    for requests in axis("beside", 0):
        for context in contexts if requests else ():
            for chunk in chunks:
                yield Cell("mixed", requests, context, chunk, 0)


def grid_rows(
    kernel: FittedKernel, options: ExportOptions
) -> tuple[tuple[dict[str, Any], ...], int]:
    """Price the grid.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options; the axes are settings.

    Returns
    -------
    tuple of dict
        One per batch, with the entries of ``COLUMNS``; times in [s].
    int
        Batches of the grid that the pool would never run, and which are left out.

    Raises
    ------
    InvalidArgument
        When a setting is no list of counts, or the pool runs none of the batches.
    """
    level = number("level", setting(_SETTINGS, options, "level"))
    rows: list[dict[str, Any]] = []
    left_out = 0
    for cell in _grid(options):
        batch = cell.batch()
        try:
            check_batch(kernel.plan, batch, kernel.totals(batch))
        except InvalidArgument:
            left_out += 1
            continue
        rows.append(_row(kernel, cell, batch, level))
    if not rows:
        limits = kernel.plan.resolution
        raise InvalidArgument(
            "grid",
            f"{left_out} batches",
            f"at least one within {limits.max_num_seqs} requests and "
            f"{limits.max_num_batched_tokens} tokens",
        )
    return tuple(rows), left_out


def _row(kernel: FittedKernel, cell: Cell, batch: Batch, level: float) -> dict[str, Any]:
    step = kernel.step_time(batch)
    fitted = kernel.calibrated_step_time(batch, level)
    totals = kernel.totals(batch)
    basis = kernel.plan.basis
    spent = dict(step.per_resource_s)
    return {
        "kind": cell.kind,
        "decode_requests": cell.decode_requests,
        "decode_context": cell.decode_context,
        "prefill_requests": int(cell.prefill_tokens > 0),
        "prefill_tokens": cell.prefill_tokens,
        "prefill_computed": cell.prefill_computed,
        "requests": totals.requests,
        "tokens": totals.tokens,
        "launched": basis.graph_of(totals.tokens, totals.requests, totals.decode_requests),
        "overlap_s": step.overlap_s,
        "no_overlap_s": step.no_overlap_s,
        "mean_s": fitted.mean_s,
        "low_s": fitted.low_s,
        "high_s": fitted.high_s,
        "level": level,
        **{f"{r.value}_s": spent.get(r, 0.0) for r in _RESOURCES},
        "bottleneck": step.bottleneck.value,
        "in_domain": fitted.in_domain,
    }


def _csv(rows: tuple[dict[str, Any], ...]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([name for name, _, _ in COLUMNS])
    for row in rows:
        # repr gives the shortest digits that read back as the same float.
        writer.writerow(
            [str(v).lower() if isinstance(v, bool) else repr(v) if isinstance(v, float) else v
             for v in row.values()]
        )  # fmt: skip
    return out.getvalue()


def _parquet(rows: tuple[dict[str, Any], ...], about: dict[str, str]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = []
    for name, unit, meaning in COLUMNS:
        kind = type(rows[0][name])
        arrow = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}.get(kind, pa.string())
        fields.append(pa.field(name, arrow, False, {"unit": unit, "meaning": meaning}))
    schema = pa.schema(fields, {"schema": SCHEMA, **about})
    table = pa.Table.from_pylist(list(rows), schema)
    out = io.BytesIO()
    pq.write_table(table, out, compression="none")
    return out.getvalue()


def _export(kernel: FittedKernel, options: ExportOptions) -> Files:
    rows, left_out = grid_rows(kernel, options)
    about = provenance("grid", kernel, options)
    described = {
        "schema": SCHEMA,
        "provenance": about,
        "rows": len(rows),
        "left_out": left_out,
        "columns": [{"name": n, "unit": u, "meaning": m} for n, u, m in COLUMNS],
    }
    return (
        ExportedFile(f"{options.stem}.grid.csv", _csv(rows)),
        ExportedFile(f"{options.stem}.grid.parquet", _parquet(rows, about)),
        ExportedFile(f"{options.stem}.grid.json", dumps(described)),
    )


def read_grid(text: str) -> tuple[dict[str, Any], ...]:
    """Read a grid's CSV back.

    Parameters
    ----------
    text : str
        The file's text.

    Returns
    -------
    tuple of dict
        The rows, with numbers and truth values as such.

    Raises
    ------
    ValueError
        When the columns are others, or a cell is not of its column's type.
    """
    reader = csv.reader(io.StringIO(text))
    names = [name for name, _, _ in COLUMNS]
    head = next(reader, [])
    if head != names:
        raise ValueError(f"columns are {', '.join(head)}; expected {', '.join(names)}")
    rows = []
    for place, cells in enumerate(reader, 2):
        if len(cells) != len(names):
            raise ValueError(f"line {place} has {len(cells)} cells; expected {len(names)}")
        rows.append(
            {
                name: _cell(unit, name, cell, place)
                for (name, unit, _), cell in zip(COLUMNS, cells, strict=True)
            }
        )
    return tuple(rows)


def _cell(unit: str, name: str, cell: str, place: int) -> Any:
    try:
        if name == "in_domain":
            return {"true": True, "false": False}[cell]
        if unit in ("s", "1"):
            return float(cell)
        return int(cell) if unit else cell
    except (KeyError, ValueError):
        raise ValueError(f"line {place}: {name} is {cell!r}") from None


def _check(files: Files) -> tuple[str, ...]:
    """Read both tables back and compare them, and hold them to what each row means."""
    import pyarrow.parquet as pq

    by_ending = {file.path.rpartition(".")[2]: file for file in files}
    try:
        rows = read_grid(by_ending["csv"].content.decode("utf-8"))
    except ValueError as error:
        return (f"{by_ending['csv'].path}: {error}",)
    problems = []
    table = pq.read_table(io.BytesIO(by_ending["parquet"].content))
    if tuple(table.to_pylist()) != rows:
        problems.append("the CSV and the Parquet file hold different rows")
    if json.loads(by_ending["json"].content)["rows"] != len(rows):
        problems.append("the description counts other rows")
    for place, row in enumerate(rows, 2):
        if not 0.0 < row["overlap_s"] <= row["no_overlap_s"]:
            problems.append(f"line {place}: overlap_s is not within (0, no_overlap_s]")
        if not row["low_s"] <= row["mean_s"] <= row["high_s"]:
            problems.append(f"line {place}: mean_s is not within its interval")
    return tuple(problems)


def _missing(kernel: FittedKernel, options: ExportOptions) -> tuple[NotExpressed, ...]:
    left_out = grid_rows(kernel, options)[1]
    if not left_out:
        return ()
    limits = kernel.plan.resolution
    reason = (
        f"{left_out} batches of the grid exceed the pool's {limits.max_num_seqs} requests, "
        f"{limits.max_num_batched_tokens} tokens or longest sequence"
    )
    return (NotExpressed("batches", reason),)


TARGET = Target(
    name="grid",
    title="step times over a grid of batches, CSV and Parquet",
    holds=(
        "both bounds, mean and interval, time by resource, bottleneck",
        "whether a batch lies inside what the calibration has seen",
        "exactly, at the batches of the grid",
    ),
    lacks=("batches between the grid's", "coefficients", "memory figures"),
    source="this project: the columns stand in the .grid.json beside the tables",
    export=_export,
    check=_check,
    missing=_missing,
    settings=_SETTINGS,
)
"""The grid target."""
