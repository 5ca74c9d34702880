"""Lives of engines in one log: what was read between two starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from kernelfit.logs.columns import Floats, Ints
from kernelfit.logs.intervals import Interval
from kernelfit.logs.stamps import CLOCK_STEP_S, went_back
from kernelfit.logs.tally import Tally
from kernelfit.logs.vllm_lines import Printed
from kernelfit.logs.vllm_rows import STAMP_KINDS, Rows

_PENDING_ROWS = 4096


@dataclass(slots=True)
class Life:
    """One life of the engines of a log.

    Attributes
    ----------
    tally : Tally
        Its lines by what became of them.
    stated, startup : dict of str to object
        Facts by the names of the run document, and others of the start.
    intervals : list of Interval
        Lines about stretches of time.
    last : dict of int to int
        Last iteration of every engine.
    pids : dict of int to int
        Process that printed every engine's last step.
    when : dict of int to (float, float)
        Time beside every engine's last step, as ``stamp_s`` returns it [s].
    kind : int
        Kind of that time, as a position in ``STAMP_KINDS``.
    steps : int
        Steps so far.
    """

    tally: Tally
    stated: dict[str, object] = field(default_factory=dict)
    startup: dict[str, object] = field(default_factory=dict)
    intervals: list[Interval] = field(default_factory=list)
    last: dict[int, int] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)
    when: dict[int, tuple[float, float]] = field(default_factory=dict)
    kind: int = 0
    steps: int = 0
    _parts: list[tuple[Ints, Ints, Floats, Floats]] = field(default_factory=list)
    _pending: list[tuple[tuple[int, ...], tuple[float, float]]] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether nothing was measured."""
        return self.steps == 0 and not self.intervals

    def add(self, printed: Printed) -> None:
        """Add one step.

        Parameters
        ----------
        printed : Printed
            The step.
        """
        p = printed
        ints = (
            p.engine, p.index, p.context, p.context_tokens, p.generation, p.generation_tokens,
        )  # fmt: skip
        self._pending.append((ints, (p.elapsed_s, p.usage)))
        self.steps += 1
        self.tally.lines += 1
        if len(self._pending) >= _PENDING_ROWS:
            self._flush()

    def add_rows(self, rows: Rows) -> None:
        """Add many steps.

        Parameters
        ----------
        rows : Rows
            The steps, in order.
        """
        self._flush()
        self._parts.append((rows.engine, rows.counts, rows.elapsed_s, rows.usage))
        self.steps += rows.count
        self.tally.lines += rows.count

    def _flush(self) -> None:
        if self._pending:
            ints, floats = zip(*self._pending, strict=True)
            whole, real = np.array(ints, dtype=np.int64).T, np.array(floats, dtype=np.float64).T
            self._parts.append((whole[0], whole[1:], real[0], real[1]))
            self._pending.clear()

    def table(self) -> tuple[Ints, Ints, Floats, Floats]:
        """Return the steps.

        Returns
        -------
        tuple of ndarray
            Engine, shape (steps,); iteration, context requests and tokens, generation
            requests and tokens, shape (5, steps); the printed time [s] and the share of
            the KV cache [1], shape (steps,) each.
        """
        self._flush()
        if not self._parts:
            nothing = np.empty(0, dtype=np.int64)
            return nothing, np.empty((5, 0), dtype=np.int64), np.empty(0), np.empty(0)
        engine, counts, elapsed_s, usage = zip(*self._parts, strict=True)
        return (
            np.concatenate(engine),
            np.concatenate(counts, axis=1),
            np.concatenate(elapsed_s),
            np.concatenate(usage),
        )


