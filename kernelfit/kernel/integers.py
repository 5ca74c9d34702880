"""Division of counts into whole parts."""

from __future__ import annotations


def ceil_div(amount: int, ways: int) -> int:
    """Return the size of the largest of equal parts, the last of which may be smaller.

    Parameters
    ----------
    amount : int
        What is divided.
    ways : int
        Parts, or the size of one; at least 1.

    Returns
    -------
    int
        ``amount / ways``, rounded up.

    Raises
    ------
    ZeroDivisionError
        When ``ways`` is 0.
    """
    return -(-amount // ways)
