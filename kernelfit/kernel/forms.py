"""A kernel's cells laid out for one batch at a time.

Most functions of a batch say nothing in most steps: a step has one way of being launched,
and where every request decodes one token, requests, tokens and decoding requests are one
number, context tokens and query-key pairs another. For each such case the costs of
functions that coincide are added beforehand, those of constants become a base, and those of
functions that are 0 are left out. What remains is a few products per cell.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from kernelfit.kernel.basis import FIXED, PAGE, Basis, evaluated
from kernelfit.kernel.plan import Plan
from kernelfit.kernel.pricing import Cell, Costs
from kernelfit.kernel.resources import Resource
from kernelfit.kernel.routing import Rates, busiest, rates_of, reached
from kernelfit.kernel.stage import HOST_STAGE, LAUNCH_STAGE
from kernelfit.kernel.totals import WINDOW_FIELDS, BatchTotals

Times = tuple[float, float, float, float, list[float]]
"""Device time under both bounds, host time that runs ahead and that is waited for, and time
by resource, the host's last [s]."""

_Choice = tuple[float, Costs, float, Costs]
_Cell = tuple[int, float, Costs, tuple[_Choice, ...]]
_Stages = tuple[tuple[_Cell, ...], ...]

_ONE = -1
_NONE = -2
GRAPHS: tuple[str, ...] = ("none", "full", "piecewise")
_FLAGS = {"none": "eager", "full": "full_graphs", "piecewise": "piecewise_graphs"}
_DECODE = ("tokens", "padded", "context")


@dataclass(frozen=True, slots=True)
class Forms:
    """Cells of a kernel, folded by case.

    Attributes
    ----------
    basis : Basis
        The functions of a batch.
    resources : tuple of Resource
        The resources in the order of ``Times``; the host's is last.
    any_batch : tuple
        Stages for any batch, one entry per entry of ``GRAPHS``.
    decodes : tuple
        Stages for batches whose requests all decode one token, likewise.
    rates : tuple of Rates
        Constants of each routing.
    most_requests, most_tokens : int
        What the engine schedules in a step at most.
    sm_count : int
        SMs of the chip.
    """

    basis: Basis
    resources: tuple[Resource, ...]
    any_batch: tuple[_Stages, ...]
    decodes: tuple[_Stages, ...]
    rates: tuple[Rates, ...]
    most_requests: int
    most_tokens: int
    sm_count: int

    @staticmethod
    def of(plan: Plan, cells: tuple[Cell, ...]) -> Forms:
        """Fold the cells of a kernel.

        Parameters
        ----------
        plan : Plan
            The plan.
        cells : tuple of Cell
            Its priced cells.

        Returns
        -------
        Forms
            The same costs, by case.
        """
        found = dict.fromkeys(cell.resource for cell in cells)
        device = tuple(resource for resource in found if resource is not Resource.HOST)
        resources = (*device, Resource.HOST)
        ways = [_same_function(plan.basis, graph) for graph in GRAPHS]
        single = [_single_decodes(plan.basis, graph) for graph in GRAPHS]
        return Forms(
            plan.basis,
            resources,
            tuple(_stages(plan, cells, resources, same) for same in ways),
            tuple(_stages(plan, cells, resources, same) for same in single),
            tuple(rates_of(routing) for routing in plan.basis.routings),
            plan.resolution.max_num_seqs,
            plan.resolution.max_num_batched_tokens,
            plan.chip.sm_count,
        )

    def plausible(self, totals: BatchTotals) -> bool:
        """Return whether totals are those of some batch within the pool's limits.

        Parameters
        ----------
        totals : BatchTotals
            The totals.

        Returns
        -------
        bool
            False where ``limits.check_totals`` should be asked what is wrong.
        """
        requests, decoding = totals.requests, totals.decode_requests
        chunks = requests - decoding
        return (
            0 <= decoding <= requests <= totals.tokens <= self.most_tokens
            and 1 <= requests <= self.most_requests
            and decoding <= totals.decode_context_tokens <= totals.decode_pairs
            and chunks <= totals.prefill_context_tokens <= totals.prefill_pairs
            and (decoding > 0 or totals.decode_pairs == 0)
            and (chunks > 0 or totals.prefill_pairs == 0)
        )

    def times(self, totals: BatchTotals, sm_budget: int = 0) -> Times:
        """Price one batch.

        Parameters
        ----------
        totals : BatchTotals
            The batch's totals.
        sm_budget : int
            SMs that the step may use; 0 means all of them.

        Returns
        -------
        Times
            Its times [s].

        Raises
        ------
        InvalidArgument
            When the totals lack a sliding window of the model.
        """
        tokens, context = totals.tokens, totals.decode_context_tokens
        basis = self.basis
        row: tuple[float, ...]
        if (
            tokens == totals.requests == totals.decode_requests
            and context == totals.decode_pairs
            and _read_what_they_multiply(basis, totals)
        ):
            sizes = basis.capture_sizes
            graph, padded = "none", tokens
            if sizes and tokens <= sizes[-1]:
                single = basis.decode_query_tokens == 1
                graph = basis.decode_graph if single else basis.mixed_graph
                if graph != "none":
                    padded = sizes[bisect_left(sizes, tokens)]
            row = (tokens, padded, context)
            for rates in self.rates:
                row += (reached(rates, padded), busiest(rates, padded))
            if totals.windows:
                row += tuple([w.decode_context_tokens for w in totals.windows])
            stages = self.decodes[GRAPHS.index(graph)]
        else:
            graph = basis.graph_of(tokens, totals.requests, totals.decode_requests)
            row = evaluated(basis, self.rates, totals, graph)
            stages = self.any_batch[GRAPHS.index(graph)]
        slowdown = self.sm_count / sm_budget if sm_budget else 1.0
        slowed = -1 if slowdown == 1.0 else self.resources.index(Resource.SM)
        spent = [0.0] * len(self.resources)
        longest = []
        for stage in stages:
            largest = 0.0
            for place, time, costs, choices in stage:
                for function, cost in costs:
                    time += cost * row[function]  # noqa: PLW2901
                for first, one, second, other in choices:
                    for function, cost in one:
                        first += cost * row[function]  # noqa: PLW2901
                    for function, cost in other:
                        second += cost * row[function]  # noqa: PLW2901
                    time += first if first > second else second  # noqa: FURB136, PLW2901
                if place == slowed:
                    time *= slowdown  # noqa: PLW2901
                spent[place] += time
                if time > largest:
                    largest = time
            longest.append(largest)
        host, launch = longest.pop(), longest.pop()
        overlap, summed = sum(longest), sum(spent[:-1])
        # Rounding may put the sum of maxima an ulp above the sum of everything.
        return (overlap if overlap < summed else summed), summed, launch, host, spent  # noqa: FURB136


