"""Chains: what is detected, what it may mean, what is left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from core.files import InputError
from core.json_files import read_json, write_json
from datamodules.kebiolm import KeBioLMData
from datamodules.tokenizers import load_tokenizer
from inference.attributes import describe_in_words
from inference.chain import Linked, Option, Pipeline
from inference.chain_steps import Steps, steps_of
from inference.detectors import FEW, Detected, Dictionary, detected_spans, unite_mentions
from inference.entity_table import EntityReader
from inference.linkers import Candidate, NearestByTfIdf
from inference.load import linkable
from inference.options import Matching
from inference.predict import predict_files
from inference.reranker import Ordered
from inference.results import as_record
from inference.stream import link_files
from inference.taggers import Tagger, load_tagger
from models.kebiolm import KeBioLM, KeBioLMEncoder
from models.transformer_files import load_bert
from tests.fakes.graphs import graph
from tests.fakes.kebiolm import Folders
from tests.inference.conftest import Trained

TEXT = "the patient shows Renal Failure (RF) and a rare cardiac lesion; RF may cause lesion"


@pytest.fixture
def small(tmp_path: Path) -> str:
    """Two diseases that share a name, and a drug."""
    names = [
        ("D1", "renal failure", "exact", "en"),
        ("D2", "Renal Failure", "related", "en"),
        ("D2", "cardiac lesion", "exact", "en"),
    ]
    made = graph(
        {"D1": "disease", "D2": "disease", "foozin": "drug"}, [("D1", "near", "D2")], names
    )
    return str(made.save(tmp_path / "graph"))


def test_a_chain_is_taken_apart() -> None:
    assert steps_of("dictionary") == Steps("dictionary", None, None)
    assert steps_of("kebiolm >sapbert> genbioel") == Steps("kebiolm", "sapbert", "genbioel")
    assert steps_of("kebiolm/pretrain_rand > names").detect == "kebiolm/pretrain_rand"
    for chain in ("", "dictionary >", "a > b > c > d", "dictionary > a > b > c"):
        with pytest.raises(InputError, match="expected DETECTOR"):
            steps_of(chain)
    with pytest.raises(
        InputError,
        match=(
            "'sapbert' finds no mentions. Begin with one of: dictionary, kebiolm, .*; as in"
            " 'dictionary > sapbert'"
        ),
    ):
        steps_of("sapbert")


def test_a_composite_mention_is_linked_part_by_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both parts are at the place of the whole; a mention that is a name is not split. A dictionary
    finds the whole, too."""
    names = [("D1", "breast cancer", "exact", "en"), ("D2", "ovarian cancer", "exact", "en")]
    folder = str(
        graph({"D1": "disease", "D2": "disease"}, [("D1", "near", "D2")], names).save(
            tmp_path / "graph"
        )
    )
    text = "Breast and ovarian cancer; ovarian cancer"
    places = [Detected(0, 25, None, 0.9, None), Detected(27, 41, None, 0.8, None)]
    pipeline = Pipeline(folder, "dictionary > names")
    monkeypatch.setattr(pipeline, "detect", lambda texts: [places])
    (found,) = pipeline.link([text])
    assert [(m.start, m.end, m.entity, m.part) for m in found] == [
        (0, 25, "D1", "Breast cancer"),
        (0, 25, "D2", "ovarian cancer"),
        (27, 41, "D2", None),
    ]
    for chain in ("dictionary", "dictionary > names"):
        (own,) = Pipeline(folder, chain).link([text])
        assert [(m.start, m.end, m.entity) for m in own] == [
            (m.start, m.end, m.entity) for m in found
        ]
    organs = [*names, ("O1", "breast", "exact", "en")]
    types = {"D1": "disease", "D2": "disease", "O1": "organ"}
    wide = str(graph(types, [("D1", "near", "D2")], organs).save(tmp_path / "organs"))
    # the organ is a part of the phrase
    assert [m.entity for m in Pipeline(wide).link([text])[0]] == ["D1", "D2", "D2"]
    same = str(
        graph({**types, "O1": "disease"}, [("D1", "near", "D2")], organs).save(tmp_path / "same")
    )
    # a name of its own type stays
    assert [m.entity for m in Pipeline(same).link([text])[0]] == ["O1", "D2", "D2"]


