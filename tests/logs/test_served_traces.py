"""The committed served runs: every line is a row, and they span what host costs depend on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernelfit.documents.runs import load_run
from kernelfit.logs.frontend import HostSide, read_host_side
from kernelfit.logs.hostwork import EVENT_KINDS, OBSERVERS

SERVE = Path(__file__).resolve().parents[2] / "traces" / "serve"
RUNS = sorted(path.parent for path in SERVE.glob("*/run.yaml"))


def of_client(host: HostSide) -> np.ndarray:
    return host.served.observer == OBSERVERS.index("client")


@pytest.mark.parametrize("folder", RUNS, ids=lambda path: path.name)
def test_every_line_is_a_row_and_both_sides_agree(folder: Path) -> None:
    assert load_run(folder / "run.yaml").fit == "host"
    host = read_host_side(folder)
    assert host.rejects == ()
    assert host.lines == host.recognised
    client = of_client(host)
    assert client.sum() == (~client).sum()
    for name in ("prompt_tokens", "output_tokens", "cached_tokens"):
        column = getattr(host.served, name)
        assert sorted(column[client]) == sorted(column[~client]), name
    output = host.events.kind == EVENT_KINDS.index("output")
    tokens = int(host.served.output_tokens[client].sum())
    assert int(host.events.tokens[output].sum()) == tokens
    assert host.cpu
    assert host.tokenizer


def test_there_are_the_loads_of_the_readme() -> None:
    names = {path.name for path in RUNS}
    text = (SERVE.parent / "README.md").read_text(encoding="utf-8")
    assert len(names) == 9
    for name in names:
        assert name.rpartition("-")[0] in text


def test_the_sweep_spans_prompts_answers_and_company() -> None:
    host = read_host_side(SERVE / "kf-tiny-host-a")
    client = of_client(host)
    prompts, outputs = host.served.prompt_tokens[client], host.served.output_tokens[client]
    assert prompts.min() <= 2
    assert prompts.max() > 20_000
    assert outputs.min() == 1
    assert outputs.max() == 4_000
    calls = host.events.requests[host.events.kind == EVENT_KINDS.index("output")]
    assert {1, 4, 8} <= set(calls.tolist())
    assert calls.max() >= 24
