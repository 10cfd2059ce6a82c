"""Annotated mentions that a graph contains (KeBioLM's Table 1)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from app.cli import main
from benchmarks import overlap as module
from benchmarks.options import Choices
from benchmarks.overlap import Overlap, between, mentions_of, overlap
from benchmarks.publish import publish
from benchmarks.results import list_stored, save_result
from core.files import InputError
from datamodules.tasks.prepare import find_task
from kg.linking.normal import comparable
from tests.fakes import blurb, chineseblue
from tests.fakes.graphs import graph
from tests.fakes.results import markdown


@pytest.fixture
def known_graph(tmp_path: Path) -> str:
    """A graph with three names."""
    made = graph(
        {"Foozin": "drug", "bar-pox": "disease"},
        [("Foozin", "treats", "bar-pox")],
        [("Foozin", "QUX2", "synonym", "en")],
    )
    return str(made.save(tmp_path / "graph"))


def test_a_form_forgets_case_and_white_space_and_nothing_else():
    assert comparable("Non - small  Cell") == comparable("non-small cell") == "non - small cell"
    assert comparable("HIV") != comparable("HIV 1") != comparable("HIV-1")


def test_text_between_markers_and_its_offset_without_them():
    markers = ("[S]", "[/S]", "[O]", "[/O]")
    assert list(between("a[S]bc[/S]d[O]e[/O]f", markers)) == [(1, "bc"), (4, "e")]
    assert list(between("[S]b[O]c[/O][/S]", markers)) == [(1, "c"), (0, "bc")]
    assert list(between("none", markers)) == []


def test_mentions_of_entity_sets_are_those_that_are_annotated(tmp_path: Path):
    blurb.write("NCBI", tmp_path)
    mentions = mentions_of(find_task("NCBI"), tmp_path)
    assert mentions is not None and len(mentions) % 4 == 0
    assert Counter(mentions).keys() == {"Foozin", "bar pox", "qux", "zyxes"}


def test_chemprots_mentions_are_those_in_an_example_once_each(tmp_path: Path):
    blurb.write("ChemProt", tmp_path)
    mentions = mentions_of(find_task("ChemProt"), tmp_path)
    # title: Foozin, BAR1; then Foozin, BAR1; then QUX2 alone in its sentence, in no pair; then
    # Zyxol inside Zyxol-QUX2
    assert mentions is not None
    one = Counter({"Foozin": 2, "BAR1": 2, "Zyxol": 1, "Zyxol-QUX2": 1})
    splits = len(mentions) // one.total()
    assert splits == 3 and Counter(mentions) == Counter({k: splits * n for k, n in one.items()})


def test_ddis_mentions_keep_the_parts_of_those_in_pieces(tmp_path: Path):
    blurb.write("DDI", tmp_path)
    mentions = Counter(mentions_of(find_task("DDI"), tmp_path) or [])
    documents = mentions["Foozin"]
    drugs = [
        "Foozin",
        "barol",
        "mu- blocking quxes",
        "nu-blocking quxes",
        "foozin",
        "Alfin",
        "betin",
    ]
    assert mentions == Counter(dict.fromkeys(drugs, documents))


def test_gad_has_no_mentions(tmp_path: Path):
    blurb.write("GAD", tmp_path)
    assert mentions_of(find_task("GAD"), tmp_path) is None


def test_mentions_of_chinese_relations_are_between_markers(tmp_path: Path):
    chineseblue.write("CMeIE", tmp_path)
    mentions = mentions_of(find_task("CMeIE"), tmp_path)
    assert mentions and not any("[" in m for m in mentions)


def test_counts_of_mentions_and_of_different_ones():
    assert overlap(["A b", "a  B", "c", "d"], {"a b", "d", "x"}) == Overlap(4, 3, 3, 2)
    assert overlap([], {"a"}) == Overlap(0, 0, 0, 0)


def test_the_command_counts_what_is_available_and_names_the_rest(
    tmp_path: Path, known_graph, capsys, monkeypatch
):
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path / "runs"))
    data = tmp_path / "data"
    for name in ("NCBI", "ChemProt", "GAD"):
        blurb.write(name, data / name)
    monkeypatch.setattr(module, "fetch_dataset", lambda dataset, place, mirrors: data / dataset)
    assert main(["overlap", "NCBI", "ChemProt", "GAD", "DDI", f"GRAPH={known_graph}"]) == 0
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line}
    total = len(mentions_of(find_task("NCBI"), data / "NCBI") or [])
    assert lines["NCBI"][1:3] == [str(total), str(total // 4)]  # Foozin; "bar pox" is not "bar-pox"
    assert lines["ChemProt"][1:3] == ["18", "6"]  # Foozin twice in each split; QUX2 is in no pair
    results = {result.task: result for result in list_stored("overlap")}
    assert set(results) == {"NCBI", "ChemProt"}
    assert results["ChemProt"].scores["overall"]["mentions"] == 18
    assert set(results["ChemProt"].data) == {"graph", "mentions"}
    _, records = publish([tmp_path / "runs" / "overlap"], "overlap", root=tmp_path)
    found = {record.id: record for record in records}
    assert (found["chemprot-mentions"].value, found["chemprot-share"].value) == (18, 0.333333)
    assert found["chemprot-share"].argv[:2] == ["overlap", "NCBI"]
    (chemprot,) = [result for result in results.values() if result.task == "ChemProt"]
    save_result(chemprot, tmp_path / "runs" / "overlap" / "again")
    with pytest.raises(InputError, match="chemprot-mentions: several results have this id"):
        publish([tmp_path / "runs" / "overlap"], "overlap", root=tmp_path)
    assert lines["GAD"][1] == "-" and lines["DDI:"][1:3] == ["not", "counted:"]
    table = markdown("kebiolm", "1", Choices(graph=str(known_graph))).splitlines()
    (row,) = [line for line in table if line.startswith("| ChemProt ")]
    assert row.split("|")[2:8] == [" 39,022 ", " 13,106 ", " 10,772 ", " 18 ", " 6 ", ""]


def test_a_kebiolms_table_can_be_asked_in_place_of_a_graph(
    tmp_path: Path, known_graph, monkeypatch
):
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "entities.txt").write_text("bar-pox\n")
    (tmp_path / "export" / "names.parquet").write_bytes(
        (Path(known_graph) / "names.parquet").read_bytes()
    )

    class Found:
        folder = str(tmp_path / "export")

    monkeypatch.setattr(module, "encoder", lambda name, checkpoint: Found)
    assert module.model_forms("kebiolm") == {"bar - pox"}
    (tmp_path / "export" / "entities.txt").unlink()
    with pytest.raises(module.InputError, match="entities.txt: missing"):
        module.model_forms("kebiolm")


@pytest.mark.parametrize(
    "words, wanted",
    [
        (["cMedQQ"], "cMedQQ: a task without annotated mentions"),
        (["NCBI", "GRAPH=nowhere"], "GRAPH=nowhere: no such folder"),
        (["NCBI", "GRAPH=a", "MODEL=b"], "expected one of the two"),
        (["NCIB"], "no task 'NCIB'"),
    ],
)
def test_what_cannot_be_counted_is_one_error(words, wanted, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path / "runs"))
    assert main(["overlap", *words]) == 2
    assert wanted in capsys.readouterr().err
