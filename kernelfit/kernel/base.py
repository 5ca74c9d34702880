"""What every kernel shares: a plan, priced cells, and the answers that need no fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kernelfit.kernel import memory, transfers
from kernelfit.kernel.basis import Array
from kernelfit.kernel.batch import Batch
from kernelfit.kernel.bounds import added_host, estimate, hidden_host
from kernelfit.kernel.estimate import CoefficientOrigin, MemoryBreakdown, StepEstimate
from kernelfit.kernel.forms import Forms
from kernelfit.kernel.front_end import FrontEnd
from kernelfit.kernel.front_end_definitions import FRONT_END_NAMES
from kernelfit.kernel.limits import check_batch, check_budget, check_totals, check_windows
from kernelfit.kernel.plan import Plan
from kernelfit.kernel.pool import Direction, Placement, Pool, Tier
from kernelfit.kernel.pricing import Cell, price_many
from kernelfit.kernel.resolved import Resolution
from kernelfit.kernel.tables import checked_columns
from kernelfit.kernel.totals import BatchTotals

CORE_SET = "kernelfit.kernel"


@dataclass(frozen=True, slots=True)
class PricedKernel:
    """A plan with priced cells; it answers the whole ``Kernel`` interface.

    Attributes
    ----------
    plan : Plan
        What does not depend on the batch or on coefficients.
    cells : tuple of Cell
        The priced cells.
    origins : tuple of CoefficientOrigin
        The evidence of every coefficient behind the cells.
    forms : Forms
        The cells laid out for one batch at a time; they follow from the cells.
    front_end : FrontEnd
        Host work around the step; zero where nobody measured it.
    """

    plan: Plan
    cells: tuple[Cell, ...]
    origins: tuple[CoefficientOrigin, ...]
    forms: Forms = field(init=False, compare=False, repr=False)
    front_end: FrontEnd = field(default=FrontEnd(), kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Lay out the cells."""
        object.__setattr__(self, "forms", Forms.of(self.plan, self.cells))

    def __repr__(self) -> str:
        """Name the deployment; the terms behind it would fill pages."""
        plan = self.plan
        width = plan.resolution.tensor_parallel_width
        return (
            f"{type(self).__name__}({plan.model.name} on {plan.chip.name}, tp {width}, "
            f"{len(self.origins)} coefficients)"
        )

    def fixed_bytes(self) -> MemoryBreakdown:
        """Return the bytes on one rank whatever the requests.

        Returns
        -------
        MemoryBreakdown
            Parts and total [bytes].
        """
        return memory.fixed_bytes(self.plan)

    def sequence_fixed_bytes(self) -> int:
        """Return the bytes of one sequence whatever its length.

        Returns
        -------
        int
            The recurrent state of linear attention in whole pages; 0 for models without
            [bytes].
        """
        return memory.sequence_fixed_bytes(self.plan)

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

        Raises
        ------
        InvalidArgument
            When ``tokens`` is negative.
        """
        return memory.sequence_variable_bytes(self.plan, tokens)

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

        Raises
        ------
        InvalidArgument
            When the batch exceeds the pool's limits.

        Notes
        -----
        Work added to a batch never makes a step shorter, with two exceptions. Where it
        changes how the step is launched, host time of the new way may be less than that
        of the old, and a batch that leaves a whole graph no longer pays attention for the
        slots that padded it: the graph was captured with all of them. And a request whose
        tokens take it from the decode path to the other may cost less there: latent
        attention then multiplies less per pair, and proposals are no longer scored.
        """
        totals = self.totals(batch)
        check_batch(self.plan, batch, totals)
        return estimate(self.forms.times(totals, batch.sm_budget), self.forms.resources)

    def totals(self, batch: Batch) -> BatchTotals:
        """Reduce a batch to the totals that this deployment's laws use.

        Parameters
        ----------
        batch : Batch
            The batch.

        Returns
        -------
        BatchTotals
            With one entry per sliding window of the model.
        """
        return BatchTotals.of(batch.requests, batch.decode_threshold, self.plan.basis.windows)

    def totals_time(self, totals: BatchTotals, sm_budget: int = 0) -> StepEstimate:
        """Return the time of one forward pass from its totals.

        Parameters
        ----------
        totals : BatchTotals
            The batch's totals, kept by the caller.
        sm_budget : int
            SMs that the step may use; 0 means all of them.

        Returns
        -------
        StepEstimate
            The same as ``step_time`` of the batch [s].

        Raises
        ------
        InvalidArgument
            When the totals are those of no batch, or exceed the pool's limits.
        """
        forms = self.forms
        if not forms.plausible(totals):
            check_totals(self.plan, totals)
        if totals.windows:
            check_windows(totals)
        if sm_budget:
            check_budget(self.plan, sm_budget)
        return estimate(forms.times(totals, sm_budget), forms.resources)

    def step_times(self, table: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        """Return the times of many steps at once.

        Parameters
        ----------
        table : mapping of str to array_like, shape (n_steps,)
            One column per field of ``BatchTotals``, and one ``window_column`` per total of
            each sliding window.

        Returns
        -------
        dict of str to ndarray, shape (n_steps,)
            ``overlap_s``, ``no_overlap_s``, ``host_s`` and one ``<resource>_s`` per
            resource [s]; equal to ``totals_time`` within a relative 1e-12.

        Raises
        ------
        InvalidArgument
            When a column is missing, of another length, or holds a value that is negative
            or not finite. The pool's limits on a step are not asked about here.
        """
        columns = checked_columns(table, self.plan.basis.windows)
        times = price_many(self.plan, self.cells, columns)
        no_overlap = added_host(times.no_overlap_s, times)
        out = {
            "overlap_s": np.minimum(hidden_host(times.overlap_s, times), no_overlap),
            "no_overlap_s": no_overlap,
            "host_s": times.launch_s + times.host_s,
        }
        for resource, time in times.per_resource_s:
            out[f"{resource}_s"] = time
        return out

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

        Raises
        ------
        Refusal
            When no rate is stated for the tier.
        """
        return transfers.tier_time_s(self.plan, tier, direction, nbytes, queue_depth)

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

        Raises
        ------
        Refusal
            When the chip states no link of the kind needed.
        """
        return transfers.pd_transfer_time_s(self.plan, tokens, source, target)

    def admission_overhead(self, prompt_tokens: int) -> float:
        """Return the CPU work before a request can be scheduled.

        Parameters
        ----------
        prompt_tokens : int
            Length of the prompt [tokens].

        Returns
        -------
        float
            Linear in the prompt, beyond what was measured too, and without queueing; 0.0
            where the calibration rests on step logs alone: then it is not charged, and the
            provenance says so [s].

        Raises
        ------
        InvalidArgument
            When ``prompt_tokens`` is negative.
        """
        return self.front_end.admission_s(prompt_tokens)

    def output_token_overhead(self, outputs: int = 1) -> float:
        """Return the CPU work per emitted token, outside the step.

        Parameters
        ----------
        outputs : int
            Requests that the same step gave a token to; they share what a call takes
            whatever it holds.

        Returns
        -------
        float
            Work of the call by its tokens; 0.0 where not charged, see
            ``admission_overhead`` [s]. A token waits for the whole call, which is
            ``front_end.output_call(outputs)``.

        Raises
        ------
        InvalidArgument
            When there is no output.
        """
        return self.front_end.output_call(outputs) / outputs

    def completion_overhead(self) -> float:
        """Return the CPU work when a request finishes.

        Returns
        -------
        float
            0.0 where not charged, see ``admission_overhead`` [s].
        """
        return self.front_end.completion_s

    def provenance(self) -> tuple[CoefficientOrigin, ...]:
        """Return every coefficient used, with its evidence.

        Returns
        -------
        tuple of CoefficientOrigin
            Those of the step first, then the constants of memory and transfers, then
            the host overheads that are not charged.
        """
        scope = self.plan.chip.name
        charged = {origin.name for origin in self.origins}
        constants = (
            *memory.CONSTANTS,
            *transfers.CONSTANTS,
            *((name, "not_charged") for name in FRONT_END_NAMES if name not in charged),
        )
        return self.origins + tuple(
            CoefficientOrigin(name, CORE_SET, method, scope) for name, method in constants
        )

    def resolved(self) -> Resolution:
        """Return what will run.

        Returns
        -------
        Resolution
            With every override and its reason.
        """
        return self.plan.resolution

    def deployment(self) -> Pool:
        """Return the pool as the document stated it.

        Returns
        -------
        Pool
            The request, not the resolution.
        """
        return self.plan.pool
