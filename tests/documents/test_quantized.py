"""What checkpoints say of their quantisation: scales by hand, parts left alone, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from kernelfit.documents.quantized import Quantization, QuantizationError, read_quantization
from tests.documents.helpers import one_problem
from tests.documents.test_configs import HYBRID, LATENT, LLAMA, MOE, read


def tensors(**weights: Any) -> dict[str, Any]:
    """A compressed-tensors config with one group."""
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {
        "targets": ["Linear"], "weights": weights}}}  # fmt: skip


# Bits of a scale (and zero point) over the elements that share it, by each format's definition.
@pytest.mark.parametrize(
    ("config", "dtype", "scale_bits", "elements"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 32, 128 * 128),
        ({"quant_method": "fp8"}, "fp8", 0, 1),
        ({"quant_method": "fbgemm_fp8"}, "fp8", 0, 1),
        ({"quant_method": "mxfp4"}, "fp4", 8, 32),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "fp4", 8, 16),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32}, "fp4", 8, 32),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8", 0, 1),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4", 16 + 4, 128),
        ({"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": False}, "int4", 16, 64),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, "int4", 16, 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": 32, "sym": False}, "int8", 24, 32),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "int4", 0, 1),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4", 32, 64),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
         "int4", 8 * 256 + 32, 64 * 256),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", 0, 1),
        (tensors(num_bits=4, type="int", strategy="group", group_size=32), "int4", 16, 32),
        (tensors(num_bits=4, type="int", strategy="group", group_size=128, symmetric=False),
         "int4", 20, 128),
        (tensors(num_bits=4, type="float", strategy="tensor_group", group_size=16), "fp4", 8, 16),
        (tensors(num_bits=8, type="float", strategy="block", block_structure=[128, 128]),
         "fp8", 32, 128 * 128),
        (tensors(num_bits=8, type="float", strategy="channel"), "fp8", 0, 1),
    ],
)  # fmt: skip
def test_scales_by_hand(config: dict[str, Any], dtype: str, scale_bits: int, elements: int) -> None:
    model = read(LLAMA, quantization_config=config)
    assert (model.dtype, model.weight_dtype) == ("bf16", dtype)
    assert model.scale_bytes == pytest.approx(scale_bits / 8 / elements, rel=1e-12, abs=0)


# Each stands beside its nearest accepted neighbour in the test above.
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"quant_method": "awq", "bits": 3}, "awq with 3 bits"),
        ({"quant_method": "awq", "bits": True}, "awq with True bits"),
        ({"quant_method": "awq", "bits": 4, "group_size": 0}, "group_size is 0"),
        ({"quant_method": "gptq", "bits": 4, "group_size": "128"}, "group_size is '128'"),
        ({"quant_method": "gptq", "bits": 4, "lm_head": True}, "gptq with a quantised head"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"-:x": {}}}, "rules per module"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "a block of [128]"),
        ({"quant_method": "fp8", "weight_block_size": [128, 0]}, "block size is 0"),
        ({"quant_method": "bitsandbytes"}, "neither load_in_4bit nor load_in_8bit"),
        ({"quant_method": "modelopt", "quant_algo": "FP3"}, "modelopt with 'FP3'"),
        (tensors(num_bits=4, type="int", strategy="token"), "strategy 'token'"),
        ({"quant_method": "compressed-tensors"}, "no group, or groups that differ"),
        ({"quant_method": "fp8", "ignore": "lm_head"}, "ignore is no list of names"),
        ({"quant_method": "fp8", "ignore": ["re:("]}, "'re:(' is no regular expression"),
    ],
)
def test_what_is_not_understood_is_refused(config: dict[str, Any], words: str) -> None:
    problem = one_problem(read, LLAMA, quantization_config=config)
    assert words in problem.message
    assert problem.render().startswith("config.json: this quantisation is not read")


def dtypes(config: dict[str, Any], **quantization: Any) -> list[tuple[int, str | None, Any]]:
    """Count, attention's and feed-forward's own data type of every kind of layer."""
    model = read(config, quantization_config={"quant_method": "fp8"} | quantization)
    return [
        (k.count, k.attention.weight_dtype, k.mlp.weight_dtype if k.mlp is not None else
         (k.experts.weight_dtype, k.experts.shared_weight_dtype) if k.experts is not None else None)
        for k in model.layers
    ]  # fmt: skip


def test_parts_left_alone_keep_the_checkpoint_s_type() -> None:
    assert dtypes(LLAMA) == [(32, None, None)]
    assert dtypes(LLAMA, ignore=["lm_head", "model.embed_tokens"]) == [(32, None, None)]
    spared = dtypes(LLAMA, modules_to_not_convert=["model.layers.*.self_attn"])
    assert spared == dtypes(LLAMA, ignore=[r"re:.*self_attn.*"]) == [(32, "bf16", None)]
    # First and last layer whole, as checkpoints for long contexts do.
    ends = dtypes(LLAMA, ignore=["model.layers.0", "model.layers.31"])
    assert ends == [(2, "bf16", "bf16"), (30, None, None)]
    assert dtypes(LLAMA, exclude_modules=["*.mlp.*"]) == [(32, None, "bf16")]
    named = [f"model.layers.{i}.self_attn.{p}_proj" for i in range(32) for p in "qkvo"]
    assert dtypes(LLAMA, ignore=named) == [(32, "bf16", None)]


def test_a_router_is_not_a_gate_projection() -> None:
    routers = [f"model.layers.{i}.mlp.gate" for i in range(6)]
    assert dtypes(MOE, ignore=routers) == [(6, None, (None, None))]
    assert dtypes(MOE, ignore=["mlp.experts"]) == [(6, None, ("bf16", None))]
    assert dtypes(LATENT, ignore=["re:.*shared_experts.*"]) == [
        (1, None, None),
        (3, None, (None, "bf16")),
    ]


def test_a_nested_text_model_and_linear_attention() -> None:
    text = {**HYBRID["text_config"], "torch_dtype": "bfloat16"}
    small = ["in_proj_a", "in_proj_b", "conv1d"]
    names = [f"model.language_model.layers.0.linear_attn.{name}" for name in small]
    whole = [f"model.language_model.layers.{i}.linear_attn" for i in range(6)]
    assert {a for _, a, _ in dtypes({**HYBRID, "text_config": text}, ignore=names)} == {None}
    found = dtypes({**HYBRID, "text_config": text}, ignore=whole)
    assert [(count, own) for count, own, _ in found] == [(4, "bf16"), (2, None)]


@pytest.mark.parametrize(
    ("config", "spared", "words"),
    [
        (LLAMA, ["q_proj"], "layers.0.self_attn.k_proj is quantised and model.layers.0"),
        (LLAMA, ["model.layers.3.mlp.down_proj"], "model.layers.3.mlp.gate_proj is quantised"),
        (MOE, ["mlp.experts.5"], "mlp.experts.0.gate_proj is quantised"),
    ],
)
def test_a_part_quantised_by_halves_is_refused(
    config: dict[str, Any], spared: list[str], words: str
) -> None:
    quantization = {"quant_method": "fp8", "ignore": spared}
    problem = one_problem(read, config, quantization_config=quantization)
    assert words in problem.message
    assert problem.hint == "state the model in a model document"


def test_targets_say_what_is_quantised() -> None:
    group = {"targets": ["re:.*mlp.experts.*"], "weights": {"num_bits": 8, "type": "float"}}
    config = {"quant_method": "compressed-tensors", "config_groups": {"a": group}}
    model = read(MOE, quantization_config=config)
    assert model.layers[0].attention.weight_dtype == "bf16"
    assert model.layers[0].experts is not None
    assert model.layers[0].experts.weight_dtype is None
    other = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int"}}
    config["config_groups"] = {"a": group, "b": other}
    assert "groups that differ" in one_problem(read, MOE, quantization_config=config).message


def test_nothing_to_cover_counts_as_covered() -> None:
    assert Quantization("fp8").covers(())
    assert read_quantization({"quant_method": "fp8"}) == Quantization("fp8")
    with pytest.raises(QuantizationError):
        read_quantization("fp8")
