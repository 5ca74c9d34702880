"""Run in the engine's own Python: ``vllm`` itself, whichever package it came in.

The CPU build is distributed under a name of its own, and ``vllm serve`` asks for the version of
``vllm``. By the end of that version the engine tells that it was built for a CPU.
"""

from __future__ import annotations

import importlib.metadata

_version = importlib.metadata.version


def version(name: str) -> str:
    """Return a package's version; that of the CPU build in vllm's place."""
    try:
        return _version(name)
    except importlib.metadata.PackageNotFoundError:
        return _version(f"{name}-cpu") + "+cpu"


importlib.metadata.version = version

if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main

    main()
