"""What request-level sources can say of the host, and what they cannot.

Time to first token = admission + queue + prefill steps + output. A client sees the sum alone;
the engine's spans and counters state queue and prefill beside it; a kernel can price the
prefill of a request that had the server to itself. So different sources identify different
sums, and nothing more is claimed: every result names the coefficients that are in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from kernelfit.fit.coarse_runs import CoarseRun, gate_coarse
from kernelfit.fit.front_end_evidence import EventGate
from kernelfit.fit.steps import Floats
from kernelfit.kernel.batch import Batch, RequestShape
from kernelfit.kernel.fitted import FittedKernel

FEWEST_REQUESTS = 20
FEWEST_WINDOWS = 6
BLOCK_REQUESTS = 10
LEAST_SPAN = 4.0
"""Ratio of the longest to the shortest prompt below which no slope is asked for [1]."""

PINNED = 0.1
"""Half the interval over the value up to which a result counts as identified [1]."""

GRID = 24
"""Prompt lengths that are priced; the others are interpolated."""

ADMISSION = ("admission_request_s",)
FIRST_OUTPUT = ("output_call_s", "output_token_s")
PREFILL = "prefill step"
PATH = "client and network"
WAITING = "waiting in the front end"
"""What is in a sum where requests met: the front end handles one at a time."""


@dataclass(frozen=True, slots=True)
class CoarseTerm:
    """A sum of costs that a request-level source identifies, or fails to.

    Attributes
    ----------
    run, reader, scope : str
        Where it comes from and what it holds for.
    parts : tuple of str
        Coefficients and other costs in the sum; one alone where it is told apart.
    value : float
        The sum [s].
    ci95 : tuple of (float, float)
        95 % interval [s].
    verdict : str
        ``identified``, ``weak``, or ``prior`` where zero lies within the interval.
    requests : int
        Requests, or intervals between scrapes, behind it.
    basis : str
        What it was read off.
    """

    run: str
    reader: str
    scope: str
    parts: tuple[str, ...]
    value: float
    ci95: tuple[float, float]
    verdict: str
    requests: int
    basis: str


@dataclass(frozen=True, slots=True)
class CoarseResult:
    """What one source says.

    Attributes
    ----------
    terms : tuple of CoarseTerm
        What it identifies.
    unknown : tuple of str
        What it cannot say, and why.
    gates : tuple of EventGate
        Requests that were dropped.
    """

    terms: tuple[CoarseTerm, ...]
    unknown: tuple[str, ...]
    gates: tuple[EventGate, ...]


def coarse_host(
    run: CoarseRun, kernel: FittedKernel | None, *, draws: int = 100, seed: int = 0
) -> CoarseResult:
    """Read off a source what it knows of the host.

    Parameters
    ----------
    run : CoarseRun
        The source.
    kernel : FittedKernel or None
        The kernel of the same deployment, to price steps with; None where there is none.
    draws : int
        Bootstrap draws.
    seed : int
        Their seed.

    Returns
    -------
    CoarseResult
        Terms with intervals, and what stays unknown.
    """
    left, single, gates = gate_coarse(run)
    terms: list[CoarseTerm] = []
    unknown: list[str] = []
    inside = np.isfinite(left.queue_s) & np.isfinite(left.prefill_s)
    alone = left.alone() & np.isfinite(left.first_s)
    if np.count_nonzero(inside) >= FEWEST_REQUESTS:
        apart = inside & alone
        if np.count_nonzero(apart) >= FEWEST_REQUESTS:
            terms += _engine(left.take(apart), (), draws, seed)
        else:
            terms += _engine(left.take(inside), (WAITING,), draws, seed)
            unknown.append(
                "too few requests had the server to themselves: what they wait for in the front "
                "end is in the sum"
            )
    elif left.prompt.size:
        unknown.append("the time in queue and prefill is not stated with the requests")
        if np.count_nonzero(alone) >= FEWEST_REQUESTS:
            terms += _client(left.take(alone), kernel, draws, seed)
            if kernel is not None:
                terms += _between(left.take(alone & single), kernel, draws, seed)
        else:
            unknown.append(
                "too few requests had the server to themselves: queueing is not told from the rest"
            )
    if not left.prompt.size and run.windows:
        found, why = _windows(run, draws, seed)
        terms += found
        unknown += why
    unknown += _never(terms)
    used_alone = bool(terms) and not any(WAITING in term.parts for term in terms)
    dropped = int(np.count_nonzero(~alone)) if used_alone or not inside.any() else 0
    if dropped:
        rule = "other requests were served at the same time"
        gates = (*gates, EventGate("met_others", run.run, dropped, rule))
    return CoarseResult(tuple(terms), tuple(unknown), gates)


def _never(terms: Sequence[CoarseTerm]) -> list[str]:
    alone = {term.parts[0] for term in terms if len(term.parts) == 1 and term.verdict != "prior"}
    told = []
    if "admission_token_s" not in alone:
        told.append("admission_token_s: not told from the rest")
    told.append("admission_request_s, output_call_s, output_token_s: never but in a sum")
    told.append("completion_s: no request-level time covers it")
    return told


def _engine(run: CoarseRun, also: tuple[str, ...], draws: int, seed: int) -> list[CoarseTerm]:
    left_over = run.first_s - run.arrival_s - run.queue_s - run.prefill_s
    basis = "time to first token less the engine's own queue and prefill, against the prompt"
    parts = (*ADMISSION, *FIRST_OUTPUT, *also)
    # Whoever waits, waits for what others' prompts take.
    slope = ("admission_token_s", *(f"{each}, per token" for each in also))
    return _line(run, run.prompt, left_over, parts, slope, basis, draws, seed)


def _client(run: CoarseRun, kernel: FittedKernel | None, draws: int, seed: int) -> list[CoarseTerm]:
    waited = run.first_s - run.arrival_s
    path = (PATH,) if run.observer == "client" else ()
    constant = (*ADMISSION, *FIRST_OUTPUT, *path)
    if kernel is None:
        basis = "time to first token of requests alone, against the prompt"
        parts = (*constant, PREFILL)
        slope = ("admission_token_s", f"{PREFILL}, per token")
        return _line(run, run.prompt, waited, parts, slope, basis, draws, seed)
    basis = "time to first token of requests alone, less the kernel's prefill, against the prompt"
    price = _Pricer(kernel, run.prompt, draws, seed)
    terms = _line(
        run,
        run.prompt,
        waited - price.prefill_s(None),
        constant,
        ("admission_token_s",),
        basis,
        draws,
        seed,
        redraw=lambda index: waited - price.prefill_s(index),
    )
    # A kernel may be off by more than its own held-out errors on a model that it never saw.
    return [replace(t, verdict="weak") if t.verdict == "identified" else t for t in terms]


def _between(run: CoarseRun, kernel: FittedKernel, draws: int, seed: int) -> list[CoarseTerm]:
    if run.prompt.size < FEWEST_REQUESTS:
        return []
    gap = (run.end_s - run.first_s) / (run.output - 1.0)
    price = _Pricer(kernel, run.prompt + run.output / 2.0, draws, seed)
    generator = np.random.default_rng(seed)
    nominal = float(np.median(gap - price.decode_s(None)))
    samples = []
    for index in range(draws):
        rows = _rows(gap.size, generator)
        samples.append(float(np.median((gap - price.decode_s(index))[rows])))
    parts = ("output_call_s", "output_token_s", "hand-over between steps")
    basis = (
        "gap between tokens of requests alone less the kernel's step; what is handled while the "
        "next step runs does not show"
    )
    return [_term(run, parts, nominal, np.asarray(samples), gap.size, basis)]


def _windows(run: CoarseRun, draws: int, seed: int) -> tuple[list[CoarseTerm], list[str]]:
    needed = ("time_to_first_token", "queue", "prefill", "prompt_tokens")
    rows = [
        {name: window[name][0] / window[name][1] for name in needed}
        for window in run.windows
        if all(name in window and window[name][1] > 0 for name in needed)
    ]
    if not rows:
        return [], ["means alone, without queue and prefill: no part of the host can be told"]
    prompt = np.asarray([row["prompt_tokens"] for row in rows])
    over = np.asarray([row["time_to_first_token"] - row["queue"] - row["prefill"] for row in rows])
    parts = (*ADMISSION, *FIRST_OUTPUT, WAITING)
    basis = "means between scrapes: time to first token less queue and prefill"
    if len(rows) < FEWEST_WINDOWS or prompt.max() < 2.0 * prompt.min():
        mean = float(np.mean(over))
        spread = float(np.std(over, ddof=1) / np.sqrt(over.size)) if over.size > 1 else np.inf
        samples = mean + spread * np.random.default_rng(seed).standard_normal(draws)
        whole = (*parts, f"{prompt.mean():.0f} x admission_token_s")
        why = "too few intervals, or prompts too alike between them, for a slope"
        if not np.isfinite(spread):
            return [], [why, "one interval has no scatter to judge it by"]
        return [_term(run, whole, mean, samples, len(rows), basis)], [why]
    slope = ("admission_token_s", f"{WAITING}, per token")
    why = "means do not say which requests met: what they wait for in the front end is in the sum"
    return _line(run, prompt, over, parts, slope, basis, draws, seed, block=1), [why]


class _Pricer:
    """Steps of requests alone, with the kernel's values and with each of its draws."""

    def __init__(self, kernel: FittedKernel, tokens: Floats, draws: int, seed: int) -> None:
        self.tokens = tokens
        known = np.unique(np.round(tokens))
        if known.size > GRID:
            known = np.unique(np.round(np.geomspace(known[0], known[-1], GRID)))
        self.grid = np.maximum(known, 1.0)
        count = len(kernel.fitted.draws)
        self.kernels = [kernel, *(kernel.with_draw(i % count) for i in range(draws) if count)]
        # What the draws do not hold: how far the kernel's own law is off.
        spreads = {r.phase: float(np.median(np.abs(r.log_ratio))) for r in kernel.fitted.residuals}
        # A phase never seen is not known better than the others.
        widest = max(spreads.values(), default=0.0)
        generator = np.random.default_rng(seed + 1)
        self.off = {
            phase: generator.normal(0.0, spreads.get(phase, widest), draws)
            for phase in ("prefill", "decode")
        }

    def _priced(self, index: int | None, phase: str, batch: Callable[[int], list[Batch]]) -> Floats:
        place = 0 if index is None or len(self.kernels) == 1 else 1 + index
        kernel = self.kernels[place]
        times = [
            sum(kernel.mean_step_time(kernel.totals(step)) for step in batch(int(tokens)))
            for tokens in self.grid
        ]
        factor = 1.0 if index is None else float(np.exp(self.off[phase][index]))
        return np.asarray(np.interp(self.tokens, self.grid, times)) * factor

    def prefill_s(self, index: int | None) -> Floats:
        """Price the steps until the first token, in chunks of the step's budget [s]."""
        most = self.kernels[0].plan.resolution.max_num_batched_tokens

        def steps(tokens: int) -> list[Batch]:
            return [
                Batch((RequestShape(min(most, tokens - done), done, tokens),))
                for done in range(0, tokens, most)
            ]

        return self._priced(index, "prefill", steps)

    def decode_s(self, index: int | None) -> Floats:
        """Price one decode step of one request [s]."""
        return self._priced(index, "decode", lambda tokens: [Batch.decode(1, tokens)])