def test_a_composite_mention_in_which_no_name_stands_whole(tmp_path: Path) -> None:
    """The name of the end is a part of the phrase; places are those of the text as it is."""
    names = [(f"D{n}", f"type {n} pest", "exact", "en") for n in (1, 2)]
    names += [("D3", "pest", "exact", "en"), ("D4", "fever", "exact", "en")]
    types = dict.fromkeys(("D1", "D2", "D3", "D4"), "disease")
    folder = str(graph(types, [("D1", "near", "D2")], names).save(tmp_path / "graph"))
    text = "ﬁne: fever, type 1 and 2 pest, pest"  # a ligature, two letters in normal form
    for chain in ("dictionary", "dictionary > names"):
        (found,) = Pipeline(folder, chain).link([text])
        assert [(m.text, m.entity, m.part) for m in found] == [
            ("fever", "D4", None),
            ("type 1 and 2 pest", "D1", "type 1 pest"),
            ("type 1 and 2 pest", "D2", "type 2 pest"),
            ("pest", "D3", None),
        ]
        assert all(m.text == text[m.start : m.end] for m in found)
    (alone,) = Pipeline(folder).link(["type 1/2 pest"])
    assert [m.entity for m in alone] == ["D1", "D2"]


def test_what_is_found_by_a_weaker_form_says_so(tmp_path: Path) -> None:
    names = [
        ("D1", "Sjögren syndrome", "exact", "en"),
        ("C1", "neuron", "exact", "en"),
        ("C2", "neurons", "related", "en"),
    ]
    types = {"D1": "disease", "C1": "cell", "C2": "cell"}
    folder = str(graph(types, [("D1", "near", "C1")], names).save(tmp_path / "graph"))
    text = "Sjogren’s syndrome of Neurones, neuron and neurons"
    for chain in ("dictionary", "dictionary > names"):
        (found,) = Pipeline(folder, chain).link([text])
        assert [(m.text, m.entity, m.matched) for m in found] == [
            ("Sjogren’s syndrome", "D1", "punctuation+accents"),
            ("neuron", "C1", None),
            (
                "neurons",
                "C1" if chain == "dictionary" else "C2",
                "plural" if chain == "dictionary" else None,
            ),
        ]
        assert [describe_in_words(as_record(m)) for m in found[:2]] == [
            ["by punctuation+accents"],
            [],
        ]
    kept = Matching(kinds=["exact", "Related"])
    assert [m.entity for m in Pipeline(folder, matching=kept).link(["neurons"])[0]] == ["C2"]
    assert Pipeline(folder, matching=Matching(forms="exact")).link(["Sjogren syndrome"]) == [[]]
    assert Pipeline(folder, matching=kept).settings["kinds"] == ["exact", "related"]
    with pytest.raises(InputError, match="no kind of names 'exakt'; did you mean exact"):
        Matching(kinds=["exakt"])


def test_one_order_of_the_entities_of_a_name(tmp_path: Path) -> None:
    """The kind decides, then triples, then the id: alike for both chains."""
    rows = [
        ("A", "cold", "related"),
        ("B", "cold", "exact"),
        ("C", "cold", "exact"),
        ("A", "common cold", "exact"),
    ]
    names = [(*row, "en") for row in rows]
    folder = str(
        graph(dict.fromkeys("ABC", "x"), [("C", "near", "C")], names).save(tmp_path / "graph")
    )
    for chain in ("dictionary", "dictionary > names"):
        (found,) = Pipeline(folder, chain).link(["a cold"])
        assert [option.entity for option in found[0].candidates][:2] == ["C", "B"], chain


@pytest.mark.parametrize("chain", ["dictionary", "dictionary > names"])
def test_a_short_form_means_what_its_place_says(tmp_path: Path, chain: str) -> None:
    names = [
        ("D1", "heat rash", "exact", "en"),
        ("D2", "hay reaction", "exact", "en"),
        ("D1", "HR", "exact", "en"),
    ]
    folder = str(
        graph({"D1": "x", "D2": "x"}, [("D1", "near", "D2")], names).save(tmp_path / "graph")
    )
    text = "HR? Heat rash (HR): HR. Hay\nreaction (HR), HR"
    (found,) = Pipeline(folder, chain).link([text])
    assert [(m.entity, m.long_form) for m in found if m.text == "HR"] == [
        ("D1", None),
        ("D1", "Heat rash"),
        ("D1", "Heat rash"),
        ("D2", "Hay reaction"),
        ("D2", "Hay reaction"),
    ]


