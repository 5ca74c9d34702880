"""Request-level sources identify sums, and one coefficient only where more is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelfit.fit.coarse import CoarseResult, CoarseTerm, coarse_host, robust_line
from kernelfit.fit.coarse_runs import CoarseRun, gate_coarse
from kernelfit.kernel import Batch, FittedKernel, RequestShape
from tests.export.samples import kernels

KERNEL = kernels()["dense"]
REQUEST_S, TOKEN_S, OUTPUT_S, PATH_S = 300e-6, 2e-6, 90e-6, 400e-6
UNKNOWN = np.nan


def prefill_s(kernel: FittedKernel, tokens: float) -> float:
    """Steps until the first token, chunk by chunk, priced one at a time."""
    most = kernel.plan.resolution.max_num_batched_tokens
    done, total = 0, 0.0
    while done < tokens:
        now = min(most, int(tokens) - done)
        shape = RequestShape(now, done, int(tokens))
        total += kernel.mean_step_time(kernel.totals(Batch((shape,))))
        done += now
    return total


def requests(
    count: int = 240, *, seed: int = 0, lengths: tuple[int, int] = (16, 6000)
) -> CoarseRun:
    """Requests one after the other, of a server with a planted front end."""
    rng = np.random.default_rng(seed)
    prompt = np.round(np.exp(rng.uniform(*np.log(lengths), count)))
    output = rng.integers(2, 40, count).astype(float)
    prefill = np.asarray([prefill_s(KERNEL, p) for p in prompt]) * rng.normal(1.0, 0.01, count)
    queue = rng.uniform(0.0, 2e-4, count)
    host = (REQUEST_S + TOKEN_S * prompt + OUTPUT_S) * rng.lognormal(0.0, 0.1, count)
    decode = np.asarray(
        [KERNEL.mean_step_time(KERNEL.totals(Batch.decode(1, int(p)))) for p in prompt]
    )
    first = host + queue + prefill
    whole = first + (output - 1) * (decode + 50e-6)
    arrival = np.concatenate([[0.0], np.cumsum(whole + 0.01)[:-1]])
    nothing = np.full(count, UNKNOWN)
    return CoarseRun(
        run="r",
        reader="made",
        observer="engine",
        scope="CPU; vllm 0.32.0; BPE",
        together=True,
        most_at_once=UNKNOWN,
        arrival_s=arrival,
        first_s=arrival + first,
        end_s=arrival + whole,
        prompt=prompt,
        output=output,
        cached=nothing,
        chunks=output.copy(),
        queue_s=queue,
        prefill_s=prefill,
        windows=(),
    )


def as_client(run: CoarseRun) -> CoarseRun:
    """The same as a client saw it: later by its own path, and without the engine's times."""
    nothing = np.full(run.prompt.size, UNKNOWN)
    return replace(
        run,
        observer="client",
        first_s=run.first_s + PATH_S,
        end_s=run.end_s + PATH_S,
        queue_s=nothing,
        prefill_s=nothing,
    )


def term(result: CoarseResult, *parts: str) -> CoarseTerm:
    (found,) = [each for each in result.terms if each.parts == parts]
    return found


def test_the_engines_own_times_tell_the_prompt_from_the_rest() -> None:
    result = coarse_host(requests(), None, draws=60)
    token = term(result, "admission_token_s")
    assert token.ci95[0] <= TOKEN_S <= token.ci95[1]
    assert token.verdict == "identified"
    whole = term(result, "admission_request_s", "output_call_s", "output_token_s")
    assert whole.ci95[0] <= REQUEST_S + OUTPUT_S <= whole.ci95[1]
    assert whole.verdict in ("identified", "weak")
    # Nothing tells the parts of the constant apart, and nothing covers the end.
    assert any(text.startswith("completion_s") for text in result.unknown)
    assert any("never but in a sum" in text for text in result.unknown)