def _line(
    run: CoarseRun,
    count: Floats,
    seconds: Floats,
    constant: tuple[str, ...],
    slope: tuple[str, ...],
    basis: str,
    draws: int,
    seed: int,
    *,
    redraw: Callable[[int], Floats] | None = None,
    block: int = BLOCK_REQUESTS,
) -> list[CoarseTerm]:
    """Fit a robust line and its intervals."""
    if count.max() < LEAST_SPAN * count.min() and block == BLOCK_REQUESTS:
        generator = np.random.default_rng(seed)
        values = [
            float(
                np.median((seconds if redraw is None else redraw(i))[_rows(count.size, generator)])
            )
            for i in range(draws)
        ]
        whole = (*constant, *(f"{count.mean():.0f} x {name}" for name in slope))
        nominal = float(np.median(seconds))
        return [_term(run, whole, nominal, np.asarray(values), count.size, basis)]
    nominal_fit = robust_line(count, seconds)
    generator = np.random.default_rng(seed)
    samples = np.empty((draws, 2))
    for index in range(draws):
        rows = _rows(count.size, generator, block)
        drawn = seconds if redraw is None else redraw(index)
        samples[index] = robust_line(count[rows], drawn[rows])
    return [
        _term(run, constant, float(nominal_fit[0]), samples[:, 0], count.size, basis),
        _term(run, slope, float(nominal_fit[1]), samples[:, 1], count.size, basis),
    ]


