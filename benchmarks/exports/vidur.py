"""Vidur's own step times, trained on the exported tables, beside the kernel's.

    python -m benchmarks.exports.vidur --python PYTHON

``PYTHON`` has the PyPI package ``vidur``. It trains its forests on the tables, prices the
probe batches, and runs a short simulation; the kernel prices the same batches. The package
adds operations up, rounds contexts up to a grid and takes their mean, and knows tokens, not
requests: a step of few tokens is charged the host and the head of decodes.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.exports.deployed import kernel_of, report
from kernelfit.export.base import ExportOptions
from kernelfit.export.probes import probe_batches
from kernelfit.export.vidur import TARGET, grid_of
from kernelfit.kernel import Batch, Pool, RequestShape

SIDE = Path(__file__).with_name("vidur_side.py")
SETTINGS = {"max_requests": "64", "max_context": "4096", "max_chunk": "2048"}


def main() -> None:
    """Print the agreement step by step and over a simulation."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", required=True)
    parser.add_argument("--requests", type=int, default=16)
    asked = parser.parse_args()
    pool = Pool(tp=2, max_num_seqs=64, max_num_batched_tokens=4096)
    for share in (0.0, 0.5):
        kernel = kernel_of("llama-3.1-8b", "h100-sxm", pool, share)
        options = ExportOptions("kernel.json", settings=SETTINGS)
        files = TARGET.export(kernel, options)
        problems = TARGET.check(files)
        assert not problems, problems
        grid = grid_of(kernel, options)
        batches = [
            batch
            for batch in probe_batches(kernel)
            if max(r.computed for r in batch.requests) <= grid.most_context
            and max(r.scheduled for r in batch.requests) <= grid.most_chunk
        ]
        steps = [
            [[r.scheduled for r in b.requests], [r.computed for r in b.requests]] for b in batches
        ]
        with tempfile.TemporaryDirectory() as folder:
            for file in files:
                place = Path(folder) / file.path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(file.content)
            flags = shlex.split((Path(folder) / "vidur-flags.txt").read_text(), comments=True)
            given = {"flags": flags, "steps": steps, "requests": asked.requests}
            done = subprocess.run(
                [asked.python, "-P", str(SIDE)],
                input=json.dumps(given),
                capture_output=True,
                text=True,
                check=False,
                cwd=folder,
            )
        if done.returncode:
            raise SystemExit(done.stderr[-3000:])
        answer = json.loads(done.stdout.splitlines()[-1])
        title = (
            f"vidur {answer['version']}, llama-3.1-8b tp 2 on h100-sxm, overlap share {share:g}, "
            f"trained in {answer['train_s']:.0f} s"
        )
        report(title, kernel, batches, np.asarray(answer["steps"]))
        seen = answer["simulated"]["batches"]
        run = [
            Batch(
                tuple(
                    RequestShape(q, c, max(1, c) if q == 1 else c + q)
                    for q, c in zip(new, context, strict=True)
                )
            )
            for new, context, _ in seen
        ]
        title = f"its simulation of {asked.requests} requests, {answer['simulated']['end_s']:.3f} s"
        times = np.asarray([seconds for _, _, seconds in seen])
        report(title, kernel, run, times)


if __name__ == "__main__":
    main()
