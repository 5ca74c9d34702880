"""The plain export obeys its schema, and the schema refuses what is not one."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from kernelfit.documents.canonical import dumps
from kernelfit.export.base import ExportOptions
from kernelfit.export.plain import export_plain, plain_schema
from kernelfit.export.registry import find_target, targets
from tests.export.samples import DIGEST, calibration

KERNELS = ({"file": "k.json", "pool": "tp1", "model": "m", "gpu": "H100-SXM", "digest": DIGEST},)


def validator() -> jsonschema.Draft202012Validator:
    """Return the validator of the shipped schema."""
    jsonschema.Draft202012Validator.check_schema(plain_schema())
    return jsonschema.Draft202012Validator(plain_schema())


def document() -> dict[str, Any]:
    """Export the sample and read it back."""
    export = export_plain(calibration(), version="0.1.0", kernels=KERNELS)
    assert export.not_expressed == ()
    read: dict[str, Any] = json.loads(export.text)
    assert export.text == dumps(read)
    return read


def test_the_export_obeys_the_schema_and_keeps_every_number() -> None:
    read = document()
    validator().validate(read)
    source = calibration()
    assert read["coefficients"] == source["coefficients"]
    for key in ("gpu", "digest", "composition", "runs", "noise", "domain", "warnings"):
        assert read[key] == source[key]
    assert read["kernels"] == [dict(KERNELS[0])]
    assert read["version"] == "0.1.0"


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
        _set("schema", to="kernelfit.plain/2"),
        _set("gpu", to=""),
        _set("gpu", to=None),
        _set("digest", to="sha256:12"),
        _set("extra", to=1),
        _set("composition", "rule", to="product"),
        _set("composition", "overlap_share", to=1.5),
        _set("coefficients", 0, "value", to="0.9"),
        _set("coefficients", 0, "value", to=-0.9),
        _set("coefficients", 0, "verdict", to="sure"),
        _set("coefficients", 0, "method", to="fitted"),
        _set("coefficients", 0, "ci95", to=[0.1]),
        _set("coefficients", 0, "ci95", to=[0.1, 0.2, 0.3]),
        _set("coefficients", 0, "unit", to=None),
        _set("coefficients", 0, "note", to="x"),
        _set("coefficients", 0, "evidence", "bound_share", to=2.0),
        _set("runs", 0, "kept", to=1.5),
        _set("domain", 0, "low", to=None),
        _set("kernels", 0, "digest", to="none"),
        _set("warnings", to=[1]),
    ],
)
def test_the_schema_refuses(change: Callable[[dict[str, Any]], None]) -> None:
    read = document()
    change(read)
    with pytest.raises(jsonschema.ValidationError):
        validator().validate(read)


def test_a_field_without_a_place_is_named() -> None:
    source = calibration()
    source["weather"] = "fair"
    source["coefficients"][0]["colour"] = "blue"
    export = export_plain(source)
    assert [each.name for each in export.not_expressed] == ["weather", "gemm_eff_bf16.colour"]
    validator().validate(json.loads(export.text))


def test_only_identified() -> None:
    source = calibration()
    source["coefficients"][1]["verdict"] = "weak"
    export = export_plain(source, only_identified=True)
    names = [entry["name"] for entry in json.loads(export.text)["coefficients"]]
    assert len(names) == len(source["coefficients"]) - 1
    assert [each.name for each in export.not_expressed] == [source["coefficients"][1]["name"]]


def test_no_number_that_json_lacks() -> None:
    source = calibration()
    source["coefficients"][0]["value"] = float("inf")
    with pytest.raises(ValueError, match="JSON"):
        export_plain(source)


def test_the_source_is_left_as_it_was() -> None:
    source = calibration()
    before = copy.deepcopy(source)
    for target in targets():
        target.write(source, ExportOptions(version="0.1.0", kernels=KERNELS))
    assert source == before


def test_every_target_says_what_it_holds_and_lacks() -> None:
    names = [target.name for target in targets()]
    assert names == sorted(names) == ["blis", "plain"]
    for target in targets():
        assert target.holds
        assert target.lacks
        export = find_target(target.name).write(calibration(), ExportOptions())
        assert export.text.endswith("\n")
    assert "name: kernelfit-h100" in find_target("blis").write(calibration(), ExportOptions()).text
    renamed = find_target("blis").write(calibration(), ExportOptions(chip_name="my-chip"))
    assert "hardware: [my-chip]" in renamed.text
    with pytest.raises(KeyError, match="blis, plain"):
        find_target("vidur")