def test_a_text_twice_as_long_takes_twice_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contexts are cut, and the words of a text are counted once: characters handed on grow with
    the text."""
    names = [
        ("D1", "pox", "exact", "en"),
        ("D2", "pox", "exact", "en"),
        ("D1", "small pox", "exact", "en"),
    ]
    folder = str(
        graph({"D1": "x", "D2": "x"}, [("D1", "near", "D2")], names).save(tmp_path / "graph")
    )
    handed: list[int] = []
    pipeline = Pipeline(folder, "dictionary > names")
    link = pipeline._first.link
    monkeypatch.setattr(
        pipeline._first,
        "link",
        lambda mentions, contexts: handed.extend(map(len, contexts)) or link(mentions, contexts),
    )
    sizes = []
    for count in (3000, 6000):
        handed.clear()
        pipeline.link(["pox of " * count])
        sizes.append(sum(handed))
    assert len(handed) == 6000 and sizes[1] < 2.5 * sizes[0] and max(handed) < 9000


def test_a_dictionary_answers_the_same_before_and_after_it_has_its_automaton(small: str) -> None:
    pipeline = Pipeline(small)
    detector = pipeline.detectors[0]
    assert isinstance(detector, Dictionary)
    before = pipeline.link([TEXT])
    assert "linker" not in vars(detector)
    pipeline.link(["x" * FEW])
    assert "linker" in vars(detector) and pipeline.link([TEXT]) == before
    served = Pipeline(small)
    served.prepare()
    assert "linker" in vars(served.detectors[0]) and served.link([TEXT]) == before


def test_a_dictionary_detects_and_links(small: str) -> None:
    (found,) = Pipeline(small).link([TEXT])
    assert [(m.text, m.entity, m.type, m.score) for m in found] == [
        ("Renal Failure", "D1", "disease", 1.0),
        ("RF", "D1", "disease", 1.0),
        ("cardiac lesion", "D2", "disease", 1.0),
        ("RF", "D1", "disease", 1.0),
    ]
    assert all(
        TEXT[m.start : m.end] == m.text
        and m.candidates == (Option(m.entity or "", m.name or "", 1.0),)
        for m in found
    )
    assert [m.long_form for m in found] == [None, "Renal Failure", None, "Renal Failure"]
    assert Pipeline(small).link(["", "nothing", "foozin"])[2][0].entity == "foozin"
    assert Pipeline(small).link([]) == []


def test_names_give_every_entity_that_has_one(small: str) -> None:
    (found,) = Pipeline(small, "dictionary > names").link([TEXT])
    assert [[c.entity for c in m.candidates] for m in found] == [
        ["D1", "D2"],
        ["D1", "D2"],
        ["D2"],
        ["D1", "D2"],
    ]
    (one,) = Pipeline(small, "dictionary > names", top=1).link([TEXT])
    assert [len(m.candidates) for m in one] == [1, 1, 1, 1]


def test_of_entities_with_one_name_the_text_decides(tmp_path: Path) -> None:
    """By every step that knows names alike; what nothing decides is tied; a short form means what
    its text defines."""
    types = {"D1": "infection", "D2": "sensation", "D3": "finding"}
    names = [
        (entity, name, "synonym", "en")
        for entity, name in (("D1", "cold"), ("D2", "cold"), ("D1", "MS"), ("D3", "MS"))
    ]
    folder = graph(types, [], [*names, ("D3", "Mitral stenosis", "exact", "en")]).save(
        tmp_path / "graph"
    )
    texts = [
        "a cold, a sensation",
        "a cold, an infection",
        "a cold",
        "Mitral stenosis (MS); MS is no infection",
    ]
    for chain in ("dictionary", "dictionary > names", "dictionary > tfidf"):
        if chain.endswith("tfidf"):
            pipeline = Pipeline(folder, "dictionary > names")
            pipeline.finder = NearestByTfIdf(pipeline.names)
        else:
            pipeline = Pipeline(folder, chain)
        found = pipeline.link(texts)
        assert [own[0].entity for own in found] == ["D2", "D1", "D1", "D3"], chain
        assert [[o.tied for o in own[0].candidates[:2]] for own in found[:3]] == [
            [False] * 2,
            [False] * 2,
            [True] * 2,
        ], chain
        assert [m.entity for m in found[3]] == ["D3"] * 3, chain


def test_below_the_threshold_a_mention_means_nothing(small: str) -> None:
    (found,) = Pipeline(small, nil=1.5).link([TEXT])
    assert len(found) == 4 and all(
        (m.entity, m.name, m.type, m.score) == (None,) * 4 and m.candidates for m in found
    )
    assert Pipeline(small, nil=1.0).link([TEXT])[0][0].entity == "D1"


def test_only_mentions_of_some_types(small: str) -> None:
    """Whatever the case; one that is linked to nothing has no type."""
    text = TEXT + " after foozin"
    (every,), (drugs,), (two,) = (
        Pipeline(small, types=types).link([text]) for types in ((), ("DRUG",), ("drug", "Disease"))
    )
    assert [m.text for m in drugs] == ["foozin"] and two == every and len(every) == 5
    assert Pipeline(small, nil=1.5, types=["drug"]).link([text]) == [[]]
    made = Pipeline(small, types=["drug"])
    assert made.settings["types"] == ["drug"] and "types" not in Pipeline(small).settings
    again, given = made.__reduce__()
    assert again(*given).link([text]) == [drugs]
    with pytest.raises(
        InputError,
        match=(
            "no entity of .* is of type 'diseas'; did you mean disease.*Choose from: disease, drug"
        ),
    ):
        Pipeline(small, types=["diseas"])


class Says:
    """A linker that says the same of every mention."""

    def __init__(self, ranking: Sequence[Candidate]) -> None:
        self.ranking = list(ranking)

    def link(
        self, mentions: Sequence[str], contexts: Sequence[str | None]
    ) -> list[list[Candidate]]:
        return [self.ranking for _ in mentions]


def test_a_linker_as_reranker_orders_candidates_and_adds_none() -> None:
    a, b, c = (Candidate(x, x, s) for x, s in (("a", 0.9), ("b", 0.8), ("c", 0.7)))
    order = [Candidate("x", "x", 5.0), Candidate("c", "c", 4.0), Candidate("a", "a", 3.0)]
    assert Ordered(Says(order)).rank(["m", "m"], [None, None], [[a, b, c], []]) == [
        [order[1], order[2], b],
        [],
    ]
    assert Ordered(Says([])).rank(["m"], [None], [[a]]) == [[a]]


def test_the_third_step_orders_what_the_second_found(small: str) -> None:
    pipeline = Pipeline(small, "dictionary > names")
    pipeline.finder = Says([Candidate("D1", "D1", 0.0), Candidate("D2", "D2", -1.0)])
    pipeline.ranker = Ordered(
        Says([Candidate(c, c, float(-i)) for i, c in enumerate(("foozin", "D2", "D1"))])
    )
    (found,) = pipeline.link([TEXT])
    assert {tuple(c.entity for c in m.candidates) for m in found} == {("D2", "D1")} and found[
        0
    ].score == -1.0


def test_names_may_be_the_third_step(small: str) -> None:
    pipeline = Pipeline(small, "dictionary > names > names")
    assert pipeline.link([TEXT]) == Pipeline(small, "dictionary > names").link([TEXT])


@pytest.fixture
def model(fake_kebiolm: Folders) -> KeBioLMEncoder:
    torch.manual_seed(1)
    made = KeBioLMEncoder(load_bert(fake_kebiolm.bert), torch.randn(5, 8), text_layers=2).eval()
    nn.init.normal_(made.detector.weight, std=2.0)
    return made


@torch.no_grad()
def test_detected_mentions_are_the_detectors_spans_in_characters(
    model: KeBioLMEncoder, fake_kebiolm: Folders
) -> None:
    tokenizer = load_tokenizer(fake_kebiolm.bert)
    reader = EntityReader(model, tokenizer, [], {}, "fake", max_length=10)
    texts = [
        "the patient  shows renal failure",
        "",
        " ".join(["rare cardiac lesion under onset"] * 5),
    ]
    found = detected_spans(reader, texts)
    for text, spans in zip(texts, found, strict=True):
        encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        by_hand = []
        for first in range(0, len(encoded["input_ids"]), 8):
            ids = [
                tokenizer.cls_token_id,
                *encoded["input_ids"][first : first + 8],
                tokenizer.sep_token_id,
            ]
            labels = (
                model.detector(
                    model.text_states(torch.tensor([ids]), torch.ones(1, len(ids)).long())[0]
                )[0]
                .argmax(-1)
                .tolist()
            )
            offsets, start = encoded["offset_mapping"][first : first + 8], None
            for place, label in enumerate([*labels[1:-1], 0]):
                if start is not None and label != 2:
                    by_hand.append((offsets[start][0], offsets[place - 1][1]))
                    start = None
                if label == 1 or (label == 2 and start is None):
                    start = place
        assert spans == sorted(set(by_hand))
    assert found[1] == [] and sum(map(len, found)) > 2


def test_a_kebiolm_detects_and_links_with_its_table(fake_kebiolm: Folders, tmp_path: Path) -> None:
    torch.manual_seed(1)
    module = KeBioLM(fake_kebiolm.bert, fake_kebiolm.entities, text_layers=2)
    module.configure_model()
    assert module.encoder is not None
    nn.init.normal_(module.encoder.detector.weight, std=2.0)
    export = tmp_path / "export"
    export.mkdir()
    module.export(export)
    data = KeBioLMData(
        fake_kebiolm.corpus,
        fake_kebiolm.bert,
        fake_kebiolm.entities,
        batch_size=16,
        graph=fake_kebiolm.graph,
    )
    data.setup()
    data.export(export)
    write_json(export / "manifest.json", {"paper": "kebiolm", "checksums": {}})
    pipeline = Pipeline(fake_kebiolm.graph, str(export), top=3)
    (found,) = pipeline.link(
        ["the patient shows renal failure and a rare cardiac lesion under onset"]
    )
    assert found and all(
        isinstance(m, Linked) and m.entity and len(m.candidates) == 3 for m in found
    )
    assert pipeline.identities[str(export)]
    (named,) = Pipeline(fake_kebiolm.graph, f"{export} > names").link(["renal failure"])
    assert all(m.entity in (None, "E000") for m in named)


@pytest.mark.parametrize(
    "chain, wanted",
    [
        ("dictionary > dictionary", "second step finds candidates"),
        ("dictionary > ./nowhere", "no such folder"),
        ("dictionary > name", "no model 'name'; did you mean names?"),
        ("dictionary > sapbrt > genbioel", "no model 'sapbrt'; did you mean sapbert?"),
    ],
)
def test_what_no_chain_can_be_made_of(small: str, chain: str, wanted: str) -> None:
    with pytest.raises(InputError, match=wanted):
        Pipeline(small, chain)
    with pytest.raises(InputError, match="top 0"):
        Pipeline(small, top=0)
    with pytest.raises(InputError, match="no knowledge graph here"):
        Pipeline("nowhere")


def test_of_two_detectors_the_longer_mention_is_kept_and_of_equals_the_firsts() -> None:
    a = [
        Detected(0, 4, "a"),
        Detected(10, 14, "a", 0.5),
        Detected(20, 22, "a"),
        Detected(20, 25, "a"),
    ]
    b = [Detected(2, 9, "b"), Detected(10, 14, "b"), Detected(16, 18, "b"), Detected(24, 27, "b")]
    assert unite_mentions([a, b]) == [
        b[0],
        a[1],
        b[2],
        a[2],
        a[3],
    ]  # nested ones of one detector stay
    assert (
        unite_mentions([b, a])[1] == b[1]
        and unite_mentions([[], b]) == b
        and unite_mentions([a]) == a
    )


@pytest.fixture
def diseases(tmp_path: Path) -> str:
    """A graph of some of the fake task's words."""
    return str(
        graph(
            {"acne": "skin", "gout": "joint", "the doctor": "person"}, [("acne", "near", "gout")]
        ).save(tmp_path / "g")
    )


