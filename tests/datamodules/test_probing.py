"""Queries of a graph and of MedLAMA's files: wording, both directions, answers, types, drawing, and
what is refused."""

from __future__ import annotations

import tarfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.files import InputError
from core.json_files import read_json
from datamodules.probing import (
    Query,
    build_queries,
    counts_of,
    draw_places,
    load_queries,
    medlama,
    medlama_queries,
    queries,
)
from datamodules.relation_templates import (
    MASK,
    answered_within,
    contains_name,
    fill_template,
    phrase,
)
from tests.commands import command
from tests.fakes.graphs import graph

SHARED = (
    Path(__file__).parents[2].parent
    / "shared"
    / "data"
    / "en_probe_medlama"
    / "medlama_13rel.tar.gz"
)
HEAD = "head_cui,head_name,rel,tail_cuis_list,tail_names_list,tail_names,tail_cuis\n"


@pytest.mark.parametrize(
    "relation, words",
    [
        ("may_prevent", "may prevent"),
        ("translation_of", "is translation of"),
        ("classified_as", "is classified as"),
        ("used_by", "is used by"),
        ("isa", "is a"),
        ("is_a", "is a"),
        ("has", "has"),
        ("is_part_of", "is part of"),
        ("was_a_whereas", "was a whereas"),
        ("of", "is of"),
        ("近似于", "近似于"),
    ],
)
def test_wording(relation: str, words: str) -> None:
    assert phrase(relation) == words


def test_templates_are_filled_once() -> None:
    assert fill_template("[X] may treat  [Y] .", "a [Y]", MASK) == "a [Y] may treat [MASK]."
    assert fill_template("[Y] of [X].", "the  head", "tail") == "tail of the head."


def test_papers_queries() -> None:
    """Section 4.6.1's examples: both directions, and one query with two answers."""
    made, left_out = queries(
        graph(
            {
                "propranolol": "drug",
                "propranolol hydrochloride": "drug",
                "essential tremor": "disease",
            },
            [
                ("propranolol", "may_treat", "essential tremor"),
                ("propranolol hydrochloride", "may_treat", "essential tremor"),
            ],
            [("propranolol", "Inderal", "synonym", "en")],
        )
    )
    assert not left_out
    found = {q.text: q for q in made}
    assert set(found) == {
        "propranolol may treat [MASK].",
        "propranolol hydrochloride may treat [MASK].",
        "[MASK] may treat essential tremor.",
    }
    both = found["[MASK] may treat essential tremor."]
    assert (both.relation, both.asked, both.within) == ("may_treat", "head", False)
    assert both.answers == ["propranolol", "propranolol hydrochloride"]
    assert both.names == [["propranolol", "Inderal"], ["propranolol hydrochloride"]]
    assert counts_of(made) == {
        "queries": 3,
        "relations": 1,
        "answers a query": 1.33,
        "type 1": 0,
        "type 2": 3,
    }


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.sampled_from(["near", "part_of", "part of", "isa"]),
            st.integers(0, 5),
        ),
        min_size=1,
    )
)
def test_queries_by_brute_force(facts: list[tuple[int, str, int]]) -> None:
    """Every triple asks twice; texts are distinguished, answers collected. Relations of one wording
    are one."""
    ids = [f"e{i}" for i in range(6)]
    wanted: dict[str, set[str]] = defaultdict(set)
    for head, relation, tail in facts:
        wanted[f"e{head} {phrase(relation)} [MASK]."].add(f"e{tail}")
        wanted[f"[MASK] {phrase(relation)} e{tail}."].add(f"e{head}")
    made, _ = queries(graph(dict.fromkeys(ids, "t"), [(f"e{h}", r, f"e{t}") for h, r, t in facts]))
    assert {q.text: set(q.answers) for q in made} == wanted and len(made) == len(wanted)
    assert all(q.asked == ("tail" if q.text.endswith("[MASK].") else "head") for q in made)
    assert all(
        q.within == (q.text.replace(MASK, "").find(q.answers[0]) >= 0)
        for q in made
        if len(q.answers) == 1
    )


def test_entities_of_one_name_ask_as_one() -> None:
    one = graph(dict.fromkeys("abxy", "t"), [("a", "r", "x"), ("b", "r", "y")])
    named = one.entities.set_column(1, "name", [["same", "same", "x", "y"]])
    one.entities = named
    made, _ = queries(one)
    assert {q.text: q.answers for q in made}["same r [MASK]."] == ["x", "y"]


