"""The registry of readers: the built-in ones, and entry points of installed packages."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points

from kernelfit.logs.bench import BenchLatencyReader, BenchServeReader
from kernelfit.logs.blis_trace import BlisTraceReader
from kernelfit.logs.coverage import OWN_COVERAGES, Coverage
from kernelfit.logs.fpm import DynamoFpmReader
from kernelfit.logs.guidellm import GuidellmReader
from kernelfit.logs.inference_perf import InferencePerfReader
from kernelfit.logs.otel import OtelStepsReader
from kernelfit.logs.otel_requests import OtelRequestsReader
from kernelfit.logs.prometheus import PrometheusReader
from kernelfit.logs.recorder import KernelfitReader
from kernelfit.logs.sglang_fpm import SglangFpmReader
from kernelfit.logs.sglang_log import SglangLogReader
from kernelfit.logs.source import ENTRY_POINT_GROUP, Reader
from kernelfit.logs.table import TableReader
from kernelfit.logs.trtllm_log import TrtllmLogReader
from kernelfit.logs.vllm_log import VllmLogReader


def coverages() -> tuple[Coverage, ...]:
    """Return what every reader covers, for the documentation.

    Returns
    -------
    tuple of Coverage
        In the order of the registry; a reader that does not say is left out.
    """
    found = []
    for name, reader in readers().items():
        coverage = getattr(reader, "coverage", OWN_COVERAGES.get(name))
        if isinstance(coverage, Coverage):
            found.append(coverage)
    return tuple(found)


def readers() -> Mapping[str, Reader]:
    """Return every reader by name.

    An installed package adds one with an entry point of group ``kernelfit.readers``
    that names a class without constructor arguments; a built-in name cannot be
    replaced, so that a log never changes its meaning with what is installed.

    Returns
    -------
    mapping of str to Reader
        Built-in readers first.
    """
    found: dict[str, Reader] = {}
    built_in: tuple[Reader, ...] = (
        KernelfitReader(),
        VllmLogReader(),
        DynamoFpmReader(),
        OtelStepsReader(),
        BlisTraceReader(),
        SglangLogReader(),
        SglangFpmReader(),
        TrtllmLogReader(),
        TableReader(),
        BenchServeReader(),
        BenchLatencyReader(),
        GuidellmReader(),
        InferencePerfReader(),
        PrometheusReader(),
        OtelRequestsReader(),
    )
    for reader in built_in:
        found[reader.name] = reader
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name not in found:
            found[entry.name] = entry.load()()
    return found
