"""Price a batch from a plain export: read_plain.py KERNEL.plain.json "[[1, 512], [64, 0]]"."""
# ruff: noqa: INP001, PTH123, T201

import bisect
import json
import math
import sys


def functions(basis, batch, threshold):
    """Return the functions of a batch of (scheduled, computed) tokens by name."""
    tokens, query, row = sum(s for s, _ in batch), basis["decode_query_tokens"], {"one": 1}
    rest, decoding = ([r for r in batch if (r[0] <= threshold) == one] for one in (False, True))
    for path, part in ("decode", decoding), ("prefill", rest):
        for w in (1 << 62, *basis["windows"]):
            name = f"{path}_" if w == 1 << 62 else f"window_{w}_{path}_"
            row[name + "context_tokens"] = sum(min(c + s, s + w - 1) for s, c in part)
            ramps = [(min(max(w - c, 0), s), s, c) for s, c in part]
            row[name + "pairs"] = sum(r * c + r * (r + 1) // 2 + (s - r) * w for r, s, c in ramps)
    sizes, even = basis["capture_sizes"], tokens == len(batch) * query
    way = basis["mixed_batch" if rest or not even else "decode_batch"]
    way = way if tokens <= max(sizes, default=0) else "eager"
    n = tokens if way == "eager" else sizes[bisect.bisect_left(sizes, tokens)]
    slots = -(-n // query) if way == "full_graphs" and even else len(batch)
    row |= {"tokens": tokens, "padded_tokens": n, "requests": len(batch), "padded_requests": slots}
    row |= {"full_graphs": 0, "piecewise_graphs": 0, "eager": 0, way: 1}
    for r in basis["routings"]:
        n = row[r["of"]]
        row[r["touched"]] = r["held"] * -math.expm1(n * r["miss_log"])
        row[r["rows"]] = min(r["mean"] * n + math.sqrt(r["variance"] * n), r["most"] * n)
    return row | {"decode_requests": len(decoding)}


def step_times(kernel, batch, threshold=1):
    """Return both bounds and the mean of a step [s]."""
    row, join = functions(kernel["basis"], batch, threshold), kernel["composition"]
    price, times, longest = lambda form: sum(form[f] * row[f] for f in form), {}, 0.0
    for joins, cells in ((stage["joins"], stage["cells"]) for stage in kernel["stages"]):
        t = [price(c["costs"]) + sum(max(map(price, two)) for two in c["choices"]) for c in cells]
        times[joins] = times.get(joins, 0.0) + sum(t)
        longest += max(t) * (joins == "device")
    summed, launch, host = (times.get(joins, 0.0) for joins in ("device", "launch", "host"))
    mean = summed - join["overlap_share"] * (summed - longest)
    mean = max(mean, launch) if join["host_rule"] == "hidden" else mean + launch
    return max(longest, launch) + host, summed + launch + host, mean + host


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print(step_times(json.load(file), json.loads(sys.argv[2])))