def robust_line(count: Floats, seconds: Floats) -> Floats:
    """Return the constant and the slope of a robust line.

    Parameters
    ----------
    count : ndarray, shape (n,)
        The counted thing [count].
    seconds : ndarray, shape (n,)
        Times [s]; differences of two clocks may lie below zero.

    Returns
    -------
    ndarray, shape (2,)
        Constant [s] and slope [s per count].

    Notes
    -----
    Soft-L1 least squares in units of the residuals' robust deviation, estimated anew three
    times; that of each quarter of the counts is its own, since long prompts scatter more.
    """
    scale = max(float(np.max(np.abs(count))), 1.0)
    design = np.column_stack([np.ones(count.size), count / scale])
    weight = np.ones(count.size)
    quarters = [part for part in np.array_split(np.argsort(count), 4) if part.size]
    line = np.linalg.lstsq(design, seconds, rcond=None)[0]
    for _ in range(3):
        rest = seconds - design @ line
        for part in quarters:
            spread = 1.4826 * float(np.median(np.abs(rest[part])))
            weight[part] = 1.0 / max(spread, 1e-9)

        def residual(at: Floats, weight: Floats = weight) -> Floats:
            return np.asarray((seconds - design @ at) * weight)

        line = least_squares(
            residual, line, jac=lambda _at, w=weight: -design * w[:, None], loss="soft_l1"
        ).x
    return np.asarray([line[0], line[1] / scale])


def _rows(size: int, generator: np.random.Generator, block: int = BLOCK_REQUESTS) -> Floats:
    """Return the rows of one resample of blocks."""
    count = -(-size // block)
    starts = generator.integers(0, max(size - block, 0) + 1, count)
    rows = (starts[:, None] + np.arange(min(block, size))).ravel()
    return np.asarray(rows[:size])


def _term(
    run: CoarseRun, parts: tuple[str, ...], value: float, samples: Floats, requests: int, basis: str
) -> CoarseTerm:
    low, high = (float(q) for q in np.quantile(samples, [0.025, 0.975]))
    low, high = min(low, value), max(high, value)
    half = 0.5 * (high - low)
    sure = "identified" if half <= PINNED * value else "weak"
    verdict = "prior" if low <= 0.0 else sure
    return CoarseTerm(
        run.run, run.reader, run.scope, parts, value, (low, high), verdict, requests, basis
    )
