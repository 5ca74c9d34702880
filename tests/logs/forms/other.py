"""Records of forward passes and of steps, one a line."""

from __future__ import annotations

import json

from tests.logs.forms import Form


def record(
    i: int, wall_s: float, prefill: int = 0, tokens: int = 0, decode: int = 0, **more: object
) -> str:
    return json.dumps(
        {
            "version": 1, "worker_id": "w", "dp_rank": 0, "counter_id": i, "wall_time": wall_s,
            "scheduled_requests": {
                "num_prefill_requests": prefill, "sum_prefill_tokens": tokens, "var_prefill_length": 0.0,
                "sum_prefill_kv_tokens": 0, "num_decode_requests": decode, "sum_decode_kv_tokens": 100 * decode,
                "var_decode_kv_tokens": 0.0,
            },
            "queued_requests": {}, **more,
        }
    )  # fmt: skip


def form(name: str, reader: str, covers: str, *lines: str | bytes, **more: object) -> Form:
    return Form(name, reader, (covers,), lines, suffix=".jsonl", **more)  # type: ignore[arg-type]


ROWS = (record(1, 0.0305, 1, 200), record(2, 0.011, decode=20), record(3, 0.0))
STEPS = ((0, 1, 1, 200, 30.5), (0, 2, 20, 20, 11.0))

FORMS = (
    form("dynamo-json", "dynamo-fpm", "json", *ROWS[:2], steps=STEPS, timing="cycle"),
    form("dynamo-idle", "dynamo-fpm", "idle", *ROWS, steps=STEPS, recognised=1, timing="cycle"),
    form("dynamo-stated", "dynamo-fpm", "json", *ROWS[:2], steps=STEPS, timing="step", said={"timing": "step"}, awkward=True),
    form("sglang-events", "sglang-fpm", "json", *ROWS[:2], steps=STEPS, timing="device", said={"engine_version": "0.5.23"}),
    form("sglang-host", "sglang-fpm", "json", *ROWS[:2], steps=STEPS, said={"engine_version": "0.5.12"}),
    form("sglang-unknown", "sglang-fpm", "json", *ROWS[:2], steps=STEPS, awkward=True),
    form("sglang-heartbeat", "sglang-fpm", "idle", *ROWS, steps=STEPS, recognised=1),
    form(
        "fpm-damaged", "sglang-fpm", "json", ROWS[0], ROWS[1][:-20], "[]", "", record(4, 0.5, decode=-1), ROWS[1],
        steps=STEPS, recognised=1, reasons=("not a line of JSON", "not a forward pass record", "negative"), awkward=True,
    ),
)  # fmt: skip
