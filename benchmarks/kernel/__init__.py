"""How long a kernel's answers take, beside the same arithmetic as a plain loop.

    python -m benchmarks.kernel [--repeats 7] [--steps 100000]

Every figure is the least of several repeats: whatever else runs on the machine only makes
them larger.
"""
