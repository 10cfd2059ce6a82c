"""One's own annotated texts: scored as a short, independent script scores them, in any format."""

from __future__ import annotations

import csv
import itertools
import json
import random
import re
from pathlib import Path

import pytest

from app.cli import main
from benchmarks.commands import Evaluate
from benchmarks.linking.ends import read_annotated, warn_of_training_texts
from benchmarks.options import Folds
from benchmarks.results import OVERALL
from core.files import InputError
from datamodules.options import Files
from datamodules.tasks.gold import Gold, TrainingTexts, gold_linking
from datamodules.tasks.own import save_own_task
from inference.chain import Pipeline
from inference.convert import write_records
from tests.fakes import graphs

NAMES = {"G:1": ["gout"], "G:2": ["renal failure", "kidney failure"], "G:3": ["ataxia"]}
FORMATS = {"brat": "gold", "pubtator": "gold.pubtator", "bioc": "gold.bioc.xml"}


@pytest.fixture
def graph(tmp_path: Path, runs: Path) -> Path:
    return graphs.write(tmp_path / "graph", NAMES)


def annotated_texts(seed: int) -> list[dict[str, object]]:
    """Notes whose gold mentions are partly those that a dictionary finds."""
    rng = random.Random(seed)
    records = []
    for number in range(12):
        text, mentions = "He has", []
        for _ in range(rng.randint(0, 4)):
            word = rng.choice(["gout", "kidney failure", "ataxia", "swelling", "renal failure"])
            entity = next((e for e, names in NAMES.items() if word in names), None)
            start = len(text) + 1
            text += f" {word} and"
            place = {"start": start, "end": start + len(word), "type": "Disease", "score": None}
            if rng.random() < 0.7:  # others were not annotated
                wrong = rng.random() < 0.2
                mentions.append(place | {"entity": "G:3" if wrong else entity})
        records.append({"id": f"n{number}", "text": f"{text} more.", "mentions": mentions})
    return records


def score_by_hand(records: list[dict[str, object]], graph: Path) -> dict[str, float]:
    """Strict precision, recall and F1 of (document, start, end, entity), and of spans alone."""
    pipeline = Pipeline(graph)
    right = found = gold = spans = found_spans = gold_spans = 0
    for record in records:
        (mentions,) = pipeline.link(str(record["text"]))
        given = record["mentions"]
        assert isinstance(given, list)
        own = {(m.start, m.end, m.entity) for m in mentions}
        wanted = {(m["start"], m["end"], m["entity"]) for m in given}
        without = {(s, e) for s, e, entity in wanted if entity is None}
        named = {one for one in wanted if one[2] is not None}
        right += len(own & named)
        found += len(own)
        gold += len(named)
        spans += len({one[:2] for one in own} & ({one[:2] for one in named} | without))
        found_spans += len({one[:2] for one in own})
        gold_spans += len({one[:2] for one in named} | without)
    return {
        "precision": right / found,
        "recall": right / gold,
        "f1": 2 * right / (found + gold),
        "detection": 2 * spans / (found_spans + gold_spans),
    }


@pytest.mark.parametrize(
    ("form", "seed"),
    [
        pytest.param(form, seed, marks=[pytest.mark.slow] if seed else [])
        for form, seed in itertools.product(FORMATS, (0, 1, 2))
    ],
)
def test_an_independent_script_has_the_same_scores(
    form: str, seed: int, graph: Path, tmp_path: Path
) -> None:
    records = annotated_texts(seed)
    place = tmp_path / FORMATS[form]
    write_records(records, place, form)
    named = tmp_path / "named"  # whose name has no format
    if place.is_file():
        place = place.rename(named)
    own = Gold(gold=[place], gold_format=form)
    (result,) = Evaluate(part=Folds(graph=graph), annotated=own).run()
    expected = score_by_hand(records, graph)
    scores = result.scores[OVERALL]
    assert {k: scores[k] for k in ("precision", "recall", "f1")} == pytest.approx(
        {k: expected[k] for k in ("precision", "recall", "f1")}
    )
    assert result.scores["detection"]["f1"] == pytest.approx(expected["detection"])


