from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelfit.documents.canonical import dumps
from kernelfit.documents.models import (
    find_model,
    load_model,
    model_document,
    model_from_config,
    with_dtype,
)
from kernelfit.documents.problems import Place
from kernelfit.kernel.model import (
    Attention,
    Experts,
    Latent,
    LayerKind,
    LinearState,
    Mlp,
    Model,
    parameter_count,
)
from tests.documents.helpers import changed, one_problem, place_in, problems_of, written

GOOD = """\
kind: Model
schema_version: 1
name: Tiny
aliases: ["org/Tiny"]
source: "made for a test"
hidden: 64
vocab: 100
dtype: bf16
weight_dtype: bf16
tied_head: false
layers:
  - name: dense
    count: 2
    attention: {kind: full, heads: 4, kv_heads: 2, head_dim: 16}
    mlp: {intermediate: 128, gated: true}
"""


def test_a_model_in_the_core_s_words(tmp_path: Path) -> None:
    model = load_model(written(tmp_path, GOOD))
    attention = Attention(kind="full", heads=4, kv_heads=2, head_dim=16)
    assert model == Model(
        name="Tiny",
        hidden=64,
        vocab=100,
        layers=(LayerKind("dense", 2, attention, mlp=Mlp(128, gated=True)),),
        dtype="bf16",
        weight_dtype="bf16",
        tied_head=False,
    )
    # Two embeddings, the last norm, and per layer: q, k, v, o; three MLP matrices; two norms.
    layer = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 128 + 2 * 64
    assert parameter_count(model) == 2 * 100 * 64 + 64 + 2 * layer


PUBLISHED = 'published_parameters: {value: 88448, unit: count, source: "made up for it"}\nhidden'
FLAT = "kind: full, heads: 4, kv_heads: 2, head_dim: 16"


@pytest.mark.parametrize(
    ("old", "new", "at", "words"),
    [
        ("heads: 4", "heads: 0", "0, kv", "layers.0.attention.heads is out of range (got 0)"),
        ("heads: 4", "heads: 4.0", "4.0", "heads has the wrong type (got 4.0)"),
        ("heads: 4", "heads: 3", "{kind: full", "heads must be a multiple of kv_heads"),
        ("heads: 4", "heads: true", "true,", "heads has the wrong type (got True)"),
        ("kind: full", "kind: fully", "fully", "allowed full, sliding, mla or linear; did you"),
        ("kind: full", "kind: mla", "{kind: mla", "latent belongs to kind mla"),
        ("kind: full", "kind: sliding", "{kind: sl", "window_tokens belongs to kind sliding"),
        (FLAT, FLAT + ", window_tokens: 8", "{kind: full", "window_tokens belongs to kind sl"),
        (", head_dim: 16", "", "{kind: full", "required key head_dim is missing"),
        ("head_dim", "headdim", "headdim", "unknown key headdim; allowed bias, head_dim"),
        ("    mlp: {intermediate: 128, gated: true}\n", "", "name: dense", "either mlp or experts"),
        ("gated: true", "gated: yes", "yes", "gated has the wrong type (got 'yes')"),
        ("dtype: bf16\nw", "dtype: bfloat16\nw", "bfloat16", "dtype is not in the vocabulary"),
        ("layers:\n", "layers: []\nother:\n", "[]", "layers is empty"),
        ("hidden", PUBLISHED.replace("88448", "99999"), "99999", "add up to 86,848 parameters"),
        ('source: "made for a test"\n', "", "kind", "required key source is missing"),
    ],
)
def test_one_change_is_refused_where_it_stands(
    tmp_path: Path, old: str, new: str, at: str, words: str
) -> None:
    text = changed(GOOD, old, new)
    path = written(tmp_path, text)
    hits = [p for p in problems_of(load_model, path) if words in p.render()]
    assert len(hits) == 1, [p.render() for p in problems_of(load_model, path)]
    assert (hits[0].file, hits[0].line, hits[0].column) == (str(path), *place_in(text, at))


def test_a_published_total_that_fits_is_accepted(tmp_path: Path) -> None:
    model = load_model(written(tmp_path, GOOD))
    total = str(parameter_count(model))
    text = changed(GOOD, "hidden", PUBLISHED.replace("88448", total))
    assert load_model(written(tmp_path, text)) == model
    near = changed(GOOD, "hidden", PUBLISHED.replace("88448", str(round(int(total) * 1.004))))
    assert load_model(written(tmp_path, near)) == model


