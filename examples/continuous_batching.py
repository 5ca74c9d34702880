"""Time a continuous-batching engine: python examples/continuous_batching.py [KERNEL]."""
# ruff: noqa: INP001, T201

import random
import sys
from collections import deque

from kernelfit.kernel import Batch, FittedKernel, RequestShape


class Request:
    """A request, what the engine holds of it, and when things happened to it."""

    def __init__(self, arrival_s, prompt, output):
        self.arrival_s, self.prompt, self.output = arrival_s, prompt, output
        self.computed = self.emitted = self.held_bytes = 0
        self.first_s = self.done_s = 0.0


def simulate(kernel, requests, room):
    """Serve requests within ``room`` bytes; return steps as ``(start, seconds, shapes)``."""
    limits, pinned, now = kernel.resolved(), kernel.sequence_fixed_bytes(), 0.0
    waiting, running, steps = deque(requests), [], []
    while waiting or running:
        now = now if running else max(now, waiting[0].arrival_s)
        budget, step, queue, evicted = limits.max_num_batched_tokens, [], deque(running), False
        while budget:  # those that run, in order, then those that wait
            new = not queue
            full = evicted or len(running) == limits.max_num_seqs
            if new and (full or not waiting or waiting[0].arrival_s > now):
                break
            request = waiting[0] if new else queue.popleft()
            count = min(request.prompt + request.emitted - request.computed, budget)
            held = pinned + kernel.sequence_variable_bytes(request.computed + count)
            growth = held - request.held_bytes
            while growth > room and queue:  # the newest makes way and will start anew
                victim, evicted = running.pop(), True
                waiting.appendleft(queue.pop())
                room, victim.held_bytes, victim.computed = room + victim.held_bytes, 0, 0
            if growth > room:
                break
            if new:
                running.append(waiting.popleft())
            room, budget, request.held_bytes = room - growth, budget - count, held
            step.append((request, RequestShape(count, request.computed, request.prompt)))
        batch = Batch(tuple(shape for _, shape in step))
        steps.append((now, kernel.mean_step_time(kernel.totals(batch)), batch.requests))
        now += steps[-1][1]
        for request, shape in step:
            request.computed += shape.scheduled
            if request.computed == request.prompt + request.emitted:
                request.emitted += 1
                request.first_s = request.first_s or now
            if request.emitted == request.output:
                request.done_s, room = now, room + request.held_bytes
                running.remove(request)
    return steps


if __name__ == "__main__":
    default = "calib/kernels/epyc-milan-core-kf-gqa-tp1.json"
    kernel = FittedKernel.load([*sys.argv, default][1])
    choose, now, requests = random.Random(0), 0.0, []
    for _ in range(100):
        now += choose.expovariate(2.0)  # two requests per second, at random
        requests.append(Request(now, choose.randint(16, 512), choose.randint(8, 64)))
    share = kernel.resolved().gpu_memory_utilization
    room = int(kernel.plan.chip.hbm_bytes * share) - kernel.fixed_bytes().total()
    steps = simulate(kernel, requests, room)
    end, tokens = steps[-1][0] + steps[-1][1], sum(r.emitted for r in requests)
    print(f"{len(requests)} requests, {tokens} tokens, {len(steps)} steps, {end:.1f} s")
    print(f"output tokens per second {tokens / end:.1f}")
    first = sorted(r.first_s - r.arrival_s for r in requests)
    later = sorted((r.done_s - r.first_s) / (r.output - 1) for r in requests)
    for name, values in (("time to first token", first), ("time per output token", later)):
        print(name, *(f"p{q} {values[len(values) * q // 100]:.3f} s" for q in (50, 90, 99)))
