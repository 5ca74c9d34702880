"""What the host benchmark says of an assumed value follows from the interval beside it."""

from __future__ import annotations

from benchmarks.host.registry import ENTRIES, beside
from kernelfit.kernel.catalog import Coefficient


def completion(value_us: float, low_us: float, high_us: float, verdict: str) -> Coefficient:
    edges = (1e-6 * low_us, 1e-6 * high_us)
    return Coefficient("completion_s", 1e-6 * value_us, "s", "CPU", "measured", verdict, edges)


def finding(c: Coefficient) -> str:
    found = {each.name: each.finding for each in beside({c.name: c}, on_cpu=False)}
    return found["host_completion"]


def test_an_interval_that_holds_the_assumed_value_does_not_contradict_it() -> None:
    # The registry assumes 777.3 us.
    assert finding(completion(800, 700, 900, "identified")).startswith("agrees")
    assert finding(completion(800, 777.3, 900, "identified")).startswith("agrees")
    far = finding(completion(388.65, 300, 777, "identified"))
    assert far == "CONTRADICTED: 2 times what is measured"
    near = finding(completion(1554.6, 778, 1600, "weak"))
    assert near == "contradicted, by a weak coefficient: 2 times too small"
    assert finding(completion(10, 1, 20, "prior")).startswith("says nothing")


def test_what_was_not_recorded_or_is_of_another_kind_is_not_compared() -> None:
    launch = Coefficient("launch_layer_s", 7e-4, "s", "CPU", "measured", "identified", (6e-4, 8e-4))
    here = {each.name: each for each in beside({"launch_layer_s": launch}, on_cpu=True)}
    assert len(here) == len(ENTRIES) == 7
    assert "on a CPU" in here["host_launch_eager_per_layer"].finding
    assert here["host_completion"].finding == "not recorded on this machine"
    gpu = {each.name: each for each in beside({"launch_layer_s": launch}, on_cpu=False)}
    assert gpu["host_launch_eager_per_layer"].finding.startswith("CONTRADICTED")
