"""An export takes the file that a fit wrote as well as the entry of its result."""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import pytest

from kernelfit.documents.canonical import dumps
from kernelfit.export.base import ExportOptions
from kernelfit.export.blis_check import validate_coefficient_set
from kernelfit.export.plain import plain_schema
from kernelfit.export.registry import find_target
from kernelfit.export.source import summary_of
from kernelfit.fit.calibration import Calibration, Evidence, Noise, RunUsed, Score
from kernelfit.kernel.catalog import Coefficient
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.handover import Range, Residuals

CHIP = Chip("H100-SXM", (("bf16", 989e12),), 3.35e12, 80 * 2**30, 4.5e11, 5e10, 6.4e10, 132, 8)

CALIBRATION = Calibration(
    chip=CHIP,
    coefficients=(
        Coefficient("hbm_weight_eff", 0.8, "1", "H100-SXM", "measured", "identified", (0.78, 0.82)),
        Coefficient("layer_floor_s", 1e-5, "s", "H100-SXM", "literature", "prior", (4e-6, 3e-5)),
    ),
    evidence=(
        Evidence(0.01, 2.0, 0.012, 0.0, 0.9, 0.7, ()),
        Evidence(None, None, 0.9, 0.0, 0.0, 0.01, ("launch_step_s",)),
    ),
    rule="sum",
    overlap_share=0.0,
    scores=(Score("sum", 0.03, 0.04),),
    scale=0.02,
    lag1=0.1,
    inflation=1.2,
    block_steps=16,
    condition=1e308,
    runs=(RunUsed("a", "m", "tp1", 1000, 900),),
    noise=Noise(0.01, 0.03, 20, 100),
    domain=(Range("requests", 1.0, 64.0),),
    draw_names=("hbm_weight_eff", "layer_floor_s"),
    draws=((0.8, 1e-5), (0.79, 2e-5)),
    draw_shares=(0.0, 0.0),
    residuals=(Residuals("decode", 100, (-0.1, 0.0, 0.1)),),
    seed=0,
    converged=True,
    warnings=(),
)


def test_the_file_and_the_entry_give_the_same_export() -> None:
    file = json.loads(dumps(CALIBRATION.to_document()))
    entry = CALIBRATION.summary()
    assert summary_of(entry) is entry
    assert summary_of(file) == entry
    assert entry["condition"] is None
    for name in ("plain", "blis"):
        target = find_target(name)
        assert target.write(file, ExportOptions()) == target.write(entry, ExportOptions())


def test_a_real_calibration_obeys_the_schema_without_a_word_lost() -> None:
    for calibration in (CALIBRATION, replace(CALIBRATION, condition=40.0)):
        export = find_target("plain").write(calibration.to_document(), ExportOptions())
        assert export.not_expressed == ()
        jsonschema.Draft202012Validator(plain_schema()).validate(json.loads(export.text))


def test_a_real_calibration_is_a_valid_set() -> None:
    export = find_target("blis").write(CALIBRATION.to_document(), ExportOptions())
    assert validate_coefficient_set(export.text) == ()
    assert [each.name for each in export.not_expressed] == ["layer_floor_s", "composition"]


def test_a_damaged_file_is_refused() -> None:
    file = CALIBRATION.to_document()
    del file["coefficients"]
    with pytest.raises(InvalidArgument, match="coefficients"):
        summary_of(file)
