"""The wrappers around the front end's class attributes.

Any exception in a hook switches recording off
in this process with one warning, as in the engine's hooks.
"""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from kernelfit.record.call import CALL, Call, hashed
from kernelfit.record.driven import driven, guarded
from kernelfit.record.frontend import FrontEnd

_now = time.monotonic_ns
TOKENIZE = "_tokenize_prompt"


def wrap_rendering(front: FrontEnd, renderer: Any, names: tuple[str, ...]) -> None:
    """Time the coroutines that turn a call into token ids.

    Parameters
    ----------
    front : FrontEnd
        Where rows go.
    renderer : type
        The engine's renderer class.
    names : tuple of str
        Coroutine methods that the class defines itself.
    """

    def wrap(name: str, outermost: bool) -> None:
        method = getattr(renderer, name)
        run = guarded(front, name)

        @functools.wraps(method)
        async def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
            call = CALL.get()
            if call is None or not front.recorder.alive:
                return await method(self, *args, **kwargs)
            if outermost:
                run(lambda: front.reached(call, _now()))
            text = args[0].get("prompt") if args and isinstance(args[0], dict) else None
            key = id(text) if isinstance(text, str) else None
            if key is not None:
                front.texts[key] = call

            def ran(start_ns: int, end_ns: int) -> None:
                call.add("render_ns", end_ns - start_ns)
                front.busy(start_ns, end_ns)

            try:
                return await driven(method(self, *args, **kwargs), ran)
            finally:
                if key is not None:
                    front.texts.pop(key, None)
                if outermost:
                    call.rendered, call.since_ns = True, _now()

        setattr(renderer, name, recorded)

    for name in names:
        wrap(name, name in ("render_cmpl_async", "render_chat_async"))


