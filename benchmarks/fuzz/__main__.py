"""Fuzz every reader: ``python -m benchmarks.fuzz [--runs N] [reader ...]``.

With atheris (coverage-guided) where it is installed; otherwise with seeded mutations of the
fixtures. Prints the inputs tried for each reader; ends with 1 at the first crash or lost line.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from benchmarks.fuzz.check import TARGETS, Target, check, prepare
from benchmarks.fuzz.requests import REQUEST_READERS, damaged
from benchmarks.fuzz.seeds import seeds

DEFAULT_RUNS = 20_000
MAX_BYTES = 4096


def guided(target: Target, runs: int, seed: int) -> None:
    """Run atheris in this process, which it ends."""
    import atheris

    with atheris.instrument_imports(include=["kernelfit.logs"]):
        import importlib

        names = [n for n in list(sys.modules) if n.startswith("kernelfit.logs")]
        for name in sorted(names):
            importlib.reload(sys.modules[name])
    folder = Path(tempfile.mkdtemp())
    corpus = Path(tempfile.mkdtemp())
    for number, data in enumerate(seeds(target)):
        (corpus / str(number)).write_bytes(data[:MAX_BYTES])
    prepare(target, folder)

    def one(data: bytes) -> None:
        check(target, folder, data)

    def other(data: bytes, longest: int, number: int) -> bytes:
        rng = random.Random(number)
        if rng.random() < 0.5:
            return bytes(atheris.Mutate(data, longest))
        return damaged(rng, target.reader, data)[:longest]

    arguments = [sys.argv[0], f"-runs={runs}", f"-seed={seed}", f"-max_len={MAX_BYTES}"]
    more = {"custom_mutator": other} if target.reader in REQUEST_READERS else {}
    atheris.Setup([*arguments, "-verbosity=0", str(corpus)], one, **more)
    atheris.Fuzz()


def mutated(rng: random.Random, parts: list[bytes]) -> bytes:
    """Return an input: pieces of seeds, cut, glued, repeated and damaged."""
    data = bytearray()
    for _ in range(rng.randint(1, 6)):
        piece = rng.choice(parts)
        begin = rng.randrange(len(piece) + 1)
        data += piece[begin : begin + rng.randrange(400)] if rng.random() < 0.5 else piece
        if rng.random() < 0.5:
            data += b"\n"
    for _ in range(rng.randint(0, 8)):
        if not data:
            break
        at = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at : at + rng.randrange(20)]
        elif kind == 2:
            data[at:at] = rng.choice([b"nan", b"-1", b"9" * 30, b"\x1b[0m", b"{", b'"', b"\x00"])
        else:
            data[at:at] = data[at : at + rng.randrange(60)]
    return bytes(data[:MAX_BYTES])


def tried(rng: random.Random, target: Target, parts: list[bytes]) -> bytes:
    """Return an input: bytes damaged anywhere, or values within a sound syntax."""
    if target.reader in REQUEST_READERS and rng.random() < 0.7:
        return damaged(rng, target.reader, rng.choice(parts))
    return mutated(rng, parts)


def unguided(target: Target, runs: int, seed: int) -> None:
    """Try seeded mutations of the fixtures."""
    rng = random.Random(seed)
    parts = seeds(target)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(target, folder)
        for _ in range(runs):
            data = tried(rng, target, parts)
            try:
                check(target, folder, data)
            except Exception:
                print(f"{target.reader}: failed on {data!r}", file=sys.stderr)
                raise


def main() -> int:
    """Parse the command line and fuzz."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("readers", nargs="*", help="names of readers; all without any")
    parser.add_argument("--runs", type=int, default=DEFAULT_RUNS, help="inputs for each reader")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--unguided", action="store_true", help="mutations only, without atheris")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    known = {target.reader: target for target in TARGETS}
    if chosen.one:
        guided(known[chosen.one], chosen.runs, chosen.seed)
        return 0
    wrong = [name for name in chosen.readers if name not in known]
    if wrong:
        parser.error(f"unknown reader {', '.join(wrong)}; known: {', '.join(known)}")
    with_atheris = not chosen.unguided and find_spec("atheris") is not None
    if not with_atheris and not chosen.unguided:
        print("atheris is not installed: seeded mutations of the fixtures instead")
    for name in chosen.readers or known:
        begin = time.perf_counter()
        if with_atheris:
            command = [sys.executable, "-m", "benchmarks.fuzz", "--one", name]
            command += ["--runs", str(chosen.runs), "--seed", str(chosen.seed)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                print(done.stdout[-4000:], done.stderr[-8000:], sep="\n", file=sys.stderr)
                print(f"{name}: failed", file=sys.stderr)
                return 1
        else:
            unguided(known[name], chosen.runs, chosen.seed)
        took_s = time.perf_counter() - begin
        how = "guided by coverage" if with_atheris else "mutations"
        print(f"{name}: {chosen.runs} inputs, {how}, no crash, no lost line ({took_s:.0f} s)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
