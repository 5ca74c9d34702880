"""The typed errors of the pure core: a bad argument, and a refused configuration."""

from __future__ import annotations


class KernelError(ValueError):
    """Base of every error that the pure core raises."""


class InvalidArgument(KernelError):
    """An argument outside the domain of a method.

    Parameters
    ----------
    field : str
        The argument or attribute at fault.
    got : object
        Its value.
    allowed : str
        What is allowed instead, in words.
    """

    def __init__(self, field: str, got: object, allowed: str) -> None:
        super().__init__(f"{field}: got {got!r}; allowed {allowed}")
        self.field = field
        self.got = got
        self.allowed = allowed


class Refusal(KernelError):
    """A configuration that cannot be priced truthfully, with the reason.

    Parameters
    ----------
    field : str
        The setting that cannot be priced.
    got : object
        Its value.
    reason : str
        Why it is refused and what would be accepted.
    """

    def __init__(self, field: str, got: object, reason: str) -> None:
        super().__init__(f"{field}={got!r} cannot be priced: {reason}")
        self.field = field
        self.got = got
        self.reason = reason
