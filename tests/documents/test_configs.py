from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelfit.documents.configs import read_config
from kernelfit.documents.models import model_from_config
from kernelfit.documents.problems import InputError
from kernelfit.documents.yamldoc import parse_json
from kernelfit.kernel.model import (
    Attention,
    Experts,
    Latent,
    LayerKind,
    LinearState,
    Mlp,
    parameter_count,
)
from tests.documents.helpers import SHARED, one_problem, place_in, problems_of

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
MOE: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 6,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 100,
    "torch_dtype": "bfloat16",
}
LATENT: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 24,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "q_lora_rank": 12,
    "kv_lora_rank": 10,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "vocab_size": 100,
    "torch_dtype": "bfloat16",
}
HYBRID: dict[str, Any] = {
    "model_type": "qwen3_5_moe",
    "tie_word_embeddings": True,
    "text_config": {
        **MOE,
        "model_type": "qwen3_5_moe_text",
        "shared_expert_intermediate_size": 32,
        "full_attention_interval": 3,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 6,
        "linear_conv_kernel_dim": 4,
        "mamba_ssm_dtype": "float32",
    },
}


def read(config: dict[str, Any], **changes: Any) -> Any:
    """Read a config with changes; None takes a field away."""
    merged = {key: value for key, value in (config | changes).items() if value is not None}
    return model_from_config(merged, "m", "config.json")


def test_a_dense_model() -> None:
    model = read(LLAMA)
    attention = Attention("full", heads=32, kv_heads=8, head_dim=128)
    assert model.layers == (LayerKind("dense", 32, attention, mlp=Mlp(14336)),)
    assert (model.hidden, model.vocab) == (4096, 128256)
    assert (model.dtype, model.weight_dtype, model.tied_head) == ("bf16", "bf16", False)


# Published totals of checkpoints, exact: the sum of the sizes of their tensors.
@pytest.mark.parametrize(
    ("changes", "total"),
    [
        # Llama-3.1-8B
        ({}, 8_030_261_248),
        # TinyLlama-1.1B
        ({"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
          "num_key_value_heads": 4, "vocab_size": 32000}, 1_100_048_384),
        # Mistral-7B-v0.1
        ({"model_type": "mistral", "vocab_size": 32000, "sliding_window": 4096}, 7_241_732_096),
        # Qwen2.5-0.5B: biases on q, k and v only, tied head
        ({"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864,
          "num_attention_heads": 14, "num_key_value_heads": 2, "num_hidden_layers": 24,
          "vocab_size": 151936, "tie_word_embeddings": True}, 494_032_768),
        # Mixtral-8x7B
        ({"model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8,
          "num_experts_per_tok": 2}, 46_702_792_704),
    ],
)  # fmt: skip
def test_published_totals(changes: dict[str, Any], total: int) -> None:
    assert parameter_count(read(LLAMA, **changes)) == total


def test_fields_that_may_be_left_out() -> None:
    assert read(LLAMA, num_key_value_heads=None).layers[0].attention.kv_heads == 32
    assert read(LLAMA, head_dim=64).layers[0].attention.head_dim == 64
    assert read(LLAMA, tie_word_embeddings=None).tied_head is False
    assert read(LLAMA, torch_dtype=None, dtype="float16").dtype == "fp16"
    assert read(LLAMA, dtype="torch.float32").dtype == "fp32"
    biased = read(LLAMA, attention_bias=True, mlp_bias=True).layers[0]
    assert (biased.attention.bias, biased.attention.output_bias) == (True, True)
    assert biased.mlp == Mlp(14336, bias=True)


OPTIONAL = ("tie_word_embeddings", "num_key_value_heads")


@pytest.mark.parametrize("field", [field for field in LLAMA if field not in OPTIONAL])
def test_each_required_field_is_named(field: str) -> None:
    problems = problems_of(read, LLAMA, **{field: None})
    messages = [problem.message for problem in problems]
    assert f"required field {field} is missing" in messages
    assert {problem.file for problem in problems} == {"config.json"}


