"""Host work around the step, priced with what a calibration knows of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernelfit.kernel.catalog import Coefficient
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.front_end_definitions import FRONT_END_NAMES


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """What the engine's front end takes; zero for what no calibration has measured.

    Attributes
    ----------
    admission_request_s, admission_token_s : float
        Per request, and per token of its prompt [s].
    output_call_s, output_token_s, output_extra_token_s : float
        Per call, per request output in it, and per further token of such an output [s].
    completion_s : float
        Per request that finishes [s].
    """

    admission_request_s: float = 0.0
    admission_token_s: float = 0.0
    output_call_s: float = 0.0
    output_token_s: float = 0.0
    output_extra_token_s: float = 0.0
    completion_s: float = 0.0

    @staticmethod
    def of(coefficients: Iterable[Coefficient]) -> FrontEnd:
        """Pick the coefficients that are about the front end.

        Parameters
        ----------
        coefficients : iterable of Coefficient
            Coefficients of a calibration.

        Returns
        -------
        FrontEnd
            With zeros for those that are not there.
        """
        known = {c.name: c.value for c in coefficients if c.name in FRONT_END_NAMES}
        return FrontEnd(**known)

    def admission_s(self, prompt_tokens: int) -> float:
        """Return the CPU work before a request can be scheduled.

        Parameters
        ----------
        prompt_tokens : int
            Length of the prompt [tokens].

        Returns
        -------
        float
            Time, without queueing [s].

        Raises
        ------
        InvalidArgument
            When ``prompt_tokens`` is negative.
        """
        if prompt_tokens < 0:
            raise InvalidArgument("prompt_tokens", prompt_tokens, ">= 0 tokens")
        return self.admission_request_s + prompt_tokens * self.admission_token_s

    def output_call(self, outputs: int, tokens: int | None = None) -> float:
        """Return the CPU work of handling the outputs of one step.

        Parameters
        ----------
        outputs : int
            Requests that the step gave new tokens to.
        tokens : int, optional
            New tokens of all of them [tokens]; one each where not given.

        Returns
        -------
        float
            Time of the whole call [s].

        Raises
        ------
        InvalidArgument
            When there is no output, or there are fewer tokens than outputs.
        """
        if outputs < 1:
            raise InvalidArgument("outputs", outputs, ">= 1 request outputs")
        extra = 0 if tokens is None else tokens - outputs
        if extra < 0:
            raise InvalidArgument("tokens", tokens, f">= {outputs} tokens, one per request output")
        each = outputs * self.output_token_s + extra * self.output_extra_token_s
        return self.output_call_s + each
