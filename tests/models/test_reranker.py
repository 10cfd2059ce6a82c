"""The reranker: its inputs, its scores against a loop over candidates, its loss, and its export."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from core.files import InputError
from core.json_files import write_json
from datamodules.contexts import mark_mention
from datamodules.reranker import (
    RerankerData,
    RerankerInputs,
    Sample,
    Sizes,
    load_samples,
    save_samples,
)
from datamodules.tokenizers import load_tokenizer
from inference.linkers import Candidate, Names
from inference.reranker import CrossEncoder, Reranked, reranking_of
from models.reranker import Reranker, RerankerModel
from tests.fakes import bert

SIZES = Sizes(candidates=3, mention=2, context=4, name=3)
TEXT = mark_mention("a bad heart attack of pain and more", 6, 18)
ACUTE = Sample("heart attack", TEXT, ["heart", "attack pain", "head"], [0.9, 0.8, 0.5], [1])
NONE = Sample("pain", None, ["head", "hurts"], [0.7, 0.6], [])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(
        bert.write(
            tmp_path_factory.mktemp("bert"),
            "heart attack head hurts pain a bad of and more".split(),
            dropout=0.0,
        )
    )


@pytest.fixture
def inputs(tiny: str) -> RerankerInputs:
    return RerankerInputs(load_tokenizer(tiny), SIZES)


@pytest.fixture
def model(tiny: str) -> RerankerModel:
    torch.manual_seed(0)
    made = RerankerModel(tiny, confidence=2.0).eval()
    for part in (made.score, made.nil):  # BERT's small start would hide a wrong state
        torch.nn.init.normal_(part.weight)
    return made


def test_what_is_read(inputs: RerankerInputs) -> None:
    """Mention, its text cut on both sides, candidates: each token belongs to its candidate; longer
    ones are cut."""
    example = inputs.example(ACUTE)
    words = " ".join(inputs.tokenizer.convert_ids_to_tokens(example.ids))
    assert (
        words
        == "[CLS] heart attack [SEP] a bad heart attack of pain [SEP] heart [SEP] attack pain [SEP]"
        " head [SEP]"
    )
    assert (
        example.owner == [3] * 11 + [0] * 2 + [1] * 3 + [2] * 2
        and example.second == [0] * 11 + [1] * 7
    )
    assert np.allclose(example.scores, [0, -0.1, -0.4]) and example.right.tolist() == [
        False,
        True,
        False,
        False,
    ]
    none = inputs.example(NONE)
    assert none.exists.tolist() == [True, True, False, True] and none.right.tolist() == [
        False,
        False,
        False,
        True,
    ]
    assert (
        len(inputs.example(ACUTE._replace(mention="a b c d e", context=None)).ids) <= SIZES.longest
    )


def test_a_drawn_order_moves_everything_with_the_candidate(inputs: RerankerInputs) -> None:
    drawn = inputs.example(ACUTE, [2, 0, 1])
    assert np.allclose(drawn.scores, [-0.4, 0, -0.1]) and drawn.right.tolist() == [
        False,
        False,
        True,
        False,
    ]
    words = inputs.tokenizer.convert_ids_to_tokens(
        [i for i, own in zip(drawn.ids, drawn.owner, strict=True) if own == 0]
    )
    assert words == ["head", "[SEP]"]


def test_scores_are_those_of_a_loop_over_candidates(
    inputs: RerankerInputs, model: RerankerModel
) -> None:
    """Whatever else is in the batch: padding changes nothing."""
    found = model.log_probabilities(inputs.batch([inputs.example(ACUTE), inputs.example(NONE)]))
    for row, sample in zip(found, (ACUTE, NONE), strict=True):
        example = inputs.example(sample)
        ids, second, owner = (
            torch.tensor([part]) for part in (example.ids, example.second, example.owner)
        )
        states = model(ids, torch.ones_like(ids), second=second)[0]
        logits = []
        for number, score in enumerate(sample.scores):
            mean = states[owner[0] == number].mean(0)
            logits.append(model.score(mean)[0] + 2.0 * (score - sample.scores[0]))
        logits.append(model.nil(states[0])[0])
        wanted = torch.stack(logits).log_softmax(0)
        assert torch.allclose(row[[*range(len(sample.scores)), 3]], wanted, atol=1e-5)
    assert found[1, 2] == -torch.inf


def test_the_loss_is_of_all_right_candidates_together(
    tiny: str, inputs: RerankerInputs, model: RerankerModel
) -> None:
    module = Reranker(tiny)
    both = inputs.example(ACUTE._replace(right=[0, 2]))
    batch = inputs.batch([both, inputs.example(NONE), inputs.example(ACUTE).blank()])
    p = model.log_probabilities(batch).exp()
    wanted = -torch.log(p[0, 0] + p[0, 2]) - torch.log(p[1, 3])
    assert torch.allclose(
        module.losses(p.log(), batch.right), wanted[None], atol=1e-5
    ) and batch.counts.tolist() == [2]


def test_training_starts_from_the_order_of_whoever_found_them(
    tiny: str, inputs: RerankerInputs
) -> None:
    model = RerankerModel(tiny).eval()
    with torch.no_grad():
        model.score.weight.zero_()
    row = model.log_probabilities(inputs.batch([inputs.example(ACUTE)]))[0, :3]
    assert row.argsort(descending=True).tolist() == [0, 1, 2]


def test_samples_are_kept_and_refused_when_damaged(tmp_path: Path) -> None:
    made = {"train": [ACUTE, NONE], "held_out": [NONE]}
    folder = save_samples(tmp_path / "samples", made, name="X-EL")
    assert load_samples(folder) == made
    with pytest.raises(InputError, match="no mention for held_out"):
        save_samples(tmp_path / "none", {"train": [ACUTE], "held_out": []})
    (folder / "train.jsonl").write_text(
        (folder / "train.jsonl").read_text().replace("head", "hard")
    )
    with pytest.raises(InputError, match=r"train\.jsonl: missing, or not the file"):
        load_samples(folder)
    write_json(tmp_path / "other" / "manifest.json", {"kind": "other"})
    with pytest.raises(InputError, match="no samples of a reranker"):
        load_samples(tmp_path / "other")


def test_batches_are_a_function_of_seed_step_and_sample(tiny: str, tmp_path: Path) -> None:
    many = [ACUTE._replace(mention=word) for word in ("heart", "attack", "head", "hurts", "pain")]
    folder = save_samples(tmp_path / "samples", {"train": many, "held_out": [NONE]}, name="X-EL")

    def data(batch_size: int = 2, seed: int = 0) -> RerankerData:
        made = RerankerData(str(folder), tiny, batch_size=batch_size, candidates=3, seed=seed)
        made.setup()
        return made

    one, two, other = data(), data(), data(seed=1)
    assert (
        (one.order(0) == two.order(0)).all()
        and one.steps_per_epoch == 2
        and one.order(0).shape == (2, 2)
    )
    first, again = one.batch(np.array([0, 1]), 0), two.batch(np.array([0, 1]), 0)
    assert all(torch.equal(a, b) for a, b in zip(first[:-1], again[:-1], strict=True))
    every = np.arange(5)
    held = one.batch(every, -1).scores
    # best first where nothing is learnt
    assert torch.allclose(held, torch.tensor([0, -0.1, -0.4]).expand(5, -1))
    assert not torch.equal(one.batch(every, 0).scores, held)
    assert not torch.equal(one.batch(every, 0).scores, other.batch(every, 0).scores)
    assert one.batch(np.array([0]), -1, blank=True).counts.tolist() == [0]
    with pytest.raises(InputError, match="5 training examples are fewer than one batch of 9"):
        data(batch_size=9)


def exported(tiny: str, model: RerankerModel, inputs: RerankerInputs, folder: Path) -> Path:
    module = Reranker(tiny)
    module.model = model
    folder.mkdir()
    module.export(folder)
    inputs.export(folder)
    return folder


def test_an_export_ranks_as_the_model_did(
    tiny: str, model: RerankerModel, inputs: RerankerInputs, tmp_path: Path
) -> None:
    from datamodules.linking import Dictionary
    from experiments.names import Encoder
    from inference.options import LinkerOptions

    folder = exported(tiny, model, inputs, tmp_path / "export")
    chosen = Encoder("reranker", str(folder), "", None, "id", {})
    cross = reranking_of(chosen, LinkerOptions())
    assert isinstance(cross, CrossEncoder)
    wanted = model.log_probabilities(inputs.batch([inputs.example(ACUTE)]))[0].exp()
    (found,) = cross.probabilities([ACUTE])
    assert np.allclose(found, wanted[:3].tolist(), atol=1e-6)
    names = Names(
        Dictionary(["C1", "C1", "C2", "C3", "C4"], ["heart", "attack", "head", "pain", "hurts"]),
        "lower",
    )
    ranking = [
        Candidate(f"C{n}", name, 1 - n / 10)
        for n, name in ((2, "head"), (1, "attack"), (3, "pain"), (4, "hurts"))
    ]
    order, nothing = cross.on(names).rank(["head", "x"], [None, None], [ranking, []])
    assert nothing == [] and {c.concept for c in order} == {"C1", "C2", "C3", "C4"}
    assert order[-1] == ranking[-1]._replace(score=0.0) and order == sorted(
        order, key=lambda c: -c.score
    )
    (shares,) = cross.probabilities(
        [
            Sample(
                "head", None, ["head", "attack; heart", "pain"], [c.score for c in ranking[:3]], []
            )
        ]
    )
    assert {c.concept: c.score for c in order[:3]} == pytest.approx(
        {"C2": shares[0], "C1": shares[1], "C3": shares[2]}
    )
    (folder / "reranker.safetensors").unlink()
    with pytest.raises(InputError, match="no reranker's export"):
        RerankerModel.from_export(folder)


def test_a_model_and_its_reranker_have_settings_of_both() -> None:
    class One:
        identity, options, settings = "a", {"pooling": "cls"}, {"encoder": "a"}
        uses = frozenset({"pooling"})

    class Two:
        identity, settings, uses = "b", {"reranker": "b"}, frozenset({"device"})

    made = Reranked(One(), Two(), "reranker")  # type: ignore[arg-type]
    assert made.options == {"pooling": "cls", "rerank": "reranker"}
    assert made.settings == {"encoder": "a", "rerank": {"reranker": "b"}}
    assert made.identity not in ("a", "b") and made.uses == {"pooling", "device"}
