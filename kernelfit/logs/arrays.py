"""What every column of a reader is made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

UNKNOWN = -1
"""A count that the log does not state."""
