"""The rows: data, split, target, and what came out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.accuracy.measure import HeldOut, blocks, gated, held_out, score
from kernelfit.fit.calibrate import Options, calibrate
from kernelfit.fit.calibration import Calibration
from kernelfit.fit.choose import held_out as product_held_out
from kernelfit.fit.splits import make_folds
from kernelfit.fit.steps import RunSteps
from kernelfit.validate.intervals import bounds_rows, coverage_rows


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of a row.

    Attributes
    ----------
    row : str
        Row of the targets.
    what : str
        Data, phase and measure.
    value : float
        The figure; a share unless the words say otherwise.
    target : float or None
        What it should not exceed (or, with ``at_least``, not fall below).
    reference : str
        What others reach.
    bias : float or None
        Median signed error [1].
    steps : int
        Steps scored.
    dropped : int
        Steps that the gates dropped from these runs.
    baselines : tuple of (str, float)
        The same measure of each baseline on the same steps.
    at_least : bool
        Whether the target is a floor.
    note : str
        What else must be known.
    """

    row: str
    what: str
    value: float
    target: float | None = None
    reference: str = ""
    bias: float | None = None
    steps: int = 0
    dropped: int = 0
    baselines: tuple[tuple[str, float], ...] = ()
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None or not np.isfinite(self.value):
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


def _dense(run: RunSteps) -> bool:
    return run.run.startswith("b300-qwen3-32b")


def _hybrid(run: RunSteps) -> bool:
    return run.run.startswith("b300-qwen3.6")


def _lines(
    row: str,
    found: HeldOut,
    dropped: int,
    targets: Callable[[RunSteps, str], float | None],
    phases: Sequence[str],
    reference: str = "",
    measure: str = "median",
) -> list[Line]:
    out = []
    for run in found.runs:
        for phase in phases:
            mine = found.score(run, phase)
            if not mine.steps:
                continue
            out.append(
                Line(
                    row,
                    f"{run.run} {phase} {measure}",
                    getattr(mine, measure),
                    targets(run, phase),
                    reference,
                    mine.bias,
                    mine.steps,
                    dropped,
                    tuple(
                        (name, getattr(found.score(run, phase, name), measure))
                        for name, _ in found.baselines
                    ),
                    note=f"composition {found.rule}",
                )
            )
    return out


def row_1a(runs: Sequence[RunSteps]) -> list[Line]:
    """One joint fit of the dense model, every third block held out."""
    kept, dropped = gated(runs, _dense)
    found = held_out(kept, [[blocks(run) for run in kept]])
    limits = {"tp1": (0.010, 0.06), "tp2": (0.020, 0.035), "tp4": (0.020, 0.035)}
    return _lines(
        "1a",
        found,
        dropped,
        lambda run, phase: limits[run.pool_label][phase != "decode"],
        ("decode", "mixed"),
        "13-coefficient joint fit: decode 0.8 / 2.7 / 2.8 %, mixed 8.7 / 4.9 / 3.4 %",
    )


def row_1b(runs: Sequence[RunSteps]) -> list[Line]:
    """The last 30 % of each run, where the load drains."""
    kept, dropped = gated(runs, _dense)
    late = [np.arange(run.size) >= 0.7 * run.size for run in kept]
    found = held_out(kept, [late])
    return _lines(
        "1b",
        found,
        dropped,
        lambda _, phase: 0.03 if phase == "decode" else 0.05,
        ("decode", "mixed"),
        "same joint fit: 6.3 / 2.1 / 4.7 %",
    )


def row_2(runs: Sequence[RunSteps]) -> list[Line]:
    """One tensor-parallel width left out."""
    kept, dropped = gated(runs, _dense)
    folds = [[np.full(r.size, r is left) for r in kept] for left in kept]
    found = held_out(kept, folds)
    return _lines(
        "2",
        found,
        dropped,
        lambda _, phase: 0.03 if phase == "decode" else 0.045,
        ("decode", "mixed"),
        "decode 1.7 / 3.8 / 3.0 %, mixed 5.6 / 3.7 / 3.9 %",
    )


def row_3(runs: Sequence[RunSteps]) -> list[Line]:
    """The hybrid mixture of experts fitted jointly with the dense model."""
    kept, dropped = gated(runs, lambda run: _dense(run) or _hybrid(run))
    found = held_out(kept, [[blocks(run) for run in kept]], baselines=False)
    lines = _lines(
        "3",
        found,
        dropped,
        lambda run, phase: 0.04 if _hybrid(run) and phase == "decode" else None,
        ("decode", "mixed"),
        "none published",
    )
    both = np.concatenate([r.measured_s for r in kept if _hybrid(r)])
    decode = np.concatenate([[p == "decode" for p in r.phase] for r in kept if _hybrid(r)])
    predicted = np.concatenate(
        [p for r, p in zip(kept, found.predicted, strict=True) if _hybrid(r)]
    )
    whole = score(both[decode], predicted[decode])
    name = "all three hybrid runs decode median"
    return [Line("3", name, whole.median, 0.04, "", whole.bias, whole.steps, dropped), *lines]


def row_4(runs: Sequence[RunSteps]) -> list[Line]:
    """The hybrid model predicted from the dense one alone."""
    kept, dropped = gated(runs, lambda run: _dense(run) or _hybrid(run))
    found = held_out(kept, [[np.full(r.size, _hybrid(r)) for r in kept]])
    fit = found.fits[0]
    unseen = [fit.names[k] for k in fit.kept_prior]
    lines = _lines(
        "4",
        replace(
            found,
            runs=tuple(r for r in kept if _hybrid(r)),
            predicted=tuple(p for r, p in zip(kept, found.predicted, strict=True) if _hybrid(r)),
            baselines=tuple(
                (n, tuple(v for r, v in zip(kept, vs, strict=True) if _hybrid(r)))
                for n, vs in found.baselines
            ),
        ),
        dropped,
        lambda _, phase: 0.15 if phase == "decode" else None,
        ("decode", "mixed"),
        "black-box models: 108 to 2,559 %",
    )
    return [replace(line, note=f"{line.note}; prior: {', '.join(unseen)}") for line in lines]


