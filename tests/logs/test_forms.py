"""Every form of log line against rows that were derived by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernelfit.logs.columns import UNKNOWN, ParsedRun
from kernelfit.logs.marks import mark_names
from kernelfit.logs.registry import coverages, readers
from kernelfit.logs.source import RunSource
from tests.logs.forms import Form, all_forms
from tests.logs.recording import adds_up

FORMS = all_forms()
MARKS = ("resume_or_spec", "warmup", "padded_or_spec", "zero_duration")


def read(form: Form, folder: Path) -> tuple[ParsedRun, ...]:
    path = folder / f"engine{form.suffix}"
    path.write_bytes(form.data())
    source = RunSource(path, None, form.reader, path.name, "r", form.said)
    return readers()[form.reader].read(source, None)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.reader}-{form.name}")
def test_a_form_becomes_what_it_says(form: Form, tmp_path: Path) -> None:
    runs = read(form, tmp_path)
    assert len(runs) == form.runs
    assert all(adds_up(run) for run in runs)
    got = [row for run in runs for row in _steps(run)]
    assert [row[:4] for row in got] == [row[:4] for row in form.steps]
    for (*_, took_ms), (*_, expected_ms) in zip(got, form.steps, strict=True):
        assert took_ms == (None if expected_ms is None else pytest.approx(expected_ms, rel=1e-12))
    counts = [run.counts for run in runs]
    rejects = [reject for run in runs for reject in run.rejects]
    assert sum(c.recognised for c in counts) == form.recognised
    assert len(rejects) == len(form.reasons)
    for reject, words in zip(rejects, form.reasons, strict=True):
        assert words in reject.reason
    intervals = [interval for run in runs for interval in run.intervals]
    assert len(intervals) == len(form.intervals)
    for interval, expected in zip(intervals, form.intervals, strict=True):
        for name, value in expected.items():
            assert getattr(interval, name) == pytest.approx(value), name
    stated = {**runs[0].stated}
    assert {key: stated.get(key) for key in form.stated} == dict(form.stated)
    assert runs[0].startup == pytest.approx(dict(form.startup))
    assert {run.timing for run in runs} == {form.timing}
    refused = form.timing in ("wait", "dispatch")
    assert all((run.fit_refused_reason is not None) is refused for run in runs)
    _marks(form, runs)


def _steps(run: ParsedRun) -> list[tuple[int, int, int | None, int, float | None]]:
    s = run.steps
    return [
        (
            int(s.engine[k]),
            int(s.step[k]),
            None if s.requests[k] == UNKNOWN else int(s.requests[k]),
            int(s.scheduled_tokens[k]),
            None if np.isnan(s.duration_s[k]) else float(s.duration_s[k]) * 1e3,
        )
        for k in range(s.count)
    ]


def _marks(form: Form, runs: tuple[ParsedRun, ...]) -> None:
    got: dict[int, tuple[str, ...]] = {}
    for run in runs:
        for step, bits in zip(run.steps.step.tolist(), run.steps.marks.tolist(), strict=True):
            names = tuple(name for name in mark_names(bits) if name in MARKS)
            if names:
                got[step] = names
    assert got == dict(form.marks)


def test_there_are_enough_and_half_are_awkward() -> None:
    assert len(FORMS) >= 60
    assert sum(form.awkward for form in FORMS) >= 30
    assert len({(form.reader, form.name) for form in FORMS}) == len(FORMS)


def test_every_covered_form_has_a_fixture() -> None:
    shown = {(form.reader, cover) for form in FORMS for cover in form.covers}
    stated = {
        (coverage.reader, form.form)
        for coverage in coverages()
        for form in coverage.forms
        if coverage.reader in {f.reader for f in FORMS}
    }
    # These have files of their own, which other tests build.
    elsewhere = {("dynamo-fpm", "csv"), ("dynamo-fpm", "metadata")}
    assert shown <= stated
    assert stated - shown == elsewhere


def test_every_reader_says_what_it_covers() -> None:
    assert [coverage.reader for coverage in coverages()] == list(readers())
    for coverage in coverages():
        assert coverage.forms
        assert coverage.timing
        assert len({form.form for form in coverage.forms}) == len(coverage.forms)
