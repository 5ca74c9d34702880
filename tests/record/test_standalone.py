"""The recorder runs in the engine's process: it brings nothing along."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "kernelfit" / "record").glob("*.py"))
# Found in the engine's own environment, and asked for only inside functions.
OF_THE_ENGINE = {"tokenizers", "torch", "vllm"}


def roots_of(node: ast.AST) -> list[str]:
    """Return the packages that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [(node.module or "").split(".")[0]]
    return []


def test_every_module_loads_where_there_is_only_the_standard_library() -> None:
    names = [f"kernelfit.record.{path.stem}" for path in SOURCES if path.stem != "__init__"]
    assert {"kernelfit.record.hooks", "kernelfit.record.plugin"} <= set(names)
    code = (
        "import importlib, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "loaded = {name.split('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded - set(sys.stdlib_module_names) - {'__main__'}))\n"
        "print(sorted(n for n in sys.modules if n.startswith('kernelfit.')))\n"
    )
    # Isolated and without site: no installed package can be found.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    others, ours = done.stdout.splitlines()
    assert others == "['kernelfit']"
    assert ast.literal_eval(ours) == sorted(["kernelfit.record", *names])


def test_what_is_imported_late_is_the_engines_own() -> None:
    late = set()
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        top = {root for node in tree.body for root in roots_of(node)}
        assert top <= set(sys.stdlib_module_names) | {"kernelfit"}, path.name
        late |= {root for node in ast.walk(tree) for root in roots_of(node)} - top
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kernelfit"):
                assert (node.module or "").startswith("kernelfit.record"), path.name
    assert late - set(sys.stdlib_module_names) <= OF_THE_ENGINE
    assert "vllm" in late
