"""A step's time as a plain loop over requests and over layers, nothing worked out before.

The same terms as the kernel's, each evaluated where it stands: the batch's functions by
adding up request by request, then every layer in turn with every term of its law. What it
is given ready-made is the price of a unit of each term, so the comparison is one of
evaluating, not of resolving a deployment.
"""

from __future__ import annotations

import math

from kernelfit.kernel import Batch, FittedKernel, Resource
from kernelfit.kernel.basis import PAGE, Basis
from kernelfit.kernel.costs import unit_cost_s

Work = tuple[str, int, float, str, int]
"""``(resource, function, seconds per unit, group, form)`` of a term of one layer."""


def layers_of(kernel: FittedKernel) -> list[tuple[str, list[Work]]]:
    """Return one entry per layer, then head and host, each with its terms."""
    plan = kernel.plan
    values = kernel.fitted.values()
    out: list[tuple[str, list[Work]]] = []
    counts = {f"layer.{kind.name}": kind.count for kind in plan.model.layers}
    for stage in plan.stages:
        count = counts.get(stage, 1)
        terms = [
            (
                str(term.resource),
                term.function,
                term.amount / count * unit_cost_s(term.coefficient, values, plan.chip),
                term.group,
                term.form,
            )
            for term in plan.terms
            if term.stage == stage
        ]
        out += [(stage, terms)] * count
    return out


def step_time(
    basis: Basis, layers: list[tuple[str, list[Work]]], batch: Batch
) -> tuple[float, float]:
    """Return a step's two bounds [s]."""
    row = functions(basis, batch)
    overlap = no_overlap = launch = host = 0.0
    for stage, terms in layers:
        times: dict[str, float] = {}
        forms: dict[tuple[str, str], list[float]] = {}
        for resource, function, cost, group, form in terms:
            time = cost * row[function]
            if group:
                forms.setdefault((resource, group), [0.0, 0.0])[form] += time
            else:
                times[resource] = times.get(resource, 0.0) + time
        for (resource, _), both in forms.items():
            times[resource] = times.get(resource, 0.0) + max(both)
        if stage == "launch":
            launch += times[Resource.HOST]
        elif stage == "host":
            host += times[Resource.HOST]
        else:
            overlap += max(times.values())
            no_overlap += sum(times.values())
    return max(overlap, launch) + host, no_overlap + launch + host


def functions(basis: Basis, batch: Batch) -> list[float]:
    """Return the batch's functions, request by request."""
    tokens = requests = decoding = 0
    paths = {True: [0, 0], False: [0, 0]}
    windows = {w: {True: [0, 0], False: [0, 0]} for w in basis.windows}
    for request in batch.requests:
        s, c = request.scheduled, request.computed
        requests += 1
        tokens += s
        decode = s <= batch.decode_threshold
        decoding += decode
        paths[decode][0] += c + s
        paths[decode][1] += s * c + s * (s + 1) // 2
        for window, sums in windows.items():
            sums[decode][0] += min(c + s, s + window - 1)
            ramp = min(max(window - c, 0), s)
            sums[decode][1] += ramp * c + ramp * (ramp + 1) // 2 + (s - ramp) * window
    row = [0.0] * basis.size
    graph, padded, padded_requests = "none", tokens, requests
    sizes = [size for size in basis.capture_sizes if size >= tokens]
    if sizes:
        even = tokens == requests * basis.decode_query_tokens
        graph = basis.decode_graph if even and decoding == requests else basis.mixed_graph
        if graph != "none":
            padded = min(sizes)
        if graph == "full" and even:
            padded_requests = math.ceil(padded / basis.decode_query_tokens)
    row[:PAGE] = [
        1.0, tokens, padded, requests, paths[True][0], paths[False][0], paths[True][1],
        paths[False][1], padded_requests, decoding, graph == "full", graph == "piecewise",
        graph == "none",
    ]  # fmt: skip
    for routing in basis.routings:
        at, copies = basis.touched_at(routing), routing.copies
        miss = 1.0 - routing.per_token / routing.experts
        row[at] = routing.experts / routing.ranks * (1.0 - miss ** (copies * padded))
        rows = copies * padded * routing.per_token
        row[at + 1] = rows
        if routing.ranks > 1:
            mean = rows / routing.ranks
            spread = math.sqrt(2.0 * math.log(routing.ranks) * mean * (1.0 - 1.0 / routing.ranks))
            most = min(rows, copies * padded * routing.experts / routing.ranks)
            row[at + 1] = min(mean + spread, most)
            if routing.imbalance:
                row[at + 1] = mean * routing.imbalance
    at = PAGE + 2 * len(basis.routings)
    for window in basis.windows:
        sums = windows[window]
        row[at : at + 4] = [*sums[True], *sums[False]]
        at += 4
    return row
