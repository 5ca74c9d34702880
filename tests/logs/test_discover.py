from __future__ import annotations

from pathlib import Path

import pytest

from kernelfit.documents.problems import InputError
from kernelfit.logs.discover import discover, safe_id
from kernelfit.logs.registry import readers
from tests.logs.recording import RUN_YAML, small


def test_a_tree_of_recordings(tmp_path: Path) -> None:
    small().write(tmp_path / "a")
    small().write(tmp_path / "deep" / "b")
    (tmp_path / "models" / "m").mkdir(parents=True)
    (tmp_path / "models" / "m" / "config.json").write_text("{}")
    (tmp_path / "a" / "engine.log").write_text("not a run of its own\n")
    found = discover(tmp_path)
    assert [(s.name, s.run_id, s.reader) for s in found] == [
        ("a", "a", "kernelfit"),
        ("deep/b", "b", "kernelfit"),
    ]
    assert [s.run_id for s in discover(tmp_path / "a")] == ["a"]
    assert discover(tmp_path / "a")[0].name == "a"


def test_a_file_of_a_recording_is_its_recording(tmp_path: Path) -> None:
    folder = small().write(tmp_path / "a")
    for name in ("engine-10.jsonl", "run.yaml"):
        (source,) = discover(folder / name)
        assert (source.path, source.reader, source.run_id) == (folder, "kernelfit", "a")
    # The engine's own log beside it is another view of the run.
    (folder / "engine.log").write_text("x\n")
    (source,) = discover(folder / "engine.log")
    assert (source.reader, source.run_id) == ("vllm-log", "engine")


def test_logs_and_tables_with_a_document(tmp_path: Path) -> None:
    text = RUN_YAML.replace("reader: kernelfit", "reader: vllm-log")
    (tmp_path / "run.yaml").write_text(text)
    (tmp_path / "x.log").write_text("x\n")
    (tmp_path / "notes.md").write_text("x\n")
    assert [s.run_id for s in discover(tmp_path)] == [safe_id(tmp_path.name)]
    (tmp_path / "y.log.gz").write_bytes(b"x")
    assert [s.path.name for s in discover(tmp_path)] == ["x.log", "y.log.gz"]
    (tmp_path / "run.yaml").write_text(text.replace("vllm-log", "table"))
    with pytest.raises(InputError, match="holds no table"):
        discover(tmp_path)


def test_bare_logs(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "one.log").write_text("x\n")
    (tmp_path / "readme.md").write_text("x\n")
    (source,) = discover(tmp_path)
    assert (source.name, source.reader, source.run_id) == ("sub/one.log", "vllm-log", "one")
    (source,) = discover(tmp_path / "readme.md")
    assert source.reader == "vllm-log"


def test_a_recording_whose_document_is_missing(tmp_path: Path) -> None:
    small().write(tmp_path / "r", run_yaml=None)
    (source,) = discover(tmp_path / "r")
    assert (source.reader, source.run_yaml) == ("kernelfit", None)


@pytest.mark.parametrize(
    ("yaml", "overrides", "message"),
    [
        (None, None, "the folder holds no run"),
        (RUN_YAML.replace("reader: kernelfit\n", ""), None, "does not say its reader"),
        (RUN_YAML.replace("reader: kernelfit", "reader: kernelfti"), None, "mean kernelfit"),
        (RUN_YAML, {"reader": "sglangg"}, "unknown reader"),
        ("a: [", None, "not valid YAML"),
    ],
)
def test_what_is_no_run(
    tmp_path: Path, yaml: str | None, overrides: dict[str, object] | None, message: str
) -> None:
    if yaml is not None:
        (tmp_path / "run.yaml").write_text(yaml)
    with pytest.raises(InputError, match=message):
        discover(tmp_path, overrides)


def test_a_missing_path(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        discover(tmp_path / "nowhere")


def test_safe_ids() -> None:
    assert safe_id("a b/../c") == "a-b-..-c"
    assert safe_id("..") == "run"
    assert safe_id(".hidden") == "hidden"


def test_entry_points_add_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine:
        name = "mine"
        version = 1
        needs_facts = False

    class Entry:
        def __init__(self, name: str) -> None:
            self.name = name

        def load(self) -> type[Mine]:
            return Mine

    def entries(group: str) -> list[Entry]:
        assert group == "kernelfit.readers"
        return [Entry("mine"), Entry("table")]

    monkeypatch.setattr("kernelfit.logs.registry.entry_points", entries)
    found = readers()
    of_steps = ["kernelfit", "vllm-log", "dynamo-fpm", "otel-steps", "table"]
    of_requests = [
        "vllm-bench-serve",
        "vllm-bench-latency",
        "guidellm",
        "inference-perf",
        "prometheus",
        "otel-requests",
    ]
    assert list(found) == [*of_steps, *of_requests, "mine"]
    assert found["table"].name == "table"