def test_a_client_with_a_kernel_tells_it_too_but_less_sharply() -> None:
    result = coarse_host(as_client(requests()), KERNEL, draws=60)
    token = term(result, "admission_token_s")
    assert token.ci95[0] <= TOKEN_S <= token.ci95[1]
    # However sharp it looks: the kernel may be wrong about a model that it never saw.
    assert token.verdict == "weak"
    sharp = term(coarse_host(requests(), None, draws=60), "admission_token_s")
    assert np.ptp(token.ci95) > np.ptp(sharp.ci95)
    whole = term(
        result, "admission_request_s", "output_call_s", "output_token_s", "client and network"
    )
    assert whole.ci95[0] <= REQUEST_S + OUTPUT_S + PATH_S <= whole.ci95[1]


def test_a_kernel_that_is_unsure_of_its_prefill_identifies_less() -> None:
    wide = KERNEL.fitted.residuals
    assert wide
    off = tuple(replace(r, log_ratio=(-0.5, -0.3, 0.0, 0.3, 0.5)) for r in wide)
    unsure = replace(KERNEL, fitted=replace(KERNEL.fitted, residuals=off))
    token = term(coarse_host(as_client(requests()), unsure, draws=60), "admission_token_s")
    assert token.verdict != "identified"
    assert np.ptp(token.ci95) > 0.5 * TOKEN_S


def test_a_client_without_a_kernel_knows_only_the_sum_with_prefill() -> None:
    result = coarse_host(as_client(requests()), None, draws=40)
    slope = term(result, "admission_token_s", "prefill step, per token")
    assert slope.value > 2 * TOKEN_S
    assert not any(each.parts == ("admission_token_s",) for each in result.terms)
    assert "admission_token_s: not told from the rest" in result.unknown


def test_requests_that_met_are_not_taken_for_alone() -> None:
    run = as_client(requests())
    crowd = replace(run, arrival_s=0.01 * run.arrival_s, first_s=run.first_s, end_s=run.end_s)
    result = coarse_host(crowd, KERNEL, draws=20)
    assert result.terms == ()
    assert any("had the server to themselves" in text for text in result.unknown)
    assert {gate.id for gate in result.gates} == {"met_others"}
    # Nor where no clock shows who met, unless one was open at a time.
    apart = replace(run, together=False)
    assert coarse_host(apart, KERNEL, draws=20).terms == ()
    assert coarse_host(replace(apart, most_at_once=1.0), KERNEL, draws=20).terms


def test_prompts_of_one_length_give_a_sum_at_that_length() -> None:
    result = coarse_host(requests(lengths=(500, 500)), None, draws=40)
    (whole,) = result.terms
    assert whole.parts[-1] == "500 x admission_token_s"
    assert whole.value == pytest.approx(REQUEST_S + OUTPUT_S + 500 * TOKEN_S, rel=0.05)


def test_gates_of_requests() -> None:
    run = requests(60)
    chunks, cached, first = run.chunks.copy(), run.cached.copy(), run.first_s.copy()
    chunks[:5] -= 1
    chunks[5:7] += 1
    cached[7:10], first[10] = 64.0, UNKNOWN
    left, single, gates = gate_coarse(replace(run, chunks=chunks, cached=cached, first_s=first))
    assert {gate.id: gate.events for gate in gates} == {
        "several_tokens_per_chunk": 5,
        "chunks_inflated": 2,
        "requests_cached": 3,
        "requests_unusable": 1,
    }
    assert left.prompt.size == 56
    assert np.count_nonzero(single) == 56 - 7


def scrapes(count: int, lengths: tuple[float, float]) -> CoarseRun:
    """Means between scrapes of a server with the planted front end."""
    rng = np.random.default_rng(1)
    windows = []
    for prompt in np.linspace(*lengths, count):
        n = 50.0
        over = (REQUEST_S + OUTPUT_S + TOKEN_S * prompt) * rng.normal(1.0, 0.02)
        windows.append(
            {
                "time_to_first_token": (n * (over + 0.3 + 0.05), n),
                "queue": (n * 0.3, n),
                "prefill": (n * 0.05, n),
                "prompt_tokens": (n * prompt, n),
            }
        )
    empty = requests(1).take(np.zeros(1, dtype=bool))
    return replace(empty, windows=tuple(windows))


