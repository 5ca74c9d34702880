"""A checkpoint's ``config.json`` into the core's model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernelfit.documents.dtypes import KNOWN, core_dtype
from kernelfit.documents.facts import Facts
from kernelfit.documents.families import FAMILIES, ExpertKeys, Family
from kernelfit.documents.modules import attention_modules, expert_modules, mlp_modules
from kernelfit.documents.problems import InputError, did_you_mean, shown
from kernelfit.documents.quantized import Quantization, QuantizationError, read_quantization
from kernelfit.documents.yamldoc import Document
from kernelfit.kernel.model import (
    Attention,
    Experts,
    Latent,
    LayerKind,
    LinearState,
    Mlp,
    Model,
)

_ATTENTION_KINDS = {
    "full_attention": "full",
    "sliding_attention": "sliding",
    "linear_attention": "linear",
}
_HEADS = {"num_attention_heads", "num_key_value_heads"}


def read_config(document: Document, name: str, dtype: str | None = None) -> Model:
    """Build a model from a parsed ``config.json``.

    Parameters
    ----------
    document : Document
        The config, with positions where known.
    name : str
        The model's name.
    dtype : str, optional
        Data type that the engine runs with; by default the config's.

    Returns
    -------
    Model
        The model. Draft layers and vision towers are left out.

    Raises
    ------
    InputError
        With every problem: missing or unusable fields, an unknown family, data type or
        quantisation.
    """
    facts = Facts(document)
    family = _family(facts)
    if family is None:
        raise InputError(facts.problems)
    layers = facts.count("num_hidden_layers")
    if layers > 10_000:
        facts.fail("num_hidden_layers", "is not plausible", got=str(layers), allowed="1 to 10000")
        layers = 1
    base = _dtype(facts, family, dtype)
    quantization = _quantization(facts)
    attention = _attention(facts, family, layers)
    feed = _feed_forward(facts, family)
    kinds: dict[tuple[Attention, Mlp | None, Experts | None], int] = {}
    for index in range(layers):
        mlp, experts = feed(index)
        key = (attention(index), mlp, experts)
        if quantization is not None:
            key = _with_dtypes(facts, family, quantization, base, index, key)
        kinds[key] = kinds.get(key, 0) + 1
    hidden, vocab = facts.count("hidden_size"), facts.count("vocab_size")
    tied = facts.flag("tie_word_embeddings", default=False)
    if facts.problems:
        raise InputError(facts.problems)
    several = len({key[0].kind for key in kinds}) > 1
    return Model(
        name=name,
        hidden=hidden,
        vocab=vocab,
        layers=tuple(
            LayerKind(_kind_name(key[0], key[2], several), count, *key)
            for key, count in kinds.items()
        ),
        dtype=base,
        weight_dtype=base if quantization is None else quantization.dtype,
        tied_head=tied,
        scale_bytes=0.0 if quantization is None else quantization.scale_bytes,
    )


def _kind_name(attention: Attention, experts: Experts | None, several: bool) -> str:
    feed = "moe" if experts is not None else "dense"
    return f"{attention.kind}-{feed}" if several else feed


def _family(facts: Facts) -> Family | None:
    kind = facts.get("model_type")
    if kind is None:
        facts.missing("model_type", hint="or state the model in a model document")
        return None
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        facts.fail(
            "model_type",
            "this model family is not read",
            got=shown(kind),
            allowed=", ".join(sorted(FAMILIES)),
            hint=did_you_mean(str(kind), FAMILIES) or "state the model in a model document",
        )
    return family


def _dtype(facts: Facts, family: Family, dtype: str | None) -> str:
    stated: Any = dtype
    key = "torch_dtype"
    if stated is None or stated == "auto":
        key = "dtype" if facts.get("dtype") is not None else "torch_dtype"
        stated = facts.get(key) or family.dtype
    if stated is None:
        facts.missing("torch_dtype", hint="or state the dtype of the run")
        return "bf16"
    word = core_dtype(stated) if isinstance(stated, str) else None
    if word is None:
        facts.fail(key, "unknown dtype", got=shown(stated), allowed=", ".join(KNOWN))
        return "bf16"
    return word


def _quantization(facts: Facts) -> Quantization | None:
    config = facts.get("quantization_config")
    if config is None:
        return None
    try:
        return read_quantization(config)
    except QuantizationError as error:
        method = config.get("quant_method") if isinstance(config, dict) else config
        facts.fail(
            "quantization_config",
            f"this quantisation is not read{f': {error}' if str(error) else ''}",
            got=shown(method),
            allowed="fp8, mxfp4, awq, gptq, bitsandbytes, modelopt, compressed-tensors, "
            "with 4- or 8-bit weights",
        )
        return None


def _with_dtypes(
    facts: Facts,
    family: Family,
    quantization: Quantization,
    base: str,
    index: int,
    layer: tuple[Attention, Mlp | None, Experts | None],
) -> tuple[Attention, Mlp | None, Experts | None]:
    """Give the parts that a checkpoint leaves alone their own data type."""
    attention, mlp, experts = layer

    def own(names: tuple[str, ...]) -> str | None:
        prefix = f"model.layers.{index}."
        try:
            return None if quantization.covers(prefix + name for name in names) else base
        except QuantizationError as error:
            if "quantization_config" not in facts.bad:
                message = f"a part of a layer is quantised by halves: {error}"
                hint = "state the model in a model document"
                facts.fail("quantization_config", message, hint=hint)
            return None

    attention = replace(attention, weight_dtype=own(attention_modules(attention, family)))
    if mlp is not None:
        mlp = replace(mlp, weight_dtype=own(mlp_modules("mlp")))
    if experts is not None and family.experts is not None:
        keys = family.experts
        named = quantization.spared_experts()
        routed = own(expert_modules(experts, keys, named))
        shared = own(mlp_modules(keys.shared_block)) if experts.shared_intermediate else None
        experts = replace(experts, weight_dtype=routed, shared_weight_dtype=shared)
    return attention, mlp, experts


def _attention(facts: Facts, family: Family, layers: int) -> Callable[[int], Attention]:
    """Return the attention of each layer, by its index."""
    if family.latent:
        latent = _latent_attention(facts)
        return lambda _: latent
    heads = facts.count("num_attention_heads")
    kv_heads = facts.count("num_key_value_heads", default=heads)
    if not facts.bad & _HEADS and heads % kv_heads:
        facts.fail(
            "num_key_value_heads",
            "query heads are not a multiple of key-value heads",
            got=f"{heads} and {kv_heads}",
        )
    bias = facts.flag("attention_bias", default=facts.flag("qkv_bias", default=family.bias))
    gate = facts.flag("attn_output_gate", default=family.output_gate)
    windows = _windows(facts, family, layers)
    linear = _linear(facts) if family.linear else None
    width = _head_dim(facts, heads)

    def at(index: int) -> Attention:
        kind = windows[index]
        if kind == "linear" and linear is not None:
            return Attention(
                kind="linear",
                heads=linear.value_heads,
                kv_heads=linear.key_heads,
                head_dim=linear.value_head_dim,
                linear=linear,
            )
        return Attention(
            kind=kind,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=width,
            window_tokens=facts.count("sliding_window") if kind == "sliding" else 0,
            bias=bias,
            qk_norm=family.qk_norm,
            output_bias=bias and family.output_bias,
            output_gate=gate,
            sinks=family.sinks,
        )

    return at


def _head_dim(facts: Facts, heads: int) -> int:
    if facts.get("head_dim") is not None:
        return facts.count("head_dim")
    hidden = facts.get("hidden_size")
    if isinstance(hidden, int) and not facts.bad & _HEADS and hidden % heads:
        message = "hidden_size is not a multiple of num_attention_heads, so head_dim is needed"
        facts.fail("head_dim", message, got=f"{hidden} and {heads}")
    return max(hidden // heads, 1) if isinstance(hidden, int) else 1


def _windows(facts: Facts, family: Family, layers: int) -> tuple[str, ...]:
    """Return each layer's kind of attention."""
    stated = facts.get("layer_types")
    if stated is not None:
        allowed = {k: v for k, v in _ATTENTION_KINDS.items() if v != "linear" or family.linear}
        words = stated if isinstance(stated, list) else [stated]
        unknown = sorted({str(word) for word in words} - set(allowed))
        if unknown:
            message = "unknown layer types"
            got, may = ", ".join(unknown), ", ".join(allowed)
            facts.fail("layer_types", message, got=got, allowed=may)
        elif len(words) != layers:
            message = f"layer_types names {len(words)} layers, num_hidden_layers says {layers}"
            facts.fail("layer_types", message)
        else:
            return tuple(allowed[word] for word in words)
        return ("full",) * layers
    if family.linear:
        every = facts.count("full_attention_interval", default=4)
        return tuple("linear" if (i + 1) % every else "full" for i in range(layers))
    if family.window == "stated":
        facts.missing("layer_types")
    if facts.get("sliding_window") is None or family.window in ("none", "stated"):
        return ("full",) * layers
    if family.window == "switched":
        if not facts.flag("use_sliding_window", default=False):
            return ("full",) * layers
        first = facts.count("max_window_layers", least=0)
        return tuple("sliding" if i >= first else "full" for i in range(layers))
    return ("sliding",) * layers


