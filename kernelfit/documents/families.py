"""The model families whose ``config.json`` is read, and how each one names its facts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExpertKeys:
    """How a family names the facts of its mixture of experts.

    Attributes
    ----------
    experts : str
        Key of the number of routed experts.
    intermediate : str
        Key of one expert's hidden width.
    shared : str or None
        Key of the shared experts' hidden width, if it has any.
    shared_count : str or None
        Key of the number of shared experts, each as wide as a routed one.
    bias : bool
        Whether the experts' projections carry a bias.
    shared_gate : bool
        Whether the shared experts' output is scaled by a gate of its own.
    block : str
        What a layer calls the module that holds its routed experts.
    shared_block : str
        What a layer calls its shared experts.
    projections : tuple of str
        What an expert calls its projections.
    also : str or None
        Another key of the number of routed experts: since version 5 the transformers
        library writes one name for every family.
    """

    experts: str
    intermediate: str
    shared: str | None = None
    shared_count: str | None = None
    bias: bool = False
    shared_gate: bool = False
    block: str = "mlp"
    shared_block: str = "mlp.shared_experts"
    projections: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    also: str | None = "num_local_experts"


@dataclass(frozen=True, slots=True)
class Family:
    """What a ``model_type`` means where its ``config.json`` is silent.

    Attributes
    ----------
    latent : bool
        Whether attention is multi-head latent attention.
    bias : bool
        Whether query, key and value have a bias when ``attention_bias`` is not given.
    output_bias : bool
        Whether the output projection has a bias wherever query, key and value have one.
    qk_norm : bool
        Whether queries and keys are normalised per head.
    output_gate : bool
        Whether the attention's output is gated when ``attn_output_gate`` is not given.
    sinks : bool
        Whether heads have learned sinks.
    window : str
        Where ``sliding_window`` applies if no ``layer_types`` say so: ``all`` layers,
        ``switched`` (``use_sliding_window``, from layer ``max_window_layers`` on),
        ``none``, or ``stated`` where ``layer_types`` must say so.
    linear : bool
        Whether some layers are linear attention.
    linear_modules : tuple of str
        What a linear-attention layer calls its projections.
    experts : ExpertKeys or None
        Names of the facts of its experts.
    dtype : str or None
        Data type of the published checkpoints when the file does not say.
    """

    latent: bool = False
    bias: bool = False
    output_bias: bool = True
    qk_norm: bool = False
    output_gate: bool = False
    sinks: bool = False
    window: str = "none"
    linear: bool = False
    linear_modules: tuple[str, ...] = ("in_proj_qkv", "in_proj_z", "out_proj")
    experts: ExpertKeys | None = None
    dtype: str | None = None


_QWEN_EXPERTS = ExpertKeys("num_experts", "moe_intermediate_size")
_QWEN_SHARED = ExpertKeys(
    "num_experts",
    "moe_intermediate_size",
    shared="shared_expert_intermediate_size",
    shared_gate=True,
    shared_block="mlp.shared_expert",
)
_DEEPSEEK = Family(
    latent=True,
    experts=ExpertKeys(
        "n_routed_experts", "moe_intermediate_size", shared_count="n_shared_experts"
    ),
)

FAMILIES: dict[str, Family] = {
    "llama": Family(),
    "mistral": Family(window="all"),
    "mixtral": Family(
        window="all",
        experts=ExpertKeys(
            "num_local_experts",
            "intermediate_size",
            block="block_sparse_moe",
            projections=("w1", "w2", "w3"),
        ),
    ),
    "qwen2": Family(bias=True, output_bias=False, window="switched"),
    "qwen2_moe": Family(bias=True, output_bias=False, window="switched", experts=_QWEN_SHARED),
    "qwen3": Family(qk_norm=True, window="switched"),
    "qwen3_moe": Family(qk_norm=True, window="switched", experts=_QWEN_EXPERTS),
    "qwen3_next": Family(
        qk_norm=True,
        output_gate=True,
        linear=True,
        linear_modules=("in_proj_qkvz", "out_proj"),
        experts=_QWEN_SHARED,
    ),
    "qwen3_5_moe_text": Family(qk_norm=True, output_gate=True, linear=True, experts=_QWEN_SHARED),
    "gpt_oss": Family(
        bias=True,
        sinks=True,
        window="stated",
        experts=ExpertKeys("num_local_experts", "intermediate_size", bias=True),
        dtype="bf16",
    ),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
}
"""Families by ``model_type``. What stands here was checked against the families' public
model code; a family that is not listed is refused, because a guess about biases, gates or
windows would be wrong in silence."""
