"""Counts and sizes of public models against what others publish of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelfit.documents.models import find_model, load_model, model_from_config
from kernelfit.kernel.cache import page_tokens, sequence_bytes, token_bytes
from kernelfit.kernel.model import Model, active_parameter_count, parameter_count
from kernelfit.kernel.weights import weight_bytes_per_rank
from tests.kernel.deployed import PLAIN, resolution

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "calib" / "models"
CONFIGS = ROOT.parent / "shared" / "data" / "model_configs"


def model_of(name: str) -> Model:
    """A model of the project's documents."""
    return find_model(name, MODELS)


# Totals: "exact" where the sum over the checkpoint's tensors is published, else to the last
# digit that is printed.
@pytest.mark.parametrize(
    ("name", "published", "digit"),
    [
        # Model pages, "Model size", to the parameter.
        ("Llama-3.1-8B", 8_030_261_248, 0),
        ("Llama-3.1-70B", 70_553_706_496, 0),
        ("Mistral-7B-v0.1", 7_241_732_096, 0),
        ("Mixtral-8x7B", 46_702_792_704, 0),
        # Together AI's catalogue, to the parameter.
        ("Llama-2-70B", 68_976_648_192, 0),
        ("CodeLlama-34B", 33_743_970_304, 0),
        # Model cards of Qwen3: 8.2B, 32.8B and 30.5B; of Qwen2.5: 72.7B.
        ("Qwen3-8B", 8.2e9, 0.1e9),
        ("Qwen3-32B", 32.8e9, 0.1e9),
        ("Qwen3-30B-A3B", 30.5e9, 0.1e9),
        ("Qwen2.5-72B", 72.7e9, 0.1e9),
        # Technical report: 671B, without the draft layer.
        ("DeepSeek-V3", 671e9, 1e9),
        # Model card, table 1: 116.83B.
        ("gpt-oss-120b", 116.83e9, 0.01e9),
        # The model's card: 35B, which counts the vision tower.
        ("Qwen3.5-35B-A3B", 35e9, 1e9),
        # The Llama 3 Herd of Models: 405B; the table prints no more digits.
        ("Llama-3.1-405B", 405e9, 2e9),
    ],
)
def test_parameters(name: str, published: float, digit: float) -> None:
    assert abs(parameter_count(model_of(name)) - published) <= digit / 2


@pytest.mark.parametrize(
    ("name", "non_embedding"),
    # Model cards of Qwen3, "Number of Paramaters (Non-Embedding)": both tables left out.
    [("Qwen3-8B", 6.95e9), ("Qwen3-32B", 31.2e9), ("Qwen3-30B-A3B", 29.9e9)],
)
def test_parameters_without_the_tables(name: str, non_embedding: float) -> None:
    model = model_of(name)
    tables = 2 * model.vocab * model.hidden
    assert parameter_count(model) - tables == pytest.approx(non_embedding, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "published", "embedding", "rel"),
    [
        # Announcement of Mixtral: 12.9B per token, the embedding counted.
        ("Mixtral-8x7B", 12.9e9, True, 0.004),
        # Model card: 3.3B activated; 3.35 by count, so it is cut off and not rounded.
        ("Qwen3-30B-A3B", 3.3e9, True, 0.02),
        # Model card, table 1: 5.13B, "unembedding parameters are counted towards active".
        ("gpt-oss-120b", 5.13e9, False, 0.001),
        # Technical report: 37B.
        ("DeepSeek-V3", 37e9, False, 0.0135),
        # The name's 3B, which leaves out both tables as Qwen's cards do elsewhere.
        ("Qwen3.5-35B-A3B", 3e9, False, 0.02),
    ],
)
def test_active_parameters(name: str, published: float, embedding: bool, rel: float) -> None:
    assert active_parameter_count(model_of(name), embedding) == pytest.approx(published, rel=rel)


