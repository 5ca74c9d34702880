"""Which runs a path holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from kernelfit.documents.problems import InputError, Place, Problem, did_you_mean
from kernelfit.documents.yamldoc import Document, load_yaml
from kernelfit.logs.blis_files import is_blis_trace
from kernelfit.logs.feed import recorder_files
from kernelfit.logs.fpm_files import is_fpm_file
from kernelfit.logs.otel_files import JSON_SUFFIXES, is_otel_file
from kernelfit.logs.registry import readers
from kernelfit.logs.source import RunSource
from kernelfit.logs.table_files import is_table

RUN_DOCUMENT = "run.yaml"
_LOG_SUFFIXES = (".log", ".log.gz", ".log.zst")


def _is_log(path: Path) -> bool:
    return path.name.lower().endswith(_LOG_SUFFIXES)


def _is_json(path: Path) -> bool:
    return path.name.lower().endswith((".json", ".jsonl"))


def _is_json_lines(path: Path) -> bool:
    return path.name.lower().endswith(JSON_SUFFIXES)


def _is_scrape(path: Path) -> bool:
    return path.name.lower().endswith((".prom", ".metrics", ".txt"))


_KINDS: dict[str, tuple[Callable[[Path], bool], str]] = {
    "table": (is_table, "table (.csv, .tsv or .parquet)"),
    "vllm-log": (_is_log, "log (.log, .log.gz or .log.zst)"),
    "dynamo-fpm": (is_fpm_file, "forward pass metrics (.jsonl, or a .csv with its columns)"),
    "blis-trace": (is_blis_trace, "chunk times (.itl.csv)"),
    "sglang-log": (_is_log, "log (.log or .log.gz)"),
    "sglang-fpm": (is_fpm_file, "forward pass metrics (.jsonl)"),
    "trtllm-log": (_is_log, "log (.log or .log.gz)"),
    "otel-steps": (is_otel_file, "step summaries (.parquet or .jsonl)"),
    "vllm-bench-serve": (_is_json, "result of vllm bench serve (.json)"),
    "vllm-bench-latency": (_is_json, "result of vllm bench latency (.json)"),
    "guidellm": (_is_json, "report of guidellm (.json)"),
    "inference-perf": (_is_json, "requests of inference-perf (.json)"),
    "prometheus": (_is_scrape, "scrapes of metrics (.prom, .metrics or .txt)"),
    "otel-requests": (_is_json_lines, "request spans (.jsonl)"),
}
"""Which files of a folder a reader reads, and what to call them."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")


def safe_id(text: str) -> str:
    """Return a name that is safe as a folder's name.

    Parameters
    ----------
    text : str
        Any name.

    Returns
    -------
    str
        Letters, digits and ``._+-``; never empty, never hidden.
    """
    return _UNSAFE.sub("-", text).strip("-.") or "run"


def discover(path: Path, overrides: Mapping[str, object] | None = None) -> list[RunSource]:
    """Return the runs that a path holds.

    A run is a folder with a ``run.yaml``, or a log with a ``run.yaml`` beside it. A
    folder without one is searched downwards. A log named by itself, or found in a
    folder in which nothing has a ``run.yaml``, may go without: flags and the log's own
    start-up lines then describe it.

    Parameters
    ----------
    path : pathlib.Path
        A file or folder.
    overrides : mapping, optional
        Facts from flags; ``reader`` settles how a log is read.

    Returns
    -------
    list of RunSource
        In the order of their names; at least one.

    Raises
    ------
    InputError
        When the path does not exist or holds no run.
    """
    forced = (overrides or {}).get("reader")
    named = forced if isinstance(forced, str) else None
    if not path.exists():
        raise InputError([Problem(str(path), None, None, "there is no such file or folder")])
    return [replace(run, said=_said(run, overrides or {})) for run in _runs(path, named)]


def _said(run: RunSource, overrides: Mapping[str, object]) -> dict[str, object]:
    """Return what flags and the document say, without checking it."""
    said: dict[str, object] = {}
    if run.run_yaml is not None:
        data = load_yaml(run.run_yaml).data
        if isinstance(data, dict):
            pool = data.get("pool")
            said |= {str(k): v for k, v in data.items() if k != "pool"}
            said |= {str(k): v for k, v in pool.items()} if isinstance(pool, dict) else {}
    return said | {key: value for key, value in overrides.items() if value is not None}


