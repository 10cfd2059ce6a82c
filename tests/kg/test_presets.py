"""Vocabularies in their publishers' layouts, by the presets of kg/build/presets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from core.files import InputError
from kg.build.layouts import PRESETS, load_preset, preset_names
from kg.graph import KnowledgeGraph
from tests.commands import command, read_tables
from tests.fakes.vocabularies import WRITERS, write_hgnc

#: {preset: rows of entities, names, definitions, triples, equivalences}
COUNTS = {
    "apoc": (2, 2, 0, 1, 0),
    "drugbank": (2, 3, 0, 0, 0),
    "hgnc": (2, 9, 0, 0, 0),
    "kgx": (3, 5, 1, 1, 1),
    "loinc": (1, 6, 1, 0, 0),
    "ncbigene": (2, 8, 0, 0, 0),
    "neo4j": (2, 4, 0, 1, 0),
    "rxnorm": (2, 4, 0, 1, 0),
    "snomed": (5, 6, 0, 3, 0),
    "sssom": (5, 5, 0, 1, 2),
    "wikidata": (2, 4, 1, 1, 0),
}


def names_of(graph: KnowledgeGraph, entity: str) -> list[tuple[str, str, str]]:
    rows = graph.names.to_pylist()
    return [(r["name"], r["kind"], r["language"]) for r in rows if r["id"] == entity]


def rows_of(table: Any) -> list[tuple[str, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def test_every_preset_has_a_writer_and_counts() -> None:
    assert preset_names() == sorted(WRITERS) == sorted(COUNTS)


@pytest.mark.parametrize("preset", preset_names())
def test_a_vocabulary_is_built_by_the_command_in_its_preset(preset: str, tmp_path: Path) -> None:
    path, out = WRITERS[preset](tmp_path / "in"), tmp_path / "graph"
    assert command("graph build")(["tables", str(path), "--preset", preset, "--out", str(out)]) == 0
    counts = KnowledgeGraph.load(out).counts()
    parts = ("entities", "names", "definitions", "triples", "equivalences")
    assert tuple(counts[part] for part in parts) == COUNTS[preset]
    first = (PRESETS / f"{preset}.yaml").read_text().splitlines()[0]
    assert f"--preset {preset}" in first and "kepl graph build tables" in first


def read(preset: str, folder: Path, **options: Any) -> KnowledgeGraph:
    return read_tables(WRITERS[preset](folder), preset=preset, **options)


def test_what_a_vocabulary_says_is_kept(tmp_path: Path) -> None:
    gene = names_of(read("hgnc", tmp_path / "a"), "HGNC:1")
    assert ("X2", "symbol", "en") in gene and ("OLD1", "obsolete", "en") in gene
    drugs = read("drugbank", tmp_path / "b")
    assert drugs.manifest["alternatives"] == {"DB1": ["BIOD1", "BTD1"]}
    assert names_of(drugs, "DB1")[1] == ("fakir, made", "synonym", "en")
    snomed = read("snomed", tmp_path / "c")
    assert rows_of(snomed.entities)[:2] == [
        ("101", "Fake disease", "disorder"),
        ("102", "Disease (of fakes)", "disorder"),
    ]
    assert rows_of(snomed.triples) == [
        ("101", "is_a", "102"),
        ("102", "is_a", "101"),
        ("101", "Finding_site", "103"),
    ]
    assert snomed.manifest["left_out"]["entities that are no longer active"] == 1
    assert rows_of(read("rxnorm", tmp_path / "d").triples) == [("12", "has_ingredient", "11")]
    genes = read("ncbigene", tmp_path / "e")
    assert ("Na", "symbol", "en") in names_of(genes, "1")  # sodium's symbol is a name
    assert len(names_of(genes, "2")) == 1  # a hyphen is none
    kgx = read("kgx", tmp_path / "f")
    assert rows_of(kgx.equivalences) == [("A:1", "same_as", "B:1")]
    assert rows_of(kgx.entities)[2] == ("B:1", "B:1", "")
    assert rows_of(read("neo4j", tmp_path / "g").triples) == [("D1", "CAUSES", "D2")]
    mappings = read("sssom", tmp_path / "h")
    assert ("A:1", "exactMatch", "B:1") in rows_of(mappings.equivalences)
    assert rows_of(mappings.triples) == [("A:1", "broadMatch", "B:2")]


def test_wikidata_by_language(tmp_path: Path) -> None:
    graph = read("wikidata", tmp_path)
    assert names_of(graph, "Q1") == [
        ("gout", "preferred", "en"),
        ("Gicht", "synonym", "de"),
        ("podagra", "synonym", "en"),
    ]
    assert rows_of(graph.triples) == [("Q1", "instance_of", "Q2")]
    german = read("wikidata", tmp_path, language="de")
    assert rows_of(german.entities) == [("Q1", "Gicht", "Q2")]


def test_a_wrong_preset_and_a_missing_column_say_which_columns_exist(tmp_path: Path) -> None:
    path = write_hgnc(tmp_path)
    with pytest.raises(InputError, match=r"txt:1: no column DrugBank ID, Common name.*it has hgnc"):
        read_tables(path, preset="drugbank")
    path.write_text(path.read_text().replace("symbol\t", "sign\t", 1))
    with pytest.raises(InputError, match=r"no column symbol, .*hgnc_id, sign, name"):
        read_tables(path, preset="hgnc")
    assert len(read_tables(path, preset="hgnc", columns=["name=sign"]).entities) == 2
    with pytest.raises(InputError, match="no such preset; did you mean hgnc?"):
        read_tables(path, preset="hgncc")
    with pytest.raises(InputError, match=r"names its files and columns itself"):
        read_tables(path, preset="hgnc", headerless=True)
    with pytest.raises(InputError, match=r"no file for the preset snomed .*sct2_concept"):
        read_tables(tmp_path, preset="snomed")
    path.write_text("")
    with pytest.raises(InputError, match="the file is empty"):
        read_tables(path, preset="hgnc")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_marks_line_ends_and_utf_16(tmp_path: Path, encoding: str, end: str) -> None:
    path = write_hgnc(tmp_path)
    path.write_bytes(path.read_text().replace("\n", end).replace("abc one", "α").encode(encoding))
    graph = read_tables(path, preset="hgnc")
    assert ("α", "exact", "en") in names_of(graph, "HGNC:1") and len(graph.entities) == 2


def test_repeated_ids_of_a_vocabulary_are_errors_with_their_line(tmp_path: Path) -> None:
    path = write_hgnc(tmp_path)
    path.write_text(path.read_text().replace("HGNC:2", "HGNC:1"))
    with pytest.raises(InputError, match=r"txt:3: entity id 'HGNC:1' occurs twice"):
        read_tables(path, preset="hgnc")


def test_a_preset_of_ones_own_and_its_errors(tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    text = "tables:\n- entities: {id: 'X:{no}', name: '{label}'}\n"
    own.write_text(text)
    (tmp_path / "t.csv").write_text("no|label\n1|one\n2|\n")
    graph = read_tables(tmp_path / "t.csv", preset=str(own))
    assert rows_of(graph.entities) == [("X:1", "one", "")]
    assert graph.manifest["left_out"]["rows of entities whose name is empty"] == 1
    for broken, message in (
        ("tables: []", "a list of tables"),
        (text.replace("name:", "nam:"), "no key 'nam'; did you mean name?"),
        ("tables:\n- {files: [a]}", "expected one of"),
        ("a: [", "not YAML"),
        ("- a", "expected about, advice"),
        (text + "  names: {name: '{b}', kind: exat}", "no kind of name 'exat'"),
    ):
        own.write_text(broken)
        with pytest.raises(InputError, match=message):
            load_preset(str(own))


def test_the_first_twenty_errors_are_one_message(tmp_path: Path) -> None:
    rows = "".join(f"E{n},\n" for n in range(30))
    (tmp_path / "entities.csv").write_text("id,name\n" + rows)
    with pytest.raises(InputError) as caught:
        read_tables(tmp_path)
    lines = str(caught.value).splitlines()
    assert lines[0] == "the first 20 errors:" and len(lines) == 21
    assert "entities.csv:2: name is empty" in lines[1] and "entities.csv:21:" in lines[20]
    (tmp_path / "entities.csv").write_text("id,name\nE1,a\nE2\nE1,b\nE3,c,d\n")
    with pytest.raises(InputError) as caught:
        read_tables(tmp_path)
    assert [line.partition(".csv:")[2][:2] for line in str(caught.value).splitlines()[1:]] == [
        "3:",
        "4:",
        "5:",
    ]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_a_delimiter_is_the_headings_or_named(tmp_path: Path, mark: str) -> None:
    path = tmp_path / "entities.csv"
    path.write_text(f'id{mark}name\nE1{mark}"a,b;c"\n')
    assert read_tables(tmp_path).entities["name"].to_pylist() == ["a,b;c"]
    assert read_tables(path).entities["name"].to_pylist() == ["a,b;c"]  # a single file of entities
    path.write_text("id:name\nE1:a\n")
    assert read_tables(path, delimiter=":").entities["name"].to_pylist() == ["a"]
    with pytest.raises(InputError, match="--delimiter ab: expected one character"):
        read_tables(path, delimiter="ab")


def test_columns_of_one_table_and_keys_inside_keys(tmp_path: Path) -> None:
    (tmp_path / "entities.jsonl").write_text('{"key": 7, "labels": {"en": {"value": "gout"}}}\n')
    (tmp_path / "names.csv").write_text("id,title,class\n7,podagra,exact\n")
    columns = ["entities.id=key", "entities.name=labels.en.value", "names.name=title"]
    graph = read_tables(tmp_path, columns=[*columns, "names.kind=class"])
    assert names_of(graph, "7") == [("gout", "preferred", "en"), ("podagra", "exact", "en")]
    with pytest.raises(InputError, match="--columns name.x=y"):
        read_tables(tmp_path, columns=["name.x=y"])


def test_a_workbook(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.title = "first"
    sheet = book.create_sheet("codes")
    for row in (
        ["id", "name", "type"],
        [1, "gout", "disease"],
        [None, None, None],
        ["02", "NA", ""],
    ):
        sheet.append(row)
    book.active.append(["id", "title"])
    book.save(tmp_path / "codes.xlsx")
    graph = read_tables(tmp_path / "codes.xlsx", sheet="codes")
    assert rows_of(graph.entities) == [("1", "gout", "disease")]
    assert graph.manifest["left_out"] == {
        "entities whose name says that there is none (NA)": 1,
    }
    with pytest.raises(
        InputError, match=r"Read is the sheet 'first'; --sheet takes another: codes"
    ):
        read_tables(tmp_path / "codes.xlsx", columns=["id=code"])
    with pytest.raises(InputError, match="no sheet 'x'; choose from: first, codes"):
        read_tables(tmp_path / "codes.xlsx", sheet="x")
    (tmp_path / "codes.xlsx").write_text("id,name\n")
    with pytest.raises(InputError, match="no workbook that can be read"):
        read_tables(tmp_path / "codes.xlsx")


def test_a_name_that_says_there_is_none_takes_its_rows_along(tmp_path: Path) -> None:
    (tmp_path / "entities.csv").write_text("id,name\nE1,a\nE2,N/A\n")
    (tmp_path / "triples.csv").write_text("head,relation,tail\nE1,r,E2\n")
    (tmp_path / "names.csv").write_text("id,name\nE1,null\nE1,b\n")
    graph = read_tables(tmp_path)
    assert graph.counts()["entities"] == 1 and len(graph.triples) == 0
    assert graph.manifest["left_out"] == {
        "entities whose name says that there is none (N/A)": 1,
        "fields of name that say there is no name (null)": 1,
        "rows of triples with an id that no entity has": 1,
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("files: t.csv", "files: expected a list of names of files"),
        ("columns: id", "columns: expected a list of names of columns"),
        ("quotes: maybe", "quotes: expected true or false"),
        ("delimiter: 3", "delimiter: expected a text"),
        ('match: {id: "("}', "match: expected columns and their regular expressions"),
        ("match: [id]", "match: expected columns and their regular expressions"),
        ("rename: [[a]]", "rename: expected a list of"),
        ('rename: [["(", b]]', "rename: expected a list of"),
        ('"null": none', "null: expected a list of texts"),
        ("where: {active: yes}", "where and unless: active: expected texts, got True. Put words"),
        ("unless: {active: [[1]]}", "where and unless: active: expected texts"),
        ("each: [labels]", "each: expected a path of keys"),
    ],
)
def test_a_value_of_another_kind_in_a_preset_is_named(tmp_path: Path, line: str, said: str) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text(f'tables:\n- entities: {{id: "{{id}}", name: "{{name}}"}}\n  {line}\n')
    with pytest.raises(InputError, match=rf"mine\.yaml: tables\[0\]: {said}"):
        load_preset(str(own))


def test_rows_that_conditions_leave_out_are_counted(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,name,status\nA,fever,active\nB,cough,old\nC,pain,old\n")
    for condition, count in (("where: {status: active}", 2), ("unless: {status: [old]}", 2)):
        own = tmp_path / "mine.yaml"
        own.write_text(
            'tables:\n- files: ["t.csv"]\n  entities: {id: "{id}", name: "{name}"}\n'
            f"  {condition}\n"
        )
        graph = read_tables(tmp_path, preset=str(own))
        assert graph.ids.to_pylist() == ["A"]
        left = graph.manifest["left_out"]
        assert left["rows of t.csv that the preset's conditions leave out"] == count


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"separator": ";"}, "--separator ;: parts the names in columns of --synonyms"),
        ({"sheet": "Names"}, "--sheet Names: is of .xlsx workbook, and none is read"),
        ({"entities": ["t.csv"]}, "--entities: names files in a folder"),
    ],
)
def test_options_that_a_table_cannot_use_are_refused(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    (tmp_path / "t.csv").write_text("id,name\nA,fever\n")
    with pytest.raises(InputError, match=said):
        read_tables(tmp_path / "t.csv", **options)


def test_a_delimiter_is_refused_where_no_table_is_delimited(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": "A", "name": "fever"}\n')
    with pytest.raises(InputError, match="--delimiter tab: is of delimited text"):
        read_tables(tmp_path / "t.jsonl", delimiter="tab")


@pytest.mark.parametrize("mark", ['"{}', '"{}"'], ids=["open", "both"])
@pytest.mark.parametrize("preset", ["ncbigene", "rxnorm", "snomed"])
def test_a_quotation_mark_is_a_character_where_the_publisher_quotes_nothing(
    preset: str, mark: str, tmp_path: Path
) -> None:
    """Read as the beginning of a quoted field, it would swallow the lines after it."""
    plain = read(preset, tmp_path / "plain")
    path = WRITERS[preset](tmp_path / "marked")
    marked = set()
    for file in sorted(p for p in path.parent.rglob("*") if p.is_file()):
        text = file.read_bytes().decode()
        for name in plain.names.column("name").to_pylist():
            field = re.compile(rf"([|\t]){re.escape(name)}(?=[|\t\r])")
            if field.search(text):
                shown = mark.format(name)
                text = field.sub(lambda found, shown=shown: found[1] + shown, text)
                marked.add(shown)
        file.write_bytes(text.encode())
    made = read_tables(path, preset=preset)
    for part in ("entities", "triples"):
        assert made.counts()[part] == plain.counts()[part]
    assert marked and marked <= set(made.names.column("name").to_pylist())
