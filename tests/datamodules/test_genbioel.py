"""GenBioEL's inputs, samples and noise against their definition, and batches that do not depend on
how work is shared."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.files import InputError
from core.json_files import read_json
from datamodules.contexts import balance_sides, sides
from datamodules.genbioel import GenBioELBatch, GenBioELData, samples, tokenizer
from datamodules.genbioel.concept_names import RULES, left_to_one, name_set, normalise_names
from datamodules.genbioel.denoising import infill_spans, permute_sentences
from datamodules.genbioel.finetuning import (
    TARGETS,
    MentionSamples,
    SelectedMention,
    _held_out,
    build_mentions,
    representative_names,
    without_overlaps,
)
from datamodules.genbioel.inputs import Inputs, plain, window
from datamodules.genbioel.samples import GraphSamples, draw_example
from datamodules.genbioel.templates import DEFINITION, SAME, SYNONYMS
from datamodules.graph_names import NameSource
from datamodules.linking import Dictionary, Mention, load_linking
from datamodules.masking import IGNORE
from datamodules.tokenizers import load_tokenizer
from kg.graph import KnowledgeGraph, table
from kg.search.names import normaliser
from tests.fakes import bert
from tests.fakes import genbioel as fake
from tests.fakes.genbioel import Folders

pytestmark = pytest.mark.usefixtures("preloaded")

ROOT = Path(__file__).parents[2]
LIMITS = {"max_length": 64, "max_mention": 16, "max_name": 32, "max_words": 32}


@pytest.fixture(scope="module")
def inputs(fake_genbioel: Folders) -> Inputs:
    return Inputs(load_tokenizer(fake_genbioel.tokenizer), **LIMITS)


@pytest.fixture(scope="module")
def source(fake_genbioel: Folders, inputs: Inputs) -> GraphSamples:
    return GraphSamples(fake_genbioel.samples, inputs)


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> str:
    return fake.task(tmp_path_factory.mktemp("task") / "task")


def decode_ids(inputs: Inputs, ids: list[int]) -> str:
    return str(inputs.tokenizer.decode(ids))


# inputs, Section 2.1


def test_inputs_read_as_the_paper_prints_them(inputs: Inputs) -> None:
    context = "The Renal  Lesion seen. START Renal FAILURE END, of the  kidney"
    assert (
        decode_ids(inputs, inputs.encoder_input("Renal FAILURE", context))
        == "<s> the renal lesion seen. START renal failure END , of the kidney</s>"
    )
    assert decode_ids(inputs, inputs.prompt("Renal FAILURE")) == "</s> renal failure is"
    assert decode_ids(inputs, inputs.name("renal lesion")) == " renal lesion</s>"
    assert (inputs.bos, inputs.pad, inputs.eos, inputs.mask) == (0, 1, 2, 4)
    assert inputs.prompt("renal")[-1] == inputs.root == inputs.linking
    bare = Inputs(inputs.tokenizer, **LIMITS, prompt=False)
    # D1: </s> starts the decoder
    assert bare.prompt("renal") == [bare.eos] and bare.root == bare.eos
    assert decode_ids(inputs, inputs.encoder_input("renal")) == "<s> START renal END</s>"


def test_pieces_make_the_same_tokens_as_the_text(inputs: Inputs) -> None:
    whole = inputs.tokenizer(
        " the lesion START renal failure END of the region.", add_special_tokens=False
    )["input_ids"]
    left, own, right = inputs.ids(["the lesion", "renal failure", "of the region."])
    assert inputs.around(left, own, right) == [0, *whole, 2]


def test_markers_and_is_in_the_text_are_the_texts(inputs: Inputs) -> None:
    """Marker words of a text are lower-cased; a mention that holds " is" is asked for like any
    other."""
    ids = inputs.encoder_input("what is END", "no START here: START what is END END and END")
    assert decode_ids(inputs, ids) == "<s> no start here: START what is end END and end</s>"
    assert [ids.count(m) for m in (*inputs.start, *inputs.end)] == [1] * len(
        inputs.start + inputs.end
    )
    assert decode_ids(inputs, inputs.prompt("what is END")) == "</s> what is end is"
    assert (
        inputs.prompt("what is")[-1] == inputs.root
        and inputs.prompt("what is").count(inputs.root) == 2
    )


def test_sides() -> None:
    assert sides("x", None) == ("", "")
    assert sides("MI", "an START MI END, END") == ("an ", ", END")
    # expanded: the first pair counts
    assert sides("long form", "START a START MI END b") == ("", " b")
    with pytest.raises(InputError, match="expected the mention between the words START and END"):
        sides("MI", "no markers")


@given(left=st.integers(0, 30), right=st.integers(0, 30), room=st.integers(-3, 70))
def test_balanced(left: int, right: int, room: int) -> None:
    a, b = balance_sides(left, right, room)
    assert 0 <= a <= left and 0 <= b <= right and a + b == min(left + right, max(0, room))
    assert not (a < left and b < right) or abs(a - b) <= 1


def test_window_counts_words() -> None:
    assert window("a b C  d", "e f", 4) == ("c d", "e f") and window("a b", "c d e f", 3) == (
        "b",
        "c d",
    )


@given(words=st.integers(0, 80), at=st.integers(0, 80), size=st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_no_cut_reaches_mention_or_markers(
    fake_genbioel: Folders, words: int, at: int, size: int
) -> None:
    inputs = Inputs(load_tokenizer(fake_genbioel.tokenizer), **(LIMITS | {"max_words": 80}))
    text, own = ["lesion"] * words, " ".join(["renal"] * size)
    context = " ".join([*text[:at], "START", own, "END", *text[at:]])
    ids = inputs.encoder_input(own, context)
    mention = inputs.ids([own])[0][: inputs.max_mention]
    marked = [*inputs.start, *mention, *inputs.end]
    assert len(ids) <= 64 and (ids[0], ids[-1]) == (0, 2)
    assert any(ids[i : i + len(marked)] == marked for i in range(len(ids)))
    assert (
        inputs.prompt(own) == [2, *mention, inputs.linking]
        and len(inputs.prompt(own)) + 32 <= inputs.longest
    )
    if words * len(inputs.ids(["lesion"])[0]) + len(marked) + 2 > 64:
        assert len(ids) == 64  # nothing is given away


def test_bad_inputs(inputs: Inputs, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="0 tokens; expected 1 to 31"):
        inputs.name("")
    with pytest.raises(InputError, match="tokens; expected 1 to 31"):
        inputs.name("renal " * 40)
    with pytest.raises(InputError, match="nothing is left of it as tokens"):
        inputs.encoder_input(" ")
    with pytest.raises(InputError, match="expected at least"):
        Inputs(inputs.tokenizer, max_length=19, max_mention=16)
    with pytest.raises(InputError, match="this is no GenBioEL export"):
        Inputs.from_export(tmp_path)
    with pytest.raises(InputError, match="expected a BART"):
        Inputs(load_tokenizer(str(bert.write(tmp_path / "bert", ["is"]))))


# tokenizer


def test_tokenizer(fake_genbioel: Folders, tmp_path: Path) -> None:
    made = load_tokenizer(fake_genbioel.tokenizer)
    assert made.convert_ids_to_tokens(list(range(5))) == ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    for word in ("is", "START", "END", "describe", "synonyms", "definitions"):
        assert len(made(f" {word}", add_special_tokens=False)["input_ids"]) == 1, word
    assert made("renal")["input_ids"][0] == 0 and made("renal")["input_ids"][-1] == 2
    odd = "naïve 5 µm – Ärztin 肾"
    # bytes: nothing is unknown
    assert made.decode(made(odd, add_special_tokens=False)["input_ids"]) == odd
    assert len(made) <= fake.SIZE
    again = tokenizer.build_tokenizer([fake_genbioel.graph], str(tmp_path / "t"), fake.SIZE)
    assert (again / "tokenizer.json").read_bytes() == Path(
        fake_genbioel.tokenizer, "tokenizer.json"
    ).read_bytes()
    before = (again / "manifest.json").stat().st_ino
    tokenizer.build_tokenizer([fake_genbioel.graph], str(again), fake.SIZE)
    assert (again / "manifest.json").stat().st_ino == before
    with pytest.raises(InputError, match="--size 100: expected at least"):
        tokenizer.build_tokenizer([fake_genbioel.graph], str(tmp_path / "s"), 100)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("x")
    with pytest.raises(InputError, match="it is left alone"):
        tokenizer.build_tokenizer([fake_genbioel.graph], str(tmp_path / "other"), fake.SIZE)


# names, Appendix E.1


@given(name=st.text(alphabet="aB é1 ,.;{}[]()+-_*/?!`\"'=%></:#&\t\u00a0", max_size=12))
def test_normalised_is_the_rule(name: str) -> None:
    found = normalise_names(pa.array([name]))[0].as_py()
    assert found == normaliser(RULES)(" ".join(name.lower().split()))
    assert found == " ".join(found.split())


def test_normalised_by_hand() -> None:
    made = normalise_names(
        pa.array(["Heart-Attack, (acute)", " + ", "5'-nucleotidase"])
    ).to_pylist()
    assert made == ["heart attack acute", "+", "5 nucleotidase"]


@given(
    rows=st.sets(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=20),
    keep_last=st.booleans(),
)
@settings(deadline=None)
def test_a_name_is_left_to_one_concept(rows: set[tuple[int, int]], keep_last: bool) -> None:
    """D6, against dictionaries of sets."""
    member = np.array(sorted(rows), np.int64).reshape(-1, 2)
    names: dict[int, set[int]] = defaultdict(set)
    for concept, name in rows:
        names[concept].add(name)
    for name in range(7):
        owners = sorted(c for c in names if name in names[c])
        if owners:
            stays = min(owners, key=lambda c: (len(names[c]), c))
            for other in owners:
                if other != stays and not (keep_last and len(names[other]) == 1):
                    names[other].discard(name)
    kept = {tuple(row) for row in member[left_to_one(member, keep_last)].tolist()}
    assert kept == {(c, n) for c, own in names.items() for n in own}


def test_name_set() -> None:
    dictionary = Dictionary(["b", "a", "a", "b", "c"], ["Cold", "COLD,", "x-y", "x Y", "cold"])
    every = name_set(dictionary, one_concept=False)
    assert (
        every.names == ["cold", "x y"]
        and every.concepts == ["a", "b", "c"]
        and len(every.members) == 5
    )
    one = name_set(dictionary)
    # "cold" is c's only name; then "x y" is left to a
    assert one.members.tolist() == [[0, 1], [2, 0]]
    assert one.counts["concepts that are left without a name"] == 1
    assert name_set(dictionary, keep_last=True).members.tolist() == [[0, 1], [1, 1], [2, 0]]
    with pytest.raises(InputError, match="no names in the dictionary"):
        name_set(Dictionary([], []))


# KB-guided samples, Section 2.2 and Table 10


def words_of(source: GraphSamples) -> list[str]:
    return pq.read_table(source.folder / "names.parquet")["name"].to_pylist()


def concepts_of(source: GraphSamples) -> list[str]:
    return pq.read_table(source.folder / "concepts.parquet")["id"].to_pylist()


def test_every_concept_and_synonym_once(fake_genbioel: Folders, source: GraphSamples) -> None:
    """Against the graph read row by row, with the shared name left to the concept with fewer."""
    rule, wanted = normaliser(RULES), defaultdict(set)
    for row in KnowledgeGraph.load(fake_genbioel.graph).names.to_pylist():
        if row["language"] == "en" and row["name"].strip():
            wanted[row["id"]].add(rule(" ".join(row["name"].lower().split())))
    wanted["E01"].discard("odd shared name")
    names, concepts = words_of(source), concepts_of(source)
    found = [
        (concepts[c], names[n])
        for c, n in np.concatenate([source.members, source.kept_out]).tolist()
    ]
    assert sorted(found) == sorted((c, n) for c, own in wanted.items() for n in own)
    counts = source.manifest["counts"]
    assert counts["empty names"] == 1 and counts["names of other languages or kinds"] == 1
    assert (
        counts["names repeated in their concept"] == 1 and counts["names of several concepts"] == 1
    )
    # E00's third is left out
    assert counts["concepts without a sample"] == 1 and counts["definitions"] == 26
    assert counts["names held out"] == len(source.held_out) == 2 and counts[
        "samples of an epoch"
    ] == len(source.train)


def test_templates_of_every_case(source: GraphSamples, inputs: Inputs) -> None:
    names, concepts = words_of(source), concepts_of(source)
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for sample, epoch in itertools.product(source.train.tolist(), range(30)):
        rng = np.random.default_rng([0, epoch, sample])
        concept, target, _ = source.row(sample)
        one = source.draw(sample, rng)
        own = [n for c, n in source.members.tolist() if c == concept]
        assert (
            one.target == target and one.mention in own and (one.mention != target or len(own) == 1)
        )
        left, mention, right, name = source.parts(sample, np.random.default_rng([0, epoch, sample]))
        assert (
            decode_ids(inputs, mention) == f" {names[one.mention]}"
            and decode_ids(inputs, name) == f" {names[target]}"
        )
        text = (
            f"{decode_ids(inputs, left)} START{decode_ids(inputs, mention)}"
            f" END{decode_ids(inputs, right)}".strip()
        )
        context = decode_ids(inputs, [t for t in (right if one.template.mention_first else left)])
        seen[concepts[concept]][text] += 1
        if one.definition is not None:
            assert one.template in DEFINITION and not one.context
        elif len(own) > 2:
            assert one.template in SYNONYMS and not {one.mention, target} & set(one.context)  # D5
            assert sorted(one.context) == sorted(set(own) - {one.mention, target})[:3]
        else:
            assert one.template in SAME and one.context == [target]  # D3
        assert not context.endswith(" .")  # D4: no full stop behind the sentence
    assert set(seen["ONE"]) == {
        "alone is START alone END",
        "alone is the same as START alone END",
        "START alone END is alone",
        "START alone END is the same as alone",
    }
    assert "START pair of words END is words paired" in seen["TWO"]
    assert {
        "first of three are the synonyms of START second of three END",
        "START second of three END refers to the same concepts as first of three",
    } <= set(seen["THREE"])
    assert "START defined alone END is defined as without synonyms." in seen["DEF"]
    whose = {
        text.split(" are the definitions of ")[0]
        for text in seen["E00"]
        if " are the definitions of " in text
    }
    # two, only lower-cased
    assert whose == {"a failure that affects the renal region.", "the kidneys' failure."}


@given(
    names=st.integers(1, 7),
    described=st.integers(0, 2),
    few=st.integers(1, 2),
    seed=st.integers(0, 99),
)
@settings(max_examples=80, deadline=None)
def test_drawn(names: int, described: int, few: int, seed: int) -> None:
    own, rng = np.arange(10, 10 + names), np.random.default_rng(seed)
    one = draw_example(own, np.arange(described), 10, None, rng, few)
    assert one.target == 10 and (one.mention == 10) == (names == 1)
    if described:
        assert one.template in DEFINITION and one.definition in range(described)
    elif names > few:
        assert (
            one.template in SYNONYMS
            and 1 <= len(one.context) <= 3
            and one.mention not in one.context
        )
        # the released code's rule (few = 1): the other name, whatever it is
        assert (10 in one.context) == (names == 2)
    else:
        assert one.template in SAME and one.context == [10]


def test_held_out_names_are_in_no_training_sample(source: GraphSamples) -> None:
    held = {int(n) for _, n in source.kept_out}
    for sample, epoch in itertools.product(source.train.tolist(), range(5)):
        one = source.draw(sample, np.random.default_rng([epoch, sample]))
        assert not held & {one.mention, one.target, *one.context}
    for sample in source.held_out.tolist():
        one = source.draw(sample, np.random.default_rng(0))
        concept, mention, _ = source.row(sample)
        assert one.mention == mention and [concept, one.target] in source.members.tolist()


def test_names_that_stay_out(fake_genbioel: Folders, tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text("renal lesion nos\nFAILURE (RENAL)\n\n")
    folder = samples.build_samples(
        [fake_genbioel.graph],
        fake_genbioel.tokenizer,
        str(tmp_path / "s"),
        source=NameSource(exclude_names=str(tmp_path / "out.txt")),
        choice=samples.SampleChoice(max_name=32, one_concept=False, skip_alone=True),
    )
    counts = read_json(folder / "manifest.json")["counts"]
    assert (
        counts["names that --exclude_names lists"] == 2
        and counts["names of concepts with nothing else, left out"] == 2
    )
    found = pq.read_table(folder / "names.parquet")["name"].to_pylist()
    assert not {"renal lesion nos", "failure renal"} & set(found)
    assert "names taken from a concept and left to one with fewer" not in counts


def test_names_of_no_or_many_tokens(
    fake_genbioel: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_rows = samples.token_rows_in_parts

    def rows(texts: pa.Array, *rest: Any, **more: Any) -> tuple[np.ndarray, np.ndarray]:
        return plain_rows(
            pa.array(["" if t == "alone" else t for t in texts.to_pylist()]), *rest[:3], "", **more
        )

    monkeypatch.setattr(samples, "token_rows_in_parts", rows)
    folder = samples.build_samples(
        [fake_genbioel.graph],
        fake_genbioel.tokenizer,
        str(tmp_path / "s"),
        choice=samples.SampleChoice(max_name=5),
    )
    counts = read_json(folder / "manifest.json")["counts"]
    assert counts["names that have no tokens"] == 1 and counts["names of 5 tokens and more"] > 10
    with pytest.raises(InputError, match=r"no name of 1 to 1 tokens is left|expected 1, 2, 1"):
        samples.build_samples(
            [fake_genbioel.graph],
            fake_genbioel.tokenizer,
            str(tmp_path / "t"),
            choice=samples.SampleChoice(max_name=1),
        )


def test_bad_folders(fake_genbioel: Folders, tmp_path: Path, inputs: Inputs) -> None:
    with pytest.raises(InputError, match=r"no samples here \(manifest\.json is missing\)"):
        GraphSamples(tmp_path, inputs)
    other = tokenizer.build_tokenizer([fake_genbioel.graph], str(tmp_path / "t"), 380)
    with pytest.raises(InputError, match="made with another tokenizer"):
        GraphSamples(fake_genbioel.samples, Inputs(load_tokenizer(str(other))))
    unknown = NameSource(languages=("xx",))
    with pytest.raises(InputError, match="the graphs' languages are de, en"):
        samples.build_samples(
            [fake_genbioel.graph], fake_genbioel.tokenizer, str(tmp_path / "x"), source=unknown
        )
    for settings_, message in (
        ({"objective": "x"}, "objective 'x': expected one of linking, denoising"),
        ({"batch_size": 900}, "fewer than one batch of 900"),
        ({"mask": 1.0}, "mask 1.0"),
        ({"max_name": 16}, "made with max_name 32"),
    ):
        with pytest.raises(InputError, match=message):
            make_data(fake_genbioel, **settings_)


def test_without_synonyms_there_is_nothing_to_hold_out(
    fake_genbioel: Folders, tmp_path: Path
) -> None:
    ids = ["A", "B"]
    one = KnowledgeGraph(
        table("entities", {"id": ids, "name": ids, "type": ids}),
        table(
            "names",
            {
                "id": ids,
                "name": ["one", "two"],
                "kind": ids,
                "language": ["en", "en"],
                "source": ids,
            },
        ),
        table("definitions", {"id": [], "text": []}),
        table("triples", {"head": [], "relation": [], "tail": []}),
        {},
    )
    one.save(tmp_path / "g")
    folder = samples.build_samples(
        [str(tmp_path / "g")],
        fake_genbioel.tokenizer,
        str(tmp_path / "s"),
        choice=samples.SampleChoice(max_name=32),
    )
    with pytest.raises(InputError, match="no sample is held out for validation"):
        make_data(fake_genbioel._replace(samples=str(folder)), batch_size=1)


def test_the_command(fake_genbioel: Folders, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "core.call",
        "data",
        "samples",
        "--graph",
        fake_genbioel.graph,
        "--tokenizer",
        fake_genbioel.tokenizer,
        "--out",
        str(tmp_path / "s"),
        "--max_name",
        "32",
        "--max_definition",
        "40",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0 and "samples of an epoch" in done.stdout, done.stderr
    assert read_json(tmp_path / "s" / "manifest.json") == read_json(
        Path(fake_genbioel.samples) / "manifest.json"
    )
    assert samples.build_samples(
        [fake_genbioel.graph],
        fake_genbioel.tokenizer,
        str(tmp_path / "s"),
        choice=samples.SampleChoice(max_name=32, max_definition=40),
    )


# synonym-aware fine-tuning, Section 2.3


@pytest.fixture(scope="module")
def tuned(fake_genbioel: Folders, task: str, tmp_path_factory: pytest.TempPathFactory) -> Folders:
    folder = build_mentions(
        task,
        fake_genbioel.tokenizer,
        str(tmp_path_factory.mktemp("m") / "m"),
        abbreviations=True,
        max_words=8,
        max_name=32,
    )
    return fake_genbioel._replace(samples=str(folder))


def test_mentions_by_the_papers_rules(tuned: Folders, inputs: Inputs, task: str) -> None:
    source = MentionSamples(tuned.samples, inputs)
    names = words_of(source)  # type: ignore[arg-type]
    rows = [
        [decode_ids(inputs, part).strip() for part in source.parts(i, np.random.default_rng(0))]
        for i in range(len(source.left))
    ]
    assert rows[0][:3] == ["", "heart attack", "is what end users with start words call"]
    assert rows[0][3] == "heart attack"
    assert rows[1] == [
        "words call it. acute",
        "renal failure",
        "(arf) after it. arf",
        "renal failure",
    ]
    # D7: the mention is expanded,
    assert rows[2][1] == "acute renal failure" and rows[2][3] == "renal failure"
    assert rows[2][2] == "is bad." and "(arf)" in rows[2][0]  # the text around it is not
    assert rows[3] == ["", "high temp is bad", "", "fever"]  # without context the mention alone
    # a composite's parts
    assert [r[1] for r in rows[4:6]] == ["colds", "fevers"] and rows[5][3] == "fever"
    assert rows[6][1] == "either" and rows[6][3] in (
        "heart attack",
        "mi",
        "myocardial infarction",
        "common cold",
        "cold",
    )
    assert len(rows) == 15 and all(name in names for *_, name in rows)
    counts = source.manifest["counts"]
    assert (
        counts["overlapping mentions"] == 1
        and counts["mentions whose concept has no name here"] == 1
    )
    assert counts["mentions"] == 16 and counts["samples"] == 15 and counts["held out of them"] >= 1
    held = {m for m, h in enumerate(np.load(Path(tuned.samples) / "held_out.npy")) if h}
    assert set(source.held_out.tolist()) == held and not held & set(source.train.tolist())


def test_targets_by_every_rule(tuned: Folders, inputs: Inputs, task: str) -> None:
    """TF-IDF cosines typed out over character trigrams; the shortest; and one drawn name for all
    samples of a concept."""
    names = name_set(load_linking(task).dictionary)
    grams = [
        Counter(n.ljust(3)[i : i + 3] for i in range(len(n.ljust(3)) - 2)) for n in names.names
    ]
    idf = {
        g: np.log((1 + len(grams)) / (1 + sum(g in c for c in grams))) + 1 for c in grams for g in c
    }

    def vector(text: str) -> dict[str, float]:
        own = Counter(text.ljust(3)[i : i + 3] for i in range(len(text.ljust(3)) - 2))
        raw = {g: n * idf[g] for g, n in own.items() if g in idf}
        norm = np.sqrt(sum(v * v for v in raw.values())) or 1.0
        return {g: v / norm for g, v in raw.items()}

    def cosine(a: str, b: str) -> float:
        one, two = vector(a), vector(b)
        return float(sum(v * two.get(g, 0.0) for g, v in one.items()))

    asked = {
        "heart attack": "C1",
        "renal failure": "C4",
        "high temp is bad": "C3",
        "colds": "C2",
        "fevers": "C3",
    }
    sources = [MentionSamples(tuned.samples, inputs, rule) for rule in TARGETS]
    found = [
        decode_ids(inputs, sources[0].mention[i]).strip() for i in range(len(sources[0].mention))
    ]
    drawn_names = representative_names(names, "sample", 0)
    for mention, concept in asked.items():
        own = [names.names[n] for n in names.name_numbers(names.concepts.index(concept))]
        i = found.index(mention)
        best = min(own, key=lambda n: (-round(cosine(mention, n), 5), len(n), n))
        got = [decode_ids(inputs, s.names[int(s.targets[i])]).strip() for s in sources]
        assert got[0] == best and got[1] == min(own, key=lambda n: (len(n), n))
        assert got[2] == names.names[drawn_names[names.concepts.index(concept)]] and got[2] in own
        similarity = np.load(Path(tuned.samples) / "similarity.npy")[i]
        # D8: fitted on the task's names
        assert similarity == pytest.approx(cosine(mention, best), abs=1e-4)


def test_other_rules_for_mentions(fake_genbioel: Folders, task: str, tmp_path: Path) -> None:
    def build(place: str, **settings_: object) -> dict[str, int]:
        folder = build_mentions(task, fake_genbioel.tokenizer, str(tmp_path / place), **settings_)  # type: ignore[arg-type]
        return dict(read_json(folder / "manifest.json")["counts"])

    # "either" means two concepts
    assert build("a", composites=False)["composite mentions left out"] == 2
    assert build("b", splits=["train", "test"])["samples"] == 16
    assert "concepts that are left without a name" not in build("c", one_concept=False)
    with pytest.raises(InputError, match="no split 'dev'; it has "):
        build("d", splits=["dev"])
    with pytest.raises(InputError, match="target 'best': expected one of tfidf, shortest, sample"):
        MentionSamples(tmp_path / "a", Inputs(load_tokenizer(fake_genbioel.tokenizer)), "best")


def test_without_overlaps() -> None:
    def at(start: int | None, end: int | None, document: str = "d") -> Mention:
        return Mention("", document, start, end, "x", ["x"], [["C"]])

    every = [
        at(0, 5),
        at(0, 9),
        at(8, 12),
        at(9, 11),
        at(20, 22),
        at(20, 21, "e"),
        at(None, None),
        at(None, None),
    ]
    kept = without_overlaps(every)
    # the longer one of two that begin together
    assert kept == [every[i] for i in (1, 3, 4, 5, 6, 7)]


# BART's noise


@given(n=st.integers(1, 80), share=st.floats(0.05, 0.9), seed=st.integers(0, 999))
@settings(max_examples=100, deadline=None)
def test_infilled(n: int, share: float, seed: int) -> None:
    ids = np.arange(10, 10 + n)
    noisy = infill_spans(ids, np.random.default_rng(seed), 4, share)
    kept = noisy[noisy != 4]
    assert np.all(np.diff(kept) > 0) and set(kept) <= set(ids)  # in order; what is gone is gone
    assert abs((n - len(kept)) - share * n) <= 1
    assert not np.any((noisy[1:] == 4) & (noisy[:-1] == 4))


def test_infilled_lengths_are_poisson() -> None:
    ids = np.arange(10, 4010)
    noisy = infill_spans(ids, np.random.default_rng(0), 4)
    assert len(ids) - (noisy != 4).sum() == 1200
    edges = np.concatenate([[9], noisy[noisy != 4], [4010]])
    gaps = np.diff(edges)[np.diff(edges) > 1] - 1  # lengths of the spans that hid something
    masks = int((noisy == 4).sum())
    assert gaps.mean() == pytest.approx(3 / (1 - np.exp(-3)), rel=0.1)
    # of length 0: insertions
    assert (masks - len(gaps)) / masks == pytest.approx(np.exp(-3), abs=0.03)


def test_permuted() -> None:
    ends = np.zeros(20, bool)
    ends[9] = True
    ids = np.array([1, 2, 9, 3, 9, 4, 5])
    found = {
        tuple(permute_sentences(ids, ends, np.random.default_rng(i)).tolist()) for i in range(60)
    }
    parts = [(1, 2, 9), (3, 9), (4, 5)]
    assert found == {sum(order, ()) for order in itertools.permutations(parts)}


# batches


def make_data(
    fakes: Folders,
    world: int = 1,
    rank: int = 0,
    accumulate: int = 1,
    step: int = 0,
    **settings_: object,
) -> GenBioELData:
    data = GenBioELData(fakes.samples, fakes.tokenizer, **{"batch_size": 8, **LIMITS, **settings_})  # type: ignore[arg-type]
    data.trainer = SimpleNamespace(
        global_rank=rank, world_size=world, accumulate_grad_batches=accumulate, global_step=step
    )  # type: ignore[assignment]
    data.setup()
    return data


def rows_of(batches: list[GenBioELBatch]) -> list[tuple[list[int], ...]]:
    found = []
    for b in batches:
        for ids, mask, decoder, labels in zip(
            b.input_ids, b.attention_mask, b.decoder_input_ids, b.labels, strict=True
        ):
            n = int((labels != IGNORE).nonzero().max()) + 1
            found.append((ids[mask.bool()].tolist(), decoder[:n].tolist(), labels[:n].tolist()))
            assert (
                not mask[int(mask.sum()) :].any()
                and (ids[~mask.bool()] == 1).all()
                and (decoder[n:] == 1).all()
            )
    return found


def test_labels_are_the_name_alone(fake_genbioel: Folders) -> None:
    data = make_data(fake_genbioel)
    batch = data.batch(data.order(0)[0], 0)
    for ids, decoder, labels in rows_of([batch]):
        name = [t for t in labels if t != IGNORE]
        first = len(labels) - len(name)
        assert (
            decoder[0] == 2 and decoder[first] == data.inputs.linking and name[-1] == 2
        )  # the token before the name: is
        assert decoder[first + 1 :] == name[:-1] and labels[:first] == [IGNORE] * first
        text = decode_ids(data.inputs, ids)
        assert (
            text.startswith("<s>")
            and f" START{decode_ids(data.inputs, decoder[1:first])} END" in text
        )
    assert int(batch.counts) == int((batch.labels != IGNORE).sum())
    bare = make_data(fake_genbioel, prompt=False)
    assert all(
        d[0] == 2 and d[1:] == wanted[:-1]
        for _, d, wanted in rows_of([bare.batch(bare.order(0)[0], 0)])
    )


def test_denoising_reads_the_same_text(fake_genbioel: Folders, source: GraphSamples) -> None:
    data = make_data(fake_genbioel, objective="denoising")
    sample = data.order(0)[0]
    batch = data.batch(sample, 3)
    for number, (ids, decoder, labels) in zip(sample, rows_of([batch]), strict=True):
        left, mention, right, target = source.parts(
            int(number), np.random.default_rng([0, 4, int(number)])
        )
        text = decode_ids(data.inputs, labels[1:-1])
        first, second = (
            decode_ids(data.inputs, [*left, *mention, *right]),
            decode_ids(data.inputs, [*mention, data.inputs.linking, *target]),
        )
        wanted = f"{first}.{second}."
        assert text == wanted.replace("..", ".") and "START" not in text
        assert labels[0] == 0 and labels[-1] == 2 and decoder == [2, *labels[:-1]]
        assert 4 in ids and (ids[0], ids[-1]) == (0, 2)
    hidden = 1 - sum(int(((ids != 4) & (ids > 2)).sum()) for ids in batch.input_ids) / (
        int(batch.counts) - 2 * len(sample)
    )
    assert hidden == pytest.approx(0.3, abs=0.06)


def test_processes_share_every_batch(fake_genbioel: Folders) -> None:
    alone = list(make_data(fake_genbioel).train_dataloader())
    shared = [list(make_data(fake_genbioel, 2, rank, 2).train_dataloader()) for rank in range(2)]
    for step, whole in enumerate(alone):
        parts = [b for one in shared for b in one[2 * step : 2 * step + 2]]
        assert rows_of(parts) == rows_of([whole])
        assert sum(int(one[2 * step].counts) for one in shared) == int(whole.counts)
    # resumed
    assert rows_of(list(make_data(fake_genbioel, step=3).train_dataloader()))[:8] == rows_of(
        alone[3:4]
    )
    again = make_data(fake_genbioel)
    assert rows_of([again.batch(again.order(1)[0], 1)]) != rows_of(
        [again.batch(again.order(1)[0], 0)]
    )
    held = [
        b
        for rank in range(2)
        for b in make_data(fake_genbioel, 2, rank, eval_batch_size=1).val_dataloader()
    ]
    assert sum(int(b.counts) for b in held) == sum(
        int(b.counts) for b in make_data(fake_genbioel).val_dataloader()
    )
    with pytest.raises(InputError, match="cannot be shared by 3 processes"):
        make_data(fake_genbioel, 3).train_dataloader()


def test_an_export_makes_the_same_inputs(fake_genbioel: Folders, tmp_path: Path) -> None:
    data = make_data(fake_genbioel, prompt=False)
    data.export(str(tmp_path))
    again = Inputs.from_export(tmp_path)
    assert again.settings == data.inputs.settings == {**LIMITS, "prompt": False}
    assert again.encoder_input("renal", "a START renal END b") == data.inputs.encoder_input(
        "renal", "a START renal END b"
    )


def test_training_and_linker_make_the_same_inputs(tuned: Folders, task: str) -> None:
    from datamodules.linking import context_of

    data = make_data(tuned, batch_size=2, max_words=8)
    linking = load_linking(task)
    mention = linking.splits["train"][0]
    ids, decoder, _ = data.make_linking_example(0, np.random.default_rng(0))
    assert ids == data.inputs.encoder_input(
        mention.parts[0], context_of(mention, linking.documents)
    )
    prompt = data.inputs.prompt(mention.parts[0])
    assert (
        decoder[: len(prompt)] == prompt
        and decoder[len(prompt) :] == data.inputs.name("heart attack")[:-1]
    )
    assert plain("A  b") == "a b" and torch.is_tensor(data.batch(np.array([0]), 0).input_ids)


def test_documents_are_held_out_whole() -> None:
    """Mentions of one text are alike: in training and in validation, they would make validation
    easy."""
    documents = [f"d{i // 10}" for i in range(100)]
    mentions = [SelectedMention("", "", "", [0], document) for document in documents]
    for seed in range(5):
        chosen = _held_out(mentions, 500, seed)
        held = {d for d, c in zip(documents, chosen.tolist(), strict=True) if c}
        # a twentieth is five, and their document has ten
        assert len(held) == 1 and chosen.sum() == 10
    assert _held_out(mentions, 500, 0).tolist() != _held_out(mentions, 500, 1).tolist()
    assert not _held_out(mentions[:10], 500, 0).any()  # one document stays for training


def test_tokens_of_a_killed_run_go_with_the_next(fake_genbioel: Folders, tmp_path: Path) -> None:
    """One that was killed between writing its samples and removing the parts."""
    for _ in range(2):
        folder = samples.build_samples(
            [fake_genbioel.graph], fake_genbioel.tokenizer, str(tmp_path / "s")
        )
        assert [p.name for p in tmp_path.iterdir()] == ["s"]
        (tmp_path / "s.parts").mkdir()
        (tmp_path / "s.parts" / "texts.parquet").touch()
    assert folder == tmp_path / "s"
