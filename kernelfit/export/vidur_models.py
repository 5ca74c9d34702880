"""The models and machines that the PyPI package ``vidur`` knows, and which of them a kernel is.

Source: PyPI vidur 0.0.26, ``vidur/config/model_config.py``, ``device_sku_config.py`` and
``node_sku_config.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelfit.export.operators import dense_layer
from kernelfit.export.refused import NotExpressible
from kernelfit.kernel.fitted import FittedKernel

TARGET = "vidur"

MACHINES = {
    "A100-SXM-80GB": ("a100", "a100_dgx"),
    "H100-SXM": ("h100", "h100_dgx"),
}
"""Device and network device by chip; the package's ``a40`` and ``l40`` have no document here."""

DEVICES = ("a40", "a100", "h100", "l40")
NODES = (
    "a40_pairwise_nvlink",
    "a100_pairwise_nvlink",
    "h100_pairwise_nvlink",
    "a100_dgx",
    "h100_dgx",
    "l40_pcie",
)


@dataclass(frozen=True, slots=True)
class VidurModel:
    """A model as the package's tables are filtered by.

    Attributes
    ----------
    name : str
        What the package calls it.
    layers, heads, kv_heads, hidden, intermediate : int
        Its widths.
    vocab : int
        Its vocabulary as the package has it, which may differ from the model's own.
    gated : bool
        Whether its MLP is gated.
    """

    name: str
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    intermediate: int
    vocab: int
    gated: bool = True


KNOWN: tuple[VidurModel, ...] = (
    VidurModel("codellama/CodeLlama-34b-Instruct-hf", 48, 64, 8, 8192, 22016, 32768),
    VidurModel("meta-llama/Llama-2-7b-hf", 32, 32, 32, 4096, 11008, 32768),
    VidurModel("meta-llama/Llama-2-70b-hf", 80, 64, 8, 8192, 28672, 32768),
    VidurModel("meta-llama/Llama-3-8B", 32, 32, 8, 4096, 14336, 128256),
    VidurModel("meta-llama/Llama-3-70B", 80, 64, 8, 8192, 28672, 128256),
    VidurModel("internlm/internlm-20b", 60, 40, 40, 5120, 13824, 103168),
    VidurModel("internlm/internlm2-20b", 48, 48, 8, 6144, 16384, 92544),
    VidurModel("microsoft/phi-2", 32, 32, 32, 2560, 10240, 51200, gated=False),
    VidurModel("Qwen/Qwen-72B", 80, 64, 64, 8192, 24576, 152064),
)
"""The package's models with shapes of their own."""


def vidur_model(kernel: FittedKernel, own_name: str = "") -> VidurModel:
    """Return the package's model that a kernel's is.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    own_name : str
        Name of a class that the user adds to the package; the model's own shape then goes
        under it.

    Returns
    -------
    VidurModel
        The package's entry of the same shape, of the nearest vocabulary where there are two.

    Raises
    ------
    NotExpressible
        As ``dense_layer``, where the package knows no such shape and no name is given, and
        where it would refuse the widths.
    """
    kind = dense_layer(TARGET, kernel)
    model, tp = kernel.plan.model, kernel.plan.resolution.tensor_parallel_width
    if kind.mlp is None:
        raise NotExpressible(TARGET, "mlp", None, "its tables hold one MLP per layer")
    a, mlp = kind.attention, kind.mlp
    for field, got in (("num_heads % tp", a.heads % tp), ("hidden % tp", model.hidden % tp)):
        if got:
            raise NotExpressible(TARGET, field, got, "the package asserts that it is 0")
    own = (model.layer_count, a.heads, a.kv_heads, model.hidden, mlp.intermediate, mlp.gated)
    if own_name:
        return VidurModel(own_name, *own[:5], vocab=model.vocab, gated=mlp.gated)
    same = [
        each
        for each in KNOWN
        if (each.layers, each.heads, each.kv_heads, each.hidden, each.intermediate, each.gated)
        == own
    ]
    if not same:
        raise NotExpressible(
            TARGET,
            "model",
            model.name,
            "the package knows no model of its shape; allowed "
            + ", ".join(each.name for each in KNOWN)
            + ", or --set model=NAME for a class of your own of this shape",
        )
    return min(same, key=lambda each: abs(each.vocab - model.vocab))
