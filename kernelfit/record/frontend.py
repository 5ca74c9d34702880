"""What is recorded of an engine's front end: admission, output and completion of requests.

Work is told from waiting: a request's own work is what runs on its behalf in the event loop
or in the tokeniser's thread; what the loop did for others meanwhile is left out of it.
Lengths and times only; request ids are hashed.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from kernelfit.record.call import CALL, PARTS, Call, hashed
from kernelfit.record.facts import cpu_name
from kernelfit.record.hooks import Recorder

_now = time.monotonic_ns
_SPANS_KEPT = 4096


class FrontEnd:
    """The front end's share of a recording, in one process.

    Parameters
    ----------
    recorder : Recorder
        Where rows go, and who is told of failures.

    Attributes
    ----------
    missing : tuple of str
        Classes of the engine that were not found, so that their part is not recorded.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        # Tokenisation runs in another thread, where the context is not known; the prompt's
        # own object tells whose it is.
        self.texts: dict[int, Call] = {}
        self._spans: deque[tuple[int, int]] = deque(maxlen=_SPANS_KEPT)
        self._open: dict[str, Any] | None = None
        self.missing: tuple[str, ...] = ()
        self._introduced = False
        self._tokenizer: str | None = None

    def put(self, row: dict[str, Any]) -> None:
        """Queue one row for writing.

        Parameters
        ----------
        row : dict
            A row of numbers, strings and lists.
        """
        if not self._introduced:
            self._introduced = True
            host = {"t": "host", "cpu": cpu_name(), "missing": list(self.missing)}
            self.recorder.writer("frontend").put(host)
        self.recorder.writer("frontend").put(row)

    def busy(self, start_ns: int, end_ns: int) -> None:
        """Note that the event loop worked from one moment to another [ns].

        Parameters
        ----------
        start_ns, end_ns : int
            Monotonic clock [ns].
        """
        # What ends later may hold what was noted before: stretches never overlap.
        while self._spans and self._spans[-1][0] >= start_ns:
            self._spans.pop()
        self._spans.append((start_ns, end_ns))

    def busy_between(self, start_ns: int, end_ns: int) -> int:
        """Return how long the event loop is known to have worked between two moments.

        Parameters
        ----------
        start_ns, end_ns : int
            The moments [ns].

        Returns
        -------
        int
            Time [ns].
        """
        total = 0
        for begin, end in reversed(self._spans):
            if end <= start_ns:
                break
            total += max(0, min(end, end_ns) - max(begin, start_ns))
        return total

    def own(self, start_ns: int, end_ns: int) -> int:
        """Return the time between two moments without the loop's other work [ns].

        Parameters
        ----------
        start_ns, end_ns : int
            Monotonic clock [ns].

        Returns
        -------
        int
            Time [ns]; never negative.
        """
        return max(0, end_ns - start_ns - self.busy_between(start_ns, end_ns))

    # -- admission ------------------------------------------------------------

    def reached(self, call: Call, now_ns: int) -> None:
        """Charge the HTTP server with what passed since the last part ended.

        Parameters
        ----------
        call : Call
            The request.
        now_ns : int
            When its next part began [ns].
        """
        if call.since_ns is not None:
            call.add("http_ns", self.own(call.since_ns, now_ns))
            call.since_ns = None

    def served(self, call: Call, start_ns: int, end_ns: int) -> None:
        """Charge the HTTP server with one stretch of a request's own task.

        Parameters
        ----------
        call : Call
            The request.
        start_ns, end_ns : int
            Between two suspensions of the task [ns].
        """
        if not call.admitted:
            if call.rendered:
                self.reached(call, start_ns)
            call.add("http_ns", max(0, end_ns - start_ns - call.inner_ns))
            call.inner_ns, call.since_ns = 0, end_ns
        self.busy(start_ns, end_ns)

    def tokenized_with(self, tokenizer: Any) -> None:
        """Name the tokeniser, once.

        Parameters
        ----------
        tokenizer : object
            The engine's; None where it takes token ids alone.
        """
        if tokenizer is not None and self._tokenizer is None:
            self._tokenizer = f"{type(tokenizer).__name__} of {len(tokenizer)} tokens"
            self.put({"t": "host", "tokenizer": self._tokenizer})

    def processed(self, request: Any, prompt: Any, start_ns: int, end_ns: int) -> None:
        """Note that the input processor built an engine request.

        Parameters
        ----------
        request : object
            What it returned; its prompt is only measured.
        prompt : object
            What it was given.
        start_ns, end_ns : int
            Monotonic clock around the call [ns].
        """
        ids = request.prompt_token_ids
        tokens = len(ids if ids is not None else request.prompt_embeds)
        text = isinstance(prompt, str) or (
            isinstance(prompt, dict) and isinstance(prompt.get("prompt"), str)
        )
        seen = (tokens, text, hashed(str(request.request_id)))
        call = CALL.get()
        if call is not None and call.adding:
            call.add("process_ns", end_ns - start_ns)
            call.processed = seen
            return
        alone = Call(start_ns, parts={"process_ns": end_ns - start_ns}, processed=seen)
        self.admitted(alone, end_ns)

    def admitted(self, call: Call, end_ns: int) -> None:
        """Write the admission of a request that was handed to the engine core.

        Parameters
        ----------
        call : Call
            The request; its parts start anew, for calls that hold several prompts.
        end_ns : int
            When it was handed over [ns].
        """
        if call.processed is None:
            return
        tokens, text, req = call.processed
        row: dict[str, Any] = {
            "t": "admission",
            "start_ns": call.arrival_ns,
            "end_ns": end_ns,
            "tokens": tokens,
            "text": text,
            "req": req,
        }
        if call.client is not None:
            row["client"] = call.client
        row |= {part: call.parts[part] for part in PARTS if part in call.parts}
        self.put(row)
        call.parts, call.processed, call.admitted = {}, None, True

    def accepted(self, request: Any, start_ns: int, end_ns: int) -> None:
        """Write that the engine core built its own request.

        Parameters
        ----------
        request : object
            What the front end sent.
        start_ns, end_ns : int
            Monotonic clock around the call [ns].
        """
        ids = request.prompt_token_ids
        external = getattr(request, "external_req_id", None) or request.request_id
        self.put(
            {
                "t": "accept",
                "start_ns": start_ns,
                "end_ns": end_ns,
                "tokens": len(ids if ids is not None else request.prompt_embeds),
                "req": hashed(str(external)),
            }
        )

    # -- output ---------------------------------------------------------------

    def outputs(
        self, requests: int, tokens: int, finished: int, made_s: Any, span_ns: tuple[int, int]
    ) -> None:
        """Note that one step's outputs were detokenised.

        Parameters
        ----------
        requests, tokens, finished : int
            Outputs in the call, new tokens in them [tokens], requests that ended.
        made_s : float or None
            Monotonic clock when the engine core made them [s].
        span_ns : tuple of (int, int)
            Monotonic clock around the call [ns].
        """
        start_ns, end_ns = span_ns
        self.close_output()
        row: dict[str, Any] = {
            "t": "output",
            "start_ns": start_ns,
            "end_ns": end_ns,
            "requests": requests,
            "tokens": tokens,
            "finished": finished,
        }
        if isinstance(made_s, float) and made_s > 0:
            row["made_ns"] = round(made_s * 1e9)
            row["transport_ns"] = self.own(row["made_ns"], start_ns)
        row["cost_ns"] = _now() - end_ns
        self.busy(start_ns, end_ns)
        self._open = row

    def stats(self, start_ns: int, end_ns: int) -> None:
        """Add the engine's own statistics to the call that is open [ns].

        Parameters
        ----------
        start_ns, end_ns : int
            Monotonic clock [ns].
        """
        self.busy(start_ns, end_ns)
        if self._open is not None:
            self._open["stats_ns"] = self._open.get("stats_ns", 0) + end_ns - start_ns

    def streamed(self, start_ns: int, end_ns: int) -> None:
        """Add the HTTP server's work on one chunk to the call that is open.

        Parameters
        ----------
        start_ns, end_ns : int
            When the chunk's output was handed to the server, and when it asked for more [ns].
        """
        row = self._open
        if row is not None:
            row["stream_ns"] = row.get("stream_ns", 0) + self.own(start_ns, end_ns)
            row["streamed"] = row.get("streamed", 0) + 1
        self.busy(start_ns, end_ns)
        if row is not None:
            row["cost_ns"] += _now() - end_ns
            if row["streamed"] >= row["requests"]:
                self.close_output()

    def close_output(self) -> None:
        """Write the call that is open: nothing more is added to it."""
        if self._open is not None:
            self.put(self._open)
            self._open = None

    # -- completion -----------------------------------------------------------

    def finished(self, call: Call, output: Any, tokens: int, first_ns: int, last_ns: int) -> None:
        """Note that a request's last token was sent.

        Parameters
        ----------
        call : Call
            The request.
        output : object
            Its last request output.
        tokens : int
            Output tokens [tokens].
        first_ns, last_ns : int
            When its first and its last chunk had been sent [ns].
        """
        prompt = output.prompt_token_ids
        row: dict[str, Any] = {
            "t": "done",
            "start_ns": last_ns,
            "req": hashed(str(output.request_id)),
            "arrival_ns": call.arrival_ns,
            "first_ns": first_ns,
            "prompt": None if prompt is None else len(prompt),
            "output": tokens,
            "cached": getattr(output, "num_cached_tokens", None),
        }
        if call.client is not None:
            row["client"] = call.client
        state = getattr(output, "metrics", None)
        moments = [
            getattr(state, name, 0.0)
            for name in ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
        ]
        if all(isinstance(moment, float) and moment > 0 for moment in moments):
            for name, begin, end in zip(
                ("queued_ns", "prefill_ns", "decode_ns"), moments, moments[1:], strict=False
            ):
                row[name] = round((end - begin) * 1e9)
        preemptions = getattr(state, "num_preemptions", None)
        if isinstance(preemptions, int):
            row["preemptions"] = preemptions
        call.done.append(row)

    def closed(self, call: Call, end_ns: int) -> None:
        """Write the requests of a call whose response was closed.

        Parameters
        ----------
        call : Call
            The call.
        end_ns : int
            When it was closed [ns].
        """
        for row in call.done:
            row["end_ns"] = end_ns
            self.put(row)
        call.done = []
