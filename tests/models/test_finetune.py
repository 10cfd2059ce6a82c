"""Heads against brute force, and fine-tuning from end to end on tasks that can be learnt."""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from core.files import InputError
from datamodules.finetune import FinetuneBatch, FinetuneData
from models.encoders import TextEncoder
from models.finetune import (
    AnswerRanker,
    Finetuning,
    NestedTagger,
    PairClassifier,
    RelationClassifier,
    Tagger,
    all_pairs_loss,
    confusion,
    score_predictions,
)
from tests.fakes import bert, tasks

HEADS = {
    "ner": Tagger,
    "nested": NestedTagger,
    "pair": PairClassifier,
    "relation": RelationClassifier,
    "ranking": AnswerRanker,
}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    words = [*tasks.WORDS, "causes", "follows", "knows", "what"]
    return str(bert.write(tmp_path_factory.mktemp("bert"), words, layers=2, hidden=64, dropout=0.0))


def batch_of(**fields: object) -> FinetuneBatch:
    blank = torch.zeros(1, 1, dtype=torch.long)
    return FinetuneBatch(blank, blank, blank[0])._replace(**fields)  # type: ignore[arg-type]


def test_the_crf_is_the_sum_over_all_label_sequences() -> None:
    torch.manual_seed(0)
    head = Tagger(4, 1, dropout=0.0, crf=True).eval()
    states, unit = torch.randn(2, 5, 4), torch.tensor([[1, 2, 4], [1, 3, 0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    labels = torch.tensor([[0, 1, 2], [2, 0, -100]])
    assert head.crf is not None

    def sequence(scores: torch.Tensor, tags: tuple[int, ...]) -> torch.Tensor:
        crf = head.crf
        total = crf.start_transitions[tags[0]] + crf.end_transitions[tags[-1]]
        total = total + sum(scores[i, t] for i, t in enumerate(tags))
        return total + sum(crf.transitions[a, b] for a, b in pairwise(tags))

    batch = batch_of(unit=unit, unit_mask=mask, labels=labels)
    scores = head.scores(states, batch)
    wanted = torch.zeros(())
    for row, n in enumerate((3, 2)):
        every = torch.stack([sequence(scores[row], t) for t in product(range(3), repeat=n)])
        gold = tuple(labels[row, :n].tolist())
        wanted = wanted + every.logsumexp(0) - sequence(scores[row], gold)
        best = max(product(range(3), repeat=n), key=lambda t: sequence(scores[row], t).item())
        assert tuple(head.outputs(states, batch)[row]) == best
    assert torch.allclose(head.loss(states, batch), wanted / 5, atol=1e-5)


def test_nested_scores_and_loss_are_their_formulas() -> None:
    torch.manual_seed(0)
    head = NestedTagger(6, 2, size=3, dropout=0.0).eval()
    states, unit = torch.randn(2, 4, 6), torch.tensor([[1, 2, 3], [1, 2, 0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    spans = torch.tensor([[0, 0, 2, 0], [0, 1, 1, 0], [0, 0, 2, 1]])
    batch = batch_of(unit=unit, unit_mask=mask, spans=spans)
    scores, valid = head.scores(states, batch)
    assert valid.shape == (2, 1, 3, 3) and int(valid.sum()) == 6 + 3
    far = NestedTagger(6, 2)
    assert far.scores(
        torch.randn(1, 50, 6),
        batch_of(unit=torch.arange(50)[None], unit_mask=torch.ones(1, 50).bool()),
    )
    s, e = head.start(states[0, 1]), head.end(states[0, 3])
    with torch.no_grad():
        head.length.weight.normal_()
    scores, valid = head.scores(states, batch)
    by_hand = (
        s @ head.biaffine[1] @ e
        + head.from_start(s)[1]
        + head.from_end(e)[1]
        + head.length.weight[2, 1]
    )
    assert torch.allclose(scores[0, 1, 0, 2], by_hand, atol=1e-5)
    gold = {(0, 0, 0, 2), (0, 0, 1, 1), (0, 1, 0, 2)}
    total = 0.0
    for row, kind in product(range(2), range(2)):
        right = wrong = 1.0
        for first, last in product(range(3), repeat=2):
            if first <= last and bool(mask[row, last]):
                value = float(scores[row, kind, first, last])
                if (row, kind, first, last) in gold:
                    right += np.exp(-value)
                else:
                    wrong += np.exp(value)
        total += np.log(right) + np.log(wrong)
    assert float(head.loss(states, batch)) == pytest.approx(total / 4, rel=1e-4)
    found = {
        (row, t, first, last)
        for row, rows in enumerate(head.outputs(states, batch))
        for first, last, t in rows
    }
    assert found == {tuple(i) for i in ((scores > 0) & valid).nonzero().tolist()}


def test_all_pairs_loss_has_its_limits() -> None:
    gold = torch.tensor([[True, False, False]])
    valid = torch.tensor([[True, True, False]])
    assert float(all_pairs_loss(torch.tensor([[40.0, -40.0, 99.0]]), gold, valid)) == pytest.approx(
        0, abs=1e-6
    )
    assert float(all_pairs_loss(torch.zeros(1, 3), gold, valid)) == pytest.approx(2 * np.log(2))
    assert float(all_pairs_loss(torch.tensor([[-40.0, 40.0, 0.0]]), gold, valid)) == pytest.approx(
        80
    )


def test_the_margin_loss_by_hand() -> None:
    head = AnswerRanker(2, 2, margin=0.3, dropout=0.0).eval()
    with torch.no_grad():
        head.linear.weight.copy_(torch.tensor([[1.0, 0.0]]))
        head.linear.bias.zero_()
    logits = torch.tensor([2.0, -1.0, 0.5, 0.4])  # two duels: right, wrong, right, wrong
    states = torch.stack([logits, torch.zeros(4)], dim=1)[:, None]
    p = logits.sigmoid()
    by_hand = (max(0, 0.3 - float(p[0] - p[1])) + max(0, 0.3 - float(p[2] - p[3]))) / 2
    assert float(head.loss(states, batch_of())) == pytest.approx(by_hand) and by_hand > 0
    assert head.outputs(states, batch_of()) == pytest.approx(p.tolist())


def test_relation_reads_both_markers() -> None:
    torch.manual_seed(0)
    head = RelationClassifier(3, 2, dropout=0.0).eval()
    states = torch.randn(1, 5, 3)
    scores = head.scores(states, batch_of(anchor=torch.tensor([[1, 3]])))
    assert torch.allclose(scores[0], head.linear(torch.cat([states[0, 1], states[0, 3]])))


def test_scores_of_every_kind_by_hand() -> None:
    gold = [["a"], ["a"], ["a", "b"], ["n"]]
    values, tallies = score_predictions(
        "relation", ["a", "n", "b", "a"], gold, ["n", "a", "b"], "n", None, list("0123")
    )
    assert values["micro_f1"] == pytest.approx(2 * 2 / (3 + 3)) and values["accuracy"] == 0.5
    assert set(tallies) == {"micro_f1", "accuracy"}
    values, _ = score_predictions(
        "relation", ["a", "b"], [["a"], ["a"]], ["a", "b"], None, None, ["0", "1"]
    )
    # no negative class: micro-F1 is accuracy
    assert values["micro_f1"] == values["accuracy"] == 0.5
    values, _ = score_predictions(
        "relation", ["a", "n"], [["a"], ["unseen"]], ["n", "a"], "n", None, ["0", "1"]
    )
    assert values["micro_f1"] == pytest.approx(2 / 3)  # a class that train lacks counts as missed
    values, _ = score_predictions(
        "pair", ["1", "1", "0"], [["1"], ["0"], ["1"]], ["0", "1"], None, "1", list("012")
    )
    assert values["f1"] == pytest.approx(0.5) and values["accuracy"] == pytest.approx(1 / 3)
    _, tallies = score_predictions(
        "pair", ["2", "1"], [["2"], ["0"]], ["0", "1", "2"], None, None, ["0", "1"]
    )
    assert set(tallies) == {"accuracy"}
    right = [["0"], ["1"], ["1"], ["0"]]
    values, _ = score_predictions(
        "ranking", [0.9, 0.1, 0.3, 0.2], right, ["0", "1"], None, None, list("qqrr")
    )
    assert values["acc1"] == 0.5 and values["questions_without_right_answer"] == 0
    values, _ = score_predictions(
        "ner",
        [[(0, 1, "x")], []],
        [[(0, 1, "y")], [(0, 1, "y")]],
        ["x", "y"],
        None,
        None,
        ["0", "1"],
    )
    assert values["entity_f1"] == values["recall"] == values["f1_x"] == values["f1_y"] == 0


def test_confusion_by_hand() -> None:
    gold = [[(0, 1, "x"), (2, 3, "y"), (4, 5, "x")]]
    predicted = [[(0, 1, "x"), (2, 3, "x"), (7, 8, "y")]]
    assert confusion("ner", predicted, gold, ["x", "y"]) == {
        "x": {"x": 1, "-": 1},
        "y": {"x": 1},
        "-": {"y": 1},
    }
    assert confusion("relation", ["a", "c"], [["b", "a"], ["b", "a"]], []) == {
        "a": {"a": 1},
        "b": {"c": 1},
    }


def trained(
    folder: Path, encoder: str, kind: str, epochs: int = 30, **head: object
) -> tuple[Finetuning, FinetuneData]:
    pl.seed_everything(0)
    sizes = {"train": 60, "dev": 15, "test": 15}
    data = FinetuneData(
        str(tasks.write(folder / "t", kind, sizes)), encoder, max_length=64, batch_size=8
    )
    model = Finetuning(
        encoder, lambda hidden, labels: HEADS[kind](hidden, labels, dropout=0.0, **head), lr=2e-3
    )
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
        reload_dataloaders_every_n_epochs=1,
        check_val_every_n_epoch=epochs,
    )
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)
    return model, data


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        ("ner", {}),
        ("ner", {"crf": True}),
        ("nested", {}),
        ("pair", {}),
        ("relation", {}),
        ("ranking", {}),
    ],
)
def test_every_kind_is_learnt_and_scored(
    tmp_path: Path, encoder: str, kind: str, head: dict[str, object]
) -> None:
    model, data = trained(tmp_path, encoder, kind, **head)
    result = model.test_result
    assert result["score"] > 0.85, result["scores"]
    assert len(result["predictions"]) == 15 and result["metric"] == data.task.manifest["metric"]
    gold = {p["id"]: p["gold"] for p in result["predictions"]}
    if kind in ("ner", "nested"):  # the score is that of the predictions that are saved
        right = sum(
            len({tuple(s) for s in p["predicted"]} & set(gold[p["id"]]))
            for p in result["predictions"]
        )
        total = sum(len(p["predicted"]) + len(p["gold"]) for p in result["predictions"])
        assert result["score"] == pytest.approx(2 * right / total)


def test_windows_are_predicted_as_one_text(tmp_path: Path, encoder: str) -> None:
    """Outputs of a long text's windows land where their words are."""
    model, data = trained(tmp_path, encoder, "ner")
    text = data.task.splits["test"][:4]
    joined = " ".join(e.text for e in text)
    long = FinetuneData(str(tmp_path / "t"), encoder, max_length=12, batch_size=4)
    long.setup()
    words = [(m, m + len(w)) for w, m in _words(joined)]
    gold, start = [], 0
    for e in text:
        gold += [(s + start, t + start, k) for s, t, k in e.entities]
        start += len(e.text) + 1
    example = text[0]._replace(text=joined, words=words, entities=gold)
    long.examples["score"] = [example]
    long.features["score"] = long.build_features([example])
    assert len(long.features["score"]) > 2
    model.eval()
    batch = long.batch("score", range(len(long.features["score"])))
    outputs = dict(enumerate(model.head.outputs(model.states(batch), batch)))  # type: ignore[operator]
    assert set(long.decode_outputs("score", outputs)[0]) == set(gold)


def _words(text: str) -> list[tuple[str, int]]:
    found, at = [], 0
    for word in text.split(" "):
        found.append((word, at))
        at += len(word) + 1
    return found


def test_padding_and_batch_mates_change_nothing(tmp_path: Path, encoder: str) -> None:
    model, data = trained(tmp_path, encoder, "nested", epochs=3)
    model.eval()
    together = data.batch("score", range(15))
    outputs = model.head.outputs(model.states(together), together)  # type: ignore[operator]
    for i in range(15):
        alone = data.batch("score", [i])
        single = model.head.outputs(model.states(alone), alone)[0]  # type: ignore[operator]
        assert sorted(map(tuple, single)) == sorted(map(tuple, outputs[i]))


def test_plain_bert_accepts_the_second_segment(encoder: str) -> None:
    model = TextEncoder(encoder).eval()
    ids = torch.tensor([[2, 9, 3, 10, 3]])
    second = torch.tensor([[0, 0, 0, 1, 1]])
    mask = torch.ones_like(ids)
    wanted = model.bert(ids, mask, token_type_ids=second).last_hidden_state
    assert torch.allclose(model(ids, mask, second=second), wanted)
    assert not torch.allclose(model(ids, mask), wanted)


def test_what_is_refused(tmp_path: Path, encoder: str) -> None:
    def model_on(
        kind: str, length: int = 64, load: str = "models.encoders.TextEncoder", **manifest: object
    ) -> None:
        data = FinetuneData(
            str(tasks.write(tmp_path / kind, kind, **manifest)), encoder, max_length=length
        )  # type: ignore[arg-type]
        model = Finetuning(encoder, HEADS[kind], load=load)
        trainer = pl.Trainer(
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            max_epochs=1,
        )
        trainer.fit(model, data)

    with pytest.raises(InputError, match="this encoder takes at most 128 tokens"):
        model_on("ner", length=500)
    with pytest.raises(InputError, match=r"shutil\.rmtree: expected models"):
        model_on("ner", load="shutil.rmtree")
    with pytest.raises(InputError, match="metric acc1: a ner task has entity_f1"):
        model_on("ner", metric="acc1")


def test_of_equal_epochs_the_first_is_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores of four epochs, after a sanity check that counts nothing: the second is the best, the
    third only equals it."""
    model = Finetuning("nowhere", Tagger)
    monkeypatch.setattr(model, "log", lambda *_, **__: None)
    for epoch, score in ((-1, 1.0), (0, 0.2), (1, 0.7), (2, 0.7), (3, 0.6)):
        model._trainer = SimpleNamespace(sanity_checking=epoch < 0, current_epoch=epoch)  # type: ignore[assignment]
        monkeypatch.setattr(model, "result", lambda _, score=score: {"score": score, "scores": {}})
        model.validation_metrics()
    assert model.selected == (1, {"score": 0.7, "scores": {}})


def test_precision_recall_and_macro_f1_by_hand() -> None:
    found, there = [[(0, 1, "x"), (2, 3, "x"), (4, 5, "x")]], [[(0, 1, "x"), (6, 7, "x")]]
    values, _ = score_predictions("ner", found, there, ["x"], None, None, ["0"])
    assert values["precision"] == pytest.approx(1 / 3) and values["recall"] == pytest.approx(1 / 2)
    gold = [["a"], ["a"], ["b"], ["n"]]
    values, _ = score_predictions(
        "relation", ["a", "n", "a", "n"], gold, ["n", "a", "b"], "n", None, list("0123")
    )
    # of a and b; the negative class does not count
    assert values["macro_f1"] == pytest.approx((1 / 2 + 0) / 2)


def test_classes_that_do_not_occur_have_no_score() -> None:
    """As scikit-learn's macro average over the labels of gold and predictions."""
    values, _ = score_predictions("relation", ["x"], [["z"]], ["none", "x", "y"], "none", None, [])
    assert (values["accuracy"], values["micro_f1"], values["macro_f1"]) == (0, 0, 0)
    values, _ = score_predictions(
        "pair", ["a", "b"], [["a"], ["a"]], ["a", "b", "c"], None, None, []
    )
    assert values["macro_f1"] == pytest.approx((2 / 3 + 0) / 2)
    spans = [[(0, 1, "X")]], [[(0, 1, "X")]]
    values, _ = score_predictions("ner", *spans, ["X", "Y"], None, None, [])
    assert values["f1_X"] == 1 and "f1_Y" not in values
