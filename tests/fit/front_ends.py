"""Host work drawn from planted coefficients, with the noise of a shared host."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernelfit.fit.front_end_runs import KINDS, FrontEndRun

TRUTH = {
    "admission_request_s": 220e-6,
    "admission_token_s": 1.4e-6,
    "output_call_s": 60e-6,
    "output_token_s": 25e-6,
    "output_extra_token_s": 6e-6,
    "completion_s": 150e-6,
}
SCOPE = "EPYC-Milan; vllm 0.32.0; BPE of 32,000 words"
Floats = npt.NDArray[np.float64]


def noise(
    rng: np.random.Generator, size: int, spread: float, memory: float, stalls: float
) -> Floats:
    """Multiplicative noise that remembers itself, with a share of long stalls."""
    white = rng.normal(0.0, spread * np.sqrt(1 - memory**2), size)
    log = np.zeros(size)
    for k in range(1, size):
        log[k] = memory * log[k - 1] + white[k]
    stalled = rng.random(size) < stalls
    return np.asarray(np.exp(log) * np.where(stalled, rng.uniform(3.0, 30.0, size), 1.0))


def simulate(
    seed: int,
    *,
    requests: int = 800,
    calls: int = 3000,
    prompts: tuple[int, int] = (1, 30_000),
    most_outputs: int = 32,
    extra: bool = True,
    spread: float = 0.15,
    memory: float = 0.5,
    stalls: float = 0.01,
    power: float = 1.0,
    scope: str = SCOPE,
    truth: dict[str, float] | None = None,
    run: str = "planted",
) -> FrontEndRun:
    """Draw a run's events; ``power`` bends the time per prompt token."""
    rng = np.random.default_rng(seed)
    known = TRUTH if truth is None else truth
    low, high = np.log(prompts[0]), np.log(prompts[1])
    tokens = np.round(np.exp(rng.uniform(low, high, requests)))
    admission = known["admission_request_s"] + known["admission_token_s"] * tokens**power
    outputs = rng.integers(1, most_outputs + 1, calls).astype(float)
    more = (
        np.where(rng.random(calls) < 0.3, rng.integers(1, 40, calls), 0) if extra else 0 * outputs
    )
    output = known["output_call_s"] + known["output_token_s"] * outputs
    output = output + known["output_extra_token_s"] * more
    end = np.full(requests, known["completion_s"])
    out_tokens = np.round(np.exp(rng.uniform(0.0, np.log(4000), requests)))
    parts = [
        seconds * noise(rng, seconds.size, spread, memory, stalls)
        for seconds in (admission, output, end)
    ]
    sizes = (requests, calls, requests)
    return FrontEndRun(
        run=run,
        gpu="planted-gpu",
        scope=scope,
        kind=np.repeat(np.arange(len(KINDS)), sizes),
        start_s=np.concatenate([np.cumsum(part + 1e-3) - part for part in parts]),
        duration_s=np.concatenate(parts),
        tokens=np.concatenate([tokens, outputs + more, out_tokens]),
        requests=np.concatenate([np.ones(requests), outputs, np.ones(requests)]),
        process=np.zeros(sum(sizes), dtype=np.int64),
    )