def test_all_missing_fields_come_at_once() -> None:
    problems = problems_of(read, LLAMA, vocab_size=None, num_attention_heads=None)
    assert {problem.message for problem in problems} == {
        "required field vocab_size is missing",
        "required field num_attention_heads is missing",
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": "4096"}, "field hidden_size is not usable (got '4096'); allowed a whole"),
        ({"hidden_size": 0}, "field hidden_size is not usable (got 0)"),
        ({"num_hidden_layers": -1}, "field num_hidden_layers is not usable (got -1)"),
        ({"num_hidden_layers": 10**9}, "is not plausible (got 1000000000); allowed 1 to 10000"),
        ({"num_hidden_layers": True}, "field num_hidden_layers is not usable (got True)"),
        ({"num_key_value_heads": 5}, "not a multiple of key-value heads (got 32 and 5)"),
        ({"num_attention_heads": 24, "num_key_value_heads": 8}, "so head_dim is needed"),
        ({"tie_word_embeddings": "no"}, "field tie_word_embeddings is not usable (got 'no')"),
        ({"torch_dtype": "bfloat17"}, "unknown dtype (got 'bfloat17'); allowed"),
        ({"torch_dtype": 16}, "unknown dtype (got 16)"),
        ({"model_type": "lama"}, "this model family is not read (got 'lama'); allowed"),
        ({"model_type": "lama"}, "did you mean llama?"),
        ({"model_type": "zzz"}, "state the model in a model document"),
        ({"quantization_config": {"quant_method": "gguf"}}, "not read (got 'gguf'); allowed fp8"),
        ({"quantization_config": {"quant_method": "awq", "bits": 3}}, "with 4- or 8-bit weights"),
        ({"quantization_config": "fp8"}, "this quantisation is not read (got 'fp8')"),
        ({"layer_types": ["full_attention"]}, "layer_types names 1 layers"),
        (
            {"layer_types": ["chunked_attention"] * 32},
            "unknown layer types (got chunked_attention)",
        ),
        ({"layer_types": ["linear_attention"] * 32}, "unknown layer types (got linear_attention)"),
    ],
)
def test_unusable_fields_are_refused(changes: dict[str, Any], words: str) -> None:
    read(LLAMA)
    assert any(words in p.render() for p in problems_of(read, LLAMA, **changes)), words


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, "fp8"),
        ({"quant_method": "mxfp4"}, "fp4"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "fp4"),
        ({"quant_method": "compressed-tensors",
          "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}}, "fp8"),
        ({"quant_method": "compressed-tensors",
          "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}}}, "int4"),
    ],
)  # fmt: skip
def test_quantised_weights(config: dict[str, Any], dtype: str) -> None:
    model = read(LLAMA, quantization_config=config)
    assert (model.dtype, model.weight_dtype) == ("bf16", dtype)
    assert model.layers[0].attention.weight_dtype is None
    spared = config | {"modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    model = read(LLAMA, quantization_config=spared)
    assert (model.weight_dtype, model.layers[0].attention.weight_dtype) == (dtype, "bf16")


def test_the_run_s_dtype_wins_over_the_config_s() -> None:
    assert model_from_config(LLAMA, "m", "c", dtype="float32").dtype == "fp32"
    assert model_from_config(LLAMA, "m", "c", dtype="auto").dtype == "bf16"
    bare = {key: value for key, value in LLAMA.items() if key != "torch_dtype"}
    assert model_from_config(bare, "m", "c", dtype="fp16").dtype == "fp16"
    problem = one_problem(model_from_config, bare, "m", "c")
    assert problem.hint == "or state the dtype of the run"


def test_experts_and_the_layers_without_them() -> None:
    expert = Experts(8, 2, 24)
    assert [(k.count, k.experts) for k in read(MOE).layers] == [(6, expert)]
    # Qwen counts its period from one: of six layers with a step of 3, those are 3 and 6.
    stepped = read(MOE, decoder_sparse_step=3)
    assert [(k.name, k.count, k.mlp) for k in stepped.layers] == [
        ("dense", 4, Mlp(96)),
        ("moe", 2, None),
    ]
    only = read(MOE, mlp_only_layers=[0, 5])
    assert {(k.name, k.count) for k in only.layers} == {("dense", 2), ("moe", 4)}
    problem = one_problem(read, MOE, num_experts_per_tok=9)
    assert "more experts than there are (got 9 of 8)" in problem.render()
    assert "num_experts is missing" in one_problem(read, MOE, num_experts=None).message


def test_one_name_for_the_experts_of_every_family() -> None:
    # transformers 5 writes num_local_experts where version 4 wrote num_experts.
    renamed = {k: v for k, v in MOE.items() if k != "num_experts"}
    assert read({**renamed, "num_local_experts": 8}) == read(MOE)
    # The family's own name wins where both stand.
    assert read({**MOE, "num_local_experts": 4}) == read(MOE)


def test_latent_attention() -> None:
    model = read(LATENT)
    attention = Attention("mla", 4, 4, 12, latent=Latent(12, 10, 8, 4, 6))
    assert model.layers == (
        LayerKind("dense", 1, attention, mlp=Mlp(96)),
        LayerKind("moe", 3, attention, experts=Experts(8, 2, 24, shared_intermediate=48)),
    )
    # Compressions and expansions by hand, and their two norms.
    projections = 64 * 12 + 12 * 4 * 12 + 64 * (10 + 4) + 10 * 4 * (8 + 6) + 4 * 6 * 64
    layer = projections + 12 + 10 + 2 * 64
    experts = 8 * 3 * 64 * 24 + 64 * 8 + 3 * 64 * 48
    total = 2 * 100 * 64 + 64 + 4 * layer + 3 * 64 * 96 + 3 * experts
    assert parameter_count(model) == total
    direct = read(LATENT, q_lora_rank=None).layers[0].attention.latent
    assert direct is not None
    assert direct.query_rank == 0
    assert "kv_lora_rank is missing" in one_problem(read, LATENT, kv_lora_rank=None).message


def test_linear_attention_and_a_nested_text_config() -> None:
    model = read(HYBRID)
    linear = LinearState(2, 4, 8, 6, 4, "fp32")
    # The shared expert's gate is Qwen's own, one vector of the model's width.
    experts = Experts(8, 2, 24, shared_intermediate=32, shared_gate=True)
    full = Attention("full", 4, 2, 16, qk_norm=True, output_gate=True)
    assert model.layers == (
        LayerKind("linear-moe", 4, Attention("linear", 4, 2, 6, linear=linear), None, experts),
        LayerKind("full-moe", 2, full, None, experts),
    )
    assert model.tied_head is True
    types = ["full_attention"] * 5 + ["linear_attention"]
    nested = HYBRID["text_config"] | {"layer_types": types}
    assert {(k.name, k.count) for k in read(HYBRID, text_config=nested).layers} == {
        ("full-moe", 5),
        ("linear-moe", 1),
    }


def test_sliding_windows() -> None:
    def kinds(**changes: Any) -> dict[str, tuple[int, int]]:
        layers = read(LLAMA, **changes).layers
        return {k.attention.kind: (k.count, k.attention.window_tokens) for k in layers}

    assert kinds(model_type="mistral", sliding_window=4096) == {"sliding": (32, 4096)}
    assert kinds(model_type="mistral") == {"full": (32, 0)}
    assert kinds(model_type="llama", sliding_window=4096) == {"full": (32, 0)}
    qwen = {"model_type": "qwen2", "sliding_window": 512, "max_window_layers": 20}
    assert kinds(**qwen) == {"full": (32, 0)}
    switched = kinds(**qwen, use_sliding_window=True)
    assert switched == {"full": (20, 0), "sliding": (12, 512)}
    mixed = ["sliding_attention", "full_attention"] * 16
    assert kinds(layer_types=mixed, sliding_window=128) == {"sliding": (16, 128), "full": (16, 0)}
    problem = one_problem(read, LLAMA, layer_types=mixed)
    assert problem.message == "required field sliding_window is missing"
    oss = {"model_type": "gpt_oss", "num_local_experts": 8, "num_experts_per_tok": 2}
    assert "layer_types is missing" in one_problem(read, LLAMA, **oss).message


def test_a_router_that_corrects_its_scores() -> None:
    # DeepSeek-V3 names its routing; V2 routes without a correction.
    for method, corrected in (("noaux_tc", True), ("group_limited_greedy", False)):
        experts = read(LATENT, topk_method=method).layers[1].experts
        assert experts is not None
        assert experts.score_bias is corrected
    plain = parameter_count(read(LATENT))
    assert parameter_count(read(LATENT, topk_method="noaux_tc")) == plain + 3 * 8


def test_a_problem_in_a_file_has_its_line() -> None:
    nested = json.loads(json.dumps(HYBRID))
    nested["text_config"]["vocab_size"] = "many"
    del nested["text_config"]["num_experts"]
    text = json.dumps(nested, indent=1)
    wrong, missing = sorted(
        problems_of(read_config, parse_json(text, "c.json"), "m"), key=lambda p: -(p.line or 0)
    )
    assert (wrong.line, wrong.column) == place_in(text, '"many"')
    assert missing.message == "required field num_experts is missing"
    assert missing.line == place_in(text, '"text_config"')[0]


CONFIGS = sorted((SHARED / "data" / "model_configs").glob("*.config.json"))


@pytest.mark.skipif(not CONFIGS, reason="no folder of public configs beside the repository")
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_field_matters_or_is_not_needed(path: Path) -> None:
    """Taking away any field gives a model or a problem that names a field, never a crash."""
    config = json.loads(path.read_text(encoding="utf-8"))
    whole = model_from_config(config, "m", path.name)
    for field in config:
        rest = {key: value for key, value in config.items() if key != field}
        try:
            model = model_from_config(rest, "m", path.name)
        except InputError:
            continue
        assert model.layer_count == whole.layer_count
