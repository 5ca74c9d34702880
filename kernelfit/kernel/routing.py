"""How many experts a step touches, and how much of their work the busiest rank gets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Routing:
    """How the tokens of a step are spread over experts, seen from the busiest rank.

    Attributes
    ----------
    experts : int
        Routed experts of the layer.
    per_token : int
        Experts that each token is routed to.
    ranks : int
        Expert-parallel ranks; 1 where every rank holds a slice of every expert.
    copies : int
        Data-parallel ranks whose tokens meet in the layer, each with an equal batch.
    imbalance : float
        Rows of the busiest rank over the mean [1]; 0 takes uniform routing's own
        expectation.
    padding : bool
        Whether the rows that pad a batch to a captured size are routed, too; files of
        version 1 leave them out.
    """

    experts: int
    per_token: int
    ranks: int = 1
    copies: int = 1
    imbalance: float = 0.0
    padding: bool = True


class Rates(NamedTuple):
    """What is constant of a routing's two functions.

    Attributes
    ----------
    held : float
        Experts that a rank holds.
    miss_log : float
        Logarithm of the probability that a token of one data-parallel rank, and its
        likes on the others, all miss a given expert.
    mean, variance, most : float
        Rows of a rank per token: their mean, what the square of their spread grows by,
        and what they cannot exceed.
    padding : bool
        Whether the rows that pad a batch are routed, too.
    """

    held: float
    miss_log: float
    mean: float
    variance: float
    most: float
    padding: bool


def rates_of(routing: Routing) -> Rates:
    """Return the constants of a routing.

    Parameters
    ----------
    routing : Routing
        The routing.

    Returns
    -------
    Rates
        See ``touched`` and ``busiest_rows`` for the laws.
    """
    ranks, copies, experts = routing.ranks, routing.copies, routing.experts
    miss = routing.per_token / experts
    rows = float(copies * routing.per_token)
    mean = rows / ranks
    variance, most = 0.0, rows
    if ranks > 1 and routing.imbalance:
        mean *= routing.imbalance
    elif ranks > 1:
        variance = 2.0 * math.log(ranks) * mean * (1.0 - 1.0 / ranks)
        most = min(rows, copies * experts / ranks)
    # Where every token goes to every expert, the logarithm of 0 would not multiply.
    miss_log = copies * (math.log1p(-miss) if miss < 1.0 else -1e3)
    return Rates(experts / ranks, miss_log, mean, variance, most, routing.padding)


def both(rates: Rates, tokens: float) -> tuple[float, float]:
    """Return both functions of a routing for one batch.

    Parameters
    ----------
    rates : Rates
        Constants of the routing.
    tokens : float
        Tokens of one data-parallel rank, those that pad its graph included [tokens].

    Returns
    -------
    float
        Experts touched, see ``touched`` [1].
    float
        Rows of the busiest rank, see ``busiest_rows`` [1].
    """
    held, miss_log, mean, variance, most, _ = rates
    rows = mean * tokens
    if variance:
        rows = min(rows + math.sqrt(variance * tokens), most * tokens)
    return held * -math.expm1(tokens * miss_log), rows


def touched(routing: Routing, tokens: float) -> float:
    """Return the expected number of distinct experts that a rank touches.

    Parameters
    ----------
    routing : Routing
        The routing.
    tokens : float
        Tokens of one data-parallel rank, padding included [tokens].

    Returns
    -------
    float
        ``E/r * (1 - (1 - k/E) ** (copies * tokens))`` [1]: each token misses a given
        expert with probability 1 - k/E, independently under uniform routing, and a rank
        holds E/r of the experts.

    Notes
    -----
    Domain: uniform routing; skewed routing touches fewer. The rows that pad a batch to a
    captured size are routed like any others: measured decode times of a mixture of
    experts on a B300 rise in the stairs of the captured sizes.
    """
    return both(rates_of(routing), tokens)[0]


def busiest_rows(routing: Routing, tokens: float) -> float:
    """Return the rows of experts' work on the busiest rank.

    Parameters
    ----------
    routing : Routing
        The routing.
    tokens : float
        Tokens of one data-parallel rank, padding included [tokens].

    Returns
    -------
    float
        Token-expert pairs on the rank that has most [1]. With a stated imbalance, that
        times the mean; else the mean plus ``sqrt(2 ln r)`` standard deviations of the
        binomial count, at most all pairs that a rank can get.

    Notes
    -----
    The expected maximum of r normal variables is below ``sqrt(2 ln r)`` standard
    deviations and approaches it for large r. Domain: uniform routing unless stated.
    """
    return both(rates_of(routing), tokens)[1]
