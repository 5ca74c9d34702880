"""How far each target's step times are from the kernel's: ``python -m benchmarks.exports``."""