@pytest.mark.parametrize("name", ["ner", "crf", "nested"])
def test_a_fine_tuned_tagger_detects(
    diseases: str, trained: Callable[[str], Trained], name: str
) -> None:
    export = trained(name).folder / "export"
    tagger = load_tagger(export)
    assert isinstance(tagger, Tagger)
    texts = ["the doctor saw acne and polio", "", "gave some gout today", "severe acne"]
    expected = tagger.predict(texts)
    assert sum(map(len, expected)) > 1
    pipeline = Pipeline(diseases, str(export))
    for mentions, spans in zip(pipeline.link(texts), expected, strict=True):
        assert [(m.start, m.end, m.text, m.type, m.detector_score) for m in mentions] == spans
        for mention in mentions:  # names are the second step that is left out
            entity = mention.text if mention.text in ("acne", "gout", "the doctor") else None
            assert (mention.entity, mention.score) == ((entity, 1.0) if entity else (None, None))
    assert pipeline.identities == {str(export): read_json(export / "manifest.json")["identity"]}
    made = {"tagger": pipeline.identities[str(export)], "precision": "fp32"}
    assert pipeline.settings["models"] == [made]
    record = as_record(next(m for mentions in pipeline.link(texts) for m in mentions))
    assert {"start", "end", "text", "type", "score", "detector_score", "entity"} <= set(record)