def _runs(path: Path, named: str | None) -> list[RunSource]:
    if path.is_file():
        document = path.parent / RUN_DOCUMENT
        return [_file(path, document if document.is_file() else None, named, path.parent)]
    recorded = named in (None, "kernelfit")
    if recorded and not (path / RUN_DOCUMENT).is_file() and recorder_files(path, "engine"):
        return [_source(path, None, "kernelfit", path.parent)]
    found: list[RunSource] = []
    problems: list[Problem] = []
    for document in sorted(path.rglob(RUN_DOCUMENT)):
        try:
            found += _folder(document, named, path)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    if not found:
        found = [_file(log, None, named, path) for log in _logs(path)]
    if not found:
        raise InputError(
            [
                Problem(
                    str(path),
                    None,
                    None,
                    "the folder holds no run",
                    allowed="folders with a run.yaml, or .log files",
                )
            ]
        )
    return found


def _logs(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and _is_log(p))


def _reader_of(document: Path, named: str | None) -> str:
    parsed = load_yaml(document)
    stated = parsed.data.get("reader") if isinstance(parsed.data, dict) else None
    name = named or stated
    known = readers()
    if isinstance(name, str) and name in known:
        return name
    place = Place("command line") if named else _place(parsed)
    if name is None:
        message = "the run does not say its reader"
        raise InputError([Problem.at(place, message, allowed=", ".join(known))])
    raise InputError(
        [
            Problem.at(
                place,
                "unknown reader",
                got=repr(name),
                allowed=", ".join(known),
                hint=did_you_mean(str(name), known),
            )
        ]
    )


def _place(document: Document) -> Place:
    return document.place(("reader",))


def _folder(document: Path, named: str | None, root: Path) -> list[RunSource]:
    """Return the runs that one ``run.yaml`` describes."""
    folder = document.parent
    reader = _reader_of(document, named)
    if reader not in _KINDS:
        return [_source(folder, document, reader, root)]
    fits, kind = _KINDS[reader]
    logs = sorted(p for p in folder.iterdir() if p.is_file() and fits(p))
    if not logs:
        raise InputError([Problem(str(folder), None, None, f"the folder holds no {kind}")])
    if len(logs) == 1:
        return [_source(logs[0], document, reader, root, folder.resolve().name)]
    return [
        _source(log, document, reader, root, f"{folder.resolve().name}-{log.name}") for log in logs
    ]


def _file(path: Path, document: Path | None, named: str | None, root: Path) -> RunSource:
    if document is not None:
        reader = _reader_of(document, named)
        if reader == "kernelfit":
            if path.name.startswith(("engine-", "worker-")) or path.name == RUN_DOCUMENT:
                return _source(path.parent, document, reader, root.parent)
            # The engine's own text log may stand beside the recording of the same run.
            reader = "vllm-log"
        elif path.name == RUN_DOCUMENT:
            return _folder(document, named, root)[0]
        return _source(path, document, reader, root)
    if named is not None and named not in readers():
        known = readers()
        hint = did_you_mean(named, known)
        place = Place("command line")
        raise InputError(
            [
                Problem.at(
                    place, "unknown reader", got=repr(named), allowed=", ".join(known), hint=hint
                )
            ]
        )
    return _source(path, None, named or _default_reader(path), root)


def _default_reader(path: Path) -> str:
    if is_blis_trace(path):
        return "blis-trace"
    return "table" if is_table(path) else "vllm-log"


def _source(
    path: Path, document: Path | None, reader: str, root: Path, run_id: str | None = None
) -> RunSource:
    absolute = path.resolve()
    try:
        name = absolute.relative_to(root.resolve()).as_posix()
    except ValueError:
        name = absolute.name
    if name == ".":
        name = absolute.name
    stem = absolute.name
    if path.is_file():
        for suffix in (
            ".gz",
            ".zst",
            ".itl.csv",
            ".log",
            ".csv",
            ".tsv",
            ".parquet",
            ".jsonl",
            ".json",
            ".txt",
            ".prom",
            ".metrics",
        ):
            stem = stem.removesuffix(suffix)
    return RunSource(path, document, reader, name, safe_id(run_id or stem))
