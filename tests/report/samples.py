"""Handcrafted result documents, small enough to check by eye: a good fit and a bad one."""

from __future__ import annotations

import copy
from typing import Any

Result = dict[str, Any]

DIGEST = "sha256:" + "0123456789abcdef" * 4
PEAK_FLOP_PER_S = 989e12
PEAK_BYTES_PER_S = 3.35e12


def coefficient(
    name: str,
    value: float,
    unit: str,
    ci95: list[float],
    verdict: str = "identified",
    **more: Any,
) -> Result:
    """One coefficient with evidence to match."""
    entry: Result = {
        "name": name,
        "value": value,
        "unit": unit,
        "ci95": ci95,
        "verdict": verdict,
        "method": "measured" if verdict == "identified" else "assumed",
        "scope": "H100-SXM",
        "peak": None,
        "share_of_peak": None,
        "prior": {"value": None, "source": "none"},
        "alias": [],
        "evidence": {"vif": 2.0, "prior_shrinkage": 0.1, "bound_share": 0.0, "bootstrap_cv": 0.02},
        "meaning": f"What {name} means",
    }
    entry.update(more)
    return entry


def validation(
    rows: list[tuple[str, str, str, str, int, float, float]], gpu: str = "H100-SXM"
) -> list[Result]:
    """Rows of the validation, the other figures in a fixed ratio to the median."""
    return [
        {
            "gpu": gpu,
            "predictor": predictor,
            "split": split,
            "group": group,
            "phase": phase,
            "n": n,
            "median_ape": median,
            "mape": median * 1.25,
            "p90_ape": median * 3.0,
            "bias": bias,
        }
        for predictor, split, group, phase, n, median, bias in rows
    ]


def small_result() -> Result:
    """A good fit of one model on one GPU type, small enough to check by eye."""
    return {
        "schema": "kernelfit.fit/1",
        "version": "0.1.0",
        "command": "kernelfit fit traces/",
        "seed": 0,
        "ingest": [{"file": "run-a", "lines": 1005, "steps": 1000, "recognised": 4, "rejected": 1}],
        "gates": [
            {"id": "warm-up", "run": "run-a", "rows": 12, "rule": "the first steps of a run"},
        ],
        "calibrations": [
            {
                "gpu": "H100-SXM",
                "digest": DIGEST,
                "composition": {
                    "rule": "share",
                    "overlap_share": 0.25,
                    "scores": [
                        {"rule": "sum", "median_ape": 0.04, "mape": 0.05},
                        {"rule": "share", "median_ape": 0.021, "mape": 0.026},
                    ],
                },
                "coefficients": [
                    coefficient(
                        "gemm_eff_bf16",
                        0.7,
                        "1",
                        [0.69, 0.71],
                        peak=PEAK_FLOP_PER_S,
                        share_of_peak=0.7,
                        prior={"value": 0.8, "source": "datasheet with 0.8 derate"},
                    ),
                    coefficient(
                        "hbm_weight_eff",
                        0.8,
                        "1",
                        [0.795, 0.805],
                        peak=PEAK_BYTES_PER_S,
                        share_of_peak=0.8,
                    ),
                    coefficient("launch_step_s", 0.00125, "s/step", [0.00119, 0.00131]),
                ],
                "runs": [
                    {"run": "run-a", "model": "m-8b", "pool": "tp1", "steps": 1000, "kept": 988}
                ],
                "noise": {"median_spread": 0.012, "p90_spread": 0.05, "groups": 40, "steps": 400},
                "domain": [{"quantity": "requests", "low": 1, "high": 64, "unit": "requests"}],
                "autocorrelation": {"lag1": 0.31, "block_steps": 32},
                "warnings": [],
            }
        ],
        "validation": validation(
            [
                ("kernelfit", "time_block", "m-8b", "all", 200, 0.021, 0.004),
                ("datasheet", "time_block", "m-8b", "all", 200, 0.41, -0.4),
                ("kernelfit", "time_block", "m-8b", "decode", 150, 0.019, 0.003),
                ("datasheet", "time_block", "m-8b", "decode", 150, 0.39, -0.38),
            ]
        ),
        "bounds": [
            {
                "gpu": "H100-SXM",
                "group": "m-8b",
                "phase": "all",
                "n": 200,
                "below": 10,
                "inside": 170,
                "above": 20,
                "inside_with_noise": 190,
            }
        ],
        "coverage": [
            {
                "gpu": "H100-SXM",
                "split": "time_block",
                "group": "m-8b",
                "phase": "all",
                "level": 0.95,
                "n": 200,
                "covered": 188,
            }
        ],
        "flips": {
            "flags": [
                {
                    "pool": "tp1",
                    "load": "2 req/s",
                    "conclusion": "meets_target",
                    "flag": "measure",
                    "overlap": True,
                    "no_overlap": False,
                    "fitted": True,
                    "margin": 0.04,
                    "measurement": "200 decode steps of 48 requests at 2,000 tokens",
                },
                {
                    "pool": "tp1",
                    "load": "1 req/s",
                    "conclusion": "largest_batch",
                    "flag": "agree",
                    "overlap": 64,
                    "no_overlap": 64,
                    "fitted": 64,
                    "margin": 0.5,
                    "measurement": None,
                },
            ]
        },
        "kernels": [
            {
                "file": "calib/kernels/m-8b-tp1.json",
                "pool": "tp1",
                "model": "m-8b",
                "gpu": "H100-SXM",
                "digest": DIGEST,
            }
        ],
        "points": [
            {
                "gpu": "H100-SXM",
                "run": ["run-a"] * 4,
                "model": ["m-8b"] * 4,
                "phase": ["decode", "decode", "mixed", "prefill"],
                "step": [10, 11, 12, 13],
                "measured_s": [0.01, 0.012, 0.04, 0.1],
                "predicted_s": [0.0102, 0.0118, 0.041, 0.097],
                "overlap_s": [0.009, 0.011, 0.03, 0.08],
                "no_overlap_s": [0.0105, 0.0125, 0.045, 0.11],
                "requests": [4, 8, 9, 1],
                "context_tokens": [4000, 9000, 9100, 0],
                "tokens": [4, 8, 520, 2048],
                "held_out": True,
            }
        ],
        "breakdown": [
            {
                "gpu": "H100-SXM",
                "model": "m-8b",
                "pool": "tp1",
                "context_tokens": 1024,
                "requests": [1, 8, 64],
                "per_resource_s": {
                    "sm": [0.0001, 0.001, 0.012],
                    "hbm": [0.006, 0.0062, 0.008],
                    "host": [0.001, 0.001, 0.001],
                },
                "overlap_s": [0.007, 0.0072, 0.013],
                "no_overlap_s": [0.0071, 0.0082, 0.021],
                "fitted_s": [0.00705, 0.008, 0.019],
            }
        ],
    }


