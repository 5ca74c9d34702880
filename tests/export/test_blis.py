"""The BLIS set says what the calibration says, and no more than that."""

from __future__ import annotations

from typing import Any

import pytest
from ruamel.yaml import YAML

from kernelfit.export.blis import blis_chip_name, export_blis
from kernelfit.export.blis_check import validate_coefficient_set
from tests.export.samples import ROWS, calibration, coefficient

HOST = {
    "launch_layer_s": ("host_launch_eager_per_layer", "us_per_layer"),
    "graph_replay_s": ("host_replay_graph_per_step", "us_per_step"),
    "admission_request_s": ("host_admission_per_request", "us_per_request"),
    "admission_token_s": ("host_admission_per_token", "us_per_token"),
    "output_token_s": ("host_output_token", "us_per_token"),
    "completion_s": ("host_completion", "us_per_request"),
}


def entries(text: str) -> dict[str, dict[str, Any]]:
    """Read the entries of a set by name."""
    document = YAML(typ="safe", pure=True).load(text)
    assert document["kind"] == "CoefficientSet"
    found: dict[str, dict[str, Any]] = {}
    for item in document["coefficients"]:
        (name,) = item
        assert name not in found
        found[name] = item[name]
    return found


def test_every_coefficient_is_expressed_or_named() -> None:
    export = export_blis(calibration(), "h100")
    assert validate_coefficient_set(export.text) == ()
    left_out = {each.name for each in export.not_expressed}
    found = entries(export.text)
    assert len(found) + len(left_out - {"composition"}) == len(ROWS)
    assert set(found) == {
        "gemm_eps_max_bf16",
        "gemm_m_half_bf16",
        "gemm_eps_max_fp8",
        "hbm_derate",
        "attention_decode_rate",
        *(name for name, _ in HOST.values()),
    }
    assert all(each.reason for each in export.not_expressed)


def test_values_and_intervals_in_the_units_of_the_set() -> None:
    found = entries(export_blis(calibration(), "h100").text)
    # 0.72 of 3.35 TB/s is 2.412 TB/s, which is 2,412,000 bytes in a microsecond: the value
    # that the published set for this chip carries.
    rate = found["attention_decode_rate"]
    assert (rate["value"], rate["units"]) == (2412000.0, "bytes_per_us")
    assert rate["ci95"] == [2345000.0, 2479000.0]
    assert found["gemm_eps_max_bf16"]["value"] == 0.9
    assert found["gemm_m_half_bf16"]["units"] == "tokens"
    assert found["hbm_derate"]["ci95"] == [0.79, 0.81]
    for name, (target, units) in HOST.items():
        value, _, (low, high), _ = next(row[1:] for row in ROWS if row[0] == name)
        entry = found[target]
        assert entry["units"] == units
        assert entry["value"] == pytest.approx(1e6 * value, rel=1e-12)
        assert entry["ci95"] == pytest.approx([1e6 * low, 1e6 * high], rel=1e-12)
        assert len(repr(entry["value"])) <= 6, "digits that the change of unit brought in"


def test_identified_is_measured_and_cites_the_steps() -> None:
    entry = entries(export_blis(calibration(), "h100").text)["hbm_derate"]
    assert (entry["method"], entry["fitted"]) == ("measured", True)
    assert entry["scope"] == {"hardware": ["h100"]}
    (source,) = entry["sources"]
    assert source["role"] == "primary"
    assert "1470 steps of 2 runs" in source["cite"]
    assert "sha256:0123" in source["cite"]


@pytest.mark.parametrize(
    ("verdict", "method", "published"),
    [
        ("weak", "measured", "assumed"),
        ("at_bound", "measured", "assumed"),
        ("prior", "vendor_spec", "vendor_spec"),
        ("prior", "literature", "literature"),
        ("prior", "copied", "copied"),
        ("prior", "assumed", "assumed"),
        ("prior", "measured", "assumed"),
    ],
)
def test_what_is_not_identified_is_never_measured(
    verdict: str, method: str, published: str
) -> None:
    entry = coefficient(
        "hbm_weight_eff",
        verdict=verdict,
        method=method,
        alias=["launch_step_s"],
        prior={"value": 0.8, "source": "datasheet with 0.8 derate"},
    )
    text = export_blis(calibration(entry), "h100").text
    assert validate_coefficient_set(text) == ()
    found = entries(text)["hbm_derate"]
    assert (found["method"], found["fitted"]) == (published, False)
    assert "launch_step_s" in found["rationale"]
    if verdict == "prior":
        assert found["sources"][0]["cite"] == "datasheet with 0.8 derate"


def test_only_identified_leaves_the_rest_to_other_sets() -> None:
    document = calibration(
        coefficient("hbm_weight_eff"), coefficient("launch_layer_s", verdict="prior")
    )
    export = export_blis(document, "h100", only_identified=True)
    assert set(entries(export.text)) == {"hbm_derate"}
    assert "not identified by the step logs (prior)" in {e.reason for e in export.not_expressed}
    assert set(entries(export_blis(document, "h100").text)) == {
        "hbm_derate",
        "host_launch_eager_per_layer",
    }


def test_a_zero_is_not_published_as_a_cost_that_does_not_exist() -> None:
    document = calibration(
        coefficient("hbm_weight_eff"),
        coefficient("launch_layer_s", value=0.0, ci95=[0.0, 1e-6], verdict="at_bound"),
    )
    export = export_blis(document, "h100")
    assert set(entries(export.text)) == {"hbm_derate"}
    (zero,) = [each for each in export.not_expressed if each.name == "launch_layer_s"]
    assert "not_charged" in zero.reason


def test_a_rate_needs_a_peak() -> None:
    document = calibration(coefficient("hbm_weight_eff"), coefficient("hbm_kv_eff", peak=None))
    export = export_blis(document, "h100")
    assert "attention_decode_rate" not in entries(export.text)
    assert "hbm_kv_eff" in {each.name for each in export.not_expressed}


def test_an_interval_beside_the_value_is_left_out_and_said() -> None:
    export = export_blis(calibration(coefficient("hbm_weight_eff", ci95=[0.81, 0.9])), "h100")
    assert "ci95" not in entries(export.text)["hbm_derate"]
    assert "does not hold the value" in export.not_expressed[0].reason


def test_an_unknown_coefficient_is_named() -> None:
    odd = coefficient("hbm_weight_eff") | {"name": "warp_drive_s"}
    export = export_blis(calibration(coefficient("hbm_weight_eff"), odd), "h100")
    assert "warp_drive_s" in {each.name for each in export.not_expressed}


def test_refuses_what_is_no_number_and_what_leaves_nothing() -> None:
    with pytest.raises(ValueError, match="not finite"):
        export_blis(calibration(coefficient("hbm_weight_eff", value=float("nan"))), "h100")
    with pytest.raises(ValueError, match="no coefficient"):
        export_blis(calibration(coefficient("layer_floor_s")), "h100")


def test_chip_names_of_the_catalogue() -> None:
    assert blis_chip_name("H100-SXM") == "h100"
    assert blis_chip_name("A100-SXM-80GB") == "a100-sxm"
    assert blis_chip_name("L40S") == "l40s"


def test_same_bytes_every_time_and_a_name_of_its_own() -> None:
    assert export_blis(calibration(), "h100").text == export_blis(calibration(), "h100").text
    text = export_blis(calibration(), "h100", set_name="mine").text
    assert text.startswith(
        "kind: CoefficientSet\nname: mine\ncoefficients:\n  - gemm_eps_max_bf16:"
    )
