"""The step time that inference-sim's ``trained-physics`` backend computes, re-implemented.

Source: inference-sim/inference-sim, ``sim/latency/trained_physics_model.go`` (the text with
11 betas and the activated share of experts, #1849) and ``sim/expert_placement.go``
(``BalancedPlacement``). Everything is in microseconds there; one node and one data-parallel
rank are re-implemented, without adapters and without speculation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.kernel.basis import Array
from kernelfit.kernel.batch import Batch
from kernelfit.kernel.errors import InvalidArgument

BETAS: tuple[str, ...] = (
    "beta1a",
    "beta2a",
    "beta3",
    "beta4",
    "beta5",
    "beta6",
    "beta7",
    "beta8",
    "beta1b",
    "beta2b",
    "beta_EP",
)
"""The betas in the order of the array; its length selects the formula."""

BASES: tuple[str, ...] = (
    "T_pf_compute, prompt FLOP at the peak",
    "T_dc_compute, decode FLOP at the peak",
    "T_weight, weight bytes at the peak",
    "T_tp, all-reduce bytes at the peak of the HBM",
    "L, layers [us per layer]",
    "B, requests [us per request]",
    "1, step [us per step]",
    "nMoE, layers with experts, where they alternate with dense ones [us per layer]",
    "T_pf_kv, KV bytes written at the peak",
    "T_dc_kv, KV bytes read and written at the peak",
    "T_moe_dispatch, dispatch bytes at the peak of the HBM",
)
"""What each beta multiplies; those without a unit of their own are shares [1]."""

KV_ELEMENT_BYTES = 2.0
"""Size of a cached element whatever the cache's data type [bytes]."""


