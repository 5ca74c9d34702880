"""The BLIS set says what the calibration says, and no more than that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ruamel.yaml import YAML

from kernelfit.export.blis import TARGET
from kernelfit.export.blis_check import validate_coefficient_set
from kernelfit.export.blis_names import blis_chip_name
from kernelfit.kernel import Batch, FittedKernel, Resource
from kernelfit.kernel.errors import InvalidArgument
from tests.export.samples import OPTIONS, VALUES, kernels
from tests.kernel.builders import DEPLOYED, dense, fitted

KERNELS = kernels()


def text_of(kernel: FittedKernel, **settings: str) -> str:
    """The text of a kernel's set."""
    (file,) = TARGET.export(kernel, replace(OPTIONS, settings=settings))
    assert isinstance(file.data, str)
    return file.data


def entries(kernel: FittedKernel, **settings: str) -> dict[str, dict[str, Any]]:
    """The entries of a set by name."""
    document = YAML(typ="safe", pure=True).load(text_of(kernel, **settings))
    found: dict[str, dict[str, Any]] = {}
    for item in document["coefficients"]:
        (name,) = item
        assert name not in found
        found[name] = item[name]
    return found


def judged(verdict: str, method: str = "measured") -> FittedKernel:
    """A kernel whose every coefficient got one verdict."""
    given = fitted(**VALUES)
    changed = tuple(
        replace(c, verdict=verdict, method=method, ci95=(0.5 * c.value, 2 * c.value))
        for c in given.coefficients
    )
    return DEPLOYED["dense"].kernel(replace(given, coefficients=changed))


@pytest.mark.parametrize("name", sorted(DEPLOYED))
def test_every_set_is_valid_and_every_coefficient_expressed_or_named(name: str) -> None:
    kernel = KERNELS[name]
    assert validate_coefficient_set(text_of(kernel)) == ()
    missing = {each.name: each.reason for each in TARGET.missing(kernel, OPTIONS)}
    assert all(missing.values())
    rationales = " ".join(str(entry["rationale"]) for entry in entries(kernel).values())
    for coefficient in kernel.plan.coefficients:
        assert (coefficient in missing) != (f"{coefficient}: " in rationales), coefficient


def test_values_in_the_units_of_the_set() -> None:
    found = entries(KERNELS["graphs"])
    # 0.7 of 1 TB/s are 700,000 bytes in a microsecond.
    rate = found["attention_decode_rate"]
    assert (rate["value"], rate["units"]) == (700000.0, "bytes_per_us")
    assert (found["gemm_eps_max_bf16"]["value"], found["gemm_m_half_bf16"]["value"]) == (0.8, 120)
    assert found["hbm_derate"]["value"] == 0.8
    assert found["host_replay_graph_per_step"]["value"] == 7.0
    # A plain dense layer: two norms and eight operations, of which the floor is one.
    assert found["attention_decode_floor"]["value"] == 10.0
    assert found["host_launch_eager_per_layer"]["value"] == 100.0
    # Latent attention: four norms, eight operations and the MLP's three, against ten.
    latent = entries(KERNELS["mla"])
    assert latent["attention_decode_floor_mla"]["value"] == pytest.approx(15.0)
    assert latent["host_launch_eager_per_layer"]["value"] == pytest.approx(150.0)
    sliding = entries(KERNELS["alternating"])
    assert {"attention_decode_rate", "attention_decode_rate_swa"} <= set(sliding)


def test_prefill_attention_costs_the_same_where_a_step_is_full() -> None:
    found = entries(KERNELS["dense"])
    # BLIS: peak x eps x m / (m + m_half) x scale; ours: 0.4 of the peak. Full: 8192 tokens.
    envelope = 0.8 * 8192 / (8192 + 120)
    assert found["attention_prefill_work_scale"]["value"] * envelope == pytest.approx(0.4)
    assert found["attention_prefill_work_scale"]["method"] == "assumed"


@pytest.mark.parametrize("tokens", [1, 40, 1000, 8000])
def test_collectives_are_expressed_exactly(tokens: int) -> None:
    """BLIS's law over messages against the kernel's own time on the link."""
    kernel, found = KERNELS["graphs"], entries(KERNELS["graphs"])

    def time_s(op: str, message_bytes: float) -> float:
        floor, slow, fast = (
            found[f"collective_{part}_{op}_fp16_2rank_round_gpu"]["value"]
            for part in ("floor", "transition_rate", "peak_rate")
        )
        return 1e-6 * max(floor + message_bytes / slow, message_bytes / fast)

    from kernelfit.kernel import RequestShape

    batch = Batch((RequestShape(tokens, 0, tokens),))
    padded = next((size for size in (1, 2, 4, 8, 16, 24, 32, 64) if size >= tokens), tokens)
    # Four layers with two all-reduces of 1024 elements a token, one gather of 32000 logits.
    expected = 8 * time_s("all_reduce", padded * 1024 * 2) + time_s("all_gather", 32000 * 2)
    spent = dict(kernel.step_time(batch).per_resource_s)[Resource.NVLINK]
    assert spent == pytest.approx(expected, rel=1e-9)


