"""Models with the kinds of attention that the plain builders leave out, and a CPU."""

from __future__ import annotations

from dataclasses import replace

from kernelfit.kernel import Attention, LayerKind, Mlp, Model
from kernelfit.kernel.model import Latent, LinearState
from tests.kernel.builders import CHIP

CPU = replace(CHIP, name="cpu", kind="cpu", pcie_bytes_per_s=0.0)


def with_attention(*attention: Attention) -> Model:
    """A dense model with one layer of each attention."""
    kinds = tuple(LayerKind(f"{a.kind}-{at}", 1, a, Mlp(4096)) for at, a in enumerate(attention))
    return Model("shaped", 1024, 32000, kinds, "bf16", "bf16", tied_head=False)


def latent(rank: int = 512) -> Model:
    """Latent attention with the widths of DeepSeek-V3."""
    return with_attention(Attention("mla", 128, 128, 192, latent=Latent(1536, rank, 128, 64, 128)))


def hybrid(key_heads: int = 16, value_heads: int = 32, kv_heads: int = 4) -> Model:
    """Linear and full attention in turn, as Qwen3.5 has them."""
    state = LinearState(key_heads, value_heads, 128, 128, 4, "fp32")
    return with_attention(
        Attention("linear", value_heads, key_heads, 128, linear=state),
        Attention("full", 16, kv_heads, 256),
    )
