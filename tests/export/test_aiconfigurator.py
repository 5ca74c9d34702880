"""A system file says what the kernel says of memory and rates, and breaks no loading rule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

from kernelfit.export import aiconfigurator_rates
from kernelfit.export.aiconfigurator import TARGET, constant_s, plain
from kernelfit.export.aiconfigurator_check import check_system
from kernelfit.export.aiconfigurator_rates import KINDS, nearest_shares, peak_times, sol_times
from kernelfit.export.probes import probe_batches
from kernelfit.export.refused import NotExpressible
from kernelfit.kernel import Batch
from kernelfit.kernel.fitted import FittedKernel
from tests.export.samples import OPTIONS
from tests.kernel.builders import CHIP, EAGER, Deployed, dense, fitted

H100 = replace(CHIP, name="H100-SXM")
SHIPPED = Path(__file__).parents[3] / "shared" / "data" / "aiconfigurator_core"


def kernel(**changes: float) -> FittedKernel:
    given = fitted(**changes)
    return Deployed(dense(), H100, replace(EAGER, tp=2)).kernel(given)


def loaded(text: str) -> dict[str, Any]:
    document: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    return document


def test_corrections_and_rates() -> None:
    """The chip reads 1e12 byte/s, multiplies 100e12 FLOP/s, and links carry 100e9 byte/s."""
    given = kernel(
        hbm_activation_eff=0.6,
        hbm_weight_eff=0.75,
        gemm_eff_bf16=0.7,
        allreduce_custom_eff=0.5,
        layer_floor_s=2e-5,
    )
    files = TARGET.export(given, OPTIONS)
    assert TARGET.check(files) == ()
    assert [file.path for file in files] == ["h100_sxm.yaml", "h100_sxm_achieved.yaml"]
    stated, achieved = (loaded(file.content.decode()) for file in files)
    assert stated["gpu"]["mem_bw"] == 1e12
    assert stated["gpu"]["mem_bw_empirical_scaling_factor"] == pytest.approx(0.6)
    # A plain layer launches ten times: two norms and eight others.
    assert stated["gpu"]["mem_empirical_constant_latency"] == pytest.approx(2e-6)
    assert constant_s(given) == pytest.approx(2e-6)
    assert stated["gpu"]["bfloat16_tc_flops"] == 100e12
    assert stated["node"]["intra_node_bw"] == 100e9
    # None beats the datasheet.
    assert 0.02e12 <= achieved["gpu"]["mem_bw"] <= 1e12
    assert 2e12 <= achieved["gpu"]["bfloat16_tc_flops"] <= 100e12
    assert achieved["gpu"]["fp8_tc_flops"] == pytest.approx(
        2 * achieved["gpu"]["bfloat16_tc_flops"]
    )
    assert 2e9 <= achieved["node"]["intra_node_bw"] <= 100e9
    assert "# nearest: all:" in files[1].content.decode()
    # Elementwise work keeps its own rate, whatever the file's peak is.
    for system in (stated, achieved):
        gpu = system["gpu"]
        assert gpu["mem_bw"] * gpu["mem_bw_empirical_scaling_factor"] == pytest.approx(0.6e12)
        assert system["data_dir"] == "data/h100_sxm"


def test_the_mode_without_tables_by_hand() -> None:
    """Two operations: computing 4 s against moving 2 s, then only links, 1 s, at the peaks."""
    at_peak = np.array([[[4.0], [2.0], [0.0]], [[0.0], [0.0], [1.0]]])
    assert sol_times(at_peak, (1.0, 1.0, 1.0)) == pytest.approx(5.0)
    # At half of the memory's rate both take 4 s; at a fifth of it moving takes 10 s.
    assert sol_times(at_peak, (1.0, 0.5, 0.5)) == pytest.approx(6.0)
    assert sol_times(at_peak, (1.0, 0.2, 0.5)) == pytest.approx(12.0)


def test_planted_rates_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    given = kernel()
    batches = probe_batches(given)
    at_peak = peak_times(given, batches)
    planted = (0.6, 0.7, 0.3)
    monkeypatch.setattr(
        aiconfigurator_rates, "kernel_times", lambda _kernel, _batches: sol_times(at_peak, planted)
    )
    found = nearest_shares(given, batches)
    assert [found[kind] for kind in KINDS] == pytest.approx(planted, rel=1e-3)


def test_work_at_the_peaks_by_hand() -> None:
    """One decode at 99 of context: weights of a rank over the bandwidth, in the layers.

    A layer holds 1024 x 128 x (8 + 8 + 4) / 2 + 3 x 1024 x 4096 / 2 elements of two bytes on
    one of two ranks; four layers.
    """
    given = kernel()
    at_peak = peak_times(given, [Batch.decode(1, 99)])
    elements = 1024 * 128 * 20 // 2 + 3 * 1024 * 4096 // 2
    layers_s = 4 * elements * 2 / 1e12
    assert any(abs(times[1, 0] / layers_s - 1.0) < 1e-9 for times in at_peak)
    # An operation that multiplies them does two FLOP with each.
    flop_s = 4 * 2 * elements / 100e12
    assert any(abs(times[0, 0] / flop_s - 1.0) < 1e-9 for times in at_peak)


def test_what_is_lost_is_named() -> None:
    lost = {each.name for each in TARGET.missing(kernel(), OPTIONS)}
    assert {"gemm_m_half_bf16", "launch_step_s", "allreduce_custom_floor_s"} <= lost
    assert "hbm_activation_eff" not in lost
    assert "layer_floor_s" not in lost


def test_provenance_and_settings() -> None:
    given = kernel()
    options = replace(OPTIONS, settings={"system": "mine", "data_dir": "data/other"})
    files = TARGET.export(given, options)
    assert files[0].path == "mine.yaml"
    text = files[0].content.decode()
    assert given.digest in text
    assert "data_dir: data/other" in text
    assert "--set data_dir=data/other --set system=mine" in text


def test_a_chip_without_tables_is_refused() -> None:
    with pytest.raises(NotExpressible, match="aiconfigurator cannot express chip='round-gpu'"):
        TARGET.export(Deployed(dense(), CHIP, EAGER).kernel(fitted()), OPTIONS)


def test_numbers_that_every_reader_takes() -> None:
    assert plain(3e-06) == "0.000003"
    assert plain(1e15) == "1000000000000000"
    assert plain(0.8) == "0.8"


@pytest.mark.parametrize("system", ["h100_sxm", "a100_sxm", "b300_sxm"])
def test_shipped_files_obey_the_same_rules(system: str) -> None:
    place = SHIPPED / system / "system.yaml"
    if not place.exists():
        pytest.skip(f"no {place.name} of {system} beside the repository")
    assert check_system(place.read_text()) == ()


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("  mem_bw: ", "  mem_bandwidth: ", "system.yaml:12: gpu.mem_bandwidth is not read"),
        ("  mem_bw: ", "  mem_bandwidth: ", "gpu.mem_bw is missing"),
        ("0.000001", "1e-06", "system.yaml:14: mem_empirical_constant_latency is no number"),
        ("  sm_version: 90", "  sm_version: 90.5", "gpu.sm_version is a whole number"),
        ("  num_gpus_per_node: 8", "  num_gpus_per_node: 0", "above 0"),
        ("  intra_node_bw: 1", "  intra_node_bw: -1", "above 0"),
        ("    8: ", "    16: ", "lacks width 8"),
        ("nccl_version: '2.27.3'", "nccl_version: 2.27", "is a text"),
        ("data_dir: data/h100_sxm", "data_dir: [1]", "data_dir is a path"),
        ("node:", "nodes:", "nodes is not read"),
        ("\nnode:", "\nnode: {", "not readable"),
    ],
)
def test_one_broken_rule_is_found_at_its_place(old: str, new: str, wrong: str) -> None:
    text = TARGET.export(kernel(layer_floor_s=1e-5), OPTIONS)[0].content.decode()
    assert check_system(text) == ()
    assert old in text
    found = check_system(text.replace(old, new, 1))
    assert any(wrong in line for line in found), found
