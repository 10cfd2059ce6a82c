"""Acc@1 among twenty names: hits, data sets, summaries and how runs are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.cli import main
from benchmarks import synonyms
from benchmarks.options import Retrieval
from benchmarks.results import Model, Result, list_stored
from benchmarks.synonyms import format_retrieval, hits, members, mention_counts, score_retrieval
from core.files import InputError
from core.json_files import write_json
from datamodules.synonyms import Sample, build_samples
from datamodules.tokenizers import load_tokenizer
from tests.datamodules.test_smedbert.test_data import data
from tests.datamodules.test_synonyms import graph, many
from tests.fakes import linked as fake_linked
from tests.fakes.smedbert import Folders


def sample(query: str, gold: str, *others: str, shared: bool = False) -> Sample:
    return Sample(
        f"id-{query}", query, [f"id-{n}" for n in (gold, *others)], [gold, *others], shared
    )


def test_hits_by_hand() -> None:
    vectors = {"q": [1, 0], "near": [1, 0.1], "far": [0, 1], "same": [1, 0.1]}

    def embed_names(names: Sequence[str]) -> np.ndarray:
        return np.array([np.array(vectors[n]) / np.linalg.norm(vectors[n]) for n in names])

    asked = [
        sample("q", "near", "far"),
        sample("q", "far", "near"),
        sample("q", "near", "same", "far"),
    ]
    assert hits(asked, embed_names).tolist() == [1.0, 0.0, 0.5]


def test_data_sets() -> None:
    asked = [sample("a", "b", shared=True), sample("c", "d"), sample("e", "f")]
    inside = members(asked, {"id-a": 300, "id-b": 300, "id-c": 300, "id-d": 2}, 200)
    assert {k: v.tolist() for k, v in inside.items()} == {
        "D1": [True, True, True],
        "D2": [True, False, False],
        "D3": [False, True, True],
    }
    counts = {
        f"id-{name}": n for name, n in zip("abcdef", (200, 300, 201, 300, 201, 200), strict=True)
    }
    # at most so often, on one side
    assert members(asked, counts, 200)["D3"].tolist() == [True, False, True]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    names, kinds = many()
    graph(
        names,
        kinds,
        [(0, 1), (2, 3), (4, 5)],
        [(0, 10), (0, 11), (0, 12), (1, 10), (1, 11), (1, 12)],
    ).save(tmp_path / "g")
    build_samples(str(tmp_path / "g"), str(tmp_path / "synonyms"))
    place = tmp_path / "linked"
    mentions = [(0, 1, e) for e in ("E2", "E3") for _ in range(3)]
    return tmp_path / "synonyms", fake_linked.write(
        place, [fake_linked.document("1", "慢性肝炎", *mentions)]
    )


def test_scores_are_written_and_compared(
    folders: tuple[Path, Path], runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    made, place = folders
    assert mention_counts(place) == Counter({"E2": 3, "E3": 3})
    rng = np.random.default_rng(0)

    def fake(model: str, *_: Any) -> Any:
        if model == "perfect":
            table = {f"慢性肝炎{chr(0x4E00 + i)}型": np.eye(64)[i // 2] for i in range(40)}
            return (
                Model("perfect"),
                {},
                {"m": model},
                lambda names: np.array([table[n] for n in names]),
                None,
            )
        return (
            Model("noise"),
            {},
            {"m": model},
            lambda names: rng.normal(size=(len(names), 8)),
            None,
        )

    def score(model: str, frequent: int = 2) -> Result:
        return score_retrieval(
            Retrieval(model=model, samples=made, linked_text=place, frequent=frequent)
        )

    monkeypatch.setattr(synonyms, "vectors_of", fake)
    noise, best = score("noise"), score("perfect")
    assert best.scores["D1"] == {"acc@1": 1.0, "examples": 6}
    assert best.scores["D2"]["examples"] == 2 and best.scores["D3"]["examples"] == 4
    assert (noise.value("acc@1", "D1") or 0) < 1 and [r.label for r in list_stored("synonyms")] == [
        "noise",
        "perfect",
    ]
    assert "D1, against noise" in format_retrieval(best) and "D3  " in format_retrieval(best)
    again = score("another seed of noise")  # another file, the same system
    assert (
        len(list_stored("synonyms")) == 3
        and "against perfect" in format_retrieval(again)
        and "against noise" not in format_retrieval(again)
    )
    for words in ((), (f"SAMPLES={made}",)):
        assert main(["compare", "synonyms", *words]) == 0
        assert "perfect against noise: +" in capsys.readouterr().out
    write_json(place / "other" / "manifest.json", {"sha256": "other"})
    assert main(["compare", "synonyms", f"SAMPLES={place / 'other'}"]) == 2
    assert "nothing was scored on these synonyms" in capsys.readouterr().err
    for folder in (place, made.parent / "g"):  # linked text, a graph
        assert main(["compare", "synonyms", f"SAMPLES={folder}"]) == 2
        assert "no samples of synonyms; expected a folder of" in capsys.readouterr().err
    # another Dataset-3: nothing to compare with
    assert "against" not in format_retrieval(score("perfect", 3))


def test_questions_by_which_names_have_neighbours(
    folders: tuple[Path, Path], runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, place = folders
    known = synonyms.load_samples(made)
    linked = {known[0].query_name, known[0].candidate_names[0], known[2].query_name}

    def vectors(names: Sequence[str]) -> np.ndarray:
        return np.array(
            [np.random.default_rng(sum(map(ord, name))).normal(size=4) for name in names]
        )

    def has(names: Sequence[str]) -> np.ndarray:
        return np.array([name in linked for name in names])

    monkeypatch.setattr(synonyms, "vectors_of", lambda *_: (Model("x"), {}, {}, vectors, has))
    groups = synonyms.sides(known, has)
    counts = [sum(n in linked for n in (s.query_name, s.candidate_names[0])) for s in known]
    for group, number in zip(synonyms.SIDES, (2, 1, 0), strict=True):
        assert groups[group].tolist() == [c == number for c in counts] and groups[group].any()
    result = score_retrieval(Retrieval(model="x", samples=made, linked_text=place))
    shares = [
        result.scores[group]["acc@1"] * counts.count(n)
        for group, n in zip(synonyms.SIDES, (2, 1, 0), strict=True)
    ]
    assert sum(shares) == pytest.approx(
        6 * result.scores["D1"]["acc@1"]
    ) and "D1, neighbours on one side" in format_retrieval(result)


def test_a_name_has_neighbours_where_a_mention_has(fake_smedbert: Folders, tmp_path: Path) -> None:
    """孤独症 is an entity without triples, 休息 is none."""
    data(fake_smedbert).export(tmp_path)
    load_tokenizer(fake_smedbert.bert).save_pretrained(tmp_path)
    has = synonyms.with_neighbours(tmp_path)
    assert has(["孤独症", "肺炎", "休息", "患者肾痛", "孤独症肺炎"]).tolist() == [
        False,
        True,
        False,
        True,
        True,
    ]
    for tokens, whole in ((5, False), (6, True)):  # with [CLS] and [SEP]
        assert synonyms.with_neighbours(tmp_path, tokens)(["患者肾痛"]).tolist() == [whole]


def test_a_dataset_without_samples_has_no_score(
    folders: tuple[Path, Path], runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, place = folders
    vectors = (
        Model("x"),
        {},
        {},
        lambda names: np.random.default_rng(0).normal(size=(len(names), 4)),
        None,
    )
    monkeypatch.setattr(synonyms, "vectors_of", lambda *_: vectors)
    asked = [s._replace(shared=False) for s in synonyms.load_samples(made)]
    monkeypatch.setattr(synonyms, "load_samples", lambda _: asked)
    result = score_retrieval(Retrieval(model="x", samples=made, linked_text=place))
    assert "D2" not in result.scores and "no sample belongs to it" in format_retrieval(result)


def test_bad_input(
    tmp_path: Path, folders: tuple[Path, Path], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="no samples here"):
        score_retrieval(Retrieval(samples=tmp_path / "none"))
    with pytest.raises(InputError, match=r"no finished linked text"):
        score_retrieval(Retrieval(samples=folders[0], linked_text=tmp_path / "none"))
    assert (
        main(["synonyms", "MODEL=sgns:char", "FREQUENT=x"]) == 2
        and "FREQUENT=x: expected a whole" in capsys.readouterr().err
    )
    assert (
        main(["synonyms", "LINKED=x"]) == 2
        and "LINKED: this setting is now called LINKED_TEXT" in capsys.readouterr().err
    )
