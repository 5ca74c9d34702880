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
from kernelfit.kernel.routing import Rates, both, rates_of
from kernelfit.kernel.stage import HOST_STAGE, LAUNCH_STAGE
from kernelfit.kernel.totals import WINDOW_FIELDS, BatchTotals

Times = tuple[float, float, float, float, list[float]]
"""Device time under both bounds, host time that runs ahead and that is waited for, and time
by resource, without the host's [s]."""

_Choice = tuple[float, Costs, float, Costs]
_Cell = tuple[int, float, Costs, tuple[_Choice, ...]]
_Stages = tuple[tuple[_Cell, ...], ...]
_Line = tuple[float, float, float, float]
"""Base, and seconds per token, padded token and context token."""
_Bend = tuple[float, float, float, float, float, float, float, float]
_Single = tuple[int, float, float, float, float, Costs, tuple[_Bend, ...]]
_Singles = tuple[tuple[tuple[_Single, ...], ...], _Line, _Line]

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
    eager, captured : tuple
        Device stages, launching and other host work for batches whose requests all decode
        one token, launched without a graph and with it; None where the costs of such a
        batch are not lines, so that they are priced like any other.
    sizes : tuple of int
        Captured batch sizes of such batches, ascending [tokens]; empty without graphs.
    rates : tuple of Rates
        Constants of each routing.
    most_requests, most_tokens : int
        What the engine schedules in a step at most [tokens].
    sm_count : int
        SMs of the chip.
    """

    basis: Basis
    resources: tuple[Resource, ...]
    any_batch: tuple[_Stages, ...]
    eager: _Singles | None
    captured: _Singles | None
    sizes: tuple[int, ...]
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
        basis = plan.basis
        graph = basis.decode_graph if basis.decode_query_tokens == 1 else basis.mixed_graph
        ways = [_same_function(basis, way) for way in GRAPHS]
        eager, captured = (
            _single(_stages(plan, cells, resources, _single_decodes(basis, way)))
            for way in ("none", graph)
        )
        return Forms(
            basis,
            resources,
            tuple(_stages(plan, cells, resources, same) for same in ways),
            eager,
            captured,
            basis.capture_sizes if graph != "none" else (),
            tuple(rates_of(routing) for routing in basis.routings),
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
        tokens, windows = totals.tokens, totals.windows
        if (
            tokens == totals.requests == totals.decode_requests
            and totals.decode_context_tokens == totals.decode_pairs
            and not sm_budget
            and (not (self.basis.windows or windows) or _one_pair_each(self.basis, totals))
        ):
            sizes = self.sizes
            if sizes and tokens <= sizes[-1]:
                if self.captured is not None:
                    padded = sizes[bisect_left(sizes, tokens)]
                    return self._single_times(self.captured, padded, totals)
            elif self.eager is not None:
                return self._single_times(self.eager, tokens, totals)
        return self._any_times(totals, sm_budget)

    def _single_times(self, laid_out: _Singles, padded_tokens: int, totals: BatchTotals) -> Times:
        stages, ahead, behind = laid_out
        # Floats multiply floats faster than whole numbers do.
        tokens, padded = float(totals.tokens), float(padded_tokens)
        context = float(totals.decode_context_tokens)
        row: tuple[float, ...] = ()
        for rates in self.rates:
            row += both(rates, padded if rates.padding else tokens)
        if totals.windows:
            row = (*row, *[w.decode_context_tokens for w in totals.windows])
        spent = [0.0] * (len(self.resources) - 1)
        overlap = summed = 0.0
        for stage in stages:
            largest = 0.0
            # Nothing is looped over where a cell has no more than the three products.
            for place, base, each, each_padded, each_context, more, bends in stage:
                time = base + each * tokens + each_padded * padded + each_context * context
                if more:
                    for function, cost in more:
                        time += cost * row[function]
                if bends:
                    for b1, t1, p1, c1, b2, t2, p2, c2 in bends:
                        first = b1 + t1 * tokens + p1 * padded + c1 * context
                        second = b2 + t2 * tokens + p2 * padded + c2 * context
                        # Not max(): a call costs more than the comparison.
                        time += first if first > second else second  # noqa: FURB136
                spent[place] += time
                summed += time
                if time > largest:
                    largest = time
            overlap += largest
        base, each, each_padded, each_context = ahead
        launch = base + each * tokens + each_padded * padded + each_context * context
        base, each, each_padded, each_context = behind
        host = base + each * tokens + each_padded * padded + each_context * context
        # Rounding may put the sum of maxima an ulp above the sum of everything.
        return (overlap if overlap < summed else summed), summed, launch, host, spent  # noqa: FURB136

    def _any_times(self, totals: BatchTotals, sm_budget: int) -> Times:
        basis = self.basis
        graph = basis.graph_of(totals.tokens, totals.requests, totals.decode_requests)
        row = evaluated(basis, self.rates, totals, graph)
        slowed, slowdown = self._slowed(sm_budget) if sm_budget else (-1, 1.0)
        spent = [0.0] * len(self.resources)
        longest = []
        for stage in self.any_batch[GRAPHS.index(graph)]:
            largest = 0.0
            for place, base, costs, choices in stage:
                time = base
                for function, cost in costs:
                    time += cost * row[function]
                if choices:
                    time += _chosen(choices, row)
                if place == slowed:
                    time *= slowdown
                spent[place] += time
                if time > largest:
                    largest = time
            longest.append(largest)
        host, launch = longest.pop(), longest.pop()
        spent.pop()
        overlap, summed = sum(longest), sum(spent)
        return (overlap if overlap < summed else summed), summed, launch, host, spent  # noqa: FURB136

    def _slowed(self, sm_budget: int) -> tuple[int, float]:
        """Return the place of the SMs, and what a budget stretches their work by."""
        return self.resources.index(Resource.SM), self.sm_count / sm_budget


def _chosen(choices: tuple[_Choice, ...], row: tuple[float, ...]) -> float:
    """Return the time of works with two forms, of which the longer counts."""
    time = 0.0
    for one_base, one, other_base, other in choices:
        first, second = one_base, other_base
        for function, cost in one:
            first += cost * row[function]
        for function, cost in other:
            second += cost * row[function]
        # Not max(): a call costs more than the comparison, in the innermost loop.
        time += first if first > second else second  # noqa: FURB136
    return time


def _one_pair_each(basis: Basis, totals: BatchTotals) -> bool:
    """Say whether under every sliding window, too, each context token is one pair."""
    sizes = []
    for w in totals.windows:
        sizes.append(w.window_tokens)
        if w.decode_context_tokens != w.decode_pairs:
            return False
    return tuple(sizes) == basis.windows


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


def _single(stages: _Stages) -> _Singles | None:
    """Write the costs as lines; None where one is not."""
    device = []
    *devices, ahead, behind = stages
    for stage in devices:
        cells: list[_Single] = []
        for place, base, costs, choices in stage:
            line, more = _line(base, costs)
            bends: list[_Bend] = []
            for first, one, second, other in choices:
                line_1, more_1 = _line(first, one)
                line_2, more_2 = _line(second, other)
                if more_1 or more_2:
                    return None
                bends.append((*line_1, *line_2))
            cells.append((place, *line, more, tuple(bends)))
        device.append(tuple(cells))
    hosts: list[_Line] = []
    for stage in (ahead, behind):
        line = (0.0, 0.0, 0.0, 0.0)
        for _, base, costs, choices in stage:
            line, more = _line(base, costs)
            if more or choices or len(stage) > 1:
                return None
        hosts.append(line)
    return tuple(device), hosts[0], hosts[1]


def _line(base: float, costs: Costs) -> tuple[_Line, Costs]:
    """Return a line, and the costs of other functions by their place behind the first three."""
    known = dict(costs)
    line = (base, known.pop(0, 0.0), known.pop(1, 0.0), known.pop(2, 0.0))
    return line, tuple((place - len(_DECODE), cost) for place, cost in known.items())
