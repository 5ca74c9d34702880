"""Run folders for the public GPU step data, so that ``ingest`` and ``fit`` can take them.

    python benchmarks/accuracy/data.py OUT

writes below OUT one folder per run: a ``run.yaml`` and a copy of the data.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "calib" / "models"

FPM_RUNS: dict[str, tuple[str, str, str]] = {
    # run: folder, model document, the model's own name
    "b300-qwen3-32b-tp1": ("qwen32_full_once_20260613_194007/tp1_ep1", "qwen3-32b", "qwen3-32b"),
    "b300-qwen3-32b-tp2": ("qwen32_full_once_20260613_194007/tp2_ep1", "qwen3-32b", "qwen3-32b"),
    "b300-qwen3-32b-tp4": ("qwen32_full_once_20260613_194007/tp4_ep1", "qwen3-32b", "qwen3-32b"),
    # Qwen3.6-35B-A3B has the layers of Qwen3.5-35B-A3B.
    "b300-qwen3.6-35b-a3b-tp1": (
        "qwen36_moe_full_once_20260613_201336/tp1_ep1",
        "qwen3.5-35b-a3b",
        "qwen3.6-35b-a3b",
    ),
    "b300-qwen3.6-35b-a3b-tp2": (
        "qwen36_moe_full_once_20260613_201336/tp2_ep1",
        "qwen3.5-35b-a3b",
        "qwen3.6-35b-a3b",
    ),
    "b300-qwen3.6-35b-a3b-tp4-ep4": (
        "qwen36_moe_full_once_20260613_201336/tp4_ep4",
        "qwen3.5-35b-a3b",
        "qwen3.6-35b-a3b",
    ),
}
FPM_FILES = ("fpm_metrics_detail.csv", "vllm_metadata.json", "effective_vllm_config.json")

OTEL_RUNS: dict[str, tuple[str, str, int]] = {
    # run: experiment, model, tensor-parallel width
    "h100-llama-2-70b-tp4": ("20260217-202857-llama-2-70b-tp4-general", "llama-2-70b", 4),
    "h100-codellama-34b-tp2": ("20260218-150304-codellama-34b-tp2-general", "codellama-34b", 2),
}

SPLITWISE_CHIPS = {"a100": ("a100-80gb", "a100-sxm-80gb"), "h100": ("h100-80gb", "h100-sxm")}
SPLITWISE_WIDTHS = {"a100": (2, 4, 8), "h100": (2, 4)}
"""No H100 row has width 8; ``h100-80gb-pcap`` is computed from the others and left out."""

TABLES: dict[str, dict[str, object]] = {
    "prompt": {
        "timing": "step",
        "duration_s": "{column: prompt_time, unit: ms}",
        "uniform": {"scheduled": "prompt_size", "computed": "0", "cached": "0"},
    },
    # A token's mean time is the time at the mean context: the cost is linear in it.
    # From one token to the next, with what the host does between.
    "token": {
        "timing": "step",
        "duration_s": "{column: token_time, unit: ms}",
        "uniform": {
            "scheduled": "1",
            "computed": "[prompt_size, {column: token_size, times: 0.5}]",
        },
    },
}

CONFIGS: dict[str, dict[str, object]] = {
    # The shapes that the models' papers and config files state.
    "llama-2-70b": {
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "torch_dtype": "float16",
    },
    "codellama-34b": {
        "hidden_size": 8192,
        "intermediate_size": 22016,
        "num_hidden_layers": 48,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "vocab_size": 32000,
        "max_position_embeddings": 16384,
        "torch_dtype": "bfloat16",
    },
}


def _model(name: str, folder: Path) -> str:
    """Return what ``model`` says: a document's name, or a config that is written here."""
    if (MODELS / f"{name}.yaml").is_file():
        return name
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-05,
        "tie_word_embeddings": False,
        **CONFIGS[name],
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return "config.json"


def _document(folder: Path, facts: Mapping[str, object], rest: str = "") -> None:
    lines = ["kind: Run", "schema_version: 1", *(f"{k}: {v}" for k, v in facts.items())]
    (folder / "run.yaml").write_text("\n".join(lines) + "\n" + rest)


def _folder(out: Path, name: str) -> Path:
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _copy(folder: Path, target: Path) -> None:
    # A copy: an ingestion takes a file once, by whatever names it is linked.
    shutil.copyfile(target, folder / target.name)


def _fpm(shared: Path, out: Path) -> None:
    for name, (part, model, own_name) in FPM_RUNS.items():
        folder = _folder(out, name)
        data = shared / "data" / "nvidia_fpm_golden" / f"fpm_upfront_{part}_past4096"
        for file in FPM_FILES:
            _copy(folder, data / file)
        # The engine's settings are read from its own documents, which stand beside the CSV.
        facts = {"gpu": "b300", "model": model, "model_name": own_name}
        _document(folder, {**facts, "engine": "vllm", "reader": "dynamo-fpm"})


def _otel(shared: Path, out: Path) -> None:
    table = pq.read_table(shared / "data" / "inference_sim_stepml" / "enriched_steps.parquet")
    for name, (experiment, model, width) in OTEL_RUNS.items():
        folder = _folder(out, name)
        rows = table.filter(pc.equal(table["experiment_id"], experiment))
        pq.write_table(rows, folder / "steps.parquet")
        facts = {
            "gpu": "h100-sxm",
            "model": _model(model, folder),
            "model_name": model,
            "engine": "vllm",
            "engine_version": '"0.15.1"',
            "reader": "otel-steps",
        }
        _document(folder, facts, f"pool:\n  tp: {width}\n  block_size: 16\n")


def _splitwise(shared: Path, out: Path) -> None:
    data = shared / "data" / "splitwise_sim" / "perf_model.csv"
    for chip, (hardware, gpu) in SPLITWISE_CHIPS.items():
        for width in SPLITWISE_WIDTHS[chip]:
            for table, said in TABLES.items():
                folder = _folder(out, f"{chip}-llama-2-70b-tp{width}-{table}")
                _copy(folder, data)
                facts = {
                    "gpu": gpu,
                    "model": _model("llama-2-70b", folder),
                    "model_name": "llama-2-70b",
                    "engine": "vllm",
                    "reader": "table",
                    "timing": said["timing"],
                }
                uniform = said["uniform"]
                assert isinstance(uniform, dict)
                amounts = "".join(f"  {k}: {v}\n" for k, v in uniform.items())
                rest = (
                    f"pool:\n  tp: {width}\n  enforce_eager: true\n  async_scheduling: false\n"
                    "  disable_custom_all_reduce: true\n"
                    f"columns:\n  duration_s: {said['duration_s']}\n"
                    f"where:\n  model: llama2-70b\n  hardware: {hardware}\n"
                    f"  tensor_parallel: {width}\n"
                    "uniform:\n  requests: batch_size\n  prompt_len: prompt_size\n" + amounts
                )
                _document(folder, facts, rest)


def prepare(shared: Path, out: Path) -> Path:
    """Write a run folder for each run of the public data.

    Parameters
    ----------
    shared : pathlib.Path
        Folder with ``data``.
    out : pathlib.Path
        Where the run folders go; outside the repository.

    Returns
    -------
    pathlib.Path
        ``out``, which ``kernelfit ingest`` takes.
    """
    _fpm(shared, out)
    _otel(shared, out)
    _splitwise(shared, out)
    return out


if __name__ == "__main__":
    print(prepare(ROOT.parent / "shared", Path(sys.argv[1])))
