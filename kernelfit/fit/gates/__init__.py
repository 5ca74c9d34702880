"""Data-quality gates: which steps are kept, and why the others are not.

Every gate looks at the data alone or at the datasheet, never at a fitted model, so that
a step cannot be dropped for being badly predicted. Rows are marked, not deleted.
"""

from __future__ import annotations

from kernelfit.fit.gates.across import with_copies, with_probe_reference
from kernelfit.fit.gates.base import Gate, GateCount
from kernelfit.fit.gates.evidence import Evidence
from kernelfit.fit.gates.judge import GATES, apply_gates, gate_marks

__all__ = [
    "GATES",
    "Evidence",
    "Gate",
    "GateCount",
    "apply_gates",
    "gate_marks",
    "with_copies",
    "with_probe_reference",
]
