"""The page that sets the counts of the model documents beside what is published of them.

``python -m kernelfit.documents.model_table calib/models > docs/models.md`` writes it anew.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kernelfit.documents.models import kv_bytes, load_model, load_published, model_entries
from kernelfit.documents.modelspec import Published, PublishedBytes
from kernelfit.kernel.cache import sequence_state_bytes
from kernelfit.kernel.model import Model, active_parameter_count, parameter_count
from kernelfit.kernel.resolved import Resolution
from kernelfit.kernel.weights import weight_bytes_per_rank

_ALONE = Resolution(
    tensor_parallel_width=1,
    data_parallel_width=1,
    expert_parallel_width=1,
    all_reduce_backend="none",
    async_scheduling=False,
    cascade_attention=False,
    sequence_parallel_moe=False,
    graph_mode="NONE",
    capture_sizes=(),
    block_size=16,
    cache_dtype="bf16",
    max_num_seqs=1,
    max_num_batched_tokens=1,
    gpu_memory_utilization=1.0,
    overrides=(),
)
_HEAD = """\
# Models: counted and published

Written by `python -m kernelfit.documents.model_table calib/models`; a test holds it to the
documents. Each count follows from the facts of a document in `calib/models`. Beside it stands
what the publishers state, where they do; reading a document whose facts do not add up to its
published figures is refused.

* **parameters**: embedding, layers, norms, biases and head; no draft layers, no vision tower.
* **per token**: with only the experts that a token is routed to. Publishers count the input
  embedding or not; the count takes the same side (*e*: with it).
* **KV**: bytes of one token in the cache, unsharded, in 16 bit. Sliding layers keep it only
  within their window.
* **state**: bytes of one sequence whatever its length, in whole pages, on one rank.
* **weights**: bytes as stored, with quantisation scales.

"""
_COLUMNS = (
    "model",
    "layers",
    "parameters",
    "published",
    "per token",
    "published",
    "KV",
    "published",
    "state",
    "weights",
)


def _billions(count: float) -> str:
    return f"{count / 1e9:.3f} B"


def _stated(figure: Published | PublishedBytes | None) -> str:
    if figure is None:
        return "-"
    whole = isinstance(figure, PublishedBytes) or figure.value % 1e6
    return f"{figure.value:,.0f}" if whole else f"{figure.value / 1e9:g} B"


def _layers(model: Model) -> str:
    return ", ".join(f"{kind.count} {kind.name}" for kind in model.layers)


def model_table(folder: Path) -> str:
    """Return the page.

    Parameters
    ----------
    folder : pathlib.Path
        The folder of model documents.

    Returns
    -------
    str
        Markdown: a table with one row per document that is not made for this project's own
        traces, and the sources of the published figures.

    Raises
    ------
    InputError
        When a document is not valid.
    """
    rule = "|---" * 2 + "|---:" * (len(_COLUMNS) - 2)
    rows, sources = [f"| {' | '.join(_COLUMNS)} |\n{rule}|\n"], []
    for entry in model_entries(folder):
        name = entry.names[0]
        if name.startswith("kf-"):
            continue
        model, found = load_model(entry.path), load_published(entry.path)
        total, active, size = found
        counted = active_parameter_count(model, active is None or active.embedding)
        side = " *e*" if active is None or active.embedding else ""
        state = sequence_state_bytes(model, _ALONE)
        cells = (
            name,
            _layers(model),
            _billions(parameter_count(model)),
            _stated(total),
            _billions(counted) + side,
            _stated(active),
            f"{kv_bytes(model):,}",
            _stated(size),
            f"{state:,}" if state else "-",
            f"{weight_bytes_per_rank(model, _ALONE) / (1 << 30):.1f} GiB",
        )
        rows.append(f"| {' | '.join(cells)} |\n")
        words = [figure.source for figure in found if figure is not None]
        if words:
            sources.append(f"* **{name}**: {'; '.join(dict.fromkeys(words))}.\n")
    return _HEAD + "".join(rows) + "\nSources of the published figures:\n\n" + "".join(sources)


if __name__ == "__main__":
    sys.stdout.write(model_table(Path(sys.argv[1])))
