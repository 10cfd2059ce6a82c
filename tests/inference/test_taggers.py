"""Fine-tuned models on new text: the same predictions as in fine-tuning, from a folder that was
moved."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torchcrf import CRF

from core.files import InputError
from core.json_files import read_json, write_json
from core.reading import sha256
from datamodules.kebiolm import KeBioLMData
from datamodules.pairs import candidate_pairs, mark_pair, sentences
from datamodules.tagging import overlapping_windows
from datamodules.tasks import Tagged, load_task, save_task
from experiments.names import encoder as encoder_of
from inference.entity_tagger import Span
from inference.taggers import (
    Labelled,
    PairModel,
    Ranker,
    RelationModel,
    Tagger,
    apart,
    around,
    crf_marginals,
    load_tagger,
)
from models.encoders import TextEncoder
from models.kebiolm import KeBioLM
from models.metrics import acc1_tallies, label_tallies, score, span_tallies
from models.smedbert import SMedBERT
from tests.datamodules.test_smedbert.test_data import data as smedbert_data
from tests.fakes import kebiolm, smedbert, tasks
from tests.inference.conftest import HEADS, Trained, fine_tune


def predictions(run: Trained) -> list[Any]:
    return [
        json.loads(line)["predicted"]
        for line in (run.folder / "predictions.jsonl").read_text().splitlines()
    ]


@pytest.mark.parametrize("name", HEADS)
def test_predictions_of_the_scored_split_are_fine_tunings(
    name: str, trained: Callable[[str], Trained]
) -> None:
    run = trained(name)
    model, examples = load_tagger(run.folder / "export"), load_task(run.task).splits["test"]
    records = model.predict_examples(examples)
    assert [r["id"] for r in records] == [e.id for e in examples]
    if isinstance(model, Tagger):
        found = [[(m["start"], m["end"], m["type"]) for m in r["mentions"]] for r in records]
        assert [sorted(map(tuple, spans)) for spans in predictions(run)] == found and sum(
            map(len, found)
        ) > 5
        measured = score(span_tallies(found, [e.entities for e in examples]))
    elif isinstance(model, Ranker):
        values = [r["score"] for r in records]
        assert values == predictions(run)
        right = [e.label == "1" for e in examples]
        measured = score(acc1_tallies(values, right, [e.document for e in examples])[1])
    else:
        labels = [r["label"] for r in records]
        assert labels == predictions(run)
        counted = ["1"] if name == "pair" else [label for label in model.labels if label != "none"]
        gold = [e.gold if name == "relation" else [e.label] for e in examples]
        measured = score(label_tallies(labels, gold, counted))
    assert measured == pytest.approx(run.scores["score"][run.scores["metric"]], abs=1e-9)


@pytest.mark.parametrize("name", ["ner", "crf", "nested"])
def test_words_of_the_source_and_scores(name: str, trained: Callable[[str], Trained]) -> None:
    run = trained(name)
    model, examples = load_tagger(run.folder / "export"), load_task(run.task).splits["test"]
    assert isinstance(model, Tagger) and model.kind == ("nested" if name == "nested" else "ner")
    found = model.predict([e.text for e in examples], [e.words for e in examples])
    # the fake words are those of the text
    assert found == model.predict([e.text for e in examples])
    assert [[s._asdict() for s in spans] for spans in found] == [
        r["mentions"] for r in model.predict_examples(examples)
    ]
    every = [s for spans in found for s in spans]
    assert every and all(0 < s.score <= 1 and s.text and s.type in model.labels for s in every)
    whole = model.predict([examples[0].text], [[(0, len(examples[0].text))]])[0]
    assert all((s.start, s.end) == (0, len(examples[0].text)) for s in whole)
    assert model.predict(["", "  "]) == [[], []] and model.predict([]) == []


def test_a_text_of_two_sentences_is_tagged_as_each_alone(trained: Callable[[str], Trained]) -> None:
    model = load_tagger(trained("ner").folder / "export")
    assert isinstance(model, Tagger)
    one, two = "The doctor saw acne and polio. ", "Then acne, not polio, was seen."
    (found,), (first,), (second,) = (
        model.predict([one + two]),
        model.predict([one]),
        model.predict([two]),
    )
    assert first and second
    moved = [s._replace(start=s.start + len(one), end=s.end + len(one)) for s in second]
    assert [s[:4] for s in found] == [s[:4] for s in (*first, *moved)]
    scores = [s.score for s in (*first, *second)]
    assert [s.score for s in found] == pytest.approx(scores, abs=1e-5)  # other batches


def test_a_span_scores_the_mean_of_its_labels_probabilities(
    trained: Callable[[str], Trained],
) -> None:
    model = load_tagger(trained("ner").folder / "export")
    assert isinstance(model, Tagger)
    text = "the doctor saw acne and polio"
    (feature,) = model.data.cut_windows(
        0, load_task(trained("ner").task).splits["test"][0]._replace(text=text, words=None)
    )
    ids = torch.tensor([feature.ids])
    with torch.inference_mode():
        states = model.module.encoder(ids, torch.ones_like(ids))[0, torch.tensor(feature.unit)]
        probabilities = model.module.head.linear(states).softmax(-1)
    for span in model.predict([text])[0]:
        first = text[: span.start].count(" ")
        count = len(span.text.split())
        assert span.score == pytest.approx(
            float(probabilities[first : first + count].max(-1).values.mean()), abs=1e-5
        )


@pytest.mark.parametrize("sizes", [[1], [4], [3, 5, 1], [2, 2, 6]])
def test_crf_marginals_are_sums_over_all_sequences(sizes: list[int]) -> None:
    torch.manual_seed(sum(sizes))
    crf, classes = CRF(3, batch_first=True), 3
    torch.nn.init.normal_(crf.transitions)
    scores, mask = (
        torch.randn(len(sizes), max(sizes), classes),
        torch.zeros(len(sizes), max(sizes), dtype=torch.bool),
    )
    for row, size in enumerate(sizes):
        mask[row, :size] = True
    found = crf_marginals(crf, scores, mask)
    for row, size in enumerate(sizes):
        by_hand = torch.zeros(size, classes)
        for labels in itertools.product(range(classes), repeat=size):
            value = crf.start_transitions[labels[0]] + crf.end_transitions[labels[-1]]
            value = value + sum(scores[row, t, label] for t, label in enumerate(labels))
            value = value + sum(crf.transitions[a, b] for a, b in itertools.pairwise(labels))
            for t, label in enumerate(labels):
                by_hand[t, label] += value.exp()
        assert torch.allclose(found[row, :size], by_hand / by_hand.sum(-1, keepdim=True), atol=1e-5)


def test_overlapping_windows_share_at_most_what_they_may_and_cover_all() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        sizes = rng.integers(1, 5, rng.integers(0, 60)).tolist()
        room, overlap = int(rng.integers(5, 20)), int(rng.integers(1, 5))
        cuts = overlapping_windows(sizes, room, overlap)
        assert sorted({i for a, b in cuts for i in range(a, b)}) == list(range(len(sizes)))
        assert all(sum(sizes[a:b]) <= room for a, b in cuts)
        for (a, b), (c, d) in itertools.pairwise(cuts):
            assert a < c <= b < d and sum(sizes[c:b]) <= overlap


def test_of_a_mention_in_two_windows_the_one_with_more_context_decides() -> None:
    assert (
        around((3, 5), (0, 10), 10) == np.inf
        and around((3, 5), (0, 10), 20) == 5
        and around((3, 5), (2, 10), 20) == 1
    )
    assert around((3, 5), (4, 10), 20) == -1 and around((15, 20), (10, 20), 20) == 5
    assert around((10, 15), (10, 18), 20) == 0 == around((12, 18), (10, 18), 20)
    spans = [(2.0, 0, 4, "a", 0.5), (3.0, 3, 5, "b", 0.5), (1.0, 5, 6, "c", 0.5)]
    assert apart(spans) == [spans[1], spans[2]]


@pytest.mark.parametrize("name", ["ner", "nested"])
def test_a_long_text_is_read_in_overlapping_windows(
    name: str, trained: Callable[[str], Trained]
) -> None:
    """Every kept mention is what the window with the most context around it says; words far from
    borders are found as alone."""
    model = load_tagger(trained(name).folder / "export")
    assert isinstance(model, Tagger)
    text = " ".join(["the doctor saw acne and gave some zyban today"] * 12)
    (found,) = model.predict([text])
    features = list(
        model.data.cut_windows(
            0, load_task(trained(name).task).splits["test"][0]._replace(text=text, words=None), 3
        )
    )
    assert len(features) > 5 and found and len(set(found)) == len(found)
    if name == "ner":
        assert all(a.end <= b.start for a, b in itertools.pairwise(found))
    inside: dict[tuple[int, int, str], float] = {}
    total = len(text.split())
    for feature in features:
        first, last = feature.first_unit, feature.first_unit + len(feature.unit)
        words = text.split()[first:last]
        shift = len(" ".join(text.split()[:first])) + bool(first)
        for span in model.predict([" ".join(words)])[0]:
            start = span.start + shift
            units = text[:start].count(" "), text[: span.end + shift].count(" ") + 1
            best = max(
                around(units, (f.first_unit, f.first_unit + len(f.unit)), total) for f in features
            )
            if around(units, (first, last), total) == best:
                inside.setdefault((start, span.end + shift, span.type), span.score)
    assert {(s.start, s.end, s.type) for s in found} <= set(inside)
    assert len(found) >= 0.8 * len(inside)  # of conflicting windows one is kept


def test_relations_between_mentions(trained: Callable[[str], Trained]) -> None:
    model = load_tagger(trained("relation").folder / "export")
    assert isinstance(model, RelationModel) and model.data.markers == tasks.MARKERS
    text = "the fever causes acne . today botox follows gout"
    places = ((4, 9), (17, 21))
    marked = "the @GENE$ causes @DISEASE$ . today botox follows gout"
    assert mark_pair(text, *places, tasks.MARKERS) == marked
    (one,), (two,) = model.predict([text], [places]), model.predict([marked])
    assert one == two and 0 < one.score <= 1
    mentions = [(4, 9, "Gene"), (17, 21, "disease"), (30, 35, "gene"), (44, 48, "Disease")]
    (found,) = model.relations([text], [mentions])
    assert {(r.first, r.second) for r in found} <= {(0, 1), (2, 3)}  # one sentence each
    for related in found:
        sentence, shift = (text[:24], 0) if related.first == 0 else (text[24:], 24)
        first, second = (
            tuple(p - shift for p in mentions[i][:2]) for i in (related.first, related.second)
        )
        label, score = model.predict([sentence], [(first, second)])[0]  # type: ignore[list-item]
        assert (label, score) == (related.label, pytest.approx(related.score, abs=1e-5))
    assert all(r.label != "none" for r in found) and model.relations(["x"], [[]]) == [[]]
    with pytest.raises(InputError, match="overlap"):
        model.predict([text], [((4, 9), (5, 12))])
    with pytest.raises(InputError, match="expected a place inside"):
        model.predict([text], [((4, 9), (5, 1000))])


def test_which_pairs_of_a_text_are_classified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one sentence and the task's types, overlapping ones where a marker means both; no
    negative class."""
    model = object.__new__(RelationModel)
    model.language, model.negative = "en", "none"
    asked: list[list[str]] = []

    def predict(
        texts: Sequence[str], pairs: Sequence[tuple[tuple[int, int], tuple[int, int]]]
    ) -> list[Labelled]:
        both = zip(texts, pairs, strict=True)
        asked.append([f"{text[a:b]}-{text[c:d]}" for text, ((a, b), (c, d)) in both])
        return [Labelled("none" if number else "acts", 0.5) for number in range(len(texts))]

    monkeypatch.setattr(model, "predict", predict)
    text = "Gene abc causes gout. Then def follows."
    mentions = [(0, 8, "gene"), (5, 8, "disease"), (16, 20, "disease"), (27, 30, "disease")]
    for markers, overlapping in (
        (["@GENE$", "@DISEASE$"], []),
        (["@GENE$", "@DISEASE$", "@GENE-DISEASE$"], ["Gene abc-abc"]),
    ):
        monkeypatch.setattr(model, "data", SimpleNamespace(markers=markers), raising=False)
        (found,) = model.relations([text], [mentions])
        assert asked.pop() == [*overlapping, "Gene abc-gout"]
        assert [(r.first, r.second, r.label) for r in found] == [
            (0, 1 if overlapping else 2, "acts")
        ]


