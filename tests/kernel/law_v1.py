"""The laws of file version 1, worked out from matrix shapes in plain loops."""

from __future__ import annotations

from collections.abc import Mapping

from kernelfit.kernel import Chip, Model, RequestShape

TRUTH: dict[str, float] = {
    "gemm_eff_bf16": 0.62,
    "gemm_m_half_bf16": 40.0,
    "attention_eff_bf16": 0.31,
    "hbm_weight_eff": 0.71,
    "hbm_kv_eff": 0.55,
    "hbm_activation_eff": 0.1,
    "nvlink_eff": 0.12,
    "allreduce_floor_s": 2.5e-5,
    "attention_request_s": 2e-6,
    "expert_floor_s": 1.5e-5,
    "layer_floor_s": 1e-5,
    "launch_layer_s": 8e-5,
    "launch_step_s": 1.4e-3,
    "launch_request_s": 5e-5,
    "schedule_step_s": 4e-4,
    "schedule_request_s": 7e-6,
}


def layer_times(
    model: Model,
    chip: Chip,
    tp: int,
    requests: list[RequestShape],
    truth: Mapping[str, float],
    padded: int = 0,
    graphs: bool = False,
) -> tuple[list[tuple[float, float, float]], float]:
    """Times of (sm, hbm, nvlink) of all layers together and of the head, and launch time.

    Matrices and passes follow the padded batch, experts the tokens that there are; where
    graphs are captured, a layer has a floor and nothing is launched.
    """
    t = truth
    peak, bandwidth, link = (
        dict(chip.peak_flop_per_s)["bf16"],
        chip.hbm_bytes_per_s,
        chip.nvlink_bytes_per_s,
    )
    tokens = sum(r.scheduled for r in requests)
    rows = padded or tokens
    kind = model.layers[0]
    a, layers = kind.attention, kind.count
    heads, kv = a.heads / tp, max(1, a.kv_heads // tp)

    def gemm(rows: float, elements: float, starts: float = 1.0) -> tuple[float, float]:
        speed = peak * t["gemm_eff_bf16"]
        sm = (2 * elements * rows + 2 * elements * starts * t["gemm_m_half_bf16"]) / speed
        return sm, elements * 2 * starts / (bandwidth * t["hbm_weight_eff"])

    projections = model.hidden * a.head_dim * (2 * heads + 2 * kv)
    sm, hbm = gemm(rows, projections)
    pairs = sum(r.scheduled * r.computed + r.scheduled * (r.scheduled + 1) / 2 for r in requests)
    sm += 4 * heads * a.head_dim * pairs / (peak * t["attention_eff_bf16"])
    sm += len(requests) * t["attention_request_s"]
    sm += t["layer_floor_s"] if graphs else 0.0
    read = sum(r.computed + r.scheduled for r in requests) + tokens
    hbm += read * 2 * kv * a.head_dim * 2 / (bandwidth * t["hbm_kv_eff"])
    elements = 8 * model.hidden + 2 * a.head_dim * (heads + kv)
    if kind.mlp is not None:
        width = kind.mlp.intermediate / tp
        more = gemm(rows, 3 * model.hidden * width)
        sm, hbm = sm + more[0], hbm + more[1]
        elements += 3 * width
    if kind.experts is not None:
        e = kind.experts
        hit = e.experts * (1 - (1 - e.per_token / e.experts) ** tokens)
        one = 3 * model.hidden * e.intermediate / tp
        speed = peak * t["gemm_eff_bf16"]
        sm += (2 * one * e.per_token * rows + 2 * one * hit * t["gemm_m_half_bf16"]) / speed
        hbm += one * 2 * hit / (bandwidth * t["hbm_weight_eff"])
        sm += hit * t["expert_floor_s"]
        more = gemm(rows, model.hidden * e.experts)
        sm, hbm = sm + more[0], hbm + more[1]
        elements += e.per_token * (3 * e.intermediate / tp + 4 * model.hidden)
    hbm += rows * elements * 2 / (bandwidth * t["hbm_activation_eff"])
    nvlink = 0.0
    if tp > 1:
        nvlink = 2 * t["allreduce_floor_s"]
        nvlink += 2 * rows * model.hidden * 2 / (link * t["nvlink_eff"])
    head = gemm(len(requests), model.hidden * model.vocab / tp)
    gather = 0.0
    if tp > 1:
        gather = t["allreduce_floor_s"]
        gather += len(requests) * model.vocab / tp * 2 / (link * t["nvlink_eff"])
    launch = 0.0 if graphs else layers * t["launch_layer_s"]
    launch += t["launch_step_s"]
    launch += len(requests) * t["launch_request_s"]
    return [(layers * sm, layers * hbm, layers * nvlink), (*head, gather)], launch
