"""What request-level sources say of the host, as rows of the result document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelfit.kernel.fitted import FittedKernel
    from kernelfit.store.scan import RunRecord


def coarse_rows(
    records: Sequence[RunRecord], kernels: Sequence[FittedKernel], draws: int, seed: int
) -> list[dict[str, Any]]:
    """Return a row per run and observer whose requests were recorded.

    Parameters
    ----------
    records : sequence of RunRecord
        Stored runs.
    kernels : sequence of FittedKernel
        Kernels of this fit; that of the same model, pool and GPU type prices the steps.
    draws : int
        Bootstrap draws.
    seed : int
        Their seed.

    Returns
    -------
    list of dict
        ``run``, ``reader``, ``observer``, ``gpu``, ``kernel`` (whether one priced the steps),
        ``terms``, ``unknown`` and ``gates``.
    """
    from kernelfit.fit.coarse import coarse_host
    from kernelfit.fit.coarse_runs import collect_coarse
    from kernelfit.kernel.frozen import to_data

    by_name = {record.run_id: record for record in records}
    rows = []
    for run in collect_coarse(records):
        record = by_name[run.run]
        kernel = next((each for each in kernels if _same(each, record)), None)
        found = coarse_host(run, kernel, draws=draws, seed=seed)
        rows.append(
            {
                "run": run.run,
                "reader": run.reader,
                "observer": run.observer,
                "gpu": record.gpu,
                "kernel": kernel is not None,
                **to_data(found),
            }
        )
    return rows


def _same(kernel: FittedKernel, record: RunRecord) -> bool:
    model = record.model
    return (
        model is not None
        and kernel.plan.chip.name == record.gpu
        and kernel.plan.model.name == model.name
        and kernel.plan.pool == record.pool
    )
