"""The fit of host work around the step: admission, outputs, completion.

Each kind is a law of its own and is fitted alone, with the solver, the priors, the blocks and
the verdicts of the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.stats import norm, t

from kernelfit.fit.blocks import Block
from kernelfit.fit.calibration import Evidence
from kernelfit.fit.design import Design, predict
from kernelfit.fit.front_end_evidence import FrontEndEvidence, FrontEndPart, Linearity
from kernelfit.fit.front_end_runs import KINDS, FrontEndRun, gate_front_end
from kernelfit.fit.given import GivenPrior, by_name
from kernelfit.fit.identify import PINNED
from kernelfit.fit.judge import judge
from kernelfit.fit.linearity import linearity
from kernelfit.fit.point import point_fit
from kernelfit.fit.priors import to_values
from kernelfit.fit.steps import Floats
from kernelfit.fit.uncertainty import block_length, bootstrap
from kernelfit.kernel.catalog import Coefficient
from kernelfit.kernel.chip import Chip

Ints = npt.NDArray[np.int64]

MOST_FITTED = 12_000
STRETCH = 50
"""Events that are fitted of one kind, and the stretches that they are taken in."""

LONG_BLOCKS = 8.0
SHORTEST_BLOCK = 5
FEWEST_BLOCKS = 20
"""Length of a block in units of the inflation [1], its least length [events], and the blocks
that must be left to draw from."""

FEWEST_EVENTS = 30
"""Events below which a kind of work is not fitted."""

COEFFICIENTS: dict[str, tuple[str, ...]] = {
    "admission": ("admission_request_s", "admission_token_s"),
    "output": ("output_call_s", "output_token_s", "output_extra_token_s"),
    "completion": ("completion_s",),
}
COUNTED: dict[str, str] = {
    "admission": "prompt_tokens",
    "output": "outputs",
    "completion": "output_tokens",
}

HEAVY_TAIL = 1.25
"""Mean of the measured over the fitted times above which it is told [1]."""


@dataclass(frozen=True, slots=True, eq=False)
class FrontEndFit:
    """Coefficients of the front end.

    Attributes
    ----------
    coefficients : tuple of Coefficient
        Of every kind that was recorded.
    evidence : tuple of Evidence
        In the same order.
    names : tuple of str
        Coefficients of the draws.
    draws : ndarray, shape (n_draws, n_coefficients)
        Joint draws [s].
    rests_on : FrontEndEvidence
        What they rest on.
    warnings : tuple of str
        What a reader must know.
    """

    coefficients: tuple[Coefficient, ...]
    evidence: tuple[Evidence, ...]
    names: tuple[str, ...]
    draws: Floats
    rests_on: FrontEndEvidence
    warnings: tuple[str, ...]


def fit_front_end(
    runs: Sequence[FrontEndRun],
    chip: Chip,
    *,
    draws: int,
    seed: int,
    given: Sequence[GivenPrior] = (),
) -> FrontEndFit | None:
    """Fit the host work of one GPU type's runs.

    Parameters
    ----------
    runs : sequence of FrontEndRun
        Runs on one GPU type.
    chip : Chip
        The GPU type.
    draws : int
        Bootstrap draws.
    seed : int
        Seed of the draws.
    given : sequence of GivenPrior
        Priors in place of the catalogue's.

    Returns
    -------
    FrontEndFit or None
        None where no kind of work was recorded often enough.

    Notes
    -----
    Host work belongs to a CPU, an engine version and a tokeniser. Where the runs have
    several, the one with the most events gives the values; the others are fitted too, and
    where one contradicts the first, the interval reaches there and the verdict is ``weak``.
    """
    gated = [gate_front_end(run) for run in runs]
    scopes: dict[str, list[FrontEndRun]] = {}
    for run, _ in gated:
        scopes.setdefault(run.scope, []).append(run)
    ordered = sorted(scopes, key=lambda name: (-sum(r.kind.size for r in scopes[name]), name))
    fits = {}
    for scope in ordered:
        found = _fit_scope(scopes[scope], scope, chip, draws, seed, given)
        if found is not None:
            fits[scope] = found
    if not fits:
        return None
    first, *rest = fits
    fit = fits[first]
    coefficients = fit.coefficients
    warnings = list(fit.warnings)
    for scope in rest:
        coefficients, told = _compare(coefficients, fits[scope].coefficients, scope)
        warnings += told
    gates = tuple(gate for _, counts in gated for gate in counts)
    rests_on = replace(fit.rests_on, others=tuple(rest), gates=gates)
    return replace(
        fit, coefficients=coefficients, rests_on=rests_on, warnings=tuple(dict.fromkeys(warnings))
    )


def _compare(
    own: Sequence[Coefficient], other: Sequence[Coefficient], scope: str
) -> tuple[tuple[Coefficient, ...], list[str]]:
    """Let the intervals reach to what another scope contradicts them with."""
    seen = {c.name: c for c in other if c.verdict in ("identified", "weak")}
    out, told = [], []
    for c in own:
        rival = seen.get(c.name)
        apart = rival is not None and (rival.ci95[0] > c.ci95[1] or rival.ci95[1] < c.ci95[0])
        if rival is None or not apart or c.verdict == "prior":
            out.append(c)
            continue
        low, high = min(c.ci95[0], rival.value), max(c.ci95[1], rival.value)
        off = abs(np.log(rival.value / c.value)) > 2 * PINNED
        verdict = "weak" if off and c.verdict == "identified" else c.verdict
        out.append(replace(c, ci95=(low, high), verdict=verdict))
        told.append(
            f"{c.name} is {rival.value:.3g} s under {scope}, outside of its interval under "
            f"{c.scope}: the interval reaches there"
        )
    return tuple(out), told


def _fit_scope(
    runs: Sequence[FrontEndRun],
    scope: str,
    chip: Chip,
    draws: int,
    seed: int,
    given: Sequence[GivenPrior],
) -> FrontEndFit | None:
    coefficients: list[Coefficient] = []
    evidence: list[Evidence] = []
    drawn: list[Floats] = []
    parts: list[FrontEndPart] = []
    warnings: list[str] = []
    for number, kind in enumerate(KINDS):
        picked = [run.take(run.kind == number) for run in runs]
        events = sum(run.kind.size for run in picked)
        if events < FEWEST_EVENTS:
            if events:
                warnings.append(
                    f"{kind}: {events} events are too few to fit; {FEWEST_EVENTS} are needed"
                )
            continue
        found = _fit_kind(kind, picked, scope, chip, draws, seed + number, given)
        coefficients += found[0]
        evidence += found[1]
        drawn.append(found[2])
        parts.append(found[3])
        warnings += _warnings(found[3], found[0], found[1])
    if not parts:
        return None
    return FrontEndFit(
        tuple(coefficients),
        tuple(evidence),
        tuple(c.name for c in coefficients),
        np.concatenate(drawn, axis=1),
        FrontEndEvidence(scope, (), tuple(run.run for run in runs), tuple(parts), ()),
        tuple(warnings),
    )


def _fit_kind(
    kind: str,
    runs: Sequence[FrontEndRun],
    scope: str,
    chip: Chip,
    draws: int,
    seed: int,
    given: Sequence[GivenPrior],
) -> tuple[tuple[Coefficient, ...], tuple[Evidence, ...], Floats, FrontEndPart]:
    events = sum(run.kind.size for run in runs)
    kept = [_stretches(run, events) for run in runs if run.kind.size]
    design = _design(kind, kept, STRETCH)
    fit = point_fit(design, chip, "sum", given=given)
    # Longer than for steps: events are cheap, and short blocks cut correlation off.
    longest = max(block_length(fit.correlation), int(np.ceil(LONG_BLOCKS * fit.inflation)))
    block_events = min(longest, max(SHORTEST_BLOCK, design.measured_s.size // FEWEST_BLOCKS))
    blocked = _design(kind, kept, block_events)
    log_draws, _ = bootstrap(
        blocked,
        fit.priors,
        "sum",
        fit.solution,
        draws=draws,
        seed=seed,
        inflation=fit.inflation,
    )
    log_draws = _few_blocks(log_draws, np.unique(blocked.block).size)
    coefficients, evidence = judge(fit, log_draws, chip, by_name(given), scope)
    fitted_s, _, _ = predict(design, fit.solution.log_cost, 0.0)
    counted = np.concatenate([_counted(kind, run) for run in kept])
    fitted_parameters = len(coefficients) - sum(c.verdict == "prior" for c in coefficients)
    shape = linearity(
        COUNTED[kind],
        counted,
        np.log(design.measured_s / fitted_s),
        fit.inflation,
        fitted_parameters,
    )
    if not shape.linear:
        coefficients = tuple(_widened(c, shape) for c in coefficients)
    names = COEFFICIENTS[kind]
    values = [to_values(names, np.exp(row), chip) for row in log_draws]
    drawn = np.asarray([[v[name] for name in names] for v in values]).reshape(-1, len(names))
    part = FrontEndPart(
        kind,
        events,
        design.measured_s.size,
        fit.solution.scale,
        float(fit.correlation[1]),
        fit.inflation,
        block_events,
        float(design.measured_s.mean() / fitted_s.mean()),
        float(counted.min()),
        float(counted.max()),
        shape,
    )
    return coefficients, evidence, drawn, part


def _few_blocks(log_draws: Floats, blocks: int) -> Floats:
    """Spread draws by what a variance from so few blocks is short of, and unsure by.

    Resampling n blocks gives (n - 1) / n of the variance, and its own error is Student's.
    """
    middle = np.median(log_draws, axis=0)
    student = float(t.ppf(0.975, blocks - 1) / norm.ppf(0.975))
    return np.asarray(middle + (log_draws - middle) * student * np.sqrt(blocks / (blocks - 1)))


def _widened(c: Coefficient, shape: Linearity) -> Coefficient:
    """Let an interval hold what the law is off by; a kept prior has its own width."""
    if c.verdict == "prior":
        return c
    reach = float(np.exp(shape.worst_gap))
    low, high = min(c.ci95[0], c.value / reach), max(c.ci95[1], c.value * reach)
    return replace(c, ci95=(low, high), verdict="weak" if c.verdict == "identified" else c.verdict)


def _stretches(run: FrontEndRun, events: int) -> FrontEndRun:
    """Return evenly spaced stretches where all runs together hold more than is fitted."""
    if events <= MOST_FITTED:
        return run
    stretches = -(-run.kind.size // STRETCH)
    wanted = max(1, round(stretches * MOST_FITTED / events))
    chosen = np.unique(np.linspace(0, stretches - 1, wanted).round().astype(np.int64))
    rows = (chosen[:, None] * STRETCH + np.arange(STRETCH)).ravel()
    return run.take(rows[rows < run.kind.size])


def _counted(kind: str, run: FrontEndRun) -> Floats:
    return run.requests if kind == "output" else np.nan_to_num(run.tokens)


def _work(kind: str, run: FrontEndRun) -> Floats:
    """Return how often each event pays each coefficient of its kind."""
    one = np.ones(run.kind.size)
    if kind == "admission":
        return np.column_stack([one, run.tokens])
    if kind == "output":
        outputs = np.minimum(run.requests, run.tokens)
        return np.column_stack([one, outputs, run.tokens - outputs])
    return one[:, None]


def _design(kind: str, runs: Sequence[FrontEndRun], block_events: int) -> Design:
    names = COEFFICIENTS[kind]
    zero, each = np.zeros((len(names), len(names))), np.eye(len(names))
    measured = np.concatenate([run.duration_s for run in runs])
    blocks: list[Ints] = []
    places: list[Ints] = []
    first = group = 0
    for run in runs:
        # A process is a sequence of its own, as a run is.
        _, process = np.unique(run.process, return_inverse=True)
        for number in range(int(process.max()) + 1):
            size = int(np.count_nonzero(process == number))
            blocks.append(first + np.arange(size) // block_events)
            first = int(blocks[-1][-1]) + 1
            places.append(np.full(size, group, dtype=np.int64))
            group += 1
    return Design(
        names=names,
        blocks=tuple(Block(_work(kind, run), (), zero, each) for run in runs),
        measured_s=measured,
        block=np.concatenate(blocks),
        run=np.concatenate(places),
        origin=np.arange(measured.size),
        weight=np.ones(measured.size),
        steps=int(measured.size),
    )


def _warnings(
    part: FrontEndPart, coefficients: Sequence[Coefficient], evidence: Sequence[Evidence]
) -> list[str]:
    told = []
    shape = part.linearity
    if not shape.linear:
        worst = max(shape.bins, key=lambda each: abs(each.gap))
        told.append(
            f"{part.kind}: its time is not linear in {shape.counted}: between {worst.low:g} and "
            f"{worst.high:g} the law is off by {np.expm1(worst.gap):+.0%} (p {shape.p_value:.1g}); "
            "the intervals reach that far"
        )
    if part.mean_ratio > HEAVY_TAIL:
        told.append(
            f"{part.kind}: rare long calls raise the mean to {part.mean_ratio:.2f} of what is "
            "usual; the coefficients are those of the usual call"
        )
    groups = {
        tuple(sorted((c.name, *e.alias)))
        for c, e in zip(coefficients, evidence, strict=True)
        if e.alias
    }
    told += [
        f"{', '.join(group)} cannot be told from each other in these runs; only their sum is known"
        for group in sorted(groups)
    ]
    told += [
        f"{c.name} sits at the end of its allowed range: read its interval one-sided"
        for c in coefficients
        if c.verdict == "at_bound"
    ]
    return told
