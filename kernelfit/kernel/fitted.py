"""The kernel that a calibration freezes into."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelfit.kernel.base import PricedKernel
from kernelfit.kernel.basis import Array, Basis
from kernelfit.kernel.batch import Batch
from kernelfit.kernel.bounds import added_host, hidden_host, mean_s
from kernelfit.kernel.catalog import Coefficient
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.draws import DrawPrices, draw_values
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.estimate import CalibratedStepTime, CoefficientOrigin
from kernelfit.kernel.front_end import FrontEnd
from kernelfit.kernel.front_end_definitions import FRONT_END_NAMES
from kernelfit.kernel.frozen import canonical, digest, from_data, list_from_data, to_data
from kernelfit.kernel.handover import Fitted
from kernelfit.kernel.limits import check_batch
from kernelfit.kernel.model import Model
from kernelfit.kernel.phase import phase_of
from kernelfit.kernel.plan import Plan
from kernelfit.kernel.pool import Pool
from kernelfit.kernel.pricing import cells_of, price_many
from kernelfit.kernel.resolved import Resolution
from kernelfit.kernel.stage import Term
from kernelfit.kernel.tables import checked_columns
from kernelfit.kernel.totals import BatchTotals
from kernelfit.kernel.version1 import plan_of_version_1

SCHEMA_VERSION = 3
"""Version 2 holds its terms, so that no later law changes what a file says; version 1
held none and is priced with the laws of its time. Version 3 may hold coefficients of the
front end, which a reader of version 2 would pass over; without them a file is version 2."""
STEP_VERSION = 2


@dataclass(frozen=True, slots=True, repr=False)
class FittedKernel(PricedKernel):
    """Calibration x model x pool, resolved; what a simulator calls.

    Attributes
    ----------
    fitted : Fitted
        What the calibration handed over.
    draws : DrawPrices or None
        Its draws, priced; they follow from the plan and from ``fitted``.
    """

    fitted: Fitted
    draws: DrawPrices | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def of(
        model: Model, chip: Chip, pool: Pool, engine_version: str, fitted: Fitted
    ) -> FittedKernel:
        """Resolve a pool and price it with a calibration.

        Parameters
        ----------
        model : Model
            The model.
        chip : Chip
            The GPU type; the calibration must be of the same type.
        pool : Pool
            The pool.
        engine_version : str
            The engine's version; it decides defaults.
        fitted : Fitted
            What the calibration hands over.

        Returns
        -------
        FittedKernel
            The kernel.

        Raises
        ------
        Refusal
            When the pool cannot be priced truthfully.
        InvalidArgument
            When a width does not divide the model, or a coefficient is missing.
        """
        return FittedKernel.from_plan(Plan.of(model, chip, pool, engine_version), fitted)

    @staticmethod
    def from_plan(plan: Plan, fitted: Fitted) -> FittedKernel:
        """Price a plan with a calibration.

        Parameters
        ----------
        plan : Plan
            The plan.
        fitted : Fitted
            What the calibration hands over.

        Returns
        -------
        FittedKernel
            The kernel.

        Raises
        ------
        InvalidArgument
            When a coefficient is missing.
        """
        cells = cells_of(plan, fitted.values())
        used = {*plan.coefficients, *FRONT_END_NAMES}
        origins = tuple(
            CoefficientOrigin(c.name, fitted.calibration, c.method, c.scope)
            for c in fitted.coefficients
            if c.name in used
        )
        return FittedKernel(
            plan,
            cells,
            origins,
            fitted,
            DrawPrices.of(plan, fitted),
            front_end=FrontEnd.of(fitted.coefficients),
        )

    @staticmethod
    def load(path: str | Path) -> FittedKernel:
        """Read a frozen kernel.

        Parameters
        ----------
        path : str or pathlib.Path
            The file; it is opened here and never again.

        Returns
        -------
        FittedKernel
            The kernel.

        Raises
        ------
        InvalidArgument
            When the file is no frozen kernel or its digest does not match.
        """
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise InvalidArgument(str(path), str(error), "a frozen kernel's JSON") from error
        return FittedKernel.from_document(document)

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> FittedKernel:
        """Build a kernel from its document.

        Parameters
        ----------
        document : mapping
            What ``to_document`` gave.

        Returns
        -------
        FittedKernel
            The kernel.

        Raises
        ------
        InvalidArgument
            When a part is missing, unknown or of the wrong type, or the digest differs.
        """
        if not isinstance(document, Mapping):
            raise InvalidArgument("document", type(document).__name__, "an object")
        kind, version = document.get("kind"), document.get("schema_version")
        if kind != "FittedKernel":
            raise InvalidArgument("kind", kind, "FittedKernel")
        if version not in (1, STEP_VERSION, SCHEMA_VERSION):
            raise InvalidArgument("schema_version", version, f"1 to {SCHEMA_VERSION}")
        if document.get("digest") != digest(document):
            raise InvalidArgument("digest", document.get("digest"), "the digest of the contents")
        deployed = (
            from_data(Model, document.get("model"), "model"),
            from_data(Chip, document.get("chip"), "chip"),
            from_data(Pool, document.get("pool"), "pool"),
            str(document.get("engine_version", "")),
        )
        fitted = from_data(Fitted, document.get("fitted"), "fitted")
        if version == 1:
            return FittedKernel.from_plan(plan_of_version_1(*deployed), fitted)
        plan = Plan(
            *deployed,
            from_data(Resolution, document.get("resolution"), "resolution"),
            from_data(Basis, document.get("basis"), "basis"),
            list_from_data(Term, document.get("terms"), "terms"),
        )
        return FittedKernel.from_plan(plan, fitted)

    def to_document(self) -> dict[str, Any]:
        """Return the kernel as a self-contained document.

        Returns
        -------
        dict
            JSON-shaped data with its digest.
        """
        around = any(c.name in FRONT_END_NAMES for c in self.fitted.coefficients)
        body: dict[str, Any] = {
            "kind": "FittedKernel",
            "schema_version": SCHEMA_VERSION if around else STEP_VERSION,
            "model": to_data(self.plan.model),
            "chip": to_data(self.plan.chip),
            "pool": to_data(self.plan.pool),
            "engine_version": self.plan.engine_version,
            "resolution": to_data(self.plan.resolution),
            "basis": to_data(self.plan.basis),
            "terms": to_data(self.plan.terms),
            "fitted": to_data(self.fitted),
        }
        body["digest"] = digest(body)
        return body

    def to_json(self) -> str:
        """Return the kernel's file contents.

        Returns
        -------
        str
            Canonical JSON, ending in a newline.
        """
        return canonical(self.to_document(), indent=1) + "\n"

    @property
    def digest(self) -> str:
        """Digest of the kernel's document."""
        return str(self.to_document()["digest"])

    def with_draw(self, index: int) -> FittedKernel:
        """Return the kernel priced with one draw of the coefficients.

        Parameters
        ----------
        index : int
            Number of the draw.

        Returns
        -------
        FittedKernel
            The same deployment with other values; used to carry uncertainty into a
            conclusion. What it writes to a file is priced with the draw, too.
        """
        shares = self.fitted.draw_shares
        share = shares[index] if shares else self.fitted.overlap_share
        values = draw_values(self.fitted, index)
        drawn = replace(
            self.fitted,
            overlap_share=share,
            coefficients=tuple(_with_value(c, values[c.name]) for c in self.fitted.coefficients),
        )
        return replace(
            self,
            cells=cells_of(self.plan, values),
            fitted=drawn,
            front_end=FrontEnd.of(drawn.coefficients),
        )

    def mean_step_time(self, totals: BatchTotals, sm_budget: int = 0) -> float:
        """Return the fitted time of one step from its totals.

        Parameters
        ----------
        totals : BatchTotals
            The batch's totals.
        sm_budget : int
            SMs that the step may use; 0 means all of them.

        Returns
        -------
        float
            Fitted step time, without its interval [s].
        """
        times = self.forms.times(totals, sm_budget)
        return mean_s(times, self.fitted.overlap_share, self.fitted.host_rule)

    def mean_step_times(self, table: Mapping[str, npt.ArrayLike]) -> Array:
        """Return the fitted times of many steps.

        Parameters
        ----------
        table : mapping of str to array_like, shape (n_steps,)
            One column per field of ``BatchTotals``, and one ``window_column`` per total of
            each sliding window.

        Returns
        -------
        ndarray, shape (n_steps,)
            Fitted step times [s].

        Raises
        ------
        InvalidArgument
            When a column is missing, of another length, or holds a value that is negative
            or not finite.
        """
        columns = checked_columns(table, self.plan.basis.windows)
        times = price_many(self.plan, self.cells, columns)
        share = self.fitted.overlap_share
        device_s = times.no_overlap_s - share * (times.no_overlap_s - times.overlap_s)
        join = added_host if self.fitted.host_rule == "added" else hidden_host
        return join(device_s, times)

    def calibrated_step_time(self, batch: Batch, level: float = 0.9) -> CalibratedStepTime:
        """Return the fitted step time with its prediction interval.

        Parameters
        ----------
        batch : Batch
            The batch.
        level : float
            Nominal coverage of the interval [1].

        Returns
        -------
        CalibratedStepTime
            Mean and interval [s]; the interval joins the spread of the coefficients'
            draws with the held-out errors of the batch's phase.

        Raises
        ------
        InvalidArgument
            When the batch exceeds the pool's limits or the level is not within (0, 1).
        """
        if not 0.0 < level < 1.0:
            raise InvalidArgument("level", level, "between 0 and 1")
        totals = self.totals(batch)
        check_batch(self.plan, batch, totals)
        mean = self.mean_step_time(totals, batch.sm_budget)
        ratios = np.zeros(1)
        if self.draws is not None:
            slowdown = self.plan.chip.sm_count / batch.sm_budget if batch.sm_budget else 1.0
            ratios = np.log(self.draws.mean_s(self.plan.basis.row(totals), slowdown) / mean)
        noise = np.asarray(self._residuals(phase_of(batch)) or (0.0,))
        joined = (ratios[:, None] + noise[None, :]).ravel()
        low, high = np.quantile(joined, [(1 - level) / 2, (1 + level) / 2])
        return CalibratedStepTime(
            mean_s=mean,
            low_s=mean * float(np.exp(min(low, 0.0))),
            high_s=mean * float(np.exp(max(high, 0.0))),
            level=level,
            in_domain=self.in_domain(totals),
        )

    def _residuals(self, phase: str) -> tuple[float, ...]:
        for entry in self.fitted.residuals:
            if entry.phase == phase:
                return entry.log_ratio
        # A phase never seen takes the widest of the others: it is not known better.
        spreads = [entry.log_ratio for entry in self.fitted.residuals]
        return max(spreads, key=lambda q: q[-1] - q[0], default=())

    def in_domain(self, totals: BatchTotals) -> bool:
        """Return whether a batch lies inside what the calibration has seen.

        Parameters
        ----------
        totals : BatchTotals
            The batch's totals.

        Returns
        -------
        bool
            Whether every total, and every width of the deployment, lies within the
            range seen.

        Notes
        -----
        That a model was never recorded is for the validation with one of them left out
        to judge, and for the reader.
        """
        resolution = self.plan.resolution
        return all(
            entry.low <= value <= entry.high
            for entry in self.fitted.domain
            for value in (
                getattr(totals, entry.quantity, getattr(resolution, entry.quantity, entry.low)),
            )
        )


def _with_value(coefficient: Coefficient, value: float) -> Coefficient:
    low, high = coefficient.ci95
    return replace(coefficient, value=value, ci95=(min(low, value), max(high, value)))
