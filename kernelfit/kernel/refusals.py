"""What cannot be priced truthfully, as data, with the reasons; and what is accepted."""

from __future__ import annotations

from dataclasses import dataclass

from kernelfit.kernel.asked import Asked, OverrideLog
from kernelfit.kernel.errors import InvalidArgument, Refusal
from kernelfit.kernel.graphs import GRAPH_MODES
from kernelfit.kernel.pages import CACHE_DTYPES, STATE_DTYPES
from kernelfit.kernel.parallel import UNPRICED_EXCHANGES
from kernelfit.kernel.rules import EXCHANGES, EXCHANGES_REMOVED, NEWEST, STATE_MODES, rule

ATTENTION_KINDS: tuple[str, ...] = ("full", "sliding", "mla", "linear")

AT_LEAST_ONE: tuple[str, ...] = ("tp", "pp", "dp", "nodes", "pcp", "dcp", "gpus_per_node")

ONLY_ONE: tuple[tuple[str, str], ...] = (
    ("pp", "micro-batches of pipeline stages are not modelled"),
    ("pcp", "prefills split over ranks by position have no law"),
    ("dcp", "KV split over ranks by position, and the exchange that merges it, have no law"),
)
"""Widths that are refused above 1, and why."""

LOOKUP_METHODS: tuple[str, ...] = ("ngram",)
"""Speculative methods whose proposals cost the device nothing."""

_DRAFT = "the draft's own time on the device has no law"
SPECULATION_REFUSED: tuple[tuple[str, str], ...] = (
    ("draft_model", _DRAFT),
    ("eagle", _DRAFT),
    ("eagle3", _DRAFT),
    ("mtp", _DRAFT),
    ("medusa", _DRAFT),
    ("mlp_speculator", _DRAFT),
    ("dflash", _DRAFT),
    ("dspark", _DRAFT),
    ("extract_hidden_states", _DRAFT),
    ("ngram_gpu", "the search on the device has no law"),
    ("suffix", "each request is proposed another number of tokens"),
)

QUANTIZATION: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("fp8", ("fp8",)),
    ("fbgemm_fp8", ("fp8",)),
    ("deepseek_v4_fp8", ("fp8",)),
    ("modelopt", ("fp8", "fp4", "int4")),
    ("modelopt_fp4", ("fp4",)),
    ("mxfp4", ("fp4",)),
    ("gpt_oss_mxfp4", ("fp4",)),
    ("awq", ("int4",)),
    ("awq_marlin", ("int4",)),
    ("gptq", ("int4", "int8")),
    ("gptq_marlin", ("int4", "int8")),
    ("bitsandbytes", ("int4", "int8")),
    ("compressed-tensors", ("fp8", "fp4", "int4", "int8")),
)
"""The engine's quantisation methods, and the weights that each leaves in memory."""

EXPANDED: tuple[str, ...] = ("fp8", "fp4")
"""Weights that multiply in their own type where the chip can, and are expanded elsewhere."""


def refuse(asked: Asked) -> None:
    """Refuse what cannot be priced truthfully.

    Parameters
    ----------
    asked : Asked
        The pool, what it serves and what it runs on.

    Raises
    ------
    InvalidArgument
        When a width is below 1.
    Refusal
        When a setting has no law.
    """
    pool = asked.pool
    for field in AT_LEAST_ONE:
        value = getattr(pool, field)
        if value is not None and value < 1:
            raise InvalidArgument(field, value, ">= 1")
    if (pool.num_redundant_experts or 0) < 0:
        raise InvalidArgument("num_redundant_experts", pool.num_redundant_experts, ">= 0")
    if pool.gpus_per_node is not None and pool.gpus_per_node > asked.chip.gpus_per_node:
        most = asked.chip.gpus_per_node
        raise InvalidArgument("gpus_per_node", pool.gpus_per_node, f"1 to {most}, the chip's own")
    for field, reason in ONLY_ONE:
        if getattr(pool, field) > 1:
            raise Refusal(field, getattr(pool, field), f"{reason}; {field}=1 is accepted")
    if pool.enable_dbo and not asked.on_cpu:
        raise Refusal(
            "enable_dbo",
            True,
            "two halves of a batch hiding each other's exchange have no law; false is accepted",
        )
    _refuse_model(asked)
    _refuse_speculation(asked)
    if pool.tp > 1 and asked.chip.nvlink_bytes_per_s <= 0:
        reason = "states no link between GPUs, and sums over PCIe have no law"
        raise Refusal("tp", pool.tp, f"{asked.chip.name} {reason}; tp=1 is accepted")


