"""AIConfigurator's own step times with the exported system files, beside the kernel's.

    python -m benchmarks.exports.aiconfigurator --python PYTHON

``PYTHON`` has ``aiconfigurator-core``. Under the modes with tables only elementwise work
follows the file, so the rest of the difference is that of NVIDIA's operator tables to the
kernel. Under ``SOL`` the whole step follows the second file, without the kernel's floors,
ramps and host, and with the larger of computing and reading in every operation.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.exports.deployed import kernel_of, report
from kernelfit.export.aiconfigurator import TARGET
from kernelfit.export.base import ExportOptions
from kernelfit.export.probes import probe_batches
from kernelfit.kernel import Batch, Pool

SIDE = Path(__file__).with_name("aiconfigurator_side.py")
MODEL = "Qwen/Qwen3-32B"


def step_of(batch: Batch) -> list[Any] | None:
    """Return a batch as one call of the package, None where it has no such call."""
    prompts = [r for r in batch.requests if r.computed < r.prompt_len]
    decodes = [r for r in batch.requests if r.computed >= r.prompt_len]
    if not prompts:
        return ["decode", len(decodes), decodes[0].computed, 2]
    first = prompts[0]
    whole = first.computed + first.scheduled
    if not decodes:
        return ["prefill", len(prompts), whole, first.computed]
    # One length of prompts serves both: decodes stand half the output behind it.
    left = decodes[0].computed - first.scheduled
    if first.computed or left < 1:
        return None
    return ["mixed", first.scheduled, len(decodes), first.scheduled, 2 * left]


def main() -> None:
    """Print the agreement under every mode, with the package's own file and with ours."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", required=True)
    python = parser.parse_args().python
    for share in (0.0, 0.5):
        compare(python, share)


def compare(python: str, share: float) -> None:
    """Print the agreement with a kernel of so much overlap."""
    kernel = kernel_of("qwen3-32b", "h100-sxm", Pool(tp=4), share)
    files = TARGET.export(kernel, ExportOptions("kernel.json"))
    problems = TARGET.check(files)
    assert not problems, problems
    stated, achieved = (file.content.decode() for file in files)
    pairs = [(b, s) for b in probe_batches(kernel) if (s := step_of(b)) is not None]
    cases = (
        ("its own h100_sxm.yaml, tables", None, "SILICON"),
        ("ours, tables", stated, "SILICON"),
        ("ours, EMPIRICAL", stated, "EMPIRICAL"),
        ("its own h100_sxm.yaml, SOL", None, "SOL"),
        ("ours with the nearest rates, SOL", achieved, "SOL"),
    )
    asked = {
        "model": MODEL,
        "tp": 4,
        "systems": [{"name": "h100_sxm", "text": t, "mode": m} for _, t, m in cases],
        "steps": [step for _, step in pairs],
    }
    done = subprocess.run(
        [python, "-P", str(SIDE)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    answer = json.loads(done.stdout.splitlines()[-1])
    print(
        f"aiconfigurator-core {answer['version']}, {MODEL} tp 4, {len(pairs)} batches, "
        f"overlap share {share:g}"
    )
    for (title, _, _), times in zip(cases, answer["systems"], strict=True):
        report(title, kernel, [batch for batch, _ in pairs], np.asarray(times))


if __name__ == "__main__":
    main()
