"""A kernel's coefficients as a BLIS ``CoefficientSet``.

The set selects by name and scope and the last applicable entry wins, so a scenario that
lists this set last uses its values and keeps every other one it had.
"""

from __future__ import annotations

import io
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import FoldedScalarString

from kernelfit.export.base import (
    ExportedFile,
    ExportOptions,
    Files,
    NotExpressed,
    Setting,
    Target,
    comment,
    setting,
)
from kernelfit.export.blis_check import validate_coefficient_set
from kernelfit.export.blis_names import (
    MISSING,
    Place,
    blis_chip_name,
    places,
    reason_for,
)
from kernelfit.kernel.catalog import Coefficient, definition
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.front_end_definitions import FRONT_END_NAMES

_SETTINGS = (
    Setting("chip", "", "the chip as the catalogue spells it; known chips by their own name"),
    Setting("verdicts", "all", "all, or identified: publish nothing that the logs did not pin"),
)


def blis_entries(
    kernel: FittedKernel, options: ExportOptions
) -> tuple[tuple[Place, Coefficient], ...]:
    """Return the entries of the set, each with the coefficient behind it.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options.

    Returns
    -------
    tuple of (Place, Coefficient)
        In the order of the file.

    Raises
    ------
    InvalidArgument
        When a setting is unknown, or nothing at all can be expressed.
    """
    wanted = setting(_SETTINGS, options, "verdicts")
    if wanted not in ("all", "identified"):
        raise InvalidArgument("verdicts", wanted, "all, identified")
    known = {c.name: c for c in kernel.fitted.coefficients}
    found = tuple(
        (place, known[place.coefficient])
        for place in places(kernel, _chip(kernel, options))
        if wanted == "all" or known[place.coefficient].verdict == "identified"
    )
    if not found:
        raise InvalidArgument("kernel", kernel.plan.chip.name, "a coefficient that has an entry")
    return found


def _chip(kernel: FittedKernel, options: ExportOptions) -> str:
    return setting(_SETTINGS, options, "chip") or blis_chip_name(kernel.plan.chip.name)


def _export(kernel: FittedKernel, options: ExportOptions) -> Files:
    chip = _chip(kernel, options)
    found = blis_entries(kernel, options)
    entries = CommentedSeq(
        [CommentedMap({place.name: _entry(place, c, kernel, chip)}) for place, c in found]
    )
    if any(place.name.startswith(("host_launch", "host_replay")) for place, _ in found):
        entries.append(CommentedMap({DISPATCH: _not_charged(kernel, chip)}))
    document = CommentedMap()
    document["kind"] = "CoefficientSet"
    document["name"] = f"kernelfit-{options.stem}"
    document["coefficients"] = entries
    yaml = YAML(typ="rt", pure=True)
    yaml.width = 96
    yaml.indent(mapping=2, sequence=4, offset=2)
    out = io.StringIO()
    yaml.dump(document, out)
    text = comment("blis", kernel, options) + out.getvalue()
    return (ExportedFile(f"{options.stem}.blis.yaml", text),)


def _entry(place: Place, coefficient: Coefficient, kernel: FittedKernel, chip: str) -> CommentedMap:
    method = _method(place, coefficient)
    entry = CommentedMap()
    entry["value"] = _rounded(coefficient.value * place.factor)
    entry["units"] = place.units
    entry["method"] = method
    entry["fitted"] = method == "measured"
    scope = CommentedMap({"hardware": _flow([chip])})
    if place.of_model:
        scope["model"] = _flow([kernel.plan.model.name])
    scope.fa.set_flow_style()
    entry["scope"] = scope
    entry["ci95"] = _flow([_rounded(edge * place.factor) for edge in coefficient.ci95])
    source = CommentedMap(_source(coefficient, kernel, method))
    source.fa.set_flow_style()
    entry["sources"] = CommentedSeq([source])
    if method == "copied":
        entry["copied_from"] = definition(coefficient.name).source
    entry["rationale"] = FoldedScalarString(_rationale(place, coefficient))
    return entry


DISPATCH = "host_launch_per_kernel"
"""The entry that would count launches a second time."""


def _not_charged(kernel: FittedKernel, chip: str) -> CommentedMap:
    """Switch off what another set charges for every kernel that is launched."""
    entry = CommentedMap()
    entry["value"] = 0
    entry["units"] = "us_per_transfer"
    entry["method"] = "not_charged"
    entry["fitted"] = False
    scope = CommentedMap({"hardware": _flow([chip]), "model": _flow([kernel.plan.model.name])})
    scope.fa.set_flow_style()
    entry["scope"] = scope
    entry["rationale"] = FoldedScalarString(
        "Launches were fitted as host_launch_eager_per_layer and host_replay_graph_per_step, and "
        "what runs on the device with its floors; a charge per kernel would count them twice."
    )
    return entry