def _read_what_they_multiply(basis: Basis, totals: BatchTotals) -> bool:
    """Whether, under every sliding window too, each context token is one pair."""
    if not basis.windows and not totals.windows:
        return True
    sizes = tuple([w.window_tokens for w in totals.windows])
    return sizes == basis.windows and all(
        w.decode_context_tokens == w.decode_pairs for w in totals.windows
    )


def _same_function(basis: Basis, graph: str) -> dict[int, int]:
    """Say which function of the row stands for each, whatever the batch."""
    same = {index: index for index in range(basis.size)}
    same[FIXED.index("one")] = _ONE
    for way, flag in _FLAGS.items():
        same[FIXED.index(flag)] = _ONE if way == graph else _NONE
    return same


def _single_decodes(basis: Basis, graph: str) -> dict[int, int]:
    """Give the places in the short row, where every request decodes one token."""
    tokens, padded, context = range(len(_DECODE))
    same = {FIXED.index("one"): _ONE}
    for way, flag in _FLAGS.items():
        same[FIXED.index(flag)] = _ONE if way == graph else _NONE
    filled = graph == "full" and basis.decode_query_tokens == 1
    same |= {
        FIXED.index("tokens"): tokens,
        FIXED.index("padded_tokens"): tokens if graph == "none" else padded,
        FIXED.index("requests"): tokens,
        FIXED.index("decode_requests"): tokens,
        FIXED.index("padded_requests"): padded if filled else tokens,
        FIXED.index("decode_context_tokens"): context,
        FIXED.index("decode_pairs"): context,
        FIXED.index("prefill_context_tokens"): _NONE,
        FIXED.index("prefill_pairs"): _NONE,
    }
    routed = 2 * len(basis.routings)
    for place in range(routed):
        same[PAGE + place] = len(_DECODE) + place
    for place in range(len(WINDOW_FIELDS) * len(basis.windows)):
        window, field = divmod(place, len(WINDOW_FIELDS))
        decode = WINDOW_FIELDS[field].startswith("decode")
        same[PAGE + routed + place] = len(_DECODE) + routed + window if decode else _NONE
    return same


def _folded(costs: Costs, same: Mapping[int, int]) -> tuple[float, Costs]:
    base, kept = 0.0, dict[int, float]()
    for function, cost in costs:
        place = same[function]
        if place == _ONE:
            base += cost
        elif place != _NONE:
            kept[place] = kept.get(place, 0.0) + cost
    return base, tuple((place, cost) for place, cost in kept.items() if cost)


def _stages(
    plan: Plan, cells: tuple[Cell, ...], resources: tuple[Resource, ...], same: Mapping[int, int]
) -> _Stages:
    """Cells of each device stage, then of the two of the host, even if empty."""
    device = [name for name in plan.stages if name not in (LAUNCH_STAGE, HOST_STAGE)]
    return tuple(
        tuple(
            (
                resources.index(cell.resource),
                *_folded(cell.costs, same),
                tuple((*_folded(a, same), *_folded(b, same)) for a, b in cell.choices),
            )
            for cell in cells
            if plan.stages[cell.stage] == name
        )
        for name in (*device, LAUNCH_STAGE, HOST_STAGE)
    )
