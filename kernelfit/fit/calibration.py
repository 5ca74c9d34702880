"""What a fit gives: coefficients with their evidence, draws, and what they rest on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelfit.fit.front_end_evidence import FrontEndEvidence
from kernelfit.fit.given import GivenPrior, by_name
from kernelfit.kernel.catalog import Coefficient, definition
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.costs import peak_of, resource_of
from kernelfit.kernel.frozen import digest, to_data
from kernelfit.kernel.handover import Fitted, Range, Residuals

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why a coefficient has its verdict.

    Attributes
    ----------
    data_spread : float or None
        Relative standard deviation from the data alone [1]; None where they say nothing.
    vif : float or None
        Variance inflation factor [1]; None for an exact alias.
    bootstrap_cv : float
        Relative standard deviation over the draws [1].
    bound_share : float
        Share of the draws at a bound [1].
    prior_shrinkage : float
        1 minus the ratio of the draws' spread to the prior's [1].
    time_share : float
        Share of the measured time that its terms make up [1].
    alias : tuple of str
        Coefficients that the data cannot tell it from.
    """

    data_spread: float | None
    vif: float | None
    bootstrap_cv: float
    bound_share: float
    prior_shrinkage: float
    time_share: float
    alias: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """Held-out score of one way in which resources combine.

    Attributes
    ----------
    rule : str
        ``sum``, ``max`` or ``share``.
    median_ape, mape : float
        Median and mean absolute percentage error as fractions, averaged over runs [1].
    split : str
        What was held out.
    """

    rule: str
    median_ape: float
    mape: float
    split: str = "time_block"


@dataclass(frozen=True, slots=True)
class RunUsed:
    """One run behind a calibration.

    Attributes
    ----------
    run, model, pool : str
        The run and its deployment.
    steps, kept : int
        Steps in the store, and steps that passed the gates.
    """

    run: str
    model: str
    pool: str
    steps: int
    kept: int