def test_pairs_are_marked_as_the_readers_mark_them() -> None:
    chemprot, ddi = ("@CHEMICAL$", "@GENE$", "@CHEM-GENE$"), ("@DRUG$", "@DRUG-DRUG$")
    assert mark_pair("a bc d", (2, 4), (5, 6), chemprot) == "a @CHEMICAL$ @GENE$"
    assert mark_pair("a bc d", (5, 6), (2, 4), chemprot) == "a @GENE$ @CHEMICAL$"
    assert mark_pair("a bcd", (2, 5), (3, 4), chemprot) == "a @CHEM-GENE$"
    assert mark_pair("a bc d", (2, 4), (5, 6), ddi) == "a @DRUG$ @DRUG$"
    around_both = ("[S]", "[/S]", "[O]", "[/O]")
    assert mark_pair("肺炎用药", (2, 4), (0, 2), around_both) == "[O]肺炎[/O][S]用药[/S]"
    assert candidate_pairs(["Chemical", "gene", None, "GENE"], chemprot) == [(0, 1), (0, 3)]
    assert candidate_pairs(["x", None, "Chemical"], ddi) == [(0, 1), (0, 2), (1, 2)]
    assert candidate_pairs(["x", "y"], around_both) == [(0, 1), (1, 0)]
    assert sentences("One is. Two is.", "en", [(0, 3)]) == [(0, 8), (8, 15)]
    assert (
        sentences("One is. Two is.", "en", [(4, 11)])
        == [(0, 15)]
        == sentences("One is. Two is.", "zh", [])
    )


