"""Vidur's tables hold the kernel's operations, in its columns, and break no loading rule."""

from __future__ import annotations

import csv
import io
import json
import lzma
from dataclasses import replace

import numpy as np
import pytest

from kernelfit.export.base import ExportedFile, Files
from kernelfit.export.probes import kernel_times
from kernelfit.export.refused import NotExpressible
from kernelfit.export.vidur import TARGET
from kernelfit.export.vidur_models import KNOWN, vidur_model
from kernelfit.export.vidur_tables import MLP_OPERATIONS
from kernelfit.kernel import Batch, Model, RequestShape
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.fitted import FittedKernel
from tests.export.samples import OPTIONS
from tests.kernel.builders import CHIP, EAGER, Deployed, dense, fitted, kernels

H100 = replace(CHIP, name="H100-SXM")
LLAMA = dense("llama", 4096, 32, 32, 8, 14336, 128256)
SMALL = replace(OPTIONS, settings={"max_requests": "8", "max_context": "1024", "max_chunk": "128"})


def kernel(tp: int = 2, model: Model = LLAMA, share: float = 0.0) -> FittedKernel:
    pool = replace(EAGER, tp=tp, max_num_batched_tokens=512)
    return Deployed(model, H100, pool).kernel(fitted(share=share))


def table(files: Files, name: str) -> list[dict[str, str]]:
    (file,) = [each for each in files if each.path.endswith(f"/{name}.csv.xz")]
    return list(csv.DictReader(io.StringIO(lzma.decompress(file.content).decode())))


def value(row: dict[str, str], operation: str) -> float:
    return float(row[f"time_stats.{operation}.median"])


def test_a_decode_step_adds_up_as_the_package_adds_it() -> None:
    """Layers times a layer's operations, two all-reduces in each (``ExecutionTime``)."""
    given = kernel()
    files = TARGET.export(given, SMALL)
    assert TARGET.check(files) == ()
    (mlp,) = [row for row in table(files, "mlp") if row["num_tokens"] == "8"]
    (link,) = [row for row in table(files, "all_reduce") if int(row["size"]) == 8 * 4096 * 2]
    (attention,) = [
        row
        for row in table(files, "attention")
        if (row["batch_size"], row["prefill_chunk_size"], row["kv_cache_size"]) == ("8", "0", "512")
    ]
    layer = sum(value(mlp, name) for name in MLP_OPERATIONS)
    layer += value(attention, "attn_decode") + 2 * value(link, "all_reduce")
    (step_s,) = kernel_times(given, [Batch.decode(8, 512)])
    assert 32 * layer == pytest.approx(1e3 * step_s, rel=1e-6)


def test_a_prompt_adds_up_as_well() -> None:
    given = kernel()
    files = TARGET.export(given, SMALL)
    (mlp,) = [row for row in table(files, "mlp") if row["num_tokens"] == "128"]
    (link,) = [row for row in table(files, "all_reduce") if int(row["size"]) == 128 * 8192]
    (attention,) = [
        row
        for row in table(files, "attention")
        if (row["prefill_chunk_size"], row["kv_cache_size"]) == ("128", "256")
    ]
    layer = sum(value(mlp, name) for name in MLP_OPERATIONS)
    layer += value(attention, "attn_prefill") + 2 * value(link, "all_reduce")
    prompt = Batch((RequestShape(128, 256, 384),))
    (step_s,) = kernel_times(given, [prompt])
    assert 32 * layer == pytest.approx(1e3 * step_s, rel=1e-6)


def test_projections_share_the_multiplications() -> None:
    row = table(TARGET.export(kernel(tp=1), SMALL), "mlp")[0]
    up, down = value(row, "mlp_up_proj"), value(row, "mlp_down_proj")
    assert up == pytest.approx(2 * down, rel=1e-6)
    # 32 heads and twice 8 of 128 columns against 32: 1.5 to 1.
    assert value(row, "attn_pre_proj") == pytest.approx(
        1.5 * value(row, "attn_post_proj"), rel=1e-6
    )


def test_layout_is_that_of_the_hub_cache() -> None:
    given = kernel()
    files = TARGET.export(given, SMALL)
    revision = given.digest.removeprefix("sha256:")[:40]
    refs = [file for file in files if file.path.endswith("/refs/main")]
    assert [file.content.decode() for file in refs] == [revision, revision]
    for kind, wanted in (
        ("compute", {"model": "meta-llama/Llama-3-8B", "device_sku": "h100"}),
        ("network", {"sku": "h100_dgx"}),
    ):
        (config,) = [
            file
            for file in files
            if file.path.startswith(f"profiling_data/{kind}/datasets--kernelfit--sample-")
            and file.path.endswith(f"/snapshots/{revision}/config.json")
        ]
        document = json.loads(config.content)
        assert document["kernelfit"]["kernel"] == given.digest
        assert wanted.items() <= document.items()
    assert files == TARGET.export(given, SMALL)


def test_one_rank_has_no_all_reduce_and_still_loads() -> None:
    files = TARGET.export(kernel(tp=1), SMALL)
    assert table(files, "all_reduce") == []
    assert TARGET.check(files) == ()