def _method(place: Place, coefficient: Coefficient) -> str:
    """Only what was identified is measured; a kept prior keeps its own evidence."""
    if coefficient.verdict == "identified":
        return "measured" if place.exact else "assumed"
    if coefficient.verdict == "prior" and place.exact:
        kept = coefficient.method in {"vendor_spec", "literature", "copied"}
        return coefficient.method if kept else "assumed"
    return "assumed"


def _source(coefficient: Coefficient, kernel: FittedKernel, method: str) -> dict[str, str]:
    """Return the citation: the step logs, or where the prior came from."""
    if coefficient.verdict == "prior":
        kind = {"vendor_spec": "datasheet", "literature": "publication"}.get(method, "model")
        cite = definition(coefficient.name).source or "prior without a source"
        return {"kind": kind, "cite": cite, "role": "primary"}
    cite = f"kernelfit calibration {kernel.fitted.calibration} of {kernel.plan.chip.name}"
    role = "primary" if coefficient.verdict == "identified" else "supporting"
    return {"kind": "model", "cite": cite, "role": role}


_VERDICTS = {
    "identified": "Fitted jointly with the other coefficients of the chip from step times.",
    "weak": "The step logs move this value but do not pin it; the interval is wide.",
    "at_bound": "The fit stands at a bound of the allowed range, so take it as a limit.",
    "prior": "The step logs do not identify this value, so the prior was kept.",
}


_AROUND = {
    "identified": "Fitted from the front end's own times, outside of the step.",
    "weak": "The front end's times move this value but do not pin it; the interval is wide.",
    "at_bound": "The fit stands at a bound of the allowed range, so take it as a limit.",
    "prior": "The front end's times do not identify this value, so the prior was kept.",
}


def _rationale(place: Place, coefficient: Coefficient) -> str:
    meaning = definition(coefficient.name).meaning
    verdict = _VERDICTS[coefficient.verdict]
    if coefficient.name in FRONT_END_NAMES:
        verdict = _AROUND[coefficient.verdict]
    words = f"{coefficient.name}: {meaning}. {verdict}"
    return f"{words} {place.note}".rstrip()


def _rounded(value: float) -> float:
    """Drop the digits that only the change of unit brought in."""
    return float(f"{value:.12g}")


def _flow(items: list[Any]) -> CommentedSeq:
    """Return a sequence that prints on one line."""
    seq = CommentedSeq(items)
    seq.fa.set_flow_style()
    return seq


def _missing(kernel: FittedKernel, options: ExportOptions) -> tuple[NotExpressed, ...]:
    placed = {place.coefficient for place in places(kernel, _chip(kernel, options))}
    written = {place.coefficient for place, _ in blis_entries(kernel, options)}
    used = {*kernel.plan.coefficients, *FRONT_END_NAMES}
    out = []
    for coefficient in kernel.fitted.coefficients:
        name = coefficient.name
        if name in placed and name not in written:
            why = f"not identified by the logs ({coefficient.verdict})"
            out.append(NotExpressed(name, why))
        elif name in used and name not in placed:
            out.append(NotExpressed(name, reason_for(name)))
    why = "BLIS prices both bounds and its simulator takes the sum; a fitted share has no entry"
    out.append(NotExpressed("composition", why))
    if kernel.plan.basis.capture_sizes:
        why = "BLIS prices a captured batch by its own tokens, not by those that pad it"
        out.append(NotExpressed("padding", why))
    return tuple(out)


def _check(files: Files) -> tuple[str, ...]:
    return tuple(
        problem.render()
        for file in files
        for problem in validate_coefficient_set(file.content.decode("utf-8"), file.path)
    )


TARGET = Target(
    name="blis",
    title="BLIS CoefficientSet (YAML); listed last in a scenario it overrides by name",
    holds=(
        "matrix products: asymptote and envelope",
        "memory derate, attention's rate",
        "collectives within a node: floor and both rates per operation and width, exactly",
        "eager launches and graph replays",
        "admission, output token and completion, where the front end was recorded",
        "95 % intervals and the evidence of each value",
        "floors of attention and prefill attention's scale, nearly",
    ),
    lacks=(
        *(name for name, _ in MISSING[:15]),
        "composition",
        "padding to captured sizes",
        "host CPU, engine version and driver in the scope",
    ),
    source="blis-schemas v0.2.2 (spec/coefficient), blis-registry docs/reference/format.md, "
    "blis-latency-kernel docs/concepts/step.md",
    export=_export,
    check=_check,
    missing=_missing,
    settings=_SETTINGS,
)
"""The BLIS target."""