# "Insights into DeepSeek-V3" (arXiv 2505.09343), table 1, in 16 bit; the others are worked out
# on public pages: MinIO MemKV on sizing (Llama-3.1-70B), the crate kv-cache-size (Llama-3.1-8B).
@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("DeepSeek-V3", 70_272),
        ("Qwen2.5-72B", 327_680),
        ("Llama-3.1-405B", 516_096),
        ("Llama-3.1-70B", 327_680),
        ("Llama-3.1-8B", 131_072),
    ],
)
def test_bytes_of_a_token_in_the_cache(name: str, published: int) -> None:
    model = model_of(name)
    assert sum(k.count * token_bytes(k.attention, PLAIN) for k in model.layers) == published
    assert sequence_bytes(model, PLAIN, 16_000) == 16_000 * published


def test_a_context_s_cache_as_published() -> None:
    # 131,072 tokens of Llama-3.1-70B take 42.9 GB, as several public guides work out.
    assert sequence_bytes(model_of("Llama-3.1-70B"), PLAIN, 131_072) == pytest.approx(
        42.9e9, abs=0.05e9
    )


@pytest.mark.parametrize(
    ("name", "gib", "within"),
    [
        # gpt-oss model card, table 1: checkpoint of 60.8 GiB.
        ("gpt-oss-120b", 60.8, 0.06),
        # vLLM start-up lines: Llama-3.1-8B, "Loading model weights took 14.9888 GB", which
        # counts buffers of the rotary embedding too.
        ("Llama-3.1-8B", 14.9888, 0.04),
    ],
)
def test_stored_weights(name: str, gib: float, within: float) -> None:
    assert weight_bytes_per_rank(model_of(name), PLAIN) / (1 << 30) == pytest.approx(
        gib, abs=within
    )


def test_deepseek_fits_eight_ranks_as_it_is_served() -> None:
    # FP8 weights of 671B over eight ranks: an eighth of them, and what every rank holds whole.
    model = model_of("DeepSeek-V3")
    eighth = weight_bytes_per_rank(model, PLAIN) / 8
    sharded = weight_bytes_per_rank(model, resolution(8))
    spread = weight_bytes_per_rank(model, resolution(8, ep=8))
    assert eighth < sharded < 1.02 * eighth
    assert spread == pytest.approx(sharded, rel=1e-6)
    # 61 layers of 576 elements; in the packed format 656 bytes a layer, whatever the width.
    for tp in (1, 8):
        packed = resolution(tp, cache_dtype="fp8_ds_mla", block_size=64)
        assert sequence_bytes(model, packed, 64) == 64 * 61 * 656


def test_a_hybrid_s_pages() -> None:
    # 2 heads of 256 in 16 bit are 2,048 bytes a token; a state is 2,146,304 bytes.
    model = model_of("Qwen3.5-35B-A3B")
    assert page_tokens(model, PLAIN) == 1056
    assert model.layers == model_of("Qwen3.6-35B-A3B").layers


def test_a_window_of_gpt_oss() -> None:
    # Full layers keep all of 18 x 1,024 x 2 bytes per token, sliding ones 9 pages of 16.
    per_layer = 2 * 8 * 64 * 2
    model = model_of("gpt-oss-120b")
    assert sequence_bytes(model, PLAIN, 131_072) == 18 * per_layer * (131_072 + 9 * 16)


@pytest.mark.skipif(
    not CONFIGS.is_dir(), reason="no folder of public configs beside the repository"
)
@pytest.mark.parametrize(
    "path", sorted(CONFIGS.glob("*.config.json")), ids=lambda path: path.name.split(".config")[0]
)
def test_configs_and_documents_count_alike(path: Path) -> None:
    config = json.loads(path.read_text(encoding="utf-8"))
    model = model_from_config(config, "m", path.name)
    document = model_of(path.name.removesuffix(".config.json").replace("--", "/"))
    assert parameter_count(model) == parameter_count(document)
    assert weight_bytes_per_rank(model, PLAIN) == weight_bytes_per_rank(document, PLAIN)


def test_every_document_is_read() -> None:
    for path in sorted(MODELS.glob("*.yaml")):
        model = load_model(path)
        assert active_parameter_count(model) <= parameter_count(model)
