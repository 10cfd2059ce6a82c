"""Detection and linking scored together: counts by hand, a chain on a task of fake files, and the
command."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from app.cli import main
from benchmarks.commands import Evaluate
from benchmarks.linking.ends import (
    MEASURES,
    Place,
    count_matches,
    error_of,
    format_chain_score,
    gold_places,
    precision_recall,
    score_chain,
    tallies_of,
)
from benchmarks.options import Folds
from benchmarks.results import list_stored
from core.files import InputError
from datamodules.linking import Dictionary, Mention
from datamodules.options import Files
from tests.fakes import linking as fakes


def place(start: int, end: int, *concepts: str) -> Place:
    return Place(start, end, frozenset(concepts))


def test_matching_is_the_best_there_is() -> None:
    """Against every assignment, tried one by one; a found place counts for one gold mention at
    most."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        found, gold = (
            [
                place(s := int(rng.integers(6)), s + int(rng.integers(1, 4)), "ab"[rng.integers(2)])
                for _ in range(rng.integers(5))
            ]
            for _ in range(2)
        )
        for overlap, concepts in itertools.product((False, True), repeat=2):

            def fits(
                a: Place, b: Place, overlap: bool = overlap, concepts: bool = concepts
            ) -> bool:
                span = a.start < b.end and b.start < a.end if overlap else a[:2] == b[:2]
                return span and (not concepts or a.concepts == b.concepts)

            padded = [*found, *([None] * len(gold))]
            best = max(
                sum(p is not None and fits(p, g) for p, g in zip(order, gold, strict=True))
                for order in itertools.permutations(padded, len(gold))
            )
            assert count_matches(found, gold, overlap, concepts) == best


def test_counts_of_a_text() -> None:
    gold = [place(0, 5, "A"), place(10, 20, "B", "B2"), place(10, 20, "C"), place(30, 35, "?X")]
    found = [place(0, 5, "A"), place(12, 20, "B2"), place(30, 35), place(40, 45, "A")]
    assert tallies_of(found, gold) == {
        "f1": (1, 3, 4),  # A; a mention that is linked to nothing is not found
        "overlap": (2, 3, 4),  # and B2 under another id
        "detection": (2, 4, 3),
        "detection, overlap": (3, 4, 3),
        "documents": (2, 2, 4),
    }
    errors = ["right", "boundaries", "linked to another concept", "concept not in the dictionary"]
    assert [error_of(p, found) for p in gold] == errors
    assert (
        error_of(place(30, 35, "D"), found) == "linked to nothing"
        and error_of(place(50, 55, "A"), found) == "missed"
    )
    assert precision_recall(np.array([[1, 3, 4], [1, 1, 0]])) == {
        "precision": 0.5,
        "recall": 0.5,
        "f1": 0.5,
        "examples": 2,
    }
    assert precision_recall(np.array([[0, 0, 2]]))["precision"] == 0


def test_gold_of_several_concepts_and_of_none_in_the_dictionary() -> None:
    dictionary = Dictionary(["C1", "C3"], ["heart attack", "renal failure"], {"C3": ["X3"]})
    mentions = [
        Mention("m", "d", 0, 4, "both", ["both"], [["C1"], ["X3"]]),
        Mention("n", "d", 5, 9, "none", ["none"], [["C9"]]),
    ]
    assert gold_places(mentions, dictionary) == {
        "d": [place(0, 4, "C1"), place(0, 4, "C3"), place(5, 9, "?C9")]
    }
    with pytest.raises(InputError, match="mention 'p': no place in a text"):
        gold_places([Mention("p", "d", None, None, "x", ["x"], [["C1"]])], dictionary)


def test_each_said_concept_is_right_once() -> None:
    """Two gold mentions of several concepts each, and one concept said that is of both: one of two
    is right."""
    gold = [place(0, 5, "A", "B"), place(10, 20, "A", "C")]
    assert tallies_of([place(0, 5, "A")], gold)["documents"] == (1, 1, 2)
    assert tallies_of([place(0, 5, "A"), place(1, 2, "B"), place(3, 4, "A")], gold)[
        "documents"
    ] == (2, 2, 2)
    assert tallies_of([place(0, 5, "A", "B")], [place(0, 5, "A"), place(7, 8, "B")])[
        "documents"
    ] == (1, 1, 2)
    rng = np.random.default_rng(1)
    for _ in range(300):
        found, wanted = (
            [
                place(0, 5, *rng.choice(list("ABCD"), int(rng.integers(0, 3))))
                for _ in range(rng.integers(5))
            ]
            for _ in range(2)
        )
        for right, said, known in tallies_of(found, wanted).values():
            assert right <= min(said, known)


def test_a_mention_without_a_concept_is_a_span_of_detection() -> None:
    gold = [place(0, 5, "A"), place(10, 20)]
    right, nothing_said = [place(0, 5, "A"), place(10, 20)], [place(0, 5, "A")]
    linked = [place(0, 5, "A"), place(10, 20, "B")]
    assert tallies_of(right, gold) == {
        "f1": (1, 1, 1),
        "overlap": (1, 1, 1),
        "detection": (2, 2, 2),
        "detection, overlap": (2, 2, 2),
        "documents": (1, 1, 1),
    }
    assert tallies_of(nothing_said, gold)["detection"] == (1, 1, 2) and tallies_of(
        nothing_said, gold
    )["f1"] == (1, 1, 1)
    assert tallies_of(linked, gold)["f1"] == (1, 2, 1) and tallies_of(linked, gold)[
        "detection"
    ] == (2, 2, 2)


