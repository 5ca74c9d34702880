"""Gates, design matrix, solver, identifiability and uncertainty.

The package can be called: ``kernelfit.fit(logs)`` is :func:`kernelfit.library.fit`, the main job
as a function. A plain function of that name would be hidden as soon as anything imports this
package, since Python then sets it as an attribute of ``kernelfit``.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Called(ModuleType):
    """A package that does the main job when it is called."""

    def __call__(self, *logs: object, **options: object) -> Any:
        """Fit step logs; see :func:`kernelfit.library.fit`."""
        # By name: the library stands above this package, which must not lean on it.
        from importlib import import_module

        return import_module("kernelfit.library").fit(*logs, **options)


sys.modules[__name__].__class__ = _Called
