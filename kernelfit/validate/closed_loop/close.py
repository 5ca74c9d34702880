"""Close the loop for stored runs: replay, compare, and say what the comparison rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelfit.kernel.batch import Batch, RequestShape
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.frozen import to_data
from kernelfit.store.scan import RunRecord
from kernelfit.validate.closed_loop.compare import loop_errors, summary
from kernelfit.validate.closed_loop.replay import HOST_TERMS, kernel_prices, replay
from kernelfit.validate.closed_loop.served import limits_of, served_run


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
    """

    bias: float | None
    out_of_domain: float | None


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
    for row in record.steps.to_pylist():
        batch = shapes.get((row["engine"], row["step"]))
        if batch is None or len(batch) != row["requests"]:
            continue
        totals = kernel.totals(Batch(tuple(batch)))
        inside.append(kernel.in_domain(totals))
        parts = [row[name] for name in ("duration_s", "schedule_s", "dispatch_s", "update_s")]
        if None not in parts:
            measured += sum(parts)
            predicted += kernel.mean_step_time(totals)
    return StepAccount(
        predicted / measured - 1.0 if measured > 0.0 else None,
        1.0 - sum(inside) / len(inside) if inside else None,
    )
