"""Vidur's own step times from exported tables, and a short simulation with them.

    VIDUR_PYTHON -P benchmarks/exports/vidur_side.py < asked.json

Run by a Python that has ``vidur``, in the export's folder; it imports nothing of this
project, and ``-P`` keeps the file beside it from standing in for the package.
Standard input holds ``{flags: [...], steps: [[new tokens per request], [context per request]],
requests}``; the last line of standard output is ``{version, train_s, steps, simulated}``:
seconds of each step, and of a simulation the number of batches, its end and each batch's
tokens, context and seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.metadata import version
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

# Smaller forests than the package's own, which take many minutes; the rows are the same.
PREFIX = "--random_forrest_execution_time_predictor_config_"
FOREST = [
    *(f"{PREFIX}num_estimators", "50"),
    *(f"{PREFIX}max_depth", "32"),
    *(f"{PREFIX}min_samples_split", "2"),
    *(f"{PREFIX}k_fold_cv_splits", "2"),
    *("--replica_scheduler_config_type", "sarathi"),
    *("--sarathi_scheduler_config_chunk_size", "512"),
    *("--length_generator_config_type", "fixed"),
    *("--fixed_request_length_generator_config_prefill_tokens", "512"),
    *("--fixed_request_length_generator_config_decode_tokens", "64"),
    *("--fixed_request_length_generator_config_max_tokens", "1024"),
    *("--synthetic_request_generator_config_max_tokens", "1024"),
    *("--interval_generator_config_type", "poisson"),
    *("--poisson_request_interval_generator_config_qps", "8"),
]


class _Done:
    """Stands in for a request whose prompt is through; only that is asked of it."""

    is_prefill_complete = True


def _price(predictor: Any, new: list[int], context: list[int]) -> float:
    from vidur.entities import Batch
    from vidur.types import ReplicaId

    batch = Batch(ReplicaId(0), [_Done()] * len(new), new, context)
    return float(predictor.get_execution_time(batch, 0).total_time)


def main() -> None:
    """Train, price the steps, simulate."""
    asked = json.load(sys.stdin)
    sys.argv = ["vidur", *asked["flags"], *FOREST]
    sys.argv += ["--synthetic_request_generator_config_num_requests", str(asked["requests"])]
    from vidur.config import SimulationConfig
    from vidur.execution_time_predictor import ExecutionTimePredictorRegistry
    from vidur.simulator import Simulator
    from vidur.utils.random import set_seeds

    config = SimulationConfig.create_from_cli_args()
    set_seeds(config.seed)
    chosen = config.execution_time_predictor_config
    start = time.perf_counter()
    predictor = ExecutionTimePredictorRegistry.get(
        chosen.get_type(),
        predictor_config=chosen,
        replica_config=config.cluster_config.replica_config,
        cache_config=config.cluster_config.cache_config,
    )
    train_s = time.perf_counter() - start
    steps = [_price(predictor, new, context) for new, context in asked["steps"]]
    seen: list[list[Any]] = []
    kind = type(predictor)
    price = kind.get_execution_time

    def noted(self: Any, batch: Any, stage: int) -> Any:
        out = price(self, batch, stage)
        if hasattr(batch, "num_kv_tokens"):
            seen.append([list(batch.num_q_tokens), list(batch.num_kv_tokens), out.total_time])
        return out

    kind.get_execution_time = noted
    simulator = Simulator(config)
    # Drawing its plots takes minutes and is not asked about.
    simulator._write_output = lambda: None  # noqa: SLF001
    simulator.run()
    answer = {
        "version": version("vidur"),
        "train_s": train_s,
        "steps": steps,
        "simulated": {"end_s": simulator._time, "batches": seen},  # noqa: SLF001
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
