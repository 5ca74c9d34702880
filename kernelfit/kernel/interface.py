"""The interface that a simulator calls.

What depends on when a request arrived (queueing, admission order, preemption) is the
simulator's; what follows from the batch and the deployment alone is the kernel's. Every
method is a pure function of its arguments and of what the object was built from.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from kernelfit.kernel.batch import Batch
from kernelfit.kernel.estimate import CoefficientOrigin, MemoryBreakdown, StepEstimate
from kernelfit.kernel.pool import Direction, Placement, Pool, Tier
from kernelfit.kernel.resolved import Resolution


@runtime_checkable
class Kernel(Protocol):
    """Calibration x model x pool, resolved."""

    def fixed_bytes(self) -> MemoryBreakdown:
        """Return the bytes on one rank whatever the requests.

        Returns
        -------
        MemoryBreakdown
            Parts and total [bytes].
        """

    def sequence_fixed_bytes(self) -> int:
        """Return the bytes of one sequence whatever its length.

        Returns
        -------
        int
            Recurrent state [bytes]; 0 for pure attention.
        """

    def sequence_variable_bytes(self, tokens: int) -> int:
        """Return the KV bytes of one sequence on one rank.

        Parameters
        ----------
        tokens : int
            Length of the sequence [tokens].

        Returns
        -------
        int
            Bytes in whole pages [bytes].
        """

    def step_time(self, batch: Batch) -> StepEstimate:
        """Return the time of one forward pass under both bounds.

        Parameters
        ----------
        batch : Batch
            The batch.

        Returns
        -------
        StepEstimate
            Both bounds, the bottleneck and the time by resource [s].
        """

    def tier_time(self, tier: Tier, direction: Direction, nbytes: int, queue_depth: int) -> float:
        """Return the time of one offload transfer.

        Parameters
        ----------
        tier : Tier
            The tier.
        direction : Direction
            Which way the bytes go.
        nbytes : int
            Size [bytes].
        queue_depth : int
            Transfers sharing the links, this one included.

        Returns
        -------
        float
            Time [s].
        """

    def pd_transfer_time(self, tokens: int, source: Placement, target: Placement) -> float:
        """Return the time of moving a prompt's KV between pools.

        Parameters
        ----------
        tokens : int
            Tokens [tokens].
        source, target : Placement
            Where the pools stand.

        Returns
        -------
        float
            Time [s].
        """

    def admission_overhead(self, prompt_tokens: int) -> float:
        """Return the CPU work before a request can be scheduled, without queueing.

        Parameters
        ----------
        prompt_tokens : int
            Length of the prompt [tokens].

        Returns
        -------
        float
            Time [s].
        """

    def output_token_overhead(self, outputs: int = 1) -> float:
        """Return the CPU work per emitted token, outside the step.

        Parameters
        ----------
        outputs : int
            Requests that the same step gave a token to.

        Returns
        -------
        float
            Time [s].
        """

    def completion_overhead(self) -> float:
        """Return the CPU work when a request finishes.

        Returns
        -------
        float
            Time [s]; in end-to-end latency, not in time to first token.
        """

    def provenance(self) -> tuple[CoefficientOrigin, ...]:
        """Return every coefficient used, with its evidence.

        Returns
        -------
        tuple of CoefficientOrigin
            One per coefficient.
        """

    def resolved(self) -> Resolution:
        """Return what will run.

        Returns
        -------
        Resolution
            With every override and its reason.
        """

    def deployment(self) -> Pool:
        """Return the pool as the document stated it.

        Returns
        -------
        Pool
            The request, not the resolution.
        """