def test_a_tagger_and_the_dictionary_together(
    diseases: str, trained: Callable[[str], Trained]
) -> None:
    export = trained("ner").folder / "export"
    text = "the doctor saw acne and polio"
    (both,) = Pipeline(diseases, f"{export} + dictionary > names").link([text])
    (named,), (tagged,) = (
        Pipeline(diseases).link([text]),
        Pipeline(diseases, str(export)).link([text]),
    )
    assert {(m.start, m.end) for m in both} == {(m.start, m.end) for m in [*named, *tagged]}
    # the entity's, as the dictionary names no type
    assert [m.type for m in both if m.text == "the doctor"] == ["person"]
    assert Pipeline(diseases, f"{export} + dictionary").steps.detectors == [
        str(export),
        "dictionary",
    ]


def test_what_finds_no_mentions_is_no_detector(
    diseases: str, trained: Callable[[str], Trained], runs: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="a model of kind pair; expected a tagger"):
        Pipeline(diseases, str(trained("pair").folder / "export"))
    with pytest.raises(
        InputError,
        match=r"Did you mean NCBI/minilm\? Begin with one of: dictionary, kebiolm, TASK/encoder",
    ):
        steps_of("NCBBI/minilm > names")
    with pytest.raises(InputError, match="Trained on NCBI: nothing yet"):
        Pipeline(diseases, "NCBI/minilm")
    place = runs / "finetune" / "NCBI" / "fake" / "abcd"
    place.mkdir(parents=True)
    (place / "seed0").symlink_to(trained("ner").folder)
    assert list(Pipeline(diseases, "NCBI/fake@abcd-seed0").identities) == ["NCBI/fake@abcd-seed0"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"graph": None}, r"Pipeline: graph: expected str or Path or KnowledgeGraph, got NoneType"),
        ({"graph": "nowhere"}, r"graph 'nowhere': no such folder, so no knowledge graph here"),
        ({"chain": ["names"]}, r"chain: expected str, got list"),
        ({"top": "5"}, r"top: expected int, got str \('5'\)"),
        ({"types": {1}}, r"types: expected str or an iterable of str, got set"),
        ({"matching": "exact"}, r"matching: expected Matching or None, got str"),
        ({"beems": 3}, r"no option 'beems'; did you mean beams"),
        ({"tokens": "many"}, r"LinkerOptions: tokens: expected int, got str"),
    ],
)
def test_an_error_names_the_parameter(small: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, InputError), match=message):
        Pipeline(**({"graph": small} | given))


def test_functions_of_files_name_the_parameter(small: str, tmp_path: Path) -> None:
    pipeline, out = Pipeline(small), tmp_path / "o.jsonl"
    for function, arguments, message in (
        (link_files, (None, ["x"], out), "pipeline: expected Pipeline, got NoneType"),
        (link_files, (pipeline, "notes.txt", out), "inputs: expected a sequence of str or Path"),
        (link_files, (pipeline, [], out), "inputs: expected at least one file"),
        (link_files, (pipeline, [tmp_path / "none.txt"], out), "none.txt: no such file"),
        (predict_files, (pipeline, ["x"], out), "model: expected EntityTagger or Rel"),
        (load_tagger, (7,), "load_tagger: name: expected str or Path, got int"),
        (linkable, (None,), "name: expected str, got NoneType"),
    ):
        with pytest.raises((TypeError, InputError), match=message):
            function(*arguments)  # type: ignore[operator]
