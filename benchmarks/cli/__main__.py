"""``python -m benchmarks.cli``: start-up times as ratios to ``python -c pass``."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 15
COMMANDS = {
    "python -c pass": ("-c", "pass"),
    "import kernelfit": ("-c", "import kernelfit"),
    "from kernelfit import FittedKernel": ("-c", "from kernelfit import FittedKernel"),
    "import numpy": ("-c", "import numpy"),
    "import typer": ("-c", "import typer"),
    "kernelfit --help": ("-m", "kernelfit.cli.main", "--help"),
    "kernelfit fit --help": ("-m", "kernelfit.cli.main", "fit", "--help"),
    "kernelfit --version": ("-m", "kernelfit.cli.main", "--version"),
}


def measured() -> dict[str, list[float]]:
    """Return the times of every command, turn by turn, so that a slow spell meets all [s]."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, words in COMMANDS.items():
            begin = time.perf_counter()
            subprocess.run([sys.executable, *words], capture_output=True, check=True)
            times[name].append(time.perf_counter() - begin)
    return times


def main() -> None:
    """Print the table."""
    times = measured()
    base = statistics.median(times["python -c pass"])
    print(f"{'command':<38}{'best ms':>9}{'median ms':>11}{'x python':>10}")
    for name, found in times.items():
        middle = statistics.median(found)
        print(f"{name:<38}{1e3 * min(found):>9.0f}{1e3 * middle:>11.0f}{middle / base:>10.1f}")
    print(f"{ROUNDS} rounds; the bar for kernelfit --help is 200 ms")


if __name__ == "__main__":
    main()