def test_at_most_so_many_of_a_relation_drawn_by_seed() -> None:
    facts = [(f"h{i}", "r", f"t{i}") for i in range(30)] + [("h0", "s", "t0")]
    own = graph({f"{c}{i}": "t" for c in "ht" for i in range(30)}, facts)
    made, left_out = queries(own, most=20)
    assert (
        len([q for q in made if q.relation == "r"]) == 20
        and len([q for q in made if q.relation == "s"]) == 2
    )
    assert dict(left_out) == {"queries beyond 20 of a relation": 40}
    assert queries(own, most=20)[0] == made != queries(own, most=20, seed=1)[0]
    alone, _ = queries(
        graph({f"{c}{i}": "t" for c in "ht" for i in range(30)}, facts[:-1]), most=20
    )
    # other relations do not change what is drawn
    assert alone == [q for q in made if q.relation == "r"]
    assert {q.asked for q in made} == {"tail", "head"} and len(queries(own, most=None)[0]) == 62


def test_types() -> None:
    assert answered_within(
        "[MASK] has form tacrolimus monohydrate.", [["x"], ["FK-506", "Tacrolimus"]]
    )
    assert not answered_within("cosyntropin may diagnose [MASK].", [["adrenal cortex disease"]])
    assert (
        not contains_name("antigen has ants", "ant")
        and contains_name("an ant.", "ant")
        and contains_name("b+ a", "+ a")
    )
    assert (
        not contains_name("a", "")
        and contains_name("慢性肝炎药", "肝炎")
        and not contains_name("", "mask")
    )
    assert not answered_within("[MASK] r b.", [["mask"]])  # [MASK] itself is not part of the text


def test_build_writes_and_keeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph({"a": "t", "b": "t"}, [("a", "part_of", "b")]).save(tmp_path / "g")
    run = command("data queries")
    assert run(["--graph", str(tmp_path / "g"), "--out", str(tmp_path / "q")]) == 0
    first = load_queries(tmp_path / "q")
    assert first == [
        Query("a is part of [MASK].", "part_of", "tail", ["b"], [["b"]], False),
        Query("[MASK] is part of b.", "part_of", "head", ["a"], [["a"]], False),
    ]
    printed = capsys.readouterr().out
    assert "2 queries\n" in printed and "1 relations\n" in printed
    build_queries(str(tmp_path / "g"), str(tmp_path / "q"))
    assert "kept" in capsys.readouterr().err
    build_queries(str(tmp_path / "g"), str(tmp_path / "q"), seed=1)
    assert "kept" not in capsys.readouterr().err
    manifest = read_json(tmp_path / "q" / "manifest.json")
    assert manifest["settings"]["seed"] == 1 and manifest["counts"]["queries"] == 2
    (tmp_path / "t.csv").write_text("pid,human\npart_of,[Y] has the part [X] .\n")
    build_queries(
        str(tmp_path / "g"),
        str(tmp_path / "q"),
        templates=str(tmp_path / "t.csv"),
        prompts="human",
    )
    assert [q.text for q in load_queries(tmp_path / "q")] == [
        "[MASK] has the part a.",
        "b has the part [MASK].",
    ]
    with open(tmp_path / "q" / "queries.parquet", "ab") as handle:
        handle.write(b"x")
    with pytest.raises(
        InputError, match=r"queries.parquet: missing, or not the file its manifest describes"
    ):
        load_queries(tmp_path / "q")


def write_medlama(folder: Path, rows: str, hard: str = "") -> Path:
    (folder / "2021AA").mkdir(parents=True)
    (folder / "2021AA" / "may_treat_1000.csv").write_text(HEAD + rows)
    if hard:
        (folder / "2021AA" / "may_treat_1_hard.csv").write_text(HEAD + hard)
    (folder / "prompts.csv").write_text(
        "pid,default_prompt,human_prompt\nmay_treat,[X] may treat  [Y] .,[X] might treat [Y] .\n"
    )
    return folder


ROWS = (
    "C1,propranolol,may_treat,x,x,Essential Tremor || Migraine,C2 || C3\n"
    'C4,"tremor, essential",may_treat,x,x,Tremor,C5\n'
    "C9,propranolol,may_treat,x,x,Hypertension || Migraine,C6 || C3\n"
)


