"""What the forms of names and the splitter of sentences are worth where no task of ours shows it.

    kepl measure forms                             the dictionary on HPO's definitions
    kepl measure sentences DDICorpus-2013.zip      splitters on the boundaries of DDI's sentences

HPO's definitions have no annotations. Gold is, at each place, the longest preferred or exact name
of HPO whose words have the same Snowball stems: an independent rule, which equates more words than
plural and singular.
"""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ElementTree
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.measurements import save_measurement
from benchmarks.results import OVERALL
from core.json_files import digest
from datamodules import blurb
from kg.build.sources import hpo
from kg.linking import sentences
from kg.linking.matcher import DictionaryLinker
from kg.linking.normal import LEVELS

TEXTS, DOCUMENTS = 8000, 400
AT_ONCE = 256
#: without related, broad and narrow names
CLOSE = ("preferred", "exact", "layperson", "plural", "uk_spelling", "abbreviation")
_WORD = re.compile(r"[A-Za-z0-9]+")
Gold = dict[tuple[int, int], frozenset[str]]  # place -> the entities that are right


def print_scores_of_forms() -> None:
    """Score the dictionary on HPO's definitions, at each level of forms.

    Strict precision, recall and F1, with all kinds of names and with the close ones. They are kept
    for `kepl publish`.
    """
    graph = hpo.read()
    rows = [
        row for row, entity in enumerate(graph.names["id"].to_pylist()) if entity.startswith("HP:")
    ]
    names = graph.names.take(pa.array(rows))
    texts = [text for _, _, text in hpo.texts()][:TEXTS]
    gold = stem_matches(names, texts)
    checksums = {"names": digest(names.to_pylist()), "texts": digest(texts)}
    scores: dict[str, dict[str, float]] = {}
    for level in LEVELS:
        for kinds in (None, CLOSE):
            linker = DictionaryLinker(names, graph.ids, graph.degree(), forms=level, kinds=kinds)
            precision, recall, f1 = score_linker(linker, texts, gold)
            names_text = "all names" if kinds is None else "close names"
            scores[f"{level}, {names_text}"] = {"precision": precision, "recall": recall, "f1": f1}
            print(
                f"{level}, {names_text}: P {precision:.1f}, R {recall:.1f}, F1 {f1:.1f},"
                f" {sum(map(len, gold)):,} places"
            )
    scores[OVERALL] = scores["inflected, all names"]  # the default
    save_measurement("forms", "HPO's definitions", "f1", scores, data=checksums)


def stem_matches(names: pa.Table, texts: Sequence[str]) -> list[Gold]:
    """The longest names at each place of each text whose words have the same stems as the
    text's."""
    import snowballstemmer

    stem = snowballstemmer.stemmer("english").stemWord
    owners: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for entity, name, kind in zip(
        *(names[column].to_pylist() for column in ("id", "name", "kind")), strict=True
    ):
        if len(name) > 4 and kind in ("preferred", "exact"):
            owners[tuple(stem(word.lower()) for word in _WORD.findall(name))].add(entity)
    most: dict[str, int] = {}
    for key in owners:
        most[key[0]] = max(most.get(key[0], 0), len(key))
    return [_longest(text, stem, owners, most) for text in texts]


def _longest(
    text: str,
    stem: Callable[[str], str],
    owners: dict[tuple[str, ...], set[str]],
    most: dict[str, int],
) -> Gold:
    words = [(stem(match[0].lower()), match.start(), match.end()) for match in _WORD.finditer(text)]
    gold: Gold = {}
    first = 0
    while first < len(words):
        step = 1
        for count in range(min(most.get(words[first][0], 0), len(words) - first), 0, -1):
            entities = owners.get(tuple(word for word, _, _ in words[first : first + count]))
            if entities:
                gold[words[first][1], words[first + count - 1][2]] = frozenset(entities)
                step = count
                break
        first += step
    return gold


def score_linker(
    linker: DictionaryLinker, texts: Sequence[str], gold: Sequence[Gold]
) -> tuple[float, float, float]:
    """Strict precision, recall and F1, in per cent."""
    right = predicted = 0
    for begin in range(0, len(texts), AT_ONCE):
        batch = slice(begin, begin + AT_ONCE)
        for mentions, gold_of_mention in zip(
            linker.link_all(texts[batch]), gold[batch], strict=True
        ):
            predicted += len(mentions)
            right += sum(
                mention.entity in gold_of_mention.get((mention.start, mention.end), ())
                for mention in mentions
            )
    wanted = sum(map(len, gold))
    if not right:
        return 0.0, 0.0, 0.0
    return 100 * right / predicted, 100 * right / wanted, 200 * right / (predicted + wanted)


def print_scores_of_splitters(archive: Path) -> None:
    """Score splitters of sentences, ours and those of libraries, on DDI's sentences.

    Precision, recall and F1 of the boundaries between sentences.

    Args:
        archive: The archive of DDI (DDICorpus-2013.zip).
    """
    import pysbd
    import spacy

    segmenter = pysbd.Segmenter(language="en", clean=False, char_span=True)
    language = spacy.blank("en")
    language.add_pipe("sentencizer")
    splitters: dict[str, Callable[[str], list[int]]] = {
        "kg.linking.sentences": sentences.sentence_starts,
        "datamodules.blurb": blurb.sentence_starts,
        "pySBD": lambda text: [span.start for span in segmenter.segment(text)],
        "spaCy's sentencizer": lambda text: [span.start_char for span in language(text).sents],
    }
    documents = list(_documents(archive))
    random.Random(0).shuffle(documents)
    documents = documents[:DOCUMENTS]
    scores: dict[str, dict[str, float]] = {}
    for name, split in splitters.items():
        counts = np.zeros(3)
        for document in documents:
            gold = set(np.cumsum([len(sentence) + 1 for sentence in document[:-1]]).tolist())
            predicted = {start for start in split(" ".join(document)) if start}
            counts += [len(gold & predicted), len(predicted), len(gold)]
        right, found_count, wanted = counts
        scores[name] = {
            "precision": 100 * right / found_count,
            "recall": 100 * right / wanted,
            "f1": 200 * right / (found_count + wanted),
        }
        figures = [f"{metric} {score:.1f}" for metric, score in scores[name].items()]
        print(f"{name}: {', '.join(figures)}")
    scores[OVERALL] = scores["kg.linking.sentences"]
    checksums = {"documents": digest(documents)}
    save_measurement("sentences", "DDI's sentences", "f1", scores, data=checksums)


def _documents(archive: Path) -> Iterator[list[str]]:
    """The sentences of each document of DDI that has several."""
    with zipfile.ZipFile(archive) as files:
        for name in sorted(files.namelist()):
            if name.endswith(".xml"):
                root = ElementTree.fromstring(files.read(name))
                texts = [(element.get("text") or "").strip() for element in root.iter("sentence")]
                texts = [text for text in texts if text]
                if len(texts) > 1:
                    yield texts
