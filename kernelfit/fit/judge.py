"""What a fit's evidence makes of each coefficient: its interval, verdict and method."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernelfit.fit.calibration import Evidence
from kernelfit.fit.given import GivenPrior
from kernelfit.fit.identify import BLURRED, FEWEST_ROWS, LOST, PINNED, at_bound
from kernelfit.fit.point import PointFit
from kernelfit.fit.priors import to_values
from kernelfit.fit.steps import Floats
from kernelfit.kernel.catalog import Coefficient, definition
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.definitions import MOST

NEGLIGIBLE_SHARE = 1e-3
"""Share of the measured time below which a coefficient does not show [1]."""

STILL_PRIOR = 0.5
"""Distance from a prior's centre, in its spreads, up to which it is what gave the value [1]."""

NORMAL_95 = 1.96
"""Standard deviations of a normal variable that hold 95 % of it on both sides [1]."""


def judge(
    fit: PointFit,
    log_draws: Floats,
    chip: Chip,
    told: Mapping[str, GivenPrior],
    scope: str | None = None,
) -> tuple[tuple[Coefficient, ...], tuple[Evidence, ...]]:
    """Turn unit costs, evidence and draws into coefficients with verdicts.

    Parameters
    ----------
    fit : PointFit
        The fit.
    log_draws : ndarray, shape (n_draws, n_coefficients)
        ln of the unit costs of every draw [ln s].
    chip : Chip
        The GPU type.
    told : mapping of str to GivenPrior
        Priors that the user gave.
    scope : str, optional
        What the coefficients hold for; the GPU type where not given.

    Returns
    -------
    tuple of Coefficient
        In column order.
    tuple of Evidence
        In the same order.
    """
    names = fit.names
    values = to_values(names, np.exp(fit.solution.log_cost), chip)
    drawn = [to_values(names, np.exp(row), chip) for row in log_draws]
    bound_now = at_bound(fit.solution.log_cost, fit.priors)
    bound_drawn = at_bound(log_draws, fit.priors) if len(log_draws) else np.zeros((1, len(names)))
    # Known to be small, but not how small: its value is one end of what is allowed.
    negligible = fit.evidence.share < NEGLIGIBLE_SHARE
    coefficients, evidence = [], []
    for k, name in enumerate(names):
        value = values[name]
        samples = np.asarray([d[name] for d in drawn]) if drawn else np.asarray([value])
        log_spread = float(np.std(np.log(samples)))
        bound_share = float(np.mean(bound_drawn[:, k]))
        data_spread = float(fit.evidence.data_spread[k])
        # Blocks tell how far rows go together; the curvature, what draws that start from the
        # fit and keep its outliers miss.
        bare_spread = data_spread / float(np.sqrt(fit.inflation))
        # Left free, but where its prior put it: the data neither hold nor reject it.
        moved = abs(fit.solution.log_cost[k] - fit.priors.centre[k])
        held = data_spread > LOST and moved < STILL_PRIOR * fit.priors.spread[k]
        if k in fit.kept_prior or held:
            verdict = "prior"
        elif bound_now[k] or bound_share > 0.5 or (data_spread > LOST and negligible[k]):
            verdict = "at_bound"
        elif (
            data_spread > BLURRED
            or max(bare_spread, log_spread) > PINNED
            or fit.evidence.aliases[k]
            or fit.evidence.rows[k] < FEWEST_ROWS
            # The least error of any law would drown it.
            or negligible[k]
        ):
            verdict = "weak"
        else:
            verdict = "identified"
        low, high = (float(q) for q in np.quantile(samples, [0.025, 0.975]))
        entry = definition(name)
        if verdict in ("identified", "weak") and data_spread < LOST:
            reach = float(np.exp(NORMAL_95 * bare_spread))
            most = MOST.get(name, 1.0) if entry.kind == "efficiency" else float("inf")
            low, high = min(low, value / reach), max(high, min(value * reach, most))
        given = told.get(name)
        # A share of a sum that only the prior divides is not measured, nor is a value that
        # was given more sharply than the data could tell.
        kept = verdict == "prior" or bool(fit.evidence.aliases[k])
        kept = kept or (given is not None and data_spread > fit.priors.spread[k])
        believed = entry.method if given is None else given.method
        coefficients.append(
            Coefficient(
                name=name,
                value=value,
                unit=entry.unit,
                scope=chip.name if scope is None else scope,
                method=believed if kept else "measured",
                verdict=verdict,
                ci95=(min(low, value), max(high, value)),
            )
        )
        evidence.append(
            Evidence(
                data_spread=data_spread if np.isfinite(data_spread) else None,
                vif=float(fit.evidence.vif[k]) if np.isfinite(fit.evidence.vif[k]) else None,
                bootstrap_cv=log_spread,
                bound_share=bound_share,
                prior_shrinkage=1.0 - log_spread / float(fit.priors.spread[k]),
                time_share=float(fit.evidence.share[k]),
                alias=tuple(names[a] for a in fit.evidence.aliases[k]),
            )
        )
    return tuple(coefficients), tuple(evidence)
