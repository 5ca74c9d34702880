"""The entry point that vLLM loads in each of its processes.

Asleep unless ``KERNELFIT_TRACE_DIR`` names a folder. vLLM loads its general
plug-ins in the API server, inside the engine core and in each worker, so one
registration reaches every process; it may be called more than once.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelfit.record.frontend import FrontEnd
from kernelfit.record.frontend_plugin import install
from kernelfit.record.hooks import (
    Recorder,
    wrap_core,
    wrap_executor,
    wrap_scheduler,
    wrap_worker,
)

EXECUTORS = (
    # Up to vLLM 0.10 the base class runs the model for the executor of one process.
    ("vllm.v1.executor.abstract", "Executor"),
    ("vllm.v1.executor.uniproc_executor", "UniProcExecutor"),
    ("vllm.v1.executor.multiproc_executor", "MultiprocExecutor"),
    ("vllm.v1.executor.ray_distributed_executor", "RayDistributedExecutor"),
    ("vllm.v1.executor.ray_executor", "RayDistributedExecutor"),
    ("vllm.v1.executor.ray_executor_v2", "RayExecutorV2"),
)
"""Where versions keep their executors."""

CORE = ("vllm.v1.engine.core", "EngineCore")
_MARK = "_kernelfit_recorder"


def _found(place: tuple[str, str], *, load: bool) -> Any:
    """Return a class of the engine's; None where this version, or this process, has none."""
    module: ModuleType | None
    try:
        module = importlib.import_module(place[0]) if load else sys.modules.get(place[0])
    except ImportError:
        return None
    return getattr(module, place[1], None)


def register() -> None:
    """Install the hooks in this process, once, when recording is asked for.

    Notes
    -----
    Hook names hold for vLLM 0.10 to 0.33 (compared in the released sources);
    0.32.0 is the version that the project records with.
    """
    folder = os.environ.get("KERNELFIT_TRACE_DIR")
    if not folder:
        return
    try:
        vllm = importlib.import_module("vllm")
        if getattr(vllm, _MARK, None) is not None:
            return
        # All is found before anything is wrapped: a half-installed recorder would wrap twice
        # when it is registered again.
        scheduler = importlib.import_module("vllm.v1.core.sched.scheduler").Scheduler
        worker = importlib.import_module("vllm.v1.worker.gpu_worker").Worker
        executors = []
        for number, place in enumerate(EXECUTORS):
            # Ray is imported by those who use it, before this.
            found = _found(place, load=number < 3)
            if found is not None and "execute_model" in vars(found) and found not in executors:
                executors.append(found)
        core = _found(CORE, load=True)
        recorder = Recorder(Path(folder), str(getattr(vllm, "__version__", "unknown")))
        wrap_scheduler(recorder, scheduler)
        for executor in executors:
            wrap_executor(recorder, executor)
        if core is not None:
            wrap_core(recorder, core)
        wrap_worker(recorder, worker)
        front = FrontEnd(recorder)
        front.missing = install(front)
        setattr(vllm, _MARK, recorder)
    except Exception as error:  # noqa: BLE001 - the engine runs on without a recorder
        print(f"kernelfit: recording not installed ({error!r})", file=sys.stderr, flush=True)