def _latent_attention(facts: Facts) -> Attention:
    heads = facts.count("num_attention_heads")
    latent = Latent(
        query_rank=facts.count("q_lora_rank", default=0, least=0),
        kv_rank=facts.count("kv_lora_rank"),
        nope_head_dim=facts.count("qk_nope_head_dim"),
        rope_head_dim=facts.count("qk_rope_head_dim"),
        value_head_dim=facts.count("v_head_dim"),
    )
    return Attention(
        kind="mla",
        heads=heads,
        kv_heads=heads,
        head_dim=latent.nope_head_dim + latent.rope_head_dim,
        latent=latent,
    )


def _linear(facts: Facts) -> LinearState:
    word = facts.get("mamba_ssm_dtype") or "float32"
    state = core_dtype(word) if isinstance(word, str) else None
    if state is None:
        facts.fail("mamba_ssm_dtype", "unknown dtype", got=shown(word), allowed=", ".join(KNOWN))
    return LinearState(
        key_heads=facts.count("linear_num_key_heads"),
        value_heads=facts.count("linear_num_value_heads"),
        key_head_dim=facts.count("linear_key_head_dim"),
        value_head_dim=facts.count("linear_value_head_dim"),
        conv_kernel=facts.count("linear_conv_kernel_dim"),
        state_dtype=state or "fp32",
    )


