"""The public GPU step data, row by row against sums of another library's making."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kernelfit.logs.columns import ParsedRun
from kernelfit.logs.fpm import DynamoFpmReader
from kernelfit.logs.marks import mark_names
from kernelfit.logs.otel import OtelStepsReader
from kernelfit.logs.source import RunSource
from tests.logs.recording import adds_up

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
FPM = sorted((DATA / "nvidia_fpm_golden").glob("*/*/fpm_metrics_detail.csv"))
STEPS = DATA / "inference_sim_stepml" / "enriched_steps.parquet"

pytestmark = pytest.mark.skipif(
    not FPM or not STEPS.is_file(), reason="the folder shared/data beside the repository is absent"
)

# The counts that the data's own description gives; medians are worked out from it there.
PAIRS = {"llama-2-70b": (593, 18.999e-3, 4), "codellama-34b": (716, 15.095e-3, 2)}


def fpm(path: Path) -> ParsedRun:
    source = RunSource(path, None, "dynamo-fpm", path.name, "r")
    (run,) = DynamoFpmReader().read(source, None)
    assert adds_up(run)
    return run


@pytest.mark.parametrize("path", FPM, ids=lambda p: f"{p.parts[-3][12:18]}-{p.parts[-2][:7]}")
def test_forward_pass_metrics(path: Path) -> None:
    table = pd.read_csv(path)
    begin = time.perf_counter()
    run = fpm(path)
    took_s = time.perf_counter() - begin
    assert took_s < 1.0
    steps = run.steps
    assert (run.counts.lines, run.counts.recognised) == (len(table) + 1, 1)
    assert run.counts.rejected == 0
    assert steps.count == len(table)
    np.testing.assert_array_equal(steps.step, table.counter_id)
    np.testing.assert_allclose(steps.duration_s, table.latency_ms * 1e-3, rtol=1e-12)
    scheduled = table.sum_prefill_tokens + table.num_decode_requests
    np.testing.assert_array_equal(steps.scheduled_tokens, scheduled)
    context = scheduled + table.sum_prefill_kv_tokens + table.sum_decode_kv_tokens
    assert steps.context_tokens.sum() == context.sum()
    both = steps.decode_context_tokens + steps.prefill_context_tokens
    np.testing.assert_array_equal(both, context)
    alone = (table.num_prefill_requests == 1) & (table.sum_prefill_tokens > 1)
    s, c = table.sum_prefill_tokens[alone], table.sum_prefill_kv_tokens[alone]
    np.testing.assert_array_equal(steps.prefill_pairs[alone], s * c + s * (s + 1) // 2)
    several = table.num_prefill_requests > 1
    marks = [mark_names(bits) for bits in steps.marks.tolist()]
    assert sum("pairs_approximated" in m for m in marks) == several.sum()
    # Pairs of an equal split are the fewest when nothing was computed before.
    fresh = several & (table.sum_prefill_kv_tokens == 0)
    mean = table.sum_prefill_tokens[fresh] / table.num_prefill_requests[fresh]
    least = table.sum_prefill_tokens[fresh] * (mean + 1) / 2
    assert (steps.prefill_pairs[fresh] >= least - 0.5).all()
    names = np.array([run.segments[place] for place in steps.segment.tolist()])
    np.testing.assert_array_equal(names, table.workload_segment)
    shared = (names == "sweep") & (table.num_decode_requests > 1)
    # The mixture-of-experts runs had prefix caching off: no request shares a page.
    expected = shared.sum() if "qwen32" in str(path) else 0
    assert sum("shared_prefix" in m for m in marks) == expected
    width = int(path.parts[-2][2])
    assert run.stated["tp"] == width
    assert run.stated["engine_version"] == "0.20.1"
    assert run.stated.get("enable_expert_parallel") == (True if "ep4" in str(path) else None)
    # Its metadata give a budget of 2,048 tokens, and steps of 8,192 occur.
    assert int(scheduled.max()) > 2048
    assert "max_num_batched_tokens" not in run.stated


def test_no_duration_is_two_steps_long() -> None:
    # 32.8 B parameters of 2 bytes at the data sheet's 8 TB/s take 8.2 ms. Were the time of a
    # step counted from its schedule while another runs, half of it would beat that.
    run = fpm(next(path for path in FPM if "qwen32" in str(path) and "tp1" in str(path)))
    alone = (run.steps.decode_requests == 1) & (run.steps.requests == 1)
    median_s = float(np.median(run.steps.duration_s[alone]))
    floor_s = 32.8e9 * 2 / 8e12
    assert median_s > floor_s > median_s / 2


def test_step_summaries() -> None:
    table = pd.read_parquet(STEPS)
    source = RunSource(STEPS, None, "otel-steps", STEPS.name, "r")
    begin = time.perf_counter()
    runs = OtelStepsReader().read(source, None)
    assert time.perf_counter() - begin < 1.0
    assert sum(run.counts.lines for run in runs) == len(table) == 13_433
    for run in runs:
        assert adds_up(run)
        model = str(run.stated["model"])
        pairs, median_s, width = PAIRS[model]
        assert (run.steps.count, run.counts.rejected, run.stated["tp"]) == (pairs, 0, width)
        assert float(np.median(run.steps.duration_s)) == pytest.approx(median_s, rel=1e-3)
        rows = table[table.model == model].sort_values("step.id").set_index("step.id")
        follows = rows.index.isin(rows.index - 1) & (rows["batch.scheduled_tokens"] > 0)
        kept = rows[follows]
        assert run.steps.scheduled_tokens.sum() == kept["batch.scheduled_tokens"].sum()
        used = 16 * (kept["kv.blocks_total_gpu"] - kept["kv.blocks_free_gpu"])
        whole = kept["queue.running_depth"] == (
            kept["batch.num_prefill_reqs"] + kept["batch.num_decode_reqs"]
        )
        order = np.argsort(run.steps.step)
        context = run.steps.context_tokens[order]
        # Each path's share is rounded to a token.
        assert np.abs(context - used)[whole.to_numpy()].max() <= 1
        # Cycles last longer than the weights take at the data sheet's 3.35 TB/s; the few that
        # do not have lent time to their neighbour.
        billion = {"llama-2-70b": 69.0, "codellama-34b": 33.7}[model]
        floor_s = billion * 1e9 * 2 / width / 3.35e12
        assert np.mean(run.steps.duration_s > floor_s) > 0.997


def test_the_dispatch_times_of_the_same_steps_are_refused() -> None:
    source = RunSource(STEPS, None, "otel-steps", STEPS.name, "r", {"timing": "dispatch"})
    for run in OtelStepsReader().read(source, None):
        assert run.fit_refused_reason is not None
        assert float(np.median(run.steps.duration_s)) < 1.2e-3
