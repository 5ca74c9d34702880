from __future__ import annotations

from pathlib import Path

import pytest

from kernelfit.documents.deployments import DeployedPool, load_deployment
from kernelfit.kernel.pool import Pool
from tests.documents.helpers import changed, place_in, problems_of, written

GOOD = """\
kind: Deployment
schema_version: 1
name: two-pools
gpu: H100-SXM
model: Qwen3-32B
engine: vllm
engine_version: "0.32.0"
dtype: bfloat16
pools:
  - name: small
    pool: {tp: 2, cudagraph_capture_sizes: [1, 2, 4]}
  - name: large
    pool: {tp: 4, gpu_memory_utilization: 0.9}
"""


def test_a_deployment_is_its_pools(tmp_path: Path) -> None:
    small, large = load_deployment(written(tmp_path, GOOD))
    pool = Pool(tp=2, cudagraph_capture_sizes=(1, 2, 4))
    assert small == DeployedPool(
        "two-pools", "small", "H100-SXM", "Qwen3-32B", "vllm", "0.32.0", "bf16", pool
    )
    assert (large.name, large.pool) == ("large", Pool(tp=4, gpu_memory_utilization=0.9))


@pytest.mark.parametrize(
    ("old", "new", "at", "words"),
    [
        ("name: large", "name: small", "small\n    pool: {tp: 4", "pool name is repeated"),
        ("tp: 4", "tp: four", "four", "pools.1.pool.tp has the wrong type (got 'four')"),
        ("tp: 4, g", "tp: 4, tp: 8, g", "tp: 8", "key tp is repeated; first given on line 13"),
        ("gpu_memory_utilization", "gpu_memory", "gpu_memory", "unknown key gpu_memory; allowed"),
        ("0.9}", "1.9}", "1.9", "is out of range (got 1.9); allowed at most 1"),
        ("0.9}", '"0.9"}', '"0.9"', "has the wrong type (got '0.9'); allowed a number"),
        ("bfloat16", "bfloat61", "bfloat61", "unknown dtype (got 'bfloat61'); allowed"),
        ('"0.32.0"', "0.32", "0.32", "engine_version has the wrong type"),
        ("model: Qwen3-32B\n", "", "kind", "required key model is missing"),
        (GOOD[GOOD.index("pools:") :], "pools: []\n", "[]", "pools is empty"),
    ],
)
def test_one_change_is_refused_where_it_stands(
    tmp_path: Path, old: str, new: str, at: str, words: str
) -> None:
    text = changed(GOOD, old, new)
    path = written(tmp_path, text)
    hits = [p for p in problems_of(load_deployment, path) if words in p.render()]
    assert len(hits) == 1, [p.render() for p in problems_of(load_deployment, path)]
    assert (hits[0].line, hits[0].column) == place_in(text, at)