def row_5(runs: Sequence[RunSteps], refused: str) -> list[Line]:
    """H100 step traces: the dispatch column refused, the cycle recovered."""
    out = [
        Line(
            "5",
            "step.duration_us refused for fitting",
            float(bool(refused)),
            1.0,
            at_least=True,
            note=refused,
        )
    ]
    for wanted in ("h100-llama-2-70b-tp4", "h100-codellama-34b-tp2"):
        kept, dropped = gated(runs, lambda run, name=wanted: run.run == name)
        late = [np.arange(run.size) >= 0.6 * run.size for run in kept]
        found = held_out(kept, [late])
        out += _lines(
            "5", found, dropped, lambda *_: 0.03, ("all",), "2 parameters: 3.0 / 2.2 %", "mean"
        )
        fit = found.fits[0]
        evidence = dict(zip(fit.names, fit.evidence.data_spread, strict=True))
        pinned = [
            n
            for n in (
                "hbm_kv_eff",
                "attention_head_s",
                "launch_request_s",
                "schedule_request_s",
                "attention_eff_bf16",
                "attention_eff_fp16",
            )
            if n in evidence and evidence[n] < 0.15 and fit.names.index(n) not in fit.kept_prior
        ]
        per_request = [n for n in pinned if n != "hbm_kv_eff"]
        both = "hbm_kv_eff" in pinned and bool(per_request)
        out.append(
            Line(
                "5",
                f"{wanted}: decode count and KV tokens both identified",
                float(both),
                0.0,
                note=f"pinned by data: {', '.join(pinned) or 'none'}",
            )
        )
    return out


def row_6(runs: Sequence[RunSteps]) -> list[Line]:
    """Splitwise cells, five folds over cells; a table of cells has no order in time."""
    out = []
    for chip in ("a100", "h100"):
        for table, target in (("token", 0.035), ("prompt", 0.08)):
            kept, dropped = gated(
                runs,
                lambda run, c=chip, t=table: (
                    run.run.startswith(f"{c}-llama-2-70b") and run.run.endswith(t)
                ),
                off=("warm_up", "gap"),
            )
            numbers = [_cells(run) for run in kept]
            folds = [[n % 5 == fold for n in numbers] for fold in range(5)]
            found = held_out(kept, folds)
            measured = np.concatenate([r.measured_s for r in kept])
            mine = score(measured, np.concatenate(found.predicted))
            others = tuple(
                (name, score(measured, np.concatenate(values)).mean)
                for name, values in found.baselines
            )
            out.append(
                Line(
                    "6",
                    f"Llama-2-70B {chip} {table} mean",
                    mine.mean,
                    target,
                    "max(host, GPU): 3.2 %" if table == "token" else "",
                    mine.bias,
                    mine.steps,
                    dropped,
                    others,
                    note=f"composition {found.rule}",
                )
            )
    return out


def _cells(run: RunSteps) -> np.ndarray:
    context = run.totals["decode_context_tokens"] / np.maximum(run.totals["requests"], 1.0)
    keys = np.column_stack([run.totals["requests"], run.totals["tokens"], np.round(context)])
    return np.unique(keys, axis=0, return_inverse=True)[1].ravel()


def row_7(runs: Sequence[RunSteps], rule: str | None = None) -> list[Line]:
    """The project's own traces."""
    kept, dropped = gated(runs, lambda run: run.plan.chip.kind == "cpu")
    out = []
    for split, target, reference in (
        ("time_block", 0.05, "a 7-coefficient roofline, in sample: 3.4 to 4.2 %"),
        ("leave_one_model_out", 0.10, "the same: 6 to 14 %"),
    ):
        folds = [fold.test for fold in make_folds(kept, split)]
        found = held_out(kept, folds, rule)
        rule = found.rule
        measured = np.concatenate([r.measured_s for r in kept])
        mine = score(measured, np.concatenate(found.predicted))
        others = tuple(
            (name, score(measured, np.concatenate(values)).median)
            for name, values in found.baselines
        )
        out.append(
            Line(
                "7",
                f"own traces {split} median",
                mine.median,
                target,
                reference,
                mine.bias,
                mine.steps,
                dropped,
                others,
                note=f"composition {rule}",
            )
        )
    return out


def row_9(name: str, runs: Sequence[RunSteps], draws: int) -> list[Line]:
    """Coverage of 90 % intervals on held-out blocks, and steps between the bounds."""
    calibration: Calibration = calibrate(runs, [r.size for r in runs], Options(draws=draws))
    predicted = product_held_out(runs, "time_block", calibration.rule)
    covered = next(
        row
        for row in coverage_rows(runs, predicted, calibration, "time_block")
        if row.group == "all" and row.phase == "all"
    )
    inside = next(
        row for row in bounds_rows(runs, calibration) if row.group == "all" and row.phase == "all"
    )
    return [
        Line(
            "9",
            f"{name}: 90 % intervals cover",
            covered.covered,
            0.85,
            steps=covered.n,
            at_least=True,
            note="at most 0.95",
        ),
        Line(
            "9",
            f"{name}: within the bounds, widened by the noise floor",
            inside.inside_with_noise,
            0.90,
            "the BLIS kernel's bounds sit 3 to 23 % too low",
            steps=inside.n,
            at_least=True,
            note=f"without widening {inside.inside:.3f}",
        ),
    ]
