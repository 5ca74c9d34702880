"""Frozen kernels: every file version loads for ever and gives the same numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelfit.kernel import Batch, FittedKernel, InvalidArgument, Model, RequestShape
from kernelfit.kernel.frozen import canonical, digest, from_data, to_data
from tests.kernel.builders import CHIP, dense, mixture
from tests.kernel.law_v1 import TRUTH, layer_times

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "kernels"
BATCH = (RequestShape(1, 500, 400), RequestShape(1, 90, 80), RequestShape(256, 64, 400, 64))


def test_version_1_loads_and_prices_as_an_independent_calculation() -> None:
    kernel = FittedKernel.load(GOLDEN / "kernel-v1.json")
    stages, launch = layer_times(mixture(), CHIP, 2, list(BATCH), TRUTH)
    host = launch + TRUTH["schedule_step_s"] + len(BATCH) * TRUTH["schedule_request_s"]
    estimate = kernel.step_time(Batch(BATCH))
    assert estimate.overlap_s == pytest.approx(sum(max(s) for s in stages) + host, rel=1e-9)
    assert estimate.no_overlap_s == pytest.approx(sum(sum(s) for s in stages) + host, rel=1e-9)
    # The file holds an overlap share of 0.25 and a second draw with a launch of 2 ms.
    mean = kernel.calibrated_step_time(Batch(BATCH)).mean_s
    expected = 0.75 * estimate.no_overlap_s + 0.25 * estimate.overlap_s
    assert mean == pytest.approx(expected, rel=1e-9)
    drawn = kernel.with_draw(1).calibrated_step_time(Batch(BATCH)).mean_s
    assert drawn - mean == pytest.approx(2e-3 - TRUTH["launch_step_s"], rel=1e-6)


def test_version_1_is_written_back_byte_for_byte() -> None:
    text = (GOLDEN / "kernel-v1.json").read_text(encoding="utf-8")
    assert FittedKernel.load(GOLDEN / "kernel-v1.json").to_json() == text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "Calibration"}, "kind"),
        ({"schema_version": 2}, "schema_version"),
        ({"engine_version": "0.1"}, "digest"),
    ],
)
def test_other_documents_are_refused(change: dict[str, object], message: str) -> None:
    document = json.loads((GOLDEN / "kernel-v1.json").read_text(encoding="utf-8"))
    FittedKernel.from_document(document)
    with pytest.raises(InvalidArgument, match=message):
        FittedKernel.from_document({**document, **change})


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("model", "hidden"), "1024", "model.hidden"),
        (("model", "colour"), 1, "colour"),
        (("chip", "hbm_bytes"), None, "chip.hbm_bytes"),
        (("fitted", "overlap_share"), 1.5, "overlap_share"),
        (("pool", "tp"), True, "pool.tp"),
    ],
)
def test_a_wrong_part_is_named(path: tuple[str, str], value: object, message: str) -> None:
    document = json.loads((GOLDEN / "kernel-v1.json").read_text(encoding="utf-8"))
    document[path[0]][path[1]] = value
    document["digest"] = digest(document)
    with pytest.raises(InvalidArgument, match=message):
        FittedKernel.from_document(document)


@pytest.mark.parametrize("model", [dense(), mixture()])
def test_dataclasses_round_trip(model: Model) -> None:
    assert from_data(Model, json.loads(canonical(to_data(model)))) == model


def test_a_missing_key_is_named() -> None:
    data = to_data(dense())
    del data["vocab"]
    with pytest.raises(InvalidArgument, match=r"Model\.vocab"):
        from_data(Model, data)


@given(st.dictionaries(st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=False)))
def test_digests_ignore_the_order_of_keys(data: dict[str, float]) -> None:
    turned = dict(reversed(list(data.items())))
    assert digest(data) == digest(turned)


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical({"x": float("nan")})
