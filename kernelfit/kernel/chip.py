"""A GPU type's datasheet as the laws use it."""

from __future__ import annotations

from dataclasses import dataclass

from kernelfit.kernel.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Chip:
    """Datasheet figures of one GPU type, per GPU.

    Attributes
    ----------
    name : str
        The document's name.
    peak_flop_per_s : tuple of (str, float)
        Dense peak by data type [FLOP/s].
    hbm_bytes_per_s : float
        Memory bandwidth [byte/s].
    hbm_bytes : int
        Memory capacity [bytes].
    nvlink_bytes_per_s : float
        Link to the other GPUs of a node, one direction [byte/s]; 0 means none.
    nic_bytes_per_s : float
        Network, one direction [byte/s]; 0 means not stated.
    pcie_bytes_per_s : float
        Host link, one direction [byte/s]; 0 means none.
    sm_count : int
        Streaming multiprocessors (cores of a CPU).
    gpus_per_node : int
        GPUs that the links of one node join.
    kind : str
        ``gpu`` or ``cpu``.
    """

    name: str
    peak_flop_per_s: tuple[tuple[str, float], ...]
    hbm_bytes_per_s: float
    hbm_bytes: int
    nvlink_bytes_per_s: float
    nic_bytes_per_s: float
    pcie_bytes_per_s: float
    sm_count: int
    gpus_per_node: int
    kind: str = "gpu"

    def peak(self, dtype: str) -> float:
        """Return the dense peak for a data type.

        Parameters
        ----------
        dtype : str
            Data type of the multiplication.

        Returns
        -------
        float
            Peak rate [FLOP/s].

        Raises
        ------
        InvalidArgument
            When the chip has no stated peak for it.
        """
        for name, value in self.peak_flop_per_s:
            if name == dtype:
                return value
        stated = ", ".join(name for name, _ in self.peak_flop_per_s)
        raise InvalidArgument("dtype", dtype, f"a data type with a peak on {self.name}: {stated}")
