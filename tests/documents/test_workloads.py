from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelfit.cli.checking import check_document
from kernelfit.documents.workloads import load_workload, workload_document
from tests.documents.helpers import changed, one_problem, place_in, written

CALIB = Path(__file__).resolve().parents[2] / "calib"
GOOD = """\
{
 "kind": "Workload",
 "schema_version": 1,
 "name": "plan",
 "runs": [
  {
   "name": "first",
   "gpu": "H100-SXM",
   "model": "Llama-3.1-8B",
   "engine_version": "0.32.0",
   "pool": {"tp": 2, "max_model_len": 2048, "cudagraph_capture_sizes": [1, 2]},
   "gpu_minutes": 3.5,
   "episodes": [
    {"repeat": 4, "requests": [{"count": 8, "prompt_tokens": 1024, "output_tokens": 33}]},
    {"one_by_one": true, "requests": [{"count": 3, "prompt_tokens": 500, "output_tokens": 2}]}
   ]
  }
 ]
}
"""


def test_a_workload_reads_and_is_written_again(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD, "workload.json")
    found = load_workload(path)
    (run,) = found.runs
    assert (run.pool.tp, run.pool.cudagraph_capture_sizes) == (2, (1, 2))
    assert [episode.repeat for episode in run.episodes] == [4, 1]
    again = written(tmp_path, json.dumps(workload_document(found)), "again.json")
    assert load_workload(again) == found
    assert check_document(path, CALIB) == "Workload"


@pytest.mark.parametrize(
    ("old", "new", "at", "words"),
    [
        ('"count": 8', '"count": 0', "0, ", "is out of range (got 0); allowed at least 1"),
        ("1024", "2016", "2016", "longer than max_model_len (got 2049); allowed at most 2048"),
        ('"one_by_one"', '"one_by_oen"', '"one_by_oen"', "did you mean one_by_one?"),
        (
            '"count": 3',
            '"after_steps": 2, "count": 3',
            "2, ",
            "after_steps has no meaning where requests come one by one",
        ),
        ('"Workload"', '"Workloads"', '"Workloads"', "kind is not in the vocabulary"),
        ('"gpu_minutes": 3.5', '"gpu_minutes": -1', "-1", "is out of range (got -1)"),
    ],
)
def test_one_change_is_refused_where_it_stands(
    tmp_path: Path, old: str, new: str, at: str, words: str
) -> None:
    text = changed(GOOD, old, new)
    problem = one_problem(load_workload, written(tmp_path, text, "w.json"))
    assert words in problem.render()
    if at != "2, ":
        assert (problem.line, problem.column) == place_in(text, at)


def test_the_longest_request_that_fits_is_accepted(tmp_path: Path) -> None:
    path = written(tmp_path, changed(GOOD, "1024", "2015"), "w.json")
    assert load_workload(path).runs[0].episodes[0].requests[0].prompt_tokens == 2015


def test_two_runs_do_not_share_a_name(tmp_path: Path) -> None:
    document = json.loads(GOOD)
    document["runs"] *= 2
    problem = one_problem(load_workload, written(tmp_path, json.dumps(document), "w.json"))
    assert "run name is repeated (got first)" in problem.render()
