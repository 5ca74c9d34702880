"""The words that stand for the identifiers of the result document."""

from __future__ import annotations

SPLITS = {
    "time_block": "time blocks held out",
    "leave_one_run_out": "one run held out",
    "leave_one_pool_out": "one pool held out",
    "leave_one_model_out": "one model held out",
    "leave_one_gpu_out": "one GPU type held out",
}

PREDICTORS = {
    "kernelfit": "kernelfit",
    "datasheet": "datasheet roofline",
    "datasheet_derated": "roofline, 0.8 derate",
    "nnls_sums": "NNLS on token sums",
    "random_forest": "random forest",
    "gradient_boosting": "gradient boosting",
    "constant": "constant",
}

SHORT_PREDICTORS = {
    "datasheet": "sheet",
    "datasheet_derated": "derated",
    "nnls_sums": "nnls",
    "random_forest": "forest",
    "gradient_boosting": "boosting",
    "constant": "const",
}

VERDICTS = {
    "identified": "the data pin it",
    "weak": "the data move it, the interval is wide",
    "prior": "the data do not pin it, the prior was kept",
    "at_bound": "it stands at the edge of what is allowed",
}

METHODS_MEAN = {
    "measured": "the runs pin it",
    "literature": "a published figure",
    "vendor_spec": "the datasheet",
    "copied": "taken from a like GPU type",
    "assumed": "nobody measured it",
    "not_charged": "left out of the price",
}

RESOURCES = ("sm", "hbm", "nvlink", "nic", "pcie", "copy_engine", "host")

PHASES = ("decode", "mixed", "prefill")


def split_words(split: str) -> str:
    """Return the words for a split.

    Parameters
    ----------
    split : str
        Identifier.

    Returns
    -------
    str
        Words; the identifier itself, spaced, when it is new.
    """
    return SPLITS.get(split, split.replace("_", " "))


def plural(number: int, noun: str) -> str:
    """Write a count with its noun.

    Parameters
    ----------
    number : int
        The count.
    noun : str
        The noun in the singular; its plural takes an s.

    Returns
    -------
    str
        Such as ``1 run`` or ``1,204 steps``.
    """
    return f"{number:,d} {noun}" if number == 1 else f"{number:,d} {noun}s"


def listed(names: list[str]) -> str:
    """Join names into a phrase.

    Parameters
    ----------
    names : list of str
        The names.

    Returns
    -------
    str
        ``a``, ``a and b`` or ``a, b and c``.
    """
    if len(names) < 2:
        return "".join(names)
    return ", ".join(names[:-1]) + " and " + names[-1]
