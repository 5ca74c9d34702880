"""What a calibration hands to the kernels that are frozen from it."""

from __future__ import annotations

from dataclasses import dataclass

from kernelfit.kernel.catalog import Coefficient
from kernelfit.kernel.errors import InvalidArgument

HOST_RULES: tuple[str, ...] = ("hidden", "added")


@dataclass(frozen=True, slots=True)
class Range:
    """What a calibration has seen of one total.

    Attributes
    ----------
    quantity : str
        A field of ``BatchTotals``, or a width of ``Resolution``.
    low, high : float
        Smallest and largest value seen.
    """

    quantity: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Residuals:
    """Held-out prediction errors of one phase.

    Attributes
    ----------
    phase : str
        ``decode``, ``mixed`` or ``prefill``.
    steps : int
        Steps behind the quantiles.
    log_ratio : tuple of float
        Quantiles of ln(measured / predicted), evenly spaced from the smallest to the
        largest [1].
    """

    phase: str
    steps: int
    log_ratio: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Fitted:
    """What a calibration hands to every kernel frozen from it.

    Attributes
    ----------
    calibration : str
        Digest of the calibration.
    coefficients : tuple of Coefficient
        Every coefficient of the calibration.
    overlap_share : float
        Share of the possible overlap that happens [1]: 0 adds everything up, 1 takes
        the largest resource of every layer.
    draw_names : tuple of str
        Coefficients that the draws hold.
    draws : tuple of tuple of float
        Joint draws of those coefficients, each in its own unit.
    residuals : tuple of Residuals
        Held-out errors by phase.
    domain : tuple of Range
        What the calibration has seen.
    draw_shares : tuple of float
        Overlap share of each draw [1]; the fitted share in every draw where empty.
    host_rule : str
        ``hidden`` where host work that runs ahead hides behind the device, ``added``
        where the data show that it does not.
    """

    calibration: str
    coefficients: tuple[Coefficient, ...]
    overlap_share: float
    draw_names: tuple[str, ...]
    draws: tuple[tuple[float, ...], ...]
    residuals: tuple[Residuals, ...]
    domain: tuple[Range, ...]
    draw_shares: tuple[float, ...] = ()
    host_rule: str = "hidden"

    def __post_init__(self) -> None:
        """Check that the parts agree.

        Raises
        ------
        InvalidArgument
            When the share lies outside 0 to 1 or a draw has the wrong length.
        """
        if not 0.0 <= self.overlap_share <= 1.0:
            raise InvalidArgument("overlap_share", self.overlap_share, "0 to 1")
        if self.host_rule not in HOST_RULES:
            raise InvalidArgument("host_rule", self.host_rule, ", ".join(HOST_RULES))
        if self.draw_shares and len(self.draw_shares) != len(self.draws):
            raise InvalidArgument("draw_shares", len(self.draw_shares), f"{len(self.draws)} shares")
        if any(len(draw) != len(self.draw_names) for draw in self.draws):
            raise InvalidArgument("draws", "a draw", f"{len(self.draw_names)} values in each")

    def values(self) -> dict[str, float]:
        """Return the fitted value of every coefficient.

        Returns
        -------
        dict of str to float
            Values in their own units.
        """
        return {c.name: c.value for c in self.coefficients}
