"""The formula is the simulator's, and its coefficients say how near the kernel they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from ruamel.yaml import YAML

from kernelfit.export import inference_sim_fit
from kernelfit.export.base import ExportedFile
from kernelfit.export.inference_sim import TARGET, utilisation
from kernelfit.export.inference_sim_check import check_defaults, check_flags, check_hardware
from kernelfit.export.inference_sim_fit import project, shape_of
from kernelfit.export.inference_sim_law import BETAS, SimShape, bases_us, step_time_us
from kernelfit.export.probes import kernel_times, probe_batches
from kernelfit.export.refused import NotExpressible
from kernelfit.kernel import Batch, Pool, RequestShape
from kernelfit.kernel.errors import InvalidArgument
from tests.export.samples import OPTIONS, kernels
from tests.kernel.builders import CHIP, DEPLOYED, EAGER, Deployed, dense, fitted, mixture

KERNELS = kernels()

# One FLOP and one byte in a microsecond, so that every figure is a count.
COUNTS = SimShape(2, 8, 2, 1, 16, 0, 0, 0, 2.0, 2.0, 1, False, False, 1e6, 1e6)
EXPERTS = replace(COUNTS, experts=4, per_token=2, shared_intermediate=8)
DECODE = Batch.decode(1, 10)
PROMPT = Batch((RequestShape(3, 1, 5),))


def basis(shape: SimShape, batch: Batch) -> dict[str, float]:
    return dict(zip(BETAS, shape.basis_us(batch).tolist(), strict=True))


def test_bases_of_a_dense_model_by_hand() -> None:
    """Two layers of 8 wide, 2 heads of 4, one KV head, an MLP of 16.

    Projections hold 8 x (2 x 8 + 2 x 4) = 192 elements, the MLP 3 x 8 x 16 = 384. A token
    takes 2 x (2 x 192 + 6 x 8 x 16) = 2304 FLOP.
    """
    decode = basis(COUNTS, DECODE)
    assert decode["beta2a"] == 2304 + 2 * 4 * 2 * 10 * 4
    assert decode["beta2b"] == 2 * 2 * 4 * 2 * (10 + 1)
    assert decode["beta3"] == 2 * (192 + 384) * 2
    assert (decode["beta5"], decode["beta6"], decode["beta7"]) == (2, 1, 1)
    assert {decode[n] for n in ("beta1a", "beta1b", "beta4", "beta8", "beta_EP")} == {0.0}
    prompt = basis(COUNTS, PROMPT)
    # The simulator takes the whole prompt as the context of its every chunk.
    assert prompt["beta1a"] == 3 * 2304 + 2 * 4 * 2 * 3 * (5 + 1.5) * 4
    assert prompt["beta1b"] == 2 * 2 * 4 * 2 * 3
    assert (prompt["beta2a"], prompt["beta2b"]) == (0.0, 0.0)


def test_bases_of_two_ranks_and_of_experts_by_hand() -> None:
    halves = basis(replace(COUNTS, tp=2, heads=4, kv_heads=2), PROMPT)
    # Two all-reduces in two layers, 3 x 8 elements of 2 bytes, twice (tp - 1) / tp.
    assert halves["beta4"] == 4 * 3 * 8 * 2 * 2 * 0.5
    one = basis(EXPERTS, DECODE)
    # One token of two out of four experts touches 4 x (1 - 1/2) = 2 of them.
    assert one["beta3"] == 2 * (192 + 2 * 384 + 3 * 8 * 8) * 2
    assert one["beta2a"] == 2 * (2 * 192 + 6 * 8 * 16 * 2 + 6 * 8 * 8) + 640
    whole = replace(EXPERTS, tp=2, expert_parallel=True)
    assert basis(whole, DECODE)["beta4"] == 2 * 1 * 8 * 2 * 2 * 0.5
    assert basis(whole, DECODE)["beta_EP"] == 2 * 1 * 0.5 * 2 * 8 * 2
    assert basis(replace(whole, sends_rows=True), DECODE)["beta_EP"] == 64
    assert basis(replace(EXPERTS, tp=2), DECODE)["beta_EP"] == 0.0


def test_a_step_is_whole_microseconds_of_eleven_betas() -> None:
    betas = [0.0] * 11
    assert step_time_us(COUNTS, betas, DECODE) == 1
    betas[6] = 12.9
    assert step_time_us(COUNTS, betas, DECODE) == 12
    for wrong in ([0.0] * 8, [*betas[:10], -1.0], [*betas[:10], float("nan")]):
        with pytest.raises(InvalidArgument, match="beta_coeffs"):
            step_time_us(COUNTS, wrong, DECODE)


@pytest.mark.parametrize("name", ["dense", "graphs", "async", "moe", "quantised", "cpu"])
def test_the_stated_error_is_that_of_the_published_coefficients(name: str) -> None:
    kernel = KERNELS[name]
    found = project(kernel)
    batches = probe_batches(kernel)
    kernel_s = kernel_times(kernel, batches)
    target_us = [step_time_us(found.shape, found.betas, batch) for batch in batches]
    error = np.abs(np.asarray(target_us) * 1e-6 / kernel_s - 1.0)
    everything = found.agreement[0]
    assert everything.batches == len(batches) >= 200
    assert everything.median == pytest.approx(float(np.median(error)))
    assert everything.worst == pytest.approx(float(error.max()))
    assert all(value >= 0.0 for value in found.betas)
    assert not any(b for b, used in zip(found.betas, found.used, strict=True) if not used)


def test_planted_coefficients_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What batches tell apart comes back; of the three constants, their sum."""
    kernel = Deployed(dense(), CHIP, replace(EAGER, tp=2)).kernel(fitted())
    shape = shape_of(kernel)
    planted = np.array([1.5, 2.0, 1.25, 40.0, 30.0, 5.0, 200.0, 0.0, 3.0, 1.75, 0.0])
    monkeypatch.setattr(
        inference_sim_fit,
        "kernel_times",
        lambda _kernel, batches: 1e-6 * (bases_us(shape, batches) @ planted),
    )
    found = dict(zip(BETAS, project(kernel).betas, strict=True))
    for name in ("beta1a", "beta2b", "beta6"):
        assert found[name] == pytest.approx(planted[BETAS.index(name)], rel=0.02)
    bases = shape.basis_us(Batch.decode(1, 64))
    constant = sum(found[f"beta{n}"] * bases[BETAS.index(f"beta{n}")] for n in (3, 5, 7))
    assert constant == pytest.approx(float(bases[[2, 4, 6]] @ planted[[2, 4, 6]]), rel=0.01)
    # Whole microseconds are all that is lost.
    assert project(kernel).agreement[0].p90 < 0.01


