"""The project's own documents: valid, complete, and equal to what others publish."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from kernelfit.documents.chips import chip_entries, chip_figures, find_chip, load_chip
from kernelfit.documents.deployments import load_deployment
from kernelfit.documents.models import find_model, load_model, model_entries, model_from_config
from kernelfit.kernel.model import parameter_count
from tests.documents.helpers import CALIB, ROOT, SHARED

CHIPS = sorted((CALIB / "chips").glob("*.yaml"))
MODELS = sorted((CALIB / "models").glob("*.yaml"))
DEPLOYMENTS = sorted((CALIB / "deployments").glob("*.yaml"))
RECORDED = sorted((ROOT / "traces" / "models").glob("*/config.json"))
CONFIGS = SHARED / "data" / "model_configs"
SYSTEMS = SHARED / "data" / "aiconfigurator_core"


def test_the_chips_that_the_project_speaks_of() -> None:
    names = {entry.names[0] for entry in chip_entries(CALIB / "chips")}
    gpus = {"A100-SXM-80GB", "H100-SXM", "H200-SXM", "B200", "B300", "L40S"}
    assert gpus | {"epyc-milan-core"} <= names


@pytest.mark.parametrize("path", CHIPS, ids=lambda path: path.stem)
def test_a_chip_document(path: Path) -> None:
    chip = load_chip(path)
    assert path.stem == chip.name.lower()
    figures = chip_figures(path)
    # A source says where to look, not only that there is one.
    assert all(len(figure.source.split()) >= 4 for figure in figures)
    if chip.kind == "gpu":
        assert {figure.method for figure in figures} <= {"vendor_spec", "assumed"}
        assert chip.peak("bf16") == chip.peak("fp16")
        # Dense against dense: on every part, half the width is twice as fast.
        narrow = "fp8" if any(name == "fp8" for name, _ in chip.peak_flop_per_s) else "int8"
        assert chip.peak(narrow) / chip.peak("bf16") == pytest.approx(2, rel=0.015)


# Printed figures with sparsity, per GPU, from the datasheets; a dense peak is half of them.
@pytest.mark.parametrize(
    ("name", "sparse_bf16_flop_per_s"),
    [
        ("A100-SXM-80GB", 624e12),
        ("H100-SXM", 1979e12),
        ("H200-SXM", 1979e12),
        ("B200", 36e15 / 8),
        ("B300", 36e15 / 8),
        ("L40S", 733e12),
    ],
)
def test_peaks_are_dense(name: str, sparse_bf16_flop_per_s: float) -> None:
    chip = find_chip(name, CALIB / "chips")
    # The L40S datasheet's pair, 362.05 and 733, is not rounded alike.
    assert chip.peak("bf16") == pytest.approx(sparse_bf16_flop_per_s / 2, rel=0.013)


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100-SXM-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H200", "H200-SXM"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("NVIDIA L40S", "L40S"),
        ("AMD EPYC (family 25 model 1)", "epyc-milan-core"),
    ],
)
def test_a_device_name_finds_its_chip(device: str, name: str) -> None:
    assert find_chip(device, CALIB / "chips").name == name


@pytest.mark.skipif(not SYSTEMS.is_dir(), reason="no operator tables beside the repository")
@pytest.mark.parametrize(
    ("folder", "name"),
    [("a100_sxm", "A100-SXM-80GB"), ("h100_sxm", "H100-SXM"), ("b300_sxm", "B300")],
)
def test_figures_agree_with_an_independent_table(folder: str, name: str) -> None:
    text = (SYSTEMS / folder / "system.yaml").read_text(encoding="utf-8")
    system: Any = YAML(typ="safe", pure=True).load(text)
    chip = find_chip(name, CALIB / "chips")
    stated = {
        "mem_bw": chip.hbm_bytes_per_s,
        "mem_capacity": chip.hbm_bytes,
        "bfloat16_tc_flops": chip.peak("bf16"),
        "int8_tc_flops": chip.peak("int8"),
    }
    for key, value in stated.items():
        assert value == pytest.approx(system["gpu"][key], rel=0.01), key
    links = {
        "intra_node_bw": chip.nvlink_bytes_per_s,
        "inter_node_bw": chip.nic_bytes_per_s,
        "pcie_bw": chip.pcie_bytes_per_s,
        "num_gpus_per_node": chip.gpus_per_node,
    }
    for key, value in links.items():
        assert value == system["node"][key], key


# Totals as published, to the digits published.
@pytest.mark.parametrize(
    ("name", "total", "rel"),
    [
        ("Llama-3.1-8B", 8_030_261_248, 0.0),
        ("Llama-3.1-70B", 70_553_706_496, 0.0),
        ("Qwen3-8B", 8.19e9, 6e-4),
        ("Qwen3-32B", 32.76e9, 2e-4),
        ("Mixtral-8x7B", 46.7e9, 1e-3),
        ("Qwen3-30B-A3B", 30.5e9, 1.6e-3),
        ("gpt-oss-120b", 116.83e9, 5e-5),
        ("DeepSeek-V3", 671e9, 7e-4),
        # The name's 35B counts a draft layer and a vision tower, which are not layers here.
        ("Qwen3.5-35B-A3B", 35e9, 0.015),
    ],
)
def test_parameters_add_up_to_the_published_total(name: str, total: float, rel: float) -> None:
    model = find_model(name, CALIB / "models")
    assert parameter_count(model) == pytest.approx(total, rel=rel, abs=0)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_model_document(path: Path) -> None:
    assert path.stem == load_model(path).name.lower()


@pytest.mark.skipif(
    not CONFIGS.is_dir(), reason="no folder of public configs beside the repository"
)
def test_model_documents_restate_the_public_configs() -> None:
    paths = sorted(CONFIGS.glob("*.config.json"))
    assert len(paths) == 9
    for path in paths:
        name = path.name.removesuffix(".config.json").replace("--", "/")
        model = find_model(name, CALIB / "models")
        config = json.loads(path.read_text(encoding="utf-8"))
        assert model_from_config(config, model.name, path.name) == model


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_model_documents_restate_the_recorded_shapes(path: Path) -> None:
    assert find_model(path.parent.name, CALIB / "models") == load_model(path)


def test_every_recorded_shape_is_there() -> None:
    assert len(RECORDED) >= 4


@pytest.mark.parametrize("path", DEPLOYMENTS, ids=lambda path: path.stem)
def test_a_deployment_names_what_is_there(path: Path) -> None:
    pools = load_deployment(path)
    assert {pool.deployment for pool in pools} == {path.stem}
    for pool in pools:
        chip = find_chip(pool.gpu, CALIB / "chips")
        model = find_model(pool.model, CALIB / "models", dtype=pool.dtype)
        assert pool.pool.tp <= chip.gpus_per_node
        assert model.layers[0].attention.heads % pool.pool.tp == 0


def test_there_are_deployments_of_the_recorded_machine_and_of_gpus() -> None:
    gpus = {pool.gpu for path in DEPLOYMENTS for pool in load_deployment(path)}
    assert {"epyc-milan-core", "H100-SXM"} <= gpus


def test_names_are_those_of_the_models() -> None:
    names = [name for entry in model_entries(CALIB / "models") for name in entry.names]
    assert "meta-llama/Llama-3.1-8B" in names
    assert all(re.fullmatch(r"[\w./-]+", name) for name in names)
