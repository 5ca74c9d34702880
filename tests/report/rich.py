"""A made-up result as rich as a real fit, for the size and the looks of the page."""

from __future__ import annotations

import copy
import math
import random

from tests.report.samples import (
    DIGEST,
    PEAK_BYTES_PER_S,
    PEAK_FLOP_PER_S,
    Result,
    coefficient,
    small_result,
    validation,
)

PLAN = {
    "schema": "kernelfit.plan/1",
    "runs_wanted": 2,
    "total_s": 95.0,
    "runs": [
        {
            "gpu": "H100-SXM",
            "pool": "tp1",
            "batches": ["8x1024", "64x1024"],
            "steps": 400,
            "duration_s": 12.5,
            "settles": "hbm_kv_eff",
        },
        {
            "gpu": "H100-SXM",
            "pool": "tp2",
            "batches": ["1x64"],
            "steps": 200,
            "duration_s": 0.004,
            "settles": "nvlink_eff",
        },
        {"gpu": "A100-SXM-80GB", "pool": "tp1", "batches": ["1x1"], "steps": 1, "duration_s": 1.0},
    ],
}


def rich_result(steps: int = 1200, models: int = 5) -> Result:
    """As much as a real fit holds: five models, four splits, every baseline."""
    chance = random.Random(7)
    result = copy.deepcopy(small_result())
    calibration = result["calibrations"][0]
    names = [f"model-{letter}" for letter in "abcde"[:models]]
    calibration["coefficients"] += [
        coefficient("gemm_m_half_bf16", 171.0, "tokens", [150.0, 195.0]),
        coefficient(
            "attention_eff_bf16",
            0.42,
            "1",
            [0.3, 0.55],
            "weak",
            peak=PEAK_FLOP_PER_S,
            share_of_peak=0.42,
        ),
        coefficient(
            "hbm_kv_eff",
            0.72,
            "1",
            [0.5, 0.95],
            "prior",
            method="vendor_spec",
            peak=PEAK_BYTES_PER_S,
            share_of_peak=0.72,
            alias=["attention_request_s", "launch_request_s"],
            prior={"value": 0.72, "source": "operator table for the same chip"},
        ),
        coefficient("attention_request_s", 3.1e-7, "s per request per layer", [1e-7, 6e-7], "weak"),
        coefficient("launch_layer_s", 7.2e-6, "s/layer", [6.9e-6, 7.5e-6]),
        coefficient(
            "nvlink_eff", 0.99, "1", [0.7, 1.0], "at_bound", peak=4.5e11, share_of_peak=0.99
        ),
        coefficient("admission_request_s", 0.0004, "s/request", [0.00035, 0.00047]),
    ]
    calibration["warnings"] = [
        "context of decode requests and their number correlate by 0.97; hbm_kv_eff kept its prior",
        "run model-c-b changes speed at step 611: 4 % slower afterwards",
    ]
    calibration["domain"] += [
        {"quantity": "context_tokens", "low": 0, "high": 215000, "unit": "tokens"},
        {"quantity": "scheduled_tokens", "low": 1, "high": 8192, "unit": "tokens"},
    ]
    runs, gates, ingest, points, bounds, coverage, breakdown, kernels = ([] for _ in range(8))
    rows: list[tuple[str, str, str, str, int, float, float]] = []
    for size, name in enumerate(names, 1):
        for half in "ab":
            run = f"{name}-{half}"
            dropped = chance.randrange(8, 60)
            runs.append(
                {"run": run, "model": name, "pool": "tp1", "steps": steps, "kept": steps - dropped}
            )
            gates.append({"id": "warm-up", "run": run, "rows": 8, "rule": "first steps of a run"})
            if dropped > 8:
                gates.append(
                    {
                        "id": "contention-burst",
                        "run": run,
                        "rows": dropped - 8,
                        "rule": "a burst of steps far slower than the same shapes elsewhere",
                    }
                )
            ingest.append(
                {"file": f"traces/{run}", "lines": 2 * steps + 9, "steps": steps}
                | {"recognised": steps + 9, "rejected": 0}
            )
            points.append(_points(chance, run, name, size, steps // 2))
        n = steps // 2
        for split, base in (
            ("time_block", 0.02),
            ("leave_one_run_out", 0.025),
            ("leave_one_model_out", 0.06),
        ):
            for phase, worse in (("all", 1.0), ("decode", 0.8), ("mixed", 1.3), ("prefill", 1.6)):
                ours = base * worse * (0.8 + 0.1 * size)
                rows += [
                    ("kernelfit", split, name, phase, n, ours, ours / 3 - 0.01),
                    ("datasheet", split, name, phase, n, 0.45 + 0.05 * size, -0.45),
                    ("datasheet_derated", split, name, phase, n, 0.3 + 0.05 * size, -0.3),
                    ("nnls_sums", split, name, phase, n, 0.09 * worse + 0.02 * size, 0.02),
                    ("random_forest", split, name, phase, n, ours * (1.4 + base * 40), -0.01),
                    ("constant", split, name, phase, n, 0.8, 0.3),
                ]
        bounds.append(
            {"gpu": "H100-SXM", "group": name, "phase": "all", "n": n}
            | {"below": 12, "inside": n - 40, "above": 28, "inside_with_noise": n - 9}
        )
        for split, level, share in (
            ("time_block", 0.5, 0.47),
            ("time_block", 0.95, 0.93),
            ("leave_one_run_out", 0.95, 0.9),
        ):
            coverage.append(
                {"gpu": "H100-SXM", "split": split, "group": name, "phase": "all"}
                | {"level": level, "n": n, "covered": int(share * n)}
            )
        for context in (1024, 8192)[: 2 if size < 3 else 1]:
            breakdown.append(_breakdown(name, size, context))
        kernels.append(
            {"file": f"calib/kernels/h100-{name}-tp1.json", "pool": "tp1", "model": name}
            | {"gpu": "H100-SXM", "digest": DIGEST}
        )
    calibration["runs"] = runs
    correlation = [
        {"gpu": "H100-SXM", "run": name, "n": steps // 2}
        | {"correlation": [1.0, *(round(0.6 * 0.9**lag, 4) for lag in range(60))]}
        for name in ("all", *(str(run["run"]) for run in runs))
    ]
    result.update(
        correlation=correlation,
        plan=PLAN,
        gates=gates,
        ingest=ingest,
        points=points,
        bounds=bounds,
        coverage=coverage,
        breakdown=breakdown,
        kernels=kernels,
        validation=validation(rows),
    )
    return result


def _points(chance: random.Random, run: str, model: str, size: int, n: int) -> Result:
    """Steps of a made-up chip, with noise."""
    columns: Result = {"gpu": "H100-SXM", "held_out": True}
    for key in ("run", "model", "phase", "step", "measured_s", "predicted_s", "overlap_s"):
        columns[key] = []
    for key in ("no_overlap_s", "requests", "context_tokens", "tokens"):
        columns[key] = []
    for step in range(n):
        requests = chance.choice([1, 2, 4, 8, 16, 24, 32, 48, 64])
        phase = chance.choices(["decode", "mixed", "prefill"], [8, 2, 1])[0]
        context = requests * chance.randrange(16, 4000) if phase != "prefill" else 0
        tokens = requests + (0 if phase == "decode" else chance.randrange(16, 4000))
        read = 0.004 * size + context * 2.5e-8 * size
        compute = tokens * 3e-6 * size
        total = 0.001 + read + compute
        noise = math.exp(chance.gauss(0.0, 0.02) + (0.05 if step > 0.7 * n else 0.0))
        if chance.random() < 0.01:
            noise *= 1.6
        columns["run"].append(run)
        columns["model"].append(model)
        columns["phase"].append(phase)
        columns["step"].append(step)
        columns["measured_s"].append(total * (0.96 if tokens > 500 else 1.0) * noise)
        columns["predicted_s"].append(0.001 + read + compute)
        columns["overlap_s"].append(0.001 + max(read, compute))
        columns["no_overlap_s"].append((0.001 + read + compute) * 1.02)
        columns["requests"].append(requests)
        columns["context_tokens"].append(context)
        columns["tokens"].append(tokens)
    return columns


def _breakdown(model: str, size: int, context: int) -> Result:
    requests = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    hbm = [0.004 * size + n * context * 2.5e-8 * size for n in requests]
    sm = [n * 1e-4 * size for n in requests]
    host = [0.001 + n * 4e-6 for n in requests]
    overlap = [max(a, b) + c for a, b, c in zip(hbm, sm, host, strict=True)]
    both = [a + b + c for a, b, c in zip(hbm, sm, host, strict=True)]
    return {
        "gpu": "H100-SXM",
        "model": model,
        "pool": "tp1",
        "context_tokens": context,
        "requests": requests,
        "per_resource_s": {"sm": sm, "hbm": hbm, "nvlink": [0.0] * 9, "host": host},
        "overlap_s": overlap,
        "no_overlap_s": both,
        "fitted_s": [0.25 * a + 0.75 * b for a, b in zip(overlap, both, strict=True)],
    }
