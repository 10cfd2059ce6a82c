"""Readers of entity-linking data: fake files in the real formats, what is refused, and published
counts on real files."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from core.files import InputError
from datamodules.linking import (
    Dictionary,
    Mention,
    context_of,
    load_linking,
    save_linking,
    split_by_hash,
)
from datamodules.linking import readers as read
from datamodules.linking.layperson import HPO_SHARES, TRIVIAL, held_out_names, hpo_layperson
from datamodules.linking.readers import NO_ID, gold_of
from datamodules.tasks.linking import TASKS
from kg.graph import KnowledgeGraph, table
from kg.search.names import BIOSYN, normaliser
from tests.commands import command
from tests.fakes import hpo as fake_hpo
from tests.fakes import linking as fakes

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data"
real = pytest.mark.skipif(not REAL.is_dir(), reason=f"no real data in {REAL}")


def mention(name="a", parts=None, gold=None, **more):
    values = {"id": name, "document": "d", "start": None, "end": None, "mention": name} | more
    return Mention(**values, parts=parts or [name], gold=gold or [["C1"]])


def test_ids():
    assert gold_of("D1|D2+OMIM:3") == [["D1"], ["D2"], ["3"]]
    assert gold_of("-1") == gold_of("") == gold_of("CUI-less") == gold_of("-") == []
    assert (
        gold_of("D1|D1") == [["D1"]]
        and read.bare("MESH: D1") == "D1"
        and read.bare("HP:0000001") == "HP:0000001"
    )


def test_biosyn(tmp_path):
    place = fakes.write(tmp_path) / "NCBI-EL" / "biosyn_ncbi-disease.tar.gz"
    own = read.biosyn_dictionary(place, "dev_dictionary.txt")
    assert (
        len(own.names) == 8
        and own.concepts_by_id["600001"] == {"D003|600001"}
        and own.concepts_by_id["D005"] == {"D004|D005"}
    )
    assert (
        own.concepts_of(["D004"]) == {"D004", "D004|D005"}
        and own.concepts_of(["D999"]) == frozenset()
    )
    found: Counter[str] = Counter()
    texts = read.pubtator_mentions(tmp_path / "NCBI-EL/ncbi_pubtator/NCBItestset_corpus.txt")[1]
    mentions = read.biosyn_mentions(place, "processed_test", texts, found)
    first = mentions[0]
    assert first.parts == ["retinal tumor", "pineal tumors"] and first.gold == [["D001"], ["D002"]]
    assert texts["31"][first.start : first.end] == "Retinal and pineal tumors"
    assert context_of(mentions[1], texts).startswith(
        "Retinal and pineal tumors.\nAcute START kidney failure END (AKF)"
    )
    without = read.biosyn_mentions(place, "processed_test", {}, found)
    assert without[0].start is None and context_of(without[0], {}) is None
    unpacked = tmp_path / "unpacked"
    for name, text in fakes.biosyn_files("ncbi-disease").items():
        (unpacked / name).parent.mkdir(parents=True, exist_ok=True)
        (unpacked / name).write_text(text)
    assert read.biosyn_mentions(unpacked / "ncbi-disease", "processed_test", texts) == mentions
    with pytest.raises(InputError, match=re.escape("no x.txt in it")):
        read.biosyn_dictionary(place, "x.txt")
    with pytest.raises(InputError, match=r"no mentions in none/\*\.concept"):
        read.biosyn_mentions(place, "none", {})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("||name", "a dictionary line without an id"),
        ("D1| ||name", "a dictionary line without an id"),
        ("D1||  ", "concept 'D1' with an empty name"),
        ("D1 name", "expected id||name, got 'D1 name'"),
    ],
)
def test_broken_biosyn_dictionary(tmp_path, line, message):
    (tmp_path / "d.txt").write_text(f"D0||good\n{line}\n")
    with pytest.raises(InputError, match=re.escape("!d.txt:2: " + message)):
        read.biosyn_dictionary(tmp_path, "d.txt")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1||2|3||T||||D1", "an empty mention"),
        ("1||2||T||m||D1", "expected pmid||start|end||type||mention||id"),
    ],
)
def test_broken_biosyn_mentions(tmp_path, line, message):
    (tmp_path / "processed_dev").mkdir()
    (tmp_path / "processed_dev/1.concept").write_text(f"1||0|1||T||m||D1\n{line}\n")
    with pytest.raises(InputError, match=re.escape("processed_dev/1.concept:2: " + message)):
        read.biosyn_mentions(tmp_path, "processed_dev", {})


def test_no_archive(tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(b"no archive")
    with pytest.raises(InputError, match="not a whole tar archive"):
        read.contents(tmp_path / "a.tar.gz")
    with pytest.raises(InputError, match="no such file"):
        read.contents(tmp_path / "b.tar.gz")


def test_pubtator(tmp_path):
    path = fakes.pubtator(tmp_path / "dev.txt", fakes.DEV)
    found: Counter[str] = Counter()
    mentions, texts, _ = read.pubtator_mentions(path, (), found)
    assert [m.gold for m in mentions] == [[["600001"]], [["D999"]]] and found[NO_ID] == 1
    assert all(texts[m.document][m.start : m.end] == m.mention for m in mentions)
    chemicals, *_ = read.pubtator_mentions(
        fakes.pubtator(tmp_path / "t.txt", fakes.TRAIN), ("Chemical",), found
    )
    assert [m.mention for m in chemicals] == ["aspirin"] and found[read.OTHER_TYPE] == 2
    twice = tmp_path / "twice.txt"
    twice.write_text(path.read_text() * 2)
    mentions, *_ = read.pubtator_mentions(twice, (), found)
    assert len(mentions) == len({m.id for m in mentions}) == 4 and found[read.TWICE] == 1
    twice.write_text(path.read_text() + path.read_text().replace("unknown", "another"))
    with pytest.raises(
        InputError, match=r"twice\.txt:7: document 21 occurred before with another text"
    ):
        read.pubtator_mentions(twice)
    with pytest.raises(InputError, match="no mentions with concepts of type Gene"):
        read.pubtator_mentions(path, ("Gene",))


def test_cometa_reads_quotation_marks_as_text(tmp_path):
    folder = fakes.cometa(tmp_path)
    texts: dict[str, str] = {}
    found: Counter[str] = Counter()
    rows = read.cometa(folder / "train.csv", texts, found)
    assert [r.label for r in rows] == ["Insomnia", "Migraine"] and rows[0].mention.gold == [
        ["193462001"]
    ]
    assert context_of(rows[0].mention, texts) == 'I am "START sleepless END" again .'
    assert rows[1].mention.start is None and sum(found.values()) == 1
    for text, message in (
        ("a\tb\n", ":1: expected the columns ID, Term"),
        (fakes.COMETA + "1\tx\n", ":2: expected 8 columns, tabs between them, got 2"),
        (fakes.COMETA + "1\t\tL\t2\tL\t2\te\ts\n", ":2: an empty mention"),
        (
            fakes.COMETA + "1\tx\tL\t\tL\t2\te\ts\n",
            ":2: expected a general SNOMED id and its label",
        ),
        (fakes.COMETA, "no rows below its header"),
    ):
        (tmp_path / "bad.csv").write_text(text)
        with pytest.raises(InputError, match=re.escape(message)):
            read.cometa(tmp_path / "bad.csv", {})


def test_phrases_are_latin_1(tmp_path):
    folder = fakes.phrases(tmp_path, "AskAPatient")
    rows = read.phrases(folder / "AskAPatient.fold-3.test.txt")
    assert rows[1].mention.mention == "café sleep" and rows[1].term == "Insomnia"
    for line, message in (
        ("1\tHeadache", "expected concept, term, phrase"),
        ("1\tHeadache\t ", "an empty mention"),
        ("\tHeadache\tx", "expected a concept's id and its term"),
    ):
        (tmp_path / "bad.txt").write_text(f"1\ta\tb\n{line}\n")
        with pytest.raises(InputError, match=re.escape(f"bad.txt:2: {message}")):
            read.phrases(tmp_path / "bad.txt")


def test_other_dictionaries(tmp_path):
    fakes.write(tmp_path)
    medic = read.medic(tmp_path / "NCBI-EL/medic_06Jul2012.txt.gz")
    assert medic.alternatives == {"D003": ["600001"]} and medic.concepts_of(["600001"]) == {"D003"}
    found: Counter[str] = Counter()
    (tmp_path / "mesh.tsv").write_text("D1\tA\tB|C\nD2\tB\t\nD2\tB\t\n")
    mesh = read.mesh(tmp_path / "mesh.tsv", found)
    assert list(zip(mesh.ids, mesh.names, strict=True)) == [
        ("D1", "A"),
        ("D1", "B"),
        ("D1", "C"),
        ("D2", "B"),
    ]
    assert found[read.DUPLICATE_ROWS] == 1
    for text, reader, message in (
        ("||A\n", read.medic, ":1: a dictionary line without an id"),
        ("D1||\n", read.medic, ":1: concept 'D1' without a name"),
        ("D1 A\n", read.medic, ":1: expected id||name|synonym"),
        ("\tA\t\n", read.mesh, ":1: expected an id and a label"),
        ("D1\tA\n", read.mesh, ":1: expected id, label, synonyms"),
        ("", read.mesh, "no names in this dictionary"),
        ("", read.medic, "no names in this dictionary"),
    ):
        (tmp_path / "bad").write_text(text)
        with pytest.raises(InputError, match=re.escape(message)):
            reader(tmp_path / "bad")


def test_a_graph_as_dictionary(tmp_path):
    columns = {
        "id": ["MESH:D1", "MESH:D1", "D2"],
        "name": ["a", "ä", "b"],
        "kind": ["preferred"] * 3,
        "language": ["en", "de", "en"],
        "source": ["x"] * 3,
    }
    graph = KnowledgeGraph(
        table("entities", {"id": ["MESH:D1", "D2"], "name": ["a", "b"], "type": ["t", "t"]}),
        table("names", columns),
        table("definitions", {"id": [], "text": []}),
        table("triples", {"head": ["MESH:D1"], "relation": ["is_a"], "tail": ["D2"]}),
    )
    own = read.graph_dictionary(graph.save(tmp_path / "g"))
    assert (own.ids, own.names, own.broader) == (["D1", "D2"], ["a", "b"], {"D1": ["D2"]})


def test_hpo_layperson(tmp_path):
    folder = fake_hpo.write(tmp_path, 100)
    found: Counter[str] = Counter()
    dictionary, splits = hpo_layperson(folder, found)
    normalised = normaliser(BIOSYN)
    names = {normalised(n) for n in dictionary.names}
    everything = [m for s in splits.values() for m in s]
    assert all(splits.values()) and not names & {normalised(m.mention) for m in everything}
    assert all(
        split_by_hash(m.gold[0][0], HPO_SHARES) == split
        for split, mentions in splits.items()
        for m in mentions
    )
    concepts = [{i for m in mentions for g in m.gold for i in g} for mentions in splits.values()]
    assert (
        not (concepts[0] & concepts[1])
        and not (concepts[1] & concepts[2])
        and not (concepts[0] & concepts[2])
    )
    held = held_out_names(folder)
    assert all(
        m.mention.lower() in held and normalised(m.mention) in held
        for m in splits["test"] + splits["dev"]
    )
    assert not any(normalised(m.mention) in held for m in splits["train"])
    assert dictionary.broader["HP:0000118"] == ["HP:0000001"]
    # a layperson synonym that is another kind of name too is no query
    text = (folder / "hp.obo").read_text()
    synonym = re.search(r'synonym: "(.*)" RELATED layperson', text).group(1)
    (folder / "hp.obo").write_text(
        text.replace("name: Phenotypic abnormality", f"name: {synonym.upper()}")
    )
    _, fewer = hpo_layperson(folder, found)
    assert sum(map(len, fewer.values())) == len(everything) - 1 and found[TRIVIAL] == 1


def test_held_out_command(tmp_path, capsys):
    folder = fake_hpo.write(tmp_path / "hpo", 100)
    assert command("data held-out")([str(tmp_path / "names.txt"), "--hpo", str(folder)]) == 0
    assert set((tmp_path / "names.txt").read_text().splitlines()) == held_out_names(folder)
    assert command("data held-out")([str(tmp_path / "n"), "--hpo", str(tmp_path)]) == 2
    assert "hp.obo: missing" in capsys.readouterr().err


def test_on_disk(tmp_path):
    dictionary = Dictionary(["C1", "C1", "C2"], ["a", "b", "b"], {"C1": ["X1"]}, {"C1": ["C2"]})
    splits = {
        "train": [mention("t")],
        "test": [
            mention("a", start=2, end=3),
            mention("b", gold=[["C9"]]),
            mention("c", parts=["c", "d"], gold=[["C1"], ["C2"]]),
        ],
    }
    manifest = save_linking(tmp_path / "t", dictionary, splits, {"d": "is a"}, name="T")
    assert manifest["dictionary"] | {"digest": ""} == {
        "names": 3,
        "strings": 2,
        "concepts": 2,
        "ids": 3,
        "digest": "",
    }
    assert manifest["warnings"] == {
        "dictionary: names that several concepts have": 1,
        "dictionary: concepts with one name": 1,
        "test: mentions none of whose ids is in the dictionary": 1,
        "test: composite mentions, of several strings": 1,
    }
    loaded = load_linking(tmp_path / "t")
    assert loaded.splits == splits and loaded.documents == {"d": "is a"}
    assert (
        loaded.dictionary.digest
        == dictionary.digest
        == Dictionary(["C2", "C1", "C1"], ["b", "b", "a"], {"C1": ["X1"]}).digest
    )
    assert (
        loaded.dictionary.alternatives == dictionary.alternatives
        and loaded.dictionary.broader == dictionary.broader
    )
    more = dictionary.with_names([("X1", "new"), ("C9", "nowhere")])
    assert (more.ids[-1], more.names[-1], len(more.ids)) == ("C1", "new", 4)
    (tmp_path / "t/test.jsonl").write_text("")
    with pytest.raises(
        InputError, match=re.escape("test.jsonl: missing, or not the file its manifest describes")
    ):
        load_linking(tmp_path / "t")
    (tmp_path / "t/manifest.json").write_text("{}")
    with pytest.raises(InputError, match="no linking task"):
        load_linking(tmp_path / "t")


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ([], "neither a dev nor a test split with mentions"),
        ([mention("a", parts=[" "])], "mention 'a': an empty mention"),
        ([mention("a"), mention("a")], "id 'a' occurs twice in test"),
        ([mention("a", gold=[[]])], "mention 'a': no gold concept"),
        ([mention("a", start=0, end=9)], "[0, 9) is not a place in document 'd'"),
    ],
)
def test_what_is_not_saved(tmp_path, test, message):
    with pytest.raises(InputError, match=re.escape(message)):
        save_linking(
            tmp_path / "t", Dictionary(["C1"], ["a"]), {"test": test}, {"d": "a"}, name="T"
        )
    with pytest.raises(InputError, match="no names in its dictionary"):
        save_linking(tmp_path / "t", Dictionary([], []), {"test": [mention()]}, name="T")
    assert not (tmp_path / "t").exists()


@pytest.mark.slow
@pytest.mark.data
@real
def test_real_corpora_have_their_published_sizes(tmp_path):
    ncbi = REAL / "en_el_ncbi" / "biosyn_ncbi-disease.tar.gz"
    sizes = [
        len(read.biosyn_mentions(ncbi, f"processed_{s}", {})) for s in ("train", "dev", "test")
    ]
    assert sizes == [5134, 787, 960]
    own = read.biosyn_dictionary(ncbi, "test_dictionary.txt")
    assert (len(own.names), len(set(own.ids))) == (73_024, 12_554)
    assert len({part for i in own.ids for part in i.split("|")}) == 14_967  # the papers' concepts
    disease = REAL / "en_el_bc5cdr" / "biosyn_bc5cdr-disease_train_dev.tar.gz"
    assert [len(read.biosyn_mentions(disease, f"processed_{s}", {})) for s in ("train", "dev")] == [
        4131,
        4178,
    ]
    names = [
        read.biosyn_dictionary(disease, f"{s}_dictionary.txt") for s in ("train", "dev", "test")
    ]
    assert [len(d.names) for d in names] == [71_924, 72_636, 73_126] and len(
        set(names[2].ids)
    ) == 12_511

    def pubtator(archive, name):
        path = tmp_path / Path(name).name
        path.write_bytes(read.contents(REAL / archive)[name])
        found: Counter[str] = Counter()
        return len(read.pubtator_mentions(path, (), found)[0]) + found[NO_ID]

    parts = [("train", 5145), ("develop", 787), ("test", 960)]
    assert [
        pubtator("en_el_ncbi/ncbi_pubtator.tar.gz", f"NCBI{s}set_corpus.txt") for s, _ in parts
    ] == [n for _, n in parts]
    archive = "en_el_bc5cdr/bc5cdr_pubtator_train_dev.tar.gz"
    assert [pubtator(archive, f"{s}_corpus.txt") for s in ("train", "dev")] == [9385, 9591]
    medic = read.medic(REAL / "en_dict/medic_06Jul2012.txt.gz")
    assert len(set(medic.ids)) == 11_915
    found: Counter[str] = Counter()
    mesh = read.mesh(REAL / "en_dict/mesh_id_label_synonyms.tsv.gz", found)
    assert (len(set(mesh.ids)), len(mesh.names) + found[read.DUPLICATE_ROWS]) == (29_351, 153_253)
    for fold, wanted in ((0, [15_612, 845, 867]), (5, [15_675, 783, 866])):
        for split, size in zip(("train", "validation", "test"), wanted, strict=True):
            path = tmp_path / f"{fold}.{split}.txt"
            content = read.contents(REAL / "en_el_askapatient/askapatient_10fold.tar.gz")
            path.write_bytes(content[f"AskAPatient.fold-{fold}.{split}.txt"])
            assert len(read.phrases(path)) == size
    content = read.contents(REAL / "en_el_cometa/cometa_stratified_general_train_dev.tar.gz")
    rows = {}
    for split in ("train", "dev"):
        (tmp_path / f"{split}.csv").write_bytes(content[f"stratified_general/{split}.csv"])
        rows[split] = read.cometa(tmp_path / f"{split}.csv", {})
    assert [len(r) for r in rows.values()] == [13_489, 2_176]
    assert len({r.mention.gold[0][0] for r in rows["train"]}) == 3_642


@pytest.mark.slow
def test_real_hpo_has_layperson_queries():
    dictionary, splits = hpo_layperson()
    assert {s: len(m) for s, m in splits.items()} == {"train": 4294, "dev": 708, "test": 2067}
    assert len(set(dictionary.ids)) == 19_034 and len(held_out_names()) >= 2775


def test_mentions_of_a_task_have_their_places_where_its_texts_are(tmp_path):
    """BioSyn's files have no texts; those of PubTator beside them do."""
    task = next(task for task in TASKS if task.name == "NCBI-EL")
    found: Counter[str] = Counter()
    (part,) = task.parts(fakes.write(tmp_path) / "NCBI-EL", None, found)
    mentions = [mention for split in part.splits.values() for mention in split]
    placed = [m for m in mentions if m.document in part.documents]
    assert placed and all(m.start is not None for m in placed)
