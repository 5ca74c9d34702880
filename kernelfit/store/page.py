"""The tables of the store in words, for the page that describes them."""

from __future__ import annotations

import pyarrow as pa

from kernelfit.store.schema import SCHEMAS

BEGIN = "<!-- generated from kernelfit/store/schema.py -->"
END = "<!-- end of the generated part -->"

_WHAT = {
    "runs": "One row per run: what it was, where it came from, what became of every line.",
    "steps": "One row per step.",
    "requests": "One row per request in a step; empty where a log holds only sums.",
    "events": "One row per piece of host work outside steps.",
    "served": "One row per request served, as a client or the engine saw it.",
    "observed": "One row per statistic that a source publishes in place of single requests.",
    "intervals": "One row per line of a log about a stretch of time.",
}
_UNITS = {
    "_s": "s",
    "_tokens": "tokens",
    "_pairs": "query-key pairs",
    "_bytes": "bytes",
    "_requests": "requests",
    "_per_s": "1/s",
}


def unit_of(name: str) -> str:
    """Return the unit that a column's name carries.

    Parameters
    ----------
    name : str
        The column.

    Returns
    -------
    str
        The unit in words; empty for a column without one.
    """
    found = [end for end in _UNITS if name.endswith(end)]
    return _UNITS[max(found, key=len)] if found else ""


def column_tables() -> str:
    """Return every table with its columns as Markdown.

    Returns
    -------
    str
        One heading, sentence and table per table of the store.
    """
    parts = []
    for name, schema in SCHEMAS.items():
        lines = [f"\n### `{name}`\n", f"{_WHAT[name]}\n", "| column | type | unit | null |"]
        lines.append("|---|---|---|---|")
        lines += [
            f"| `{f.name}` | {_type(f.type)} | {unit_of(f.name)} | {'yes' if f.nullable else ''} |"
            for f in schema
        ]
        parts.append("\n".join(lines) + "\n")
    return "".join(parts) + "\n"


def _type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"list of {_type(kind.value_type)}"
    return {"double": "float64", "string": "text"}.get(str(kind), str(kind))
