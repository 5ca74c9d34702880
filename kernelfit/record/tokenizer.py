"""Train a small real tokeniser on text that the machine has; nothing is downloaded.

Run with the Python of the engine's environment, whose ``tokenizers`` library does the work::

    python -m kernelfit.record.tokenizer --out models/tokenizer --size 8192
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from kernelfit.record.load import library_text

SPECIAL = ("<unk>", "<s>", "</s>")
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def train(folder: Path, size: int) -> None:
    """Train a byte-level BPE tokeniser and write it in the form that engines load.

    Parameters
    ----------
    folder : pathlib.Path
        Where it goes; made when missing.
    size : int
        Size of its vocabulary [tokens].
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE(unk_token=SPECIAL[0]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(library_text().splitlines(keepends=True), trainer)
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": SPECIAL[0],
        "bos_token": SPECIAL[1],
        "eos_token": SPECIAL[2],
        "model_max_length": 1_000_000,
        "chat_template": TEMPLATE,
    }
    text = json.dumps(config, indent=1) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Train a tokeniser and return the exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after the program's name; those of the process when None.

    Returns
    -------
    int
        0.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", required=True, help="folder of the tokeniser")
    parser.add_argument("--size", type=int, default=8192, help="size of the vocabulary")
    options = parser.parse_args(arguments)
    train(Path(options.out), options.size)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
