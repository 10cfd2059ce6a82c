"""Fine-tuning on a linking task, SapBERT's figures, and a paper's table: each by its command, on
fake files."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from app.cli import main
from benchmarks import tables
from benchmarks.options import Choices
from benchmarks.papers.sapbert import name_similarity as similarity
from benchmarks.results import list_stored
from core.json_files import read_json
from datamodules.sapbert.name_pairs import Pairs
from datamodules.tasks.linking import linking_task
from experiments import linkers as module
from experiments.names import encoder
from tests.fakes import bert
from tests.fakes import linking as fakes
from tests.fakes import results as fake
from tests.fakes.results import markdown
from tests.fakes.sapbert import Folders

pytestmark = pytest.mark.usefixtures("preloaded")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fakes.write(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(
        bert.write(
            tmp_path_factory.mktemp("bert"),
            ["heart", "attack", "head", "hurts", "pain"],
            dropout=0.0,
        )
    )


def test_fine_tuning_scores_each_fold_with_its_own_encoder(
    data: Path, tiny: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = Path(shutil.copytree(data / "AAP-EL", tmp_path / "own"))
    file = own / "askapatient" / "AskAPatient.fold-3.train.txt"
    first = file.read_text(encoding="latin-1").splitlines()[0].split("\t")
    with file.open("a", encoding="latin-1") as handle:
        handle.write("\t".join([*first[:2], "words of fold three"]) + "\n")
    more = [
        "MODEL=" + tiny,
        "EPOCHS=2",
        "FOLDS=0,3",
        "ARGS=--data.init_args.batch_size 1 --data.init_args.eval_batch_size 4",
    ]
    assert main(["finetune", "AAP-EL", f"DATA={own}", *more]) == 0, capsys.readouterr().err
    said = capsys.readouterr()
    assert (
        "fold 0: " in said.err
        and "fold 3: " in said.err
        and "fine-tuned cls + back-off" in said.out
    )
    found = [r for r in list_stored("linking", "AAP-EL") if not r.is_baseline]
    assert (
        len(found) == 2
        and {r.protocol["fold_numbers"] for r in found} == {"0,3"}
        and found[0].protocol == found[1].protocol
    )
    assert found[0].protocol["folds"] == 2 and [r.options.get("backoff", False) for r in found] == [
        False,
        True,
    ]
    exports = sorted((runs / "sapbert" / "finetune").glob("*/seed0/export"))
    assert len(exports) == 2  # one for each fold, from that fold's train split
    trained = [yaml.safe_load((e.parent / "config.yaml").read_text()) for e in exports]
    assert {c["trainer"]["max_epochs"] for c in trained} == {2} and {
        c["model"]["init_args"]["lr"] for c in trained
    } == {1e-4}
    assert len({encoder("x", str(e)).identity for e in exports}) == 2
    place = [f"DATA={own}", "FOLDS=0", "MODEL=sapbert/finetune"]
    for export in exports:  # runs of one label, whichever run it was: seeds of a table's row
        assert main(["evaluate", "AAP-EL", *place, f"CKPT={export}"]) == 0
    alone = [
        r
        for r in list_stored("linking", "AAP-EL")
        if r.protocol["fold_numbers"] == "0" and not r.is_baseline
    ]
    assert [r.label for r in alone] == ["sapbert-finetune cls"] * 2 and len(
        {r.model.run for r in alone}
    ) == 2
    text = markdown("sapbert", "2", Choices(folds=[0, 3]))
    assert "AskAPatient @1 measured" in text and "TF-IDF" in text


def test_what_fine_tuning_refuses(
    data: Path, tiny: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"DATA={data / 'AAP-EL'}"
    for words, message in (
        ([f"MODEL={tiny}", "FOLDS=10"], "there are 10 folds, 0 to 9"),
        ([f"MODEL={tiny}", "FOLDS=x"], "FOLDS=x: expected whole numbers"),
        ([f"MODEL={tiny}", "EPOCHS=0"], "EPOCHS=0: expected a number of at least 1"),
        ([f"MODEL={tiny}", "SEED=x"], "SEED=x: expected a whole number"),
        ([f"MODEL={tiny}", "BACKOFF=yes"], "no setting BACKOFF"),
        ([f"MODEL={tiny}", "PROFILE=big"], "PROFILE=big: expected one of small, paper"),
        (["MODEL=sapbert/nothing"], "no finished run in runs/sapbert/nothing"),
    ):
        assert main(["finetune", "AAP-EL", place, *words]) == 2, words
        assert message in capsys.readouterr().err
    _, recipe = module.recipe_of(encoder(tiny))
    for name, epochs in (("COMETA:closed", 10), ("NCBI-EL", 3)):
        assert module.task_settings(recipe, name, "paper") == {"trainer.max_epochs": epochs}


def test_figures(
    fake_sapbert: Folders, tiny: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        f"MODEL={fake_sapbert.bert}",
        f"BASE={tiny}",
        f"PAIRS={fake_sapbert.pairs}",
        f"OUT={tmp_path}",
        "CONCEPTS=6",
    ]
    assert main(["figures", "sapbert", *words]) == 0, capsys.readouterr().err
    said = read_json(tmp_path / "figures.json")
    assert (
        said["concepts"] == 6
        and -1 <= said["silhouette before"] <= 1
        and "silhouette of 6" in capsys.readouterr().out
    )
    for name in ("figure1.png", "figure2.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    rows = [line.split("\t") for line in (tmp_path / "figure1.csv").read_text().splitlines()]
    assert len(rows) == 1 + 2 * said["names"] and {r[0] for r in rows[1:]} == {"before", "after"}
    shares = np.loadtxt(tmp_path / "figure2.csv", skiprows=1)
    assert shares.shape == (80, 10) and np.allclose(shares[:, 2].sum(), 1, atol=1e-4)
    assert said["before natural negative"]["pairs"] >= said["before mined negative"]["pairs"] > 0
    for words, message in (
        (["figures"], "expected a paper with figures"),
        (["figures", "sapbert", "METHOD=pca"], "expected one of tsne"),
        (["figures", "sapbert", "BATCHES=x"], "BATCHES=x: expected a whole number"),
        (["figures", "sapbert", f"MODEL={tiny}"], "give BASE= and PAIRS="),
    ):
        assert main(words) == 2 and message in capsys.readouterr().err


def test_similarities_of_pairs_by_hand(fake_sapbert: Folders) -> None:
    pairs = Pairs(fake_sapbert.pairs)
    names = list(pairs.names)  # a single read: every look-up decodes a name
    vectors = {name: np.random.default_rng(i).normal(size=8) for i, name in enumerate(names)}

    def embed(names: list[str]):  # type: ignore[no-untyped-def]
        import torch

        return torch.tensor(np.stack([vectors[n] for n in names]))

    found = similarity.pair_similarities(embed, pairs, 1, 0)  # type: ignore[arg-type]
    order = np.random.default_rng(0).permutation(len(pairs))[: min(240, len(pairs))]
    first, second, concept = pairs[order].T
    rows = sorted({(n, c) for n, c in zip([*first, *second], [*concept, *concept], strict=True)})
    by_hand: dict[str, list[float]] = {"positive": [], "negative": []}
    for i, (a, one) in enumerate(rows):
        for j, (b, two) in enumerate(rows):
            if i != j:
                u, v = vectors[names[a]], vectors[names[b]]
                by_hand["positive" if one == two else "negative"].append(
                    u @ v / np.linalg.norm(u) / np.linalg.norm(v)
                )
    for sign, values in by_hand.items():
        assert np.allclose(sorted(found[f"natural {sign}"]), sorted(values), atol=1e-5)
    assert similarity.overlap(np.array([0.1, 0.2]), np.array([0.2, 0.9])) == pytest.approx(0.5)


def test_a_table_has_reported_beside_measured(
    data: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"DATA={data / 'NCBI-EL'}"
    assert main(["evaluate", "NCBI-EL", place]) == 0
    protocol = dict(list_stored("linking")[-1].protocol)
    # two seeds of one system
    fake.linked("sapbert", 0.9, 0.92, options={"pooling": "cls"}, like=protocol)
    capsys.readouterr()
    assert main(["table", "sapbert", "2"]) == 0
    text = capsys.readouterr().out
    lines = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("|")}
    assert (
        "| 91.1 |" in lines["supervised SOTA"]
        and "91.0 ± 1.4 (2)" in lines["MiniLM + SapBERT on HPO, [CLS]"]
    )
    # a column without results is left out
    assert "66.7 [" in lines["exact match"] and "COMETA @1 measured" not in text
    assert main(["evaluate", "NCBI-EL", place, "TRAIN_NAMES=yes"]) == 0
    capsys.readouterr()
    assert (
        main(["table", "sapbert", "2"]) == 2
        and "results of different protocols" in capsys.readouterr().err
    )
    assert (
        main(["table", "sapbert", "9"]) == 2 and "choose from: 1, 2, 3" in capsys.readouterr().err
    )
    assert (
        main(["table", "sapbert"]) == 2
        and "expected the number of a table: 1, 2, 3" in capsys.readouterr().err
    )


def test_the_reported_numbers_are_whole() -> None:
    """Every row of every table names known columns and gives each metric a number or nothing."""
    for number in "123":
        definition = tables.definition_of("sapbert", number)
        assert all(linking_task(c["task"]) for c in definition["columns"].values())
        for row in definition["rows"]:
            reported = row.get("reported", {})
            assert set(reported) <= set(definition["columns"]) and (reported or row["measured"])
            assert all(len(v) == len(definition["metrics"]) for v in reported.values())
            assert all(x is None or 20 < x < 100 for v in reported.values() for x in v)