def test_models_are_matched_by_shape_and_vocabulary() -> None:
    assert len({each.name for each in KNOWN}) == len(KNOWN)
    assert vidur_model(kernel()).name == "meta-llama/Llama-3-8B"
    seventy = dense("seventy", 8192, 80, 64, 8, 28672, 32000)
    assert vidur_model(kernel(model=seventy)).name == "meta-llama/Llama-2-70b-hf"
    other = replace(seventy, vocab=128256)
    assert vidur_model(kernel(model=other)).name == "meta-llama/Llama-3-70B"
    unknown = dense("unknown", 4096, 33, 32, 8, 14336)
    with pytest.raises(NotExpressible, match="knows no model of its shape"):
        vidur_model(kernel(model=unknown))
    assert vidur_model(kernel(model=unknown), "me/mine").layers == 33
    chosen = replace(SMALL, settings={**SMALL.settings, "model": "me/mine"})
    assert TARGET.check(TARGET.export(kernel(model=unknown), chosen)) == ()


def test_refused_with_the_reason() -> None:
    built = kernels()
    for name, field in (("moe", "experts"), ("mla", "attention"), ("alternating", "experts")):
        with pytest.raises(NotExpressible, match=f"vidur cannot express {field}"):
            TARGET.export(built[name], SMALL)
    plain = Deployed(LLAMA, CHIP, EAGER).kernel(fitted())
    with pytest.raises(NotExpressible, match="chip='round-gpu'"):
        TARGET.export(plain, SMALL)
    given = {**SMALL.settings, "device": "a40", "network_device": "a40_pairwise_nvlink"}
    assert TARGET.check(TARGET.export(plain, replace(SMALL, settings=given))) == ()
    with pytest.raises(InvalidArgument, match="max_chunk"):
        TARGET.export(kernel(), replace(SMALL, settings={"max_chunk": "5"}))


def test_what_is_lost_is_said() -> None:
    said = {each.name: each.reason for each in TARGET.missing(kernel(share=0.5), SMALL)}
    assert "worst" in said["overlap between operations"]
    assert "gemm" in said["overlap_share"]
    none = {each.name for each in TARGET.missing(kernel(), SMALL)}
    assert "overlap_share" not in none


def broken(files: Files, ending: str, old: str, new: str) -> Files:
    out = []
    for file in files:
        if file.path.endswith(ending):
            packed = ending.endswith(".xz")
            text = (lzma.decompress(file.content) if packed else file.content).decode()
            assert old in text
            changed = text.replace(old, new, 1).encode()
            out.append(ExportedFile(file.path, lzma.compress(changed) if packed else changed))
        else:
            out.append(file)
    return tuple(out)


@pytest.mark.parametrize(
    ("ending", "old", "new", "wrong"),
    [
        ("mlp.csv.xz", "n_head,", "heads,", ":1: column n_head is missing"),
        ("mlp.csv.xz", "time_stats.add.median", "add", ":1: column time_stats.add.median"),
        ("mlp.csv.xz", "True,8,2", "True,x,2", ":2: num_tokens is 'x'"),
        ("mlp.csv.xz", "True,8,2", "True,8,4", "other than the flag's 2"),
        ("mlp.csv.xz", "True,8,2", "yes,8,2", ":2: use_gated_mlp is True or False"),
        ("mlp.csv.xz", "\n32,8", "\n64,8", "rows of 2 models"),
        ("attention.csv.xz", "block_size", "page", ":1: column block_size is missing"),
        ("attention.csv.xz", "4096,32,8,16,2,1,0,0,,", "4096,32,8,16,2,1,0,0,,-", ":2: time_stats"),
        ("attention.csv.xz", "4096,32,8,16,", "4096,32,8,32,", "other than the flag's 16"),
        ("all_reduce.csv.xz", "\nall_reduce,2,2", "\nall_reduce,2,1", ":2: devices_per_node"),
        ("all_reduce.csv.xz", "\nall_reduce,", "\nbroadcast,", ":2: collective is 'broadcast'"),
        ("config.json", '"h100"', '"h900"', "device_sku is 'h900'"),
        ("-flags.txt", "overhead_ms 0.0", "overhead_ms 0.02", "or it is charged twice"),
        ("refs/main", "0", "x", "40 hexadecimal digits"),
    ],
)
def test_one_broken_rule_is_found_at_its_place(ending: str, old: str, new: str, wrong: str) -> None:
    files = TARGET.export(kernel(), SMALL)
    if ending == "config.json":
        ending = next(f.path for f in files if f.path.endswith(ending) and "compute" in f.path)
    if ending == "refs/main":
        old = files[1].content.decode()[:1]
    found = TARGET.check(broken(files, ending, old, new))
    assert any(wrong in line for line in found), found


def test_a_file_that_is_not_there() -> None:
    files = TARGET.export(kernel(), SMALL)
    less = tuple(file for file in files if not file.path.endswith("mlp.csv.xz"))
    assert "mlp.csv.xz: is missing" in TARGET.check(less)
    times = np.array([float(r["time_stats.add.median"]) for r in table(files, "mlp")])
    assert (times > 0).all()