def test_pairs_and_answers(trained: Callable[[str], Trained]) -> None:
    model = load_tagger(trained("pair").folder / "export")
    assert isinstance(model, PairModel)
    pairs = [("acne today", "severe gout"), ("polio today", "severe mumps " * 40)]
    both = model.predict(pairs)
    alone = [model.predict([pair])[0] for pair in pairs]
    assert [p.label for p in both] == [p.label for p in alone]
    assert np.allclose([p.score for p in both], [p.score for p in alone], atol=1e-5)
    ranker = load_tagger(trained("ranking").folder)  # a run's folder means its export
    assert isinstance(ranker, Ranker)
    answers = ["gout 1", "acne 0", "mumps 2"]
    ranked = ranker.rank("what of acne", answers)
    assert [a.score for a in ranked] == sorted((a.score for a in ranked), reverse=True)
    assert {a.number: a.text for a in ranked} == dict(enumerate(answers)) and ranker.rank(
        "what", []
    ) == []


def test_answers_are_ranked_by_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """Best first; of equal scores the one that was given first."""
    ranker = object.__new__(Ranker)
    monkeypatch.setattr(
        ranker,
        "scores",
        lambda pairs: [{"a": 0.2, "b": 0.9, "c": 0.2}[answer] for _, answer in pairs],
    )
    assert [(a.number, a.text) for a in ranker.rank("what", ["a", "b", "c"])] == [
        (1, "b"),
        (0, "a"),
        (2, "c"),
    ]