def test_scrapes_tell_a_slope_only_over_different_prompts() -> None:
    result = coarse_host(scrapes(24, (100.0, 4000.0)), None, draws=60)
    # Means hide which requests met, so waiting may be in them.
    token = term(result, "admission_token_s", "waiting in the front end, per token")
    assert token.ci95[0] <= TOKEN_S <= token.ci95[1]
    alike = coarse_host(scrapes(24, (900.0, 1100.0)), None, draws=60)
    (whole,) = alike.terms
    assert whole.parts[-1] == "1000 x admission_token_s"
    assert whole.value == pytest.approx(REQUEST_S + OUTPUT_S + 1000 * TOKEN_S, rel=0.05)
    assert any("too alike" in text for text in alike.unknown)
    one = coarse_host(scrapes(1, (900.0, 1100.0)), None, draws=20)
    assert one.terms == ()


def test_statistics_without_the_engines_times_tell_nothing() -> None:
    run = scrapes(8, (100.0, 4000.0))
    bare = replace(run, windows=tuple({"time_to_first_token": (1.0, 4.0)} for _ in range(8)))
    result = coarse_host(bare, KERNEL, draws=20)
    assert result.terms == ()
    assert any("no part of the host can be told" in text for text in result.unknown)


def test_a_few_stalls_do_not_tilt_the_line() -> None:
    rng = np.random.default_rng(3)
    count = np.exp(rng.uniform(2.0, 9.0, 400))
    seconds = 1e-3 + 2e-6 * count + rng.normal(0.0, 5e-5, 400)
    seconds[rng.integers(0, 400, 12)] += 0.05
    constant, slope = robust_line(count, seconds)
    assert constant == pytest.approx(1e-3, rel=0.05)
    assert slope == pytest.approx(2e-6, rel=0.02)


def test_spans_of_requests_that_met_hold_their_waiting_too() -> None:
    run = requests()
    # Everybody arrives at once, and waits in the front end for all that came before.
    wait = np.cumsum(REQUEST_S + TOKEN_S * run.prompt)
    crowd = replace(
        run,
        arrival_s=np.zeros(run.prompt.size),
        first_s=run.first_s - run.arrival_s + wait,
        end_s=run.end_s - run.arrival_s + wait,
    )
    result = coarse_host(crowd, None, draws=40)
    assert all(any("waiting in the front end" in part for part in t.parts) for t in result.terms)
    assert result.terms[0].value > 10 * (REQUEST_S + OUTPUT_S)
    assert "admission_token_s: not told from the rest" in result.unknown
    assert any("in the front end" in text for text in result.unknown)
    # A few that came alone are enough to go by.
    apart = np.arange(run.prompt.size) < 60
    arrival = np.where(apart, run.arrival_s + 1e6, 0.0)
    mixed = replace(
        crowd,
        arrival_s=arrival,
        first_s=np.where(apart, run.first_s + 1e6, crowd.first_s),
        end_s=np.where(apart, run.end_s + 1e6, crowd.end_s),
    )
    found = coarse_host(mixed, None, draws=40)
    token = term(found, "admission_token_s")
    assert token.value == pytest.approx(TOKEN_S, rel=0.1)
    assert token.requests == 60
    assert {gate.id: gate.events for gate in found.gates} == {"met_others": 180}


def test_a_long_request_is_company_for_all_that_come_while_it_runs() -> None:
    run = requests(5)
    apart = replace(
        run,
        arrival_s=np.array([0.0, 1.0, 3.0, 20.0, 30.0]),
        first_s=np.array([0.5, 1.5, 3.5, 20.5, 30.5]),
        end_s=np.array([10.0, 2.0, 4.0, 21.0, 31.0]),
    )
    assert apart.alone().tolist() == [False, False, False, True, True]
    order = np.array([4, 2, 0, 3, 1])
    mixed = replace(
        apart,
        arrival_s=apart.arrival_s[order],
        first_s=apart.first_s[order],
        end_s=apart.end_s[order],
    )
    assert mixed.alone().tolist() == [True, False, False, True, False]
