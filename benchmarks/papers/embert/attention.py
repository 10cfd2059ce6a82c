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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import BertModel

from benchmarks.fonts import chinese_font, label
from benchmarks.papers.embert.attention_options import Panels, Sample
from benchmarks.papers.embert.maps import Text, attention_maps, join_parts
from benchmarks.papers.embert.measures import DIRECTIONS, LIKENESS, even, layer_of, share
from benchmarks.papers.embert.sentences import Halves, Swap, halves, mentions, pools, swaps
from core.files import InputError, atomic_write
from core.json_files import write_json
from core.spreadsheets import CsvWriter
from datamodules.tokenizers import load_tokenizer
from experiments.names import encoder
from inference.options import checked_device
from kg.build.segment import Segmenter
from kg.build.thesaurus import Thesaurus
from kg.graph import KnowledgeGraph
from models.encoders import load_bert
from models.metrics import bootstrap_interval, compare_systems

Values = Sequence[float] | np.ndarray
NAMES = ("original", "synonym", "random")
#: For which sentences figure2 has means: a synonym that is longer or shorter than the name moves
#: what follows it to
#: other positions, which the random name never does; one that shares characters may owe its
#: likeness to them.
PARTS: dict[str, Callable[[Swap], bool]] = {
    "all": lambda s: True,
    "synonyms as long as the name": lambda s: len(s.synonym) == len(s.original),
    "synonyms without a character of the name": lambda s: not s.shared,
    "as long, and no character in common": lambda s: (
        len(s.synonym) == len(s.original) and not s.shared
    ),
}
#: layer, of how many. Section 4.5: attention at layer 11 of BERT-base's 12; caption of Figure 3: 10
DEPTH2, DEPTH3 = (11, 12), (10, 12)
FILES = ("figure2.csv", "figure2.png", "figure3.csv", "figure3.png", "summary.json")
SHOWN2, SHOWN3 = 20, 30  # tokens of a sentence in a picture; the paper shows 20 in Figure 2


class Reader(NamedTuple):
    """An encoder and how it is called in figures and tables."""

    name: str
    bert: BertModel
    tokenizer: Any

    @property
    def layers(self) -> int:
        return int(self.bert.config.num_hidden_layers)


def reader(name: str, checkpoint: str | None, device: str) -> Reader:
    """The encoder that `name` means, with the attention that returns its weights. Raises InputError
    for one that is no BERT."""
    chosen = encoder(name, checkpoint)
    bert = load_bert(chosen.folder, attention="eager")
    bert.to(torch.device(device))  # type: ignore[arg-type]  # the annotation of the method that it wraps
    return Reader(chosen.name, bert, load_tokenizer(chosen.folder))


def mean_of(values: Values) -> dict[str, float]:
    """Mean, 95 % bootstrap interval over sentences."""
    tallies = np.stack([np.asarray(values), np.ones(len(values))], axis=1)
    low, high = bootstrap_interval(tallies)
    return {"mean": float(np.mean(values)), "low": low, "high": high}


def difference(first: Values, second: Values) -> dict[str, float]:
    """second - first over the same sentences: mean, 95 % interval, p of the paired bootstrap."""
    one, two = (np.stack([np.asarray(v), np.ones(len(v))], axis=1) for v in (first, second))
    c = compare_systems({0: one}, {0: two})
    return {"mean": c.difference, "low": c.low, "high": c.high, "p": c.p_bootstrap}


# Figure 2


def weights(
    given: Reader, sentences: Sequence[Swap], layer: int
) -> list[dict[str, dict[str, np.ndarray]]]:
    """Of each sentence {direction: {name: (C,) weights of the context's tokens}}; C is the same for
    all three names."""
    texts = [
        join_parts(given.tokenizer, (s.left, getattr(s, name), s.right))
        for s in sentences
        for name in NAMES
    ]
    maps = attention_maps(given.bert, texts, layer, int(given.tokenizer.pad_token_id))
    result: list[dict[str, dict[str, np.ndarray]]] = []
    for _ in sentences:
        found: dict[str, dict[str, np.ndarray]] = {direction: {} for direction in DIRECTIONS}
        for name in NAMES:
            left, entity, right = texts[len(result) * len(NAMES) + NAMES.index(name)].parts
            attention = next(maps)
            for direction, between in DIRECTIONS.items():
                found[direction][name] = between(attention, entity, np.concatenate([left, right]))
        result.append(found)
    return result


