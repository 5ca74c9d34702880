"""Host work around the step, in the formats that have a place for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from kernelfit.export import blis, inference_sim, plain
from kernelfit.export.blis_check import validate_coefficient_set
from kernelfit.export.inference_sim_fit import project
from kernelfit.export.plain import plain_document, plain_schema
from kernelfit.kernel import FittedKernel
from tests.export.samples import OPTIONS, kernels

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "kernels"
# Holds 200 us and 1.5 us per prompt token; 40 us a call and 30 us an output; 90 us at the end.
KERNEL = FittedKernel.load(GOLDEN / "kernel-v3.json")
WITHOUT = FittedKernel.load(GOLDEN / "kernel-v2.json")


def entries(kernel: FittedKernel) -> dict[str, dict[str, Any]]:
    (file,) = blis.TARGET.export(kernel, OPTIONS)
    assert isinstance(file.data, str)
    assert validate_coefficient_set(file.data) == ()
    document = YAML(typ="safe", pure=True).load(file.data)
    return {name: item[name] for item in document["coefficients"] for name in item}


@pytest.mark.parametrize(
    ("name", "value", "units"),
    [
        ("host_admission_per_request", 200.0, "us_per_request"),
        ("host_admission_per_token", 1.5, "us_per_token"),
        ("host_output_token", 30.0, "us_per_token"),
        ("host_completion", 90.0, "us_per_request"),
    ],
)
def test_blis_has_the_registry_names_in_its_units(name: str, value: float, units: str) -> None:
    entry = entries(KERNEL)[name]
    assert entry["value"] == pytest.approx(value)
    assert (entry["units"], entry["method"], entry["fitted"]) == (units, "measured", True)
    assert entry["ci95"] == pytest.approx([0.9 * value, 1.1 * value])
    assert "vllm 0.32.0; tokeniser of 32,000 words" in entry["rationale"]
    assert "front end's own times" in entry["rationale"]
    assert name not in entries(WITHOUT)


def test_what_blis_has_no_place_for_is_named() -> None:
    missing = {each.name: each.reason for each in blis.TARGET.missing(KERNEL, OPTIONS)}
    assert "nothing for a call" in missing["output_call_s"]
    assert "output_extra_token_s" in missing
    assert "output_call_s" not in {e.name for e in blis.TARGET.missing(WITHOUT, OPTIONS)}


def dense_with_front_end() -> FittedKernel:
    """A kernel that inference-sim's formula can price, with the front end of the golden file."""

    kernel = kernels()["dense"]
    around = tuple(
        c for c in KERNEL.fitted.coefficients if c.name.startswith(("admission", "output", "compl"))
    )
    fitted = replace(kernel.fitted, coefficients=(*kernel.fitted.coefficients, *around))
    return FittedKernel.from_plan(kernel.plan, fitted)


def test_the_alphas_of_inference_sim() -> None:
    kernel = dense_with_front_end()
    # One token alone in its call takes the call and the token.
    assert project(kernel).alphas == (200.0, 90.0, 70.0)
    files = inference_sim.TARGET.export(kernel, OPTIONS)
    assert inference_sim.TARGET.check(files) == ()
    text = files[0].content.decode()
    assert "- 200.0  # alpha0: before a request is queued [us] = admission_request_s, " in text
    assert "tokeniser of 32,000 words" in text
    missing = {each.name for each in inference_sim.TARGET.missing(kernel, OPTIONS)}
    assert {"admission_token_s", "output_call_s"} <= missing
    bare = inference_sim.TARGET.export(kernels()["dense"], OPTIONS)[0].content.decode()
    assert "0: completion_s is not_charged, step logs hold no front-end times" in bare


def test_the_plain_form_holds_them_and_follows_its_schema() -> None:
    document = plain_document(KERNEL, OPTIONS)
    jsonschema.validate(document, plain_schema())
    known = {entry["name"]: entry["value"] for entry in document["coefficients"]}
    assert known["admission_token_s"] == 1.5e-6
    assert plain.check_plain(json.dumps(document)) == ()
    assert "admission_token_s" not in json.dumps(plain_document(WITHOUT, OPTIONS))
