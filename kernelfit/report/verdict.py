"""The verdict in one sentence, computed from the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelfit.report import units
from kernelfit.report.tables_checks import by_key, share_of, splits
from kernelfit.report.words import listed, plural

View = Mapping[str, Any]

# Median errors that a calibration should reach on steps of models it has seen, and on a
# model it has not; between the first and the third it is of use with care.
GOAL_SEEN = 0.05
GOAL_UNSEEN = 0.10
CARE = 0.15
# A coefficient at a bound says that its law does not fit; below this share of the time it
# spoils no prediction.
_MATTERS = 0.02

_LEADS = {
    "good": "Good to use inside its domain",
    "care": "Use with care",
    "poor": "Not to be trusted yet",
    "unproven": "Not validated",
}


def verdict(view: View) -> dict[str, Any]:
    """Judge a calibration.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    dict
        ``level`` (``good``, ``care``, ``poor`` or ``unproven``), ``sentence``, and
        ``facts``: label, text, detail and value of the few numbers it rests on.
    """
    seen = _medians(view, exclude="leave_one_model_out")
    unseen = _medians(view, only="leave_one_model_out")
    wins, rivals = _wins(view, seen[0] if seen else None)
    converged = view["calibration"].get("converged", True)
    level = _level(seen, unseen, wins, rivals)
    if level == "good" and (not converged or _pressed(view)):
        level = "care"
    clauses = []
    if seen:
        clauses.append(f"the median error on held-out steps is {_range(seen[1])}")
        if len(seen[1]) > 1:
            clauses[-1] += " by group"
        if unseen:
            clauses[-1] += f", and {_range(unseen[1])} for a model it never saw"
        if rivals:
            clauses.append(_against_baselines(wins, rivals))
    elif unseen:
        clauses.append(f"the median error for a model it never saw is {_range(unseen[1])}")
    else:
        clauses.append("no held-out step says how far these numbers can be trusted")
    floor = _noise(view)
    if floor is not None:
        clauses.append(
            f"steps with the same work scatter by {units.percent(floor)} % at the median"
        )
    clauses.append(_coefficients(view))
    if not converged:
        clauses.append("the solver stopped before it met its tolerance")
    return {
        "level": level,
        "sentence": f"{_LEADS[level]}: {'; '.join(clauses)}.",
        "facts": _facts(view, seen, unseen, floor),
    }


def _medians(
    view: View, *, only: str | None = None, exclude: str | None = None
) -> tuple[str, dict[str, float]] | None:
    """Return kernelfit's median error by group for the first split that fits."""
    for split in splits(view):
        if (only is not None and split != only) or split == exclude:
            continue
        found = {
            group: float(row["kernelfit"]["median_ape"])
            for (_, group, phase), row in by_key(view, split).items()
            if phase == "all" and row.get("kernelfit", {}).get("median_ape") is not None
        }
        if len(found) > 1:
            found.pop("all", None)
        if found:
            return split, found
    return None


def _range(medians: Mapping[str, float]) -> str:
    low, high = min(medians.values()), max(medians.values())
    if units.percent(low) == units.percent(high):
        return f"{units.percent(high)} %"
    return f"{units.percent(low)} to {units.percent(high)} %"


def _wins(view: View, split: str | None) -> tuple[int, int]:
    """Count the groups where no baseline has a lower median error, and all compared."""
    if split is None:
        return 0, 0
    wins = rivals = 0
    rows = {key: row for key, row in by_key(view, split).items() if key[2] == "all"}
    if len(rows) > 1:
        # The sum over all groups is not one more group.
        rows.pop((split, "all", "all"), None)
    for row in rows.values():
        ours = row.get("kernelfit", {}).get("median_ape")
        others = [
            float(entry["median_ape"])
            for name, entry in row.items()
            if name != "kernelfit" and entry.get("median_ape") is not None
        ]
        if ours is not None and others:
            rivals += 1
            wins += float(ours) <= min(others)
    return wins, rivals


def _against_baselines(wins: int, rivals: int) -> str:
    if wins == rivals:
        where = "" if rivals == 1 else f" in any of {rivals} groups"
        return f"no baseline does better{where}"
    if rivals == 1:
        return "a baseline does better"
    return f"a baseline does better in {rivals - wins} of {rivals} groups"