def test_every_file_loads_and_says_where_it_comes_from() -> None:
    kernel = KERNELS["graphs"]
    files = TARGET.export(kernel, OPTIONS)
    assert TARGET.check(files) == ()
    assert files == TARGET.export(kernel, OPTIONS)
    defaults, flags, hardware = (file.content.decode() for file in files)
    for text in (defaults, flags, hardware):
        assert kernel.digest in text
        assert "kernelfit export inference-sim sample.json" in text
    document = YAML(typ="safe", pure=True).load(defaults)["trained_physics_coefficients"]
    assert (len(document["alpha_coeffs"]), len(document["beta_coeffs"])) == (3, 11)
    words = flags.splitlines()[-1].split()
    given = dict(zip(words[::2], words[1::2], strict=True))
    assert [float(v) for v in given["--beta-coeffs"].split(",")] == document["beta_coeffs"]
    assert [float(v) for v in given["--alpha-coeffs"].split(",")] == document["alpha_coeffs"]
    assert given["--tp"] == "2"
    zeros = [line for line in defaults.splitlines() if line.startswith("    - 0.0 ")]
    assert zeros
    assert all("; 0: " in line for line in zeros)
    assert "# projection all:" in defaults
    said = TARGET.missing(kernel, OPTIONS)
    assert said[0].reason.startswith("projection all:")


def test_hardware_by_the_datasheet() -> None:
    kernel = Deployed(dense(), replace(CHIP, name="H100-SXM"), EAGER).kernel(fitted())
    _, _, hardware = TARGET.export(kernel, OPTIONS)
    entry = json.loads(hardware.content)["H100"]
    assert entry["TFlopsPeak"] == 100.0
    assert entry["TFlopsFP8"] == 200.0
    assert entry["BwPeakTBs"] == 1.0
    assert entry["MemoryGiB"] == 80.0
    prompt = max((b for b in probe_batches(kernel)), key=lambda b: b.tokens())
    assert 0.0 < utilisation(kernel, Batch.decode(1, 64)) < utilisation(kernel, prompt) <= 0.8
    named = TARGET.export(kernel, replace(OPTIONS, settings={"gpu": "H100-PCIE"}))
    assert list(json.loads(named[2].content)) == ["H100-PCIE"]


