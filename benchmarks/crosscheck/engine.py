"""The kernel's work counts beside those of vLLM's own performance metrics.

    python -m benchmarks.crosscheck.engine CONFIGS [--vllm PYTHON] [--out COUNTS]

``CONFIGS`` is a folder of ``owner--model.config.json`` files. Every difference is told
apart into named causes (``causes.py``), each with its own formula; what the causes leave
over is printed as well and is zero.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.crosscheck.causes import causes
from kernelfit.documents.chips import find_chip
from kernelfit.documents.models import find_model
from kernelfit.kernel import BatchTotals, Chip, Model, Pool, RequestShape
from kernelfit.kernel.plan import Plan
from kernelfit.kernel.stage import HEAD_STAGE, Term

ROOT = Path(__file__).resolve().parents[2]
SIDE = Path(__file__).with_name("engine_side.py")

MODELS: dict[str, str] = {
    "Qwen3-8B": "Qwen--Qwen3-8B",
    "Qwen3-8B in fp8": "Qwen--Qwen3-8B",
    "Qwen3-32B": "Qwen--Qwen3-32B",
    "Llama-3.1-8B": "meta-llama--Meta-Llama-3.1-8B",
    "Mixtral-8x7B": "mistralai--Mixtral-8x7B-v0.1",
    "Qwen3-30B-A3B": "Qwen--Qwen3-30B-A3B",
    "DeepSeek-V3": "deepseek-ai--DeepSeek-V3",
    "gpt-oss-120b": "openai--gpt-oss-120b",
}
"""Model documents, and the configs they restate."""

FP8 = " in fp8"
"""Ends the name of a model whose linear layers are taken as quantised while loading."""

KINDS: dict[str, str] = {
    "gemm_eff": "gemm",
    "recurrent_eff": "gemm",
    "attention_eff": "attention",
    "hbm_weight_eff": "weights",
    "hbm_expert_eff": "weights",
    "hbm_kv_eff": "kv",
    "hbm_activation_eff": "activations",
}
"""What the work that a coefficient prices is."""

WIDTHS = (1, 2, 4, 8)

Requests = tuple[tuple[int, int, bool], ...]
"""``(tokens scheduled, tokens before them, whether it is a prompt)`` of each request."""

BATCHES: dict[str, Requests] = {
    "decode 1 at 4096": ((1, 4095, False),),
    "decode 32 at 1024": ((1, 1023, False),) * 32,
    "decode 256 at 8192": ((1, 8191, False),) * 256,
    "prefill 2048": ((2048, 0, True),),
    "chunk 512 after 4096": ((512, 4096, True),),
    "mixed": (*((1, 2047, False),) * 32, (512, 0, True)),
}

COMPONENTS = (
    "flop.projections",
    "flop.attention",
    "flop.ffn",
    "flop.head",
    "bytes.weights.attention",
    "bytes.weights.ffn",
    "bytes.weights.head",
    "bytes.kv",
)
"""What is compared to the last unit; activations are compared by their ratio."""


@dataclass(frozen=True, slots=True)
class Case:
    """One model, width and batch."""

    model: str
    tp: int
    ep: bool
    batch: str

    @property
    def requests(self) -> Requests:
        """The batch's requests."""
        return BATCHES[self.batch]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both counts of one case, and what explains the difference."""

    case: Case
    ours: dict[str, float]
    theirs: dict[str, float]
    causes: dict[str, dict[str, float]]

    def left_over(self, component: str) -> float:
        """Return the share of our count that no cause explains."""
        explained = self.theirs[component] + sum(self.causes.get(component, {}).values())
        return (self.ours[component] - explained) / self.ours[component]


def cases() -> tuple[Case, ...]:
    """Return every case: dense and sharded experts at all widths, spread ones at 4 and 8."""
    out = [Case(m, tp, False, b) for m in MODELS for tp in WIDTHS for b in BATCHES]
    mixtures = ("Mixtral-8x7B", "Qwen3-30B-A3B", "DeepSeek-V3", "gpt-oss-120b")
    out += [Case(m, tp, True, b) for m in mixtures for tp in (4, 8) for b in BATCHES]
    return tuple(out)


def configs_of(configs: Path) -> dict[str, dict[str, Any]]:
    """Read the configs of all models."""
    out = {}
    for name, file in MODELS.items():
        config = json.loads((configs / f"{file}.config.json").read_text())
        if name.endswith(FP8):
            config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic"}
        out[name] = config
    return out


def model_of(name: str) -> Model:
    """Return a model's document, quantised where the name says so."""
    model = find_model(name.removesuffix(FP8), ROOT / "calib" / "models")
    return replace(model, weight_dtype="fp8") if name.endswith(FP8) else model


