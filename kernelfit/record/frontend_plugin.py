"""Where the front end's hooks go, by engine version.

Each is installed by itself where the engine has the class, so that another version costs one
part of an admission and never the recording.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from kernelfit.record.frontend import FrontEnd
from kernelfit.record.frontend_hooks import (
    TOKENIZE,
    wrap_accept,
    wrap_engine,
    wrap_input,
    wrap_output,
    wrap_rendering,
    wrap_server,
    wrap_stats,
    wrap_tokenizing,
)


def _renderer(front: FrontEnd, renderer: Any) -> None:
    names = (
        "render_cmpl_async",
        "render_chat_async",
        "tokenize_prompt_async",
        "process_for_engine_async",
    )
    wrap_rendering(front, renderer, tuple(n for n in names if n in vars(renderer)))
    wrap_tokenizing(front, renderer)


def _hf_renderer(front: FrontEnd, renderer: Any) -> None:
    if "render_messages_async" in vars(renderer):
        wrap_rendering(front, renderer, ("render_messages_async",))
    if TOKENIZE in vars(renderer):
        wrap_tokenizing(front, renderer)


HOOKS: tuple[tuple[tuple[tuple[str, str], ...], Callable[[FrontEnd, Any], None]], ...] = (
    (
        (
            ("vllm.v1.engine.input_processor", "InputProcessor"),
            ("vllm.v1.engine.processor", "Processor"),
        ),
        wrap_input,
    ),
    ((("vllm.v1.engine.output_processor", "OutputProcessor"),), wrap_output),
    ((("vllm.v1.engine.async_llm", "AsyncLLM"),), wrap_engine),
    ((("vllm.v1.engine.core", "EngineCore"),), wrap_accept),
    ((("vllm.renderers.base", "BaseRenderer"),), _renderer),
    ((("vllm.renderers.hf", "HfRenderer"),), _hf_renderer),
    ((("vllm.v1.metrics.loggers", "StatLoggerManager"),), wrap_stats),
    ((("uvicorn.config", "Config"),), wrap_server),
)
"""Where each hook's class may be, newest first, and the hook."""


def install(front: FrontEnd) -> tuple[str, ...]:
    """Install every hook whose class the engine has.

    Parameters
    ----------
    front : FrontEnd
        Where rows go.

    Returns
    -------
    tuple of str
        Names of classes that were not found or are of another shape.
    """
    missing = []
    for places, hook in HOOKS:
        for module, name in places:
            try:
                hook(front, getattr(importlib.import_module(module), name))
            except Exception:  # noqa: BLE001 - the next place, or one part less
                continue
            break
        else:
            missing.append(places[0][1])
    return tuple(missing)