def test_an_export_is_all_that_is_needed_and_nothing_else_is_loaded(
    trained: Callable[[str], Trained], tmp_path: Path
) -> None:
    run = trained("relation")
    manifest = read_json(run.folder / "export" / "manifest.json")
    assert (
        not run.source.exists()
        and manifest["suite"] == "fakes"
        and manifest["request"]["args"] == "--x 1"
    )
    about = {
        k: manifest[k]
        for k in ("kind", "labels", "markers", "model", "head", "linker", "checksums")
    }
    assert str(run.folder.parent) not in json.dumps(about)
    copy = shutil.copytree(run.folder / "export", tmp_path / "copy")
    whole = load_file(copy / "model.safetensors")
    found = encoder_of(str(copy))  # an encoder itself, with the fine-tuned weights
    assert found.load == "models.encoders.TextEncoder" and not list(
        (copy / "encoder").glob("*.safetensors")
    )
    state = TextEncoder(found.folder).state_dict()
    assert state and all(torch.equal(v, whole[k]) for k, v in state.items())
    key = next(k for k in whole if not k.startswith("bert.") and whole[k].is_floating_point())
    save_file(whole | {key: whole[key] + 1}, copy / "model.safetensors")
    with pytest.raises(InputError, match=r"model\.safetensors: missing, or not the file"):
        load_tagger(copy)
    for place, name in (
        ("head", "models.finetune.torch.load"),
        ("head", "os.system"),
        ("model", "models.finetune.np.load"),
    ):
        write_json(
            copy / "manifest.json",
            manifest | {"checksums": {}, place: manifest[place] | {"class_path": name}},
        )
        with pytest.raises(InputError, match=r"not defined in models|expected models"):
            load_tagger(copy)


