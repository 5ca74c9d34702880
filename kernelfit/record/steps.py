"""The engine's side: one row per step, with the four counts of every request."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelfit.record.facts import attribute, write_facts

if TYPE_CHECKING:
    from kernelfit.record.recorder import Recorder

MAX_IN_FLIGHT = 256
"""Steps in flight beyond which the oldest are given up: their outputs will not come back."""

_now = time.monotonic_ns


@dataclass(slots=True)
class Flight:
    """A step between its schedule and its result.

    Attributes
    ----------
    output : object
        The scheduler's output, kept so that its identity is not used again.
    row : dict
        What is known of the step so far.
    requests : list of str
        Request ids in the order of the row's counts; they are never written.
    drafts : dict
        Draft tokens of each request that has some, by its id.
    anew : set of str
        Requests whose computed tokens do not rest on the step before: first scheduled in
        this step, or resumed.
    """

    output: Any
    row: dict[str, Any]
    requests: list[str]
    drafts: dict[str, int]
    anew: set[str]


class EngineSteps:
    """Rows of the process that schedules.

    Nothing is put on the engine's own objects: a scheduler output is pickled to every
    worker. A step is known by the identity of its output.

    Parameters
    ----------
    recorder : Recorder
        Where rows go.

    Attributes
    ----------
    core : object or None
        The engine core, once it stepped; under data parallelism it counts the steps that
        all ranks take together.
    in_flight : dict of int to Flight
        Steps that were submitted and have no result yet, oldest first.
    ordinal : int
        Calls of ``execute_model`` so far. The worker counts the same calls.
    prompt_len, cached : dict
        Prompt length and prefix-cache hit of every live request [tokens].
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.core: Any = None
        self.in_flight: dict[int, Flight] = {}
        self.ordinal = 0
        self.dummies = 0
        self.prompt_len: dict[str, int | None] = {}
        self.cached: dict[str, int] = {}
        self._fresh: Flight | None = None
        self._stated = False
        # Most steps have the requests of the step before; these lists are then used again,
        # and the writer knows their text already.
        self._requests: list[str] = []
        self._prompt_lens: list[int | None] = []
        self._cacheds: list[int | None] = []

    def forget(self) -> None:
        """Let go of everything that belongs to the engine."""
        self.core = None
        self._fresh = None
        self.in_flight.clear()
        self.prompt_len.clear()
        self.cached.clear()

    def scheduled(self, scheduler: Any, output: Any, start_ns: int, end_ns: int) -> None:
        """Note the four counts of every request of one scheduler output.

        Parameters
        ----------
        scheduler : object
            The engine's scheduler.
        output : object
            What ``schedule`` returned.
        start_ns, end_ns : int
            Monotonic clock around the call [ns].
        """
        begin_ns = end_ns
        if not self._stated:
            self._state(scheduler)
            # Once, before the first step; it belongs to no step's cost.
            begin_ns = _now()
        if self._fresh is not None:
            self._overtaken()
        counts = output.num_scheduled_tokens
        requests = list(counts)
        resumed, anew = self._requests_seen(output)
        again = output.scheduled_cached_reqs
        if anew or again.req_ids != requests:
            found = dict(zip(again.req_ids, again.num_computed_tokens, strict=True))
            for new in output.scheduled_new_reqs:
                found[new.req_id] = new.num_computed_tokens
            computed = [found.get(r) for r in requests]
        else:
            computed = list(again.num_computed_tokens)
        if anew or requests != self._requests:
            self._requests = requests
            self._prompt_lens = [self.prompt_len.get(r) for r in requests]
            self._cacheds = [self.cached.get(r) for r in requests]
        spec = output.scheduled_spec_decode_tokens
        drafts = {r: len(tokens) for r, tokens in spec.items()} if spec else {}
        row: dict[str, Any] = {
            "t": "step",
            "i": self.ordinal,
            "n": output.total_num_scheduled_tokens,
            "sched_ns": [start_ns, end_ns],
            "scheduled": list(counts.values()),
            "computed": computed,
            "prompt_len": self._prompt_lens,
            "cached": self._cacheds,
            "resumed": resumed,
            "preempted": len(getattr(output, "preempted_req_ids", None) or ()),
            "drafts": sum(drafts.values()),
            "running": len(scheduler.running),
            "waiting": len(scheduler.waiting),
        }
        self._mark_wave(row)
        if getattr(output, "has_structured_output_requests", False):
            row["structured"] = True
        encoded = getattr(output, "scheduled_encoder_inputs", None)
        if encoded:
            row["encoder_inputs"] = sum(map(len, encoded.values()))
        self._fresh = Flight(output, row, requests, drafts, anew)
        row["cost_ns"] = _now() - begin_ns

    def _state(self, scheduler: Any) -> None:
        """Write what the engine's configuration says of the run."""
        self._stated = True
        config = getattr(scheduler, "vllm_config", None)
        writer = self._recorder.writer("engine", dp=data_parallel_rank(config))
        if config is not None:
            write_facts(writer.path.parent, config, self._recorder.engine_version)

    def _requests_seen(self, output: Any) -> tuple[int, set[str]]:
        """Keep the books of live requests; return resumed ones and those that start anew."""
        # First, because an id may end and come back as another request in the same step.
        for req_id in output.finished_req_ids:
            self.prompt_len.pop(req_id, None)
            self.cached.pop(req_id, None)
        again = output.scheduled_cached_reqs
        back = getattr(again, "resumed_req_ids", None)
        if back is None:  # up to vLLM 0.11: a list of flags
            flags = getattr(again, "resumed_from_preemption", None) or ()
            back = [r for r, flag in zip(again.req_ids, flags, strict=False) if flag]
        anew = set(back)
        resumed = len(anew)
        if anew:
            for req_id, done in zip(again.req_ids, again.num_computed_tokens, strict=True):
                if req_id in anew:
                    self.cached[req_id] = done
        for new in output.scheduled_new_reqs:
            # The second model runner is given resumed requests as new ones.
            resumed += new.req_id in self.prompt_len
            self.prompt_len[new.req_id] = prompt_length(new)
            self.cached[new.req_id] = new.num_computed_tokens
            anew.add(new.req_id)
        return resumed, anew

    def _mark_wave(self, row: dict[str, Any]) -> None:
        """Note which of the steps that data-parallel ranks take together this is."""
        counter = getattr(self.core, "step_counter", None)
        if counter is not None:
            row["wave"] = getattr(self.core, "current_wave", 0)
            row["counter"] = counter

    def _overtaken(self) -> None:
        """Settle a scheduled step that no executor was seen to take before the next one."""
        fresh = self._fresh
        # Up to vLLM 0.13 a step without tokens is not executed under a batch queue: it is no
        # call of the worker's either. With tokens an executor took it that has no hook.
        if fresh is not None and fresh.row["n"] > 0:
            self._launch(fresh)
        self._fresh = None

    def _launch(self, flight: Flight) -> None:
        flight.row["i"] = self.ordinal
        self.ordinal += 1
        self._fresh = None
        self.in_flight[id(flight.output)] = flight
        flight.row["in_flight"] = len(self.in_flight)
        while len(self.in_flight) > MAX_IN_FLIGHT:
            del self.in_flight[next(iter(self.in_flight))]

    def submitted(self, output: Any, start_ns: int, end_ns: int) -> None:
        """Note when a scheduler output was handed to the executor.

        Parameters
        ----------
        output : object
            What ``schedule`` returned.
        start_ns, end_ns : int
            Monotonic clock around ``execute_model`` [ns].
        """
        fresh = self._fresh
        if fresh is not None and fresh.output is output:
            self._launch(fresh)
        flight = self.in_flight.get(id(output))
        if flight is not None:
            # An executor may call its base class's method: the outer call comes last and counts.
            flight.row["submit_ns"] = [start_ns, end_ns]
            flight.row["cost_ns"] += _now() - end_ns

    def updated(self, scheduler: Any, output: Any, result: Any, start_ns: int, end_ns: int) -> None:
        """Complete a row when its output came back, and queue it for writing.

        Parameters
        ----------
        scheduler : object
            The engine's scheduler.
        output : object
            What ``schedule`` returned.
        result : object
            The model runner's output.
        start_ns, end_ns : int
            Monotonic clock around ``update_from_output`` [ns].
        """
        fresh = self._fresh
        if fresh is not None and fresh.output is output:
            self._launch(fresh)
        flight = self.in_flight.pop(id(output), None)
        if flight is None:
            return
        row = flight.row
        row["update_ns"] = [start_ns, end_ns]
        sampled = getattr(result, "sampled_token_ids", None)
        row["sampled"] = None if sampled is None else sum(map(len, sampled))
        if flight.drafts and sampled is not None:
            self._verified(flight, result, sampled)
        usage = getattr(getattr(scheduler, "kv_cache_manager", None), "usage", None)
        row["kv_usage"] = None if usage is None else round(float(usage), 6)
        padded = attribute(result, "cudagraph_stats", "num_padded_tokens")
        if padded is not None:
            row["padded"] = int(padded)
        writer = self._recorder.writer("engine")
        row["cost_ns"] += _now() - end_ns
        writer.put(row)

    def _verified(self, flight: Flight, result: Any, sampled: Sequence[Any]) -> None:
        """Note how many draft tokens were accepted, and take back what was counted on them.

        A step that is scheduled before this one's result is known counts every draft as
        computed. The engine takes the rejected ones back when the result comes; the rows in
        flight follow it, so that ``computed`` is what is in the KV cache before the step.
        """
        place = getattr(result, "req_id_to_index", None) or {}
        emitted: list[int | None] = [
            len(sampled[place[r]]) if r in place and place[r] < len(sampled) else None
            for r in flight.requests
        ]
        accepted = 0
        later = [f for f in self.in_flight.values() if f.row["i"] > flight.row["i"]]
        if self._fresh is not None:
            later.append(self._fresh)
        for req_id, tokens in zip(flight.requests, emitted, strict=True):
            drafted = flight.drafts.get(req_id)
            if drafted is None or not tokens:
                continue
            kept = max(tokens - 1, 0)
            accepted += kept
            for other in later:
                _take_back(other, req_id, drafted - kept)
        flight.row["accepted"] = accepted
        flight.row["emitted"] = emitted

    def dummy(self, start_ns: int, end_ns: int) -> None:
        """Note a pass over nothing, made so that data-parallel ranks keep step.

        Parameters
        ----------
        start_ns, end_ns : int
            Monotonic clock around the call [ns].
        """
        row: dict[str, Any] = {"t": "dummy", "i": self.dummies, "run_ns": [start_ns, end_ns]}
        self.dummies += 1
        self._mark_wave(row)
        config = getattr(self.core, "vllm_config", None)
        self._recorder.writer("engine", dp=data_parallel_rank(config)).put(row)


def _take_back(flight: Flight, req_id: str, rejected: int) -> None:
    if not rejected or req_id in flight.anew or req_id not in flight.requests:
        return
    place = flight.requests.index(req_id)
    counted = flight.row["computed"][place]
    if counted is not None and counted >= rejected:
        flight.row["computed"][place] = counted - rejected


def data_parallel_rank(config: Any) -> int | None:
    """Return the data-parallel rank that an engine's configuration states.

    Parameters
    ----------
    config : object
        The engine's configuration object (``VllmConfig``), or None.

    Returns
    -------
    int or None
        The rank; None where nothing states it.
    """
    # Engines of a dense model are told that they are alone; their index stays.
    for name in ("data_parallel_index", "data_parallel_rank"):
        rank = attribute(config, "parallel_config", name)
        if isinstance(rank, int):
            return rank
    return None


def prompt_length(new: Any) -> int | None:
    """Return the length of a request's prompt.

    Parameters
    ----------
    new : object
        A request that is scheduled for the first time.

    Returns
    -------
    int or None
        Tokens, of ids or of embeddings [tokens]; None where neither is there.
    """
    for prompt in (new.prompt_token_ids, getattr(new, "prompt_embeds", None)):
        if prompt is not None:
            return len(prompt)
    return None
