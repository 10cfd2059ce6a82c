"""Vectors of names: the encoder in bfloat16 and in 8-bit integers, against float32.

settings   MiniLM with mean pooling, one thread; HPO's names, and as queries names of them with one
           word left out
ours       bfloat16 (`--precision bf16` of kepl link, embed and evaluate)
reference  float32, the default
equal      the same nearest name for 99 % of the queries;  same: their share
int8       torch's dynamic quantization, weights by output channel: `int8_ratio` and `int8_same`. No
           command offers it: it is about as fast as bfloat16 and changes the nearest name of some 6
           % of the queries
ratio      of names a second, in CPU seconds; below 1 on a processor without bfloat16 instructions
           (`bf16_instructions`)
"""

from __future__ import annotations

import copy
import random
import time
import warnings
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from benchmarks.perf.speed import one_thread, summarize
from experiments.names import encoder
from inference.encoders import Embedder, embedder
from inference.options import LinkerOptions
from kg.build.sources import hpo

SAME = 0.99  #: least share of queries with the same nearest name


def bf16_instructions() -> bool:
    """Whether this processor multiplies bfloat16 matrices itself, as /proc/cpuinfo says."""
    info = Path("/proc/cpuinfo")
    return info.is_file() and any(
        flag in info.read_text() for flag in ("avx512_bf16", "amx_bf16", " bf16")
    )


def shorten_names(names: list[str]) -> list[str]:
    """Each name of three words or more without one of its words, chosen at random."""
    chance, shortened = random.Random(0), []
    for name in names:
        words = name.split()
        if len(words) > 2:
            del words[chance.randrange(len(words))]
            shortened.append(" ".join(words))
    return shortened


def time_embedding(
    encoder_used: Embedder, names: list[str], queries: list[str]
) -> tuple[float, Tensor]:
    """(CPU seconds for the names, (n,) the nearest name of each query)."""
    encoder_used(names[:64])  # what is set up once is not timed
    started = time.process_time()
    vectors = encoder_used(names)
    seconds = time.process_time() - started
    return seconds, (encoder_used(queries) @ vectors.T).argmax(1)


def measure_setting(encoder_used: Embedder, names: list[str], queries: list[str]) -> dict[str, Any]:
    """The figures of one setting; `encoder_used` computes in float32."""
    plain = encoder_used.encoder
    slow, expected = time_embedding(encoder_used, names, queries)
    encoder_used.bf16 = True
    fast, nearest = time_embedding(encoder_used, names, queries)
    encoder_used.bf16 = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.ao moves to another package
        from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic

        encoder_used.encoder = quantize_dynamic(
            copy.deepcopy(plain), {nn.Linear: per_channel_dynamic_qconfig}
        )
        small, other = time_embedding(encoder_used, names, queries)
    encoder_used.encoder = plain
    same = (nearest == expected).float().mean().item()
    return {
        "setting": f"{len(names):,} names",
        "queries": len(queries),
        "bf16_instructions": bf16_instructions(),
        "ours": round(len(names) / fast, 1),
        "reference": round(len(names) / slow, 1),
        "ratio": round(slow / fast, 2),
        "same": round(same, 4),
        "equal": same >= SAME,
        "int8_ratio": round(slow / small, 2),
        "int8_same": round((other == expected).float().mean().item(), 4),
    }


def measure_speed(names: int = 6000) -> dict[str, Any]:
    """Compare on one thread. Returns the keys that benchmarks.perf.speed asks for.

    Args:
        names: Names that are encoded, of HPO's 58,495 different ones.
    """
    with one_thread():
        encoder_used = embedder(encoder("minilm"), LinkerOptions(pooling="mean"))
        some = sorted(set(hpo.read().names["name"].to_pylist()))
        random.Random(0).shuffle(some)
        some = some[:names]
        settings = [measure_setting(encoder_used, some, shorten_names(some))]
    return summarize("names_embedding", settings, "names/s")
