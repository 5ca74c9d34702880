"""The files of a BLIS trace: header, requests and the times of their chunks."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kernelfit.documents.columns import ColumnSpec
from kernelfit.documents.problems import InputError, Problem
from kernelfit.documents.yamldoc import load_yaml
from kernelfit.logs.columns import MAX_TOKENS, Floats, Ints, Reject
from kernelfit.logs.lines import read_lines
from kernelfit.logs.redact import value_shown
from kernelfit.logs.table_files import RawTable, read_table
from kernelfit.logs.table_rows import TableRows

CHUNKS_SUFFIX = ".itl.csv"
CHUNK_COLUMNS = ("request_id", "chunk_index", "timestamp_us")
REQUEST_COLUMNS = ("request_id", "input_tokens", "output_tokens", "send_time_us", "status")
_OPTIONAL = ("server_input_tokens", "streaming")
_SERVER: Mapping[str, tuple[str, type]] = {
    "tensor_parallel": ("tp", int),
    "max_num_seqs": ("max_num_seqs", int),
    "block_size": ("block_size", int),
    "gpu_memory_utilization": ("gpu_memory_utilization", float),
    "max_model_len": ("max_model_len", int),
    "max_num_batched_tokens": ("max_num_batched_tokens", int),
}
_WORD = re.compile(r"[A-Za-z0-9._+-]{1,64}")
_MICROSECONDS = ("us", "µs", "microsecond", "microseconds")


def is_blis_trace(path: Path) -> bool:
    """Whether a file holds the chunk times of a trace.

    Parameters
    ----------
    path : pathlib.Path
        The file; it is not opened.

    Returns
    -------
    bool
        True for ``*.itl.csv``, plain or gzip.
    """
    return path.name.lower().endswith((CHUNKS_SUFFIX, CHUNKS_SUFFIX + ".gz"))


def trace_files(path: Path) -> tuple[Path, Path]:
    """Return the requests and the header that belong to a file of chunk times.

    Parameters
    ----------
    path : pathlib.Path
        The chunk times, ``NAME.itl.csv``.

    Returns
    -------
    tuple of pathlib.Path
        ``NAME.csv`` and ``NAME.yaml`` beside it; they may not exist.
    """
    name = path.name.removesuffix(".gz")
    stem = name[: -len(CHUNKS_SUFFIX)] if is_blis_trace(path) else path.stem
    return path.with_name(f"{stem}.csv"), path.with_name(f"{stem}.yaml")


def header_facts(path: Path) -> tuple[dict[str, object], str]:
    """Return what a trace's header states.

    Parameters
    ----------
    path : pathlib.Path
        The header; it may be missing.

    Returns
    -------
    tuple of (dict, str)
        Facts by the names of the run document, and the mode (``real`` when unstated).

    Raises
    ------
    InputError
        When it is no YAML mapping, or counts time in another unit.
    """
    if not path.is_file():
        return {}, "real"
    data = load_yaml(path).data
    if not isinstance(data, dict):
        raise InputError([Problem(str(path), None, None, "not a header of a trace")])
    unit = data.get("time_unit", "us")
    if str(unit) not in _MICROSECONDS:
        raise InputError(
            [
                Problem(
                    str(path),
                    None,
                    None,
                    "times are not in microseconds, as the columns' names say",
                    got=value_shown(str(unit)),
                    allowed="us",
                )
            ]
        )
    facts: dict[str, object] = {}
    server = data.get("server")
    if isinstance(server, dict):
        for key, (name, kind) in _SERVER.items():
            value = server.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
                facts[name] = kind(value)
        if isinstance(server.get("type"), str) and _WORD.fullmatch(server["type"]):
            facts["engine"] = server["type"].lower()
        if isinstance(server.get("model"), str):
            # Only the last part of a path: folders may carry a person's name.
            last = server["model"].rstrip("/").rpartition("/")[2]
            facts |= {"model_name": last} if _WORD.fullmatch(last) else {}
    mode = data.get("mode", "real")
    return facts, str(mode) if mode in ("real", "generated", "replayed") else "unknown"


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace's requests and chunks, checked row by row.

    Attributes
    ----------
    prompt_len, output_len : ndarray of int64, shape (requests,)
        Tokens of every request [tokens].
    send_us : ndarray of float64, shape (requests,)
        When each was sent [us].
    usable : ndarray of bool, shape (requests,)
        Whether it succeeded and was streamed.
    served_length : bool
        Whether the server itself counted the prompts.
    request_lines : tuple of int
        Line of every request in its file.
    request : ndarray of int64, shape (chunks,)
        The request of every chunk; -1 where it has none.
    index : ndarray of int64, shape (chunks,)
        Number of the chunk within its request.
    time_us : ndarray of float64, shape (chunks,)
        When it arrived [us].
    stray_us : ndarray of float64, shape (strays,)
        Times of chunks of requests that the trace does not list [us].
    rejects : tuple of Reject
        Rows of both files that cannot be used.
    lines : int
        Lines of both files.
    """

    prompt_len: Ints
    output_len: Ints
    send_us: Floats
    usable: NDArray[np.bool_]
    served_length: bool
    request_lines: tuple[int, ...]
    request: Ints
    index: Ints
    time_us: Floats
    stray_us: Floats
    rejects: tuple[Reject, ...]
    lines: int


