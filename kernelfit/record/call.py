"""One request on its way through the front end, and the hash that names it."""

from __future__ import annotations

import hashlib
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

PARTS = ("http_ns", "render_ns", "tokenize_ns", "process_ns", "send_ns")
"""Parts of an admission, in the order in which a request goes through them."""


def hashed(request_id: str) -> str:
    """Return a request id that joins rows and tells nothing else.

    Parameters
    ----------
    request_id : str
        The engine's or the client's id.

    Returns
    -------
    str
        Twelve hexadecimal digits.
    """
    return hashlib.blake2b(request_id.encode(), digest_size=6).hexdigest()


@dataclass(slots=True)
class Call:
    """One request on its way through the front end.

    Attributes
    ----------
    arrival_ns : int
        When the front end learnt of it [ns].
    client : str or None
        Hash of the client's own id.
    since_ns : int or None
        End of the last part that was timed, where the next one begins [ns].
    inner_ns : int
        Work of other parts within the stretch that the server's task is in [ns].
    rendered, admitted : bool
        Whether its prompt is known, and whether the engine core has it.
    parts : dict
        Own work by part [ns].
    adding : bool
        Whether it is being handed to the engine core now.
    processed : tuple of (int, bool, str) or None
        Prompt length [tokens], whether it was tokenised here, hashed id.
    done : list of dict
        Rows that wait for the response to be closed.
    """

    arrival_ns: int
    client: str | None = None
    since_ns: int | None = None
    inner_ns: int = 0
    rendered: bool = False
    admitted: bool = False
    parts: dict[str, int] = field(default_factory=dict)
    adding: bool = False
    processed: tuple[int, bool, str] | None = None
    done: list[dict[str, Any]] = field(default_factory=list)

    def add(self, part: str, spent_ns: int) -> None:
        """Add own work to a part.

        Parameters
        ----------
        part : str
            One of ``PARTS``.
        spent_ns : int
            The work [ns].
        """
        self.parts[part] = self.parts.get(part, 0) + spent_ns


CALL: ContextVar[Call | None] = ContextVar("kernelfit_call", default=None)
