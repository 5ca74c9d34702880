"""The ``sglang-fpm`` reader: SGLang's forward pass metrics as JSON lines.

SGLang publishes a record per forward pass over ZMQ (``--enable-forward-pass-metrics``,
0.5.12 and later) with the schema that Dynamo uses; a subscriber that writes each message
as a line of JSON gives the file (``docs/logs.md`` has one). Once per idle second it
publishes a record without work and with a duration of 0, which is recognised.

**What the duration means.** From 0.5.23 it is the span of CUDA events around the forward
pass: ``device``. Before, it is a time of the host's loop, which under the overlap
scheduler (the default) neither begins nor ends with the pass, so it is ``wait``, and so it
is where no version is stated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kernelfit.documents.problems import InputError, Problem
from kernelfit.logs.coverage import Coverage, LogForm, TimingRule
from kernelfit.logs.fpm import DynamoFpmReader

EVENTS_SINCE = (0, 5, 23)
"""First version of SGLang whose records carry a span of CUDA events."""

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")

COVERAGE = Coverage(
    "sglang-fpm",
    "forward pass metrics of `--enable-forward-pass-metrics` as JSON lines",
    (
        LogForm("json", "sglang", ">=0.5.12", "steps", "`{counter_id, wall_time, …}`"),
        LogForm("idle", "sglang", ">=0.5.12", "recognised", "`wall_time` 0 and no work"),
    ),
    (
        TimingRule(
            "sglang", ">=0.5.23", "engine_version stated", "device", True,
            "span of CUDA events around the forward pass",
        ),
        TimingRule(
            "sglang", "0.5.12-0.5.22", "engine_version stated", "wait", False,
            "a time of the host's loop, which overlaps the pass",
        ),
        TimingRule(
            "sglang", "unknown", "no engine_version", "wait", False,
            "it depends on the version, which nothing states",
        ),
    ),
)  # fmt: skip


class SglangFpmReader(DynamoFpmReader):
    """Reader of SGLang's forward pass metrics."""

    name = "sglang-fpm"
    version = 1
    coverage = COVERAGE
    engine: Mapping[str, object] = {"engine": "sglang"}

    def meaning(self, said: Mapping[str, object], place: str) -> tuple[str, str | None]:
        """Return what durations mean in a version; parameters as the parent's.

        Parameters
        ----------
        said : mapping of str to object
            What the documents and flags say; ``engine_version`` settles it.
        place : str
            The file, for complaints.

        Returns
        -------
        tuple of (str, str or None)
            ``device`` from 0.5.23 on; ``wait`` and the reason otherwise.

        Raises
        ------
        InputError
            When the document claims a meaning that the version cannot have.
        """
        stated = said.get("engine_version")
        found = _VERSION.match(str(stated)) if stated is not None else None
        number = tuple(int(part) for part in found.groups()) if found else None
        events = number is not None and number >= EVENTS_SINCE
        claimed = said.get("timing")
        if claimed is not None and claimed != ("device" if events else "wait"):
            message = f"durations of SGLang {stated or 'of an unknown version'} do not mean that"
            raise InputError(
                [
                    Problem(
                        place, None, None, message, got=str(claimed),
                        allowed="device" if events else "wait",
                        hint="state engine_version" if number is None else None,
                    )
                ]
            )  # fmt: skip
        if events:
            return "device", None
        why = "before 0.5.23" if number is not None else "and no engine_version is stated"
        return "wait", (
            f"timing is wait: wall_time is a time of the host's loop, which overlaps the forward "
            f"pass ({why}; from 0.5.23 on it is the span of CUDA events)"
        )
