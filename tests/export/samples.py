"""A calibration with every coefficient that a fit can produce."""

from __future__ import annotations

from typing import Any

DIGEST = "sha256:" + "0123456789abcdef" * 4

# name, value, unit, ci95, datasheet peak; H100-SXM: 989 TFLOP/s, 3.35 TB/s, 450 GB/s.
ROWS: tuple[tuple[str, float, str, tuple[float, float], float | None], ...] = (
    ("gemm_eff_bf16", 0.9, "1", (0.86, 0.94), 989e12),
    ("gemm_m_half_bf16", 170.0, "tokens", (150.0, 190.0), None),
    ("gemm_eff_fp8", 0.65, "1", (0.6, 0.7), 1979e12),
    ("attention_eff_bf16", 0.4, "1", (0.35, 0.45), 989e12),
    ("hbm_weight_eff", 0.8, "1", (0.79, 0.81), 3.35e12),
    ("hbm_kv_eff", 0.72, "1", (0.7, 0.74), 3.35e12),
    ("hbm_activation_eff", 0.5, "1", (0.3, 0.7), 3.35e12),
    ("nvlink_eff", 0.6, "1", (0.5, 0.7), 4.5e11),
    ("allreduce_floor_s", 9e-6, "s per op", (8e-6, 1e-5), None),
    ("attention_request_s", 3e-7, "s per request per layer", (2e-7, 4e-7), None),
    ("expert_floor_s", 2e-6, "s per touched expert per layer", (1e-6, 3e-6), None),
    ("layer_floor_s", 1e-5, "s/layer", (9e-6, 1.1e-5), None),
    ("launch_layer_s", 7e-6, "s/layer", (6.8e-6, 7.2e-6), None),
    ("graph_replay_s", 7.5e-6, "s/step", (7e-6, 8e-6), None),
    ("launch_step_s", 1e-4, "s/step", (9e-5, 1.1e-4), None),
    ("launch_request_s", 4e-6, "s/request", (3e-6, 5e-6), None),
    ("schedule_step_s", 2e-5, "s/step", (1e-5, 3e-5), None),
    ("schedule_request_s", 1e-6, "s/request", (5e-7, 2e-6), None),
    ("admission_request_s", 4e-5, "s/request", (3e-5, 5e-5), None),
    ("admission_token_s", 3.5e-7, "s/token", (3e-7, 4e-7), None),
    ("output_token_s", 4.59e-5, "s/token", (4e-5, 5e-5), None),
    ("completion_s", 2e-6, "s/request", (1e-6, 3e-6), None),
)


def coefficient(name: str, **changes: Any) -> dict[str, Any]:
    """One of the rows, identified unless changed."""
    value, unit, interval, peak = next(row[1:] for row in ROWS if row[0] == name)
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "ci95": list(interval),
        "verdict": "identified",
        "method": "measured",
        "scope": "H100-SXM",
        "peak": peak,
        "peak_unit": None if peak is None else "flop/s" if peak > 1e14 else "byte/s",
        "share_of_peak": value if peak else None,
        "prior": {"value": None, "source": "none"},
        "alias": [],
        "evidence": {"vif": 2.0, "prior_shrinkage": 0.0, "bound_share": 0.0, "bootstrap_cv": 0.02},
        "meaning": "",
    } | changes


def calibration(*coefficients: dict[str, Any]) -> dict[str, Any]:
    """A calibration of these coefficients, or of every row."""
    return {
        "gpu": "H100-SXM",
        "digest": DIGEST,
        "composition": {
            "rule": "sum",
            "overlap_share": None,
            "scores": [{"rule": "sum", "median_ape": 0.02, "mape": 0.03}],
        },
        "coefficients": list(coefficients) or [coefficient(row[0]) for row in ROWS],
        "runs": [
            {"run": "a", "model": "m", "pool": "tp1", "steps": 1000, "kept": 990},
            {"run": "b", "model": "m", "pool": "tp1", "steps": 500, "kept": 480},
        ],
        "noise": {"median_spread": 0.01, "p90_spread": 0.04, "groups": 12, "steps": 90},
        "domain": [{"quantity": "requests", "low": 1, "high": 64, "unit": "requests"}],
        "autocorrelation": {"lag1": 0.2, "block_steps": 16, "inflation": 1.5},
        "condition": 12.5,
        "scale": 0.02,
        "converged": True,
        "seed": 0,
        "draws": 200,
        "warnings": ["one warning"],
    }
