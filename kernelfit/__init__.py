"""kernelfit: step logs of LLM serving engines in, a calibrated cost model out.

``kernelfit.fit(logs)`` does what the command ``kernelfit fit`` does; ``kernelfit.FittedKernel``
is what a simulator calls. Nothing is imported before one of them is asked for.
"""

from __future__ import annotations

# As type checkers know it, without the time that importing typing takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelfit.kernel import Batch, FittedKernel, RequestShape
    from kernelfit.library import FitResult, fit, read_result

__version__ = "0.1.0"
__all__ = ["Batch", "FitResult", "FittedKernel", "RequestShape", "fit", "read_result"]

_HOMES = {
    "Batch": "kernelfit.kernel",
    "FittedKernel": "kernelfit.kernel",
    "RequestShape": "kernelfit.kernel",
    "FitResult": "kernelfit.library",
    "read_result": "kernelfit.library",
}


def __getattr__(name: str) -> object:
    """Import what is asked for."""
    from importlib import import_module

    if name == "fit":
        # The package of that name, which can be called.
        return import_module("kernelfit.fit")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted([*__all__, "__version__"])
