"""Print every row of the accuracy targets.

    python -m benchmarks.accuracy [--shared ../shared] [--rows 1a,1b,2] [--draws 60]
    python -m benchmarks.accuracy --coefficients

Figures are shares of the measured time; every line stands beside its target and, on the
same steps, the baselines. Exit status 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.accuracy import planted, rows
from benchmarks.accuracy.coefficients import print_coefficients
from benchmarks.accuracy.data import prepare
from benchmarks.accuracy.measure import gated
from kernelfit.documents.chips import load_chip
from kernelfit.fit.gates import with_copies, with_probe_reference
from kernelfit.fit.pipeline import collect_runs
from kernelfit.fit.steps import RunSteps
from kernelfit.store.ingest import ingest_paths
from kernelfit.store.scan import load_store

ROOT = Path(__file__).resolve().parents[2]


def load_runs(shared: Path, work: Path) -> tuple[list[RunSteps], str]:
    """Ingest the public data and the project's traces; say why a dispatch is refused."""
    calib = ROOT / "calib"
    chips = {chip.name: chip for chip in map(load_chip, sorted((calib / "chips").glob("*.yaml")))}
    folders = [ROOT / "traces"]
    refused = ""
    if (shared / "data").is_dir():
        folders.append(prepare(shared, work / "runs"))
        refused = _dispatch(work)
    ingest_paths(folders, work / "store", calib=calib)
    records = load_store(work / "store").runs
    runs, _ = collect_runs(records, chips)
    return list(with_probe_reference(with_copies(runs))), refused


def _dispatch(work: Path) -> str:
    """Read the H100 traces' own duration column, and return why it is refused."""
    source = work / "runs" / "h100-llama-2-70b-tp4"
    copy = work / "dispatch" / "h100-dispatch"
    copy.mkdir(parents=True)
    for item in source.iterdir():
        text = item.read_bytes()
        if item.name == "run.yaml":
            text += b"timing: dispatch\n"
        (copy / item.name).write_bytes(text)
    ingest_paths([work / "dispatch"], work / "dispatch-store", calib=ROOT / "calib")
    record = load_store(work / "dispatch-store").runs[0]
    if record.fit_refused_reason:
        return str(record.fit_refused_reason)
    return "" if record.timing in ("device", "cycle", "step") else f"timing {record.timing}"


def shown(line: rows.Line) -> str:
    """Return a line of the table."""
    verdict = {True: "met", False: "MISSED", None: ""}[line.met]
    target = ""
    if line.target is not None:
        target = f"{'>=' if line.at_least else '<='} {line.target:.3f}"
    bias = "" if line.bias is None else f"{line.bias:+.3f}"
    others = "  ".join(f"{name} {value:.3f}" for name, value in line.baselines)
    parts = [
        f"{line.row:3} {line.what:62} {line.value:8.3f} {target:10} {verdict:7} {bias:7}"
        f" n {line.steps:6,} dropped {line.dropped:4,}"
    ]
    for name, text in (("reference", line.reference), ("baselines", others), ("note", line.note)):
        if text:
            parts.append(f"      {name}: {text}")
    return "\n".join(parts)


def main() -> int:
    """Run the rows that are asked for."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "2")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--rows", default="1a,1b,2,3,4,5,6,7,8,9")
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--coefficients", action="store_true", help="print them, and no row")
    options = parser.parse_args()
    wanted = options.rows.split(",")
    began = time.perf_counter()
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        runs, refused = load_runs(options.shared, Path(folder))
        print(f"{sum(r.size for r in runs):,} steps of {len(runs)} runs read", flush=True)
        if options.coefficients:
            print_coefficients(runs, options.draws)
            return 0
        public = any(run.plan.chip.kind == "gpu" for run in runs)
        if not public:
            print("no public GPU data: rows 1 to 6 are left out")
        made: dict[str, Callable[[], list[rows.Line]]] = {
            "1a": lambda: rows.row_1a(runs),
            "1b": lambda: rows.row_1b(runs),
            "2": lambda: rows.row_2(runs),
            "3": lambda: rows.row_3(runs),
            "4": lambda: rows.row_4(runs),
            "5": lambda: rows.row_5(runs, refused),
            "6": lambda: rows.row_6(runs),
            "7": lambda: rows.row_7(runs),
            "8": planted.row_8,
            "9": lambda: _coverage(runs, public, options.draws),
        }
        for name in wanted:
            if not public and name in ("1a", "1b", "2", "3", "4", "5", "6"):
                continue
            started = time.perf_counter()
            for line in made[name]():
                missed += line.met is False
                print(shown(line), flush=True)
            print(f"    row {name}: {time.perf_counter() - started:.0f} s", flush=True)
    print(f"{missed} targets missed; {time.perf_counter() - began:.0f} s in all")
    return 1 if missed else 0


def _coverage(runs: list[RunSteps], public: bool, draws: int) -> list[rows.Line]:
    out = []
    groups: list[tuple[str, Callable[[RunSteps], bool], tuple[str, ...]]] = [
        ("own traces", lambda run: run.plan.chip.kind == "cpu", ())
    ]
    if public:
        groups = [
            ("B300 dense", lambda run: run.run.startswith("b300-qwen3-32b"), ()),
            ("B300 hybrid", lambda run: run.run.startswith("b300-qwen3.6"), ()),
            ("H100 70B cycles", lambda run: run.run == "h100-llama-2-70b-tp4", ()),
            ("H100 34B cycles", lambda run: run.run == "h100-codellama-34b-tp2", ()),
            *groups,
        ]
    for name, wanted, off in groups:
        kept, _ = gated(runs, wanted, off)
        out += rows.row_9(name, kept, draws)
    return out


if __name__ == "__main__":
    sys.exit(main())
