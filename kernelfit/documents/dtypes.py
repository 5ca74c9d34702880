"""The engines' and checkpoints' words for data types, in the core's words."""

from __future__ import annotations

_WORDS: dict[str, str] = {
    "float32": "fp32",
    "float": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "fp32": "fp32",
    "bf16": "bf16",
    "fp16": "fp16",
    "fp8": "fp8",
    "int8": "int8",
    "int4": "int4",
    "fp4": "fp4",
}

KNOWN: tuple[str, ...] = tuple(sorted(_WORDS))


def core_dtype(word: str) -> str | None:
    """Return the core's name of a data type.

    Parameters
    ----------
    word : str
        An engine's or a checkpoint's word, for example ``bfloat16`` or
        ``torch.bfloat16``.

    Returns
    -------
    str or None
        For example ``bf16``; None when the word is not known.
    """
    return _WORDS.get(word.removeprefix("torch.").strip().lower())