class Lives:
    """The lives of a log, the last of which is running.

    Parameters
    ----------
    file : str
        Name of the log, for rejects.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._all = [Life(Tally(file))]

    @property
    def now(self) -> Life:
        """The life that is running."""
        return self._all[-1]

    def __iter__(self) -> Iterator[Life]:
        return iter(self._all)

    def begin(self) -> Life:
        """Begin a new life.

        Returns
        -------
        Life
            It.
        """
        kind = self.now.kind
        self._all.append(Life(Tally(self._file), kind=kind))
        return self.now

    def settle(self) -> None:
        """Leave the lines of a start that measured nothing with the life before it."""
        while len(self._all) > 1 and self.now.empty:
            last = self._all.pop()
            self.now.tally.absorb(last.tally)

    def step(self, number: int, printed: Printed) -> None:
        """Take in one step.

        Parameters
        ----------
        number : int
            Its line number.
        printed : Printed
            The step; one that cannot be used is rejected.
        """
        life = self.now
        engine = printed.engine
        last = life.last.get(engine)
        before = life.when.get(engine)
        fell = last is not None and printed.index < last
        moved = printed.pid is not None and life.pids.get(engine, printed.pid) != printed.pid
        back = before is not None and printed.when is not None and went_back(before, printed.when)
        if (fell or moved or back) and life.steps:
            life = self.begin()
            last = None
        life.kind = STAMP_KINDS.index(printed.stamp)
        if printed.when is not None:
            life.when[engine] = printed.when
        if printed.index == last:
            again = f"iteration {printed.index} of engine {engine} is repeated"
            life.tally.reject(number, again, printed.text)
            return
        reason = printed.complaint() if not printed.idle else None
        if reason is not None and "range" in reason:
            life.tally.reject(number, reason, printed.text)
            return
        life.last[engine] = printed.index
        if printed.pid is not None:
            life.pids[engine] = printed.pid
        if printed.dummy or printed.idle:
            # A data-parallel peer's dummy step, or a step without work.
            life.tally.know()
        elif reason is not None:
            life.tally.reject(number, reason, printed.text)
        else:
            life.add(printed)

    def take(self, rows: Rows) -> bool:
        """Take in many sound steps of a stretch of lines, if one life holds them all.

        Parameters
        ----------
        rows : Rows
            The steps, in order.

        Returns
        -------
        bool
            False where the stretch holds the end of a life, or a repeat; nothing was
            taken in then.
        """
        life = self.now
        engines = [int(rows.engine[0])]
        if (rows.engine != engines[0]).any():
            engines = np.unique(rows.engine).tolist()
        parts = [rows] if len(engines) == 1 else [rows.take(rows.engine == e) for e in engines]
        if not all(self._goes_on(life, e, part) for e, part in zip(engines, parts, strict=True)):
            return False
        for engine, part in zip(engines, parts, strict=True):
            life.last[engine] = int(part.counts[0, -1])
            stated = np.flatnonzero(part.pid >= 0)
            if stated.size:
                life.pids[engine] = int(part.pid[stated[-1]])
            stamped = np.flatnonzero(~np.isnan(part.when[:, 0]))
            if stamped.size:
                seconds, period = part.when[stamped[-1]].tolist()
                life.when[engine] = (seconds, period)
        life.kind = int(rows.kind[-1])
        life.add_rows(rows)
        return True

    @staticmethod
    def _goes_on(life: Life, engine: int, rows: Rows) -> bool:
        """Whether all rows follow each other, and what was before, in one life."""
        index = rows.counts[0]
        if int(index[0]) <= life.last.get(engine, -1) or (index[1:] <= index[:-1]).any():
            return False
        pids = rows.pid[rows.pid >= 0]
        if pids.size and (pids != life.pids.get(engine, int(pids[0]))).any():
            return False
        when = rows.when[~np.isnan(rows.when[:, 0])]
        if not when.shape[0]:
            return True
        seconds, period = when.T
        if (period != period[0]).any() or (seconds[1:] < seconds[:-1] - CLOCK_STEP_S).any():
            return False
        before = life.when.get(engine)
        return before is None or not went_back(before, (float(seconds[0]), float(period[0])))
