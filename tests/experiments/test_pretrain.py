"""The pipeline behind `make pretrain-<paper>`."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.files import InputError
from experiments import pretrain
from experiments.pretrain import commands, machine, papers, table
from experiments.stages import Stage
from kg.embeddings import EmbeddingTable
from kg.refine import EQUIVALENT
from tests.kg.test_train import ladder

ROOT = Path(__file__).parents[2]


def test_every_stage_is_a_module_and_every_setting_is_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrain, "gpus", lambda: 8)
    assert "kebiolm" in papers()
    given = {
        "UMLS": "/data/META",
        "CORPUS": "/data/a.jsonl '/data/b c.jsonl'",
        "WORKERS": "3",
        "MIRROR": "/data/mirror",
        "ARGS": "--trainer.max_steps 7",
    }
    for paper in papers():
        profiles = yaml.safe_load((ROOT / "experiments" / paper / "pipeline.yaml").read_text())
        assert {"small", "paper", "report"} <= set(profiles)
        for profile in set(profiles) - {"report"}:
            plan = commands(paper, profile, given, Path("/w"))
            assert len(plan) > 2 and plan[-1].result
            for words in (s.words for s in plan):
                file = ROOT / words[0].replace(".", "/")
                assert file.with_suffix(".py").is_file() or (file / "__main__.py").is_file(), words[0]
                assert not [w for w in words if "{" in w or "}" in w], words
                assert all((ROOT / w).is_file() for w in words if w.startswith("experiments/"))
            training = [s.words for s in plan if s.result]
            assert all(words[words.index("--trainer.max_steps") + 1] == "7" for words in training)
            assert all(
                words[words.index("--trainer.devices") + 1] == ("8" if profile == "paper" else "1")
                for words in training
            )
    linking = next(s.words for s in commands("kebiolm", "paper", given, Path("/w")) if s.words[0] == "kg.linking")
    assert linking[linking.index("--input") + 1 : linking.index("--out")] == ["/data/a.jsonl", "/data/b c.jsonl"]


def leaves(layer: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of a config with its whole name; what is told of its origin is none."""
    for key, value in layer.items():
        if isinstance(value, dict) and key != "paper":
            yield from leaves(value, f"{above}{key}.")
        elif key != "paper":
            yield above + key, value


@pytest.mark.parametrize("paper", papers())
def test_no_profile_takes_back_what_an_arm_is(paper: str) -> None:
    """The layers of every stage, laid over each other: what an ablation's file sets still stands."""
    arms = 0
    for profile, content in yaml.safe_load((ROOT / "experiments" / paper / "pipeline.yaml").read_text()).items():
        for stage in content["stages"] if profile != "report" else ():
            layers = re.findall(r"--config (\S+)", stage["run"])
            read = {layer: dict(leaves(yaml.safe_load((ROOT / layer).read_text()))) for layer in layers}
            whole = {key: value for layer in layers for key, value in read[layer].items()}
            for arm in (layer for layer in layers if "/pretrain_" in layer):
                arms += 1
                assert {key: whole[key] for key in read[arm]} == read[arm], (profile, stage["title"])
    assert arms or paper == "zh"


def test_graph_embeddings_are_pipelines_without_a_report() -> None:
    assert "kg/cmekg_transr" in pretrain.graph_embeddings() and "kg/transr" not in pretrain.graph_embeddings()
    for name in pretrain.graph_embeddings():
        for profile in pretrain.pipeline_of(name):
            plan = commands(name, profile, {"SEED": "3", "FRESH": "1"}, Path("/w"))
            assert [s.words[0] for s in plan] == ["kg.build", "kg.refine", "kg.train"] and not plan[-1].result
            words = plan[-1].words
            assert all((ROOT / w).is_file() for w in words if w.startswith("experiments/"))
            assert words[words.index("--graph") + 1] == plan[1].words[plan[1].words.index("--out") + 1]
            assert words[words.index("--seed") + 1] == "3" and words[words.index("--fresh") + 1] == "true"
            assert ("experiments/kg/small_transr.yaml" in words) == (profile == "small")
            (own,) = commands(name, profile, {"GRAPH": "/g"}, Path("/w"))
            assert own.words[own.words.index("--graph") + 1] == "/g" and own.words[-1] == "false"