def test_medlama(tmp_path: Path) -> None:
    folder = write_medlama(tmp_path / "m", ROWS, "C1,propranolol,may_treat,x,x,Migraine,C3\n")
    made, left_out = medlama_queries(folder)
    assert made == [
        Query(
            "propranolol may treat [MASK].",
            "may_treat",
            "tail",
            ["C2", "C3", "C6"],
            [["Essential Tremor"], ["Migraine"], ["Hypertension"]],
            False,
        ),
        Query(
            "tremor, essential may treat [MASK].", "may_treat", "tail", ["C5"], [["Tremor"]], True
        ),
    ]
    assert sum(left_out.values()) == 1
    assert medlama_queries(folder, "human_prompt")[0][0].text == "propranolol might treat [MASK]."
    assert medlama_queries(folder, "default_prompt")[0][0].text == "propranolol may treat [MASK]."
    assert [q.answers for q in medlama_queries(folder, hard=True)[0]] == [["C3"]]
    with tarfile.open(tmp_path / "medlama.tar.gz", "w:gz") as archive:
        archive.add(folder, "medlama")
    for place in (tmp_path / "medlama.tar.gz", folder):
        assert medlama_queries(place)[0] == made
    out = medlama(str(folder), str(tmp_path / "q"))
    assert load_queries(out) == made


@pytest.mark.parametrize(
    "rows, message",
    [
        (
            "C1,a,may_treat,x,x,One || Two,C2\n",
            r"may_treat_1000.csv:2: expected a head_name, and as many tail_names",
        ),
        (ROWS + "C1,a\n", r"may_treat_1000.csv:5: expected 7 columns"),
        ("C1,,may_treat,x,x,One,C2\n", r"may_treat_1000.csv:2: expected a head_name"),
        ('C1,"a,may_treat,x,x,One,C2\n', r"may_treat_1000.csv:\d: not a CSV table"),
    ],
)
def test_broken_lines_are_named(tmp_path: Path, rows: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        medlama_queries(write_medlama(tmp_path / "m", rows))


def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_medlama(tmp_path / "m", ROWS)
    with pytest.raises(InputError, match="prompts.csv:2: expected the columns pid and nonsense"):
        medlama_queries(folder, "nonsense")
    (folder / "prompts.csv").write_text("pid,human_prompt\nmay_treat,[X] treats\n")
    with pytest.raises(
        InputError,
        match=r"prompts.csv:2: expected a relation and a template with one \[X\] and one \[Y\]",
    ):
        medlama_queries(folder, "human_prompt")
    (folder / "prompts.csv").write_text("pid,human_prompt\nmay_cause,[X] causes [Y] .\n")
    with pytest.raises(InputError, match=r"prompts.csv: no template for the relation 'may_treat'"):
        medlama_queries(folder, "human_prompt")
    (folder / "2021AA" / "may_treat_1000.csv").write_bytes(HEAD.encode() + b"C1,\xff,r,x,x,y,z\n")
    with pytest.raises(InputError, match="may_treat_1000.csv:2: not UTF-8"):
        medlama_queries(folder)
    (folder / "2021AA" / "may_treat_1000.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="may_treat_1000.csv:2: no column 'head_cui'"):
        medlama_queries(folder)
    (tmp_path / "cut.tar.gz").write_bytes(b"not an archive")
    with pytest.raises(InputError, match="neither a folder nor a whole .tar archive"):
        medlama_queries(tmp_path / "cut.tar.gz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no file <relation>_1000.csv"):
        medlama_queries(tmp_path / "empty")
    assert command("data medlama")([str(tmp_path / "nothing"), "--out", str(tmp_path / "q")]) == 2
    assert "no such folder or archive" in capsys.readouterr().err
    with pytest.raises(InputError, match="no triples"):
        queries(graph({"a": "t"}, []))
    with pytest.raises(InputError, match="no queries here"):
        load_queries(tmp_path)
    graph({"a": "t", "b": "t"}, [("a", "r", "b")]).save(tmp_path / "g")
    with pytest.raises(InputError, match="something here that is no queries"):
        build_queries(str(tmp_path / "g"), str(tmp_path / "g"))
    with pytest.raises(InputError, match="--most 0"):
        build_queries(str(tmp_path / "g"), str(tmp_path / "q"), most=0)
    with pytest.raises(InputError, match="are given together"):
        build_queries(str(tmp_path / "g"), str(tmp_path / "q"), prompts="human")


@pytest.mark.data
def test_real_medlama() -> None:
    """shared/data/README.md: 13 relations of 1,000 queries."""
    if not SHARED.is_file():
        pytest.skip(f"{SHARED} is not here")
    made, left_out = medlama_queries(SHARED)
    assert len({q.relation for q in made}) == 13 and len(made) == 13_000 and not left_out
    assert counts_of(made)["answers a query"] == 2.29
    assert all(q.text.endswith(" [MASK].") and q.text.count(MASK) == 1 for q in made)


def test_relations_of_one_size_are_drawn_apart() -> None:
    one, other = (draw_places(1000, 10, 0, relation).tolist() for relation in ("treats", "causes"))
    assert (
        one != other
        and one
        == draw_places(1000, 10, 0, "treats").tolist()
        != draw_places(1000, 10, 1, "treats").tolist()
    )
