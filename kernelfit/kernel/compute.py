"""What a weight matrix computes in, and what reading one of its elements takes."""

from __future__ import annotations

from kernelfit.kernel.chip import Chip
from kernelfit.kernel.model import Model, stored_bytes


def compute_dtype(model: Model, weight_dtype: str, chip: Chip) -> str:
    """Return the data type that a matrix multiplication runs in.

    Parameters
    ----------
    model : Model
        The model.
    weight_dtype : str
        Data type of the matrix.
    chip : Chip
        The GPU type.

    Returns
    -------
    str
        The weights' own type where they are fp8 or fp4 and the chip multiplies it, else
        the model's: other quantised weights are expanded before multiplying.
    """
    stated = {name for name, _ in chip.peak_flop_per_s}
    native = weight_dtype in ("fp8", "fp4") and weight_dtype in stated
    return weight_dtype if native else model.dtype


def weight_of(model: Model, own: str | None, chip: Chip) -> tuple[str, float]:
    """Return how a part's matrices compute and are read.

    Parameters
    ----------
    model : Model
        The model.
    own : str or None
        Data type of the part's weights; None follows the model.
    chip : Chip
        The GPU type.

    Returns
    -------
    str
        Data type that they compute in.
    float
        Size of one element, its share of the scales included [bytes].
    """
    return compute_dtype(model, own or model.weight_dtype, chip), stored_bytes(model, own)
