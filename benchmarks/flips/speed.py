"""How long a thousand pools times loads take, in time of one core."""

from __future__ import annotations

import time
from dataclasses import replace

from kernelfit.documents.questions import Question
from kernelfit.flips import find_flips
from kernelfit.flips.given import Recorded
from kernelfit.flips.pools import Wanted, kernels_for
from tests.flips.worlds import MODELS, fitted, make_world
from tests.reference.fleet import GRAPHS


def run() -> list[str]:
    """Time candidates and conclusions, decoding alone and with prompts."""
    world = make_world(3)
    _, calibration = fitted(world, draws=100)
    wanted = [
        Wanted(
            f"{model.name} tp{tp} {seqs} {tokens}",
            model,
            replace(GRAPHS, tp=tp, max_num_seqs=seqs, max_num_batched_tokens=tokens),
            "0.32.0",
        )
        for model in MODELS
        for tp in (1, 2, 4)
        for seqs in (64, 128, 256)
        for tokens in (2048, 8192)
    ][:50]
    began = time.process_time()
    made, refused = kernels_for(calibration, wanted)
    kernels = [kernel for _, kernel in made]
    names = [str(name) for name, _ in made]
    freezing = time.process_time() - began
    out = [
        f"  {len(kernels)} candidate pools made in {freezing:.2f} s, {len(refused)} refused; "
        f"{len(calibration.draws)} draws, overlap share {calibration.overlap_share:.2f}"
    ]
    contexts = [256 * (1 + i) for i in range(20)]
    plain = [Question(c, 0.02, (1, 8, 32)) for c in contexts]
    prompts = [
        Question(
            c + 127,
            0.03,
            (8,),
            prompt_tokens=c,
            output_tokens=256,
            first_token_target_s=1.0,
            rates_per_s=(2.0,),
        )
        for c in contexts
    ]
    for word, questions in (("decoding alone", plain), ("with prompts", prompts)):
        began, clock = time.process_time(), time.perf_counter()
        flags = find_flips(
            kernels,
            questions,
            noise_spread=0.02,
            inflation=2.0,
            names=names,
            recorded={calibration.digest: Recorded.of(calibration)},
        )
        took, wall = time.process_time() - began, time.perf_counter() - clock
        out.append(
            f"  {len(kernels) * len(questions):,} pools times loads, {word}: {len(flags):,} "
            f"conclusions in {took:.2f} s of one core, candidates included {took + freezing:.2f} s "
            f"(bar 10 s; {wall:.2f} s by the clock)"
        )
    return out
