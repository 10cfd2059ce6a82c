"""Fine-tuning on a linking task, SapBERT's figures, and a paper's table: each by its command, on fake files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks import similarity, table
from benchmarks.linking import finetune as module
from benchmarks.linking.evaluate import evaluate
from benchmarks.run import main
from benchmarks.tasks.linking import task
from core.files import InputError, read_json, write_json
from datamodules.sapbert.pairs import Pairs
from experiments.encoders import encoder
from tests.fakes import bert
from tests.fakes import linking as fakes
from tests.fakes.sapbert import Folders

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fakes.write(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(bert.write(tmp_path_factory.mktemp("bert"), ["heart", "attack", "head", "hurts", "pain"], dropout=0.0))


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
    printed = capsys.readouterr().out
    assert "fold 0: " in printed and "fold 3: " in printed and "fine-tuned cls + back-off" in printed
    found = sorted((runs / "linking" / "AAP-EL").glob("*/*/summary.json"))
    summaries = [read_json(f) for f in found]
    assert len(summaries) == 2 and {s["stamp"]["fold_numbers"] for s in summaries} == {"0,3"}
    assert {s["stamp"]["folds"] for s in summaries} == {2} and len({s["stamp_digest"] for s in summaries}) == 1
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
    alone = [read_json(f) for f in (runs / "linking" / "AAP-EL").glob("*/*/summary.json")]
    assert [s["model"] for s in alone if s["stamp"]["fold_numbers"] == "0"] == ["sapbert-finetune cls"] * 2
    text = table.markdown("sapbert", "2", {"FOLDS": "0,3"})
    assert "AskAPatient @1 measured" in text and "TF-IDF" in text


def test_what_fine_tuning_refuses(data: Path, tiny: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = f"DATA={data / 'AAP-EL'}"
    for words, message in (
        ([f"MODEL={tiny}", "FOLDS=10"], "there are 10 folds, 0 to 9"),
        ([f"MODEL={tiny}", "FOLDS=x"], "wanted numbers of folds"),
        ([f"MODEL={tiny}", "EPOCHS=0"], "EPOCHS=0: wanted a number"),
        ([f"MODEL={tiny}", "SEED=x"], "SEED=x: wanted a number"),
        ([f"MODEL={tiny}", "BACKOFF=yes"], "fine-tuning scores both"),
        ([f"MODEL={tiny}", "PROFILE=big"], "no profile 'big'"),
        (["MODEL=sapbert/nothing"], "no finished run in runs/sapbert/nothing"),
    ):
        assert main(["finetune", "AAP-EL", place, *words]) == 2, words
        assert message in capsys.readouterr().err
    _, recipe = module.recipe_of(encoder(tiny))
    for name, epochs in (("COMETA:closed", 10), ("NCBI-EL", 3)):
        assert module.task_settings(recipe, name, "paper", {}) == {"trainer.max_epochs": epochs}


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
        said["concepts"] == 6 and -1 <= said["silhouette before"] <= 1 and "silhouette of 6" in capsys.readouterr().out
    )
    for name in ("figure1.png", "figure2.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    rows = [line.split("\t") for line in (tmp_path / "figure1.csv").read_text().splitlines()]
    assert len(rows) == 1 + 2 * said["names"] and {r[0] for r in rows[1:]} == {"before", "after"}
    shares = np.loadtxt(tmp_path / "figure2.csv", skiprows=1)
    assert shares.shape == (80, 10) and np.allclose(shares[:, 2].sum(), 1, atol=1e-4)
    assert said["before natural negative"]["pairs"] >= said["before mined negative"]["pairs"] > 0
    for words, message in ((["figures"], "wanted one PAPER"), (["figures", "sapbert", "METHOD=pca"], "METHOD=pca: choose from"),
                           (["figures", "sapbert", "BATCHES=0"], "BATCHES=0: wanted"),
                           (["figures", "sapbert", f"MODEL={tiny}"], "give BASE= and PAIRS=")):  # fmt: skip
        assert main(words) == 2 and message in capsys.readouterr().err


def test_similarities_of_pairs_by_hand(fake_sapbert: Folders) -> None:
    pairs = Pairs(fake_sapbert.pairs)
    vectors = {name: np.random.default_rng(i).normal(size=8) for i, name in enumerate(pairs.names)}

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
                u, v = vectors[pairs.names[a]], vectors[pairs.names[b]]
                by_hand["positive" if one == two else "negative"].append(u @ v / np.linalg.norm(u) / np.linalg.norm(v))
    for sign, values in by_hand.items():
        assert np.allclose(sorted(found[f"natural {sign}"]), sorted(values), atol=1e-5)
    assert similarity.overlap(np.array([0.1, 0.2]), np.array([0.2, 0.9])) == pytest.approx(0.5)


def test_a_table_sets_reported_beside_measured(data: Path, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = f"DATA={data / 'NCBI-EL'}"
    assert main(["evaluate", "NCBI-EL", place]) == 0
    summary_file = next((runs / "linking" / "NCBI-EL").glob("*/*/summary.json"))
    summary = read_json(summary_file)
    for seed, score in enumerate((0.9, 0.92)):  # two seeds of one label
        summary["model"] = "sapbert cls"
        summary["results"]["sapbert cls"] = {"acc@1": score, "acc@5": 0.95, "mrr": 0.9, "low": 0.8, "high": 0.99}
        (summary_file.parent.parent / f"s{seed}").mkdir()
        write_json(summary_file.parent.parent / f"s{seed}" / "summary.json", summary)
    capsys.readouterr()
    assert main(["table", "sapbert", "2"]) == 0
    text = capsys.readouterr().out
    lines = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("|")}
    assert "| 91.1 |" in lines["supervised SOTA"] and "91.0 ± 1.4 (2)" in lines["MiniLM + SapBERT on HPO, [CLS]"]
    assert "66.7 [" in lines["exact match"] and "COMETA @1 measured" not in text  # a column without runs stays out
    assert main(["evaluate", "NCBI-EL", place, "TRAIN_NAMES=yes"]) == 0
    capsys.readouterr()
    assert main(["table", "sapbert", "2"]) == 2 and "runs of different protocols" in capsys.readouterr().err
    assert main(["table", "sapbert", "9"]) == 2 and "choose from: 1, 2, 3" in capsys.readouterr().err
    assert main(["table", "sapbert"]) == 2


def test_the_reported_numbers_are_whole() -> None:
    """Every row of every table names known columns and gives each metric a number or nothing."""
    for number in "123":
        definition = table.definition_of("sapbert", number)
        assert all(task(c["task"]) for c in definition["columns"].values())
        for row in definition["rows"]:
            reported = row.get("reported", {})
            assert set(reported) <= set(definition["columns"]) and (reported or row["measured"])
            assert all(len(v) == len(definition["metrics"]) for v in reported.values())
            assert all(x is None or 20 < x < 100 for v in reported.values() for x in v)


def test_folds_of_evaluate(data: Path, runs: Path) -> None:
    one = evaluate("AAP-EL", {"DATA": str(data / "AAP-EL"), "FOLDS": "2"})
    every = evaluate("AAP-EL", {"DATA": str(data / "AAP-EL")})
    assert (one["stamp"]["folds"], every["stamp"]["folds"]) == (1, 10) and one["stamp_digest"] != every["stamp_digest"]
    assert json.dumps(one["stamp"]["fold_numbers"]) == '"2"'
    with pytest.raises(InputError, match="wanted numbers of folds"):
        evaluate("AAP-EL", {"DATA": str(data / "AAP-EL"), "FOLDS": "1-2"})