def bad_result() -> Result:
    """A fit that went wrong in every way at once: at a bound, aliased, kept from priors."""
    result = copy.deepcopy(small_result())
    calibration = result["calibrations"][0]
    calibration["coefficients"] = [
        coefficient(
            "gemm_eff_bf16",
            1.0,
            "1",
            [0.9, 1.0],
            "at_bound",
            peak=PEAK_FLOP_PER_S,
            share_of_peak=1.0,
            evidence={
                "vif": 40.0,
                "prior_shrinkage": 0.0,
                "bound_share": 0.81,
                "bootstrap_cv": 0.1,
            },
        ),
        coefficient(
            "hbm_weight_eff",
            0.8,
            "1",
            [0.3, 1.0],
            "prior",
            method="vendor_spec",
            peak=PEAK_BYTES_PER_S,
            share_of_peak=0.8,
            alias=["launch_step_s"],
            prior={"value": 0.8, "source": "datasheet with 0.8 derate"},
            evidence={
                "vif": 380.0,
                "prior_shrinkage": 1.0,
                "bound_share": 0.0,
                "bootstrap_cv": 0.4,
            },
        ),
        coefficient("launch_step_s", 0.0, "s/step", [0.0, 0.002], "weak", alias=["hbm_weight_eff"]),
    ]
    calibration["noise"] = {"median_spread": None, "p90_spread": None, "groups": 0, "steps": 0}
    calibration["warnings"] = ["rank 2 of 3: weight reads and the step constant are one column"]
    calibration["composition"] = {"rule": "sum", "overlap_share": None, "scores": []}
    calibration["domain"] = []
    result["validation"] = []
    result["bounds"] = []
    result["coverage"] = []
    result["flips"] = {"flags": []}
    result["points"] = []
    result["breakdown"] = []
    result["kernels"] = []
    result["gates"] = []
    return result