def _feed_forward(
    facts: Facts, family: Family
) -> Callable[[int], tuple[Mlp | None, Experts | None]]:
    """Return the MLP or the experts of each layer, by its index."""
    if family.experts is None:
        dense = _mlp(facts)
        return lambda _: (dense, None)
    experts = _experts(facts, family.experts)
    first = facts.count("first_k_dense_replace", default=0, least=0)
    every = facts.count("moe_layer_freq", default=facts.count("decoder_sparse_step", default=1))
    only = set(facts.integers("mlp_only_layers"))
    # DeepSeek counts its period from layer 0, Qwen from layer 1.
    shift = 0 if facts.get("moe_layer_freq") is not None else 1

    def at(index: int) -> tuple[Mlp | None, Experts | None]:
        if index in only or index < first or (index + shift) % every:
            return _mlp(facts), None
        return None, experts

    return at


def _mlp(facts: Facts) -> Mlp:
    bias = facts.flag("mlp_bias", default=False)
    return Mlp(facts.count("intermediate_size"), gated=True, bias=bias)


def _experts(facts: Facts, keys: ExpertKeys) -> Experts:
    name = keys.experts
    if keys.also is not None and facts.get(name) is None and facts.get(keys.also) is not None:
        name = keys.also
    experts = facts.count(name)
    per_token = facts.count("num_experts_per_tok")
    if per_token > experts and name not in facts.bad:
        facts.fail(
            "num_experts_per_tok",
            "a token cannot be routed to more experts than there are",
            got=f"{per_token} of {experts}",
        )
    width = facts.count(keys.intermediate)
    shared = 0
    if keys.shared is not None:
        shared = facts.count(keys.shared, default=0, least=0)
    if keys.shared_count is not None:
        shared = width * facts.count(keys.shared_count, default=0, least=0)
    return Experts(
        experts=experts,
        per_token=per_token,
        intermediate=width,
        gated=True,
        shared_intermediate=shared,
        bias=keys.bias,
        shared_gate=keys.shared_gate and shared > 0,
        score_bias=facts.get("topk_method") == "noaux_tc",
    )
