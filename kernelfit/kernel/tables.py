"""Totals of many batches as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from kernelfit.kernel.basis import Array
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.totals import TOTAL_FIELDS, WINDOW_FIELDS, BatchTotals, window_column


def table_of(totals: Sequence[BatchTotals]) -> dict[str, Array]:
    """Return the columns that ``step_times`` takes.

    Parameters
    ----------
    totals : sequence of BatchTotals
        Batches of one deployment.

    Returns
    -------
    dict of str to ndarray, shape (n_batches,)
        One column per field of ``BatchTotals``, and per total of each sliding window.

    Raises
    ------
    InvalidArgument
        When the batches hold different sliding windows.
    """
    windows = [tuple(w.window_tokens for w in t.windows) for t in totals]
    for other in windows[1:]:
        if other != windows[0]:
            raise InvalidArgument("windows", other, f"the same in every batch, {windows[0]}")
    out = {
        name: np.asarray([getattr(t, name) for t in totals], dtype=np.float64)
        for name in TOTAL_FIELDS
    }
    for index, window in enumerate(totals[0].windows if totals else ()):
        for name in WINDOW_FIELDS:
            out[window_column(window.window_tokens, name)] = np.asarray(
                [getattr(t.windows[index], name) for t in totals], dtype=np.float64
            )
    return out


def checked_columns(
    columns: Mapping[str, npt.ArrayLike], windows: Sequence[int]
) -> dict[str, Array]:
    """Return the columns that the laws read, as arrays of one length.

    Parameters
    ----------
    columns : mapping of str to array_like, shape (n_batches,)
        One column per field of ``BatchTotals``, and one ``window_column`` per total of
        each sliding window; others are left out.
    windows : sequence of int
        Sliding windows of the model [tokens].

    Returns
    -------
    dict of str to ndarray, shape (n_batches,)
        Counts; means of counts are as good, so they need not be whole.

    Raises
    ------
    InvalidArgument
        When a column is missing, has another length, is no list of numbers, or holds a
        value that is negative or not finite.
    """
    names = (*TOTAL_FIELDS, *(window_column(w, f) for w in windows for f in WINDOW_FIELDS))
    out: dict[str, Array] = {}
    for name in names:
        if name not in columns:
            raise InvalidArgument(name, "nothing", "a column of the table")
        try:
            values = np.asarray(columns[name], dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(name, columns[name], "a column of numbers") from error
        if values.ndim != 1 or values.size != out.get(names[0], values).size:
            raise InvalidArgument(name, values.shape, "one value per batch in every column")
        # Comparing is false for what is not a number, so one pair of them finds all.
        if values.size and not (values.min() >= 0.0 and values.max() < np.inf):
            place = int(np.argmin((values >= 0.0) & (values < np.inf)))
            raise InvalidArgument(f"{name}[{place}]", float(values[place]), "finite and >= 0")
        out[name] = values
    return out


def alike_windows(columns: Mapping[str, npt.ArrayLike], windows: Sequence[int]) -> dict[str, Array]:
    """Return the totals of sliding windows, taking the requests of a path as alike.

    Parameters
    ----------
    columns : mapping of str to array_like, shape (n_batches,)
        One column per field of ``BatchTotals``.
    windows : sequence of int
        Sliding windows [tokens].

    Returns
    -------
    dict of str to ndarray, shape (n_batches,)
        One ``window_column`` per total of each window.

    Notes
    -----
    Exact where the requests of a path are alike, or where each lies beyond the window or
    each within it. Otherwise the context is overstated, because the smaller of context
    and window is a concave function. A decoding request is taken to schedule one token.
    """
    c = {name: np.asarray(columns[name], dtype=np.float64) for name in TOTAL_FIELDS}
    decoding = c["decode_requests"]
    prefilling = c["requests"] - decoding
    out = {}
    for path, count, tokens in (
        ("decode", decoding, decoding),
        ("prefill", prefilling, c["tokens"] - decoding),
    ):
        some = np.maximum(count, 1.0)
        new = tokens / some
        before = np.maximum(c[f"{path}_context_tokens"] / some - new, 0.0)
        for window in windows:
            ramp = np.clip(window - before, 0.0, new)
            pairs = ramp * before + ramp * (ramp + 1.0) / 2.0 + (new - ramp) * window
            context = np.minimum(before + new, new + window - 1.0)
            out[window_column(window, f"{path}_context_tokens")] = count * context
            out[window_column(window, f"{path}_pairs")] = count * pairs
    return out
