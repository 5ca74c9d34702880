"""Print what conclusions, flags and plans are worth.

    python -m benchmarks.flips [--shared ../shared] [--rows planted,b300,cpu,plan,speed]
        [--worlds 12]

Every figure is a count or a ratio. Planted worlds are priced by the tests' own loops; the
rest is measured data.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


def main() -> int:
    """Run the rows that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--rows", default="planted,b300,cpu,plan,speed")
    parser.add_argument("--worlds", type=int, default=12)
    parser.add_argument("--first", type=int, default=0, help="seed of the first world")
    parser.add_argument("--seeds", type=int, default=3, help="worlds and stretches of a plan")
    parser.add_argument("--parts", default="simulated,traces,b300", help="what is planned for")
    options = parser.parse_args()

    from benchmarks.flips import planning, planted, real, speed

    made: dict[str, Callable[[], Iterable[str]]] = {
        "planted": lambda: planted.run(options.worlds, (60, 25, 15, 10), options.first),
        "b300": lambda: real.b300(options.shared),
        "cpu": lambda: real.cpu(options.shared),
        "plan": lambda: planning.run(options.shared, options.seeds, options.parts.split(",")),
        "speed": speed.run,
    }
    for name in options.rows.split(","):
        began = time.perf_counter()
        print(f"{name}:", flush=True)
        for line in made[name]():
            print(line, flush=True)
        print(f"  ({time.perf_counter() - began:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
