"""``explain``: where the time of one batch goes, how sure that is, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelfit.cli.screen import Screen
from kernelfit.cli.verb import OK, verb

if TYPE_CHECKING:
    from kernelfit.kernel.batch import Batch
    from kernelfit.kernel.fitted import FittedKernel

KernelFile = Annotated[
    Path, typer.Argument(metavar="KERNEL", help="A frozen kernel, calib/kernels/NAME.json.")
]
Decode = Annotated[
    list[str] | None,
    typer.Option("--decode", metavar="RxC", help="R requests with C tokens in their KV each."),
]
Prefill = Annotated[
    list[str] | None,
    typer.Option(
        "--prefill", metavar="RxT[+C]", help="R requests with T prompt tokens each, C before."
    ),
]

_RELIEF = {
    "sm": "compute binds: a lower-precision data type, a smaller chunk or more GPUs shorten it",
    "hbm": "memory traffic binds: more requests per step share the weight reads; quantised weights "
    "or cache, or more GPUs, shorten it",
    "nvlink": "the links between GPUs bind: a narrower tensor-parallel width shortens it",
    "nic": "the network binds: keep the group on one node",
    "pcie": "the host link binds: offload less",
    "copy_engine": "copies bind: offload less",
    "host": "the host binds: CUDA graphs, asynchronous scheduling or a larger batch hide it",
}
_VERDICT_WORDS = {
    "prior": "was kept from its prior",
    "weak": "has a wide interval",
    "at_bound": "stands at a bound",
}
# A coefficient that prices less of the step than this cannot be what to measure next.
_WORTH = 0.1


def register(app: typer.Typer) -> None:
    """Add the verb.

    Parameters
    ----------
    app : typer.Typer
        The command line.
    """
    verb(
        app,
        "explain",
        summary="Show one batch's step time by layer kind and resource, and what to do next.",
        example="kernelfit explain calib/kernels/NAME.json --decode 8x1024 --prefill 1x512",
        details="--decode and --prefill may be repeated; together they are one batch. --batch "
        "reads it from a JSON file in the form that predict takes.",
    )(explain)


def explain(
    screen: Screen,
    kernel: KernelFile,
    decode: Decode = None,
    prefill: Prefill = None,
    batch: Annotated[
        Path | None, typer.Option("--batch", metavar="FILE", help="A batch as JSON, or -.")
    ] = None,
    level: Annotated[
        float,
        typer.Option(
            "--level", metavar="SHARE", min=0.01, max=0.99, help="Coverage of the interval."
        ),
    ] = 0.9,
) -> int:
    """Explain one batch.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    kernel : pathlib.Path
        The frozen kernel.
    decode, prefill : list of str, optional
        The batch in short form.
    batch : pathlib.Path, optional
        The batch as JSON instead.
    level : float
        Coverage of the interval [1].

    Returns
    -------
    int
        Exit status.
    """
    from kernelfit.cli import batches
    from kernelfit.cli.files import read_kernel, read_object

    if (batch is None) == (not decode and not prefill):
        raise typer.BadParameter("give either --decode and --prefill, or --batch")
    asked = (
        batches.from_flags(decode or (), prefill or ())
        if batch is None
        else batches.from_data(read_object(batch), str(batch), None)
    )
    document = explanation(read_kernel(kernel), asked, level)
    if screen.json:
        screen.document(document)
    else:
        _show(screen, document)
    return OK


def explanation(kernel: FittedKernel, batch: Batch, level: float) -> dict[str, Any]:
    """Return what ``explain`` shows.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    batch : Batch
        The batch.
    level : float
        Coverage of the interval [1].

    Returns
    -------
    dict
        JSON-shaped data, SI units.
    """
    from kernelfit.kernel.parts import step_parts

    step = kernel.step_time(batch)
    fitted = kernel.calibrated_step_time(batch, level)
    totals = kernel.totals(batch)
    parts = step_parts(kernel.plan, kernel.fitted.values(), batch, totals)
    methods = {origin.name: origin.method for origin in kernel.provenance()}
    document: dict[str, Any] = {
        "schema": "kernelfit.explain/1",
        "kernel": kernel.digest,
        "model": kernel.plan.model.name,
        "gpu": kernel.plan.chip.name,
        "batch": {"requests": len(batch.requests), "tokens": batch.tokens()},
        "overlap_s": step.overlap_s,
        "no_overlap_s": step.no_overlap_s,
        "bottleneck": step.bottleneck.value,
        "per_resource_s": {resource.value: time for resource, time in step.per_resource_s},
        "parts": [
            {
                "stage": part.stage,
                "resource": part.resource.value,
                "operator": part.operator,
                "coefficient": part.coefficient,
                "time_s": part.time_s,
            }
            for part in parts
        ],
        "mean_s": fitted.mean_s,
        "low_s": fitted.low_s,
        "high_s": fitted.high_s,
        "level": fitted.level,
        "in_domain": fitted.in_domain,
        "outside": [
            {"quantity": entry.quantity, "value": value, "low": entry.low, "high": entry.high}
            for entry in kernel.fitted.domain
            for value in (_quantity(kernel, totals, entry.quantity),)
            if value is not None and not entry.low <= value <= entry.high
        ],
        "overrides": [
            {"field": o.field, "requested": o.requested, "resolved": o.resolved, "reason": o.reason}
            for o in kernel.resolved().overrides
        ],
        "coefficients": [
            {
                "name": c.name,
                "value": c.value,
                "unit": c.unit,
                "method": methods[c.name],
                "verdict": c.verdict,
            }
            for c in kernel.fitted.coefficients
            if c.name in methods
        ],
    }
    document["actions"] = _actions(document)
    return document


def _quantity(kernel: FittedKernel, totals: Any, name: str) -> float | None:
    value = getattr(totals, name, getattr(kernel.resolved(), name, None))
    return None if value is None else float(value)


def _actions(document: Mapping[str, Any]) -> list[str]:
    """Return what to do about this batch, the most urgent first."""
    from kernelfit.report.units import number, percent

    said = []
    for entry in document["outside"]:
        side = "up to" if entry["value"] > entry["high"] else "from"
        end = entry["high"] if entry["value"] > entry["high"] else entry["low"]
        said.append(
            f"record steps like this one: the logs hold {entry['quantity'].replace('_', ' ')} "
            f"{side} {number(end)}, this batch has {number(entry['value'])}"
        )
    total = sum(part["time_s"] for part in document["parts"]) or 1.0
    shares: dict[str, float] = {}
    for part in document["parts"]:
        shares[part["coefficient"]] = shares.get(part["coefficient"], 0.0) + part["time_s"]
    verdicts = {c["name"]: c["verdict"] for c in document["coefficients"]}
    unsure = [
        (share / total, name)
        for name, share in shares.items()
        if verdicts.get(name) in _VERDICT_WORDS and share / total >= _WORTH
    ]
    for share, name in sorted(unsure, reverse=True)[:2]:
        said.append(
            f"measure {name}: it prices {percent(share)} % of the time and "
            f"{_VERDICT_WORDS[verdicts[name]]}; kernelfit plan says with which runs"
        )
    low, high = document["overlap_s"], document["no_overlap_s"]
    if high - low > document["high_s"] - document["low_s"]:
        said.append(
            f"measure the overlap: the bounds lie {percent((high - low) / high)} % apart, wider "
            "than the interval; kernelfit flips says which conclusions hang on it"
        )
    name = document["bottleneck"]
    share = document["per_resource_s"][name] / (sum(document["per_resource_s"].values()) or 1.0)
    said.append(f"relieve {name}, {percent(share)} % of the step: {_RELIEF.get(name, name)}")
    return said


def _show(screen: Screen, document: dict[str, Any]) -> None:
    from kernelfit.report.units import percent, time_texts, within

    batch = document["batch"]
    screen.line(
        f"{document['model']} on {document['gpu']}: {batch['requests']} requests, "
        f"{batch['tokens']} tokens in this step"
    )
    screen.line()
    # No time is known better than the whole step is.
    half_s = 0.5 * (document["high_s"] - document["low_s"]) or 1e-3 * document["mean_s"]
    total = sum(document["per_resource_s"].values())
    resources = [name for name, time in document["per_resource_s"].items() if time > 0]
    rows = []
    for stage, by_resource in _stages(document["parts"]).items():
        spent = sum(by_resource.values())
        rows.append(
            (
                stage,
                within(spent, half_s),
                f"{percent(spent / total)} %" if total else "-",
                *(
                    f"{percent(by_resource[name] / total)} %" if by_resource.get(name) else "-"
                    for name in resources
                ),
            )
        )
    sums = [document["per_resource_s"][name] for name in resources]
    rows.append(
        (
            "all",
            within(total, half_s),
            "100.0 %" if total else "-",
            *(f"{percent(time / total)} %" for time in sums),
        )
    )
    screen.table(("layer kind", "time", "share", *resources), rows)
    operators = _operators(document["parts"])
    screen.table(
        ("operation", "time", "share", "priced by"),
        [
            (name, within(time, half_s), f"{percent(time / total)} %", ", ".join(priced))
            for name, time, priced in operators
        ],
        left_at=(0, 3),
    )
    mean, low, high, unit = time_texts(document["mean_s"], document["low_s"], document["high_s"])
    screen.line(f"bottleneck   {document['bottleneck']}")
    screen.line(f"overlap      {within(document['overlap_s'], half_s)}")
    screen.line(f"no overlap   {within(document['no_overlap_s'], half_s)}")
    screen.line(
        f"fitted       {mean} {unit}, "
        f"{document['level']:.0%} of steps within {low} to {high} {unit}"
    )
    if not document["in_domain"]:
        screen.line("outside what the calibration has seen: extrapolated")
    for item in document["overrides"]:
        screen.line(
            f"{item['field']}: asked {item['requested']}, runs {item['resolved']}; {item['reason']}"
        )
    for number, action in enumerate(document["actions"]):
        screen.line(f"{'next' if not number else 'then':<13}{action}")


def _stages(parts: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for part in parts:
        stage = found.setdefault(part["stage"], {})
        stage[part["resource"]] = stage.get(part["resource"], 0.0) + part["time_s"]
    return found


def _operators(parts: Sequence[Mapping[str, Any]]) -> list[tuple[str, float, list[str]]]:
    """Return time and coefficients of each operation and resource, the longest first."""
    times: dict[str, float] = {}
    priced: dict[str, dict[str, None]] = {}
    for part in parts:
        name = f"{part['operator'] or part['stage']} on {part['resource']}"
        times[name] = times.get(name, 0.0) + part["time_s"]
        priced.setdefault(name, {})[part["coefficient"]] = None
    order = sorted(times, key=lambda name: -times[name])
    return [(name, times[name], list(priced[name])) for name in order]
