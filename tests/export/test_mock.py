"""The mock's latencies: its published rules and formulas, and the kernel's times behind them."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from kernelfit.export.mock import TARGET, Point, first_token_s, fit_mock, latencies
from kernelfit.export.mock_check import Mock, check_config, duration_s
from kernelfit.kernel import Batch, RequestShape
from kernelfit.kernel.errors import InvalidArgument
from tests.export.samples import OPTIONS, kernels
from tests.kernel.builders import CHIP, DEPLOYED, EAGER, dense, fitted

KERNELS = kernels()

# As the project's own profile for an 8B model, docs/latency-profiles.md, nested as
# docs/configuration.md asks for.
GOOD = """\
engine: vllm
port: 8000
model: "meta-llama/Llama-3.1-8B-Instruct"
max-num-seqs: 16
mode: "random"
latency-calculator: per-token
latencies:
  inter-token-latency: 12ms
  inter-token-latency-std-dev: 2ms
  prefill-overhead: 30ms
  prefill-time-per-token: 250us
  prefill-time-std-dev: 5ms
  kv-cache-transfer-time-per-token: 3us
  kv-cache-transfer-time-std-dev: 200us
  time-factor-under-load: 2.0
"""


def test_the_projects_own_profile_is_good_and_reads_as_documented() -> None:
    assert check_config(GOOD) == ()
    mock = Mock.read(GOOD)
    # docs/latency-profiles.md: 30 + 256 * 0.25 = 94 ms for a prompt of 256 tokens.
    assert mock.first_token_s(256) == pytest.approx(0.094)
    assert mock.next_token_s(1) == pytest.approx(0.012)
    # The factor grows linearly from 1 for one request to its value at max-num-seqs.
    assert mock.next_token_s(16) == pytest.approx(0.024)
    assert mock.stretch(6) == pytest.approx(1 + 5 / 15)
    assert replace(mock, max_num_seqs=1).stretch(1) == 1.0


BROKEN = [
    ('model: "meta-llama/Llama-3.1-8B-Instruct"', "model: ''", "model: is empty"),
    ("engine: vllm", "engine: other", "engine: 'other'"),
    ('mode: "random"', "mode: fast", "mode: 'fast'"),
    ("port: 8000", "port: 0", "port: 0"),
    ("max-num-seqs: 16", "max-num-seqs: 0", "max-num-seqs: 0"),
    ("max-num-seqs: 16", "max-num-seqs: 16\nmax-model-len: 0", "max-model-len: 0"),
    ("latency-calculator: per-token", "latency-calculator: exact", "latency-calculator: 'exact'"),
    ("  prefill-overhead: 30ms", "  prefill-overheads: 30ms", "latencies.prefill-overheads"),
    ("port: 8000", "ports: 8000", "ports: unknown key"),
    ("latencies:", "inter-token-latency: 12ms\nlatencies:", "only one layout"),
    ("prefill-overhead: 30ms", "prefill-overhead: 30", "prefill-overhead: 30 is no duration"),
    ("prefill-overhead: 30ms", "prefill-overhead: -30ms", "is negative"),
    ("time-per-token: 250us", "time-per-token: 250", "prefill-time-per-token: 250 is no"),
    ("latency-std-dev: 2ms", "latency-std-dev: 4ms", "more than 30 % of inter-token-latency"),
    ("factor-under-load: 2.0", "factor-under-load: 0.9", "time-factor-under-load: 0.9"),
    ("factor-under-load: 2.0", "factor-under-load: .nan", "time-factor-under-load"),
]


@pytest.mark.parametrize(("old", "new", "words"), BROKEN)
def test_one_broken_rule_is_one_problem(old: str, new: str, words: str) -> None:
    assert GOOD.count(old) >= 1
    problems = check_config(GOOD.replace(old, new, 1))
    assert len(problems) == 1
    assert words in problems[0]


def test_what_is_no_configuration() -> None:
    assert check_config("- a\n") == ("a configuration is a mapping",)
    assert "not readable" in check_config("a: [\n")[0]
    assert check_config("model: m\nlatencies: 5\n") == ("latencies: is no mapping",)
    with pytest.raises(ValueError, match="only per-token"):
        Mock.read(GOOD.replace("per-token", "constant", 1))


def test_the_flat_layout_of_older_versions_is_read_too() -> None:
    flat = GOOD.replace("latencies:\n", "").replace("\n  ", "\n")
    assert check_config(flat) == ()
    assert Mock.read(flat) == Mock.read(GOOD)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12.5ms", 0.0125),
        ("1m30s", 90.0),
        ("250us", 250e-6),
        ("3277ns", 3.277e-6),
        (".5s", 0.5),
        ("-2s", -2.0),
        ("0", 0.0),
        (0, 0.0),
        ("1.5h", 5400.0),
        ("5", None),
        ("ms", None),
        ("1 s", None),
        ("1s5", None),
        (5, None),
        (None, None),
    ],
)
def test_durations_are_gos(text: object, expected: float | None) -> None:
    assert duration_s(text) == expected


@pytest.mark.parametrize("name", sorted(DEPLOYED))
def test_every_export_starts_and_states_the_kernels_own_times(name: str) -> None:
    kernel = KERNELS[name]
    files = TARGET.export(kernel, OPTIONS)
    assert TARGET.check(files) == ()
    mock = Mock.read(files[0].content.decode())
    rows = list(csv.DictReader(io.StringIO(files[1].content.decode())))
    for row in rows:
        running, prompt = int(row["running"]), int(row["prompt_tokens"])
        if prompt:
            assert float(row["kernel_s"]) == first_token_s(kernel, prompt, running - 1, 1024)[0]
            assert float(row["mock_s"]) == mock.first_token_s(prompt, running)
        else:
            totals = kernel.totals(Batch.decode(running, 1024))
            assert float(row["kernel_s"]) == kernel.mean_step_time(totals)
            assert float(row["mock_s"]) == mock.next_token_s(running)
    assert {int(row["running"]) for row in rows} == {1, 2, 4, 8, 16, 32, 64, 128, 256}


def test_a_linear_engine_is_fitted_exactly() -> None:
    """Planted: 5 ms and 20 us a token; 8 ms between tokens, three times that at 65 requests."""
    firsts = tuple(Point(1, n, 5e-3 + 20e-6 * n, True) for n in (64, 512, 4096))
    nexts = tuple(Point(n, 0, 8e-3 * (1 + 2 * (n - 1) / 64), True) for n in (1, 9, 65))
    mock = fit_mock(firsts, nexts, 65)
    assert mock.overhead_s == pytest.approx(5e-3)
    assert mock.per_token_s == pytest.approx(20e-6)
    assert mock.inter_token_s == pytest.approx(8e-3)
    assert mock.factor == pytest.approx(3.0)


def test_no_latency_is_fitted_below_zero() -> None:
    # Times that grow faster than linearly would want a negative overhead.
    quick = tuple(Point(1, n, 1e-9 * n * n, True) for n in (64, 512, 4096))
    falling = tuple(Point(n, 0, 8e-3 / n, True) for n in (1, 2, 4))
    mock = fit_mock(quick, falling, 4)
    assert mock.overhead_s == 0.0
    assert mock.per_token_s > 0.0
    assert mock.factor == 1.0
    flat = tuple(Point(1, n, 4e-3 - 1e-8 * n, True) for n in (64, 512, 4096))
    assert fit_mock(flat, falling, 4).per_token_s == 0.0


def test_a_long_prompt_takes_the_steps_that_the_engine_makes_of_it() -> None:
    kernel = KERNELS["dense"]
    # The pool schedules 8192 tokens at most; one decode takes one of them.
    others = Batch.decode(1, 500).requests
    steps = (
        Batch((*others, RequestShape(8191, 0, 10000))),
        Batch((*others, RequestShape(1809, 8191, 10000))),
    )
    expected = sum(kernel.mean_step_time(kernel.totals(batch)) for batch in steps)
    assert first_token_s(kernel, 10000, 1, 500)[0] == pytest.approx(expected)


def test_settings_and_limits() -> None:
    kernel = KERNELS["dense"]
    text = TARGET.export(kernel, replace(OPTIONS, settings={"max_num_seqs": "10"}))[0].content
    assert b"max-num-seqs: 10\n" in text
    assert b"--set max_num_seqs=10" in text
    for name, value in (("max_num_seqs", "257"), ("max_num_seqs", "1,2"), ("prompts", "64")):
        with pytest.raises(InvalidArgument) as caught:
            TARGET.export(kernel, replace(OPTIONS, settings={name: value}))
        assert caught.value.field == name
    short = replace(EAGER, max_model_len=512)
    limited = DEPLOYED["dense"]
    limited = replace(limited, pool=short)
    with pytest.raises(InvalidArgument, match="max_model_len"):
        latencies(limited.kernel(fitted()), OPTIONS)
    fits = replace(OPTIONS, settings={"context": "500"})
    text = TARGET.export(limited.kernel(fitted()), fits)[0].content
    assert b"max-model-len: 512\n" in text


def test_a_chip_without_a_network_states_no_transfer() -> None:
    from kernelfit.kernel import FittedKernel

    chip = replace(CHIP, nic_bytes_per_s=0.0)
    kernel = FittedKernel.of(dense(), chip, EAGER, "0.32.0", fitted())
    assert b"kv-cache-transfer" not in TARGET.export(kernel, OPTIONS)[0].content
    assert "kv-cache-transfer" in {each.name for each in TARGET.missing(kernel, OPTIONS)}
    assert b"kv-cache-transfer" in TARGET.export(KERNELS["dense"], OPTIONS)[0].content