@dataclass(frozen=True, slots=True)
class Noise:
    """How far steps of the same shape scatter; no model can do better.

    Attributes
    ----------
    median_spread, p90_spread : float
        Median and 90th percentile of the absolute relative deviation from the group's
        median [1].
    groups, steps : int
        Groups of equal shapes, and steps in them.
    """

    median_spread: float
    p90_spread: float
    groups: int
    steps: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """The coefficients of one GPU type, fitted jointly.

    Attributes
    ----------
    chip : Chip
        The GPU type.
    coefficients : tuple of Coefficient
        Every coefficient.
    evidence : tuple of Evidence
        In the same order.
    rule : str
        How resources combine; ``+host`` where launches do not hide behind the device.
    overlap_share : float
        Share of the possible overlap that happens [1].
    scores : tuple of Score
        Held-out scores of every rule tried.
    scale : float
        Robust standard deviation of ln(predicted / measured) in the fit [1].
    lag1 : float
        Autocorrelation of the residuals at one step [1].
    inflation : float
        Factor by which autocorrelation inflates variances [1].
    block_steps : int
        Length of the resampled blocks [steps].
    condition : float
        Condition number of the scaled columns [1].
    runs : tuple of RunUsed
        What it rests on.
    noise : Noise
        The noise floor.
    domain : tuple of Range
        What it has seen.
    draw_names : tuple of str
        Coefficients of the draws.
    draws : tuple of tuple of float
        Joint draws, each in its own unit.
    draw_shares : tuple of float
        Overlap share of each draw [1].
    residuals : tuple of Residuals
        Held-out errors by phase.
    seed : int
        Seed of the draws.
    converged : bool
        Whether the solver met its tolerance.
    warnings : tuple of str
        What a reader must know.
    priors : tuple of GivenPrior
        Priors that the user gave and the fit used, in the order of the coefficients; the
        others come from the catalogue.
    front_end : FrontEndEvidence or None
        What the coefficients of the front end rest on; None where no host work around the
        step was recorded.
    inside_step : tuple of str
        What is known of host work inside the step, and what cannot be told from the GPU's.
    """

    chip: Chip
    coefficients: tuple[Coefficient, ...]
    evidence: tuple[Evidence, ...]
    rule: str
    overlap_share: float
    scores: tuple[Score, ...]
    scale: float
    lag1: float
    inflation: float
    block_steps: int
    condition: float
    runs: tuple[RunUsed, ...]
    noise: Noise
    domain: tuple[Range, ...]
    draw_names: tuple[str, ...]
    draws: tuple[tuple[float, ...], ...]
    draw_shares: tuple[float, ...]
    residuals: tuple[Residuals, ...]
    seed: int
    converged: bool
    warnings: tuple[str, ...]
    priors: tuple[GivenPrior, ...] = ()
    front_end: FrontEndEvidence | None = None
    inside_step: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """Return the calibration as a self-contained document.

        Returns
        -------
        dict
            JSON-shaped data with its digest.
        """
        body = {"kind": "Calibration", "schema_version": SCHEMA_VERSION, **to_data(self)}
        for name in ("priors", "front_end", "inside_step"):
            if not getattr(self, name):
                # As in files from before there was such a part, so that digests stay.
                del body[name]
        body["condition"] = self.condition if self.condition < 1e300 else None
        body["digest"] = digest(body)
        return body

    @property
    def digest(self) -> str:
        """Digest of the calibration's document."""
        return str(self.to_document()["digest"])

    def fitted(self) -> Fitted:
        """Return what kernels are frozen from.

        Returns
        -------
        Fitted
            Coefficients, composition, draws, residuals and domain.
        """
        return Fitted(
            calibration=self.digest,
            coefficients=self.coefficients,
            overlap_share=self.overlap_share,
            host_rule="added" if self.rule.endswith("+host") else "hidden",
            draw_names=self.draw_names,
            draws=self.draws,
            draw_shares=self.draw_shares,
            residuals=self.residuals,
            domain=self.domain,
        )

    def summary(self) -> dict[str, Any]:
        """Return the calibration as reports and ``--json`` show it.

        Returns
        -------
        dict
            JSON-shaped data in SI units; shares as fractions.
        """
        return {
            "gpu": self.chip.name,
            "digest": self.digest,
            "composition": {
                "rule": self.rule,
                "overlap_share": self.overlap_share,
                "scores": [to_data(score) for score in self.scores],
            },
            "coefficients": [
                self._coefficient(c, e)
                for c, e in zip(self.coefficients, self.evidence, strict=True)
            ],
            "priors": sorted({prior.file for prior in self.priors}),
            "runs": [to_data(run) for run in self.runs],
            "noise": to_data(self.noise),
            "domain": [
                {"quantity": r.quantity, "low": r.low, "high": r.high, "unit": _unit(r.quantity)}
                for r in self.domain
            ],
            "autocorrelation": {
                "lag1": self.lag1,
                "block_steps": self.block_steps,
                "inflation": self.inflation,
            },
            "condition": self.condition if self.condition < 1e300 else None,
            "scale": self.scale,
            "converged": self.converged,
            "seed": self.seed,
            "draws": len(self.draws),
            "warnings": list(self.warnings),
            "inside_step": list(self.inside_step),
            "front_end": None if self.front_end is None else to_data(self.front_end),
        }

    def _coefficient(self, c: Coefficient, e: Evidence) -> dict[str, Any]:
        entry = definition(c.name)
        given = by_name(self.priors).get(c.name)
        prior = entry if given is None else given
        peak = None
        if entry.kind == "efficiency":
            peak = peak_of(c.name, resource_of(c.name), self.chip)
        return {
            "name": c.name,
            "value": c.value,
            "unit": c.unit,
            "ci95": list(c.ci95),
            "verdict": c.verdict,
            "method": c.method,
            "scope": c.scope,
            "peak": peak,
            "peak_unit": None if peak is None else _peak_unit(c.name),
            "share_of_peak": None if peak is None else c.value,
            "prior": {
                "value": entry.prior if given is None else given.value,
                "spread": entry.prior_spread if given is None else given.spread,
                "method": prior.method,
                "source": prior.source,
                "file": None if given is None else given.file,
            },
            "alias": list(e.alias),
            "evidence": {
                "data_spread": e.data_spread,
                "vif": e.vif,
                "prior_shrinkage": e.prior_shrinkage,
                "bound_share": e.bound_share,
                "bootstrap_cv": e.bootstrap_cv,
                "time_share": e.time_share,
            },
            "meaning": entry.meaning,
        }


def _peak_unit(name: str) -> str:
    return "flop/s" if resource_of(name).value == "sm" else "byte/s"


def _unit(quantity: str) -> str:
    return "tokens" if quantity.endswith("tokens") else "count"
