"""What the recorder states about a run is a run document that the readers accept."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelfit.documents.runs import load_run
from kernelfit.documents.yamldoc import load_yaml
from kernelfit.record.facts import device_name, run_facts, to_yaml, write_facts
from tests.record.fakes import config


def test_the_document_is_one_that_the_readers_accept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELFIT_GPU", "H100-SXM")
    write_facts(tmp_path, config(), "0.32.0")
    run = load_run(tmp_path / "run.yaml")
    assert (run.gpu, run.engine, run.engine_version) == ("H100-SXM", "vllm", "0.32.0")
    assert (run.model_name, run.dtype, run.reader, run.timing) == (
        "tiny",
        "fp32",
        "kernelfit",
        "device",
    )
    assert (run.pool.tp, run.pool.block_size, run.pool.enforce_eager) == (2, 16, True)
    assert run.pool.async_scheduling is False
    facts = json.loads((tmp_path / "model.config.json").read_text(encoding="utf-8"))
    assert facts == {"model_type": "llama", "hidden_size": 64}


def test_an_existing_document_is_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("gpu: mine\n", encoding="utf-8")
    write_facts(tmp_path, config(), "0.32.0")
    assert (tmp_path / "run.yaml").read_text(encoding="utf-8") == "gpu: mine\n"


def test_a_missing_attribute_costs_one_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELFIT_GPU", "x")
    whole = run_facts(config(), "1")
    less = run_facts(config(cache_config=SimpleNamespace(block_size=16)), "1")
    lost = {key for key, value in whole["pool"].items() if less["pool"][key] != value}
    assert lost == {"cache_dtype", "enable_prefix_caching"}
    assert run_facts(SimpleNamespace(), "1")["pool"]["tp"] == 1


def test_a_cpu_is_named_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELFIT_GPU", raising=False)
    name = device_name(config())
    assert name
    assert "\n" not in name


SCALARS = st.one_of(
    st.integers(-(10**9), 10**9),
    st.booleans(),
    st.text(),
    st.lists(st.integers(0, 999), max_size=4),
)
WORDS = st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True)


@given(st.dictionaries(WORDS, st.one_of(SCALARS, st.dictionaries(WORDS, SCALARS, min_size=1))))
def test_the_yaml_is_read_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, object]
) -> None:
    path = tmp_path_factory.mktemp("yaml") / "run.yaml"
    document = {"kind": "Run", **document}
    path.write_text(to_yaml(document), encoding="utf-8")
    assert load_yaml(path).data == document
