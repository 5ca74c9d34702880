"""The pure core: what a simulator calls. Standard library and numpy only."""

from kernelfit.kernel.batch import Batch, RequestShape
from kernelfit.kernel.catalog import Coefficient
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.datasheet import DatasheetKernel
from kernelfit.kernel.errors import InvalidArgument, KernelError, Refusal
from kernelfit.kernel.estimate import (
    CalibratedStepTime,
    CoefficientOrigin,
    MemoryBreakdown,
    StepEstimate,
)
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.handover import Fitted
from kernelfit.kernel.interface import Kernel
from kernelfit.kernel.model import Attention, Experts, Latent, LayerKind, LinearState, Mlp, Model
from kernelfit.kernel.pool import Direction, Placement, Pool, Tier
from kernelfit.kernel.resolved import Override, Resolution
from kernelfit.kernel.resources import Resource
from kernelfit.kernel.totals import BatchTotals, WindowTotals

__all__ = [
    "Attention",
    "Batch",
    "BatchTotals",
    "CalibratedStepTime",
    "Chip",
    "Coefficient",
    "CoefficientOrigin",
    "DatasheetKernel",
    "Direction",
    "Experts",
    "Fitted",
    "FittedKernel",
    "InvalidArgument",
    "Kernel",
    "KernelError",
    "Latent",
    "LayerKind",
    "LinearState",
    "MemoryBreakdown",
    "Mlp",
    "Model",
    "Override",
    "Placement",
    "Pool",
    "Refusal",
    "RequestShape",
    "Resolution",
    "Resource",
    "StepEstimate",
    "Tier",
    "WindowTotals",
]