def test_a_graph_embedding_is_trained(
    tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a graph of one's own and a run that is interrupted by nothing: a table, and where it is."""
    graph = ladder(tmp_path / "g")
    short = yaml.safe_load((ROOT / "experiments" / "kg" / "cmekg_transr.yaml").read_text())
    short["small"]["stages"][-1]["run"] += " --epochs 1 --warm_epochs 1 --dim 8 --relation_dim 8 --held_out 10"
    monkeypatch.setattr(pretrain, "pipeline_of", lambda name: short)
    pretrain.pretrain("kg/cmekg_transr", "small", {"GRAPH": graph})
    (folder,) = (runs / "data").glob("kg-cmekg_transr-small-*")
    assert EmbeddingTable.load(folder / "transr").projection is not None
    assert str(folder) in capsys.readouterr().out


def test_a_graph_or_corpus_of_ones_own_replaces_its_stage() -> None:
    plain = [s.words[0] for s in commands("kebiolm", "small", {}, Path("/w"))]
    assert plain[0] == "kg.build" and "kg.texts" in plain
    own = commands("kebiolm", "small", {"GRAPH": "/g", "CORPUS": "/t.jsonl"}, Path("/w"))
    assert {"kg.build", "kg.texts"}.isdisjoint(s.words[0] for s in own)
    assert all("/g" in s.words for s in own)


def test_several_graphs(tmp_path: Path) -> None:
    plan = commands("sapbert", "small", {"GRAPH": "/a '/b c'"}, Path("/w"))
    pairs = next(s.words for s in plan if s.words[0] == "datamodules.sapbert")
    assert pairs[pairs.index("--graph") + 1 : pairs.index("--unite")] == ["/a", "/b c"]
    (tmp_path / "my graph").mkdir()
    own = commands("sapbert", "small", {"GRAPH": str(tmp_path / "my graph")}, Path("/w"))
    assert any(str(tmp_path / "my graph") in s.words for s in own)


def test_a_start_encoders_corpus_comes_beside_its_own_text() -> None:
    plan = commands("zh", "small", {"CORPUS": "/a.txt '/b c.txt'"}, Path("/w"))
    for stage in (s.words for s in plan if s.words[0] in ("datamodules.vocabulary", "kg.linking")):
        first = stage.index("/w/texts.jsonl")
        assert stage[first : first + 3] == ["/w/texts.jsonl", "/a.txt", "/b c.txt"]
    assert "" not in [w for s in commands("zh", "small", {}, Path("/w")) for w in s.words]


def test_every_report_fills_in() -> None:
    """Whatever a pipeline reports is a metric that its training logs at the start and the end."""
    for paper in papers():
        report = yaml.safe_load((ROOT / "experiments" / paper / "pipeline.yaml").read_text())["report"]
        assert set(report) == {"held_out", "column", "rows"} and report["column"].format("x")
        assert all(key.startswith("val/") for key in report["rows"].values())


def test_what_no_run_counted_is_not_told() -> None:
    """Masked words alone (ARMS=mlm) know of no mentions; beside another training they take nothing away."""
    template = "{val/words:.0f} words, {val/mentions:.0f} mentions, each ranked, {val/odd:.0f} and {val/words:.0f} more"
    alone = {"mlm": {"end": {"val/words": 7.0}}}
    assert pretrain.counts(template, alone) == "7 words"
    both = {"full": {"end": {"val/words": 7.0, "val/mentions": 3.0, "val/odd": 1.0}}, **alone}
    assert pretrain.counts(template, both) == "7 words, 3 mentions, each ranked, 1 and 7 more"
    assert pretrain.counts("{val/mentions:.0f} mentions, each ranked", alone) == ""


@pytest.mark.parametrize(
    ("paper", "profile", "given", "message"),
    [
        ("kebiolmm", "small", {}, "no paper 'kebiolmm'; choose from: .*kebiolm"),
        ("kg/cmekg_transx", "small", {}, "no graph embedding 'cmekg_transx'; choose from: cmekg_transr"),
        ("kebiolm", "big", {}, "no profile 'big'; choose from: small, paper"),
        ("kebiolm", "paper", {"CORPUS": "x"}, "needs UMLS=.*MRCONSO"),
        ("kebiolm", "paper", {"UMLS": "x"}, "needs CORPUS=.*PubMed"),
        ("sapbert", "ontologies", {}, "needs MIRROR=.*MeSH"),
    ],
)
def test_what_is_missing_is_said(paper: str, profile: str, given: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        commands(paper, profile, given, Path("/w"))


def test_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrain, "gpus", lambda: 0)
    with pytest.raises(InputError, match="needs a CUDA GPU"):
        machine({}, {"gpu": True})
    assert machine({}, {}) == ["--config", "experiments/common/cpu.yaml", "--trainer.devices", "1"]
    planned = machine({"PLAN": "1", "DEVICES": "8", "NODES": "2"}, {"gpu": True})
    assert planned[:4] == ["--config", "experiments/common/ddp.yaml", "--trainer.devices", "8"]
    assert machine({"DEVICES": "2"}, {})[-2:] == ["--trainer.strategy", "ddp"]
    monkeypatch.setattr(pretrain, "gpus", lambda: 2)
    assert machine({}, {"gpu": True})[:2] == ["--config", "experiments/common/ddp.yaml"]
    with pytest.raises(InputError, match="DEVICES=4, but this machine has 2 GPUs"):
        machine({"DEVICES": "4"}, {"gpu": True})
    with pytest.raises(InputError, match="DEVICES=two: wanted a number"):
        machine({"DEVICES": "two"}, {})
    assert "16-mixed" in machine({"PRECISION": "16-mixed"}, {})


def test_a_plan_runs_nothing(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pretrain.pretrain("kebiolm", "small", {"PLAN": "1", "SEED": "7"})
    told = capsys.readouterr().out.splitlines()
    stages = commands("kebiolm", "small", {"SEED": "7"}, runs / "data" / "kebiolm-small")
    assert [line for line in told if not line.startswith("#")] == [f"python -m {shlex.join(s.words)}" for s in stages]
    assert not (runs / "data").exists()


def test_table_shows_start_and_end_of_each_run() -> None:
    results = {"transe": {"start": {"a": 0.1}, "end": {"a": 0.7}}, "random": {"start": {"a": 0.2}, "end": {"a": 0.6}}}
    rows = table({"accuracy": "a"}, results, "{} vectors").splitlines()
    assert "transe vectors" in rows[0] and rows[-1].split() == ["accuracy", "0.1000", "0.7000", "0.2000", "0.6000"]


def test_a_metric_that_only_some_runs_have() -> None:
    """Its place stays empty in the others, and columns stay aligned; one that no run has is misspelt."""
    results = {"one": {"start": {"a": 1, "b": 3}, "end": {"a": 2, "b": 4}}, "two": {"start": {"a": 5}, "end": {"a": 6}}}
    head, _, every, some = table({"x": "a", "y": "b"}, results).splitlines()
    assert every.split() == ["x", "1.0000", "2.0000", "5.0000", "6.0000"]
    assert some.split() == ["y", "3.0000", "4.0000"] and every.index("2.0000") == some.index("4.0000")
    assert head.index("two") > len(some)
    swapped = table({"y": "b"}, dict(reversed(results.items()))).splitlines()
    assert swapped[-1].index("4.0000") == every.index("6.0000")
    with pytest.raises(InputError, match=r"report, 'z': no run has a metric 'val/lss'; choose from: a, b"):
        table({"x": "a", "z": "val/lss"}, results)


def test_logs_are_named_for_their_result_or_module() -> None:
    """Stages at the same time each have a log of their own name, and one without a result is not called None.log."""
    assert Stage("A", ["experiments.run", "--x"], "plain").log == "plain.log"
    assert Stage("B", ["kg.refine", "graph"]).log == "kg.refine.log"


def test_the_command_refuses_in_one_line() -> None:
    for extra in (
        ["nothing"],
        ["kebiolm", "GRAF=x"],
        ["kebiolm", "--profile", "small", "GRAF=x"],
        ["kebiolm", "--profile", "paper"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "experiments.pretrain", *extra],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        assert done.returncode == 2 and done.stderr.startswith("error: ") and len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_the_whole_road_on_a_small_graph(tmp_path: Path) -> None:
    """Graph, TransE, linking, corpus, two trainings, and the table, on fake HPO files; a second call finds all done."""
    from kg.sources import hpo
    from tests.fakes import hpo as fake

    fake.write(tmp_path / "hpo", terms=150)
    hpo.read(tmp_path / "hpo").save(tmp_path / "graph")
    with open(tmp_path / "texts.txt", "w") as handle:
        handle.writelines(f"{' '.join(text.split())}\n" for _, _, text in hpo.texts(tmp_path / "hpo"))
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "KEPL_RUNS": str(tmp_path / "runs"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'm.db'}",
    }
    command = [
        sys.executable,
        "-m",
        "experiments.pretrain",
        "kebiolm",
        f"GRAPH={tmp_path / 'graph'}",
        f"CORPUS={tmp_path / 'texts.txt'}",
        "WORKERS=2",
        "ARGS=--trainer.max_steps 3",
    ]
    for expected in ("KeBioLM from TransE", "already finished"):
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        assert expected in done.stdout and "linking accuracy@1" in done.stdout and "MLflow run" in done.stdout


def test_arms_choose_among_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    def results(**given: str) -> list[str | None]:
        return [s.result for s in commands("smedbert", "small", given, Path("/w")) if s.result]

    assert results() == ["smedbert"] and results(ARMS="plain smedbert") == ["smedbert", "plain"]
    assert results(ARMS="losses type") == ["type", "losses"]  # in the pipeline's order
    before = [s.title for s in commands("smedbert", "small", {}, Path("/w")) if not s.result]
    assert [s.title for s in commands("smedbert", "small", {"ARMS": "k5"}, Path("/w")) if not s.result] == before
    with pytest.raises(InputError, match="ARMS: no 'tpye' here; choose from: smedbert, plain, type"):
        results(ARMS="tpye")


def test_templates_say_nothing_of_a_relation_that_makes_equivalences() -> None:
    """Else the text would tell what the evaluation of synonyms asks for."""
    words = next(s.words for s in commands("smedbert", "small", {}, Path("/w")) if s.words[0] == "kg.texts")
    assert set(words[words.index("--without") + 1].split(",")) == set(EQUIVALENT)