def _refuse_model(asked: Asked) -> None:
    model = asked.model
    for kind in model.layers:
        if kind.attention.kind not in ATTENTION_KINDS:
            raise Refusal(
                "attention.kind",
                kind.attention.kind,
                f"layers '{kind.name}' of {model.name} have no law; "
                f"{', '.join(ATTENTION_KINDS)} are accepted",
            )
    method = asked.pool.quantization
    weights = dict(QUANTIZATION).get(method or "")
    if weights is not None and model.weight_dtype not in weights:
        raise Refusal(
            "quantization",
            method,
            f"it leaves weights in {' or '.join(weights)}, but {model.name} states "
            f"{model.weight_dtype}; a model document that states them is accepted",
        )


def _refuse_speculation(asked: Asked) -> None:
    method = asked.pool.speculative_method
    if method is None:
        return
    if method not in LOOKUP_METHODS:
        reason = dict(SPECULATION_REFUSED).get(method, _DRAFT)
        accepted = ", ".join(LOOKUP_METHODS)
        raise Refusal(
            "speculative_method", method, f"{reason}; {accepted} or no speculation is accepted"
        )
    if asked.has("linear"):
        raise Refusal(
            "speculative_method",
            method,
            "recurrent layers then keep one state per proposed token, which has no law; no "
            "speculation is accepted",
        )


def note_assumptions(asked: Asked, log: OverrideLog) -> None:
    """Record what is taken for granted of an accepted pool.

    Parameters
    ----------
    asked : Asked
        The pool, what it serves and what it runs on.
    log : OverrideLog
        Takes the overrides.
    """
    pool, model, chip = asked.pool, asked.model, asked.chip
    if pool.dp > 1:
        if asked.has_experts:
            what = "lock-step ranks"
            why = "every rank is taken to hold an equal batch: a step lasts as long as the slowest"
        else:
            what, why = "independent replicas", "each replica has its own batches; one is priced"
        log.override("dp", pool.dp, what, why)
    if pool.enable_dbo:
        log.override("enable_dbo", True, False, "the CPU back end switches it off")
    if pool.quantization is not None and pool.quantization not in dict(QUANTIZATION):
        log.override(
            "quantization",
            pool.quantization,
            f"{model.weight_dtype} weights",
            "an unknown method; the weights are those that the model states",
        )
    used = {model.weight_dtype, *(kind.attention.weight_dtype for kind in model.layers)}
    for dtype in EXPANDED:
        if dtype in used and dtype not in dict(chip.peak_flop_per_s):
            log.override(
                "weight_dtype",
                dtype,
                model.dtype,
                f"{chip.name} states no {dtype} peak: weights are read in {dtype} and expanded to "
                f"{model.dtype} before multiplying",
            )


@dataclass(frozen=True, slots=True)
class Choice:
    """What of one setting is accepted.

    Attributes
    ----------
    setting : str
        The pool's setting.
    accepted : tuple of str
        Values that resolve.
    refused : tuple of (str, str)
        Values that the engine knows and that are refused, each with the reason.
    """

    setting: str
    accepted: tuple[str, ...]
    refused: tuple[tuple[str, str], ...] = ()


def accepted() -> tuple[Choice, ...]:
    """Return what is accepted and refused, from the tables that decide it.

    Returns
    -------
    tuple of Choice
        By setting, for the newest release whose rules are known.
    """
    exchanges, removed = rule(EXCHANGES, NEWEST), rule(EXCHANGES_REMOVED, NEWEST)
    unpriced = tuple(
        pair for pair in UNPRICED_EXCHANGES if pair[0] in exchanges and pair[0] not in removed
    )
    priced = tuple(sorted(name for name in exchanges if name not in dict(unpriced)))
    return (
        *(Choice(field, ("1",), ((">1", reason),)) for field, reason in ONLY_ONE),
        Choice("attention.kind", ATTENTION_KINDS),
        Choice("speculative_method", ("none", *LOOKUP_METHODS), SPECULATION_REFUSED),
        Choice("all2all_backend", priced, unpriced),
        Choice("cudagraph_mode", GRAPH_MODES),
        Choice("cache_dtype", ("auto", *(word for word, _ in CACHE_DTYPES))),
        Choice("state_dtype", ("auto", *(word for word, _ in STATE_DTYPES))),
        Choice("mamba_cache_mode", rule(STATE_MODES, NEWEST)),
        Choice("quantization", tuple(word for word, _ in QUANTIZATION)),
        Choice("enable_dbo", ("false",), (("true", "two overlapped halves have no law"),)),
    )
