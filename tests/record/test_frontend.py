"""The front end's recorder: work told from waiting, part by part, on a clock that is known."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelfit.record import driven, frontend, frontend_hooks
from kernelfit.record.call import PARTS, hashed
from kernelfit.record.frontend import FrontEnd
from kernelfit.record.frontend_hooks import (
    wrap_accept,
    wrap_engine,
    wrap_input,
    wrap_output,
    wrap_rendering,
    wrap_server,
    wrap_stats,
    wrap_tokenizing,
)
from kernelfit.record.hooks import Recorder
from tests.record.fakes import rows_of
from tests.record.front_fakes import Clock, FakeFrontEnd, post

# What the fake's parts take [ns]; see front_fakes.
HEAD, JSON_BODY, BEFORE_RENDER, AFTER_RENDER = 50_000, 300_000, 2, 3
RENDER, PROCESS, SEND, CHUNK, END = 16, 1_000, 230, 20_000, 4_000


class Recorded:
    """A fake front end with every hook in place."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder, self.clock = folder, clock
        self.recorder = Recorder(folder, "0.99")
        self.front = FrontEnd(self.recorder)
        self.fake = FakeFrontEnd(clock)
        wrap_rendering(
            self.front, self.fake.renderer, ("render_cmpl_async", "tokenize_prompt_async")
        )
        wrap_tokenizing(self.front, self.fake.renderer)
        wrap_input(self.front, self.fake.input)
        wrap_engine(self.front, self.fake.engine)
        wrap_output(self.front, self.fake.output)
        wrap_stats(self.front, self.fake.stats)
        wrap_server(self.front, self.fake.config)
        self.fake.llm = self.fake.engine()
        config = self.fake.config(self.fake.application)
        config.load()
        self.app = config.loaded_app

    def rows(self, kind: str) -> list[dict[str, Any]]:
        """Return what was recorded of one kind."""
        self.recorder.writer("frontend").flush()
        return rows_of(self.folder, kind)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    clock = Clock()
    for module in (driven, frontend, frontend_hooks):
        monkeypatch.setattr(module, "_now", clock)
    return Recorded(tmp_path, clock)


async def settle() -> None:
    """Let every task run as far as it can; tokenisation is in a thread."""
    for _ in range(50):
        await asyncio.sleep(0.0005)


def serve_one(recorded: Recorded, body: str = "abcd", steps: int = 3) -> list[Any]:
    """Serve one request and return what was sent."""

    async def run() -> list[Any]:
        call = asyncio.create_task(post(recorded.app, body, "kf-7"))
        await settle()
        for step in range(steps):
            recorded.clock.work(1_000_000)  # the engine's step
            recorded.fake.step(("cmpl-0", 1, step == steps - 1))
            await settle()
        return await call

    return asyncio.run(run())


def test_an_admission_is_the_sum_of_its_parts(recorded: Recorded) -> None:
    serve_one(recorded)
    (row,) = recorded.rows("admission")
    assert row["tokens"] == 4
    assert row["text"] is True
    assert row["client"] == hashed("kf-7")
    assert row["req"] == hashed("cmpl-0")
    parts = {name: row[name] for name in PARTS}
    assert parts == {
        "http_ns": HEAD + JSON_BODY + BEFORE_RENDER + AFTER_RENDER,
        "render_ns": RENDER,
        "tokenize_ns": 400,
        "process_ns": PROCESS,
        "send_ns": SEND,
    }
    # The tokeniser's thread has a clock of its own here.
    assert row["end_ns"] - row["start_ns"] == sum(parts.values()) - 400


def test_an_output_call_holds_its_statistics_and_its_stream(recorded: Recorded) -> None:
    sent = serve_one(recorded)
    rows = recorded.rows("output")
    assert len(sent) == len(rows) == 3
    for row in rows:
        assert (row["requests"], row["tokens"], row["streamed"]) == (1, 1, 1)
        assert row["end_ns"] - row["start_ns"] == 10_000
        assert row["stats_ns"] == 7_000
        assert row["stream_ns"] == CHUNK
    assert [row["finished"] for row in rows] == [0, 0, 1]


def test_a_finished_request_is_written_when_its_response_closes(recorded: Recorded) -> None:
    serve_one(recorded)
    (row,) = recorded.rows("done")
    assert row["end_ns"] - row["start_ns"] == END
    assert (row["prompt"], row["output"], row["cached"]) == (4, 3, 3)
    assert (row["queued_ns"], row["prefill_ns"], row["decode_ns"]) == (
        500_000_000,
        1_000_000_000,
        2_000_000_000,
    )
    assert row["client"] == hashed("kf-7")


