"""The coefficients themselves: value, interval, share of the peak, verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.accuracy.measure import gated
from kernelfit.fit.calibrate import Options, calibrate
from kernelfit.fit.steps import RunSteps

GROUPS: tuple[tuple[str, Callable[[RunSteps], bool], tuple[str, ...]], ...] = (
    ("B300, Qwen3-32B and Qwen3.6-35B-A3B", lambda run: run.run.startswith("b300"), ()),
    (
        "H100, Llama-2-70B tables of prompts and tokens",
        lambda run: run.run.startswith("h100-llama-2-70b") and run.run[-1] in "tn",
        ("warm_up", "gap"),
    ),
    (
        "H100, cycles of Llama-2-70B TP4 and CodeLlama-34B TP2",
        lambda run: run.run in ("h100-llama-2-70b-tp4", "h100-codellama-34b-tp2"),
        (),
    ),
    (
        "A100, Llama-2-70B tables of prompts and tokens",
        lambda run: run.run.startswith("a100"),
        ("warm_up", "gap"),
    ),
    ("the recording CPU, own traces", lambda run: run.plan.chip.kind == "cpu", ()),
)


def print_coefficients(runs: Sequence[RunSteps], draws: int) -> None:
    """Fit every GPU type and print its coefficients.

    Parameters
    ----------
    runs : sequence of RunSteps
        All runs.
    draws : int
        Bootstrap draws behind the intervals.
    """
    for title, wanted, off in GROUPS:
        kept, dropped = gated(runs, wanted, off)
        if not kept:
            continue
        found = calibrate(kept, [run.size for run in kept], Options(draws=draws))
        scores = ", ".join(f"{s.rule} {s.median_ape:.4f}" for s in found.scores)
        split = found.scores[0].split if found.scores else "nothing held out"
        print(
            f"\n{title}: {sum(run.size for run in kept):,} steps, {dropped:,} dropped; "
            f"composition {found.rule} (share {found.overlap_share:.2f}; {split}: {scores}); "
            f"scatter {found.scale:.3f}; converged {found.converged}"
        )
        for c, evidence in zip(found.coefficients, found.evidence, strict=True):
            alias = f"  alias {', '.join(evidence.alias)}" if evidence.alias else ""
            print(
                f"  {c.name:34} {c.value:10.4g} {c.unit:6} [{c.ci95[0]:.3g}, {c.ci95[1]:.3g}]"
                f"  {c.verdict:10} time {evidence.time_share:6.3f}{alias}",
                flush=True,
            )
        for warning in found.warnings:
            print(f"  ! {warning}")
