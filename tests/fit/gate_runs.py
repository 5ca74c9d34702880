"""Runs of published measurements for the tests of the gates, read from their own files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from kernelfit.documents.chips import load_chip
from kernelfit.documents.models import load_model
from kernelfit.fit.steps import RunSteps, make_run
from kernelfit.kernel import Attention, Chip, LayerKind, Mlp, Model, Pool

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
B300 = DATA / "nvidia_fpm_golden" / "fpm_upfront_qwen32_full_once_20260613_194007"
H100 = DATA / "inference_sim_stepml" / "enriched_steps.parquet"
SPLITWISE = DATA / "splitwise_sim" / "perf_model.csv"


def needs(path: Path) -> pytest.MarkDecorator:
    """Skip where measured data are not beside the repository."""
    return pytest.mark.skipif(
        not path.exists(), reason=f"shared/data/{path.relative_to(DATA)} is absent"
    )


def chip(name: str) -> Chip:
    """A chip of the project's own documents."""
    return load_chip(ROOT / "calib" / "chips" / f"{name}.yaml")


def llama_70b(name: str = "llama-2-70b") -> Model:
    """Llama-2-70B: figures of its published config.json."""
    kind = LayerKind("dense", 80, Attention("full", 64, 8, 128), Mlp(28672))
    return Model(name, 8192, 32000, (kind,), "bf16", "bf16", tied_head=False)


def codellama_34b() -> Model:
    """CodeLlama-34B: figures of its published config.json."""
    kind = LayerKind("dense", 48, Attention("full", 64, 8, 128), Mlp(22016))
    return Model("codellama-34b", 8192, 32000, (kind,), "bf16", "bf16", tied_head=False)


def _columns(path: Path) -> dict[str, np.ndarray]:
    table = pc.read_csv(path) if path.suffix == ".csv" else pq.read_table(path)
    return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}


def _totals(
    decode: np.ndarray,
    decode_kv: np.ndarray,
    prefill: np.ndarray,
    tokens: np.ndarray,
    prefill_kv: np.ndarray,
) -> dict[str, np.ndarray]:
    share = np.maximum(prefill, 1)
    return {
        "requests": decode + prefill,
        "tokens": decode + tokens,
        "decode_requests": decode,
        "decode_context_tokens": decode_kv + decode,
        "decode_pairs": decode_kv + decode,
        "prefill_context_tokens": prefill_kv + tokens,
        "prefill_pairs": tokens * prefill_kv / share + tokens * (tokens / share + 1) / 2,
    }


def b300(tp: int) -> RunSteps:
    """Qwen3-32B on B300; decode rows of the sweep are marked as sharing their prefix."""
    raw = _columns(B300 / f"tp{tp}_ep1_past4096" / "fpm_metrics_detail.csv")
    columns = _totals(
        *(
            raw[name].astype(float)
            for name in (
                "num_decode_requests",
                "sum_decode_kv_tokens",
                "num_prefill_requests",
                "sum_prefill_tokens",
                "sum_prefill_kv_tokens",
            )
        )
    )
    columns["duration_s"] = raw["latency_ms"] * 1e-3
    columns["step"] = raw["counter_id"]
    shared = (raw["workload_segment"] == "sweep") & (raw["num_decode_requests"] > 1)
    pool = Pool(tp=tp, max_num_seqs=128, max_num_batched_tokens=8192)
    return make_run(
        f"qwen3-32b-tp{tp}",
        load_model(ROOT / "calib" / "models" / "qwen3-32b.yaml"),
        chip("b300"),
        pool,
        "0.20.1",
        "step",
        columns,
        marks=[("shared_prefix",) if s else () for s in shared],
    )


def h100_steps() -> Iterator[RunSteps]:
    """The H100 step traces with the durations as printed, one run per experiment."""
    raw = _columns(H100)
    for name in dict.fromkeys(raw["experiment_id"]):
        here = {key: values[raw["experiment_id"] == name] for key, values in raw.items()}
        order = np.argsort(here["step.id"], kind="stable")
        here = {key: values[order] for key, values in here.items()}
        tp = int(here["tp"][0])
        decode = here["batch.num_decode_reqs"].astype(float)
        used = here["kv.blocks_total_gpu"] - here["kv.blocks_free_gpu"]
        columns = _totals(
            decode,
            16.0 * used,
            here["batch.num_prefill_reqs"].astype(float),
            here["batch.prefill_tokens"].astype(float),
            np.zeros(decode.size),
        )
        columns["duration_s"] = here["step.duration_us"] * 1e-6
        columns["start_s"] = (here["step.ts_start_ns"] - here["step.ts_start_ns"][0]) * 1e-9
        columns["step"] = here["step.id"]
        model = llama_70b() if tp == 4 else codellama_34b()
        pool = Pool(tp=tp, max_num_seqs=128, max_num_batched_tokens=2048)
        yield make_run(str(name), model, chip("h100-sxm"), pool, "0.15.1", "step", columns)


def splitwise(what: str) -> tuple[RunSteps, ...]:
    """Llama-2-70B ``prompt`` or ``token`` times, one run per machine and width."""
    raw = _columns(SPLITWISE)
    runs = []
    for hardware in dict.fromkeys(raw["hardware"]):
        for tp in (2, 4, 8):
            chosen = (raw["hardware"] == hardware) & (raw["tensor_parallel"] == tp)
            if not chosen.any():
                continue
            here = {key: values[chosen] for key, values in raw.items()}
            batch, prompt = here["batch_size"].astype(float), here["prompt_size"].astype(float)
            none = np.zeros(batch.size)
            context = batch * (prompt + here["token_size"] / 2.0)
            if what == "prompt":
                columns = _totals(none, none, batch, batch * prompt, none)
            else:
                columns = _totals(batch, context, none, none, none)
            columns["duration_s"] = here[f"{what}_time"] * 1e-3
            on = chip("a100-sxm-80gb" if hardware.startswith("a100") else "h100-sxm")
            pool = Pool(tp=tp, max_num_seqs=128, max_num_batched_tokens=65536)
            runs.append(
                make_run(
                    f"{hardware}-tp{tp}-{what}", llama_70b(), on, pool, "0.2.0", "step", columns
                )
            )
    return tuple(runs)
