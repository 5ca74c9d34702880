"""AIConfigurator's own step times with given system files.

    AIC_PYTHON benchmarks/exports/aiconfigurator_side.py < asked.json

Run by a Python that has ``aiconfigurator-core``; it imports nothing of this project. Standard
input holds ``{model, tp, systems: [{name, text, mode}], steps: [[kind, ...]]}``; the last line
of standard output is ``{version, shipped, systems: [[seconds, ...], ...]}``.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any


def _root(folder: Path, name: str, text: str | None) -> str:
    import aiconfigurator_core

    systems = Path(aiconfigurator_core.__file__).parent / "systems"
    folder.mkdir()
    for entry in systems.iterdir():
        if text is None or entry.name != f"{name}.yaml":
            (folder / entry.name).symlink_to(entry)
    if text is not None:
        (folder / f"{name}.yaml").write_text(text)
    return str(folder)


def _engine(model_path: str, system: str, tp: int, mode: str, root: str) -> Any:
    from aiconfigurator_core.sdk import engine, perf_database
    from aiconfigurator_core.sdk.config_builders import apply_nextn, build_model_config
    from aiconfigurator_core.sdk.models import get_model

    config = build_model_config(
        tp_size=tp, pp_size=1, attention_dp_size=1, moe_tp_size=1, moe_ep_size=1
    )
    apply_nextn(config, 0)
    model = get_model(model_path, config, "vllm")
    release = engine._literal_backend_version(  # noqa: SLF001
        system, "vllm", None, root, None
    )
    database = perf_database.get_database_view(
        system, "vllm", release, systems_paths=root, database_mode=mode
    )
    spec = engine.build_engine_spec_json(
        model,
        model_path=model_path,
        system=system,
        backend="vllm",
        backend_version=release,
        kv_block_size=None,
        systems_path=root,
        nextn=0,
        database=database,
    )
    packed = engine.aiconfigurator_core.engine_spec_bincode_from_json(spec)
    return engine.EngineHandle(bytes(packed), systems_path=root)


def _step_s(handle: Any, step: list[Any]) -> float:
    kind, *counts = step
    if kind == "decode":
        return float(handle.decode_step_latency(*counts)) * 1e-3
    if kind == "prefill":
        return float(handle.predict_prefill_latency(*counts)) * 1e-3
    return float(handle.mixed_step_latency(*counts)) * 1e-3


def main() -> None:
    """Price every step under every system file."""
    logging.disable(logging.WARNING)
    asked = json.load(sys.stdin)
    out = []
    with tempfile.TemporaryDirectory() as folder:
        for number, system in enumerate(asked["systems"]):
            root = _root(Path(folder) / str(number), system["name"], system["text"])
            handle = _engine(asked["model"], system["name"], asked["tp"], system["mode"], root)
            out.append([_step_s(handle, step) for step in asked["steps"]])
    print(json.dumps({"version": version("aiconfigurator-core"), "systems": out}))


if __name__ == "__main__":
    main()
