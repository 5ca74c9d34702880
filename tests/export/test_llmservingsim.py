"""A bundle read back as the simulator reads it gives the kernel's steps where it has rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ruamel.yaml import YAML

from kernelfit.export.base import ExportedFile, Files
from kernelfit.export.llmservingsim import TARGET, family_of, link_of, variant_of
from kernelfit.export.llmservingsim_check import load_profile
from kernelfit.export.llmservingsim_law import LAYER, Profile, along
from kernelfit.export.operators import operator_times
from kernelfit.export.probes import kernel_times
from kernelfit.export.refused import NotExpressible
from kernelfit.kernel import Batch, LayerKind, Mlp, RequestShape
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.fitted import FittedKernel
from tests.export.samples import OPTIONS
from tests.kernel.builders import CHIP, EAGER, GRAPHS, Deployed, dense, fitted, kernels

SMALL = replace(OPTIONS, settings={"max_context": "512", "model": "org/dense"})


def kernel(tp: int = 1, graphs: bool = False, share: float = 0.0) -> FittedKernel:
    pool = replace(GRAPHS if graphs else EAGER, tp=tp, max_num_batched_tokens=512, max_num_seqs=64)
    return Deployed(dense(), CHIP, pool).kernel(fitted(share=share))


def test_interpolation_by_hand() -> None:
    """Linear between rows, the first row below them, linear beyond, whole and at least 1."""
    curve = {10: 100, 20: 300}
    assert [along(curve, at) for at in (1, 10, 15, 20, 30)] == [100, 100, 200, 300, 500]
    assert along({5: 0}, 7) == 1
    dense_ = {name: {1: 10} for name in ("embedding", "final_layernorm", *LAYER["llama"])}
    heads = {"lm_head": {1: 1000}, "sampler": {1: 500}}
    points = {
        (0, 0, 1, 0): 10,
        (0, 0, 1, 100): 20,
        (0, 0, 3, 0): 30,
        (0, 0, 3, 100): 60,
    }
    profile = Profile("llama", 2, dense_, heads, points)
    # Two decodes at 50: halfway from 15 to 45.
    two = Batch.decode(2, 50)
    assert profile.attention_ns(two) == 30
    # Eight operations in a layer, the norm twice among them, and attention.
    assert profile.step_ns(two) == 10 + 2 * (8 * 10 + 30) + 10 + 1500
    # No prompt was profiled: the nearest pair of prompt tokens and decodes stands in.
    assert profile.attention_ns(Batch((RequestShape(64, 0, 64),))) == 10


@pytest.mark.parametrize("graphs", [False, True])
def test_a_step_at_a_row_is_the_kernels(graphs: bool) -> None:
    given = kernel(graphs=graphs)
    files = TARGET.export(given, SMALL)
    assert TARGET.check(files) == ()
    profile = load_profile(files, 4)
    batches = [
        Batch.decode(1, 16),
        Batch.decode(8, 256),
        Batch.decode(64, 512),
        Batch((RequestShape(512, 0, 512),)),
        Batch((RequestShape(256, 64, 320),)),
    ]
    steps = kernel_times(given, batches)
    for batch, step_s in zip(batches, steps, strict=True):
        parts = operator_times(given, [batch])
        prompt = batch.requests[0].computed < batch.requests[0].prompt_len
        # Tables by tokens know the host and head by sequences only.
        slack = abs(float(parts["host"][0])) if prompt else 0.0
        assert profile.step_ns(batch) * 1e-9 == pytest.approx(step_s, rel=1e-3, abs=slack + 1e-7)


def test_collectives_stay_with_the_simulator() -> None:
    given = kernel(tp=2)
    files = TARGET.export(given, SMALL)
    assert TARGET.check(files) == ()
    batch = Batch.decode(8, 256)
    (step_s,) = kernel_times(given, [batch])
    link_s = float(operator_times(given, [batch])["link"][0])
    assert load_profile(files, 4).step_ns(batch) * 1e-9 == pytest.approx(step_s - link_s, rel=1e-3)
    values = {c.name: c.value for c in given.fitted.coefficients}
    assert link_of(given) == (
        pytest.approx(100.0 * values["allreduce_custom_eff"]),
        pytest.approx(1e9 * values["allreduce_custom_floor_s"] / 2),
    )
    assert link_of(kernel()) is None
    assert "collectives" in {each.name for each in TARGET.missing(given, SMALL)}
    assert TARGET.missing(kernel(), SMALL) == ()
    (said,) = TARGET.missing(kernel(share=0.5), SMALL)
    assert said.name == "overlap_share"


def test_layout_and_provenance() -> None:
    given = kernel(tp=2)
    files = TARGET.export(given, SMALL)
    base = "perf/round-gpu/org/dense/bf16"
    assert [file.path for file in files] == [
        f"{base}/meta.yaml",
        *(f"{base}/tp2/{name}.csv" for name in ("dense", "per_sequence", "attention")),
    ]
    text = files[0].content.decode()
    assert given.digest in text
    assert "link_bw" in text
    meta = YAML(typ="safe", pure=True).load(text)
    assert meta["tp_degrees"] == [2]
    assert meta["engine_effective"]["max_num_batched_tokens"] == 512
    assert files == TARGET.export(given, SMALL)


def test_families_and_variants() -> None:
    assert family_of(kernel(), OPTIONS) == "llama"
    assert variant_of(kernel()) == "bf16"
    model = dense()
    normed = replace(model.layers[0], attention=replace(model.layers[0].attention, qk_norm=True))
    qwen = Deployed(replace(model, layers=(normed,)), CHIP, EAGER).kernel(fitted())
    assert family_of(qwen, OPTIONS) == "qwen3"
    assert TARGET.check(TARGET.export(qwen, SMALL)) == ()
    cached = Deployed(model, CHIP, replace(EAGER, cache_dtype="fp8")).kernel(fitted())
    assert variant_of(cached) == "bf16-kvfp8"
    with pytest.raises(NotExpressible, match="family='gpt'"):
        family_of(kernel(), replace(OPTIONS, settings={"family": "gpt"}))


def test_refused_with_the_reason() -> None:
    built = kernels()
    for name, field in (("moe", "experts"), ("mla", "attention"), ("hybrid", "attention")):
        with pytest.raises(NotExpressible, match=f"llmservingsim cannot express {field}"):
            TARGET.export(built[name], SMALL)
    model = dense()
    kind = model.layers[0]
    plain = replace(model, layers=(LayerKind("dense", 4, kind.attention, Mlp(4096, False)),))
    with pytest.raises(NotExpressible, match=r"mlp\.gated"):
        TARGET.export(Deployed(plain, CHIP, EAGER).kernel(fitted()), SMALL)
    with pytest.raises(InvalidArgument, match="max_context"):
        TARGET.export(kernel(), replace(SMALL, settings={"max_context": "one"}))


def broken(files: Files, ending: str, old: str, new: str) -> Files:
    out = []
    for file in files:
        text = file.content.decode()
        if file.path.endswith(ending):
            assert old in text
            text = text.replace(old, new, 1)
        out.append(ExportedFile(file.path, text))
    return tuple(out)


@pytest.mark.parametrize(
    ("ending", "old", "new", "wrong"),
    [
        ("meta.yaml", "architecture: llama", "architecture: gpt", "architecture is 'gpt'"),
        ("meta.yaml", "max_num_seqs: 64", "max_num_seqs: many", "max_num_seqs is 'many'"),
        ("meta.yaml", "engine_effective:", "engine_effective: {", "not readable"),
        ("dense.csv", "layer,tokens", "layer,rows", ":1: column tokens is missing"),
        ("dense.csv", "\nact_fn,1,", "\nact_fn,one,", ":2: tokens is 'one'"),
        ("dense.csv", "\nact_fn,1,", "\nact_fn,2,", ":3: a second row for act_fn, 2"),
        ("dense.csv", "\nact_fn,1,", "\nact,1,", "act is in no catalogue"),
        ("dense.csv", "\nact_fn,1,", "\nact_fn,1,-", ":2: time_us is '-"),
        ("per_sequence.csv", "lm_head", "head", "head is in no catalogue"),
        ("attention.csv", "kv_decode", "kv", ":1: column kv_decode is missing"),
        ("attention.csv", ",1,0,1,", ",1,0,1,nan", ":2: time_us is 'nan"),
    ],
)
def test_one_broken_rule_is_found_at_its_place(ending: str, old: str, new: str, wrong: str) -> None:
    files = TARGET.export(kernel(), SMALL)
    found = TARGET.check(broken(files, ending, old, new))
    assert any(wrong in line for line in found), found


def test_files_that_are_not_where_they_belong() -> None:
    files = TARGET.export(kernel(), SMALL)
    assert "meta.yaml: is missing" in TARGET.check(files[1:])
    assert "attention.csv: is missing" in TARGET.check(files[:3])
    moved = (*files[:3], ExportedFile("attention.csv", files[3].data))
    assert any("the simulator reads perf/" in line for line in TARGET.check(moved))
