"""A step taken apart by operation adds up to the step again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelfit.export.operators import (
    HOST,
    PARTS,
    dense_layer,
    operator_times,
    overlap_scales,
    shares_of,
)
from kernelfit.export.probes import agreements, kernel_times, probe_batches, words_of
from kernelfit.export.refused import NotExpressible
from kernelfit.kernel import Batch, Mlp, RequestShape
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.handover import Range
from tests.kernel.builders import CHIP, DEPLOYED, EAGER, Deployed, dense, fitted, kernels


def added_up(kernel: FittedKernel, batches: tuple[Batch, ...]) -> np.ndarray:
    scales = overlap_scales(kernel, batches)
    return np.sum(list(operator_times(kernel, batches, scales).values()), axis=0)


@pytest.mark.parametrize("name", sorted(DEPLOYED))
def test_without_overlap_the_parts_are_the_step(name: str) -> None:
    kernel = DEPLOYED[name].kernel(fitted(share=0.0))
    batches = probe_batches(kernel)
    np.testing.assert_allclose(added_up(kernel, batches), kernel_times(kernel, batches), rtol=1e-9)


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_overlap_is_taken_off_the_parts_by_no_more_than_its_share(share: float) -> None:
    kernel = DEPLOYED["graphs"].kernel(fitted(share=share))
    batches = probe_batches(kernel)
    scales = overlap_scales(kernel, batches)
    assert set(scales) == set(PARTS) - {HOST}
    assert all(1.0 - share - 1e-6 <= value <= 1.0 for value in scales.values())
    off = np.abs(added_up(kernel, batches) / kernel_times(kernel, batches) - 1.0)
    plain = np.sum(list(operator_times(kernel, batches).values()), axis=0)
    unscaled = np.abs(plain / kernel_times(kernel, batches) - 1.0)
    assert np.median(off) < 0.5 * np.median(unscaled)


def test_shares_by_hand() -> None:
    """Hidden 1024, 8 heads and 2 KV heads of 128, gated MLP of 4096, on two ranks.

    On one rank: queries 4 x 128 and one KV head, twice 128, so 768 columns; output 512;
    up and gate 4096; down 2048: 7424 in all, times hidden.
    """
    kernel = Deployed(dense(), CHIP, replace(EAGER, tp=2)).kernel(fitted())
    shares = shares_of(kernel, kernel.plan.model.layers[0])
    assert shares.query_key_value == pytest.approx(768 / 7424)
    assert shares.output == pytest.approx(512 / 7424)
    assert shares.up == pytest.approx(4096 / 7424)
    assert shares.down == pytest.approx(2048 / 7424)


def test_only_dense_layers_of_full_attention() -> None:
    built = kernels()
    assert dense_layer("some-target", built["dense"]).mlp == Mlp(4096)
    for name, field in (
        ("moe", "experts"),
        ("mla", "attention"),
        ("hybrid", "attention"),
        ("two-nodes", "nodes"),
        ("speculating", "decode_query_tokens"),
    ):
        with pytest.raises(NotExpressible, match=f"some-target cannot express {field}"):
            dense_layer("some-target", built[name])


def test_probes_stay_within_pool_and_domain() -> None:
    kernel = DEPLOYED["dense"].kernel(fitted())
    batches = probe_batches(kernel)
    assert len(batches) >= 200
    assert max(len(batch.requests) for batch in batches) <= 64
    assert max(batch.tokens() for batch in batches) <= 4096
    narrow = DEPLOYED["dense"].kernel(replace(fitted(), domain=(Range("requests", 500.0, 600.0),)))
    with pytest.raises(InvalidArgument, match="probe batches"):
        probe_batches(narrow)


def test_agreement_by_hand() -> None:
    batches = (Batch.decode(2, 100), Batch.decode(4, 100), Batch((RequestShape(64, 0, 64),)))
    kernel_s = np.array([1.0, 2.0, 4.0])
    found = {each.phase: each for each in agreements(batches, kernel_s, kernel_s * [1.1, 0.8, 1.0])}
    assert set(found) == {"all", "decode", "prefill"}
    assert found["all"].median == pytest.approx(0.1)
    assert found["all"].worst == pytest.approx(0.2)
    assert found["all"].worst_ratio == pytest.approx(0.8)
    assert found["all"].worst_batch == "4 decodes at context 100"
    assert "prefill: 1 batches, error median 0.00%" in found["prefill"].line()
    mixed = Batch((RequestShape(64, 8, 100), *Batch.decode(2, 100).requests))
    assert words_of(mixed) == "2 decodes at context 100 + 1 prompts of 64 tokens after 8"
