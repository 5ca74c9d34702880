"""TensorRT-LLM's iteration lines, by version."""

from __future__ import annotations

from tests.logs.forms import Form

H = "[04/28/2025-09:56:4{s}] [TRT-LLM] [I] "


def it(
    i: int, prev: str, ctx: int = 0, tokens: int = 0, gen: int = 10, n: int | None = None, rank: int = 0,
    more: str = "", states: str = "", tail: str = "", s: int = 4, kv: str = "",
) -> str:  # fmt: skip
    n = ctx + gen if n is None else n
    return (
        H.format(s=s)
        + f"iter = {i}, global_rank = {rank}, rank = {rank}, num_scheduled_requests = {n}, {kv}"
        f"currank_total_requests = 0/{n}, host_step_time = 7.42ms, prev_device_step_time = {prev}, {more}"
        f"timestamp = 2025-04-28 09:56:4{s}, states = {{'num_ctx_requests': {ctx}, 'num_ctx_tokens': {tokens}, "
        f"'num_generation_tokens': {gen}{states}}}{tail}"
    )


def form(name: str, covers: str, *lines: str | bytes, **more: object) -> Form:
    return Form(name, "trtllm-log", (covers,), lines, **{"timing": "device", **more})  # type: ignore[arg-type]


OLD = (
    "iter = {i}, global_rank = 0, rank = 0, currank_total_requests = 0/0, elapsed_time = 0.005060911178588867s, "
    "timestamp = 2025-04-28 09:56:44, states = {{'num_ctx_requests': 1, 'num_ctx_tokens': 30, 'num_generation_tokens': 16}}"
)

