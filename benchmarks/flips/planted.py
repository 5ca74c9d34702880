"""Planted worlds: every flip is flagged, nothing clear is, and measurements settle."""

from __future__ import annotations

from collections import Counter

import numpy as np

from kernelfit.flips import Flag, find_flips
from kernelfit.flips.given import Recorded
from kernelfit.flips.measured import MeasuredShape
from tests.flips.worlds import (
    Case,
    World,
    best_cases,
    fitted,
    load_cases,
    make_world,
    meets_cases,
    wider_cases,
)

CLEAR = 0.1
"""Distance from the point of change from which an answer is clear [1]."""


def answered(
    case: Case,
    spread: float,
    inflation: float,
    recorded: dict[str, Recorded],
    measured: list[MeasuredShape] | None = None,
) -> Flag:
    """Return the flag of a case."""
    flags = find_flips(
        case.kernels,
        [case.question],
        noise_spread=spread,
        inflation=inflation,
        recorded=recorded,
        measured=measured or [],
    )
    return next(flag for flag in flags if flag.conclusion == case.conclusion)


def settle(
    case: Case, flag: Flag, world: World, known: tuple, rng: np.random.Generator, rounds: int = 6
) -> tuple[int, Flag]:
    """Take the proposed measurement until the flag goes; return how often, and the flag."""
    spread, inflation, recorded = known
    by_label = {f"tp{k.plan.pool.tp}": k for k in case.kernels}
    shapes: list[MeasuredShape] = []
    for turn in range(1, rounds + 1):
        assert flag.proposed is not None
        kernel = by_label[flag.proposed.pool]
        shapes.append(world.measure(kernel.plan.model, kernel.plan.pool, flag.proposed, rng))
        flag = answered(case, spread, inflation, recorded, shapes)
        if flag.flag == "agree":
            return turn, flag
    return rounds + 1, flag


def run(worlds: int, each: tuple[int, int, int, int], first: int = 0) -> list[str]:
    """Print counts over worlds with so many cases of each kind."""
    table: Counter[tuple[str, ...]] = Counter()
    turns: Counter[str] = Counter()
    wrong_margins: list[float] = []
    lines = []
    for seed in range(first, first + worlds):
        world = make_world(seed)
        _, calibration = fitted(world)
        rng = np.random.default_rng(seed)
        known = (
            calibration.noise.median_spread,
            calibration.inflation,
            {calibration.digest: Recorded.of(calibration)},
        )
        makers = (meets_cases, load_cases, wider_cases, best_cases)
        cases = [
            case
            for make, count in zip(makers, each, strict=True)
            for case in make(world, calibration, count, rng)
        ]
        for case in cases:
            flag = answered(case, *known)
            kind = case.conclusion + (" with prompts" if case.question.prompt_tokens else "")
            flip = case.overlap != case.no_overlap
            right = str(flag.fitted) == case.right
            state = "flip" if flip else "same"
            far = "clear" if case.clear >= CLEAR else "near"
            table[kind, state, far, flag.flag, "right" if right else "wrong"] += 1
            if not right and flag.flag == "agree":
                wrong_margins.append(case.clear)
            if flag.flag == "measure":
                took, after = settle(case, flag, world, known, rng)
                turns[f"{min(took, 7)}"] += 1
                turns["right" if str(after.fitted) == case.right else "wrong"] += 1
                if case.clear >= 0.01 and str(after.fitted) != case.right:
                    turns["wrong, more than 1 % away"] += 1
        wide = f"{np.median([e.bootstrap_cv for e in calibration.evidence]):.3f}"
        lines.append(
            f"  world {seed}: overlap {world.share:.2f}, rule {calibration.rule} "
            f"{calibration.overlap_share:.2f}, median spread of coefficients {wide}"
        )
    return [*lines, *told(table, turns, wrong_margins)]


def told(table: Counter, turns: Counter, wrong: list[float]) -> list[str]:
    """Return the counts in words."""
    total = sum(table.values())
    out = [f"{total:,} cases"]
    for kind in sorted({key[0] for key in table}):
        mine = {key[1:]: n for key, n in table.items() if key[0] == kind}

        def count(*wanted: str, of: dict = mine) -> int:
            return sum(n for key, n in of.items() if all(word in key for word in wanted))

        flips, clear_flips = count("flip"), count("flip", "clear")
        missed = sum(n for key, n in mine.items() if key[0] == "flip" and key[2] == "agree")
        missed_clear = sum(
            n for key, n in mine.items() if key[:2] == ("flip", "clear") and key[2] != "measure"
        )
        same = count("same", "clear")
        false = sum(
            n for key, n in mine.items() if key[:2] == ("same", "clear") and key[2] == "measure"
        )
        doubt = sum(
            n for key, n in mine.items() if key[:2] == ("same", "clear") and key[2] == "uncertain"
        )
        silent = count("agree", "wrong")
        agreed = count("agree")
        out.append(
            f"  {kind:38} cases {sum(mine.values()):5,}  real flips {flips:4} (clear "
            f"{clear_flips:4}): unflagged {missed}, clear but not `measure` {missed_clear};  "
            f"clear and the same {same:4}: false `measure` {false}, `uncertain` {doubt};  "
            f"`agree` {agreed:4}, wrong {silent}"
        )
    if wrong:
        out.append(f"  wrong and `agree`: at most {max(wrong):.4f} from the point of change")
    measured = sum(n for key, n in turns.items() if key.isdigit())
    settled = sum(n for key, n in turns.items() if key.isdigit() and int(key) <= 6)
    steps = ", ".join(f"{n} after {key}" for key, n in sorted(turns.items()) if key.isdigit())
    out.append(
        f"  `measure` verdicts {measured}: settled {settled} ({steps}; 7: never), then right "
        f"{turns['right']}, wrong {turns['wrong']} (more than 1 % away: "
        f"{turns['wrong, more than 1 % away']})"
    )
    return out
