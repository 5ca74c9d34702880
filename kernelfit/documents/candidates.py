"""Candidate pools of a question document: ranges of widths and settings, expanded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from kernelfit.documents.dtypes import KNOWN, core_dtype
from kernelfit.documents.poolspec import Count, PoolSpec, Word
from kernelfit.documents.problems import Problem, shown
from kernelfit.documents.strict import Strict
from kernelfit.documents.yamldoc import Document, problem_at
from kernelfit.kernel.pool import Pool

SPREAD: tuple[str, ...] = ("tp", "dp", "enable_expert_parallel")
"""What a candidate states as a list of its own, so ``settings`` may not."""


@dataclass(frozen=True, slots=True)
class CandidatePool:
    """A pool that may be deployed; nobody need have recorded it.

    Attributes
    ----------
    gpu : str
        Name or alias of a chip document.
    model : str
        Name or alias of a model document.
    engine_version : str
        The engine's version; empty takes the newest known defaults.
    dtype : str or None
        Data type to run with, in the core's words; None follows the model.
    name : str or None
        What to call it; None calls it by its widths.
    pool : Pool
        Widths and settings.
    """

    gpu: str
    model: str
    engine_version: str
    dtype: str | None
    name: str | None
    pool: Pool


class CandidateSpec(Strict):
    """One entry of ``candidates``: every combination of its lists is a pool."""

    name: Word | None = None
    gpu: Annotated[list[Word], Field(min_length=1)]
    model: Annotated[list[Word], Field(min_length=1)]
    engine_version: Word | None = None
    dtype: Word | None = None
    tp: Annotated[list[Count], Field(min_length=1)] = Field(default_factory=lambda: [1])
    dp: Annotated[list[Count], Field(min_length=1)] = Field(default_factory=lambda: [1])
    expert_parallel: Annotated[list[bool], Field(min_length=1)] = Field(
        default_factory=lambda: [False]
    )
    settings: PoolSpec = Field(default_factory=PoolSpec)

    def pools(self) -> tuple[CandidatePool, ...]:
        """Return the pools, widths in ascending order of the document.

        Returns
        -------
        tuple of CandidatePool
            GPU types outermost, expert parallelism innermost.
        """
        base = self.settings.core()
        dtype = None if self.dtype is None else core_dtype(self.dtype)
        found = []
        for gpu in self.gpu:
            for model in self.model:
                for tp in self.tp:
                    for dp in self.dp:
                        for spread in self.expert_parallel:
                            pool = replace(base, tp=tp, dp=dp, enable_expert_parallel=spread)
                            version = self.engine_version or ""
                            found.append(
                                CandidatePool(gpu, model, version, dtype, self._named(pool), pool)
                            )
        return tuple(found)

    def _named(self, pool: Pool) -> str | None:
        if self.name is None:
            return None
        words = [self.name, f"tp{pool.tp}"]
        if pool.dp > 1:
            words.append(f"dp{pool.dp}")
        if pool.enable_expert_parallel:
            words.append(f"ep{pool.tp * pool.dp}")
        return " ".join(words)


def candidate_problems(
    document: Document, at: int, spec: CandidateSpec, repeats: list[Problem]
) -> list[Problem]:
    """Return what is wrong with a candidate beyond its types.

    Parameters
    ----------
    document : Document
        Where it stands.
    at : int
        Number of the entry.
    spec : CandidateSpec
        The entry.
    repeats : list of Problem
        Values that stand twice in one of its lists.

    Returns
    -------
    list of Problem
        Each with its place.
    """
    path = ("candidates", at)
    problems = list(repeats)
    for key in sorted(spec.settings.model_fields_set & set(SPREAD)):
        own = "expert_parallel" if key == "enable_expert_parallel" else key
        problems.append(
            problem_at(
                document,
                (*path, "settings", key),
                f"settings.{key} is stated beside the list {own}",
                hint=f"write {own}: [...] in the candidate itself",
            )
        )
    if spec.dtype is not None and core_dtype(spec.dtype) is None:
        problems.append(
            problem_at(
                document,
                (*path, "dtype"),
                "unknown dtype",
                got=shown(spec.dtype),
                allowed=", ".join(KNOWN),
            )
        )
    return problems