@pytest.mark.parametrize(
    ("refused", "accepted", "field"),
    [
        (DEPLOYED["mla"], DEPLOYED["dense"], "attention"),
        (DEPLOYED["hybrid"], DEPLOYED["dense"], "attention"),
        (DEPLOYED["alternating"], DEPLOYED["moe"], "attention"),
        (DEPLOYED["moe-replicas"], DEPLOYED["moe"], "dp"),
        (DEPLOYED["two-nodes"], DEPLOYED["graphs"], "nodes"),
        (DEPLOYED["speculating"], DEPLOYED["graphs"], "num_speculative_tokens"),
        (
            Deployed(dense(), CHIP, replace(EAGER, tp=4)),
            Deployed(dense(kv_heads=4), CHIP, replace(EAGER, tp=4)),
            "num_kv_heads % tp",
        ),
        (
            Deployed(
                replace(dense(), layers=(*dense().layers, *mixture().layers)), CHIP, Pool(tp=1)
            ),
            Deployed(mixture(), CHIP, Pool(tp=1)),
            "layers",
        ),
    ],
)
def test_refused_beside_accepted(refused: Deployed, accepted: Deployed, field: str) -> None:
    with pytest.raises(NotExpressible, match=f"inference-sim cannot express {field}="):
        shape_of(refused.kernel(fitted()))
    shape_of(accepted.kernel(fitted()))


def text_of(name: str) -> str:
    files: dict[str, ExportedFile] = {
        file.path.removeprefix("sample-"): file for file in TARGET.export(KERNELS["dense"], OPTIONS)
    }
    return files[name].content.decode()


Check = Callable[[str], tuple[str, ...]]


@pytest.mark.parametrize(
    ("file", "check", "old", "new", "wrong"),
    [
        ("defaults.yaml", check_defaults, "alpha_coeffs:", "alphas:", ":15: field alphas is not"),
        (
            "defaults.yaml",
            check_defaults,
            "trained_phys",
            "workloads: 1\ntrained_phys",
            "workloads",
        ),
        ("defaults.yaml", check_defaults, "    - 0.0  # beta8", "    # beta8", "holds 10"),
        ("defaults.yaml", check_defaults, "- 0.0  # beta8", "- -1.0  # beta8", "beta8 is -1.0"),
        ("defaults.yaml", check_defaults, "- 0.0  # beta8", "- .nan  # beta8", "beta8 is nan"),
        ("defaults.yaml", check_defaults, "- 0.0  # beta8", "- no  # beta8", "beta8 is no number"),
        ("defaults.yaml", check_defaults, "beta_coeffs:", "beta_coeffs: [", "not readable"),
        ("flags.txt", check_flags, "--alpha-coeffs", "--alpha", "--alpha-coeffs is missing"),
        ("flags.txt", check_flags, "trained-physics", "roofline", "only taken by"),
        ("flags.txt", check_flags, "--alpha-coeffs 0.0,", "--alpha-coeffs ", "holds 2"),
        ("hardware_config.json", check_hardware, "mfuPrefill", "MfuPrefill", "only in case from"),
        ("hardware_config.json", check_hardware, "BwPeakTBs", "BwPeak", "key BwPeak is not known"),
        ("hardware_config.json", check_hardware, '"BwPeakTBs": 1.0', '"BwPeakTBs": 0', "is 0"),
        (
            "hardware_config.json",
            check_hardware,
            '"BwPeakTBs": 1.0',
            '"BwPeakTBs": "1"',
            "no number",
        ),
        ("hardware_config.json", check_hardware, "{", "", "not readable"),
    ],
)
def test_one_broken_rule_is_found_at_its_place(
    file: str, check: Check, old: str, new: str, wrong: str
) -> None:
    text = text_of(file)
    assert check(text) == ()
    assert text.count(old) >= 1
    found = check(text.replace(old, new, 1))
    assert any(wrong in line for line in found), found