def wrap_tokenizing(front: FrontEnd, renderer: Any) -> None:
    """Time tokenisation where it runs, in a thread of its own.

    Parameters
    ----------
    front : FrontEnd
        Where rows go.
    renderer : type
        The engine's renderer class, with ``_tokenize_prompt``.
    """
    tokenize = getattr(renderer, TOKENIZE)
    run = guarded(front, "tokenize")

    @functools.wraps(tokenize)
    def recorded(self: Any, prompt: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = _now()
        back = tokenize(self, prompt, *args, **kwargs)
        end_ns = _now()

        def note() -> None:
            call = front.texts.get(id(prompt["prompt"]))
            if call is not None:
                call.add("tokenize_ns", end_ns - start_ns)

        run(note)
        return back

    setattr(renderer, TOKENIZE, recorded)


def wrap_input(front: FrontEnd, processor: Any) -> None:
    """Wrap ``process_inputs`` of the input processor.

    Parameters
    ----------
    front : FrontEnd
        Where rows go.
    processor : type
        ``InputProcessor``; ``Processor`` up to vLLM 0.11.
    """
    process = processor.process_inputs
    run = guarded(front, "process_inputs")

    @functools.wraps(process)
    def recorded(self: Any, request_id: str, prompt: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = _now()
        back = process(self, request_id, prompt, *args, **kwargs)
        end_ns = _now()
        # Up to vLLM 0.11 the prompt's text comes back beside the request.
        request = back[1] if isinstance(back, tuple) else back

        def note() -> None:
            front.tokenized_with(getattr(self, "tokenizer", None))
            front.processed(request, prompt, start_ns, end_ns)

        run(note)
        return back

    processor.process_inputs = recorded


def wrap_engine(front: FrontEnd, engine: Any) -> None:
    """Wrap ``add_request`` and ``generate`` of the asynchronous engine.

    Parameters
    ----------
    front : FrontEnd
        Where rows go.
    engine : type
        ``AsyncLLM``.
    """
    add, generate = engine.add_request, engine.generate
    run = guarded(front, "add_request")

    @functools.wraps(add)
    async def recorded_add(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not front.recorder.alive:
            return await add(self, *args, **kwargs)
        at = CALL.get() or Call(_now())
        token = CALL.set(at)
        before = at.parts.get("process_ns", 0)
        spent = 0
        at.adding = True

        def ran(start_ns: int, end_ns: int) -> None:
            nonlocal spent
            spent += end_ns - start_ns
            at.inner_ns += end_ns - start_ns
            front.busy(start_ns, end_ns)

        try:
            back = await driven(add(self, *args, **kwargs), ran)
        finally:
            at.adding = False
            CALL.reset(token)

        def note() -> None:
            processed_ns = at.parts.get("process_ns", 0) - before
            at.add("send_ns", max(0, spent - processed_ns))
            front.admitted(at, _now())

        run(note)
        return back

    @functools.wraps(generate)
    async def recorded_generate(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        over_http = CALL.get()
        call = over_http or Call(_now())
        inner = generate(self, *args, **kwargs)
        first_ns = last_ns = tokens = 0
        ended = None
        run = guarded(front, "generate")
        try:
            async for output in inner:
                start_ns = _now()
                yield output
                last_ns = _now()
                first_ns = first_ns or last_ns

                ended = output if output.finished else None

                def note(output: Any = output, start: int = start_ns, end: int = last_ns) -> None:
                    nonlocal tokens
                    tokens = _tokens_after(output, tokens)
                    front.streamed(start, end)

                run(note)
        finally:
            await inner.aclose()
            if ended is not None:
                last = ended
                run(lambda: front.finished(call, last, tokens, first_ns, last_ns))
                if over_http is None:
                    run(lambda: front.closed(call, _now()))

    engine.add_request, engine.generate = recorded_add, recorded_generate


def _tokens_after(output: Any, before: int) -> int:
    """Return a request's output tokens; what is streamed holds the new ones only."""
    state = getattr(output, "metrics", None)
    known = getattr(state, "num_generation_tokens", None)
    if isinstance(known, int) and known > 0:
        return known
    return before + sum(len(part.token_ids) for part in output.outputs)


def wrap_output(front: FrontEnd, processor: Any) -> None:
    """Wrap ``process_outputs`` of the output processor.

    Parameters
    ----------
    front : FrontEnd
        Where rows go.
    processor : type
        ``OutputProcessor``.
    """
    process = processor.process_outputs
    run = guarded(front, "process_outputs")

    @functools.wraps(process)
    def recorded(self: Any, outputs: Any, made_s: Any = None, *args: Any, **kwargs: Any) -> Any:
        made_s = kwargs.pop("engine_core_timestamp", made_s)
        requests = len(outputs)
        start_ns = _now()
        back = process(self, outputs, made_s, *args, **kwargs)
        end_ns = _now()
        if requests:

            def note() -> None:
                tokens = sum(len(o.new_token_ids) for o in outputs)
                finished = sum(o.finish_reason is not None for o in outputs)
                front.outputs(requests, tokens, finished, made_s, (start_ns, end_ns))

            run(note)
        return back

    processor.process_outputs = recorded


def wrap_stats(front: FrontEnd, manager: Any) -> None:
    """Wrap ``record`` of the engine's own statistics.

    Parameters
    ----------
    front : FrontEnd
        Where rows go.
    manager : type
        ``StatLoggerManager``.
    """
    record = manager.record
    run = guarded(front, "stats")

    @functools.wraps(record)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = _now()
        back = record(self, *args, **kwargs)
        end_ns = _now()
        run(lambda: front.stats(start_ns, end_ns))
        return back

    manager.record = recorded


def wrap_accept(front: FrontEnd, core: Any) -> None:
    """Wrap ``preprocess_add_request`` of the engine core.

    Parameters
    ----------
    front : FrontEnd
        Where rows go.
    core : type
        ``EngineCore``.
    """
    preprocess = core.preprocess_add_request
    run = guarded(front, "preprocess_add_request")

    @functools.wraps(preprocess)
    def recorded(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = _now()
        back = preprocess(self, request, *args, **kwargs)
        end_ns = _now()
        run(lambda: front.accepted(request, start_ns, end_ns))
        return back

    core.preprocess_add_request = recorded


def wrap_server(front: FrontEnd, config: Any) -> None:
    """Put a shim around the application that an HTTP server loads.

    Parameters
    ----------
    front : FrontEnd
        Where rows go.
    config : type
        ``uvicorn.Config``; ``load`` leaves the application in ``loaded_app``.
    """
    load = config.load

    @functools.wraps(load)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        back = load(self, *args, **kwargs)
        self.loaded_app = shim(front, self.loaded_app)
        return back

    config.load = recorded


def shim(front: FrontEnd, app: Any) -> Callable[[Any, Any, Any], Awaitable[None]]:
    """Return an ASGI application that notes when requests arrive and responses close.

    Parameters
    ----------
    front : FrontEnd
        Where rows go.
    app : callable
        The application.

    Returns
    -------
    callable
        The same application, watched.
    """
    run = guarded(front, "http")

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope.get("method") != "POST" or not front.recorder.alive:
            await app(scope, receive, send)
            return
        call = Call(_now())

        def name() -> None:
            for key, value in scope.get("headers", ()):
                if key == b"x-request-id":
                    call.client = hashed(value.decode("latin-1"))

        run(name)

        def ran(start_ns: int, end_ns: int) -> None:
            run(lambda: front.served(call, start_ns, end_ns))

        CALL.set(call)
        try:
            await driven(app(scope, receive, send), ran)
        finally:
            run(lambda: front.closed(call, _now()))

    return watched
