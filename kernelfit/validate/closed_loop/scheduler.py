"""A small scheduler with vLLM's admission rules.

Rules of the engine's own scheduler (version 1 engine, first come first served), in its order:
those that run get tokens first, each as many as it lacks and the budget allows; where KV
blocks run out the newest of them makes way and is computed anew later; if none had to, those
that wait follow while the budget, the sequence limit and the blocks allow. Prompts come in
chunks. Prefix-cache hits are given counts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kernelfit.kernel.batch import RequestShape
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.validate.closed_loop.requests import Arrival


@dataclass(frozen=True, slots=True)
class Limits:
    """What a step may hold.

    Attributes
    ----------
    max_num_batched_tokens : int
        Tokens of a step [tokens].
    max_num_seqs : int
        Requests that run at a time.
    block_size : int
        Tokens of a KV block [tokens].
    kv_blocks : int or None
        Blocks of the KV cache; None where it never fills.
    """

    max_num_batched_tokens: int
    max_num_seqs: int
    block_size: int = 16
    kv_blocks: int | None = None


@dataclass(slots=True)
class Running:
    """A request in the engine.

    Attributes
    ----------
    number : int
        Its place in the trace.
    arrival : Arrival
        Its lengths.
    computed : int
        Tokens whose KV exists [tokens].
    emitted : int
        Tokens of the answer so far [tokens].
    blocks : int
        KV blocks that it holds.
    preemptions : int
        How often it made way.
    """

    number: int
    arrival: Arrival
    computed: int = 0
    emitted: int = 0
    blocks: int = 0
    preemptions: int = 0

    @property
    def known_tokens(self) -> int:
        """Prompt and answer so far [tokens]."""
        return self.arrival.prompt_tokens + self.emitted


@dataclass(slots=True)
class Scheduler:
    """Requests that wait and run, and which of them a step holds.

    Attributes
    ----------
    limits : Limits
        What a step may hold.
    waiting : deque of Running
        Requests that wait, the next one first.
    running : list of Running
        Requests that run, the oldest first.
    """

    limits: Limits
    waiting: deque[Running] = field(default_factory=deque)
    running: list[Running] = field(default_factory=list)
    _used: int = 0

    def add(self, number: int, arrival: Arrival) -> None:
        """Let a request wait.

        Parameters
        ----------
        number : int
            Its place in the trace.
        arrival : Arrival
            Its lengths.

        Raises
        ------
        InvalidArgument
            When the KV cache could never hold it.
        """
        most = self._blocks(arrival.prompt_tokens + arrival.output_tokens - 1)
        if self.limits.kv_blocks is not None and most > self.limits.kv_blocks:
            least = f">= {most} KV blocks, which request {number} needs alone"
            raise InvalidArgument("kv_blocks", self.limits.kv_blocks, least)
        self.waiting.append(Running(number, arrival))

    def step(self) -> list[tuple[Running, RequestShape]]:
        """Choose the requests of the next step.

        Returns
        -------
        list of (Running, RequestShape)
            In the engine's order; empty when nothing can run.
        """
        budget = self.limits.max_num_batched_tokens
        chosen: list[tuple[Running, RequestShape]] = []
        preempted = False
        place = 0
        while place < len(self.running) and budget > 0:
            request = self.running[place]
            count = min(request.known_tokens - request.computed, budget)
            while not self._grow(request, count):
                preempted = True
                victim = self.running.pop()
                self._make_way(victim)
                if victim is request:
                    break
            else:
                chosen.append((request, _shape(request, count)))
                budget -= count
                place += 1
                continue
            break
        while not preempted and self.waiting and budget > 0:
            if len(self.running) >= self.limits.max_num_seqs:
                break
            request = self.waiting[0]
            request.computed = request.arrival.cached_tokens
            count = min(request.known_tokens - request.computed, budget)
            if not self._grow(request, count):
                request.computed = 0
                break
            self.running.append(self.waiting.popleft())
            chosen.append((request, _shape(request, count)))
            budget -= count
        return chosen

    def done(self, chosen: list[tuple[Running, RequestShape]]) -> list[tuple[Running, bool]]:
        """Take the result of a step.

        Parameters
        ----------
        chosen : list of (Running, RequestShape)
            As ``step`` returned them.

        Returns
        -------
        list of (Running, bool)
            Requests that got a token, in order, and whether it was their last.
        """
        emitted = []
        for request, shape in chosen:
            request.computed += shape.scheduled
            if request.computed < request.known_tokens:
                continue
            request.emitted += 1
            last = request.emitted >= request.arrival.output_tokens
            if last:
                self._used -= request.blocks
                self.running.remove(request)
            emitted.append((request, last))
        return emitted

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.limits.block_size)

    def _grow(self, request: Running, count: int) -> bool:
        """Give a request the blocks of its next tokens; False when there are too few."""
        if self.limits.kv_blocks is None:
            return True
        more = self._blocks(request.computed + count) - request.blocks
        if self._used + more > self.limits.kv_blocks:
            return False
        request.blocks += more
        self._used += more
        return True

    def _make_way(self, request: Running) -> None:
        self._used -= request.blocks
        request.blocks = request.computed = 0
        request.preemptions += 1
        self.waiting.appendleft(request)


def _shape(request: Running, count: int) -> RequestShape:
    cached = min(request.arrival.cached_tokens, request.computed)
    return RequestShape(count, request.computed, request.arrival.prompt_tokens, cached)
