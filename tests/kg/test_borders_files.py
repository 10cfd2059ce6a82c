"""Files of other people, and folders that a command must not delete."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from app.cli import main
from core.artifact import Artifact
from core.files import InputError
from core.json_files import json_lines
from inference.output_formats import pubtator
from kg.build.draft import parse_language
from kg.documents.brat import OF_NONE
from kg.documents.formats import documents
from kg.graph import KnowledgeGraph
from tests.fakes.graphs import graph

THING = Artifact("thing", "kepl thing", keys=("made_of",))


def build_thing(folder: Path, made_of: str) -> bool:
    """Whether it was built."""
    if THING.is_kept(folder, {"made_of": made_of}):
        return False
    with THING.create(folder, {"made_of": made_of}) as partial:
        (partial / "own").write_text(made_of)
    return True


def test_what_somebody_put_into_a_built_folder_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "thing"
    assert build_thing(folder, "a") and not build_thing(folder, "a")
    (folder / "notes").mkdir()
    (folder / "notes" / "mine.txt").write_text("mine")
    capsys.readouterr()
    assert build_thing(folder, "b")
    assert "in place of a thing of other made_of" in capsys.readouterr().err
    assert (folder / "notes" / "mine.txt").read_text() == "mine"
    assert (folder / "own").read_text() == "b"
    THING.read(folder)
    assert not build_thing(folder, "b")


@pytest.mark.parametrize("content", ["file", "another thing"])
def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    if content == "file":
        (folder / "thesis.txt").write_text("precious")
    else:
        graph({"A": "D"}, []).save(folder)
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(InputError, match="no thing; it is left alone"), THING.create(folder, {}):
        pass
    assert sorted(path.name for path in folder.iterdir()) == before
    with THING.create(tmp_path / "empty", {"made_of": 1}):
        pass


@pytest.mark.parametrize("content", ["file", "graph"])
def test_an_index_replaces_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    graph({"A": "D"}, [], [("A", "gout", "synonym", "en")]).save(tmp_path / "g")
    folder = tmp_path / "folder"
    folder.mkdir()
    if content == "file":
        (folder / "thesis.txt").write_text("precious")
    else:
        graph({"B": "D"}, []).save(folder)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    words = ["--graph", str(tmp_path / "g"), "--chain", "dictionary > minilm", "--text", "gout"]
    assert main(["link", *words, "--index", str(folder)]) == 2
    assert str(folder) in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_text_file_of_something_else_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "texts.jsonl"
    out.write_text("mine\n")
    words = ["graph", "texts", "hpo", "--share", "0.0005", "--out"]
    assert main([*words, str(out)]) == 2
    assert "no text of a graph's source; it is left alone" in capsys.readouterr().err
    assert out.read_text() == "mine\n"
    for _ in range(2):  # its own output is
        assert main([*words, str(tmp_path / "own.jsonl")]) == 0


RECORD = {"id": "1", "text": "Fever ache", "mentions": [{"start": 0, "end": 5, "type": "D"}]}


def test_convert_names_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text(json.dumps(RECORD))
    for words in ([str(source), "-"], ["-", str(tmp_path / "b.csv")], [str(source), "/dev/stdout"]):
        assert main(["convert", *words, "--to", "csv"]) == 2
        assert "name it" in capsys.readouterr().err
    folder = tmp_path / "brat"
    assert main(["convert", str(source), str(folder)]) == 0
    (folder / "annotation.conf").write_text("mine")
    assert main(["convert", str(source), str(folder), "--fresh"]) == 2
    assert "annotation.conf" in capsys.readouterr().err and (folder / "annotation.conf").exists()
    (folder / "annotation.conf").unlink()
    (folder / "my_notes.txt").write_text("mine")  # a text without annotations is nobody's output
    assert main(["convert", str(source), str(folder), "--fresh"]) == 2
    assert "my_notes.txt" in capsys.readouterr().err
    (folder / "my_notes.txt").unlink()
    assert main(["convert", str(source), str(folder), "--fresh"]) == 0


def read(path: Path, form: str | None = None) -> tuple[list[tuple[int, int]], Counter[str]]:
    left_out = Counter[str]()
    (document,) = documents([path], form, left_out=left_out)
    found = sorted((*document.mentions, *document.unlinked))
    return [(m.start, m.end) for m in found], left_out


def write_json(path: Path, **mention: object) -> Path:
    path.write_text(json.dumps({"id": 1, "text": "😀 I have fever", "mentions": [mention]}) + "\n")
    return path


def test_a_mention_of_json_covers_its_text(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_json(path, start=9, end=14, text="fever", entity="A1")
    assert read(path)[0] == [(9, 14)]
    write_json(path, start=10, end=14, text="fever", entity="A1")  # UTF-16 counts one more
    with pytest.raises(InputError, match=r"covers 'ever', the file says 'fever'"):
        read(path)


@pytest.mark.parametrize(("start", "end"), [("9", "14"), (9.0, 14), (True, 14), (None, 14)])
def test_offsets_are_whole_numbers(tmp_path: Path, start: object, end: object) -> None:
    path = write_json(tmp_path / "a.jsonl", start=start, end=end, entity="A1")
    with pytest.raises(InputError, match="expected whole numbers as the start and end"):
        read(path)


def test_numbers_of_brat_are_given_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Fever ache")
    notes = tmp_path / "a.ann"
    notes.write_text(
        "T1\tDis 0 5\tFever\nT2\tDis 6 10\tache\nN1\tReference T9 X:1\nA1\tNegated T7\n"
    )
    places, left_out = read(notes)
    assert places == [(0, 5), (6, 10)] and left_out[OF_NONE] == 2
    notes.write_text("T1\tDis 0 5\tFever\nT1\tDis 6 10\tache\n")
    with pytest.raises(InputError, match=r"a\.ann:2: a second T1"):
        read(notes)


def test_denotations_have_ids_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    spans = [{"begin": 0, "end": 5}, {"begin": 6, "end": 10}]
    notes = [{"id": "T1", "span": span, "obj": "Dis"} for span in spans]
    path.write_text(json.dumps({"text": "Fever ache", "denotations": notes}))
    with pytest.raises(InputError, match="a second denotation 'T1'"):
        read(path, "pubannotation")
    for note in notes:
        del note["id"]
    path.write_text(json.dumps({"text": "Fever ache", "denotations": notes}))
    assert read(path, "pubannotation")[0] == [(0, 5), (6, 10)]


def test_blank_lines_hold_no_records(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('\n{"a": 1}\n \t\n{"a": 2}\n\n')
    assert list(json_lines(path)) == [(f"{path}:2", {"a": 1}), (f"{path}:4", {"a": 2})]
    path.write_text('\n{"a": 1}\n\n{"a"')
    with pytest.raises(InputError, match=r"a\.jsonl:4: not valid JSON"):
        list(json_lines(path))


def test_ids_of_a_composite_mention_stay_apart_in_pubtator() -> None:
    mention = {"start": 0, "end": 4, "type": "A|B", "entity": "D1|D2\t3", "score": 1.0}
    line = {"id": "a|b", "text": "gout|x", "mentions": [mention]}
    assert pubtator(line) == "a b|t|gout x\na b|a|\na b\t0\t4\tgout\tA|B\tD1|D2 3\n\n"


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("en-US", "en"),
        ("en_GB", "en"),
        ("zh-Hans", "zh"),
        ("zh-Hant-TW", "zh"),
        ("eng-Latn", "en"),
        ("DE", "de"),
        ("English", "en"),
        ("", ""),
        ("english (US)", None),
        ("x1", None),
    ],
)
def test_a_language_s_region_is_no_part_of_its_code(tag: str, code: str | None) -> None:
    assert parse_language(tag) == code


def build_tables(folder: Path, preset: str, **files: str) -> KnowledgeGraph:
    (folder / "in").mkdir(parents=True)
    for name, content in files.items():
        (folder / "in" / name.replace("__", ".")).write_text(content)
    words = ["graph", "build", "tables", str(folder / "in"), "--preset", preset]
    assert main([*words, "--out", str(folder / "out")]) == 0
    return KnowledgeGraph.load(folder / "out")


def test_mappings_to_nothing_and_by_whole_addresses(tmp_path: Path) -> None:
    rows = [
        "subject_id\tsubject_label\tpredicate_id\tpredicate_modifier\tobject_id\tobject_label",
        "A:1\tfever\tskos:exactMatch\t\tsssom:NoTermFound\t",
        "A:2\tcough\tskos:exactMatch\t\tsssom:NoTermFound\t",
        "A:3\tpain\thttp://www.w3.org/2004/02/skos/core#exactMatch\t\tB:3\tache",
        "A:3\tpain\thttp://www.w3.org/2004/02/skos/core#broadMatch\t\tB:4\tsymptom",
    ]
    found = build_tables(tmp_path, "sssom", x__sssom__tsv="\n".join(rows) + "\n")
    assert sorted(found.ids.to_pylist()) == ["A:3", "B:3", "B:4"]
    assert [*found.rows("equivalences", "head", "relation", "tail")] == [
        ("A:3", "exactMatch", "B:3")
    ]
    assert [*found.rows("triples", "head", "relation", "tail")] == [("A:3", "broadMatch", "B:4")]


def test_names_are_added_from_a_table_with_a_heading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph({"A1": "D"}, [], [("A1", "gout", "synonym", "en")]).save(tmp_path / "g")
    words = ["graph", "add", str(tmp_path / "g"), str(tmp_path / "n.csv")]
    words += ["--out", str(tmp_path / "out")]
    (tmp_path / "n.csv").write_text("A1,podagra\nA1,toe\n")
    assert main(words) == 2
    assert "expected the columns id and name" in capsys.readouterr().err
    (tmp_path / "n.csv").write_text("id,name\nA1,podagra\nA1,N/A\nA1,null\n")
    assert main(words) == 0
    assert "say there is no name (N/A)" in capsys.readouterr().out
    names = KnowledgeGraph.load(tmp_path / "out").names["name"].to_pylist()
    assert "podagra" in names and "N/A" not in names and "null" not in names


def test_fields_of_mentions_that_no_other_format_has_are_counted(tmp_path: Path) -> None:
    mention = {"start": 0, "end": 5, "entity": "A", "name": "fever", "matched": None, "part": "p"}
    (tmp_path / "a.jsonl").write_text(json.dumps(RECORD | {"mentions": [mention]}))
    _, left_out = read(tmp_path / "a.jsonl")
    assert {reason: count for reason, count in left_out.items() if count} == {
        "fields of mentions that are not read (name)": 1,
        "fields of mentions that are not read (part)": 1,
    }


def test_a_tag_of_conll_has_a_type(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("Fever\tB-Dis\nache\tB-\n")
    with pytest.raises(InputError, match=r"a\.conll:2: expected a type behind B-"):
        read(tmp_path / "a.conll")


def test_repeated_rows_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "entities.csv").write_text("id,name,type\nA1,gout,D\nA2,acne,D\nA1,gout,D\n")
    words = ["graph", "build", "tables", str(folder), "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert "left out: 1 rows that are repeated" in capsys.readouterr().out
    (folder / "entities.csv").write_text("id,name,type\nA1,gout,D\nA1,gout,E\n")
    assert main([*words, "--fresh"]) == 2
    assert "entities.csv:3: entity id 'A1' occurs twice" in capsys.readouterr().err
    (folder / "entities.csv").write_text("code,label\nA1,gout\n")
    assert main(["graph", "build", "tables", str(folder / "entities.csv"), *words[4:]]) == 2
    assert "--columns" in capsys.readouterr().err


def test_synonyms_that_say_there_is_none_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    term = '[Term]\nid: X:1\nname: gout\nsynonym: "N/A" EXACT []\nsynonym: "podagra" EXACT []\n'
    (tmp_path / "a.obo").write_text(f"format-version: 1.2\n\n{term}")
    words = ["graph", "build", "obo", str(tmp_path / "a.obo"), "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert "left out: 1 synonyms that say there is no name" in capsys.readouterr().out
    names = KnowledgeGraph.load(tmp_path / "out").names["name"].to_pylist()
    assert sorted(names) == ["gout", "podagra"]
