"""Steps and requests of several engines, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from kernelfit.logs.columns import Requests, Steps


def joined_steps(parts: Sequence[Steps]) -> Steps:
    """Return the steps of several engines as one.

    Parameters
    ----------
    parts : sequence of Steps
        At least one.

    Returns
    -------
    Steps
        All of them, part after part.
    """
    columns = {f.name: [getattr(part, f.name) for part in parts] for f in fields(Steps)}
    return Steps(**{name: np.concatenate(arrays) for name, arrays in columns.items()})


def joined_requests(parts: Sequence[Requests]) -> Requests:
    """Return the requests of several engines as one.

    Parameters
    ----------
    parts : sequence of Requests
        At least one.

    Returns
    -------
    Requests
        All of them, part after part.
    """
    columns = {f.name: [getattr(part, f.name) for part in parts] for f in fields(Requests)}
    return Requests(**{name: np.concatenate(arrays) for name, arrays in columns.items()})