def read_trace(path: Path) -> Trace:
    """Read the chunk times of a trace and the requests beside them.

    Parameters
    ----------
    path : pathlib.Path
        The chunk times.

    Returns
    -------
    Trace
        Everything that can be used, and every row that cannot.

    Raises
    ------
    InputError
        When a file is missing, empty or damaged, or lacks a column.
    """
    beside, _ = trace_files(path)
    if not beside.is_file():
        message = f"the requests of the trace are missing: {beside.name} must stand beside it"
        raise InputError([Problem(str(path), None, None, message)])
    raw = read_table(path, CHUNK_COLUMNS, quoted=False)
    asked, wanted = _asked(beside)
    lengths = {n: ColumnSpec(n, "tokens") for n in ("input_tokens", "output_tokens")}
    rows = TableRows(asked, {**lengths, "send_time_us": ColumnSpec("send_time_us", "us")})
    prompt, output = rows.counts("input_tokens"), rows.counts("output_tokens")
    served = "server_input_tokens" in wanted
    if served:
        values, _ = rows.numbers(asked.columns.column("server_input_tokens"))
        counted = np.isfinite(values) & (values > 0) & (values <= MAX_TOKENS)
        served = bool(counted.all()) and bool(counted.size)
        prompt = np.where(counted, values, prompt).astype(np.int64)
    send_us = rows.floats("send_time_us") * 1e6
    rows.blame((prompt < 1) | (prompt > MAX_TOKENS), "input_tokens is out of range")
    rows.blame(output > MAX_TOKENS, "output_tokens is out of range")
    usable = _text_is(asked, "status", ("ok", "success"))
    if "streaming" in wanted:
        usable &= _text_is(asked, "streaming", ("true", "1"))
    bad = list(rows.reasons)
    usable[bad] = False
    rejects = [Reject(beside.name, asked.lines[p], why, "") for p, why in rows.reasons.items()]
    chunks = TableRows(
        raw,
        {
            "chunk_index": ColumnSpec("chunk_index", "count"),
            "timestamp_us": ColumnSpec("timestamp_us", "us"),
        },
    )
    index, time_us = chunks.counts("chunk_index"), chunks.floats("timestamp_us") * 1e6
    request = _place(raw, asked)
    chunks.blame(request < 0, f"the chunk's request is not in {beside.name}")
    rejects += [Reject(path.name, raw.lines[p], why, "") for p, why in chunks.reasons.items()]
    stray_us = time_us[(request < 0) & np.isfinite(time_us)]
    request[list(chunks.reasons)] = -1
    lines = sum(t.columns.num_rows + len(t.rejects) + t.headers for t in (raw, asked))
    return Trace(
        prompt,
        output,
        send_us,
        usable,
        served,
        asked.lines,
        request,
        index,
        np.where(request >= 0, time_us, np.nan),
        stray_us,
        (*raw.rejects, *asked.rejects, *rejects),
        lines,
    )


def _asked(path: Path) -> tuple[RawTable, list[str]]:
    """Read the requests line by line: an error message may hold a quote that never ends."""
    cells: list[list[str | None]] = []
    lines: list[int] = []
    rejects: list[Reject] = []
    names: list[str] = []
    known = 0
    for number, line in read_lines(path):
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        try:
            row = next(csv.reader([text]), []) if text.strip() else []
        except csv.Error:
            row = [""]
        if not names:
            names, known = row, known + 1
        elif not row:
            known += 1
        elif len(row) != len(names):
            reason = f"{len(row)} fields where the header has {len(names)}"
            rejects.append(Reject(path.name, number, reason, ""))
        else:
            lines.append(number)
            cells.append([cell or None for cell in row])
    missing = [name for name in REQUEST_COLUMNS if name not in names]
    if missing:
        message = f"the requests have no column {', '.join(missing)}"
        raise InputError([Problem(str(path), 1 if names else None, None, message)])
    wanted = [*REQUEST_COLUMNS, *(name for name in _OPTIONAL if name in names)]
    table = pa.table(
        {
            name: pa.chunked_array([pa.array([row[at] for row in cells], type=pa.string())])
            for name, at in ((name, names.index(name)) for name in wanted)
        }
    )
    return RawTable(table, tuple(lines), tuple(rejects), known), wanted


def _text_is(raw: RawTable, name: str, words: tuple[str, ...]) -> NDArray[np.bool_]:
    cells = raw.columns.column(name).to_pylist()
    return np.array([str(cell).lower() in words for cell in cells], dtype=bool)


def _place(chunks: RawTable, requests: RawTable) -> Ints:
    """Return which request every chunk is of; -1 for none or for a repeated name."""
    names = requests.columns.column("request_id").cast(pa.string()).to_pylist()
    place: dict[object, int] = {}
    for number, name in enumerate(names):
        place[name] = -1 if name in place or name is None else number
    cells = chunks.columns.column("request_id").cast(pa.string()).combine_chunks()
    coded = cells.dictionary_encode()
    kinds = np.array([place.get(n, -1) for n in coded.dictionary.to_pylist()] + [-1])
    codes = np.asarray(coded.indices.fill_null(kinds.size - 1), dtype=np.int64)
    return kinds[codes].astype(np.int64)
