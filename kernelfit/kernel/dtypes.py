"""The data types that the core knows, and the size of one element of each."""

from __future__ import annotations

from kernelfit.kernel.errors import InvalidArgument

DTYPE_BYTES: tuple[tuple[str, float], ...] = (
    ("fp32", 4.0),
    ("bf16", 2.0),
    ("fp16", 2.0),
    ("fp8", 1.0),
    ("int8", 1.0),
    ("int4", 0.5),
    ("fp4", 0.5),
)
"""Name and size of one element [bytes]; the width that each name states, in bits, over 8."""


def dtype_bytes(dtype: str) -> float:
    """Return the size of one element of a data type.

    Parameters
    ----------
    dtype : str
        A name from ``DTYPE_BYTES``.

    Returns
    -------
    float
        Size of one element [bytes].

    Raises
    ------
    InvalidArgument
        When the name is unknown.
    """
    for name, size in DTYPE_BYTES:
        if name == dtype:
            return size
    raise InvalidArgument("dtype", dtype, ", ".join(name for name, _ in DTYPE_BYTES))
