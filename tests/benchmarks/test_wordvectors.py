"""GloVe against its formula, co-occurrences by hand, and how names get their vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.papers.smedbert.wordvectors import (
    SIZE,
    Glove,
    compose_names,
    cooccurrences,
    cut_text,
    glove,
    train_vectors,
    word_vectors,
)
from core.files import InputError
from tests.fakes import linked as fake_linked


def linked(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = ["".join(rng.choice(["肝炎", "黄疸", "乏力"], 4)) + "。" for _ in range(60)]
    rows += ["".join(rng.choice(["骨折", "疼痛", "肿胀"], 4)) + "。" for _ in range(60)]
    return fake_linked.write(
        folder, (fake_linked.document(str(i), text) for i, text in enumerate(rows))
    )


def test_cooccurrences_by_hand() -> None:
    found = cooccurrences(
        [np.array([0, 1, 0, 2]), np.array([2]), np.zeros(0, np.int64)], 3, 2
    ).toarray()
    # distance 1: 01, 10, 02 and back; distance 2: 00 (both ways), 12 and back
    assert np.allclose(found, [[1.0, 2.0, 1.0], [2.0, 0.0, 0.5], [1.0, 0.5, 0.0]])


def test_glove_is_its_formula() -> None:
    torch.manual_seed(0)
    model = Glove(4, 3, x_max=10.0)
    row, column, count = torch.tensor([0, 2]), torch.tensor([1, 3]), torch.tensor([2.5, 40.0])
    slow = []
    for i, j, x in zip(row.tolist(), column.tolist(), count.tolist(), strict=True):
        inner = (
            model.word.weight[i] @ model.context.weight[j]
            + model.bias.weight[i, 0]
            + model.context_bias.weight[j, 0]
        )
        slow.append(min(1.0, (x / 10) ** 0.75) * (inner - np.log(x)) ** 2)
    assert model(row, column, count).item() == pytest.approx((sum(slow) / 2).item(), rel=1e-5)
    assert np.allclose(model.vectors, (model.word.weight + model.context.weight).detach())


def test_glove_fits_its_counts() -> None:
    rng = np.random.default_rng(0)
    documents = [rng.integers(0, 4, 12) for _ in range(50)] + [
        rng.integers(4, 8, 12) for _ in range(50)
    ]
    vectors = glove(documents, 8, seed=0, epochs=60, batch=16)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    similarity = unit @ unit.T
    inside = np.mean([similarity[i, j] for i in range(4) for j in range(4) if i != j])
    assert inside > np.mean(similarity[:4, 4:]) + 0.2


@pytest.mark.parametrize("kind", ["sgns", "glove"])
def test_words_of_one_topic_are_near(kind: str, tmp_path: Path) -> None:
    if kind == "sgns":
        pytest.importorskip("gensim")
    identity, vectors = train_vectors(kind, "char", linked(tmp_path / "l"), 0)
    found = vectors(["肝炎", "黄疸", "骨折", "??"])
    assert identity["vectors"] == kind and identity["unit"] == "char" and found.shape == (4, SIZE)
    assert found[0] @ found[1] > found[0] @ found[2]
    assert np.allclose(np.linalg.norm(found, axis=1), [1, 1, 1, 0])
    again = train_vectors(kind, "char", tmp_path / "l", 0)[1](["肝炎"])
    assert np.allclose(found[:1], again, atol=1e-6)


def test_a_rare_word_uses_its_characters(tmp_path: Path) -> None:
    own = {"肝": np.ones(SIZE), "炎": -np.ones(SIZE) * 3}
    assert np.allclose(compose_names(["肝炎"], own, None), -1 / np.sqrt(SIZE))
    assert np.allclose(compose_names(["肝炎"], own, {"肝炎": np.ones(SIZE)}), 1 / np.sqrt(SIZE))
    assert np.allclose(compose_names(["炎", "x"], own, {"肝炎": np.ones(SIZE)})[1], 0)
    assert (
        cut_text("肝炎 ICD10", "char") == ["肝", "炎", "icd10"]
        and "".join(cut_text("慢性 肝炎A", "word")) == "慢性肝炎a"
    )
    assert "骨折" in word_vectors("glove", "word", linked(tmp_path / "l"), 0)


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sgns:syllable: choose from: sgns:char, sgns:word"):
        train_vectors("sgns", "syllable", tmp_path, 0)
    with pytest.raises(InputError, match="no finished linked text here"):
        train_vectors("glove", "char", tmp_path, 0)
