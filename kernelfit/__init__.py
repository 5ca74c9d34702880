"""kernelfit: step logs of LLM serving engines in, a calibrated cost model out."""

__version__ = "0.1.0"