def test_every_width_of_a_spread_mixture_has_its_triple() -> None:
    names = set(entries(KERNELS["moe-spread"]))
    # Sequence-parallel experts gather over all four ranks; attention reduces over its two.
    groups = (
        "all_reduce_fp16_2",
        "all_gather_fp16_2",
        "all_gather_fp16_4",
        "reduce_scatter_fp16_4",
    )
    for group in groups:
        for part in ("floor", "transition_rate", "peak_rate"):
            assert f"collective_{part}_{group}rank_round_gpu" in names
    assert "collective_floor_alltoall_fp16_4rank_round_gpu" in set(entries(KERNELS["moe-alltoall"]))
    across = set(entries(KERNELS["two-nodes"]))
    assert not {name for name in across if name.startswith("collective")}


@pytest.mark.parametrize(
    ("verdict", "method", "published", "near"),
    [
        ("identified", "measured", "measured", "assumed"),
        ("weak", "measured", "assumed", "assumed"),
        ("at_bound", "measured", "assumed", "assumed"),
        ("prior", "literature", "literature", "assumed"),
        ("prior", "vendor_spec", "vendor_spec", "assumed"),
        ("prior", "copied", "copied", "assumed"),
        ("prior", "assumed", "assumed", "assumed"),
    ],
)
def test_the_verdict_decides_the_method(
    verdict: str, method: str, published: str, near: str
) -> None:
    kernel = judged(verdict, method)
    assert validate_coefficient_set(text_of(kernel)) == ()
    found = entries(kernel)
    derate, floor = found["hbm_derate"], found["attention_decode_floor"]
    assert (derate["method"], derate["fitted"]) == (published, published == "measured")
    assert (floor["method"], floor["fitted"]) == (near, False)
    assert derate["ci95"] == [0.4, 1.6]
    assert derate["sources"][0]["cite"]


def test_only_what_was_identified() -> None:
    kernel = judged("weak")
    with pytest.raises(InvalidArgument, match="an entry"):
        text_of(kernel, verdicts="identified")
    given = kernel.fitted
    changed = tuple(
        replace(c, verdict="identified") if c.name == "hbm_weight_eff" else c
        for c in given.coefficients
    )
    kernel = FittedKernel.from_plan(kernel.plan, replace(given, coefficients=changed))
    assert set(entries(kernel, verdicts="identified")) == {"hbm_derate"}
    options = replace(OPTIONS, settings={"verdicts": "identified"})
    reasons = {each.name: each.reason for each in TARGET.missing(kernel, options)}
    assert reasons["hbm_kv_eff"] == "not identified by the logs (weak)"
    with pytest.raises(InvalidArgument, match="verdicts"):
        text_of(kernel, verdicts="some")


def test_launches_are_not_counted_twice() -> None:
    entry = entries(KERNELS["dense"])["host_launch_per_kernel"]
    assert (entry["value"], entry["method"], entry["fitted"]) == (0, "not_charged", False)


def test_names_scopes_and_provenance() -> None:
    found = entries(KERNELS["graphs"], chip="my-chip")
    assert "collective_floor_all_reduce_fp16_2rank_my_chip" in found
    assert all(entry["scope"]["hardware"] == ["my-chip"] for entry in found.values())
    assert found["attention_decode_floor"]["scope"]["model"] == ["dense"]
    text = text_of(KERNELS["graphs"], chip="my-chip")
    assert f"# kernel: {KERNELS['graphs'].digest}\n" in text
    assert "# command: kernelfit export blis sample.json --set chip=my-chip\n" in text
    assert blis_chip_name("H100-SXM") == "h100"
    assert blis_chip_name("B300") == "b300"


def test_unknown_types_have_no_envelope() -> None:
    from tests.kernel.builders import CHIP, EAGER, coefficients

    chip = replace(CHIP, peak_flop_per_s=(("fp32", 50e12),))
    model = replace(dense(), dtype="fp32", weight_dtype="fp32")
    given = replace(fitted(), coefficients=coefficients(("fp32",)))
    kernel = FittedKernel.of(model, chip, replace(EAGER, cache_dtype="auto"), "0.32.0", given)
    assert not {name for name in entries(kernel) if name.startswith("gemm")}
    reasons = {each.name: each.reason for each in TARGET.missing(kernel, OPTIONS)}
    assert "bf16, fp8, nvfp4" in reasons["gemm_eff_fp32"]
