"""Files of other people's making as one's own task: their names, their tags, their faults."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import spacy
from spacy.tokens import DocBin, Span

from core.files import InputError
from datamodules.tasks import load_task
from datamodules.tasks.own import part_of_name, save_own_task, split_files
from kg.documents.formats import annotated_documents, format_of

pytestmark = pytest.mark.usefixtures("runs")


def read_conll(tmp_path: Path, text: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """(text, [(mention, type), …]) of each document."""
    path = tmp_path / "x.conll"
    path.write_text(text, newline="")
    return [
        (d.text, [(d.text[m.start : m.end], m.type) for m in sorted((*d.mentions, *d.unlinked))])
        for d in annotated_documents([path], None, Counter())
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tB\nb\tI\nc\tO\nd\tB\n", [("a b", "Entity"), ("d", "Entity")]),
        ("a\tB-X\t\nb\tI-X\t\nc\tO\t\n", [("a b", "X")]),  # a tab ends each line
        ("a\tb-x\nb\ti-x\nc\to\n", [("a b", "x")]),
        ("B-ORG\tEU\nO\trejects\nB-MISC\tGerman\n", [("EU", "ORG"), ("German", "MISC")]),
        ("1\tHeLa\t_\tB-X\n2\tcells\t_\tI-X\n3\tgrow\t_\tO\n", [("HeLa cells", "X")]),
        ("a B-X\nb E-X\nc I-X\nd E-X\n", [("a b", "X"), ("c d", "X")]),
        ("a S-X\nb E-X\n", [("a", "X"), ("b", "X")]),
        ("a U-X\nb L-X\nc O\n", [("a", "X"), ("b", "X")]),
        ("a NN B-B-cell\nb NN I-B-cell\n", [("a b", "B-cell")]),
        ("B Disease\nI O\nc O\n", [("B", "Disease")]),  # plain types; words that look like tags
    ],
)
def test_columns_and_tags_of_conll(
    tmp_path: Path, text: str, expected: list[tuple[str, str]]
) -> None:
    ((_, found),) = read_conll(tmp_path, text)
    assert found == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a\tB-X\nb\t0\n", r"x\.conll:2: the tag 0; expected the letter O"),
        ("a\tB-X\nb\t\n", r"x\.conll:2: expected a token and its tag"),
        ("a\tB-X\nb\tI-\n", r"x\.conll:2: expected a type behind I-"),
    ],
)
def test_faulty_tags_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_conll(tmp_path, text)


def test_spans_of_spacy_are_read(tmp_path: Path) -> None:
    doc = spacy.blank("en")("He has gout and fever")
    doc.ents = [Span(doc, 2, 3, label="D")]
    doc.spans["sc"] = [Span(doc, 4, 5, label="S", kb_id="E5"), Span(doc, 2, 3, label="D")]
    DocBin(docs=[doc]).to_disk(tmp_path / "x.spacy")
    (read,) = annotated_documents([tmp_path / "x.spacy"], None, Counter())
    assert [(m.start, m.entity, m.type) for m in read.mentions] == [(16, "E5", "S")]
    assert [(m.start, m.type) for m in read.unlinked] == [(7, "D")]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("train.conll", "train"),
        ("BC5CDR_train.pubtator", "train"),
        ("my-devel-set.txt", "dev"),
        ("validation", "dev"),
        ("NCBITestSet.txt", "test"),
        ("n0.txt", None),
        ("stressful.txt", None),
        ("train_dev.conll", None),
    ],
)
def test_parts_by_the_words_of_a_name(name: str, part: str | None) -> None:
    assert part_of_name(name) == part


def write(folder: Path, *names: str) -> Path:
    folder.mkdir()
    for name in names:
        (folder / name).write_text(f"gout{len(name)}\tB-X\nhurts\tO\n")
    return folder


def test_files_of_no_part_beside_parts_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", "my_train.conll", "my_dev.conll", "test.conll")
    found = {part: [path.name for path in own] for part, own in split_files(folder).items()}
    assert found == {
        "dev": ["my_dev.conll"],
        "train": ["my_train.conll"],
        "test": ["test.conll"],
    }
    with pytest.raises(InputError, match=r"n0\.conll: its name says none of .*Rename the files"):
        split_files(write(tmp_path / "b", "training-day.conll", "n0.conll"))
    with pytest.raises(InputError, match="files of dev and test, none of train"):
        split_files(write(tmp_path / "c", "dev.conll", "test.conll"))
    pooled = split_files(write(tmp_path / "d", "stress-test.conll", "n0.conll"))
    assert [path.name for path in pooled["train"]] == ["n0.conll", "stress-test.conll"]


def test_formats_are_known_by_content_or_named(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"text": "gout", "denotations": []}')
    (tmp_path / "b.json").write_text('{"documents": [{"id": "1", "passages": []}]}')
    (tmp_path / "j.json").write_text('{"id": "1", "text": "a \\"denotations\\" b"}')
    names = ("p.json", "b.json", "j.json", "x.iob2")
    assert [format_of(tmp_path / name) for name in names] == [
        "pubannotation",
        "biocjson",
        "jsonl",
        "conll",
    ]
    lines = "".join(f"# id = {n}\ngout\tB-X\nhurts\tO\n\n" for n in range(5))
    (tmp_path / "corpus.tsv").write_text(lines)
    with pytest.raises(InputError, match=r"corpus\.tsv: a table .* --data-format\) conll"):
        save_own_task("mine", tmp_path / "corpus.tsv", [])
    task = load_task(save_own_task("mine", tmp_path / "corpus.tsv", [], format="conll"))
    assert task.labels == ["X"]


def test_two_documents_of_one_id_are_named(tmp_path: Path) -> None:
    text = "".join(f"# id = {n}\ngout\tB-X\n\n" for n in (1, 2, 1))
    (tmp_path / "x.conll").write_text(text)
    with pytest.raises(
        InputError, match=r"x\.conll:7: a second document has the id '1'; .*conll:1"
    ):
        save_own_task("mine", tmp_path / "x.conll", [])


def test_answers_of_one_kind_are_refused(tmp_path: Path) -> None:
    rows = (f'{{"question": "q{n}", "answer": "a", "label": 0}}\n' for n in range(9))
    (tmp_path / "x.jsonl").write_text("".join(rows))
    with pytest.raises(InputError, match=r"x\.jsonl: every answer .* has the label 0"):
        save_own_task("mine", tmp_path / "x.jsonl", [])


def test_a_second_label_of_no_relation_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    labels = ("none", "No_Relation", "causes")
    rows = (
        f'{{"text": "ab cd", "head": [0, 2], "tail": [3, 5], "label": "{labels[n % 3]}"}}\n'
        for n in range(30)
    )
    (tmp_path / "x.jsonl").write_text("".join(rows))
    save_own_task("mine", tmp_path / "x.jsonl", [])
    assert "No_Relation and none are both labels of no relation" in caplog.text