def _level(
    seen: tuple[str, dict[str, float]] | None,
    unseen: tuple[str, dict[str, float]] | None,
    wins: int,
    rivals: int,
) -> str:
    if seen is None and unseen is None:
        return "unproven"
    near = max(seen[1].values()) if seen else max(unseen[1].values()) if unseen else 0.0
    far = max(unseen[1].values()) if unseen else 0.0
    if near > CARE:
        return "poor"
    if seen and near <= GOAL_SEEN and far <= GOAL_UNSEEN and wins == rivals:
        return "good"
    return "care"


def _noise(view: View) -> float | None:
    noise = view["calibration"].get("noise") or {}
    spread = noise.get("median_spread")
    return None if spread is None or not noise.get("groups", 1) else float(spread)


def _tally(view: View) -> dict[str, int]:
    tally: dict[str, int] = {}
    for entry in view["calibration"]["coefficients"]:
        tally[str(entry["verdict"])] = tally.get(str(entry["verdict"]), 0) + 1
    return tally


def _pressed(view: View) -> bool:
    """Return whether a coefficient that matters stands at the edge of what is allowed."""
    shares = [
        (entry.get("evidence") or {}).get("time_share")
        for entry in view["calibration"]["coefficients"]
        if entry["verdict"] == "at_bound"
    ]
    return any(share is None or float(share) >= _MATTERS for share in shares)


def _coefficients(view: View) -> str:
    tally = _tally(view)
    total = sum(tally.values())
    if not total:
        return "there are no coefficients"
    words = {
        "weak": "weak",
        "prior": "kept from a prior",
        "at_bound": "at a bound",
    }
    rest = [f"{tally[key]} {text}" for key, text in words.items() if tally.get(key)]
    verb = "is" if tally.get("identified", 0) == 1 else "are"
    text = f"{tally.get('identified', 0)} of {plural(total, 'coefficient')} {verb} identified"
    return f"{text} ({listed(rest)})" if rest else text


def _fact(label: str, text: str, detail: str, value: float | None) -> dict[str, Any]:
    return {"label": label, "text": text, "detail": detail, "value": value}


def _facts(
    view: View,
    seen: tuple[str, dict[str, float]] | None,
    unseen: tuple[str, dict[str, float]] | None,
    floor: float | None,
) -> list[dict[str, Any]]:
    """Return the few numbers at the head of the page."""
    facts = []
    for label, medians, goal in (
        ("Median error, held out", seen, GOAL_SEEN),
        ("Median error, unseen model", unseen, GOAL_UNSEEN),
    ):
        if medians:
            worst = max(medians[1], key=lambda group: medians[1][group])
            value = medians[1][worst]
            detail = f"worst group: {worst}; goal {units.percent(goal)} %"
            facts.append(_fact(label, f"{units.percent(value)} %", detail, value))
    if floor is not None:
        groups = plural(int((view["calibration"]["noise"]).get("groups") or 0), "repeated shape")
        facts.append(_fact("Noise floor", f"{units.percent(floor)} %", groups, floor))
    tally = _tally(view)
    total = sum(tally.values())
    identified = tally.get("identified", 0)
    facts.append(
        _fact(
            "Identified coefficients", f"{identified} of {total}", "the data pin them", identified
        )
    )
    rows = [row for row in view["bounds"] if row["phase"] == "all"]
    if len(rows) > 1:
        rows = [row for row in rows if row["group"] != "all"]
    n = sum(int(row["n"]) for row in rows)
    shares = [(share_of(row.get("inside"), int(row["n"])), int(row["n"])) for row in rows]
    if n and all(share is not None for share, _ in shares):
        inside = sum((share or 0.0) * steps for share, steps in shares) / n
        detail = plural(n, "measured step")
        facts.append(_fact("Between the two bounds", f"{units.percent(inside)} %", detail, inside))
    runs = view["calibration"].get("runs") or ()
    kept, steps = (sum(int(run[key]) for run in runs) for key in ("kept", "steps"))
    if runs:
        detail = f"of {units.count(steps)} read, {plural(len(runs), 'run')}"
        facts.append(_fact("Steps kept", units.count(kept), detail, kept))
    return facts