def test_given_mentions_are_linked_by_a_model(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = annotated_texts(5)
    write_records(records, tmp_path / "gold.jsonl", "jsonl")
    words = ["evaluate", "--gold", str(tmp_path / "gold.jsonl"), "--graph", str(graph)]
    assert main([*words, "--model", "exact"]) == 0
    shown = capsys.readouterr().out
    gold = [
        (str(r["text"])[m["start"] : m["end"]], m["entity"])
        for r in records
        for m in r["mentions"]  # type: ignore[attr-defined]
        if m["entity"]
    ]
    right = sum(name in NAMES[entity] for name, entity in gold)
    assert f"{100 * right / len(gold):.2f}" in shown


def test_types_and_what_is_refused(graph: Path, tmp_path: Path) -> None:
    text = "gout and ataxia"
    mentions = [
        {"start": 0, "end": 4, "type": "A", "entity": "G:1"},
        {"start": 9, "end": 15, "type": "B", "entity": "G:3"},
    ]
    file = tmp_path / "gold.jsonl"
    file.write_text(json.dumps({"id": "1", "text": text, "mentions": mentions}) + "\n")
    made = gold_linking(Gold(gold=[file], gold_types=["a"]), graph)
    assert [m.gold for m in made.splits["test"]] == [[["G:1"]]]
    with pytest.raises(InputError, match="expected --graph"):
        gold_linking(Gold(gold=[file]), None)
    with pytest.raises(
        InputError, match="--gold-types c: no mention of this type; the files have A, B"
    ):
        gold_linking(Gold(gold=[file], gold_types=["C"]), graph)
    with open(file, "a") as handle:
        handle.write(json.dumps({"id": "1", "text": text, "mentions": mentions}) + "\n")
    with pytest.raises(InputError, match="a second document has the id '1'"):
        gold_linking(Gold(gold=[file]), graph)
    with pytest.raises(InputError, match="TASK is missing"):
        Evaluate().run()
    (tmp_path / "gold.conll").write_text("gout\tB-A\n")
    with pytest.raises(InputError, match="no mention in these files has an entity"):
        gold_linking(Gold(gold=[tmp_path / "gold.conll"]), graph)


def write_gold(tmp_path: Path) -> list[str]:
    """Words that name two annotated notes: one mention is missed, one is linked wrongly, and gout
    is found twice where nobody annotated it."""
    renal = {"start": 4, "end": 17, "type": "Disease", "entity": "G:3", "score": None}
    pain = {"start": 0, "end": 4, "type": "Disease", "entity": "G:2", "score": None}
    gold = {"start": 9, "end": 13, "type": "Disease", "entity": "G:1", "score": None}
    records = [
        {"id": "a", "text": "Has renal failure, gout.", "mentions": [renal]},
        {"id": "b", "text": "Pain and gout; gout.", "mentions": [pain, gold]},
    ]
    write_records(records, tmp_path / "gold.jsonl", "jsonl")
    return ["--gold", str(tmp_path / "gold.jsonl")]


def test_what_a_chain_got_wrong_is_counted_by_case(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*write_gold(tmp_path), "--graph", str(graph)]
    assert main(["evaluate", *words]) == 0
    assert main(["cases", *words]) == 0
    shown = capsys.readouterr().out
    assert "4 errors, 3 gold mentions, 3 different cases" in shown
    place = re.search(r"all in (\S+cases.csv)", shown)
    assert place
    rows = list(csv.reader(Path(place[1]).read_text().splitlines()))[1:]
    assert [(row[0], row[1], *row[3:6]) for row in rows] == [
        ("gout", "2", "", "G:1 (gout)", "no mention is there"),
        ("pain", "1", "G:2 (renal failure)", "", "missed"),
        (
            "renal failure",
            "1",
            "G:3 (ataxia)",
            "renal failure = G:2 (renal failure)",
            "linked to another concept",
        ),
    ]
    assert main(["cases", "NCBI-EL", *words]) == 2
    assert "expected one of the two" in capsys.readouterr().err


def test_chains_are_compared_on_annotated_texts(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*write_gold(tmp_path), "--graph", str(graph)]
    page = tmp_path / "page.html"
    chains = ["--chains", "dictionary", "dictionary > names"]
    assert main(["compare", *words, *chains, "--page", str(page)]) == 0
    shown = capsys.readouterr().out
    assert "dictionary > names" in shown and "2 texts, the same for all" in shown
    # 1 right of 4 found and 3 gold
    assert f"{200 / 7:.2f}" in shown and "against" in shown
    html = page.read_text()
    assert html.count("<svg") == 2 and html.count("<circle") == 2 and "&gt; names</td>" in html
    assert main(["compare", *words]) == 0  # those that were scored
    assert capsys.readouterr().out.splitlines()[:3] == shown.splitlines()[:3]
    assert main(["compare", *words, "--profile", "paper"]) == 2
    assert main(["compare", "NCBI-EL", "--chains", "dictionary"]) == 2


def test_changed_annotations_types_and_graphs_are_other_tasks(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*write_gold(tmp_path), "--graph", str(graph)]
    assert main(["evaluate", *words]) == 0
    for command in ("compare", "cases"):
        assert main([command, *words]) == 0
    other = graphs.write(tmp_path / "other", NAMES | {"G:4": ["pain"]})
    file = tmp_path / "gold.jsonl"
    before = file.read_text()
    for changed in (["--graph", str(other)], ["--graph", str(tmp_path / "none")], ["types"], []):
        own = [*words[:2], *(changed if len(changed) == 2 else words[2:])]
        if changed == ["types"]:
            own += ["--gold-types", "Disease"]
        if not changed:
            file.write_text(before.replace('"end": 17', '"end": 16'))
        for command in ("compare", "cases"):
            capsys.readouterr()
            assert main([command, *own]) == 2
            error = capsys.readouterr().err
            if "none" not in own[-1]:
                assert "kepl evaluate --gold" in error and ("--gold-types Disease" in error) == (
                    changed == ["types"]
                )


def test_mentions_of_other_types_do_not_count(graph: Path, tmp_path: Path) -> None:
    text = "gout and ataxia, renal failure"
    mentions = [
        {"start": 0, "end": 4, "type": "A", "entity": "G:1"},
        {"start": 9, "end": 15, "type": "B", "entity": "G:3"},
    ]
    file = tmp_path / "gold.jsonl"
    file.write_text(json.dumps({"id": "1", "text": text, "mentions": mentions}) + "\n")
    scores = {}
    for types in ((), ("A",)):
        own = Gold(gold=[file], gold_types=types)
        result = Evaluate(annotated=own, part=Folds(graph=graph)).run()[-1]
        scores[types] = result.scores[OVERALL]
    # three are found; of type A one is gold, one is another's, and one is wrong
    assert scores[()]["precision"] == pytest.approx(2 / 3)
    found = [scores["A",][name] for name in ("precision", "recall", "f1")]
    assert found == pytest.approx([0.5, 1.0, 2 / 3])


def test_texts_that_a_tagger_was_trained_on_are_named(
    graph: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "He was seen again last week. Today he has gout."
    place = {"start": 42, "end": 46, "type": "A", "entity": "G:1"}
    rows = [{"id": str(n), "text": f"{text} {n}.", "mentions": [place]} for n in range(9)]
    file = tmp_path / "gold.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    save_own_task("mine", file, [])
    data = read_annotated("gold", Folds(graph=graph), Files(), Gold(gold=[file]))
    warn_of_training_texts(["dictionary", "NCBI/minilm"], data)
    assert "was trained on" not in caplog.text
    warn_of_training_texts(["mine/minilm"], data)
    assert "9 of 9 texts have sentences that mine/minilm was trained on" in caplog.text


def test_annotated_texts_are_divided_to_train_on(graph: Path, tmp_path: Path) -> None:
    records = annotated_texts(3)
    write_records(records, tmp_path / "mine.jsonl", "jsonl")
    texts = TrainingTexts(linking=tmp_path / "mine.jsonl").as_gold()
    parts = gold_linking(texts, graph)
    documents = {split: set(own) for split, own in parts.annotated.items()}
    assert sorted(documents) == ["dev", "test", "train"]
    assert {split: len(own) for split, own in documents.items()} == {
        "train": 9,
        "dev": 1,
        "test": 2,
    }
    assert set.union(*documents.values()) == {str(r["id"]) for r in records}
    for split, mentions in parts.splits.items():
        assert {m.document for m in mentions} <= documents[split]
    (tmp_path / "cut").mkdir()
    for part, some in (("train", records[:8]), ("test", records[8:])):
        write_records(some, tmp_path / f"cut/{part}.jsonl", "jsonl")
    cut = gold_linking(TrainingTexts(linking=tmp_path / "cut").as_gold(), graph)
    assert {split: len(own) for split, own in cut.annotated.items()} == {"train": 8, "test": 4}
    write_records(records[:1], tmp_path / "cut/more.jsonl", "jsonl")
    (tmp_path / "cut/train.jsonl").unlink()
    write_records(records[1:8], tmp_path / "cut/train.jsonl", "jsonl")
    with pytest.raises(InputError, match=r"more\.jsonl: its name says none of train"):
        gold_linking(TrainingTexts(linking=tmp_path / "cut").as_gold(), graph)
    assert main(["finetune", "--linking", str(tmp_path / "mine.jsonl")]) == 2
    assert main(["finetune", "NCBI-EL", "--linking", str(tmp_path / "mine.jsonl")]) == 2


def test_ids_are_read_as_everywhere_and_a_repeated_annotation_counts_once(
    tmp_path: Path, runs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = {"G:1": ["gout"], "G:2": ["ataxia"], "a,b": ["fever"]}
    graph = graphs.write(tmp_path / "graph", names)
    lines = ["1|t|Gout. Ataxia, fever.", "1|a|"]
    gold = (("0\t4\tGout", "g_1"), ("6\t12\tAtaxia", "http://x.org/G_2"), ("14\t19\tfever", "a,b"))
    lines += [f"1\t{place}\tD\t{entity}" for place, entity in (*gold, gold[0])]
    (tmp_path / "x.pubtator").write_text("\n".join(lines) + "\n\n")
    caplog.set_level("INFO")
    own = Gold(gold=[tmp_path / "x.pubtator"])
    (result,) = Evaluate(annotated=own, part=Folds(graph=graph)).run()
    assert result.scores[OVERALL]["f1"] == pytest.approx(1)
    assert "left out: 1 repeated annotations" in caplog.text


def test_a_table_of_texts_is_no_gold(graph: Path, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id,text\n1,gout\n")
    with pytest.raises(InputError, match=r"x\.csv: a table of texts holds no annotations"):
        gold_linking(Gold(gold=[tmp_path / "x.csv"]), graph)


def test_what_was_read_is_said_once_and_one_text_has_no_interval(
    graph: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A comparison reads the same texts for each of its chains."""
    mentions = [{"start": 0, "end": 4, "type": "A", "entity": "G:1"}]
    record = {"id": "1", "text": "gout and ataxia", "mentions": mentions}
    (tmp_path / "gold.jsonl").write_text(json.dumps(record) + "\n")
    with caplog.at_level("INFO"):
        for _ in range(2):
            gold_linking(Gold(gold=[tmp_path / "gold.jsonl"]), graph)
    assert caplog.text.count("1 documents, 1 mentions with an entity") == 1
    words = ["--gold", str(tmp_path / "gold.jsonl"), "--graph", str(graph)]
    assert main(["evaluate", *words]) == 0
    assert "none: one text" in capsys.readouterr().out
