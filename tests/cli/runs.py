"""Small runs for the command line: a table whose times follow a simple planted roofline.

The numbers are those of a plausible GPU, so that no gate has a reason to drop them; what a fit
finds in them is tested elsewhere.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CALIB = ROOT / "calib"
COLUMNS = (
    "step",
    "start_s",
    "ms",
    "decode_requests",
    "decode_context",
    "prefill_requests",
    "prefill_tokens",
    "prefill_computed",
)
RUN = """\
kind: Run
schema_version: 1
gpu: H100-SXM
model: {model}
engine: vllm
engine_version: "0.32.0"
reader: table
timing: device
pool:
  tp: 1
  max_num_seqs: 256
  max_num_batched_tokens: 8192
  block_size: 16
columns:
  step: {{column: step, unit: count}}
  start_s: {{column: start_s, unit: s}}
  duration_s: {{column: ms, unit: ms}}
  decode_requests: {{column: decode_requests, unit: count}}
  decode_context_tokens: {{column: decode_context, unit: tokens}}
  prefill_requests: {{column: prefill_requests, unit: count}}
  prefill_tokens: {{column: prefill_tokens, unit: tokens}}
  prefill_computed_tokens: {{column: prefill_computed, unit: tokens}}
"""


def rows(seed: int, steps: int, model: str = "llama-3.1-8b") -> list[dict[str, object]]:
    """Return seeded steps that span batches, contexts and prompts."""
    rng = random.Random(seed)
    weights = {"llama-3.1-8b": 15.0e9, "qwen3-8b": 15.2e9}[model]
    parameters, kv_bytes = weights / 2, 131072.0 if model == "llama-3.1-8b" else 147456.0
    start_s, made = 0.0, []
    for step in range(steps):
        decode = rng.choice((0, 1, 4, 16, 64, 128)) if step % 3 else rng.choice((1, 8, 32))
        context = decode * int(2 ** rng.uniform(5, 12))
        prefill = int(step % 4 == 0 or decode == 0)
        tokens = prefill * int(2 ** rng.uniform(5, 12))
        computed = prefill * rng.choice((0, 0, 512, 2048))
        work = tokens + decode
        hbm = (weights + kv_bytes * (context + decode + tokens + computed)) / (0.8 * 3.35e12)
        sm = 2 * parameters * work / (0.55 * 989e12)
        duration = (hbm + sm + 0.4e-3 + 4e-6 * (decode + prefill)) * rng.gauss(1.0, 0.01)
        made.append(
            {
                "step": step,
                "start_s": f"{start_s:.6f}",
                "ms": f"{1e3 * duration:.6f}",
                "decode_requests": decode,
                "decode_context": context,
                "prefill_requests": prefill,
                "prefill_tokens": tokens,
                "prefill_computed": computed,
            }
        )
        start_s += duration + 1e-3
    return made


def write_run(
    folder: Path,
    *,
    seed: int = 1,
    steps: int = 300,
    model: str = "llama-3.1-8b",
    changes: Mapping[int, Mapping[str, object]] | None = None,
    document: str = RUN,
) -> Path:
    """Write one run folder: ``steps.csv`` with its ``run.yaml``; ``changes`` edits rows."""
    folder.mkdir(parents=True)
    (folder / "run.yaml").write_text(document.format(model=model), encoding="utf-8")
    with (folder / "steps.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        for number, row in enumerate(rows(seed, steps, model)):
            writer.writerow({**row, **(changes or {}).get(number, {})})
    return folder