FORMS = (
    form(
        "iter-0.19", "iter-0.19", H.format(s=4) + OLD.format(i=198), steps=((0, 198, None, 46, 5.060911178588867),), timing="wait",
    ),
    form(
        "iter-0.20", "iter-0.20",
        H.format(s=4) + OLD.format(i=198).replace("states =", "num_scheduled_requests: 17, states ="),
        steps=((0, 198, 17, 46, 5.060911178588867),), timing="wait",
    ),
    form(
        "iter-1.0", "iter-1.0", it(5, "N/A", ctx=1, tokens=300, gen=2), it(6, "12.5ms", gen=3), it(7, "7.32ms", gen=3),
        # The time of 5 is printed with 6, that of 6 with 7; that of 7 never is.
        steps=((0, 5, 3, 302, 12.5), (0, 6, 3, 3, 7.32)), recognised=1,
    ),
    form(
        "padded-graph", "iter-1.0", it(5, "N/A", gen=16, n=10), it(6, "7.0ms", gen=16, n=16), it(7, "7.1ms", gen=4, n=4),
        steps=((0, 5, 10, 16, 7.0), (0, 6, 16, 16, 7.1)), recognised=1, marks={5: ("padded_or_spec",)}, awkward=True,
    ),
    form(
        "idle-is-swallowed", "iter-1.0", it(5, "7.0ms", gen=3), it(6, "7.1ms", gen=0, n=0), it(7, "1450.2ms", gen=3), it(8, "7.2ms", gen=3),
        # The 1450 ms belong to the idle iteration 6, which is no step.
        steps=((0, 5, 3, 3, 7.1), (0, 7, 3, 3, 7.2)), recognised=2, awkward=True,
    ),
    form(
        "gap-in-numbers", "iter-1.0", it(5, "7.0ms", gen=3), it(7, "9.9ms", gen=3), it(8, "7.2ms", gen=3),
        steps=((0, 7, 3, 3, 7.2),), recognised=2, awkward=True,
    ),
    form(
        "two-ranks", "iter-1.0", *(it(i, f"{i}.{r}ms", gen=3, rank=r) for i in (5, 6, 7) for r in (0, 1)),
        # Both ranks ran the same steps; each prints its own device time.
        steps=((0, 5, 3, 3, 6.0), (0, 6, 3, 3, 7.0)), recognised=4, awkward=True,
    ),
    form(
        "two-data-parallel-ranks", "iter-1.0", *(it(i, f"{i}.{r}ms", gen=3 + r, rank=r) for i in (5, 6) for r in (0, 1)),
        steps=((0, 5, 3, 3, 6.0), (1, 5, 4, 4, 6.1)), recognised=2, said={"dp": 2}, awkward=True,
    ),
    form(
        "kv-2026-05", "iter-kv",
        it(5, "N/A", gen=3, kv="kv_cache_util = 0.1, ", states=", 'cached_kv_tokens': 900"), it(6, "7.0ms", gen=3),
        steps=((0, 5, 3, 3, 7.0),), recognised=1,
    ),
    form(
        "tail-2026-07", "iter-tail", it(5, "N/A", gen=3, tail=", num_active = 14, num_fetched = 3, num_dummy = 1, num_unscheduled = 5"),
        it(6, "7.0ms", gen=3), steps=((0, 5, 3, 3, 7.0),), recognised=1,
    ),
    form(
        "tensor-in-states", "iter-1.0", it(5, "N/A", ctx=1, tokens=256, gen=0).replace("256", "tensor(256)"), it(6, "82.3ms", gen=3),
        steps=((0, 5, 1, 256, 82.3),), recognised=1, awkward=True,
    ),
    form(
        "list-in-states", "iter-kv", it(5, "N/A", gen=3, states=", 'cached_kv_tokens_per_req': [1, 2, 3]"), it(6, "7.0ms", gen=3),
        steps=((0, 5, 3, 3, 7.0),), recognised=1, awkward=True,
    ),
    form(
        "torch-rank-and-mpi-prefix", "iter-1.0", *("0: " + it(i, "7.0ms", gen=3).replace("[I] ", "[I] [_torch][RANK 0] ") for i in (5, 6)),
        steps=((0, 5, 3, 3, 7.0),), recognised=1, awkward=True,
    ),
    form(
        "other-timestamp", "iter-1.0", *(it(i, "7.0ms", gen=3).replace("2025-04-28 09", "08-23-2026 09") for i in (5, 6)),
        steps=((0, 5, 3, 3, 7.0),), recognised=1, awkward=True,
    ),
    form(
        "cut", "iter-1.0", it(5, "N/A", gen=3), it(6, "7.0ms", gen=3)[:-2], it(6, "7.0ms", gen=3), it(7, "7.0ms", gen=3)[:120],
        steps=((0, 5, 3, 3, 7.0),), recognised=1, reasons=("cut", "cut"), awkward=True,
    ),
    form(
        "glued", "iter-1.0", it(5, "N/A", gen=3) + it(6, "7.0ms", gen=3), steps=((0, 5, 3, 3, 7.0),), recognised=1, awkward=True,
    ),
    form(
        "not-possible", "iter-1.0", it(5, "N/A", ctx=2, tokens=1, gen=0), it(6, "-7.0ms", gen=3), it(7, "x", gen=3), it(8, "7.0ms", gen=3),
        it(9, "7.5ms", gen=3), steps=((0, 8, 3, 3, 7.5),), recognised=1,
        reasons=("each request has a token", "negative", "not a time"), awkward=True,
    ),
    form(
        "restart", "iter-1.0", it(5, "N/A", gen=3), it(6, "7.0ms", gen=3), it(0, "N/A", gen=4), it(1, "8.0ms", gen=4),
        steps=((0, 5, 3, 3, 7.0), (0, 0, 4, 4, 8.0)), recognised=2, runs=2, awkward=True,
    ),
    form("repeated", "iter-1.0", it(5, "N/A", gen=3), it(5, "N/A", gen=3), it(6, "7.0ms", gen=3), steps=((0, 5, 3, 3, 7.0),), recognised=1, reasons=("repeated",), awkward=True),
)  # fmt: skip