def test_published_uses_and_sizes_are_held_to_the_facts(tmp_path: Path) -> None:
    # Two layers of 2 heads of 16, keys and values, in 16 bit: 256 bytes; one table left out.
    figures = (
        "published_active_parameters:\n"
        '  {value: 80448, unit: count, embedding: false, source: "made up for it"}\n'
        'published_kv_bytes_per_token: {value: 256, unit: byte, source: "made up for it"}\n'
        "hidden"
    )
    good = changed(GOOD, "hidden", figures)
    assert load_model(written(tmp_path, good)) == load_model(written(tmp_path, GOOD, "plain.yaml"))
    for old, new, words in (
        ("80448", "88448", "add up to 80,448 parameters that a token uses (got 88,448)"),
        ("value: 256", "value: 257", "add up to 256 bytes per token (got 257)"),
        ("embedding: false", "embedding: true", "add up to 86,848 parameters that a token uses"),
    ):
        problem = one_problem(load_model, written(tmp_path, changed(good, old, new)))
        assert words in problem.render()
    missing = one_problem(load_model, written(tmp_path, changed(good, ", embedding: false", "")))
    assert "required key embedding is missing" in missing.message


def test_a_run_s_dtype_moves_every_part_that_stays_unquantised() -> None:
    attention = Attention("full", 1, 1, 4)
    parts = Experts(4, 1, 4, shared_intermediate=4, weight_dtype="bf16", shared_weight_dtype="bf16")
    layers = (
        LayerKind("dense", 1, attention, mlp=Mlp(4, weight_dtype="bf16")),
        LayerKind("moe", 1, attention, experts=parts),
        LayerKind("own", 1, attention, mlp=Mlp(4, weight_dtype="int8")),
    )
    model = Model("M", 4, 4, layers, "bf16", "fp8", tied_head=False, scale_bytes=0.125)
    run = with_dtype(model, "float16", Place("run.yaml", 5, 8))
    assert run.layers[0].mlp == Mlp(4, weight_dtype="fp16")
    assert run.layers[1].experts == dataclasses.replace(
        parts, weight_dtype="fp16", shared_weight_dtype="fp16"
    )
    assert run.layers[2] == layers[2]
    assert run.scale_bytes == 0.125


def test_an_expert_layer_is_checked(tmp_path: Path) -> None:
    experts = "experts: {experts: 8, per_token: 2, intermediate: 32, gated: true}"
    text = changed(GOOD, "mlp: {intermediate: 128, gated: true}", experts)
    assert load_model(written(tmp_path, text)).layers[0].experts == Experts(8, 2, 32)
    over = changed(text, "per_token: 2", "per_token: 9")
    problem = one_problem(load_model, written(tmp_path, over))
    assert "per_token cannot exceed experts" in problem.message
    both = text + "    mlp: {intermediate: 128, gated: true}\n"
    assert "either mlp or experts" in one_problem(load_model, written(tmp_path, both)).message


COUNTS = st.integers(1, 9)
DTYPES = st.sampled_from(["fp32", "bf16", "fp8", "int4"])


@st.composite
def attentions(draw: st.DrawFn) -> Attention:
    """Draw any attention that a document can state."""
    kind = draw(st.sampled_from(["full", "sliding", "mla", "linear"]))
    kv_heads = draw(COUNTS)
    latent = st.builds(Latent, st.integers(0, 9), COUNTS, COUNTS, COUNTS, COUNTS)
    linear = st.builds(LinearState, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, DTYPES)
    return Attention(
        kind=kind,
        heads=kv_heads * draw(COUNTS),
        kv_heads=kv_heads,
        head_dim=draw(COUNTS),
        window_tokens=draw(COUNTS) if kind == "sliding" else 0,
        bias=draw(st.booleans()),
        qk_norm=draw(st.booleans()),
        output_bias=draw(st.booleans()),
        output_gate=draw(st.booleans()),
        sinks=draw(st.booleans()),
        weight_dtype=draw(st.none() | DTYPES),
        latent=draw(latent) if kind == "mla" else None,
        linear=draw(linear) if kind == "linear" else None,
    )