def test_a_text_without_gold_counts_what_is_found_there() -> None:
    assert tallies_of([place(0, 5, "A"), place(7, 9)], []) == {
        "f1": (0, 1, 0),
        "overlap": (0, 1, 0),
        "detection": (0, 2, 0),
        "detection, overlap": (0, 2, 0),
        "documents": (0, 1, 0),
    }


def test_every_text_of_a_split_is_scored(
    tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two texts with mentions, one with a mention of no concept, one with none; gout is found in
    each, once right."""
    data = tmp_path / "data"
    (data / "ncbi_pubtator").mkdir(parents=True)
    texts = {
        "1": ("Gout and fever.", [(0, 4, "Gout", "D1"), (9, 14, "fever", "MESH:D2")]),
        "2": ("Gout or lumbago", [(8, 15, "lumbago", "-1")]),
        "3": ("No gout, no fever", []),
    }
    for name in ("train", "develop", "test"):
        with open(data / "ncbi_pubtator" / f"NCBI{name}set_corpus.txt", "w") as handle:
            for one, (text, mentions) in texts.items():
                handle.write(f"{one}|t|{text}\n{one}|a|\n")
                handle.writelines(
                    f"{one}\t{s}\t{e}\t{m}\tDisease\t{i}\n" for s, e, m, i in mentions
                )
                handle.write("\n")
    with gzip.open(data / "medic_06Jul2012.txt.gz", "wt") as packed:
        packed.write("D1||Gout\nD2||Fever\nD3||Lumbago\n")
    result = score_chain(Evaluate(task="NCBI-E2E", part=Folds(split="dev"), files=Files(data=data)))
    counts = {measure: np.asarray(result.tallies[measure]).sum(0).tolist() for measure in MEASURES}
    assert (
        counts["f1"] == [2, 6, 2]
        and counts["detection"] == [3, 6, 3]
        and counts["documents"] == [2, 6, 2]
    )
    protocol = result.protocol
    assert [
        protocol[k] for k in ("documents", "documents_without_gold", "gold", "gold_without_concept")
    ] == [3, 1, 2, 1]
    assert result.details["no mention is there"] == 3 and result.details["errors"] == {"right": 2}
    # right, where no mention is, and this: all of the six that were found
    assert result.details["a mention without a concept is there"] == 1
    said = format_chain_score(result)
    assert "found where a mention without a concept is: 1\n" in said
    assert (
        "3 texts, 1 of them without a gold mention; 2 gold mentions, 1 more without a concept"
        in said
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fakes.write(tmp_path_factory.mktemp("data"))


def test_a_chain_is_scored(data: Path, runs: Path) -> None:
    result = score_chain(
        Evaluate(task="NCBI-E2E", part=Folds(split="dev"), files=Files(data=data / "NCBI-EL"))
    )
    lines = [
        json.loads(line)
        for line in (Path(result.folder) / "predictions.jsonl").read_text().splitlines()
    ]
    counted = {measure: np.zeros(3, int) for measure in MEASURES}
    for line in lines:
        gold = [place(s, e, *c) for s, e, c in line["gold"]]
        found = [
            place(s, e, *([entity] if entity else [])) for s, e, _, entity, *_ in line["found"]
        ]
        counts_of = tallies_of(found, gold)
        assert sum(line["right"]) == counts_of["f1"][0] and len(line["right"]) == len(found)
        for measure, counts in counts_of.items():
            counted[measure] += counts
    for measure in MEASURES:
        assert np.asarray(result.tallies[measure]).sum(0).tolist() == counted[measure].tolist(), (
            measure
        )
    right, found_, gold_ = counted["f1"]
    assert 0 < right <= min(found_, gold_) and result.value() == pytest.approx(
        2 * right / (found_ + gold_)
    )
    assert sum(result.details["errors"].values()) == gold_ == result.protocol["gold"]
    assert result.details["errors"]["right"] == right
    again = score_chain(
        Evaluate(task="NCBI-E2E", part=Folds(split="dev"), files=Files(data=data / "NCBI-EL"))
    )
    assert (
        again.folder == result.folder
        and again.scores == result.scores
        and len(list_stored("linking", "NCBI-E2E")) == 1
    )


def test_the_command(data: Path, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place_ = [f"DATA={data / 'BC5CDR-EL'}"]
    assert main(["evaluate", "BC5CDR-disease-E2E", *place_]) == 0
    said = capsys.readouterr().out
    assert (
        "dictionary on BC5CDR-disease-E2E, dev" in said
        and "strict" in said
        and "texts a second" in said
    )
    assert (
        main(["evaluate", "BC5CDR-disease-E2E", "CHAIN=dictionary > names", "THRESHOLD=2", *place_])
        == 0
    )
    said = capsys.readouterr().out
    assert (
        "dictionary > names THRESHOLD=2.0 on" in said
        and "linked to nothing" in said
        and "against dictionary (" in said
    )
    assert main(["evaluate", "NCBI-EL", "CHAIN=dictionary", *place_]) == 2
    assert (
        "kepl evaluate: --chain has no use here; it belongs to an end-to-end task"
        in capsys.readouterr().err
    )
    assert main(["evaluate", "NCBI-E2", *place_]) == 2
    assert "did you mean NCBI-E2E" in capsys.readouterr().err
    assert main(["evaluate", "NCBI-E2E", "CHAIN=nothing", *place_]) == 2
