"""The resources that work lands on, and the order in which they are reported."""

from __future__ import annotations

from enum import StrEnum


class Resource(StrEnum):
    """What work lands on.

    The values are the words used in every file and message.
    """

    SM = "sm"
    HBM = "hbm"
    NVLINK = "nvlink"
    NIC = "nic"
    PCIE = "pcie"
    COPY_ENGINE = "copy_engine"
    HOST = "host"
