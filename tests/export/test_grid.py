"""The grid holds what the kernel says, twice the same, and says what its columns mean."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from kernelfit.export.base import ExportedFile
from kernelfit.export.grid import COLUMNS, TARGET, Cell, read_grid
from kernelfit.kernel import Batch, RequestShape
from kernelfit.kernel.errors import InvalidArgument
from tests.export.samples import OPTIONS, kernels

KERNELS = kernels()
SMALL = replace(
    OPTIONS,
    settings={
        "requests": "1,8,300",
        "context": "100,1000",
        "chunk": "64,9000",
        "computed": "0,50",
        "beside": "4",
    },
)


@pytest.mark.parametrize("name", ["dense", "graphs", "moe-spread", "alternating", "cpu"])
def test_every_row_is_what_the_kernel_says(name: str) -> None:
    kernel = KERNELS[name]
    files = TARGET.export(kernel, SMALL)
    assert TARGET.check(files) == ()
    rows = read_grid(files[0].content.decode())
    # The pool takes at most 256 requests and 8192 tokens.
    assert {row["decode_requests"] for row in rows} == {0, 1, 4, 8}
    assert {row["prefill_tokens"] for row in rows} == {0, 64}
    assert len(rows) == 2 * 2 + 2 + 2
    for row in rows:
        shapes: list[RequestShape] = []
        if row["decode_requests"]:
            shapes += Batch.decode(row["decode_requests"], row["decode_context"]).requests
        if row["prefill_tokens"]:
            before = row["prefill_computed"]
            shapes.append(RequestShape(row["prefill_tokens"], before, before + 64))
        batch = Batch(tuple(shapes))
        step = kernel.step_time(batch)
        fitted = kernel.calibrated_step_time(batch)
        assert (row["overlap_s"], row["no_overlap_s"]) == (step.overlap_s, step.no_overlap_s)
        assert (row["mean_s"], row["low_s"], row["high_s"]) == (
            fitted.mean_s,
            fitted.low_s,
            fitted.high_s,
        )
        for resource, time in step.per_resource_s:
            assert row[f"{resource.value}_s"] == time
        assert row["bottleneck"] == step.bottleneck.value
        assert row["in_domain"] is kernel.in_domain(kernel.totals(batch))


def test_csv_and_parquet_hold_the_same_and_carry_where_they_come_from() -> None:
    csv, parquet, about = TARGET.export(KERNELS["graphs"], SMALL)
    table = pq.read_table(io.BytesIO(parquet.content))
    assert tuple(table.to_pylist()) == read_grid(csv.content.decode())
    said = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    assert said["kernel"] == KERNELS["graphs"].digest
    assert said["command"].startswith("kernelfit export grid sample.json --set beside=4")
    units = {field.name: field.metadata[b"unit"].decode() for field in table.schema}
    assert units == {name: unit for name, unit, _ in COLUMNS}
    described = json.loads(about.content)
    assert described["rows"] == table.num_rows
    assert described["left_out"] == 6
    assert described["provenance"]["kernel"] == said["kernel"]
    (left_out,) = TARGET.missing(KERNELS["graphs"], SMALL)
    assert left_out.reason.startswith("6 batches of the grid exceed the pool's 256 requests")


def test_it_is_the_same_every_time() -> None:
    again = TARGET.export(KERNELS["mla"], SMALL)
    assert [f.content for f in TARGET.export(KERNELS["mla"], SMALL)] == [f.content for f in again]


def test_the_default_grid_covers_every_kind_of_step() -> None:
    rows = read_grid(TARGET.export(KERNELS["dense"], OPTIONS)[0].content.decode())
    assert {row["kind"] for row in rows} == {"decode", "prefill", "mixed"}
    assert len(rows) > 200
    without = replace(OPTIONS, settings={"beside": "0"})
    rows = read_grid(TARGET.export(KERNELS["dense"], without)[0].content.decode())
    assert {row["kind"] for row in rows} == {"decode", "prefill"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("requests", "0,1"),
        ("requests", "one"),
        ("context", "1.5"),
        ("chunk", "1"),
        ("computed", "-1"),
        ("beside", ""),
        ("level", "1"),
        ("level", "high"),
        ("level", "nan"),
    ],
)
def test_an_axis_that_is_none_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        TARGET.export(KERNELS["dense"], replace(OPTIONS, settings={name: value}))
    assert caught.value.field == name


def test_a_grid_that_the_pool_never_runs_is_refused() -> None:
    nothing = {"requests": "300", "chunk": "9000", "beside": "0"}
    with pytest.raises(InvalidArgument, match="at least one within 256 requests"):
        TARGET.export(KERNELS["dense"], replace(OPTIONS, settings=nothing))


def test_a_damaged_table_is_found() -> None:
    csv, parquet, about = TARGET.export(KERNELS["dense"], SMALL)
    text = csv.content.decode()
    place = [name for name, _, _ in COLUMNS].index("mean_s")
    lines = text.splitlines()
    cells = lines[1].split(",")

    def check(changed: str) -> tuple[str, ...]:
        return TARGET.check((ExportedFile(csv.path, changed), parquet, about))

    cells[place] = "1000.0"
    problems = check("\n".join([lines[0], ",".join(cells), *lines[2:]]) + "\n")
    assert "the CSV and the Parquet file hold different rows" in problems
    assert "line 2: mean_s is not within its interval" in problems
    cells[place] = "slow"
    assert "line 2: mean_s is 'slow'" in check("\n".join([lines[0], ",".join(cells)]) + "\n")[0]
    assert "columns are a" in check("a\n")[0]
    assert "line 2 has 1 cells" in check(lines[0] + "\n1\n")[0]
    assert "the description counts other rows" in check("\n".join(lines[:-1]) + "\n")


def test_a_cell_is_its_batch() -> None:
    batch = Cell("mixed", 2, 10, 5, 3).batch()
    assert [(r.scheduled, r.computed, r.prompt_len) for r in batch.requests] == [
        (1, 10, 10),
        (1, 10, 10),
        (5, 3, 8),
    ]
