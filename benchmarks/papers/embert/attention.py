"""What two encoders' attention does with entities: two figures, and what they show over many
sentences.

    kepl figures embert [--model embert --base zh --linked-text FOLDER --sentences 500 --out FOLDER
    ...]

    figure2.png, figure2.csv   the weights between an entity and its context when the entity is
                               unchanged, replaced by a synonym, and by a random entity of the same
                               type and length: one sentence drawn; of every sentence how alike the
                               weights are (Spearman, cosine)
    figure3.png, figure3.csv   a layer's weights between the tokens of a sentence with a long
                               entity: one sentence drawn; of every sentence the share of the
                               entity's weights that stays inside it, and the share that its
                               adjective (all pieces but the last) gives to its atomic part (the
                               last)
    summary.json               means with 95 % intervals, and paired differences

Figure 2 compares weights of context tokens alone, without [CLS] and [SEP], which get much and from
every entity the same. Figure 3 counts shares twice: among all tokens, and among those of the text.
Intervals and tests are bootstraps over sentences, which are of different entities.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.fonts import chinese_font
from benchmarks.papers.embert.attention_options import Panels, Sample
from benchmarks.papers.embert.likeness import PARTS, figure2
from benchmarks.papers.embert.measures import DIRECTIONS, layer_of
from benchmarks.papers.embert.readers import (
    Reader,
    reader,
)
from benchmarks.papers.embert.sentences import halves, mentions, pools, swaps
from benchmarks.papers.embert.shares import figure3
from core.files import InputError
from core.json_files import write_json
from inference.options import checked_device
from kg.build.segment import Segmenter
from kg.build.thesaurus import Thesaurus
from kg.graph import KnowledgeGraph

#: layer, of how many. Section 4.5: attention at layer 11 of BERT-base's 12; caption of Figure 3: 10
DEPTH2, DEPTH3 = (11, 12), (10, 12)
FILES = ("figure2.csv", "figure2.png", "figure3.csv", "figure3.png", "summary.json")


def format_summary(summary: Mapping[str, Any]) -> str:
    """The means as a few lines."""
    lines = []
    for name, encoder_values in summary["figure2"]["encoders"].items():
        for part, direction in itertools.product(PARTS, DIRECTIONS):
            for kind, means in encoder_values[part].get(direction, {}).items():
                synonym, random = means["synonym"]["mean"], means["random"]["mean"]
                d = means["synonym - random"]
                lines.append(
                    f"{name}, {part} ({encoder_values[part]['sentences']}), {direction}, {kind}:"
                    f" synonym {synonym:.3f}, random {random:.3f}, difference {d['mean']:+.3f}"
                    f" [{d['low']:+.3f}, {d['high']:+.3f}], p = {d['p']:.4f}"
                )
    for name, encoder_values in summary["figure3"]["encoders"].items():
        for measure, mean in encoder_values.items():
            if isinstance(mean, dict):
                lines.append(
                    f"{name}, {measure}: {mean['mean']:.3f} [{mean['low']:.3f},"
                    f" {mean['high']:.3f}], even {mean['even']:.3f}"
                )
    between = f"{summary['model']} - {summary['base']}"
    apart = summary["figure2"][f"synonym - random, {between}"]
    differences: dict[str, Mapping[str, float]] = {}
    for direction, kinds in apart.items():
        differences |= {f"synonym - random, {direction}, {kind}": d for kind, d in kinds.items()}
    for measure, d in (differences | summary["figure3"][between]).items():
        lines.append(
            f"{between}, {measure}: {d['mean']:+.3f} [{d['low']:+.3f}, {d['high']:+.3f}],"
            f" p = {d['p']:.4f}"
        )
    for figure in ("figure2", "figure3"):
        lines += [f"{figure}: {n:,} {what}" for what, n in summary[figure]["left out"].items()]
    return "\n".join(lines)


def load_readers(model: str, base: str, ckpt: str | None, device: str) -> list[Reader]:
    """The encoder and the one that it is compared with. Raises InputError where both are one."""
    device = checked_device(device)
    chinese_font()  # an error comes before the work
    readers = [reader(model, ckpt, device), reader(base, None, device)]
    if readers[0].name == readers[1].name:
        raise InputError(f"MODEL and BASE both mean {readers[0].name}: give another BASE=")
    return readers


def _check_window(window: int, readers: Sequence[Reader]) -> None:
    """Raise InputError for sentences longer than the encoders hold."""
    room = min(int(encoder.bert.config.max_position_embeddings) for encoder in readers) - 2
    if window > room:
        raise InputError(f"WINDOW={window}: the encoders hold {room} tokens beside [CLS] and [SEP]")


def _check_sentences(
    folder: Path, what: str, sentences: Sequence[Any], left_out: Mapping[str, int]
) -> None:
    """Raise InputError where no sentence is left, with the reasons."""
    if not sentences:
        reasons = "; ".join(f"{n:,} {why}" for why, n in left_out.items()) or "no mention at all"
        raise InputError(f"{folder}: no sentence with a {what} ({reasons})")


def draw(
    readers: Sequence[Reader],
    folders: Mapping[str, Path],
    sample: Sample,
    panels: Panels,
    target: Path,
) -> dict[str, Any]:
    """Draw both figures; returns what summary.json holds. Raises InputError.

    folders: {linked_text, graph, thesaurus, segments: folder}.
    """
    _check_window(sample.window, readers)
    linked = folders["linked_text"]
    layers2 = [panels.layer2 or layer_of(*DEPTH2, encoder.layers) for encoder in readers]
    layers3 = [panels.layer3 or layer_of(*DEPTH3, encoder.layers) for encoder in readers]
    kinds, pool = pools(KnowledgeGraph.load(folders["graph"]))
    names = Thesaurus.load(folders["thesaurus"]).names
    swapped, without2 = swaps(mentions(linked), names, kinds, pool, sample)
    _check_sentences(linked, "synonym", swapped, without2)
    pieces = Segmenter.load(folders["segments"]).pieces
    long, without3 = halves(mentions(linked), pieces, sample)
    _check_sentences(linked, "long entity", long, without3)
    shown2 = figure2(readers, layers2, swapped, target, panels.pick2)
    shown3 = figure3(readers, layers3, long, target, panels.pick3)
    summary = {
        "model": readers[0].name,
        "base": readers[1].name,
        "window": sample.window,
        "least": sample.least,
        "seed": sample.seed,
        "folders": {name: str(place) for name, place in folders.items()},
        "figure2": shown2 | {"left out": dict(without2)},
        "figure3": shown3 | {"left out": dict(without3)},
    }
    write_json(target / "summary.json", summary)
    print(format_summary(summary))
    print(*(target / name for name in ("figure2.png", "figure3.png", "summary.json")), sep="\n")
    return summary
