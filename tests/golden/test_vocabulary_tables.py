"""Golden examples of tables: of usual columns, of every preset, of translations and of pairs of
names. A few lines in the published layout, and every row of the graph that they mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from kg.build.layouts import preset_names
from kg.build.sources import tables
from kg.build.thesaurus import read_pairs
from kg.build.translations import add_translations
from kg.graph import KnowledgeGraph
from tests.golden.graphs import list_parts
from tests.golden.presets import PRESETS


def write(folder: Path, files: Mapping[str, str], end: str = "\n") -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content.replace("\n", end).encode())
    return folder


USUAL = {
    "entities.csv": 'ID,Name,Kind,note\nD1,Gout  😀 – mild,disease,x\nD2,"Toe, ""big""",N/A,y\n',
    "synonyms.tsv": (
        "id\tname\tkind\tlang\tsab\nD1\tPodagra\tEXACT\tEnglish\tMSH\nD1\t痛风\t\tZHO\t\n"
        "D1\tGout 😀 – mild\tsynonym\ten\t\nD1\tnone\t\t\t\n"
    ),
    "definitions.jsonl": json.dumps({"id": "D1", "text": " Of a\njoint. "}),
    "relations.csv": "head;relation;tail\nD1;is_a;D2\nD1;is_a;D2\n\nD2;near;D1\n",
    "equivalences.csv": "head,tail\nD1,D2\n",
    "readme.md": "# nothing\n",
    ".hidden.csv": "id,name\n",
}


def test_tables_of_usual_columns(tmp_path: Path) -> None:
    """Names of columns and files in other words, cases and numbers; delimiters of headings."""
    folder = write(tmp_path / "own", USUAL, "\r\n")
    assert list_parts(tables.read(folder)) == {
        "entities": [("D1", "Gout 😀 – mild", "disease"), ("D2", 'Toe, "big"', "")],
        "names": [
            ("D1", "Gout 😀 – mild", "preferred", "en", "tables"),
            ("D2", 'Toe, "big"', "preferred", "en", "tables"),
            ("D1", "Podagra", "exact", "en", "MSH"),
            ("D1", "痛风", "synonym", "zh", "tables"),
            ("D1", "Gout 😀 – mild", "synonym", "en", "tables"),
        ],
        "definitions": [("D1", "Of a\njoint.")],
        "triples": [("D1", "is_a", "D2"), ("D2", "near", "D1")],
        "equivalences": [("D1", "equivalent", "D2")],
        "source": "tables in own",
        "version": "not stated",
        "licence": "not stated",
        "left_out": {
            "hidden files": 1,
            "files that are no table (readme.md)": 1,
            "columns of entities.csv that no table of entities has (note)": 1,
            "fields of name that say there is no name (none)": 1,
            "rows of triples that stand there twice": 1,
        },
    }


def test_triples_without_a_heading(tmp_path: Path) -> None:
    path = write(tmp_path, {"kg.tsv": 'a\tr\tb 😀\nb 😀\tr\t"c"\n'}) / "kg.tsv"
    graph = list_parts(
        tables.read(
            path,
            missing="add",
            table_files=tables.TableFiles(headerless=True),
            origin=tables.Origin(language="de"),
        )
    )
    assert graph["entities"] == [("a", "a", ""), ("b 😀", "b 😀", ""), ("c", "c", "")]
    assert graph["triples"] == [("a", "r", "b 😀"), ("b 😀", "r", "c")]
    assert graph["names"][2] == ("c", "c", "preferred", "de", "tables")


@pytest.mark.parametrize("preset", PRESETS)
def test_presets(preset: str, tmp_path: Path) -> None:
    files, name, expected = PRESETS[preset]
    path = write(tmp_path / preset, files, "\r\n") / name
    assert list_parts(tables.read(path, preset=preset)) == {"version": "not stated"} | expected


def test_every_preset_has_an_example() -> None:
    assert sorted(PRESETS) == preset_names()


BABELON = """\
#curie_map: HP
subject_id\tpredicate_id\ttranslation_language\ttranslation_value\tsource_value\ttranslation_status
X:1\trdfs:label\tZH\t痛风  😀\tgout\tOFFICIAL
X:1\toio:hasExactSynonym\tzh\t"脚""风"\t\t
X:1\toboInOwl:hasBroadSynonym\tzh\t风\t\tCANDIDATE
X:1\tIAO:0000115\tzh\t一种病。\tA disease.\tOFFICIAL
X:1\tskos:altLabel\tfr\tgout\t\t
X:1\trdfs:label\tfr\tgoutte\tGout\tOFFICIAL
X:1\trdfs:label\tde\t\tgout\tOFFICIAL
X:9\trdfs:label\tzh\t无\tnothing\tOFFICIAL
"""


def test_babelon(tmp_path: Path) -> None:
    """A label in other words than the graph's, "Gout", is kept and counted."""
    path = write(tmp_path, {"x.babelon.tsv": BABELON}, "\r\n") / "x.babelon.tsv"
    parts = {"entities": [("X:1", "gout", "")], "names": [("X:1", "gout", "preferred", "en", "X")]}
    graph = KnowledgeGraph.from_rows(parts, {"left_out": {"before": 1}})
    assert list_parts(add_translations(graph, [path])) == {
        "entities": [("X:1", "gout", "")],
        "names": [
            ("X:1", "gout", "preferred", "en", "X"),
            ("X:1", "痛风 😀", "exact", "zh", "Babelon official"),
            ("X:1", "风", "broad", "zh", "Babelon candidate"),
            ("X:1", "goutte", "exact", "fr", "Babelon official"),
        ],
        "definitions": [("X:1", "一种病。")],
        "translations": {"zh": 2, "fr": 1},
        "left_out": {
            "before": 1,
            "translations of a predicate that is no name and no definition": 1,
            "translations that repeat a name or definition": 1,
            "translations of a label that the graph has in other words, kept": 1,
            "rows without a translation": 1,
            "translations of terms that the graph lacks": 1,
        },
    }


def test_pairs_of_a_thesaurus(tmp_path: Path) -> None:
    path = write(tmp_path, {"x.tsv": "脚 痛😀\t痛风\n\n腿痛\t 痛风 ## 足痛##\n"}, "\r\n") / "x.tsv"
    pairs = [("脚 痛😀", ["痛风"]), ("腿痛", ["痛风", "足痛"])]
    assert list(read_pairs(path)) == pairs
    rows = [
        {"text": "脚 痛😀", "normalized_result": "痛风"},
        {"text": "腿痛", "normalized_result": "痛风##足痛"},
    ]
    path = write(tmp_path, {"x.json": json.dumps(rows)}) / "x.json"
    assert list(read_pairs(path)) == pairs