@dataclass(frozen=True, slots=True)
class SimShape:
    """What the simulator reads of a model's ``config.json`` and of its command line.

    Attributes
    ----------
    layers, hidden, heads, kv_heads : int
        ``num_hidden_layers``, ``hidden_size``, ``num_attention_heads``,
        ``num_key_value_heads``.
    intermediate : int
        Hidden width of the MLP, or of one expert where there are experts.
    experts, per_token : int
        Routed experts and how many a token takes; 0 for dense models.
    shared_intermediate : int
        Hidden width of the shared experts together; 0 for none.
    weight_bytes, activation_bytes : float
        Size of a weight and of an activation [bytes].
    tp : int
        Tensor-parallel width.
    expert_parallel : bool
        Whether experts are owned whole.
    sends_rows : bool
        Whether the exchange sends each row to its experts' owners, not every row to all.
    peak_flop_per_s, hbm_bytes_per_s : float
        Peaks of the hardware entry [FLOP/s, byte/s].
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    intermediate: int
    experts: int
    per_token: int
    shared_intermediate: int
    weight_bytes: float
    activation_bytes: float
    tp: int
    expert_parallel: bool
    sends_rows: bool
    peak_flop_per_s: float
    hbm_bytes_per_s: float

    @property
    def head_dim(self) -> int:
        """Width of a head as the simulator derives it, ``hidden / heads``."""
        return self.hidden // self.heads

    def basis_us(self, batch: Batch) -> Array:
        """Return what the betas multiply for one batch.

        Parameters
        ----------
        batch : Batch
            The batch; a request is a prefill where it has computed less than its prompt.

        Returns
        -------
        ndarray, shape (11,)
            In the order of ``BETAS`` [us], counts for the four overheads.
        """
        prompts = [r for r in batch.requests if r.computed < r.prompt_len]
        decodes = [r for r in batch.requests if r.computed >= r.prompt_len]
        prefill = float(sum(r.scheduled for r in prompts))
        decode = float(len(decodes))
        context = float(sum(r.computed for r in decodes))
        heads = self.heads / self.tp
        score = sum(
            4.0 * heads * r.scheduled * (r.prompt_len + r.scheduled / 2.0) * self.head_dim
            for r in prompts
        )
        flop_us = self.peak_flop_per_s / 1e6
        byte_us = self.hbm_bytes_per_s / 1e6
        kv = self.kv_heads * self.head_dim / self.tp * 2.0 * self.layers * KV_ELEMENT_BYTES
        attention = 4.0 * heads * context * self.head_dim * self.layers
        out = np.zeros(len(BETAS))
        out[0] = (self._linear_flop(prefill) + score * self.layers) / flop_us
        out[1] = (self._linear_flop(decode) + attention) / flop_us if decode else 0.0
        out[2] = self._weight_bytes(prefill + decode) / byte_us
        out[3] = self._reduced_bytes(prefill + decode) / byte_us
        out[4] = self.layers
        out[5] = len(batch.requests)
        out[6] = 1.0
        out[8] = kv * prefill / byte_us
        out[9] = kv * (context + decode) / byte_us if decode else 0.0
        out[10] = self._dispatched_bytes(prefill + decode) / byte_us
        return out

    @property
    def _projections(self) -> float:
        """Parameters of a layer's four projections."""
        return self.hidden * (2.0 * self.hidden + 2.0 * self.kv_heads * self.head_dim)

    def _linear_flop(self, tokens: float) -> float:
        routed = self.per_token if self.experts else 1
        flop = 2.0 * tokens * self._projections
        flop += 6.0 * tokens * routed * self.hidden * self.intermediate
        flop += 6.0 * tokens * self.hidden * self.shared_intermediate
        return self.layers * flop / self.tp

    def _weight_bytes(self, tokens: float) -> float:
        held = 1.0
        if self.experts:
            missed = 1.0 - self.per_token / self.experts
            held = self.experts * (1.0 - missed**tokens)
        elements = self._projections + 3.0 * held * self.hidden * self.intermediate
        elements += 3.0 * self.hidden * self.shared_intermediate
        return self.layers * elements * self.weight_bytes / self.tp

    def _reduced_bytes(self, tokens: float) -> float:
        """Bytes of the all-reduces; with whole experts only attention's is left."""
        units = self.layers * (1 if self.experts and self.expert_parallel else 2)
        share = (self.tp - 1) / self.tp
        return units * tokens * self.hidden * self.activation_bytes * 2.0 * share

    def _dispatched_bytes(self, tokens: float) -> float:
        if not (self.experts and self.expert_parallel and self.tp > 1):
            return 0.0
        share = (self.tp - 1) / self.tp
        rows = tokens * (self.per_token if self.sends_rows else 1)
        return self.layers * rows * share * 2.0 * self.hidden * self.activation_bytes


def bases_us(shape: SimShape, batches: Sequence[Batch]) -> Array:
    """Return what the betas multiply for some batches.

    Parameters
    ----------
    shape : SimShape
        Model and command line.
    batches : sequence of Batch
        The batches.

    Returns
    -------
    ndarray, shape (n_batches, 11)
        As ``SimShape.basis_us``.
    """
    return np.asarray([shape.basis_us(batch) for batch in batches])


def step_time_us(shape: SimShape, betas: Sequence[float], batch: Batch) -> int:
    """Return the step time that the simulator advances its clock by.

    Parameters
    ----------
    shape : SimShape
        Model and command line.
    betas : sequence of float
        The eleven betas.
    batch : Batch
        The batch.

    Returns
    -------
    int
        Whole microseconds, at least 1 [us].

    Raises
    ------
    InvalidArgument
        When there are not eleven of them, or one is negative or not finite.
    """
    given = np.asarray(betas, dtype=np.float64)
    if given.shape != (len(BETAS),):
        raise InvalidArgument("beta_coeffs", len(betas), "11: the length selects the formula")
    if not (np.isfinite(given).all() and given.min() >= 0.0):
        raise InvalidArgument("beta_coeffs", tuple(betas), "finite and >= 0")
    return max(1, int(shape.basis_us(batch) @ given))
