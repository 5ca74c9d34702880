"""Any value in any place of a document gives the document or an input error, never a crash."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelfit.documents.chips import load_chip
from kernelfit.documents.deployments import load_deployment
from kernelfit.documents.models import load_model
from kernelfit.documents.problems import InputError, Problem
from kernelfit.documents.runs import load_run
from kernelfit.documents.yamldoc import load_yaml
from tests.documents.helpers import CALIB, written
from tests.documents.test_configs import HYBRID, LATENT, LLAMA, MOE
from tests.documents.test_runs import RECORDED, TABLE

Path_ = tuple[str | int, ...]
Reader = Callable[[Path], Any]

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**19), 10**19),
    st.floats(),
    st.text(max_size=6),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text("ab", min_size=1), st.integers(), max_size=2),
)


def paths_in(data: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Yield the path of every value below the root."""
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from paths_in(value, (*path, key))


def _documents() -> dict[str, tuple[Reader, str, Any]]:
    found: dict[str, tuple[Reader, str, Any]] = {}
    for reader, name in (
        (load_chip, "chips/l40s"),
        (load_model, "models/deepseek-v3"),
        (load_model, "models/qwen3.5-35b-a3b"),
        (load_deployment, "deployments/kf-gqa-cpu"),
    ):
        found[name] = (reader, "doc.yaml", load_yaml(CALIB / f"{name}.yaml").data)
    for name, config in {"llama": LLAMA, "moe": MOE, "latent": LATENT, "hybrid": HYBRID}.items():
        found[name] = (load_model, "config.json", config)
    return found


DOCUMENTS = _documents()


def spoiled(data: Any, path: Path_, value: Any) -> Any:
    """Return the data with one value replaced."""
    copied = copy.deepcopy(data)
    here = copied
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    return copied


def survives(reader: Reader, path: Path) -> None:
    """Read a file: a result, or problems that name it."""
    problems: tuple[Problem, ...] = ()
    try:
        reader(path)
    except InputError as error:
        problems = error.problems
    assert all(problem.render().startswith(f"{path}:") for problem in problems)


@pytest.mark.parametrize("name", DOCUMENTS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_anywhere(tmp_path: Path, name: str, data: st.DataObject) -> None:
    reader, file, document = DOCUMENTS[name]
    where = data.draw(st.sampled_from(sorted(paths_in(document), key=str)))
    text = json.dumps(spoiled(document, where, data.draw(VALUES)))
    # What JSON calls NaN and Infinity, YAML calls otherwise; both must be refused or read.
    survives(reader, written(tmp_path, text, file))


@pytest.mark.parametrize("text", [RECORDED, TABLE], ids=["recorded", "table"])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_run_file_with_a_piece_cut_out_or_put_in(
    tmp_path: Path, text: str, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    piece = data.draw(st.text("{}[]:,'\"\n #&*!-1.eE%~", max_size=5))
    survives(load_run, written(tmp_path, text[:start] + piece + text[end:], "run.yaml"))
