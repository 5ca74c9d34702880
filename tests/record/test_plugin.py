"""The entry point: asleep unless asked, once per process, and never in the engine's way."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kernelfit.record import plugin
from tests.record.fakes import Output, drive, engine, rows_of

MODULES = (
    "vllm",
    "vllm.v1.core.sched.scheduler",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.worker.gpu_worker",
)


class Vllm:
    """Modules in vLLM's place that hold a fake engine's classes."""

    def __init__(self) -> None:
        steps = [Output({"a": 3}), Output({"a": 1})]
        self.scheduler, self.uniproc, self.worker = engine(steps)
        self.multiproc = type("MultiprocExecutor", (self.uniproc,), {})
        self.modules = {name: ModuleType(name) for name in MODULES}
        self.modules["vllm"].__version__ = "0.99.1"  # type: ignore[attr-defined]
        for name, attribute, value in (
            ("core.sched.scheduler", "Scheduler", self.scheduler),
            ("executor.uniproc_executor", "UniProcExecutor", self.uniproc),
            ("executor.multiproc_executor", "MultiprocExecutor", self.multiproc),
            ("worker.gpu_worker", "Worker", self.worker),
        ):
            setattr(self.modules[f"vllm.v1.{name}"], attribute, value)

    def hooks(self) -> list[Callable[..., object]]:
        """Return what stands where hooks may be."""
        return [
            self.scheduler.schedule,
            self.scheduler.update_from_output,
            self.uniproc.execute_model,
            self.multiproc.execute_model,
            self.worker.execute_model,
            self.worker.sample_tokens,
        ]


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Vllm:
    fake = Vllm()
    for name, module in fake.modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return fake


@pytest.mark.parametrize("folder", [None, ""])
def test_it_sleeps_unless_a_folder_is_named(
    folder: str | None, vllm: Vllm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNELFIT_TRACE_DIR", raising=False)
    if folder is not None:
        monkeypatch.setenv("KERNELFIT_TRACE_DIR", folder)
    before = vllm.hooks()
    named = {name: set(vars(module)) for name, module in vllm.modules.items()}
    plugin.register()
    assert vllm.hooks() == before
    assert {name: set(vars(module)) for name, module in vllm.modules.items()} == named
    drive(vllm.scheduler, vllm.uniproc, 2)
    assert list(tmp_path.iterdir()) == []


def test_it_sleeps_without_importing_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELFIT_TRACE_DIR", raising=False)
    monkeypatch.setitem(sys.modules, "vllm", None)  # an import would raise
    plugin.register()


def test_registering_again_wraps_nothing_twice(
    vllm: Vllm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "traces" / "run"
    monkeypatch.setenv("KERNELFIT_TRACE_DIR", str(folder))
    before = vllm.hooks()
    plugin.register()
    after = vllm.hooks()
    assert not set(before) & set(after)
    # The executor that inherits its method is wrapped through the one that defines it.
    assert vllm.multiproc.execute_model is vllm.uniproc.execute_model
    assert not folder.exists()
    plugin.register()
    plugin.register()
    assert vllm.hooks() == after
    drive(vllm.scheduler, vllm.uniproc, 2)
    recorder = vars(vllm.modules["vllm"])["_kernelfit_recorder"]
    recorder.writer("engine").flush()
    recorder.writer("worker").flush()
    assert [row["i"] for row in rows_of(folder, "step")] == [0, 1]
    assert [row["i"] for row in rows_of(folder, "worker")] == [0, 1]
    assert {row["engine_version"] for row in rows_of(folder, "header")} == {"0.99.1"}
    assert 'engine_version: "0.99.1"' in (folder / "run.yaml").read_text(encoding="utf-8")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("module", "attribute"),
    [
        ("vllm.v1.core.sched.scheduler", "Scheduler"),
        ("vllm.v1.worker.gpu_worker", "Worker"),
    ],
)
def test_an_engine_of_another_shape_runs_on_untouched(
    module: str,
    attribute: str,
    vllm: Vllm,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KERNELFIT_TRACE_DIR", str(tmp_path / "run"))
    monkeypatch.delattr(vllm.modules[module], attribute)
    before = vllm.hooks()
    plugin.register()
    assert capfd.readouterr().err.startswith("kernelfit: recording not installed (")
    assert vllm.hooks() == before
    drive(vllm.scheduler, vllm.uniproc, 2)
    assert not (tmp_path / "run").exists()


def test_an_executor_that_is_not_there_is_passed_over(
    vllm: Vllm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KERNELFIT_TRACE_DIR", str(tmp_path))
    monkeypatch.delattr(vllm.modules["vllm.v1.executor.multiproc_executor"], "MultiprocExecutor")
    before = vllm.uniproc.execute_model
    plugin.register()
    assert vllm.uniproc.execute_model is not before


def test_the_package_announces_the_entry_point() -> None:
    text = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert 'kernelfit = "kernelfit.record.plugin:register"' in text
