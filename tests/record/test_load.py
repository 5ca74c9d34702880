"""The load driver: seeded traces, events out of bytes, and what a server's client sees."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.record import load as driver
from kernelfit.record.arrivals import Load, Planned, Span, arrivals
from kernelfit.record.call import hashed
from kernelfit.record.events import EventReader
from kernelfit.record.load import Prompts, library_text, main
from tests.record.fakes import rows_of

LOAD = Load(200, 4.0, Span(16, 512), Span(8, 64), shared=0.3)


def test_a_seed_is_a_trace() -> None:
    assert arrivals(3, LOAD) == arrivals(3, LOAD)
    assert arrivals(3, LOAD) != arrivals(4, LOAD)


def test_a_trace_is_what_was_asked() -> None:
    trace = arrivals(3, LOAD)
    assert len(trace) == 200
    assert all(16 <= p.prompt_tokens <= 512 and 8 <= p.output_tokens <= 64 for p in trace)
    assert [p.due_s for p in trace] == sorted(p.due_s for p in trace)
    # 200 exponential gaps of 0.25 s: their sum is 50 s, give or take 50 / sqrt(200).
    assert trace[-1].due_s == pytest.approx(50.0, abs=4 * 50.0 / 200**0.5)
    shared = [p for p in trace if p.shared_tokens]
    assert 0.3 * 200 - 26 < len(shared) < 0.3 * 200 + 26
    assert all(p.shared_tokens == p.prompt_tokens // 2 for p in shared)


def test_without_a_rate_all_are_due_at_once() -> None:
    assert {p.due_s for p in arrivals(1, Load(9, None, Span(1, 2), Span(1, 2)))} == {0.0}


@pytest.mark.parametrize("text", ["5:4", "0:9", "0", "-1:3"])
def test_an_empty_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a span needs"):
        Span.parse(text)


def test_a_span_is_two_numbers_or_one() -> None:
    assert Span.parse("4:5") == Span(4, 5)
    assert Span.parse("7") == Span(7, 7)


def test_prompts_have_the_length_asked_and_share_what_they_should() -> None:
    text = library_text(200_000)
    prompts = Prompts(text, 4.0)
    one = prompts.cut(Planned(0.0, 100, 1, 0.2))
    other = prompts.cut(Planned(0.0, 100, 1, 0.7))
    assert len(one) == len(other) == 400
    assert one != other
    first, second = (prompts.cut(Planned(0.0, 100, 1, at, 50)) for at in (0.1, 0.9))
    assert first[:200] == second[:200] == text[:200]
    assert first[200:] != second[200:]
    assert len(prompts.cut(Planned(0.0, 1, 1, 1.0))) == 4
    assert len(Prompts(text, 0.2).cut(Planned(0.0, 1, 1, 0.5))) == 1


EVENTS = [b'{"a": 1}', b"two words", b"[DONE]"]


def response(chunked: bool) -> bytes:
    body = b"".join(b"data: " + event + b"\n\n" for event in EVENTS)
    if not chunked:
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    parts = [body[i : i + 11] for i in range(0, len(body), 11)]
    framed = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n"


@settings(max_examples=60, deadline=None)
@given(st.booleans(), st.lists(st.integers(1, 40), min_size=1))
def test_events_do_not_depend_on_how_bytes_arrive(chunked: bool, cuts: list[int]) -> None:
    data, reader, found, place = response(chunked), EventReader(), [], 0
    while place < len(data):
        size = cuts[place % len(cuts)]
        found += reader.feed(data[place : place + size])
        place += size
    assert found == EVENTS
    assert reader.ended
    assert reader.status == 200


def test_a_body_without_a_length_ends_with_its_connection() -> None:
    reader = EventReader()
    assert reader.feed(b"HTTP/1.1 400 Bad\r\n\r\n{}") == []
    assert not reader.ended
    reader.feed(b"")
    assert reader.ended
    assert (reader.status, reader.rest()) == (400, b"{}")


def test_what_is_no_response_is_refused() -> None:
    with pytest.raises(ValueError, match="not an HTTP response"):
        EventReader().feed(b"hello\r\n\r\n")


class FakeServer:
    """Answers as vLLM's HTTP server does; prompts of one request are refused."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.names: list[str] = []
        self.flying = self.most = 0
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(int(x.split(":")[1]) for x in head.split("\r\n") if "Content-Length" in x)
        body = json.loads(await reader.readexactly(length)) if length else {}
        path = head.split()[1]
        if path == "/v1/models":
            self.plain(writer, {"data": [{"id": "kf"}]})
        elif path == "/tokenize":
            self.plain(writer, {"count": len(body["prompt"]) // 5})
        else:
            self.names += [x.split(": ")[1] for x in head.split("\r\n") if "X-Request-Id" in x]
            self.bodies.append(body)
            self.flying += 1
            self.most = max(self.most, self.flying)
            if body["max_tokens"] == 13:
                self.plain(writer, {"error": {"message": "no"}}, status=400)
            else:
                await self.stream(writer, body)
            self.flying -= 1
        await writer.drain()
        writer.close()

    def plain(self, writer: asyncio.StreamWriter, body: Any, status: int = 200) -> None:
        data = json.dumps(body).encode()
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(data)) + data)

    async def stream(self, writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        usage = {
            "prompt_tokens": len(body["prompt"]) // 5,
            "completion_tokens": body["max_tokens"],
            "prompt_tokens_details": {"cached_tokens": 3},
        }
        events = ['{"choices":[{"index":0,"text":"x"}]}'] * body["max_tokens"]
        events += [json.dumps({"choices": [], "usage": usage}, separators=(",", ":")), "[DONE]"]
        for event in events:
            data = f"data: {event}\n\n".encode()
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
            await asyncio.sleep(0.002)
        writer.write(b"0\r\n\r\n")


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    loop = asyncio.new_event_loop()
    ready = threading.Event()

    async def start() -> asyncio.Server:
        made = await asyncio.start_server(fake.answer, "127.0.0.1", 0)
        fake.port = made.sockets[0].getsockname()[1]
        ready.set()
        return made

    def run() -> None:
        made = loop.run_until_complete(start())
        loop.run_forever()
        made.close()
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    yield fake
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def drive(server: FakeServer, folder: Path, words: str) -> int:
    return main(["--port", str(server.port), "--out", str(folder), *words.split()])


def test_a_load_is_served_and_every_request_is_noted(server: FakeServer, tmp_path: Path) -> None:
    words = "--requests 8 --rate 40 --prompt 10:40 --output 2:9 --seed 5 --name light"
    assert drive(server, tmp_path, words) == 0
    rows = sorted(rows_of(tmp_path, "served"), key=lambda row: int(row["i"]))
    trace = arrivals(5, Load(8, 40.0, Span(10, 40), Span(2, 9)))
    assert [row["output"] for row in rows] == [p.output_tokens for p in trace]
    assert [row["asked"] for row in rows] == [p.output_tokens for p in trace]
    assert sorted(row["req"] for row in rows) == sorted(map(hashed, server.names))
    start_ns = rows[0]["due_ns"] - round(trace[0].due_s * 1e9)
    for row, planned in zip(rows, trace, strict=True):
        assert row["due_ns"] - start_ns == pytest.approx(planned.due_s * 1e9, abs=2)
        assert row["due_ns"] <= row["arrival_ns"] <= row["first_ns"] <= row["last_ns"]
        assert row["last_ns"] <= row["end_ns"]
        assert row["chunks"] == planned.output_tokens == len(row["gaps_us"]) + 1
        assert abs(row["prompt"] - planned.prompt_tokens) <= 1
        assert (row["status"], row["cached"]) == (200, 3)
    (header,) = rows_of(tmp_path, "header")
    assert (header["role"], header["name"], header["seed"]) == ("client", "light", 5)
    text = "".join(path.read_text() for path in tmp_path.glob("*.jsonl"))
    assert server.bodies[0]["prompt"][:10] not in text


def test_no_more_are_in_flight_than_asked(server: FakeServer, tmp_path: Path) -> None:
    assert drive(server, tmp_path, "--requests 9 --concurrency 2 --output 4:6") == 0
    assert server.most == 2


def test_a_request_that_is_refused_is_noted_and_told(
    server: FakeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert drive(server, tmp_path, "--requests 1 --output 13") == 1
    (row,) = rows_of(tmp_path, "served")
    assert (row["status"], row["first_ns"], row["chunks"]) == (400, None, 0)
    assert "1 failed" in capfd.readouterr().err


def test_a_server_that_is_not_there_is_waited_for_and_no_longer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["--port", "1", "--out", str(tmp_path), "--wait", "0.1"]
    assert main(words) == 1
    assert "no server at 127.0.0.1:1 within 0.1 s" in capfd.readouterr().err


def test_a_folder_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELFIT_TRACE_DIR", raising=False)
    with pytest.raises(SystemExit) as stop:
        driver.parse([])
    assert stop.value.code == 2
