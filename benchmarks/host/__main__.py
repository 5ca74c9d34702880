"""Host coefficients of this machine beside the BLIS registry's, and what coarser sources know.

    python -m benchmarks.host [TRACES ...]            # traces/serve by default
    python -m benchmarks.host --planted               # simulated events instead

Two tables: every host coefficient with its interval beside the value that the registry
assumes; and what can be said of the same coefficients with the recorder's front-end rows
taken away, from what the engine's own spans hold, from what a client saw, and from means.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.host.registry import beside  # noqa: E402
from kernelfit.documents.chips import find_chip  # noqa: E402
from kernelfit.fit.coarse import CoarseResult, coarse_host  # noqa: E402
from kernelfit.fit.coarse_runs import CoarseRun, collect_coarse  # noqa: E402
from kernelfit.fit.front_end import FrontEndFit, fit_front_end  # noqa: E402
from kernelfit.fit.front_end_runs import FrontEndRun, collect_front_ends  # noqa: E402
from kernelfit.kernel.catalog import Coefficient  # noqa: E402
from kernelfit.kernel.fitted import FittedKernel  # noqa: E402
from kernelfit.store.ingest import ingest_paths  # noqa: E402
from kernelfit.store.scan import RunRecord, load_store  # noqa: E402

CALIB = ROOT / "calib"
DRAWS = 100


def us(seconds: float) -> str:
    """Return a time in microseconds, to three digits."""
    return f"{1e6 * seconds:,.3g}" if abs(seconds) < 1e-3 else f"{1e6 * seconds:,.0f}"


def span(ci95: tuple[float, float]) -> str:
    """Return an interval in microseconds."""
    return f"[{us(ci95[0])}, {us(ci95[1])}]"


def show(rows: Sequence[Sequence[str]]) -> None:
    """Print rows under a heading as columns."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for number, row in enumerate(rows):
        print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())
        if number == 0:
            print("  ".join("-" * w for w in widths))


def tell_fit(fit: FrontEndFit) -> None:
    """Print what the front end's coefficients rest on."""
    print(f"\nHost: {fit.rests_on.scope}; runs: {', '.join(fit.rests_on.runs)}")
    rows = [["work", "events", "fitted", "scatter", "mean/usual", "seen", "linear", "worst gap"]]
    for part in fit.rests_on.parts:
        shape = part.linearity
        rows.append(
            [
                part.kind,
                f"{part.events:,}",
                f"{part.fitted:,}",
                f"{part.scale:.0%}",
                f"{part.mean_ratio:.2f}",
                f"{part.low:g} to {part.high:g} {shape.counted}",
                "yes" if shape.linear else "no",
                f"{shape.worst_gap:.0%} (p {shape.p_value:.2g})",
            ]
        )
    show(rows)
    for gate in fit.rests_on.gates:
        print(f"gate {gate.id}: {gate.events} events of {gate.run}: {gate.rule}")
    for text in fit.warnings:
        print(f"warning: {text}")


def tell_beside(known: dict[str, Coefficient], on_cpu: bool) -> None:
    """Print every assumed value beside the measured one."""
    print("\nThe registry's assumed host overheads beside the measured ones [us]\n")
    rows = [["registry", "assumed", "measured", "95 % interval", "verdict", "finding"]]
    for each in beside(known, on_cpu):
        c = each.measured
        rows.append(
            [
                f"{each.name} [{each.unit}]",
                f"{each.assumed_us:,.6g}",
                "-" if c is None else us(c.value),
                "-" if c is None else span(c.ci95),
                "-" if c is None else c.verdict,
                each.finding,
            ]
        )
    show(rows)
    for name in ("output_call_s", "output_extra_token_s", "schedule_step_s", "schedule_request_s"):
        if name in known:
            c = known[name]
            print(f"no entry there: {name} {us(c.value)} us {span(c.ci95)}, {c.verdict}")


def reductions(run: CoarseRun) -> dict[str, CoarseRun]:
    """Return what each kind of source would hold of the same requests."""
    nothing = np.full(run.prompt.size, np.nan)
    inside = np.isfinite(run.queue_s) & np.isfinite(run.prefill_s)
    out: dict[str, CoarseRun] = {}
    if run.observer == "engine" and inside.any():
        out["spans (llm_request)"] = run
        out["scrapes (/metrics)"] = replace(
            run.take(np.zeros(run.prompt.size, dtype=bool)), windows=_scraped(run.take(inside))
        )
    if run.observer == "client":
        blind = replace(run, queue_s=nothing, prefill_s=nothing)
        out["client, requests (bench serve, guidellm, inference-perf)"] = blind
    return out


