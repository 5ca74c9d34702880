"""The plain export: its schema, what the schema refuses, and a reader that agrees."""

from __future__ import annotations

import copy
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest

from kernelfit.export.plain import TARGET, check_plain, plain_document, plain_schema
from tests.export.samples import OPTIONS, kernels, random_batches
from tests.kernel.builders import DEPLOYED

READER = Path(__file__).resolve().parents[2] / "examples" / "read_plain.py"
KERNELS = kernels()


def reader() -> ModuleType:
    """Load the example as a user's own module."""
    spec = importlib.util.spec_from_file_location("read_plain", READER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def validator() -> jsonschema.Draft202012Validator:
    """Return the validator of the published schema."""
    jsonschema.Draft202012Validator.check_schema(plain_schema())
    return jsonschema.Draft202012Validator(plain_schema())


def document(name: str = "moe-spread") -> dict[str, Any]:
    """Export a sample and read it back."""
    first = TARGET.export(KERNELS[name], OPTIONS)[0]
    read: dict[str, Any] = json.loads(first.content)
    return read


@pytest.mark.parametrize("name", sorted(DEPLOYED))
def test_the_example_reader_gives_the_kernels_times(name: str) -> None:
    module, kernel, read = reader(), KERNELS[name], document(name)
    validator().validate(read)
    for batch in random_batches(200, seed=len(name)):
        shapes = [(r.scheduled, r.computed) for r in batch.requests]
        overlap, no_overlap, mean = module.step_times(read, shapes, batch.decode_threshold)
        totals = kernel.totals(batch)
        step = kernel.totals_time(totals)
        assert overlap == pytest.approx(step.overlap_s, rel=1e-9)
        assert no_overlap == pytest.approx(step.no_overlap_s, rel=1e-9)
        assert mean == pytest.approx(kernel.mean_step_time(totals), rel=1e-9)


def test_the_example_reader_is_short_and_needs_the_standard_library_alone() -> None:
    lines = [line for line in READER.read_text("utf-8").splitlines() if line.strip()]
    assert len([line for line in lines if not line.lstrip().startswith(('"""', "#"))]) < 40
    imports = [line.split()[1] for line in lines if line.startswith(("import ", "from "))]
    assert imports == ["bisect", "json", "math", "sys"]


def test_host_work_that_does_not_hide_is_read_so() -> None:
    from dataclasses import replace

    from kernelfit.kernel import FittedKernel

    kernel = KERNELS["async"]
    added = FittedKernel.from_plan(kernel.plan, replace(kernel.fitted, host_rule="added"))
    read = plain_document(added, OPTIONS)
    for batch in random_batches(20):
        shapes = [(r.scheduled, r.computed) for r in batch.requests]
        mean = reader().step_times(read, shapes, batch.decode_threshold)[2]
        assert mean == pytest.approx(added.mean_step_time(added.totals(batch)), rel=1e-9)


def test_it_carries_where_it_comes_from_and_no_date() -> None:
    kernel, read = KERNELS["moe-spread"], document()
    assert read["provenance"] == {
        "made_by": "kernelfit 0.1.0",
        "command": "kernelfit export plain sample.json",
        "kernel": kernel.digest,
        "calibration": "sha256:test",
        "model": "moe",
        "gpu": "round-gpu",
        "engine_version": "0.32.0",
    }
    names = {entry["name"] for entry in read["coefficients"]}
    assert names == set(kernel.plan.coefficients)
    assert read["memory"]["fixed"]["total"] == kernel.fixed_bytes().total()
    for entry in read["memory"]["sequence_variable"]:
        assert entry["bytes"] == kernel.sequence_variable_bytes(entry["tokens"])


def _set(*path: str | int, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(read: dict[str, Any]) -> None:
        place: Any = read
        for key in path[:-1]:
            place = place[key]
        if to is None:
            del place[path[-1]]
        else:
            place[path[-1]] = to

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("schema", to="kernelfit.plain/1"),
        _set("digest", to="sha256:12"),
        _set("extra", to=1),
        _set("provenance", "command", to=None),
        _set("provenance", "date", to="2026-01-01"),
        _set("deployment", "sm_count", to=-1),
        _set("basis", "functions", 0, "formula", to=""),
        _set("basis", "capture_sizes", to=[0]),
        _set("basis", "decode_batch", to="full"),
        _set("basis", "decode_query_tokens", to=0),
        _set("basis", "routings", 0, "of", to="requests"),
        _set("basis", "routings", 0, "miss_log", to=0.5),
        _set("stages", to=[]),
        _set("stages", 0, "joins", to="gpu"),
        _set("stages", 0, "cells", 0, "resource", to="tensor"),
        _set("stages", 0, "cells", 0, "costs", to={"tokens": -1e-9}),
        _set("stages", 0, "cells", 0, "choices", to=[[{}]]),
        _set("composition", "overlap_share", to=1.5),
        _set("composition", "host_rule", to="maybe"),
        _set("coefficients", 0, "value", to=0),
        _set("coefficients", 0, "verdict", to="sure"),
        _set("coefficients", 0, "unit", to="us"),
        _set("coefficients", 0, "ci95", to=[0.1]),
        _set("noise", 0, "phase", to="idle"),
        _set("domain", 0, "low", to=None),
        _set("memory", "fixed", "total", to=None),
        _set("memory", "sequence_variable", 0, "bytes", to=1.5),
    ],
)
def test_the_schema_refuses(change: Callable[[dict[str, Any]], None]) -> None:
    read = document()
    validator().validate(read)
    change(read)
    with pytest.raises(jsonschema.ValidationError):
        validator().validate(read)


def test_a_changed_file_and_an_unknown_function_are_found() -> None:
    from kernelfit.documents.canonical import digest

    read = document()
    assert check_plain(json.dumps(read)) == ()
    changed = copy.deepcopy(read)
    changed["composition"]["overlap_share"] = 0.31
    assert check_plain(json.dumps(changed)) == (
        "was changed after it was written: its digest does not hold",
    )
    changed = copy.deepcopy(read)
    changed["stages"][0]["cells"][0]["costs"] = {"weather": 1.0}
    changed["digest"] = digest(changed)
    assert check_plain(json.dumps(changed)) == ("layer.moe prices weather, not a function",)
    assert check_plain("{}") == ("states no schema kernelfit.plain/2",)
    assert check_plain("{")[0].startswith("is no JSON")


def test_what_is_left_out_is_said() -> None:
    (draws,) = TARGET.missing(KERNELS["dense"], OPTIONS)
    assert draws.name == "draws"
