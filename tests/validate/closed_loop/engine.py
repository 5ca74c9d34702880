"""An engine of another make: the same rules, written down from what vLLM documents.

It knows nothing of moments to come: whenever the engine looks, the whole history of the front
end is worked out anew from the jobs that it was given until then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kernelfit.kernel.front_end import FrontEnd
from kernelfit.validate.closed_loop.requests import Arrival

Law = Callable[[Sequence[tuple[int, int]]], float]


@dataclass
class Seen:
    """What became of the requests."""

    first_s: dict[int, float] = field(default_factory=dict)
    last_s: dict[int, float] = field(default_factory=dict)
    batches: list[tuple[tuple[int, int], ...]] = field(default_factory=list)


def serve(trace: Sequence[Arrival], law: Law, front: FrontEnd, budget: int, seats: int) -> Seen:
    """Serve a trace; ``law`` takes (tokens, context) of every request of a step."""
    seen = Seen()
    jobs: list[tuple[float, float, int]] = [
        (a.arrival_s, front.admission_request_s + a.prompt_tokens * front.admission_token_s, i)
        for i, a in enumerate(trace)
    ]
    left = {i: a.prompt_tokens - a.cached_tokens for i, a in enumerate(trace)}
    context = {i: a.cached_tokens for i, a in enumerate(trace)}
    given = dict.fromkeys(range(len(trace)), 0)
    seated: list[int] = []
    now = 0.0

    def history() -> list[tuple[float, float, int]]:
        free, worked = 0.0, []
        for ready, takes, owner in sorted(jobs, key=lambda job: job[0]):
            begin = max(ready, free)
            free = begin + takes
            worked.append((begin, free, owner))
        return worked

    while len(seen.last_s) < len(trace):
        entered = {
            owner: end for _, end, owner in history() if owner >= 0 and owner not in seen.last_s
        }
        queue = sorted((o for o in entered if o not in seated), key=lambda o: entered[o])
        if not seated and not any(entered[o] <= now for o in queue):
            now = min(entered[o] for o in queue)
        tokens, batch = budget, []
        for one in seated:
            share = min(tokens, left[one] or 1)
            if share:
                batch.append((one, share))
                tokens -= share
        for one in queue:
            if entered[one] > now or not tokens or len(seated) == seats:
                break
            seated.append(one)
            share = min(tokens, left[one])
            batch.append((one, share))
            tokens -= share
        seen.batches.append(tuple((share, context[one]) for one, share in batch))
        now += law(seen.batches[-1])
        lucky = []
        for one, share in batch:
            left[one] = max(0, left[one] - share)
            context[one] += share
            if not left[one]:
                given[one] += 1
                lucky.append(one)
        over = [one for one in lucky if given[one] == trace[one].output_tokens]
        takes = front.output_call_s + len(lucky) * front.output_token_s
        takes += len(over) * front.completion_s
        if not lucky:
            continue
        jobs.append((now, takes, -1))
        at = next(begin for begin, _, owner in reversed(history()) if owner == -1)
        at += front.output_call_s
        for one in lucky:
            at += front.output_token_s
            seen.first_s.setdefault(one, at)
            if one in over:
                seen.last_s[one] = at
                seated.remove(one)
                at += front.completion_s
    return seen