def test_a_span_says_what_its_text_is(trained: Callable[[str], Trained]) -> None:
    model = load_tagger(trained("ner").folder / "export")
    assert isinstance(model, Tagger)
    text = "The doctor saw acne."
    for span in model.predict([text])[0]:
        assert isinstance(span, Span) and span.text == text[span.start : span.end]


def found_as_in_fine_tuning(run: Trained) -> Tagger:
    """The tagger of a run, whose predictions of the scored split are fine-tuning's."""
    model, examples = load_tagger(run.folder), load_task(run.task).splits["test"]
    assert isinstance(model, Tagger)
    found = [
        [(m["start"], m["end"], m["type"]) for m in r["mentions"]]
        for r in model.predict_examples(examples)
    ]
    assert [sorted(map(tuple, spans)) for spans in predictions(run)] == found
    measured = score(span_tallies(found, [e.entities for e in examples]))
    assert measured == pytest.approx(run.scores["score"]["entity_f1"], abs=1e-9)
    return model


def test_an_encoder_with_an_entity_table(fake_kebiolm: kebiolm.Folders, tmp_path: Path) -> None:
    torch.manual_seed(1)
    module = KeBioLM(fake_kebiolm.bert, fake_kebiolm.entities, text_layers=2)
    module.configure_model()
    assert module.encoder is not None
    torch.nn.init.normal_(module.encoder.detector.weight, std=2.0)
    (source := tmp_path / "export").mkdir()
    module.export(source)
    data = KeBioLMData(
        fake_kebiolm.corpus,
        fake_kebiolm.bert,
        fake_kebiolm.entities,
        batch_size=16,
        graph=fake_kebiolm.graph,
    )
    data.setup()
    data.export(source)
    write_json(source / "manifest.json", {"paper": "kebiolm", "checksums": {}})
    task = tasks.write(tmp_path / "task", "ner", {"train": 40, "dev": 9, "test": 20})
    load_name = (
        "--model.init_args.load",
        "models.kebiolm.KeBioLMEncoder.from_export",
        "--model.init_args.lr",
        "0.003",
    )
    model = found_as_in_fine_tuning(fine_tune(tmp_path, source, task, "NCBI", *load_name))
    again = encoder_of(str(tmp_path / "moved" / "export"))
    assert again.load == "models.kebiolm.KeBioLMEncoder.from_export"
    table = load_file(Path(again.folder) / "kebiolm.safetensors")
    own = model.module.encoder.state_dict()
    assert all(torch.equal(own[k], v) for k, v in table.items() if k in own) and "entity" in table


