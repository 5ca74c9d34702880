"""What the coefficients of host work around the step are, and their priors.

They hold for the engine's front end: what it does with a request before it can be scheduled,
with every output of a step, and with a request that finished.
"""

from __future__ import annotations

from kernelfit.kernel.definitions import Definition

_REGISTRY = "BLIS registry, host overheads, itself assumed: {}; the spread is a factor of {}"

FRONT_END: tuple[Definition, ...] = (
    Definition(
        "admission_request_s",
        "s",
        "time",
        "front-end time of admitting a request, whatever its prompt",
        3e-4,
        2.3,
        "assumed",
        "between the 15 to 108 us of front-end work and the 40 ms of host_admission_per_request "
        "that the BLIS registry speaks of; the spread is a factor of 10 either way",
    ),
    Definition(
        "admission_token_s",
        "s",
        "time",
        "front-end time of admission per prompt token: template and tokeniser",
        3.5e-7,
        1.5,
        "assumed",
        _REGISTRY.format("0.35 us per prompt token", "4.5 either way"),
    ),
    Definition(
        "output_call_s",
        "s",
        "time",
        "front-end time of handling the outputs of one step, whatever they hold",
        5e-5,
        2.3,
        "assumed",
        "order of magnitude; the spread of the prior is a factor of 10 either way",
    ),
    Definition(
        "output_token_s",
        "s",
        "time",
        "front-end time per request in such outputs, with its first new token: detokenising and "
        "streaming",
        2e-5,
        2.3,
        "assumed",
        _REGISTRY.format("45.9 us per output token, refitted to 1 us later", "10 either way"),
    ),
    Definition(
        "output_extra_token_s",
        "s",
        "time",
        "front-end time per further new token of the same request in such outputs",
        5e-6,
        2.3,
        "assumed",
        "order of magnitude; the spread of the prior is a factor of 10 either way",
    ),
    Definition(
        "completion_s",
        "s",
        "time",
        "front-end time of finishing a request",
        1e-4,
        2.3,
        "assumed",
        _REGISTRY.format("777 us per request, refitted to 2 us later", "10 either way"),
    ),
)
"""Coefficients of host work around the step. Source of the registry's values: blis-registry,
``coefficients/cost-model-host-overheads.yaml``."""

FRONT_END_NAMES: tuple[str, ...] = tuple(entry.name for entry in FRONT_END)
