"""Frozen kernels: every file version loads for ever and gives the same numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.kernel import Batch, FittedKernel, InvalidArgument, Model, RequestShape, plan
from kernelfit.kernel.frozen import canonical, digest, from_data, to_data
from kernelfit.kernel.tables import table_of
from tests.kernel.builders import CHIP, DEPLOYED, alternating, batches, dense, fitted, mixture
from tests.kernel.law_v1 import TRUTH, layer_times
from tests.kernel.law_v2 import Step

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "kernels"
OLD = FittedKernel.load(GOLDEN / "kernel-v1.json")
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


@pytest.mark.parametrize(
    ("requests", "rows"),
    [
        (BATCH[:2], 2),
        (BATCH[:2] * 20, 64),
        ((*BATCH[:2], RequestShape(20, 64, 400)), 24),
        (BATCH, 258),
    ],
)
def test_version_1_with_graphs_prices_as_an_independent_calculation(
    requests: tuple[RequestShape, ...], rows: int
) -> None:
    kernel = FittedKernel.load(GOLDEN / "kernel-v1-graphs.json")
    stages, launch = layer_times(mixture(), CHIP, 2, list(requests), TRUTH, rows, graphs=True)
    host = launch + TRUTH["schedule_step_s"] + len(requests) * TRUTH["schedule_request_s"]
    estimate = kernel.step_time(Batch(requests))
    assert estimate.overlap_s == pytest.approx(sum(max(s) for s in stages) + host, rel=1e-9)
    assert estimate.no_overlap_s == pytest.approx(sum(sum(s) for s in stages) + host, rel=1e-9)
    table = table_of([kernel.totals(Batch(requests))])
    assert kernel.step_times(table)["no_overlap_s"] == pytest.approx([estimate.no_overlap_s])
    again = FittedKernel.from_document(json.loads(kernel.to_json()))
    assert again.step_time(Batch(requests)) == estimate


@given(batches(8))
@settings(max_examples=25)
def test_version_1_is_written_as_version_2_and_prices_the_same_to_the_bit(batch: Batch) -> None:
    document = json.loads(OLD.to_json())
    assert document["schema_version"] == 2
    again = FittedKernel.from_document(document)
    assert again == OLD
    assert again.step_time(batch) == OLD.step_time(batch)
    assert again.calibrated_step_time(batch) == OLD.calibrated_step_time(batch)
    assert again.with_draw(1).step_time(batch) == OLD.with_draw(1).step_time(batch)
    # From then on it stays as it is.
    assert again.to_json() == OLD.to_json()


def test_version_1_keeps_its_own_digest_in_its_own_file() -> None:
    text = (GOLDEN / "kernel-v1.json").read_text(encoding="utf-8")
    document = json.loads(text)
    assert document["digest"] == digest(document)
    assert canonical(document, indent=1) + "\n" == text
    assert not {"terms", "basis", "resolution"} & set(document)
    # What is written carries its terms, so its contents and digest are others.
    assert OLD.digest != document["digest"]


# Version 2: sliding and full attention in turn, experts, two ranks, graphs, two draws.
NEW_TRUTH = {
    "gemm_eff_bf16": 0.61,
    "gemm_m_half_bf16": 37.0,
    "attention_eff_bf16": 0.29,
    "hbm_weight_eff": 0.73,
    "hbm_expert_eff": 0.83,
    "hbm_kv_eff": 0.53,
    "hbm_activation_eff": 0.17,
    "allreduce_custom_floor_s": 1.9e-5,
    "allreduce_custom_transition_eff": 0.19,
    "allreduce_custom_eff": 0.07,
    "allgather_floor_s": 4.3e-5,
    "allgather_transition_eff": 0.41,
    "allgather_eff": 0.23,
    "attention_head_s": 1.1e-6,
    "expert_floor_s": 1.3e-5,
    "layer_floor_s": 2.9e-5,
    "launch_graph_s": 7.3e-6,
    "launch_attention_s": 2.3e-5,
    "launch_layer_s": 8.9e-5,
    "launch_step_s": 1.1e-3,
    "launch_request_s": 1.7e-5,
    "schedule_step_s": 3.1e-4,
    "schedule_request_s": 1.3e-5,
}
DECODES = tuple(RequestShape(1, context, 9) for context in (20, 127, 128, 700, 3000))
CHUNK = RequestShape(40, 300, 900)
# The batch, the rows that its graph holds and the slots that attention pays for, and what
# launches it: one graph, or five pieces and four attentions, or four layers.
NEW_BATCHES = (
    (DECODES, 8, 8, 7.3e-6),
    ((*DECODES, CHUNK), 64, 6, 5 * 7.3e-6 + 4 * 2.3e-5),
    ((*DECODES, CHUNK, CHUNK), 85, 7, 4 * 8.9e-5),
)


@pytest.mark.parametrize(("requests", "rows", "slots", "launch"), NEW_BATCHES)
@pytest.mark.parametrize("drawn", [False, True])
def test_version_2_loads_and_prices_as_an_independent_calculation(
    requests: tuple[RequestShape, ...], rows: int, slots: int, launch: float, drawn: bool
) -> None:
    kernel = FittedKernel.load(GOLDEN / "kernel-v2.json")
    truth, share = dict(NEW_TRUTH), 0.25
    if drawn:
        # Its second draw.
        kernel, share = kernel.with_draw(1), 0.75
        truth |= {"hbm_kv_eff": 0.31, "expert_floor_s": 2.9e-5, "launch_step_s": 2e-3}
    step = Step(alternating(), CHIP, 2, requests, truth, rows, slots)
    waited = truth["launch_step_s"] + 3.1e-4 + len(requests) * (1.7e-5 + 1.3e-5)
    estimate = kernel.step_time(Batch(requests))
    overlap, no_overlap = step.overlap(), step.no_overlap()
    assert estimate.overlap_s == pytest.approx(max(overlap, launch) + waited, rel=1e-9)
    assert estimate.no_overlap_s == pytest.approx(no_overlap + launch + waited, rel=1e-9)
    device = (1 - share) * no_overlap + share * overlap
    mean = kernel.mean_step_time(kernel.totals(Batch(requests)))
    assert mean == pytest.approx(max(device, launch) + waited, rel=1e-9)


def test_version_2_holds_its_terms_and_leans_on_no_law_of_today(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = FittedKernel.load(GOLDEN / "kernel-v2.json").step_time(Batch(DECODES))

    def gone(*_: object) -> None:
        raise AssertionError("a file of version 2 needs no law")

    for name in ("resolve", "basis_of", "build_terms"):
        monkeypatch.setattr(plan, name, gone)
    kernel = FittedKernel.load(GOLDEN / "kernel-v2.json")
    assert kernel.step_time(Batch(DECODES)) == expected
    assert kernel.plan.basis.windows == (128,)
    assert kernel.plan.resolution.capture_sizes == (1, 2, 4, 8, 16, 24, 32, 64)


def test_a_file_of_any_version_is_complete() -> None:
    for name in ("kernel-v1.json", "kernel-v1-graphs.json", "kernel-v2.json", "kernel-v3.json"):
        document = json.loads((GOLDEN / name).read_text(encoding="utf-8"))
        FittedKernel.from_document(document)
        for part in set(document) - {"digest", "kind", "schema_version", "engine_version"}:
            cut = {key: value for key, value in document.items() if key != part}
            with pytest.raises(InvalidArgument, match=part):
                FittedKernel.from_document({**cut, "digest": digest(cut)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "Calibration"}, "kind"),
        ({"schema_version": 4}, "schema_version"),
        ({"schema_version": 0}, "schema_version"),
        ({"schema_version": "1"}, "schema_version"),
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


@pytest.mark.parametrize("model", [d.model for d in DEPLOYED.values()], ids=DEPLOYED)
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


def test_a_tampered_file_is_refused() -> None:
    kernel = DEPLOYED["mla"].kernel(fitted(share=0.3))
    document = json.loads(kernel.to_json())
    FittedKernel.from_document(document)
    document["fitted"]["overlap_share"] = 0.4
    with pytest.raises(InvalidArgument, match="digest"):
        FittedKernel.from_document(document)


def test_what_is_no_kernel_file_is_refused_as_such(tmp_path: Path) -> None:
    path = tmp_path / "kernel.json"
    for text, message in (("{", "frozen kernel"), ("[]", "an object"), ("{}", "kind")):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(InvalidArgument, match=message):
            FittedKernel.load(path)
    kernel = DEPLOYED["alternating"].kernel(fitted())
    path.write_text(kernel.to_json(), encoding="utf-8")
    assert FittedKernel.load(path) == kernel


def test_version_3_is_version_2_with_a_front_end() -> None:
    kernel = FittedKernel.load(GOLDEN / "kernel-v3.json")
    steps = FittedKernel.load(GOLDEN / "kernel-v2.json")
    assert kernel.to_document() == json.loads((GOLDEN / "kernel-v3.json").read_text("utf-8"))
    assert kernel.step_time(Batch(BATCH)) == steps.step_time(Batch(BATCH))
    # The file holds 200 us and 1.5 us per prompt token; 40 us a call, 30 us an output and
    # 5 us for a further token; 90 us for the end. Each draw adds a twentieth.
    assert kernel.admission_overhead(1000) == pytest.approx(200e-6 + 1000 * 1.5e-6)
    assert kernel.output_token_overhead() == pytest.approx(70e-6)
    assert kernel.output_token_overhead(8) == pytest.approx(35e-6)
    assert kernel.front_end.output_call(8, 10) == pytest.approx(290e-6)
    assert kernel.completion_overhead() == pytest.approx(90e-6)
    assert kernel.with_draw(1).completion_overhead() == pytest.approx(1.05 * 90e-6)
    origins = {origin.name: origin for origin in kernel.provenance()}
    assert origins["admission_token_s"].method == "measured"
    assert origins["output_extra_token_s"].method == "assumed"
    assert origins["completion_s"].scope.endswith("vllm 0.32.0; tokeniser of 32,000 words")
    assert "not_charged" not in {origin.method for origin in kernel.provenance()}


def test_without_a_front_end_a_file_stays_version_2() -> None:
    kernel = FittedKernel.load(GOLDEN / "kernel-v2.json")
    assert kernel.to_document()["schema_version"] == 2
    assert kernel.admission_overhead(1000) == kernel.completion_overhead() == 0.0
    assert kernel.output_token_overhead(8) == 0.0
    methods = {origin.name: origin.method for origin in kernel.provenance()}
    assert methods["output_call_s"] == methods["admission_request_s"] == "not_charged"


def test_impossible_counts_of_the_front_end_are_refused() -> None:
    kernel = FittedKernel.load(GOLDEN / "kernel-v3.json")
    with pytest.raises(InvalidArgument, match="prompt_tokens"):
        kernel.admission_overhead(-1)
    with pytest.raises(InvalidArgument, match="outputs"):
        kernel.output_token_overhead(0)
    with pytest.raises(InvalidArgument, match="one per request output"):
        kernel.front_end.output_call(8, 7)
    assert kernel.admission_overhead(0) == pytest.approx(200e-6)
