"""Figure 3: the share of a long entity's attention that stays inside it, and that its adjective
gives to its atomic part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fonts import chinese_font, label
from benchmarks.papers.embert.maps import Text
from benchmarks.papers.embert.measures import even, share
from benchmarks.papers.embert.readers import (
    Reader,
    choose_row,
    difference,
    mean_of,
    near,
)
from benchmarks.papers.embert.sentences import Halves
from core.files import InputError, atomic_write
from core.spreadsheets import CsvWriter

SHOWN3 = 30  # tokens of a sentence in the picture


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
    cut = [
        [encoder.join((s.left, s.adjective, s.atomic, s.right)) for encoder in readers]
        for s in sentences
    ]
    places = [i for i, texts in enumerate(cut) if all(map(_has_both_parts, texts))]
    if not places:
        raise InputError("no sentence whose long entity has tokens in both of its parts")
    sentences = [sentences[i] for i in places]
    texts_of = list(zip(*(cut[i] for i in places), strict=True))  # (readers, sentences)
    shares: list[list[dict[str, float]]] = []
    maps: list[list[np.ndarray]] = []
    for encoder, texts, layer in zip(readers, texts_of, layers, strict=True):
        maps.append(list(encoder.maps(texts, layer)))
        shares.append(list(map(inner, texts, maps[-1])))
    measures = [name for name in shares[0][0] if not name.endswith(", even")]
    result: dict[str, Any] = {"sentences": len(sentences), "encoders": {}}
    for encoder, maps_of_encoder, layer in zip(readers, shares, layers, strict=True):
        summary: dict[str, Any] = {"layer": layer, "layers": encoder.layers}
        for name in measures:
            values, flat = _column(maps_of_encoder, name), _column(maps_of_encoder, f"{name}, even")
            summary[name] = mean_of(values) | {
                "even": float(np.mean(flat)),
                "- even": difference(flat, values),
            }
        result["encoders"][encoder.name] = summary
    if len(readers) > 1:
        result[f"{readers[0].name} - {readers[1].name}"] = {
            name: difference(_column(shares[1], name), _column(shares[0], name))
            for name in measures
        }
    write_shares(out / "figure3.csv", readers, sentences, texts_of, shares)
    name = f"inside, of {AMONG[0]}"
    gain = _column(shares[0], name)
    if len(readers) > 1:
        gain = gain - _column(shares[1], name)
    row = choose_row(pick, "PICK3", gain)
    result["drawn row"] = row
    drawn = [
        (texts[row], maps_of_encoder[row])
        for texts, maps_of_encoder in zip(texts_of, maps, strict=True)
    ]
    draw_maps(out / "figure3.png", readers, layers, drawn)
    return result


def _has_both_parts(text: Text) -> bool:
    """Whether both parts of the long entity have tokens."""
    _, adjective, atomic, _ = text.parts
    return len(adjective) > 0 and len(atomic) > 0


def _column(shares: Sequence[Mapping[str, float]], name: str) -> np.ndarray:
    return np.array([of_sentence[name] for of_sentence in shares])


def write_shares(
    file: Path,
    readers: Sequence[Reader],
    sentences: Sequence[Halves],
    texts_of: Sequence[Sequence[Text]],
    shares: Sequence[Sequence[Mapping[str, float]]],
) -> None:
    """A row for each sentence and encoder of Figure 3."""
    about = ["row", "document", "entity", "adjective", "atomic", "encoder", "tokens"]
    with atomic_write(file) as handle:
        writer = CsvWriter(handle)
        writer.writerow([*about, *shares[0][0]])
        for row, s in enumerate(sentences):
            names = [row, s.document, s.entity, s.adjective, s.atomic]
            for encoder, texts, encoder_shares in zip(readers, texts_of, shares, strict=True):
                cells = [f"{value:.6f}" for value in encoder_shares[row].values()]
                writer.writerow([*names, encoder.name, len(texts[row].ids), *cells])


def draw_maps(
    file: Path,
    readers: Sequence[Reader],
    layers: Sequence[int],
    drawn: Sequence[tuple[Text, np.ndarray]],
) -> None:
    """The weights between the text's tokens as a heat map for each encoder, rows attending to
    columns, one colour scale."""
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties
    from matplotlib.patches import Rectangle

    path = chinese_font()
    font = FontProperties(fname=str(path))
    figure = Figure(figsize=(7.5 * len(readers), 7.5), layout="constrained")
    axes = figure.subplots(1, len(readers), squeeze=False)[0]
    pictures = []
    for encoder, (text, attention) in zip(readers, drawn, strict=True):
        left, adjective, atomic, right = text.parts
        before, after = near(len(left), len(right), max(0, SHOWN3 - len(adjective) - len(atomic)))
        tokens_drawn = np.concatenate(
            [left[len(left) - before :], adjective, atomic, right[:after]]
        ).astype(int)
        names = encoder.tokens(text)
        pictures.append(
            (
                attention[np.ix_(tokens_drawn, tokens_drawn)],
                [label(names[i], path) for i in tokens_drawn],
                before,
                len(adjective),
                len(atomic),
            )
        )
    highest = max(float(picture.max()) for picture, *_ in pictures)
    for axis, encoder, layer, (picture, names, before, adjective_size, atomic_size) in zip(
        axes, readers, layers, pictures, strict=True
    ):
        image = axis.imshow(picture, cmap="Blues", vmin=0, vmax=highest)
        axis.set_xticks(range(len(names)), names, fontproperties=font)
        axis.set_yticks(range(len(names)), names, fontproperties=font)
        axis.set_title(f"{encoder.name}, layer {layer} of {encoder.layers}")
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