def engine_counts(configs: Path, python: str, asked: tuple[Case, ...]) -> list[dict[str, Any]]:
    """Ask vLLM for its counts of every case."""
    question = {
        "configs": configs_of(configs),
        "cases": [
            {
                "model": c.model,
                "tp": c.tp,
                "ep": c.ep,
                "requests": [(s, before + s, prompt) for s, before, prompt in c.requests],
            }
            for c in asked
        ],
    }
    done = subprocess.run(
        [python, str(SIDE)],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{python} {SIDE.name} failed:\n{done.stderr[-2000:]}")
    answer: list[dict[str, Any]] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def their_parts(counts: dict[str, dict[str, float]]) -> dict[str, float]:
    """Gather vLLM's breakdown into the compared components [FLOP or bytes]."""
    flop, read, write = counts["flop"], counts["read"], counts["write"]

    def total(of: dict[str, float], prefix: tuple[str, ...], suffix: tuple[str, ...]) -> float:
        return float(sum(v for k, v in of.items() if k.startswith(prefix) and k.endswith(suffix)))

    attention = ("attn.", "mla_attn.")
    weights = ("weight", "weights")
    out = {
        "flop.projections": total(flop, attention, ("proj",)),
        "flop.attention": total(flop, attention, ("attn_qk", "attn_av")),
        "flop.ffn": total(flop, ("ffn.",), ("",)),
        "flop.head": total(flop, ("unembed.",), ("",)),
        "bytes.weights.attention": total(read, attention, weights),
        "bytes.weights.ffn": total(read, ("ffn.",), weights),
        "bytes.weights.head": total(read, ("unembed.",), weights),
        # Attention's input holds queries, keys and values; causes.py takes the queries out.
        "bytes.kv": total(read, attention, ("attn_input",)) + total(write, attention, ("cache",)),
    }
    everything = sum(read.values()) + sum(write.values())
    out["bytes.activations"] = everything - sum(v for k, v in out.items() if k[:5] == "bytes")
    return out


def _amounts(terms: Iterable[Term], row: tuple[float, ...]) -> dict[str, float]:
    """Sum the work of terms by what it is: multiplications, attention, and bytes."""
    out = dict.fromkeys(("gemm", "attention", "weights", "kv", "activations"), 0.0)
    for term in terms:
        for prefix, kind in KINDS.items():
            if term.coefficient.startswith(prefix):
                out[kind] += term.amount * row[term.function]
    return out


def our_parts(model: Model, chip: Chip, case: Case) -> dict[str, float]:
    """Sum the kernel's own terms into the compared components [FLOP or bytes].

    Attention is what a model without feed-forward parts is charged.
    """
    pool = Pool(
        tp=case.tp,
        enable_expert_parallel=case.ep,
        enforce_eager=True,
        async_scheduling=False,
        cache_dtype="auto",
    )
    bare = replace(model, layers=tuple(replace(k, mlp=None, experts=None) for k in model.layers))
    shapes = tuple(
        RequestShape(s, before, before + s if prompt else before, 0)
        for s, before, prompt in case.requests
    )

    def amounts(of: Model, asked: Pool, head: bool) -> dict[str, float]:
        plan = Plan.of(of, chip, asked, "0.32.0")
        row = plan.basis.row(BatchTotals.of(shapes, 1, plan.basis.windows))
        return _amounts((t for t in plan.terms if (t.stage == HEAD_STAGE) is head), row)

    layers, head = amounts(model, pool, False), amounts(model, pool, True)
    attention = amounts(bare, replace(pool, enable_expert_parallel=False), False)
    return {
        "flop.projections": attention["gemm"],
        "flop.attention": attention["attention"],
        "flop.ffn": layers["gemm"] - attention["gemm"],
        "flop.head": head["gemm"],
        "bytes.weights.attention": attention["weights"],
        "bytes.weights.ffn": layers["weights"] - attention["weights"],
        "bytes.weights.head": head["weights"],
        "bytes.kv": attention["kv"],
        "bytes.activations": layers["activations"] + head["activations"],
    }


def compare(configs: Path, answers: list[dict[str, Any]]) -> tuple[Comparison, ...]:
    """Put both counts of every case side by side."""
    chip = find_chip("h100", ROOT / "calib" / "chips")
    models = {name: model_of(name) for name in MODELS}
    config = configs_of(configs)
    out = []
    for case, counts in zip(cases(), answers, strict=True):
        ours = our_parts(models[case.model], chip, case)
        why = causes(config[case.model], case.tp, case.ep, case.requests)
        out.append(Comparison(case, ours, their_parts(counts), why))
    return tuple(out)


def table(found: tuple[Comparison, ...]) -> str:
    """Return the ratios ours / theirs of every case, the causes and what they leave over."""
    lines = []
    for c in found:
        ratios = [
            f"{c.ours[name] / c.theirs[name]:8.4f}" if c.theirs[name] else "       -"
            for name in (*COMPONENTS, "bytes.activations")
        ]
        spread = " EP" if c.case.ep else ""
        label = f"{c.case.model} TP{c.case.tp}{spread}, {c.case.batch}"
        lines.append(f"{label:45s}" + " ".join(ratios))
        for name, parts in c.causes.items():
            shares = ", ".join(
                f"{why} {value / c.ours[name]:+.4f}" for why, value in parts.items() if value
            )
            if shares:
                lines.append(f"    {name}: {shares}")
    worst = max(abs(c.left_over(name)) for c in found for name in COMPONENTS)
    lines.append(f"largest share of a count that no cause explains: {worst:.2e}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("configs", type=Path)
    parser.add_argument("--vllm", default=sys.executable, help="a Python that has vLLM")
    parser.add_argument("--counts", type=Path, help="keep vLLM's counts here, and reuse them")
    asked = parser.parse_args(arguments)
    if asked.counts is not None and asked.counts.is_file():
        answers = json.loads(asked.counts.read_text())
    else:
        answers = engine_counts(asked.configs, asked.vllm, cases())
        if asked.counts is not None:
            asked.counts.write_text(json.dumps(answers))
    print(table(compare(asked.configs, answers)))


if __name__ == "__main__":
    main()
