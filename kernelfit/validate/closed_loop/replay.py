"""Replay an arrival trace through the scheduler, priced by a kernel.

Two things work at once: the engine, one step after the other, and the front end, one piece of
work after the other. A request waits for the front end, then for the engine's next step; a
step's tokens wait for the front end again. What is waited for is here; what things take is
the kernel's.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.kernel.batch import Batch, RequestShape
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.front_end import FrontEnd
from kernelfit.kernel.laws import SCHEDULE_COEFFICIENTS
from kernelfit.validate.closed_loop.requests import Arrival, Latencies, latencies
from kernelfit.validate.closed_loop.scheduler import Limits, Running, Scheduler

StepPrice = Callable[[Sequence[RequestShape]], float]
Pace = Callable[[float], float]


def even_pace(_moment_s: float) -> float:
    """Return the pace of a machine that is as fast at one moment as at another.

    Parameters
    ----------
    _moment_s : float
        Any moment [s].

    Returns
    -------
    float
        1 [1].
    """
    return 1.0


HOST_TERMS: tuple[str, ...] = ("all", "step", "none")
"""Which host terms a replay charges: all; those of the step but not the front end's; none."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What things take.

    Attributes
    ----------
    step_s : callable
        From the requests of a step to its time, host work included [s].
    front_end : FrontEnd
        The front end's work.
    pace : callable
        From a moment of the trace [s] to how long a step takes then, over its price [1].
    """

    step_s: StepPrice
    front_end: FrontEnd
    pace: Pace = even_pace


def kernel_prices(kernel: FittedKernel, host: str = "all") -> Prices:
    """Return the prices of a kernel.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel of the pool that served.
    host : str
        One of ``HOST_TERMS``.

    Returns
    -------
    Prices
        The kernel's mean step time and front end, without the host terms that are left out.

    Raises
    ------
    ValueError
        When ``host`` is another word.
    """
    if host not in HOST_TERMS:
        raise ValueError(f"host must be one of {', '.join(HOST_TERMS)} (got {host})")
    values = {c.name: c.value for c in kernel.fitted.coefficients}
    per_step, per_request = (
        values.get(name, 0.0) if host == "none" else 0.0 for name in SCHEDULE_COEFFICIENTS
    )

    def step_s(shapes: Sequence[RequestShape]) -> float:
        whole = kernel.mean_step_time(kernel.totals(Batch(tuple(shapes))))
        return whole - per_step - per_request * len(shapes)

    return Prices(step_s, kernel.front_end if host == "all" else FrontEnd())


@dataclass(frozen=True, slots=True)
class Replay:
    """What became of a trace.

    Attributes
    ----------
    latencies : Latencies
        Of every request, in the order of the trace.
    steps : tuple of (float, float, int, int)
        Start [s], time [s], requests and tokens of each step.
    preemptions : int
        How often a request made way.
    front_end_busy_s : float
        How long the front end worked [s].
    """

    latencies: Latencies
    steps: tuple[tuple[float, float, int, int], ...]
    preemptions: int
    front_end_busy_s: float


_ARRIVES, _ADMITTED, _STEPPED = range(3)


class _Loop:
    """The engine, the front end and the moments still to come."""

    def __init__(self, trace: Sequence[Arrival], prices: Prices, limits: Limits) -> None:
        self.trace, self.prices = trace, prices
        self.scheduler = Scheduler(limits)
        self.moments: list[tuple[float, int, int, int]] = []
        self.serial = 0
        self.free_s = 0.0
        self.busy_s = 0.0
        self.chosen: list[tuple[Running, RequestShape]] | None = None
        self.first_s = np.full(len(trace), np.nan)
        self.last_s = np.full(len(trace), np.nan)
        self.steps: list[tuple[float, float, int, int]] = []
        self.preemptions = 0
        for number, arrival in enumerate(trace):
            self.at(arrival.arrival_s, _ARRIVES, number)

    def at(self, moment_s: float, kind: int, number: int = -1) -> None:
        # What is due at the same moment happens in the order in which it was found.
        heapq.heappush(self.moments, (moment_s, self.serial, kind, number))
        self.serial += 1

    def work(self, ready_s: float, takes_s: float) -> float:
        """Let the front end do a piece of work and return when it begins [s]."""
        begin_s = max(ready_s, self.free_s)
        self.free_s = begin_s + takes_s
        self.busy_s += takes_s
        return begin_s

    def run(self) -> None:
        while self.moments:
            now_s, _, kind, number = heapq.heappop(self.moments)
            if kind == _ARRIVES:
                takes_s = self.prices.front_end.admission_s(self.trace[number].prompt_tokens)
                self.at(self.work(now_s, takes_s) + takes_s, _ADMITTED, number)
                continue
            if kind == _ADMITTED:
                self.scheduler.add(number, self.trace[number])
            elif self.chosen is not None:
                self.deliver(now_s, self.scheduler.done(self.chosen))
                self.chosen = None
            # All that is due now is known before the engine looks.
            if self.chosen is None and not self._due_now(now_s):
                self.start(now_s)

    def _due_now(self, now_s: float) -> bool:
        return bool(self.moments) and self.moments[0][0] == now_s and self.moments[0][2] != _ARRIVES

    def start(self, now_s: float) -> None:
        chosen = self.scheduler.step()
        if not chosen:
            return
        shapes = [shape for _, shape in chosen]
        takes_s = self.prices.step_s(shapes) * self.prices.pace(now_s)
        self.steps.append((now_s, takes_s, len(shapes), sum(s.scheduled for s in shapes)))
        self.chosen = chosen
        self.at(now_s + takes_s, _STEPPED)

    def deliver(self, now_s: float, emitted: Sequence[tuple[Running, bool]]) -> None:
        """Let the front end hand out a step's tokens, one request after the other."""
        if not emitted:
            return
        front = self.prices.front_end
        finished = sum(last for _, last in emitted)
        call_s = front.output_call(len(emitted))
        begin_s = self.work(now_s, call_s + finished * front.completion_s)
        out_s = begin_s + front.output_call_s
        for request, last in emitted:
            out_s += front.output_token_s
            if request.emitted == 1:
                self.first_s[request.number] = out_s
            if last:
                self.last_s[request.number] = out_s
                self.preemptions += request.preemptions
                out_s += front.completion_s


def replay(trace: Sequence[Arrival], prices: Prices, limits: Limits) -> Replay:
    """Replay an arrival trace.

    Parameters
    ----------
    trace : sequence of Arrival
        The requests, in order of arrival.
    prices : Prices
        What things take.
    limits : Limits
        What a step may hold.

    Returns
    -------
    Replay
        Every request's latencies, and the steps.

    Raises
    ------
    InvalidArgument
        When the KV cache could never hold a request.

    Notes
    -----
    Scheduling is synchronous: a step starts when the one before it has ended. All of the
    front end's work is done one piece after the other, tokenisation included.
    """
    loop = _Loop(trace, prices, limits)
    loop.run()
    times = latencies(
        [a.arrival_s for a in trace],
        loop.first_s,
        loop.last_s,
        [a.output_tokens for a in trace],
    )
    return Replay(times, tuple(loop.steps), loop.preemptions, loop.busy_s)
