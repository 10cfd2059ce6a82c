"""How many of the annotated mentions of NER and RE sets a graph has a name for: KeBioLM's Table 1,
for any graph.

    kepl overlap [TASK ...] [--graph hpo|FOLDER] [--model kebiolm] [--mirror FOLDER]

A mention is known when it is a name of the graph, word for word in any case and in normal form
(:mod:`kg.linking.normal`; white space and the cut of tokens do not matter). Nothing is left out for
being short or a function word, and a part of a mention is no mention: what a linker finds in the
text is another question. MODEL= asks the entities of a KeBioLM instead of a graph: those that its
table has a vector for. All available splits are counted together, as the paper's 8.7 to 58.5 % are.

In relation sets those entities count that are in an example, once however many examples there are.
GAD's sentences came without them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from benchmarks.graphs import graph_folder
from benchmarks.measurements import save_measurement
from benchmarks.results import OVERALL, Result
from core.artifact import content_digest
from core.files import InputError
from core.json_files import digest
from datamodules.options import Files
from datamodules.sources import fetch_dataset, place
from datamodules.tasks import Relation, Tagged
from datamodules.tasks.definition import Definition
from datamodules.tasks.prepare import all_tasks, find_task, inputs, read_splits
from experiments.names import encoder
from inference.entity_table import table_of
from kg.graph import KnowledgeGraph
from kg.linking.normal import comparable

KINDS = ("ner", "nested", "relation")


class OverlapCounts(NamedTuple):
    """What the names were of, {graph or model: its checksum}, {task: its overlap, None without
    mentions}, {task: why it was not counted}, {task: a checksum of its mentions}."""

    source: str
    names: dict[str, str]
    overlaps: dict[str, Overlap | None]
    missing: dict[str, str]
    checksums: dict[str, str]


class Overlap(NamedTuple):
    """Mentions of a set, how many of them are known, and the same of different mentions."""

    mentions: int
    known: int
    different: int
    different_known: int

    @property
    def share(self) -> float:
        """Known mentions over all."""
        return self.known / max(self.mentions, 1)

    @property
    def different_share(self) -> float:
        """Known mentions over all, of different ones."""
        return self.different_known / max(self.different, 1)


def graph_forms(folder: str | Path) -> set[str]:
    """The forms of all names of a graph. Raises InputError when there is none in `folder`."""
    return {comparable(name) for name in KnowledgeGraph.load(folder).names["name"].to_pylist()}


def model_forms(name: str, checkpoint: str | None = None) -> set[str]:
    """The forms of the names of the entities that a KeBioLM has vectors for. Raises InputError for
    a model without such a table."""
    ids, names = table_of(encoder(name, checkpoint).folder)
    return {comparable(name) for entity in ids for name in names.get(entity, ())}


def between(text: str, markers: Sequence[str]) -> Iterable[tuple[int, str]]:
    """(offset without markers, text) of what is between a marker such as [S] and its [/S]; parts
    may be nested."""
    opened: dict[str, int] = {}
    plain = ""
    for part in re.split("(" + "|".join(map(re.escape, markers)) + ")", text):
        if part not in markers:
            plain += part
        elif part.startswith("[/"):
            start = opened[part.replace("/", "", 1)]
            yield start, plain[start:]
        else:
            opened[part] = len(plain)


def mentions_of(definition: Definition, data: Path) -> list[str] | None:
    """The annotated mentions of all splits; None where the files have none. Raises InputError as
    the readers do."""
    if definition.mentions is not None:
        mentions: list[str] = []
        for split, paths in inputs(definition, data).items():
            mentions += definition.mentions(paths, split)
        return mentions
    splits, _, _ = read_splits(definition, data)
    examples = list(chain.from_iterable(splits.values()))
    if all(isinstance(e, Tagged) for e in examples):
        return [e.text[start:end] for e in examples for start, end, _ in e.entities]
    if not any(marker.startswith("[/") for marker in definition.markers):
        return None
    places: dict[tuple[str, int, str], None] = {}
    for e in examples:
        if isinstance(e, Relation):
            for start, mention in between(e.text, definition.markers):
                places[e.document, start, mention] = None
    return [mention for _, _, mention in places]


def overlap(mentions: Sequence[str], graph_names: set[str]) -> Overlap:
    """The number of `mentions` with a form in `graph_names`."""
    forms = [comparable(m) for m in mentions]
    return Overlap(
        len(forms),
        sum(f in graph_names for f in forms),
        len(set(forms)),
        len(set(forms) & graph_names),
    )


def known_forms(
    graph: str | None, model: str | None, ckpt: str | None = None
) -> tuple[str, set[str], dict[str, str]]:
    """(what is asked, the forms of its names, {graph or model: its checksum}): a model's entities,
    or a graph (default: hpo). Raises InputError for both."""
    if model and graph:
        raise InputError("GRAPH= and MODEL=: expected one of the two")
    if model:
        return model, model_forms(model, ckpt), {"model": encoder(model, ckpt).identity}
    folder = graph_folder(graph or "hpo")
    return graph or "hpo", graph_forms(folder), {"graph": content_digest(folder)}


def overlaps(
    names: Sequence[str],
    graph: str | None = None,
    model: str | None = None,
    ckpt: str | None = None,
    files: Files | None = None,
) -> OverlapCounts:
    """The overlap of each task.

    names: none means every NER and RE task. Raises InputError for a task of another kind, and when
        none could be read.
    """
    definitions = [find_task(n) for n in names] or [
        d for d in all_tasks().values() if d.kind in KINDS
    ]
    if wrong := [d.name for d in definitions if d.kind not in KINDS]:
        raise InputError(
            f"{wrong[0]}: a task without annotated mentions; expected one of entities or relations"
        )
    source, forms, names_checksum = known_forms(graph, model, ckpt)
    counted: dict[str, Overlap | None] = {}
    missing: dict[str, str] = {}
    checksums: dict[str, str] = {}
    for definition in definitions:
        try:
            several = mentions_of(
                definition,
                fetch_dataset(definition.dataset, place(), files.mirror if files else ()),
            )
        except InputError as error:
            missing[definition.name] = str(error)
            continue
        counted[definition.name] = None if several is None else overlap(several, forms)
        checksums[definition.name] = digest(several)
    if not counted:
        raise InputError(
            "no set could be counted:\n" + "\n".join(f"  {n}: {why}" for n, why in missing.items())
        )
    return OverlapCounts(source, names_checksum, counted, missing, checksums)


def save_overlaps(counts: OverlapCounts) -> list[Result]:
    """The counts of each set as a result, for `kepl publish`."""
    results = []
    for name, count in counts.overlaps.items():
        if count is None:
            continue
        shares = {"share": count.share, "different_share": count.different_share}
        scores = count._asdict() | shares
        data = {**counts.names, "mentions": counts.checksums[name]}
        result = save_measurement("overlap", name, "share", {OVERALL: scores}, counts.source, data)
        results.append(result)
    return results


def format_overlaps(counts: OverlapCounts) -> str:
    """The counts as aligned text, what was not counted below."""
    lines = [
        f"{'task':<16}{'mentions':>10}{'known':>10}{'share':>8}{'different':>11}{'known':>10}{'share':>8}"
    ]
    for name, count in counts.overlaps.items():
        if count is None:
            lines.append(f"{name:<16}{'-':>10}")
            continue
        lines.append(
            f"{name:<16}{count.mentions:>10,}{count.known:>10,}{count.share:>8.1%}"
            f"{count.different:>11,}{count.different_known:>10,}{count.different_share:>8.1%}"
        )
    return "\n".join(
        [
            f"mentions that {counts.source} has a name for",
            "",
            *lines,
            *(f"{n}: not counted: {w.splitlines()[0]}" for n, w in counts.missing.items()),
        ]
    )