def _scraped(run: CoarseRun, parts: int = 12) -> tuple[dict[str, tuple[float, float]], ...]:
    """Sums over stretches of requests, as counters would show them between scrapes."""
    order = np.argsort(run.first_s, kind="stable")
    columns = {
        "time_to_first_token": run.first_s - run.arrival_s,
        "queue": run.queue_s,
        "prefill": run.prefill_s,
        "prompt_tokens": run.prompt,
    }
    return tuple(
        {name: (float(values[rows].sum()), float(rows.size)) for name, values in columns.items()}
        for rows in np.array_split(order, min(parts, order.size))
        if rows.size
    )


def tell_coarse(
    runs: Sequence[CoarseRun], kernels: dict[str, FittedKernel], truth: dict[str, Coefficient]
) -> None:
    """Print what sources identify with the recorder's front-end rows taken away."""
    print("\nWithout the recorder's front-end rows\n")
    head = "source|run|steps|sum of|value [us]|95 % interval|verdict|recorder"
    rows = [head.split("|")]
    unknown: dict[str, list[str]] = {}
    for run in runs:
        for source, reduced in reductions(run).items():
            for word, kernel in (("-", None), ("kernel", kernels.get(run.run))):
                if word == "kernel" and (kernel is None or "client" not in source):
                    continue
                found: CoarseResult = coarse_host(reduced, kernel, draws=DRAWS)
                unknown.setdefault(source, []).extend(found.unknown)
                rows += [
                    [
                        source,
                        run.run,
                        word,
                        " + ".join(term.parts),
                        us(term.value),
                        span(term.ci95),
                        term.verdict,
                        _recorded(term.parts, truth),
                    ]
                    for term in found.terms
                ]
    if len(rows) == 1:
        print("no request-level rows in these traces")
        return
    show(rows)
    for source, texts in unknown.items():
        for text in dict.fromkeys(texts):
            print(f"{source}: {text}")


def _recorded(parts: tuple[str, ...], truth: dict[str, Coefficient]) -> str:
    """Return what the recorder says of the same sum; nothing where it does not hold a part."""
    total = 0.0
    for part in parts:
        amount, _, name = part.rpartition(" x ")
        if name not in truth:
            return "-"
        total += (float(amount) if amount else 1.0) * truth[name].value
    return us(total)


def recorded(paths: Sequence[Path]) -> None:
    """Fit recorded traces and print both tables."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        ingest_paths(list(paths), store, calib=CALIB)
        records = load_store(store).runs
        front_ends = collect_front_ends(records)
        for gpu in dict.fromkeys(run.gpu for run in front_ends):
            chip = find_chip(gpu, CALIB / "chips")
            own = [run for run in front_ends if run.gpu == gpu]
            fit = fit_front_end(own, chip, draws=DRAWS, seed=0)
            if fit is None:
                print(f"{gpu}: too few events to fit")
                continue
            tell_fit(fit)
            known = {c.name: c for c in fit.coefficients}
            kernels = _kernels(records)
            step = next(iter(kernels.values()), None)
            steps = {} if step is None else {c.name: c for c in step.fitted.coefficients}
            tell_beside({**steps, **known}, chip.kind == "cpu")
            tell_coarse(collect_coarse(records), kernels, known)


def _kernels(records: Sequence[RunRecord]) -> dict[str, FittedKernel]:
    """Return a kernel for each run, from the calibration that the project has committed."""
    from kernelfit.cli.files import read_calibration
    from kernelfit.kernel.errors import KernelError

    found: dict[str, FittedKernel] = {}
    for record in records:
        path = CALIB / "calibrations" / f"{str(record.gpu).lower()}.json"
        if record.model is None or not path.is_file():
            continue
        source = read_calibration(path)
        version = str(record.row["engine_version"] or "")
        try:
            found[record.run_id] = FittedKernel.of(
                record.model, source.chip, record.pool, version, source.fitted()
            )
        except KernelError as error:
            print(f"{record.run_id}: no kernel: {error}")
    return found


def planted() -> None:
    """Fit simulated events and print what was planted beside what came back."""
    from tests.fit.front_ends import TRUTH, simulate
    from tests.kernel.builders import CHIP

    run: FrontEndRun = simulate(1)
    fit = fit_front_end([run], CHIP, draws=DRAWS, seed=0)
    assert fit is not None
    tell_fit(fit)
    rows = [["coefficient", "planted [us]", "found [us]", "95 % interval", "verdict", "held"]]
    for c in fit.coefficients:
        truth = TRUTH[c.name]
        held = "yes" if c.ci95[0] <= truth <= c.ci95[1] else "NO"
        rows.append([c.name, us(truth), us(c.value), span(c.ci95), c.verdict, held])
    print()
    show(rows)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Host coefficients beside assumed ones.")
    parser.add_argument("traces", nargs="*", type=Path, default=[ROOT / "traces" / "serve"])
    parser.add_argument("--planted", action="store_true")
    given = parser.parse_args()
    if given.planted:
        planted()
    else:
        recorded(given.traces)


if __name__ == "__main__":
    main()