def test_an_encoder_whose_mentions_are_linked(
    fake_smedbert: smedbert.Folders, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    module = SMedBERT(fake_smedbert.bert, fake_smedbert.entities)
    module.configure_model()
    (source := tmp_path / "export").mkdir()
    module.export(source)
    smedbert_data(fake_smedbert).export(source)
    files = [file for file in source.rglob("*") if file.is_file()]
    sums = {file.relative_to(source).as_posix(): sha256(file) for file in files}
    write_json(source / "manifest.json", {"paper": "smedbert", "checksums": sums})
    rng, names = (
        np.random.default_rng(0),
        [f"{a}{b}" for a in smedbert.FIRST for b in smedbert.SECOND],
    )

    def example(number: int) -> Tagged:
        name = names[rng.integers(len(names))]
        return Tagged(str(number), str(number), f"患者{name}。", [(2, 2 + len(name), "disease")])

    splits = {
        split: [example(i) for i in range(size)]
        for split, size in (("train", 30), ("dev", 8), ("test", 8))
    }
    about = {"name": "fake-zh", "kind": "ner", "metric": "entity_f1", "language": "zh"}
    save_task(tmp_path / "task", splits, **about)
    extra = (
        "--model.init_args.load",
        "models.smedbert.encoder.SMedBERTEncoder.from_export",
        "--data.init_args.linker",
        "datamodules.smedbert.linker.linker",
        "--data.init_args.linker_folder",
        str(source),
        "--data.init_args.linker_settings",
        '{"k": 2}',
        "--model.init_args.lr",
        "0.003",
    )
    model = found_as_in_fine_tuning(
        fine_tune(tmp_path, source, tmp_path / "task", "cMedQANER", *extra)
    )
    assert model.data.linker is not None and model.data.linker_settings == {"k": 2}
    mentions = model.data.linker([f"患者{names[0]}。"], [[(i, i + 1) for i in range(5)]])
    assert len(mentions.span) == 1 and mentions.neighbours.shape == (1, 2)
    assert (
        read_json(tmp_path / "moved" / "export" / "manifest.json")["linker"]["folder"] == "encoder"
    )


def test_an_export_of_an_earlier_version_is_refused(
    trained: Callable[[str], Trained], tmp_path: Path
) -> None:
    copy = shutil.copytree(trained("ner").folder / "export", tmp_path / "copy")
    weights = load_file(copy / "model.safetensors")
    earlier = {f"encoder.{k}" if k.startswith("bert.") else k: v for k, v in weights.items()}
    save_file(earlier, copy / "model.safetensors")
    write_json(copy / "manifest.json", read_json(copy / "manifest.json") | {"checksums": {}})
    with pytest.raises(InputError, match=r"no weight bert\..*Fine-tune again|not the weights of"):
        load_tagger(copy)


def test_of_two_overlapping_spans_with_as_much_context_the_first_counts() -> None:
    short, long, apart_from_both = (
        (3.0, 5, 6, "a", 0.9),
        (3.0, 0, 7, "b", 0.1),
        (1.0, 7, 9, "c", 0.1),
    )
    assert apart([short, long, apart_from_both]) == [long, apart_from_both]
    assert apart([short, (4.0, 5, 8, "d", 0.1)]) == [(4.0, 5, 8, "d", 0.1)]


def test_a_nested_span_has_the_score_of_its_own_limits_and_type() -> None:
    """A head's scores are (B, types, first unit, last unit); a span is (first, last, type)."""
    scores = torch.arange(2 * 3 * 4 * 4.0).reshape(2, 3, 4, 4) / 100
    spans = [np.array([[0, 2, 1], [3, 3, 2]]), np.array([[1, 2, 0]])]
    head = SimpleNamespace(scores=lambda states, batch: (scores, None))
    model = SimpleNamespace(kind="nested", module=SimpleNamespace(head=head))
    found = Tagger._scores(model, torch.zeros(0), None, spans)  # type: ignore[arg-type]
    wanted = [
        [float(scores[0, 1, 0, 2].sigmoid()), float(scores[0, 2, 3, 3].sigmoid())],
        [float(scores[1, 0, 1, 2].sigmoid())],
    ]
    assert [row.tolist() for row in found] == [pytest.approx(row) for row in wanted]
