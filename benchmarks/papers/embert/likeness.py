"""Figure 2: how alike the weights between an entity and its context are when the entity is replaced
by a synonym, and by a random entity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fonts import chinese_font, label
from benchmarks.papers.embert.measures import DIRECTIONS, LIKENESS
from benchmarks.papers.embert.readers import (
    Reader,
    choose_row,
    difference,
    mean_of,
    near,
)
from benchmarks.papers.embert.sentences import Swap
from core.files import atomic_write
from core.spreadsheets import CsvWriter

#: {direction: {name: (C,) weights of the context's tokens}} of a sentence
Weights = dict[str, dict[str, np.ndarray]]
#: {direction: {spearman or cosine: {synonym or random: a number for each sentence}}}
Likeness = dict[str, dict[str, dict[str, list[float]]]]
NAMES = ("original", "synonym", "random")

#: For which sentences figure2 has means: a synonym that is longer or shorter than the name moves
#: what follows it to other positions, which the random name never does; one that shares characters
#: may owe its likeness to them.
PARTS: dict[str, Callable[[Swap], bool]] = {
    "all": lambda s: True,
    "synonyms as long as the name": lambda s: len(s.synonym) == len(s.original),
    "synonyms without a character of the name": lambda s: not s.shared,
    "as long, and no character in common": lambda s: (
        len(s.synonym) == len(s.original) and not s.shared
    ),
}

SHOWN2 = 20  # tokens of a sentence in the picture, as in the paper


def weights(encoder: Reader, sentences: Sequence[Swap], layer: int) -> list[Weights]:
    """The weights of the context's tokens in each sentence; C is the same for all three names."""
    texts = [encoder.join((s.left, getattr(s, name), s.right)) for s in sentences for name in NAMES]
    read = zip(texts, encoder.maps(texts, layer), strict=True)
    result: list[Weights] = []
    for _ in sentences:
        of_sentence: Weights = {direction: {} for direction in DIRECTIONS}
        for name in NAMES:
            text, attention = next(read)
            left, entity, right = text.parts
            for direction, between in DIRECTIONS.items():
                of_sentence[direction][name] = between(
                    attention, entity, np.concatenate([left, right])
                )
        result.append(of_sentence)
    return result


def likeness(sentences: Sequence[Weights]) -> Likeness:
    """{direction: {spearman or cosine: {synonym or random: of each sentence, how alike its weights
    are to the original's}}}."""
    result: Likeness = {}
    for direction in DIRECTIONS:
        pairs = [of_sentence[direction] for of_sentence in sentences]
        result[direction] = {}
        for kind, alike in LIKENESS.items():
            result[direction][kind] = {
                name: [alike(maps["original"], maps[name]) for maps in pairs] for name in NAMES[1:]
            }
    return result


def _subtract_random(alike: Likeness) -> dict[str, dict[str, np.ndarray]]:
    """{direction: {kind: of each sentence, the synonym's likeness less the random entity's}}."""
    result: dict[str, dict[str, np.ndarray]] = {}
    for direction, kinds in alike.items():
        result[direction] = {
            kind: np.subtract(values["synonym"], values["random"]) for kind, values in kinds.items()
        }
    return result


def _summarize_likeness(alike: Likeness, rows: np.ndarray) -> dict[str, Any]:
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
    of_readers = [
        weights(encoder, sentences, layer) for encoder, layer in zip(readers, layers, strict=True)
    ]
    alike = [likeness(encoder_maps) for encoder_maps in of_readers]
    parts = {
        name: np.flatnonzero([fits(sentence) for sentence in sentences])
        for name, fits in PARTS.items()
    }
    result: dict[str, Any] = {"sentences": len(sentences), "encoders": {}}
    for encoder, encoder_maps, layer in zip(readers, alike, layers, strict=True):
        summary: dict[str, Any] = {"layer": layer, "layers": encoder.layers}
        for name, rows in parts.items():
            summary[name] = {"sentences": len(rows)}
            if len(rows):
                summary[name] |= _summarize_likeness(encoder_maps, rows)
        result["encoders"][encoder.name] = summary
    gains = [_subtract_random(encoder_maps) for encoder_maps in alike]
    if len(readers) > 1:
        differences: dict[str, dict[str, Any]] = {}
        for direction, kinds in gains[0].items():
            differences[direction] = {
                kind: difference(gains[1][direction][kind], encoder_maps)
                for kind, encoder_maps in kinds.items()
            }
        result[f"synonym - random, {readers[0].name} - {readers[1].name}"] = differences
    write_likeness(out / "figure2.csv", readers, sentences, alike)
    gain = gains[0]["entity to context"]["spearman"]
    row = choose_row(pick, "PICK2", np.asarray(gain))
    result["drawn row"] = row
    drawn = [encoder_maps[row] for encoder_maps in of_readers]
    draw_lines(out / "figure2.png", readers, layers, sentences[row], drawn)
    return result


def write_likeness(
    file: Path, readers: Sequence[Reader], sentences: Sequence[Swap], alike: Sequence[Likeness]
) -> None:
    """A row for each sentence, encoder and direction of Figure 2."""
    columns = list(product(LIKENESS, NAMES[1:]))
    about = ["row", "document", "entity", *NAMES, "shared characters", "encoder", "direction"]
    with atomic_write(file) as handle:
        writer = CsvWriter(handle)
        writer.writerow([*about, *(f"{kind} {name}" for kind, name in columns)])
        for i, s in enumerate(sentences):
            names = [getattr(s, name) for name in NAMES]
            for encoder, encoder_values in zip(readers, alike, strict=True):
                for direction in DIRECTIONS:
                    values = [
                        f"{encoder_values[direction][kind][name][i]:.6f}" for kind, name in columns
                    ]
                    row = [i, s.document, s.entity, *names, s.shared, encoder.name, direction]
                    writer.writerow([*row, *values])


def draw_lines(
    file: Path,
    readers: Sequence[Reader],
    layers: Sequence[int],
    sentence: Swap,
    of_readers: Sequence[Weights],
) -> None:
    """A panel for each direction and encoder: the weight of each context token, a line for each of
    the three names."""
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

    path = chinese_font()
    font = FontProperties(fname=str(path))
    figure = Figure(figsize=(6.5 * len(readers), 7), layout="constrained")
    grid = figure.subplots(len(DIRECTIONS), len(readers), squeeze=False)
    for column, (encoder, layer) in enumerate(zip(readers, layers, strict=True)):
        text = encoder.join((sentence.left, sentence.original, sentence.right))
        left, _, right = text.parts
        tokens = encoder.tokens(text)
        before, after = near(len(left), len(right), SHOWN2)
        first = len(left) - before
        layers_drawn = np.concatenate([left[first:], right[:after]]).astype(int)
        # a gap where the entity is
        places = [*range(before), *range(before + 2, before + 2 + after)]
        for line, direction in enumerate(DIRECTIONS):
            axis = grid[line][column]
            for name in NAMES:
                values = of_readers[column][direction][name][first : first + len(layers_drawn)]
                axis.plot(
                    places,
                    values,
                    marker="o",
                    markersize=3,
                    label=f"{name}: {label(getattr(sentence, name), path)}",
                )
            names = [label(tokens[i], path) for i in layers_drawn]
            axis.set_xticks([*places, before + 0.5], [*names, "[ENT]"], fontproperties=font)
            axis.set(
                title=f"{encoder.name}, layer {layer} of {encoder.layers}: {direction}",
                ylabel="weights, all heads added",
            )
            axis.legend(prop=font)
    with atomic_write(file, "wb") as handle:
        figure.savefig(handle, format="png", dpi=110)
