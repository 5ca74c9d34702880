"""A pool with its questions, priced, and what every flag about it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelfit.documents.questions import Question
from kernelfit.flips.conclude import Answer
from kernelfit.flips.flag import Flag, flag_word
from kernelfit.flips.given import Noise, Recorded, concerns
from kernelfit.flips.loads import Candidate, Limit, in_domain, limit_of, load_text
from kernelfit.flips.measured import Anchors, MeasuredShape
from kernelfit.flips.objective import Stake
from kernelfit.flips.pricing import Priced, Pricer
from kernelfit.flips.settle import Proposed
from kernelfit.flips.steady import Load
from kernelfit.flips.views import Seen, look
from kernelfit.kernel.errors import InvalidArgument

NOT_HELD = "not held"


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A pool and what is asked about it.

    Attributes
    ----------
    candidate : Candidate
        The pool.
    pricer : Pricer
        It, ready to price.
    anchors : Anchors or None
        Its measured steps.
    recorded : bool
        Whether steps of its model, and of what it uses, stand behind the calibration.
    questions : tuple of Question
        What is asked about it.
    seen : mapping of Load to Seen
        Its times at every load.
    limits : mapping of Load to Limit
        How many requests it holds.
    """

    candidate: Candidate
    pricer: Pricer
    anchors: Anchors | None
    recorded: bool
    questions: tuple[Question, ...]
    seen: Mapping[Load, Seen]
    limits: Mapping[Load, Limit]

    @staticmethod
    def of(
        candidate: Candidate,
        questions: Sequence[Question],
        measured: Sequence[MeasuredShape],
        recorded: Recorded | None,
    ) -> Asked:
        """Price a pool at every load that is asked about.

        Parameters
        ----------
        candidate : Candidate
            The pool.
        questions : sequence of Question
            Questions about any pool.
        measured : sequence of MeasuredShape
            Measurements of any pool.
        recorded : Recorded or None
            What stands behind the calibration; None where that is not known.

        Returns
        -------
        Asked
            The pool.
        """
        kernel = candidate.kernel
        mine = tuple(q for q in questions if concerns(q, candidate))
        pricer = Pricer.of(kernel)
        anchors = Anchors.of(kernel.plan, measured)
        loads = list(dict.fromkeys(Load.of(q) for q in mine))
        return Asked(
            candidate,
            pricer,
            anchors,
            recorded is None or recorded.covers(kernel),
            mine,
            {load: look(pricer, load, anchors) for load in loads},
            {load: limit_of(kernel, load.context_tokens, load.longest_tokens) for load in loads},
        )

    def at(self, question: Question) -> Seen:
        """Return the pool's times at a question's load.

        Parameters
        ----------
        question : Question
            One of ``questions``.

        Returns
        -------
        Seen
            The times.
        """
        return self.seen[Load.of(question)]

    def stake(self, question: Question) -> Stake:
        """Return the pool's size and price.

        Parameters
        ----------
        question : Question
            It states the prices.

        Returns
        -------
        Stake
            Its stake.

        Raises
        ------
        InvalidArgument
            When the question wants costs and states no price for the pool's GPUs.
        """
        resolution, pool = self.candidate.kernel.resolved(), self.candidate.kernel.plan.pool
        price = 1.0
        if question.objective == "cost_per_token":
            prices = {name.casefold(): p for name, p in question.prices_per_gpu_hour}
            name = self.candidate.gpu
            if name.casefold() not in prices:
                stated = ", ".join(sorted(name for name, _ in question.prices_per_gpu_hour))
                raise InvalidArgument(
                    "prices_per_gpu_hour", stated or "no price", f"a price of {name}"
                )
            price = prices[name.casefold()]
        gpus = resolution.tensor_parallel_width * pool.pp * pool.pcp
        return Stake(gpus, resolution.data_parallel_width, price)

    def knows(self, seen: Seen, requests: int, *, chunk: bool) -> bool:
        """Return whether the calibration, or a measurement, has seen a batch like one.

        Parameters
        ----------
        seen : Seen
            The load's times.
        requests : int
            Requests in flight.
        chunk : bool
            Whether the step holds a chunk.

        Returns
        -------
        bool
            Whether it lies in the domain, or was measured.
        """
        if self.anchors is not None and self.anchors.seen(seen.steady, requests, chunk=chunk):
            return True
        return self.recorded and in_domain(self.candidate.kernel, seen.row(requests, chunk=chunk))

    def known_at(self, seen: Seen, requests: int) -> bool:
        """Return whether all steps of a load have been seen at one number of requests.

        Parameters
        ----------
        seen : Seen
            The load's times.
        requests : int
            Requests in flight.

        Returns
        -------
        bool
            Whether the decode step is known and, with prompts, the step with a chunk.
        """
        known = self.knows(seen, requests, chunk=False)
        if known and seen.load.prompt_tokens:
            return self.knows(seen, requests, chunk=True)
        return known

    def is_measured(self, seen: Seen) -> bool:
        """Return whether measured steps stand behind a load.

        Parameters
        ----------
        seen : Seen
            The load's times.

        Returns
        -------
        bool
            Whether one of its batches was measured.
        """
        if self.anchors is None or not seen.size:
            return False
        chunks = (False, True) if seen.load.prompt_tokens else (False,)
        return any(self.anchors.on_line(seen.steady, chunk=chunk) for chunk in chunks)

    def doubtful_chunk(self, seen: Seen, requests: int) -> bool:
        """Return whether the step with a chunk is the one that leaves a load in doubt.

        Parameters
        ----------
        seen : Seen
            The load's times.
        requests : int
            Requests in flight.

        Returns
        -------
        bool
            Whether its part of the time per output token is open by more.
        """
        if not seen.load.prompt_tokens or not requests:
            return False
        at = requests - 1
        one = float(seen.steady.decode_share[at]) * _doubt(seen.decode, at)
        other = float(seen.steady.chunk_share[at]) * _doubt(seen.chunk, at)
        return other > one

    def propose(self, seen: Seen, requests: int, steps: int, *, chunk: bool) -> Proposed:
        """Return a measurement of one of a load's steps.

        Parameters
        ----------
        seen : Seen
            The load's times.
        requests : int
            Requests in flight.
        steps : int
            Steps to record.
        chunk : bool
            Whether the step holds a chunk.

        Returns
        -------
        Proposed
            The measurement.
        """
        tokens = 0
        if chunk:
            row = seen.row(requests, chunk=True)
            tokens = max(1, round(row["tokens"] - row["decode_requests"]))
        return Proposed(
            gpu=self.candidate.gpu,
            model=self.candidate.model,
            pool=self.candidate.label,
            requests=requests,
            context_tokens=seen.load.context_tokens,
            chunk_tokens=tokens,
            prompt_tokens=seen.load.prompt_tokens if chunk else 0,
            steps=steps,
        )

    def flag(
        self,
        conclusion: str,
        question: Question,
        answer: Answer,
        noise: Noise,
        *,
        requests: int | None,
        rate_per_s: float | None = None,
        tell: int | None = None,
        chunk: bool | None = None,
        targets: tuple[float | None, float | None] | None = None,
    ) -> Flag:
        """Flag a conclusion about this pool alone.

        Parameters
        ----------
        conclusion : str
            Its name.
        question : Question
            What was asked.
        answer : Answer
            What came out.
        noise : Noise
            The noise.
        requests : int or None
            Requests that were asked about; None when they are what is asked for.
        rate_per_s : float, optional
            Requests a second that were asked about [1/s].
        tell : int, optional
            Requests of the batch to measure; the conclusion's own without.
        chunk : bool, optional
            Whether the step with a chunk is to be measured; the more doubtful one without.
        targets : tuple, optional
            Targets that the conclusion depends on [s]; both of the question without.

        Returns
        -------
        Flag
            The flag.
        """
        seen = self.at(question)
        known = self.known_at(seen, answer.requests)
        word = flag_word(answer, known)
        per_token, first = targets or (question.target_s, question.first_token_target_s)
        proposed, sentence = None, None
        if word != "agree":
            count = tell or answer.requests
            with_chunk = self.doubtful_chunk(seen, count) if chunk is None else chunk
            if word == "extrapolated" and seen.load.prompt_tokens:
                with_chunk = self.knows(seen, count, chunk=False)
            proposed = self.propose(seen, count, noise.steps(answer), chunk=with_chunk)
            sentence = proposed.sentence(noise.aim(conclusion, word, answer))
        at = answer.requests - 1
        times = seen.views if conclusion != "meets_first_token" else seen.views.first or seen.views
        return Flag(
            gpu=self.candidate.gpu,
            pool=self.candidate.label,
            model=self.candidate.model,
            load=load_text(seen.load.text, requests, per_token, first, rate_per_s=rate_per_s),
            conclusion=conclusion,
            flag=word,
            overlap=answer.overlap,
            no_overlap=answer.no_overlap,
            fitted=answer.fitted,
            margin=answer.margin,
            probability=answer.probability,
            measurement=sentence,
            steps=None if proposed is None else proposed.steps,
            in_domain=known,
            limit=self.limits[seen.load].reason,
            context_tokens=seen.load.context_tokens,
            target_s=per_token,
            requests=answer.requests,
            overlap_s=float(times.overlap_s[at]),
            no_overlap_s=float(times.no_overlap_s[at]),
            fitted_s=float(times.fitted_s[at]),
            first_token_target_s=first,
            rate_per_s=rate_per_s,
            percentile=question.percentile,
            proposed=proposed,
            measured=self.is_measured(seen),
        )

    def not_held(
        self,
        conclusion: str,
        question: Question,
        requests: int | None,
        rate_per_s: float | None = None,
    ) -> Flag:
        """Return the row of a load that an engine never runs: no view has a time for it.

        Parameters
        ----------
        conclusion : str
            Its name.
        question : Question
            What was asked.
        requests : int or None
            Requests that were asked about.
        rate_per_s : float, optional
            Requests a second that were asked about [1/s].

        Returns
        -------
        Flag
            The row.
        """
        load = Load.of(question)
        targets = (question.target_s, question.first_token_target_s)
        return Flag(
            gpu=self.candidate.gpu,
            pool=self.candidate.label,
            model=self.candidate.model,
            load=load_text(load.text, requests, *targets, rate_per_s=rate_per_s),
            conclusion=conclusion,
            flag="agree",
            overlap=NOT_HELD,
            no_overlap=NOT_HELD,
            fitted=NOT_HELD,
            margin=None,
            probability=None,
            measurement=None,
            steps=None,
            in_domain=None,
            limit=self.limits[load].reason,
            context_tokens=load.context_tokens,
            target_s=question.target_s,
            requests=0,
            first_token_target_s=question.first_token_target_s,
            rate_per_s=rate_per_s,
            percentile=question.percentile,
        )


def _doubt(priced: Priced, at: int) -> float:
    """Return how far a step's time is open, between the bounds and between the draws [s]."""
    bounds = float(priced.no_overlap_s[at] - priced.overlap_s[at])
    draws = priced.draws_s[:, at]
    return bounds + (float(draws.std()) if draws.size else 0.0)