def test_what_the_loop_does_for_others_is_no_part_of_an_admission(recorded: Recorded) -> None:
    """Two requests at once: each keeps the parts that it has alone."""

    async def run() -> None:
        calls = [asyncio.create_task(post(recorded.app, body)) for body in ("abcd", "abcdefgh")]
        await settle()
        recorded.fake.step(("cmpl-0", 1, True), ("cmpl-1", 1, True))
        await settle()
        await asyncio.gather(*calls)

    asyncio.run(run())
    rows = sorted(recorded.rows("admission"), key=lambda row: int(row["tokens"]))
    assert [row["tokens"] for row in rows] == [4, 8]
    for row in rows:
        # What the handler does in a task of its own is told from waiting only by what else
        # is known to have run: it may hold the other's few nanoseconds.
        assert HEAD + JSON_BODY <= row["http_ns"] <= HEAD + JSON_BODY + 2_000
        assert row["process_ns"] == PROCESS
        assert row["send_ns"] == SEND
        assert row["end_ns"] - row["start_ns"] > 2 * JSON_BODY
    (output,) = recorded.rows("output")
    assert output["stream_ns"] == 2 * CHUNK
    assert output["streamed"] == output["requests"] == 2


def test_transport_leaves_out_what_the_loop_did_meanwhile(recorded: Recorded) -> None:
    front, clock = recorded.front, recorded.clock
    front.busy(clock.ns + 100, clock.ns + 400)
    made_s = clock.ns * 1e-9
    clock.work(1_000)
    recorded.fake.queues["a"] = asyncio.Queue()
    recorded.fake.step(("a", 2, False), made_s=made_s)
    front.close_output()
    (row,) = recorded.rows("output")
    assert row["transport_ns"] == 700
    assert row["tokens"] == 2


def test_stretches_that_hold_others_are_counted_once(recorded: Recorded) -> None:
    front = recorded.front
    front.busy(10, 20)
    front.busy(30, 40)
    front.busy(5, 50)
    front.busy(60, 70)
    assert front.busy_between(0, 100) == 55
    assert front.busy_between(45, 65) == 10
    assert front.own(0, 100) == 45


def test_a_request_that_is_cut_off_leaves_no_trace_of_completion(recorded: Recorded) -> None:
    async def run() -> None:
        call = asyncio.create_task(post(recorded.app, "abcd"))
        await settle()
        recorded.fake.step(("cmpl-0", 1, False))
        await settle()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(run())
    assert len(recorded.rows("admission")) == 1
    assert recorded.rows("done") == []
    assert recorded.recorder.alive


def test_nothing_of_a_prompt_or_an_id_is_written(recorded: Recorded) -> None:
    serve_one(recorded, body="secret words")
    recorded.recorder.writer("frontend").flush()
    text = "".join(path.read_text() for path in recorded.folder.glob("*.jsonl"))
    assert "secret" not in text
    assert "cmpl-0" not in text
    assert "kf-7" not in text


def test_the_host_says_what_it_is(recorded: Recorded) -> None:
    serve_one(recorded)
    hosts = recorded.rows("host")
    assert hosts[0]["missing"] == []
    assert hosts[0]["cpu"]
    assert hosts[1]["tokenizer"] == "range of 77 tokens"


def test_a_failing_hook_switches_recording_off_and_serves_on(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(recorded.front, "outputs", broken)
    assert len(serve_one(recorded)) == 3
    assert not recorded.recorder.alive
    assert capfd.readouterr().err.count("recording switched off") == 1


def test_an_engine_core_accepts(recorded: Recorded) -> None:
    clock = recorded.clock

    class Core:
        def preprocess_add_request(self, request: Any) -> str:
            clock.work(50)
            return "request"

    wrap_accept(recorded.front, Core)
    request = SimpleNamespace(
        request_id="cmpl-0-abc", external_req_id="cmpl-0", prompt_token_ids=[1, 2]
    )
    assert Core().preprocess_add_request(request) == "request"
    (row,) = recorded.rows("accept")
    assert row["end_ns"] - row["start_ns"] == 50
    assert (row["tokens"], row["req"]) == (2, hashed("cmpl-0"))


def test_a_library_call_without_a_server_is_recorded_too(recorded: Recorded) -> None:
    processor = recorded.fake.input()
    processor.process_inputs("r1", {"prompt_token_ids": [1, 2, 3]}, None)
    (row,) = recorded.rows("admission")
    assert (row["tokens"], row["text"], row["process_ns"]) == (3, False, PROCESS)
    assert "http_ns" not in row


def test_the_driven_hand_on_exceptions_and_results() -> None:
    ran: list[tuple[int, int]] = []

    async def fails() -> None:
        try:
            await asyncio.sleep(0)
            raise KeyError("k")
        finally:
            await asyncio.sleep(0)

    async def run() -> None:
        with pytest.raises(KeyError):
            await driven.driven(fails(), lambda a, b: ran.append((a, b)))

        async def slow() -> int:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                return 3
            return 0

        task = asyncio.create_task(_waits(slow()))
        await asyncio.sleep(0)
        task.cancel()
        assert await task == 3

    async def _waits(work: Any) -> Any:
        return await driven.driven(work, lambda _a, _b: None)

    asyncio.run(run())
    assert len(ran) == 3


def test_rows_are_json_lines_with_a_header(recorded: Recorded) -> None:
    serve_one(recorded)
    recorded.recorder.writer("frontend").flush()
    (path,) = recorded.folder.glob("frontend-*.jsonl")
    first = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    assert (first["role"], first["format"], first["version"]) == ("frontend", "kernelfit", 2)
