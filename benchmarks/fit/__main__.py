"""Time and memory of a fit on simulated steps.

    python -m benchmarks.fit [--million 10]

The steps are priced by the tests' own loops, with 2 % noise and 3 % outliers. Times are
minima of three; memory is the peak of a process that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from kernelfit.fit.design import build_design, coefficient_names  # noqa: E402
from kernelfit.fit.point import fit_runs  # noqa: E402
from kernelfit.fit.priors import build_priors  # noqa: E402
from kernelfit.fit.solve import solve  # noqa: E402
from kernelfit.fit.steps import RunSteps  # noqa: E402
from kernelfit.fit.uncertainty import bootstrap  # noqa: E402
from tests.fit.simulate import simulate  # noqa: E402
from tests.kernel.builders import CHIP, EAGER, dense, mixture  # noqa: E402


def simulated(steps: int) -> list[RunSteps]:
    """Four runs with planted coefficients."""
    deployments = [(dense(), 1), (dense(), 2), (mixture(), 1), (mixture(), 2)]
    return [
        simulate(
            f"r{i}", model, CHIP, replace(EAGER, tp=tp), seed=i, steps=steps // 4, timing="step"
        )
        for i, (model, tp) in enumerate(deployments)
    ]


def best_of(count: int, action: object) -> float:
    """Return the least time of several calls [s]."""
    assert callable(action)
    times = []
    for _ in range(count):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return min(times)


def timing(steps: int = 6000, draws: int = 200) -> None:
    """Print the bars of a fit's time."""
    runs = simulated(steps)
    names = coefficient_names(runs)
    priors = build_priors(names, CHIP)
    design = build_design(runs, names, 50)
    found = solve(design, priors, "sum")
    alone = best_of(3, lambda: solve(build_design(runs, names, 50), priors, "sum"))
    print(
        f"solve, {steps:,} steps, {len(names)} coefficients, several starts: {alone:.3f} s, "
        f"{found.evaluations} evaluations (bar 0.1 s)"
    )
    again = best_of(3, lambda: solve(design, priors, "sum", start=found))
    print(f"the same from a start: {again:.3f} s")
    whole = best_of(3, lambda: fit_runs(runs, names, "sum"))
    print(f"with verdicts, every prior held that the data do not pin: {whole:.3f} s")
    fit = fit_runs(runs, names, "sum")
    began = time.perf_counter()
    bootstrap(design, fit.priors, "sum", fit.solution, draws=draws, seed=0, inflation=fit.inflation)
    print(f"{draws} bootstrap draws: {time.perf_counter() - began:.2f} s (bar 10 s)")


def write_long_run(folder: Path, steps: int) -> None:
    """Write a store of one run with many steps, by repeating simulated ones."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from kernelfit.store.schema import SCHEMAS
    from kernelfit.store.write import ROW_GROUP_ROWS

    base = simulated(16_000)[0]
    rng = np.random.default_rng(0)
    schema = SCHEMAS["steps"]
    with pq.ParquetWriter(folder / "steps.parquet", schema, compression="zstd") as writer:
        for first in range(0, steps, ROW_GROUP_ROWS):
            count = min(ROW_GROUP_ROWS, steps - first)
            pick = (first + np.arange(count)) % base.size
            known = {
                "run_id": pa.array(["long"] * count),
                "step": pa.array(first + np.arange(count)),
                "engine": pa.array(np.zeros(count, dtype=np.int32)),
                "duration_s": pa.array(
                    base.duration_s[pick] * np.exp(0.02 * rng.standard_normal(count))
                ),
                "timing": pa.array(["step"] * count),
                "scheduled_tokens": pa.array(base.totals["tokens"][pick].astype(np.int64)),
                "composition": pa.array(["per_request"] * count),
                "phase": pa.array([base.phase[i] for i in pick]),
                "marks": pa.array([[]] * count, type=schema.field("marks").type),
            }
            for name, values in base.totals.items():
                if name != "tokens":
                    known[name] = pa.array(values[pick].astype(np.int64))
            columns = [
                known[f.name].cast(f.type) if f.name in known else pa.nulls(count, f.type)
                for f in schema
            ]
            writer.write_table(
                pa.Table.from_arrays(columns, schema=schema), row_group_size=ROW_GROUP_ROWS
            )


def memory(folder: Path) -> None:
    """Read, gate and fit a long run; print the peak of this process."""
    from kernelfit.fit.calibrate import Options
    from kernelfit.fit.pipeline import fit_gpus, run_steps
    from kernelfit.store.scan import RunRecord

    class Record(RunRecord):
        """A run whose facts are known here."""

        __slots__ = ()

        model = property(lambda _: dense())
        pool = property(lambda _: EAGER)

    row = {
        "run_id": "long",
        "engine_version": "0.32.0",
        "timing": "step",
        "recorder_cost_share": None,
    }
    began = time.perf_counter()
    run = run_steps(Record(folder, row), CHIP)
    read = time.perf_counter() - began
    fits, refused = fit_gpus([run], Options(draws=20, rule="sum"))
    assert fits, refused
    taken = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{run.recorded_steps:,} steps in the store, {run.size:,} read in {read:.1f} s; gated "
        f"and fitted with 20 draws in {taken:.0f} s; peak {peak:.2f} GiB (bar 2 GiB)"
    )
    print("\n".join(f"  ! {w}" for w in fits[0].calibration.warnings if "stretches" in w))


def main() -> int:
    """Print all bars."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--million", type=float, default=10.0)
    parser.add_argument("--memory", type=Path, help="fit the run in this folder, and no more")
    options = parser.parse_args()
    if options.memory:
        memory(options.memory)
        return 0
    timing()
    with tempfile.TemporaryDirectory() as folder:
        write_long_run(Path(folder), int(options.million * 1e6))
        subprocess.run(
            [sys.executable, "-m", "benchmarks.fit", "--memory", folder], check=True, cwd=ROOT
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
