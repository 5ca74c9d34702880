"""What checkpoints call the modules of a layer, for the lists that leave some unquantised."""

from __future__ import annotations

from kernelfit.documents.families import ExpertKeys, Family
from kernelfit.kernel.model import Attention, Experts


def attention_modules(attention: Attention, family: Family) -> tuple[str, ...]:
    """Return the names of a layer's attention projections.

    Parameters
    ----------
    attention : Attention
        The attention.
    family : Family
        The family whose names they are.

    Returns
    -------
    tuple of str
        Names within a layer. For ``linear`` the convolution and the projections to the two
        scalars per head are left out: the core never counts them as quantised.
    """
    if attention.linear is not None:
        return tuple(f"linear_attn.{name}" for name in family.linear_modules)
    if attention.latent is not None:
        query = ("q_a_proj", "q_b_proj") if attention.latent.query_rank else ("q_proj",)
        names = (*query, "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
    else:
        names = ("q_proj", "k_proj", "v_proj", "o_proj")
    return tuple(f"self_attn.{name}" for name in names)


def mlp_modules(block: str) -> tuple[str, ...]:
    """Return the names of an MLP's projections.

    Parameters
    ----------
    block : str
        What holds them, for example ``mlp``.

    Returns
    -------
    tuple of str
        Names within a layer.
    """
    return tuple(f"{block}.{name}" for name in ("gate_proj", "up_proj", "down_proj"))


def expert_modules(experts: Experts, keys: ExpertKeys, named: tuple[int, ...]) -> tuple[str, ...]:
    """Return the names of projections of some routed experts.

    Parameters
    ----------
    experts : Experts
        The experts.
    keys : ExpertKeys
        The names of the family.
    named : tuple of int
        Experts to look at beside the first and the last.

    Returns
    -------
    tuple of str
        Names within a layer.
    """
    last = experts.experts - 1
    numbers = sorted({0, last, *(number for number in named if number <= last)})
    return tuple(
        f"{keys.block}.experts.{number}.{name}" for number in numbers for name in keys.projections
    )
