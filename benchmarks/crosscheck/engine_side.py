"""What vLLM's own performance metrics count for given configs and batches.

    VLLM_PYTHON benchmarks/crosscheck/engine_side.py < cases.json > log

Run by a Python that has vLLM; it imports nothing of this project. Standard input holds
``{configs: {name: config.json}, cases: [{model, tp, ep, requests}]}``, a request being
``[tokens, context, is_prefill]``. The last line of standard output is a JSON list with,
per case, vLLM's breakdowns of FLOP and of bytes read and written per GPU. The
``ModelConfig`` is vLLM's own; the rest of ``VllmConfig`` (widths, cache type, name of
the quantisation) is stood in for, because the real one asks for the GPUs.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def _model(config: dict[str, Any]) -> Any:
    from vllm.config import ModelConfig

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        return ModelConfig(model=folder, skip_tokenizer_init=True, dtype="bfloat16")


def _metrics(config: dict[str, Any], model: Any, case: dict[str, Any]) -> Any:
    from vllm.v1.metrics.perf import ModelMetrics

    name = (config.get("quantization_config") or {}).get("quant_method")
    return ModelMetrics(
        SimpleNamespace(
            model_config=model,
            cache_config=SimpleNamespace(cache_dtype="auto", sliding_window=None),
            parallel_config=SimpleNamespace(
                tensor_parallel_size=case["tp"],
                pipeline_parallel_size=1,
                data_parallel_size=1,
                enable_expert_parallel=case["ep"],
            ),
            quant_config=SimpleNamespace(get_name=lambda: name) if name else None,
        )
    )


def main() -> None:
    """Count every case."""
    from vllm.v1.metrics.perf import ExecutionContext

    asked = json.load(sys.stdin)
    models = {name: _model(config) for name, config in asked["configs"].items()}
    out = []
    for case in asked["cases"]:
        metrics = _metrics(asked["configs"][case["model"]], models[case["model"]], case)
        context = ExecutionContext()
        for tokens, length, prefill in case["requests"]:
            context.add(tokens, length, prefill)
        out.append(
            {
                "flop": metrics.get_num_flops_breakdown(context),
                "read": metrics.get_read_bytes_breakdown(context),
                "write": metrics.get_write_bytes_breakdown(context),
            }
        )
    print("\n" + json.dumps(out))


if __name__ == "__main__":
    main()
