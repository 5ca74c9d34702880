"""A front end small enough to see through, with a clock that the test turns."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any


class Clock(threading.local):
    """A clock that moves only when work is done, in each thread for itself."""

    def __init__(self) -> None:
        self.ns = 1_000_000

    def __call__(self) -> int:
        return self.ns

    def work(self, spent_ns: int) -> None:
        """Work for a while."""
        self.ns += spent_ns


class FakeFrontEnd:
    """Classes like vLLM's, each part of which takes a time of its own."""

    def __init__(self, clock: Clock) -> None:  # noqa: C901 - six small classes
        fake = self
        self.clock = clock
        self.queues: dict[str, asyncio.Queue[Any]] = {}
        ids = itertools.count()

        class Renderer:
            async def render_cmpl_async(
                self, prompts: list[dict[str, Any]]
            ) -> list[dict[str, Any]]:
                clock.work(10)
                done = await asyncio.gather(*(self.tokenize_prompt_async(p) for p in prompts))
                clock.work(1)
                return list(done)

            async def tokenize_prompt_async(self, prompt: dict[str, Any]) -> dict[str, Any]:
                clock.work(5)
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(None, self._tokenize_prompt, prompt, None)

            def _tokenize_prompt(self, prompt: dict[str, Any], params: Any) -> dict[str, Any]:
                clock.work(100 * len(prompt["prompt"]))
                return {"type": "token", "prompt_token_ids": [1] * len(prompt["prompt"]), **prompt}

        class InputProcessor:
            tokenizer = range(77)

            def process_inputs(self, request_id: str, prompt: dict[str, Any], params: Any) -> Any:
                clock.work(1_000)
                return SimpleNamespace(
                    request_id=request_id, prompt_token_ids=prompt["prompt_token_ids"]
                )

        class OutputProcessor:
            def process_outputs(
                self, outputs: list[Any], engine_core_timestamp: float | None = None
            ) -> None:
                clock.work(10_000 * len(outputs))
                for output in outputs:
                    fake.queues[output.request_id].put_nowait(output)

        class AsyncLLM:
            def __init__(self) -> None:
                self.input_processor = InputProcessor()

            async def add_request(self, request_id: str, prompt: dict[str, Any]) -> Any:
                request = self.input_processor.process_inputs(request_id, prompt, None)
                clock.work(200)
                await asyncio.sleep(0)
                clock.work(30)
                fake.queues[request_id] = asyncio.Queue()
                return request

            async def generate(self, prompt: dict[str, Any], params: Any, request_id: str) -> Any:
                await self.add_request(request_id, prompt)
                count = 0
                finished = False
                while not finished:
                    output = await fake.queues[request_id].get()
                    finished = output.finish_reason is not None
                    count += len(output.new_token_ids)
                    yield SimpleNamespace(
                        request_id=request_id,
                        prompt_token_ids=prompt["prompt_token_ids"],
                        outputs=[SimpleNamespace(token_ids=output.new_token_ids)],
                        finished=finished,
                        num_cached_tokens=3,
                        metrics=SimpleNamespace(
                            num_generation_tokens=count,
                            queued_ts=1.0,
                            scheduled_ts=1.5,
                            first_token_ts=2.5,
                            last_token_ts=4.5,
                        ),
                    )

        class StatLoggerManager:
            def record(self) -> None:
                clock.work(7_000)

        class Config:
            def __init__(self, app: Any) -> None:
                self.app = app

            def load(self) -> None:
                self.loaded_app = self.app

        self.renderer, self.input, self.output = Renderer, InputProcessor, OutputProcessor
        self.engine, self.stats, self.config = AsyncLLM, StatLoggerManager, Config

        async def application(scope: Any, receive: Any, send: Any) -> None:
            clock.work(50_000)  # the head
            body = (await receive())["body"]
            clock.work(300_000)  # JSON and its validation
            renderer, engine = fake.renderer(), fake.llm

            async def handle() -> AsyncIterator[Any]:
                clock.work(2)
                (prompt,) = await renderer.render_cmpl_async([{"prompt": body}])
                clock.work(3)
                return engine.generate(prompt, None, f"cmpl-{next(ids)}")

            # As vLLM does it: the handler in a task of its own, the stream in the server's.
            stream = await asyncio.create_task(handle())
            async for output in stream:
                clock.work(20_000)
                await send(output)
            clock.work(4_000)

        self.application = application
        self.llm: Any = None

    def step(self, *tokens_of: tuple[str, int, bool], made_s: float | None = None) -> None:
        """Hand one step's outputs to the output processor, then keep statistics."""
        outputs = [
            SimpleNamespace(
                request_id=request,
                new_token_ids=[5] * tokens,
                finish_reason="length" if last else None,
            )
            for request, tokens, last in tokens_of
        ]
        self.output().process_outputs(outputs, made_s)
        self.stats().record()


async def post(app: Callable[..., Any], body: str, client: str | None = None) -> list[Any]:
    """Call an application as an HTTP server does and return what it sent."""
    sent: list[Any] = []
    headers = [] if client is None else [(b"x-request-id", client.encode())]

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "http", "method": "POST", "headers": headers}, receive, send)
    return sent
