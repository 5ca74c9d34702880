"""The reference pages, written from the code: ``python -m kernelfit.cli.reference docs/reference``.

Verbs, options, schemas, coefficients, gates and refusals are found where they are defined, so that
a page cannot fall behind; a test compares the committed pages with what this writes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

HEAD = (
    "Written by `python -m kernelfit.cli.reference docs/reference`; change the code, not this page."
)


def pages() -> dict[str, str]:
    """Return every reference page.

    Returns
    -------
    dict
        Text by file name.
    """
    return {
        "commands.md": commands(),
        "schemas.md": schemas(),
        "laws.md": laws(),
        "gates.md": gates(),
        "refusals.md": refusals(),
    }


def commands() -> str:
    """Return the page on verbs and options.

    Returns
    -------
    str
        Markdown.
    """
    from typer import Context

    from kernelfit.cli.main import command_line
    from kernelfit.cli.settings import variable

    group = command_line()
    lines = [
        "# Commands",
        "",
        HEAD,
        "",
        "Every verb takes `--json`, `--quiet` and `--debug`; exit status 0 is fine, 1 is a check "
        "that said no, 2 is bad usage or bad input, 130 an interrupted run. An option may also "
        "stand in `kernelfit.toml` or in the variable named beside it; `kernelfit env` shows "
        "which do.",
    ]
    for name, command in group.commands.items():
        lines += ["", f"## {name}", ""]
        text = (command.help or "").replace("\b\n", "")
        summary, _, rest = text.partition("\n\n")
        lines += [summary, "", *_block(line for line in rest.splitlines() if line.startswith("  "))]
        details = " ".join(
            line for line in rest.splitlines() if line and not line.startswith(("  ", "Example:"))
        )
        if details:
            lines += ["", details]
        rows = []
        context = Context(command, info_name=f"kernelfit {name}")
        for parameter in command.params:
            record = parameter.get_help_record(context)
            if record is None:
                continue
            flag = "--" in record[0]
            stands = f"`{variable(name, str(parameter.name))}`" if flag else ""
            rows.append((f"`{record[0]}`", _cell(record[1]), stands))
        lines += ["", *_table(("option", "meaning", "variable"), rows)]
    return "\n".join(lines) + "\n"


def schemas() -> str:
    """Return the page on what ``--json`` prints.

    Returns
    -------
    str
        Markdown.
    """
    from kernelfit.cli.schemas import schema_of, verbs_with_schema

    lines = [
        "# JSON schemas",
        "",
        HEAD,
        "",
        "`kernelfit show --schema VERB` prints the whole schema (JSON Schema 2020-12). A version "
        "changes when a key goes or changes its meaning; keys may be added without. SI units; "
        "fractions, not percent. `?` marks a key that may be absent.",
    ]
    for verb in verbs_with_schema():
        schema = schema_of(verb)
        lines += [
            "",
            f"## {verb}",
            "",
            f"{schema['description'][:1].upper()}{schema['description'][1:]}.",
        ]
        for body in schema.get("anyOf", [schema]):
            name = body["properties"]["schema"]["const"]
            rows = [
                (f"`{key}{'' if key in body['required'] else '?'}`", _kind(node), _keys(node))
                for key, node in sorted(body["properties"].items())
                if key != "schema"
            ]
            lines += ["", f"`{name}`", "", *_table(("key", "type", "holds"), rows)]
    return "\n".join(lines) + "\n"


def _kind(node: dict[str, Any]) -> str:
    if "enum" in node:
        return "one of " + ", ".join(map(str, node["enum"]))
    kind = node.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _keys(node: dict[str, Any]) -> str:
    inner = node.get("items", node)
    inner = inner if isinstance(inner, dict) else {}
    keys = ", ".join(f"`{key}`" for key in inner.get("properties", {}))
    return keys or str(node.get("description", ""))


def laws() -> str:
    """Return the page on coefficients and the laws that they price.

    Returns
    -------
    str
        Markdown.
    """
    from kernelfit.kernel.definitions import DEFINITIONS, TYPED

    lines = [
        "# Laws and coefficients",
        "",
        HEAD,
        "",
        "Each piece of work is `amount x function of the batch x unit cost`; only the unit cost is "
        "fitted ([fitting.md](../fitting.md) says how). An efficiency divides a datasheet peak; "
        "everything else is a time per counted thing, or a number of tokens. A name marked with * "
        "is followed by the data type, as in `gemm_eff_bf16`. The prior stands until data speak; "
        "its spread is that of its logarithm.",
        "",
    ]
    rows = [
        (
            f"`{entry.name}`{'*' if entry.name in TYPED else ''}",
            entry.kind,
            entry.unit,
            _cell(entry.meaning),
            f"{entry.prior:.3g}",
            f"{entry.prior_spread:.2g}",
            entry.method,
            _cell(entry.source),
        )
        for entry in DEFINITIONS
    ]
    heads = ("coefficient", "kind", "unit", "meaning", "prior", "spread", "method", "source")
    return "\n".join([*lines, *_table(heads, rows)]) + "\n"


def gates() -> str:
    """Return the page on gates.

    Returns
    -------
    str
        Markdown.
    """
    from kernelfit.fit.gates import GATES

    lines = [
        "# Gates",
        "",
        HEAD,
        "",
        "Each step that a gate drops is counted in the report, with the gate and the run. A gate "
        "never looks at a fitted model. They are asked in this order.",
        "",
    ]
    rows = [(f"`{gate.id}`", _cell(gate.rule)) for gate in GATES]
    return "\n".join([*lines, *_table(("gate", "drops a step when"), rows)]) + "\n"


def refusals() -> str:
    """Return the page on what is not priced.

    Returns
    -------
    str
        Markdown.
    """
    from kernelfit.kernel import refusals as data
    from kernelfit.kernel.graphs import GRAPH_MODES
    from kernelfit.kernel.pages import CACHE_DTYPES

    lines = [
        "# Refusals",
        "",
        HEAD,
        "",
        "A deployment that cannot be priced truthfully is refused with the setting and the reason, "
        "never priced as something else. [support.md](../support.md) gives the answer to each "
        "deployment, model by model.",
        "",
        "## Widths",
        "",
        *_table(("setting above 1", "reason"), [(f"`{n}`", _cell(w)) for n, w in data.ONLY_ONE]),
        "",
        "## Speculative decoding",
        "",
        *_table(("method", "reason"), [(f"`{n}`", _cell(w)) for n, w in data.SPECULATION_REFUSED]),
        "",
        "Priced: " + ", ".join(f"`{name}`" for name in data.LOOKUP_METHODS) + ".",
        "",
        "## Accepted values",
        "",
        *_table(
            ("setting", "accepted"),
            [
                ("attention kind", ", ".join(data.ATTENTION_KINDS)),
                ("KV cache data type", ", ".join(name for name, _ in CACHE_DTYPES)),
                ("CUDA graph mode", ", ".join(GRAPH_MODES)),
            ],
        ),
        "",
        "## Quantisation",
        "",
        *_table(
            ("method", "weights in memory"),
            [(f"`{name}`", ", ".join(kinds)) for name, kinds in data.QUANTIZATION],
        ),
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Return words as a cell of a table may hold them."""
    return " ".join(text.split()).replace("|", "\\|")


def _block(lines: Iterable[str]) -> list[str]:
    return ["```", *(line.strip() for line in lines), "```"]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def write(folder: Path) -> None:
    """Write the pages.

    Parameters
    ----------
    folder : pathlib.Path
        Receives them; made when it does not exist.
    """
    from kernelfit.documents.canonical import write_atomic

    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        write_atomic(folder / name, text)


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference"))