def likeness(
    found: Sequence[Mapping[str, Mapping[str, np.ndarray]]],
) -> dict[str, dict[str, dict[str, list[float]]]]:
    """{direction: {spearman or cosine: {synonym or random: of each sentence, how alike its weights
    are to the original's}}}."""
    return {
        direction: {
            kind: {
                name: [alike(one[direction]["original"], one[direction][name]) for one in found]
                for name in NAMES[1:]
            }
            for kind, alike in LIKENESS.items()
        }
        for direction in DIRECTIONS
    }


def _summarize_likeness(
    alike: Mapping[str, Mapping[str, Mapping[str, list[float]]]], rows: np.ndarray
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for direction, kinds in alike.items():
        result[direction] = {}
        for kind, values in kinds.items():
            synonym, random = (np.asarray(values[name])[rows] for name in NAMES[1:])
            result[direction][kind] = {
                "synonym": mean_of(synonym),
                "random": mean_of(random),
                "synonym - random": difference(random, synonym),
            }
    return result


def figure2(
    readers: Sequence[Reader],
    layers: Sequence[int],
    sentences: Sequence[Swap],
    out: Path,
    pick: int | None,
) -> dict[str, Any]:
    """Draw and write Figure 2 of `sentences`; returns what summary.json says of it."""
    found = [weights(one, sentences, layer) for one, layer in zip(readers, layers, strict=True)]
    alike = [likeness(one) for one in found]
    parts = {
        name: np.array([i for i, s in enumerate(sentences) if fits(s)], int)
        for name, fits in PARTS.items()
    }
    result: dict[str, Any] = {"sentences": len(sentences), "encoders": {}}
    for one, own, layer in zip(readers, alike, layers, strict=True):
        told: dict[str, Any] = {"layer": layer, "layers": one.layers}
        for name, rows in parts.items():
            told[name] = {"sentences": len(rows)} | (
                _summarize_likeness(own, rows) if len(rows) else {}
            )
        result["encoders"][one.name] = told
    gains = [
        {
            d: {k: np.subtract(v["synonym"], v["random"]) for k, v in kinds.items()}
            for d, kinds in own.items()
        }
        for own in alike
    ]
    if len(readers) > 1:
        result[f"synonym - random, {readers[0].name} - {readers[1].name}"] = {
            d: {k: difference(gains[1][d][k], gains[0][d][k]) for k in LIKENESS} for d in DIRECTIONS
        }
    write_likeness(out / "figure2.csv", readers, sentences, alike)
    gain = gains[0]["entity to context"]["spearman"]
    row = _row(pick, "PICK2", np.asarray(gain))
    result["drawn row"] = row
    draw_lines(out / "figure2.png", readers, layers, sentences[row], [one[row] for one in found])
    return result


def write_likeness(
    file: Path, readers: Sequence[Reader], sentences: Sequence[Swap], alike: Sequence[Any]
) -> None:
    """A row for each sentence, encoder and direction of Figure 2."""
    columns = [f"{kind} {name}" for kind in LIKENESS for name in NAMES[1:]]
    about = ["row", "document", "entity", *NAMES, "shared characters", "encoder", "direction"]
    with atomic_write(file) as handle:
        writer = CsvWriter(handle)
        writer.writerow([*about, *columns])
        for i, s in enumerate(sentences):
            names = [getattr(s, name) for name in NAMES]
            for one, own in zip(readers, alike, strict=True):
                for direction in DIRECTIONS:
                    values = [
                        f"{own[direction][k][name][i]:.6f}" for k in LIKENESS for name in NAMES[1:]
                    ]
                    writer.writerow(
                        [i, s.document, s.entity, *names, s.shared, one.name, direction, *values]
                    )


def _row(pick: int | None, name: str, values: np.ndarray) -> int:
    """`pick`, or the row of the (lower) median, so that what is drawn is neither the best nor the
    worst."""
    if pick is None:
        return int(np.argsort(values, kind="stable")[(len(values) - 1) // 2])
    if not 0 <= pick < len(values):
        raise InputError(f"{name}={pick}: expected a row from 0 to {len(values) - 1}")
    return pick


def near(left: int, right: int, most: int) -> tuple[int, int]:
    """How many of `left` and `right` tokens beside an entity are shown, `most` in all, the nearest
    ones."""
    keep = min(left, max(most // 2, most - right))
    return keep, min(right, most - keep)


def draw_lines(
    file: Path,
    readers: Sequence[Reader],
    layers: Sequence[int],
    sentence: Swap,
    found: Sequence[Mapping[str, Mapping[str, np.ndarray]]],
) -> None:
    """A panel for each direction and encoder: the weight of each context token, a line for each of
    the three names."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

    path = chinese_font()
    font = FontProperties(fname=str(path))
    figure = Figure(figsize=(6.5 * len(readers), 7), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(DIRECTIONS), len(readers), squeeze=False)
    for column, (one, layer) in enumerate(zip(readers, layers, strict=True)):
        left, _, right = join_parts(
            one.tokenizer, (sentence.left, sentence.original, sentence.right)
        ).parts
        tokens = _tokens(
            one, join_parts(one.tokenizer, (sentence.left, sentence.original, sentence.right))
        )
        before, after = near(len(left), len(right), SHOWN2)
        first = len(left) - before
        shown = np.concatenate([left[first:], right[:after]]).astype(int)
        # a gap where the entity is
        places = [*range(before), *range(before + 2, before + 2 + after)]
        for line, direction in enumerate(DIRECTIONS):
            axis = grid[line][column]
            for name in NAMES:
                values = found[column][direction][name][first : first + len(shown)]
                axis.plot(
                    places,
                    values,
                    marker="o",
                    markersize=3,
                    label=f"{name}: {label(getattr(sentence, name), path)}",
                )
            names = [label(tokens[i], path) for i in shown]
            axis.set_xticks([*places, before + 0.5], [*names, "[ENT]"], fontproperties=font)
            axis.set(
                title=f"{one.name}, layer {layer} of {one.layers}: {direction}",
                ylabel="weights, all heads added",
            )
            axis.legend(prop=font)
    with atomic_write(file, "wb") as handle:
        figure.savefig(handle, format="png", dpi=110)


def _tokens(given: Reader, text: Text) -> list[str]:
    return list(given.tokenizer.convert_ids_to_tokens(text.ids))


# Figure 3

#: of what share the parts of a long entity's tokens are: (queries, keys, the query itself counts)
SHARES = {
    "inside": ("entity", "entity", True),
    "other tokens inside": ("entity", "entity", False),
    "adjective to atomic": ("adjective", "atomic", True),
}
AMONG = ("all tokens", "the text's tokens")


def inner(text: Text, attention: np.ndarray) -> dict[str, float]:
    """Shares of a long entity's attention, each beside that of even attention; `text` is left,
    adjective, atomic, right."""
    _, adjective, atomic, _ = text.parts
    parts = {
        "entity": np.concatenate([adjective, atomic]),
        "adjective": adjective,
        "atomic": atomic,
    }
    result = {}
    for among, tokens in zip(AMONG, (text.whole, text.inside), strict=True):
        for name, (queries, keys, itself) in SHARES.items():
            result[f"{name}, of {among}"] = share(
                attention, parts[queries], parts[keys], tokens, itself
            )
            result[f"{name}, of {among}, even"] = even(parts[queries], parts[keys], tokens, itself)
    return result


def figure3(
    readers: Sequence[Reader],
    layers: Sequence[int],
    sentences: Sequence[Halves],
    out: Path,
    pick: int | None,
) -> dict[str, Any]:
    """Draw and write Figure 3 of `sentences`; returns what summary.json says of it."""
    cut = [(s.left, s.adjective, s.atomic, s.right) for s in sentences]
    texts = [[join_parts(one.tokenizer, parts) for parts in cut] for one in readers]
    whole = [
        i for i in range(len(sentences)) if all(len(p) for own in texts for p in own[i].parts[1:3])
    ]
    if not whole:
        raise InputError("no sentence whose long entity has tokens in both of its parts")
    shares = []
    maps = []
    for one, own, layer in zip(readers, texts, layers, strict=True):
        kept = [own[i] for i in whole]
        found = list(attention_maps(one.bert, kept, layer, int(one.tokenizer.pad_token_id)))
        shares.append([inner(text, attention) for text, attention in zip(kept, found, strict=True)])
        maps.append(found)
    names = list(shares[0][0])
    result: dict[str, Any] = {"sentences": len(whole), "encoders": {}}
    for one, own_shares, layer in zip(readers, shares, layers, strict=True):
        told: dict[str, Any] = {"layer": layer, "layers": one.layers}
        for name in names:
            if not name.endswith(", even"):
                values, flat = ([s[key] for s in own_shares] for key in (name, f"{name}, even"))
                told[name] = mean_of(values) | {
                    "even": float(np.mean(flat)),
                    "- even": difference(flat, values),
                }
        result["encoders"][one.name] = told
    if len(readers) > 1:
        result[f"{readers[0].name} - {readers[1].name}"] = {
            name: difference([s[name] for s in shares[1]], [s[name] for s in shares[0]])
            for name in names
            if not name.endswith(", even")
        }
    about = ["row", "document", "entity", "adjective", "atomic", "encoder", "tokens"]
    with atomic_write(out / "figure3.csv") as handle:
        writer = CsvWriter(handle)
        writer.writerow([*about, *names])
        for row, i in enumerate(whole):
            s = sentences[i]
            told_of = [row, s.document, s.entity, s.adjective, s.atomic]
            for one, own, own_shares in zip(readers, texts, shares, strict=True):
                cells = [f"{own_shares[row][name]:.6f}" for name in names]
                writer.writerow([*told_of, one.name, len(own[i].ids), *cells])
    name = f"inside, of {AMONG[0]}"
    gain = np.array([s[name] for s in shares[0]]) - (
        np.array([s[name] for s in shares[1]]) if len(readers) > 1 else 0
    )
    row = _row(pick, "PICK3", gain)
    result["drawn row"] = row
    drawn = [(own[whole[row]], found[row]) for own, found in zip(texts, maps, strict=True)]
    draw_maps(out / "figure3.png", readers, layers, drawn)
    return result


def draw_maps(
    file: Path,
    readers: Sequence[Reader],
    layers: Sequence[int],
    drawn: Sequence[tuple[Text, np.ndarray]],
) -> None:
    """The weights between the text's tokens as a heat map for each encoder, rows attending to
    columns, one colour scale."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties
    from matplotlib.patches import Rectangle

    path = chinese_font()
    font = FontProperties(fname=str(path))
    figure = Figure(figsize=(7.5 * len(readers), 7.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(readers), squeeze=False)[0]
    pictures = []
    for one, (text, attention) in zip(readers, drawn, strict=True):
        left, adjective, atomic, right = text.parts
        before, after = near(len(left), len(right), max(0, SHOWN3 - len(adjective) - len(atomic)))
        shown = np.concatenate(
            [left[len(left) - before :], adjective, atomic, right[:after]]
        ).astype(int)
        names = _tokens(one, text)
        pictures.append(
            (
                attention[np.ix_(shown, shown)],
                [label(names[i], path) for i in shown],
                before,
                len(adjective),
                len(atomic),
            )
        )
    highest = max(float(picture.max()) for picture, *_ in pictures)
    for axis, one, layer, (picture, names, before, adjective_size, atomic_size) in zip(
        axes, readers, layers, pictures, strict=True
    ):
        image = axis.imshow(picture, cmap="Blues", vmin=0, vmax=highest)
        axis.set_xticks(range(len(names)), names, fontproperties=font)
        axis.set_yticks(range(len(names)), names, fontproperties=font)
        axis.set_title(f"{one.name}, layer {layer} of {one.layers}")
        for size, style in ((adjective_size + atomic_size, "--"), (adjective_size, ":")):
            axis.add_patch(
                Rectangle(
                    (before - 0.5, before - 0.5),
                    size,
                    size,
                    fill=False,
                    color="tab:blue",
                    linestyle=style,
                )
            )
    figure.colorbar(image, ax=list(axes), shrink=0.7, label="weights, all heads added")
    with atomic_write(file, "wb") as handle:
        figure.savefig(handle, format="png", dpi=110)


def format_summary(summary: Mapping[str, Any]) -> str:
    """The means as a few lines."""
    lines = []
    for name, own in summary["figure2"]["encoders"].items():
        for part, direction in itertools.product(PARTS, DIRECTIONS):
            for kind, told in own[part].get(direction, {}).items():
                synonym, random, d = (
                    told["synonym"]["mean"],
                    told["random"]["mean"],
                    told["synonym - random"],
                )
                lines.append(
                    f"{name}, {part} ({own[part]['sentences']}), {direction}, {kind}: synonym"
                    f" {synonym:.3f}, random {random:.3f}, difference {d['mean']:+.3f}"
                    f" [{d['low']:+.3f}, {d['high']:+.3f}], p = {d['p']:.4f}"
                )
    for name, own in summary["figure3"]["encoders"].items():
        for measure, told in own.items():
            if isinstance(told, dict):
                lines.append(
                    f"{name}, {measure}: {told['mean']:.3f} [{told['low']:.3f},"
                    f" {told['high']:.3f}], even {told['even']:.3f}"
                )
    between = f"{summary['model']} - {summary['base']}"
    apart = summary["figure2"][f"synonym - random, {between}"]
    pairs = [
        (f"synonym - random, {d}, {k}", told)
        for d, kinds in apart.items()
        for k, told in kinds.items()
    ]
    for measure, told in (*pairs, *summary["figure3"][between].items()):
        lines.append(
            f"{between}, {measure}: {told['mean']:+.3f} [{told['low']:+.3f}, {told['high']:+.3f}],"
            f" p = {told['p']:.4f}"
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
    room = min(int(one.bert.config.max_position_embeddings) for one in readers) - 2
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
    layers2 = [panels.layer2 or layer_of(*DEPTH2, one.layers) for one in readers]
    layers3 = [panels.layer3 or layer_of(*DEPTH3, one.layers) for one in readers]
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
