"""Inputs that a fuzzer starts from: the fixtures of the tests, and small files."""

from __future__ import annotations

from benchmarks.fuzz.check import Target
from tests.logs.forms import all_forms
from tests.logs.forms.other import ROWS
from tests.logs.recording import small
from tests.logs.test_private import _summary


def seeds(target: Target) -> list[bytes]:
    """Return sound and awkward inputs of a reader.

    Parameters
    ----------
    target : Target
        The reader.

    Returns
    -------
    list of bytes
        At least one.
    """
    found = [form.data() for form in all_forms() if form.reader == target.reader]
    if target.reader in ("dynamo-fpm", "sglang-fpm"):
        found.append("\n".join(ROWS).encode())
    elif target.reader == "otel-steps":
        found.append("\n".join(_summary(k) for k in (1, 2, 3)).encode())
    elif target.reader == "blis-trace":
        rows = (f"r{r},{k},{5000 + 11_000 * (k + r) + r}" for r in range(4) for k in range(3))
        found.append("\n".join(rows).encode())
    elif target.reader == "table":
        found.append(b"10,4,0,0\n11,4,1,20\n,,,\nnan,1,1,1\n")
    elif target.reader == "kernelfit":
        found.append(_recording())
    return found


def _recording() -> bytes:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        made = small().write(Path(folder) / "run")
        return (made / "engine-10.jsonl").read_bytes()
