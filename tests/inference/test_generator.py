"""A generator as a linker: what it finds is a name of the dictionary, the best by brute force,
however it is asked."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from app.cli import main
from benchmarks.linking.folds import with_one_name
from benchmarks.results import list_stored
from core.files import InputError
from datamodules.genbioel.concept_names import name_set
from datamodules.genbioel.finetuning import representative_names
from datamodules.genbioel.inputs import Inputs
from datamodules.linking import Dictionary
from datamodules.tokenizers import load_tokenizer
from inference.encoders import Embedder
from inference.generator import Generated, Generator, load_nearest
from inference.linkers import Names, NearestByTfIdf
from inference.options import LinkerOptions
from models.genbioel import load_bart
from tests.fakes import genbioel as fake
from tests.fakes import linking as fakes
from tests.fakes import sapbert

pytestmark = pytest.mark.usefixtures("preloaded")

ROOT = Path(__file__).parents[2]
WORDS = [
    ("D1", "renal failure"),
    ("D1", "kidney failure"),
    ("D2", "cardiac failure"),
    ("D2", "heart failure"),
    ("D3", "renal lesion"),
    ("D4", "lesion"),
    ("D4", "renal lesion"),
    ("D5", "nasal spasm of the region"),
]
MENTIONS = ["failing kidneys", "a lesion that is renal", "START of END", "nasal spasm", "x"]
CONTEXTS = [
    "the START failing kidneys END of him",
    None,
    "so START START of END END it is",
    None,
    "START x END",
]


@pytest.fixture(scope="module")
def bart(fake_genbioel: fake.Folders, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(
        fake.bart(tmp_path_factory.mktemp("generator") / "bart", fake_genbioel.tokenizer, seed=3)
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fakes.write(tmp_path_factory.mktemp("data"))


def names() -> Names:
    return Names(Dictionary([i for i, _ in WORDS], [n for _, n in WORDS]), "lower+punctuation")


def generator(
    bart: str, prompt: bool = True, nearest: Embedder | None = None, **options: Any
) -> Generator:
    inputs = Inputs(
        load_tokenizer(bart),
        max_length=96,
        max_mention=24,
        max_name=32,
        max_words=24,
        prompt=prompt,
    )
    model = SimpleNamespace(bart=load_bart(bart))
    return Generator(model, inputs, "fake", LinkerOptions(**options), nearest)


@torch.no_grad()
def every_score(
    one: Generator, mention: str, context: str | None, strings: list[str]
) -> dict[str, float]:
    """{name: mean log-probability of its tokens and </s>}, each name read by itself."""
    inputs, scores = one.inputs, {}
    ids = torch.tensor([inputs.encoder_input(mention, context)])
    prompt = inputs.prompt(mention)
    for string in strings:
        own = inputs.name(string)
        decoder = torch.tensor([[*prompt, *own[:-1]]])
        logits = (
            one.bart(ids, torch.ones_like(ids), decoder_input_ids=decoder).logits[0].log_softmax(-1)
        )
        scores[string] = float(
            logits[len(prompt) - 1 :].gather(1, torch.tensor(own)[:, None]).mean()
        )
    return scores


@pytest.mark.parametrize("prompt", [True, False])
def test_rankings_are_those_of_brute_force_and_concepts_are_whole(bart: str, prompt: bool) -> None:
    dictionary, one = names(), generator(bart, prompt, beams=7)
    found = one.on(dictionary).link(MENTIONS, CONTEXTS)
    for mention, context, ranking in zip(MENTIONS, CONTEXTS, found, strict=True):
        scores = every_score(one, mention, context, dictionary.strings)
        order = sorted(scores, key=lambda s: -scores[s])
        by_hand = dictionary.ranking([(dictionary.strings.index(s), scores[s]) for s in order])
        assert [c.concept for c in ranking] == [c.concept for c in by_hand]
        assert np.allclose([c.score for c in ranking], [c.score for c in by_hand], atol=1e-4)
        assert {c.concept for c in ranking} == {i for i, _ in WORDS}
        assert all(c.concept in dictionary.concepts[c.name] for c in ranking)


def test_the_same_whatever_the_batch(bart: str) -> None:
    dictionary = names()
    whole = generator(bart, beams=3).on(dictionary).link(MENTIONS, CONTEXTS)
    single = (
        generator(bart, beams=3, tokens=1).on(dictionary).link(MENTIONS[::-1], CONTEXTS[::-1])[::-1]
    )
    for one, other in zip(whole, single, strict=True):
        assert [c.concept for c in one] == [c.concept for c in other]
        assert np.allclose([c.score for c in one], [c.score for c in other], atol=1e-4)


def test_candidates_restrict_each_mention(bart: str) -> None:
    dictionary = names()
    mentions, contexts = ["renal failure now", "nasal region", "qqq"], [None, None, None]
    found = generator(bart, beams=5, candidates="tfidf:2").on(dictionary).link(mentions, contexts)
    nearest = NearestByTfIdf(dictionary).tfidf
    for mention, ranking in zip(mentions, found, strict=True):
        scores, rows = nearest.search([mention], 2)
        allowed = {dictionary.strings[i] for i, s in zip(rows[0], scores[0], strict=True) if s > 0}
        assert {c.name for c in ranking} == allowed
    assert found[2] == []  # like no name: no candidate, and no ranking


def test_a_name_that_cannot_be_written_is_counted(
    bart: str, capsys: pytest.CaptureFixture[str]
) -> None:
    long = " ".join(["renal"] * 60)
    dictionary = Names(Dictionary(["A", "B"], ["renal failure", long]), "lower+punctuation")
    linker = generator(bart).on(dictionary)
    assert (
        linker.skipped == 1
        and "1 names of the dictionary cannot be written" in capsys.readouterr().err
    )
    assert [c.concept for c in linker.link(["b"], [None])[0]] == ["A"]


def test_one_name_a_concept() -> None:
    dictionary = Dictionary(["A", "A", "B", "A"], ["long name", "Name", "b", "mane"], {"A": ["A2"]})
    short = with_one_name(dictionary, "shortest")
    assert list(zip(short.ids, short.names, strict=True)) == [("A", "mane"), ("B", "b")]
    drawn = with_one_name(dictionary, "sample")
    assert (
        drawn.ids == ["A", "B"]
        and drawn.names[0] in dictionary.names
        and short.alternatives == {"A": ["A2"]}
    )
    assert (
        with_one_name(Dictionary(dictionary.ids[::-1], dictionary.names[::-1]), "sample").names[0]
        == drawn.names[0]
    )
    many = Dictionary(
        [f"C{i}" for i in range(60) for _ in range(3)],
        [f"{n} {i}" for i in range(60) for n in "abc"],
    )
    # what a fine-tuning with the same target is trained to write
    for rule in ("shortest", "sample"):
        names = name_set(many)
        wanted = {
            names.concepts[i]: names.names[n]
            for i, n in enumerate(representative_names(names, rule))
        }
        one = with_one_name(many, rule)
        assert dict(zip(one.ids, one.names, strict=True)) == wanted
    # drawn, not the first of each
    assert len({name[0] for name in with_one_name(many, "sample").names}) == 3


def test_fine_tuning_and_evaluation_by_command(
    data: Path, bart: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = Path(shutil.copytree(data / "AAP-EL", tmp_path / "own"))
    file = own / "askapatient" / "AskAPatient.fold-0.train.txt"
    first = file.read_text(encoding="latin-1").splitlines()[0].split("\t")
    with file.open("a", encoding="latin-1") as handle:
        handle.writelines(
            "\t".join([*first[:2], f"renal words {number}"]) + "\n" for number in range(40)
        )
    place = [f"DATA={own}", "FOLDS=0"]
    more = ["EPOCHS=1", "ARGS=--data.init_args.batch_size 2 --data.init_args.max_length 96"]
    assert (
        main(["finetune", "AAP-EL", *place, f"MODEL={bart}", "TARGET=shortest", "PROMPT=no", *more])
        == 0
    ), capsys.readouterr().err
    found = [r for r in list_stored("linking", "AAP-EL") if not r.is_baseline]
    labels = {r.label.partition(" fine-tuned")[2] for r in found}
    assert labels == {", target shortest, prompt no", ", target shortest, prompt no + back-off"}
    assert {r.details["linker"]["prompt"] for r in found} == {False}
    export = next((runs / "genbioel" / "finetune").glob("*/seed0/export"))
    words = ["MODEL=genbioel/finetune", f"CKPT={export}", *place]
    assert (
        main(
            [
                "evaluate",
                "AAP-EL",
                *words,
                "NAMES=shortest",
                "BEAMS=2",
                "SCORE=sum",
                "CANDIDATES=tfidf:3",
            ]
        )
        == 0
    )
    (one,) = (r for r in list_stored("linking") if r.protocol.get("names") and not r.is_baseline)
    assert one.label == "genbioel-finetune, sum, tfidf 3, names shortest"
    assert one.protocol["names"] == "one a concept: shortest"
    assert one.protocol["dictionary_names"] == one.protocol["dictionary_concepts"]
    assert one.details["linker"]["candidates"] == {"by": "tfidf", "names": 3}
    capsys.readouterr()
    for setting, message in (
        ("FINISH=soon", "FINISH=soon: expected one of"),
        ("CANDIDATES=tfidf", "expected all, tfidf:50"),
        ("BEAMS=0", "beams 0: expected a number"),
        ("NAMES=best", "NAMES=best: expected one of"),
        ("SCORE=most", "SCORE=most: expected one of"),
    ):
        assert (
            main(["evaluate", "AAP-EL", *words, setting]) == 2
            and message in capsys.readouterr().err
        )
    assert main(["finetune", "AAP-EL", *place, f"MODEL={bart}", "TARGET=longest"]) == 2
    assert "TARGET=longest: expected one of tfidf, shortest, sample" in capsys.readouterr().err


def test_candidates_of_an_encoder(bart: str, fake_sapbert: sapbert.Folders, runs: Path) -> None:
    """The K nearest names by the encoder, and nothing else, are what the search may write."""
    dictionary = names()
    by = f"{fake_sapbert.bert}:2"
    nearest = load_nearest(LinkerOptions(candidates=by))
    assert nearest is not None
    found = (
        generator(bart, beams=8, candidates=by, nearest=nearest)
        .on(dictionary)
        .link(["renal"], [None])
    )
    vectors = nearest(dictionary.strings) @ nearest(["renal"])[0]
    best = {dictionary.strings[i] for i in vectors.argsort(descending=True)[:2]}
    assert {c.name for c in found[0]} <= best and {c.concept for c in found[0]} == {
        c for name in best for c in dictionary.concepts[name]
    }
    assert load_nearest(LinkerOptions(candidates="all")) is None
    assert load_nearest(LinkerOptions(candidates="tfidf:2")) is None
    with pytest.raises(InputError, match="expected all, tfidf:50"):
        LinkerOptions(candidates="sapbert")


def test_a_name_of_another_language_is_a_name_of_its_concept(bart: str) -> None:
    """On a bilingual graph a generated Chinese name scores for the entity, beside the English one;
    a mention in either language may be written in either."""
    pairs = [*WORDS, ("D1", "肾衰竭"), ("D6", "鼻痉挛"), ("D6", "spasm of the nose")]
    both = Names(Dictionary([i for i, _ in pairs], [n for _, n in pairs]), "lower+punctuation")
    one = generator(bart, beams=9)
    mentions, contexts = ["肾衰竭", "failing kidneys"], ["他有 START 肾衰竭 END 多年", None]
    found = one.on(both).link(mentions, contexts)
    for mention, context, ranking in zip(mentions, contexts, found, strict=True):
        scores = every_score(one, mention, context, both.strings)
        best: dict[str, float] = {}
        for string, score in scores.items():
            for concept in both.concepts[string]:
                best[concept] = max(score, best.get(concept, -np.inf))
        assert {c.concept for c in ranking} == {i for i, _ in pairs}
        own = {c.concept: c.score for c in ranking}
        assert own == pytest.approx(best, abs=1e-4)
    assert any("\u4e00" <= c.name[0] <= "\u9fff" for ranking in found for c in ranking)


def test_the_nearest_names_restrict_a_mention_to_their_leaves() -> None:
    """The first name of the graph is row 0; -1 is a row that the index did not have."""
    found = SimpleNamespace(search=lambda vectors, most: (None, np.array([[0, 2, -1]])[:, :most]))
    nearest = Mock(return_value="vectors")
    nearest.on.return_value = SimpleNamespace(index=found)
    own = SimpleNamespace(
        generator=SimpleNamespace(candidates=("nearest", 5), nearest=nearest),
        names=SimpleNamespace(normalised=str.lower, strings=["a", "b", "c"]),
        work=None,
        leaf_of={0: 7, 1: 8, 2: 9},
    )
    assert Generated._find_allowed(own, ["A"]) == [[7, 9]]  # type: ignore[arg-type]
    nearest.assert_called_once_with(["a"])
