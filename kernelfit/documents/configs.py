"""A checkpoint's ``config.json`` into the core's model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernelfit.documents.dtypes import KNOWN, core_dtype
from kernelfit.documents.families import FAMILIES, ExpertKeys, Family
from kernelfit.documents.problems import InputError, Problem, did_you_mean, shown
from kernelfit.documents.quantized import attention_is_spared, quantized_dtype
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


class _Facts:
    """The facts of a config, each looked up once, every problem kept."""

    def __init__(self, document: Document) -> None:
        self.document = document
        outer = document.data
        nested = outer.get("text_config")
        self.path: tuple[str, ...] = ("text_config",) if isinstance(nested, dict) else ()
        self.outer: Mapping[str, Any] = outer
        self.inner: Mapping[str, Any] = nested if isinstance(nested, dict) else outer
        self.problems: list[Problem] = []
        self.bad: set[str] = set()

    def fail(self, key: str, message: str, **words: str | None) -> None:
        self.bad.add(key)
        place = self.document.place((*self.path, key))
        self.problems.append(Problem.at(place, message, **words))

    def get(self, key: str) -> Any:
        """Return a fact; the nested text config wins; null is as good as absent."""
        value = self.inner.get(key)
        return self.outer.get(key) if value is None else value

    def missing(self, key: str, hint: str | None = None) -> None:
        self.fail(key, f"required field {key} is missing", hint=hint)

    def count(self, key: str, default: int | None = None, least: int = 1) -> int:
        value = self.get(key)
        if value is None:
            if default is None:
                self.missing(key)
                return least
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            allowed = f"a whole number, at least {least}"
            self.fail(key, f"field {key} is not usable", got=shown(value), allowed=allowed)
            return least
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            message = f"field {key} is not usable"
            self.fail(key, message, got=shown(value), allowed="true or false")
            return default
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        value = self.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(type(item) is int for item in value):
            message = f"field {key} is not usable"
            self.fail(key, message, got=shown(value), allowed="a list of whole numbers")
            return ()
        return tuple(value)


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
    facts = _Facts(document)
    family = _family(facts)
    if family is None:
        raise InputError(facts.problems)
    layers = facts.count("num_hidden_layers")
    if layers > 10_000:
        facts.fail("num_hidden_layers", "is not plausible", got=str(layers), allowed="1 to 10000")
        layers = 1
    base = _dtype(facts, family, dtype)
    weight = _weight_dtype(facts, base)
    spared = base if weight != base and attention_is_spared(_quantization(facts)) else None
    attention = _attention(facts, family, layers, spared)
    feed = _feed_forward(facts, family)
    kinds: dict[tuple[Attention, Mlp | None, Experts | None], int] = {}
    for index in range(layers):
        mlp, experts = feed(index)
        key = (attention(index), mlp, experts)
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
        weight_dtype=weight,
        tied_head=tied,
    )


def _kind_name(attention: Attention, experts: Experts | None, several: bool) -> str:
    feed = "moe" if experts is not None else "dense"
    return f"{attention.kind}-{feed}" if several else feed


def _family(facts: _Facts) -> Family | None:
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


def _dtype(facts: _Facts, family: Family, dtype: str | None) -> str:
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


def _quantization(facts: _Facts) -> Mapping[str, Any] | None:
    value = facts.get("quantization_config")
    return value if isinstance(value, dict) else None


def _weight_dtype(facts: _Facts, base: str) -> str:
    config = facts.get("quantization_config")
    if config is None:
        return base
    found = quantized_dtype(config) if isinstance(config, dict) else None
    if found is None:
        method = config.get("quant_method") if isinstance(config, dict) else config
        facts.fail(
            "quantization_config",
            "this quantisation is not read",
            got=shown(method),
            allowed="fp8, mxfp4, awq, gptq, bitsandbytes, modelopt, compressed-tensors, "
            "with 4- or 8-bit weights",
        )
        return base
    return found


def _attention(
    facts: _Facts, family: Family, layers: int, weight_dtype: str | None
) -> Callable[[int], Attention]:
    """Return the attention of each layer, by its index."""
    if family.latent:
        latent = _latent_attention(facts, weight_dtype)
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
                weight_dtype=weight_dtype,
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
            weight_dtype=weight_dtype,
        )

    return at


def _head_dim(facts: _Facts, heads: int) -> int:
    if facts.get("head_dim") is not None:
        return facts.count("head_dim")
    hidden = facts.get("hidden_size")
    if isinstance(hidden, int) and not facts.bad & _HEADS and hidden % heads:
        message = "hidden_size is not a multiple of num_attention_heads, so head_dim is needed"
        facts.fail("head_dim", message, got=f"{hidden} and {heads}")
    return max(hidden // heads, 1) if isinstance(hidden, int) else 1


def _windows(facts: _Facts, family: Family, layers: int) -> tuple[str, ...]:
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


def _latent_attention(facts: _Facts, weight_dtype: str | None) -> Attention:
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
        weight_dtype=weight_dtype,
        latent=latent,
    )


def _linear(facts: _Facts) -> LinearState:
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
    facts: _Facts, family: Family
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


def _mlp(facts: _Facts) -> Mlp:
    bias = facts.flag("mlp_bias", default=False)
    return Mlp(facts.count("intermediate_size"), gated=True, bias=bias)


def _experts(facts: _Facts, keys: ExpertKeys) -> Experts:
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
    )