@st.composite
def layer_kinds(draw: st.DrawFn) -> LayerKind:
    """Draw any kind of layer."""
    mlp: Mlp | None = None
    experts: Experts | None = None
    if draw(st.booleans()):
        mlp = Mlp(draw(COUNTS), draw(st.booleans()), draw(st.booleans()), draw(st.none() | DTYPES))
    else:
        each = draw(COUNTS)
        shared = draw(st.integers(0, 9))
        experts = Experts(
            each + 3,
            each,
            draw(COUNTS),
            draw(st.booleans()),
            shared,
            shared_gate=draw(st.booleans()),
            score_bias=draw(st.booleans()),
            weight_dtype=draw(st.none() | DTYPES),
            shared_weight_dtype=draw(st.none() | DTYPES),
        )
    return LayerKind(draw(st.sampled_from(["a", "b"])), draw(COUNTS), draw(attentions()),
                     mlp, experts)  # fmt: skip


MODELS = st.builds(
    Model,
    st.just("Any"),
    COUNTS,
    COUNTS,
    st.lists(layer_kinds(), min_size=1, max_size=3).map(tuple),
    DTYPES,
    DTYPES,
    st.booleans(),
    st.sampled_from([0.0, 1 / 32, 4 / 128**2]),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MODELS)
def test_a_model_is_read_back_as_it_was_written(tmp_path: Path, model: Model) -> None:
    # JSON is YAML, so the document can be written without a YAML writer.
    text = dumps(model_document(model, "made for a test", aliases=("other",)))
    assert load_model(written(tmp_path, text)) == model


def test_a_model_is_found_by_name_or_alias(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    assert find_model("tiny", tmp_path) == find_model("org/Tiny", tmp_path)
    assert find_model("Tiny", tmp_path, dtype="float32").dtype == "fp32"
    problem = one_problem(find_model, "Tinny", tmp_path, Place("run.yaml", 4, 8))
    assert problem.render() == (
        "run.yaml:4:8: unknown model (got 'Tinny'); allowed Tiny; did you mean Tiny?"
    )


def test_a_run_s_dtype_changes_what_is_not_quantised() -> None:
    layer = LayerKind("dense", 1, Attention("full", 1, 1, 4, weight_dtype="bf16"), mlp=Mlp(4))
    model = Model("M", 4, 4, (layer,), "bf16", "fp8", tied_head=False)
    place = Place("run.yaml", 5, 8)
    run = with_dtype(model, "float16", place)
    assert (run.dtype, run.weight_dtype) == ("fp16", "fp8")
    assert run.layers[0].attention.weight_dtype == "fp16"
    plain = dataclasses.replace(model, weight_dtype="bf16")
    assert with_dtype(plain, "float16", place).weight_dtype == "fp16"
    assert with_dtype(model, None, place) == with_dtype(model, "auto", place) == model
    problem = one_problem(with_dtype, model, "float17", place)
    assert problem.render().startswith("run.yaml:5:8: unknown dtype (got 'float17'); allowed ")


def test_a_config_is_named_after_its_folder_or_file(tmp_path: Path) -> None:
    config = (
        '{"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 5,\n'
        ' "num_hidden_layers": 1, "intermediate_size": 16, "torch_dtype": "bfloat16"}'
    )
    (tmp_path / "kf-x").mkdir()
    assert load_model(written(tmp_path / "kf-x", config, "config.json")).name == "kf-x"
    assert load_model(written(tmp_path, config, "org--m.config.json")).name == "org--m"
    bad = written(tmp_path, config.replace('"vocab_size": 5,', ""), "config.json")
    problem = one_problem(load_model, bad)
    assert problem.render() == f"{bad}:1:1: required field vocab_size is missing"
    direct = one_problem(model_from_config, {"model_type": "llama"} | _minimal("vocab_size"), "m",
                         "c.json")  # fmt: skip
    assert direct.render() == "c.json: required field vocab_size is missing"


def _minimal(left_out: str) -> dict[str, object]:
    facts: dict[str, object] = {
        "hidden_size": 8,
        "num_attention_heads": 2,
        "vocab_size": 5,
        "num_hidden_layers": 1,
        "intermediate_size": 16,
        "torch_dtype": "bfloat16",
    }
    return {key: value for key, value in facts.items() if key != left_out}
