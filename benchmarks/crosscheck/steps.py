"""Measured steps beside priors alone: no step was fitted.

    python -m benchmarks.crosscheck.steps FPM

``FPM`` holds NVIDIA's forward pass metrics of Qwen3-32B on B300, at tensor-parallel widths 1,
2 and 4. Each step is priced with the operator tables' priors and with the kernel's own
defaults, three ways: all resources of a layer at once, those of an operation at once, and
everything added up. Host work is left out: a GPU hides it in most of these steps.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.crosscheck.fits import Array, Errors, errors
from kernelfit.documents.chips import find_chip
from kernelfit.documents.models import find_model
from kernelfit.documents.priors import find_priors
from kernelfit.kernel import Pool
from kernelfit.kernel.catalog import definition
from kernelfit.kernel.costs import unit_cost_s
from kernelfit.kernel.plan import Plan
from kernelfit.kernel.resources import Resource

ROOT = Path(__file__).resolve().parents[2]
CALIB = ROOT / "calib"
ENGINE = "0.24.0"
WIDTHS = (1, 2, 4)
WAYS = ("layer", "operation", "added")


@dataclass(frozen=True, slots=True)
class Score:
    """How far one set of values is from the steps of one width and phase."""

    tp: int
    phase: str
    values: str
    way: str
    errors: Errors


def steps(folder: Path, tp: int) -> tuple[dict[str, Array], Array]:
    """Return the totals of a width's steps and their times [s]; requests of a phase are alike."""
    path = next(folder.glob(f"*qwen32*/tp{tp}_ep1*/fpm_metrics_detail.csv"))
    table = pd.read_csv(path)

    def column(name: str) -> Array:
        return np.asarray(table[name].to_numpy(np.float64))

    prompts, decodes = column("num_prefill_requests"), column("num_decode_requests")
    scheduled, before = column("sum_prefill_tokens"), column("sum_prefill_kv_tokens")
    each = np.maximum(prompts, 1.0)
    s, c = scheduled / each, before / each
    spread = prompts * column("var_prefill_length") / 2.0
    context = column("sum_decode_kv_tokens") + decodes
    totals = {
        "requests": prompts + decodes,
        "tokens": scheduled + decodes,
        "decode_requests": decodes,
        "decode_context_tokens": context,
        "decode_pairs": context,
        "prefill_context_tokens": scheduled + before,
        "prefill_pairs": prompts * (s * c + s * (s + 1.0) / 2.0) + spread,
    }
    return totals, column("latency_ms") / 1e3


def device_s(
    plan: Plan, values: Mapping[str, float], totals: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the device's time of each step, composed in each of the ``WAYS`` [s]."""
    rows = plan.basis.rows(totals)
    forms: dict[tuple[str, str, Resource, str], dict[int, Array]] = defaultdict(dict)
    for term in plan.terms:
        if term.resource is Resource.HOST:
            continue
        time = (
            rows[:, term.function]
            * term.amount
            * unit_cost_s(term.coefficient, dict(values), plan.chip)
        )
        key = (term.stage, term.operator, term.resource, term.group)
        forms[key][term.form] = forms[key].get(term.form, 0.0) + time
    longest = {key: np.maximum.reduce(list(both.values())) for key, both in forms.items()}
    out = {"added": sum(longest.values(), np.zeros(rows.shape[0]))}
    for way, width in (("layer", 1), ("operation", 2)):
        cells: dict[tuple[str, ...], dict[Resource, Array]] = defaultdict(dict)
        for (stage, operator, resource, _), time in longest.items():
            cell = cells[(stage, operator)[:width]]
            cell[resource] = cell.get(resource, 0.0) + time
        total = np.zeros(rows.shape[0])
        for cell in cells.values():
            total += np.maximum.reduce(list(cell.values()))
        out[way] = total
    return out


def scores(folder: Path) -> tuple[Score, ...]:
    """Score both sets of values on every width."""
    chip = find_chip("B300", CALIB / "chips")
    model = find_model("Qwen3-32B", CALIB / "models")
    tables = {p.name: p.value for p in find_priors(chip.name, CALIB / "priors")}
    out = []
    for tp in WIDTHS:
        totals, measured_s = steps(folder, tp)
        plan = Plan.of(model, chip, Pool(tp=tp), ENGINE)
        prompts = totals["requests"] - totals["decode_requests"]
        phases = {
            "decode": prompts == 0,
            "prompt": totals["decode_requests"] == 0,
            "mixed": (prompts > 0) & (totals["decode_requests"] > 0),
        }
        for label, known in (("tables", tables), ("defaults", {})):
            values = {n: known.get(n, definition(n).prior) for n in plan.coefficients}
            for way, predicted in device_s(plan, values, totals).items():
                for phase, rows in phases.items():
                    if rows.sum() >= 5:
                        found = errors(predicted[rows], measured_s[rows])
                        out.append(Score(tp, phase, label, way, found))
    return tuple(out)


def main(arguments: list[str] | None = None) -> None:
    """Print the scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("steps", type=Path)
    asked = parser.parse_args(arguments)
    for s in scores(asked.steps):
        e = s.errors
        print(
            f"tp{s.tp} {s.phase:7s} {s.values:9s} {s.way:10s} steps {e.rows:5d}  "
            f"ratio {e.median:5.2f} ({e.p10:5.2f} to {e.p90:5.2f})  "
            f"geometric error {e.geometric:5.3f}"
        )


if __name__ == "__main__":
    main()
