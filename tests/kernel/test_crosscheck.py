"""The kernel against figures, tables and counts from outside the project.

What each comparison means, and why the two differ where they do, stands in
``docs/crosscheck.md``.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.crosscheck import engine, operators, steps, tables
from benchmarks.crosscheck.figures import figures, kernel, model_of
from kernelfit.documents.priors import load_priors
from kernelfit.kernel import Batch, RequestShape

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"
TABLES = SHARED / "aiconfigurator_core"
CONFIGS = SHARED / "model_configs"
STEPS = SHARED / "nvidia_fpm_golden"
PYTHON = os.environ.get("KERNELFIT_ENGINE_PYTHON")

needs_tables = pytest.mark.skipif(not TABLES.is_dir(), reason="the operator tables are absent")


@pytest.fixture(scope="module")
def worked() -> dict[str, tuple[float, float]]:
    """Each figure here and outside."""
    return {f.what: (f.here, f.outside) for f in figures()}


@pytest.mark.parametrize(
    ("what", "digit"),
    [
        # Half of the last digit that is printed.
        ("160 all-reduces, Llama-2-70B TP4", 0.005),
        ("96 all-reduces, CodeLlama-34B TP2", 0.005),
        ("KV per 1k tokens, Llama-2-70B TP4", 0.5),
        ("KV per 1k tokens, CodeLlama-34B TP2", 0.5),
        ("packed latent of a layer", 0.0),
        ("latent, 576 elements in bf16", 0.0),
        ("KV of a token, Llama-2-70B TP4", 0.0),
        ("KV of 17 tokens in pages of 16, TP8", 0.0),
    ],
)
def test_a_worked_figure(what: str, digit: float, worked: dict[str, tuple[float, float]]) -> None:
    here, outside = worked[what]
    assert abs(here - outside) <= digit


@pytest.mark.parametrize(
    ("what", "name", "tp"),
    [
        ("weights, Llama-2-70B TP4", "Llama-2-70B", 4),
        ("weights, CodeLlama-34B TP2", "CodeLlama-34B", 2),
        ("weights, Qwen3-14B TP1", "Qwen3-14B", 1),
    ],
)
def test_the_weights_read_differ_by_the_input_embedding(
    what: str, name: str, tp: int, worked: dict[str, tuple[float, float]]
) -> None:
    here_ms, outside_ms = worked[what]
    model = model_of(name)
    table_ms = model.vocab * model.hidden * 2 / tp / (0.8 * 3.35e12) * 1e3
    # Half of the last digit, and norms that are read in the elementwise passes.
    assert here_ms + table_ms == pytest.approx(outside_ms, abs=0.006)


def test_a_figure_charges_nothing_else() -> None:
    on = kernel("Llama-2-70B", 4, {})
    assert on.step_time(Batch((RequestShape(1, 10, 10, 0),))).no_overlap_s < 1e-15
    with pytest.raises(ValueError, match="has no allreduce_nccl_floor_s"):
        kernel("Llama-2-70B", 1, {"allreduce_nccl_floor_s": 1e-5})


@needs_tables
@pytest.mark.parametrize(("ranks", "registry_rate"), [(2, 159_173), (4, 116_726), (8, 127_157)])
def test_the_registrys_rates_are_elements_and_not_bytes(ranks: int, registry_rate: int) -> None:
    # Its peak rate of all-reduce in 16 bit, in "bytes per us", is message size over time at
    # the largest message of the table, whose size is in elements of two bytes.
    path = TABLES / "h100_sxm" / "comm-nccl-2.29.2" / "nccl_perf.parquet"
    table = pd.read_parquet(path)
    rows = table[(table["num_gpus"] == ranks) & (table["op_name"] == "all_reduce")]
    half = rows[rows["nccl_dtype"] == "half"].set_index("message_size")["latency"]
    size = half.index.max()
    assert size / (half[size] * 1e3) == pytest.approx(registry_rate, rel=1e-4)
    # Twice the elements of one byte take as long, gathering and reducing alike; so do not
    # as many elements.
    whole = table[(table["num_gpus"] == ranks) & (table["op_name"] == "all_gather")]
    times = whole.pivot_table(index="message_size", columns="nccl_dtype", values="latency")
    assert times["int8"][2 * size] == pytest.approx(times["half"][size], rel=0.01)
    assert times["half"][size] > 1.8 * times["int8"][size]


@needs_tables
def test_decode_attention_meets_the_table_better_than_the_registry() -> None:
    chip = tables.chip_of("h100_sxm")
    columns = tables.attention(TABLES, "h100_sxm", "generation")
    found = operators.fit_attention(chip, "h100-sxm", "generation", columns, 0.5)
    assert found.fitted.rows > 5000
    assert found.held_out is not None
    assert found.held_out.geometric < 1.12
    # The registry states 1.446 for its own floor and rate, on rows of its own choice.
    assert 1.3 < found.others["BLIS registry floor and rate"] < 1.5


@needs_tables
def test_a_sixteen_bit_multiplication_is_a_roofline_with_hardly_a_ramp() -> None:
    chip = tables.chip_of("h100_sxm")
    columns = tables.gemms(TABLES, "h100_sxm")["bfloat16"]
    found = operators.fit_gemm(chip, "h100-sxm", "bfloat16", columns)
    assert found.held_out is not None
    assert found.held_out.geometric < 1.09
    assert found.fitted.geometric < found.others["sum instead of max"]
    # AIConfigurator's own derate of HBM is 0.8.
    assert found.values["hbm_weight_eff"] == pytest.approx(0.8, rel=0.1)


def test_windows_of_a_table_are_counted_query_by_query(tmp_path: Path) -> None:
    folder = tmp_path / "x" / "attention-vllm-0"
    folder.mkdir(parents=True)
    table = {
        "batch_size": [3, 1],
        "isl": [7, 5],
        "num_heads": [4, 4],
        "num_key_value_heads": [2, 2],
        "head_dim": [8, 8],
        "window_size": [3, 0],
        "kv_cache_dtype": ["bfloat16", "fp8"],
        "step": [0, 0],
        "latency": [1.0, 1.0],
    }
    pd.DataFrame(table).to_parquet(folder / "context_attention_perf.parquet")
    columns = tables.attention(tmp_path, "x", "context")
    pairs = np.array([3 * (1 + 2 + 3 * 5), 1 + 2 + 3 + 4 + 5])
    assert columns["pair_flop"].tolist() == (pairs * 4 * 4 * 8).tolist()
    assert columns["time_s"].tolist() == [1e-3, 1e-3]


@pytest.mark.skipif(not STEPS.is_dir(), reason="the forward pass metrics are absent")
def test_priors_alone_meet_whole_steps() -> None:
    # Nothing is fitted to a step, so the bound is loose: a slipped factor of two breaks it.
    found = [s for s in steps.scores(STEPS) if s.values == "tables" and s.way == "added"]
    assert {(s.tp, s.phase) for s in found} == {
        (tp, phase) for tp in (1, 2, 4) for phase in ("decode", "prompt", "mixed")
    }
    for score in found:
        assert score.errors.rows >= 30
        assert score.errors.geometric < 1.25, score
        assert 0.8 < score.errors.median < 1.2, score


@pytest.mark.slow
@needs_tables
def test_the_priors_are_written_again_byte_for_byte(tmp_path: Path) -> None:
    operators.main([str(TABLES), "--priors", str(tmp_path)])
    for path in sorted((ROOT / "calib" / "priors").glob("*.yaml")):
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()
        assert len(load_priors(tmp_path / path.name)) >= 20


@pytest.mark.engine
def test_every_difference_from_the_engines_counts_has_its_cause() -> None:
    if PYTHON is None:
        pytest.skip("KERNELFIT_ENGINE_PYTHON names no interpreter with vLLM")
    if not CONFIGS.is_dir():
        pytest.skip("the models' configs are absent")
    asked = engine.cases()
    found = engine.compare(CONFIGS, engine.engine_counts(CONFIGS, PYTHON, asked))
    assert len(found) == len(asked) >= 200
    for comparison in found:
        for component in engine.COMPONENTS:
            assert abs(comparison.left_over(component)) < 1e-9, (comparison.case, component)
