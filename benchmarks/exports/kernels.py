"""Kernels of well-known deployments, every coefficient at its prior."""

from __future__ import annotations

from pathlib import Path

from kernelfit.documents.chips import find_chip
from kernelfit.documents.models import find_model
from kernelfit.kernel.catalog import Coefficient, definition
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.handover import Fitted, Residuals
from kernelfit.kernel.plan import Plan
from kernelfit.kernel.pool import Pool

CALIB = Path(__file__).resolve().parents[2] / "calib"
DEPLOYED = (
    ("llama-3.1-8b", "H100-SXM", Pool(tp=1)),
    ("llama-3.1-70b", "H100-SXM", Pool(tp=4)),
    ("qwen3-30b-a3b", "H100-SXM", Pool(tp=2)),
    ("qwen3-30b-a3b", "H100-SXM", Pool(tp=2, dp=2, enable_expert_parallel=True)),
    ("gpt-oss-120b", "H100-SXM", Pool(tp=2)),
    ("deepseek-v3", "H200-SXM", Pool(tp=8)),
)
SHARE = 0.3


def kernels() -> dict[str, FittedKernel]:
    """Return every kernel by a name that says what it is."""
    out = {}
    for model_name, chip_name, pool in DEPLOYED:
        chip = find_chip(chip_name, CALIB / "chips")
        model = find_model(model_name, CALIB / "models")
        plan = Plan.of(model, chip, pool, "0.32.0")
        ranks = f"tp{pool.tp}" + (f"-dp{pool.dp}-ep" if pool.enable_expert_parallel else "")
        out[f"{model_name}-{chip_name.lower()}-{ranks}"] = FittedKernel.from_plan(plan, _at(plan))
    return out


def _at(plan: Plan) -> Fitted:
    coefficients = []
    for name in plan.coefficients:
        d = definition(name)
        edges = (0.5 * d.prior, 2.0 * d.prior)
        coefficients.append(
            Coefficient(name, d.prior, d.unit, plan.chip.name, d.method, "prior", edges)
        )
    residuals = (Residuals("decode", 100, (-0.05, 0.0, 0.05)),)
    return Fitted("sha256:" + "0" * 64, tuple(coefficients), SHARE, (), (), residuals, ())
