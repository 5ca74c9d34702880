"""What a target's format cannot hold at all."""

from __future__ import annotations

from kernelfit.kernel.errors import KernelError


class NotExpressible(KernelError):
    """A kernel that a target cannot price truthfully, with the reason.

    Parameters
    ----------
    target : str
        The target.
    field : str
        What of the deployment it is about.
    got : object
        Its value.
    reason : str
        Why the target cannot hold it, and what it could.
    """

    def __init__(self, target: str, field: str, got: object, reason: str) -> None:
        super().__init__(f"{target} cannot express {field}={got!r}: {reason}")
        self.target = target
        self.field = field
        self.got = got
        self.reason = reason
