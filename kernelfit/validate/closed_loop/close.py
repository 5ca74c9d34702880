"""Close the loop for stored runs: replay, compare, and say what the comparison rests on."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelfit.kernel.batch import Batch, RequestShape
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.frozen import to_data
from kernelfit.store.scan import RunRecord
from kernelfit.validate.closed_loop.compare import loop_errors, summary
from kernelfit.validate.closed_loop.replay import HOST_TERMS, kernel_prices, replay
from kernelfit.validate.closed_loop.served import limits_of, served_run

PACED = "paced"
"""All host terms, and steps at the pace of the run itself: no prediction, but what is left of
the error is the scheduler's and the front end's."""

WINDOW_S = 2.0
LONGEST_BETWEEN_S = 5e-3
"""Longest time between two steps that is taken as the engine's work and not as idling [s]."""


def close_loop(
    kernel: FittedKernel,
    record: RunRecord,
    repeats: Sequence[RunRecord] = (),
    kv_blocks: int | None = None,
) -> dict[str, Any]:
    """Replay what a run served and compare latencies.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel of the run's pool.
    record : RunRecord
        The run.
    repeats : sequence of RunRecord
        The same load, run again: how well the machine repeats itself.
    kv_blocks : int, optional
        Blocks of the KV cache; without it the cache never fills.

    Returns
    -------
    dict
        ``run``, what it rests on, ``errors`` (rows of ``LoopError``) and ``distributions``
        (quantiles of the latencies measured, replayed and repeated), in SI units.

    Raises
    ------
    InputError
        When a run holds no requests as served.
    """
    served = served_run(record)
    again = [served_run(other) for other in repeats]
    limits = limits_of(kernel, kv_blocks)
    replays = {
        host: replay(served.trace, kernel_prices(kernel, host), limits) for host in HOST_TERMS
    }
    times = {host: found.latencies for host, found in replays.items()}
    whole = replays["all"]
    account = step_account(kernel, record)
    if account.paces:
        pace = account.pace(served.start_s)
        paced = replace(kernel_prices(kernel), pace=pace)
        times[PACED] = replay(served.trace, paced, limits).latencies
    end_s = max((start + time for start, time, _, _ in whole.steps), default=0.0)
    return {
        "run": served.run,
        "observer": served.observer,
        "requests": len(served.trace),
        "left_out": served.unknown,
        "cached_unknown": served.uncounted,
        "preempted_steps": served.preempted_steps,
        "replayed_preemptions": whole.preemptions,
        "engine_busy": sum(time for _, time, _, _ in whole.steps) / end_s if end_s else 0.0,
        "front_end_busy": whole.front_end_busy_s / end_s if end_s else 0.0,
        "step_bias": account.bias,
        "out_of_domain": account.out_of_domain,
        "repeats": [other.run for other in again],
        "errors": [
            to_data(row)
            for row in loop_errors(served.measured, times, [other.measured for other in again])
        ],
        "distributions": {
            "measured": summary(served.measured),
            **{f"replayed_{host}": summary(found) for host, found in times.items()},
            **{f"repeat_{n}": summary(other.measured) for n, other in enumerate(again)},
        },
    }


@dataclass(frozen=True, slots=True)
class StepAccount:
    """What a kernel makes of a run's own steps.

    Attributes
    ----------
    bias : float or None
        Sum of predicted over sum of measured step times, less one [1]: the part of a closed
        loop's error that is the kernel's and not the replay's. Measured is the device's
        time with the host's where that is known; None where the run has no such steps.
    out_of_domain : float or None
        Share of the steps that lie outside of what the calibration has seen [1].
    paces : mapping of int to float
        By window of ``WINDOW_S``, measured over predicted time [1], from one step's start to
        the next one's where the engine did not idle between.
    """

    bias: float | None
    out_of_domain: float | None
    paces: Mapping[int, float]

    def pace(self, start_s: float) -> Callable[[float], float]:
        """Return how much slower than its price the run was at each moment.

        Parameters
        ----------
        start_s : float
            The moment of the run at which the trace begins [s].

        Returns
        -------
        callable
            From a moment of the trace [s] to the ratio of its window [1]; the nearest
            window's where none of its steps is known.
        """
        windows = sorted(self.paces)

        def at(moment_s: float) -> float:
            here = (start_s + moment_s) // WINDOW_S
            place = bisect.bisect_left(windows, here)
            near = windows[max(0, place - 1) : place + 1]
            return self.paces[min(near, key=lambda window: abs(window - here))]

        return at


def step_account(kernel: FittedKernel, record: RunRecord) -> StepAccount:
    """Compare a kernel with a run's own steps, all together.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    record : RunRecord
        The run, whose steps state the counts of every request.

    Returns
    -------
    StepAccount
        Bias and share out of domain.
    """
    shapes: dict[tuple[int, int], list[RequestShape]] = {}
    for row in record.requests.to_pylist():
        if row["computed"] is None or row["prompt_len"] is None:
            continue
        cached = min(row["cached"] or 0, row["computed"])
        shape = RequestShape(row["scheduled"], row["computed"], row["prompt_len"], cached)
        shapes.setdefault((row["engine"], row["step"]), []).append(shape)
    measured = predicted = 0.0
    inside: list[bool] = []
    spent: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    rows = record.steps.sort_by("start_s").to_pylist()
    for place, row in enumerate(rows):
        batch = shapes.get((row["engine"], row["step"]))
        if batch is None or len(batch) != row["requests"]:
            continue
        totals = kernel.totals(Batch(tuple(batch)))
        inside.append(kernel.in_domain(totals))
        parts = [row[name] for name in ("duration_s", "schedule_s", "dispatch_s", "update_s")]
        if None not in parts:
            whole_s, mean_s = sum(parts), kernel.mean_step_time(totals)
            measured += whole_s
            predicted += mean_s
            if row["start_s"] is not None:
                between_s = _between_s(rows, place, whole_s)
                window = spent[int(row["start_s"] // WINDOW_S)]
                window[0] += whole_s + between_s
                window[1] += mean_s
    return StepAccount(
        predicted / measured - 1.0 if measured > 0.0 else None,
        1.0 - sum(inside) / len(inside) if inside else None,
        {window: took / price for window, (took, price) in spent.items() if price > 0.0},
    )


def _between_s(rows: Sequence[Mapping[str, Any]], place: int, whole_s: float) -> float:
    """Return the engine's time between a step and the next [s]; 0 where it may have idled."""
    if place + 1 >= len(rows):
        return 0.0
    between = float(rows[place + 1]["start_s"]) - float(rows[place]["start_s"]) - whole_s
    return between if 0.0 < between < LONGEST_BETWEEN_S else 0.0
