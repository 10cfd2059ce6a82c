"""The pipeline behind `make pretrain-<paper>`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from core import call
from core.call import find_command, load_function
from core.files import InputError
from core.settings import Option, collect, parse
from experiments import pretrain
from experiments.machine import Inputs, Machine
from experiments.pretrain import commands, machine_words, papers, table
from experiments.stages import Stage
from kg.build.refine import EQUIVALENT
from kg.vectors.embeddings import EmbeddingTable
from tests.kg.test_train import ladder

RUN = ("steps", "checkpoints", "export", "mlflow_run")  # what a training reports
pytestmark = pytest.mark.usefixtures("preloaded")

ROOT = Path(__file__).parents[2]


def inputs_of(name: str, profile: str) -> Inputs:
    """The inputs that a profile uses, with a path that holds a blank."""
    pipeline = pretrain.pipeline_of(name)
    used = pretrain.names_in([pipeline["profiles"][profile]["stages"], pipeline.get("training")])
    return Inputs(
        umls=Path("/data/META") if "UMLS" in used else None,
        corpus=("/data/a.jsonl", "/data/b c.jsonl") if "CORPUS" in used else (),
        mirror=("/data/mirror",),
    )


def test_every_setting_is_filled_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pretrain, "gpus", lambda: 8)
    assert "kebiolm" in papers()
    for paper in papers():
        pipeline = pretrain.pipeline_of(paper)
        assert set(pipeline) - {"data_of"} == {"training", "variants", "profiles", "report"}
        assert {"small", "paper"} <= set(pipeline["profiles"])
        for profile in pipeline["profiles"]:
            plan = commands(
                paper,
                profile,
                Path("/w"),
                inputs_of(paper, profile),
                Machine(workers=3),
                args="--trainer.max_steps 7",
            )
            assert len(plan) > 2 and plan[-1].result
            for stage in plan:
                words = stage.options
                assert not [w for w in words if "{" in w or "}" in w], words
                assert all((ROOT / w).is_file() for w in words if w.startswith("experiments/"))
            training = [s.options for s in plan if s.result]
            assert {s.run for s in plan if s.result} == {"experiments.run"}
            assert all(words[words.index("--trainer.max_steps") + 1] == "7" for words in training)
            assert all(
                words[words.index("--trainer.devices") + 1] == ("8" if profile == "paper" else "1")
                for words in training
            )
    linking = options_of_stage(
        commands("kebiolm", "paper", Path("/w"), inputs_of("kebiolm", "paper")), "data link"
    )
    assert linking[linking.index("--input") + 1 : linking.index("--out")] == [
        "/data/a.jsonl",
        "/data/b c.jsonl",
    ]


def options_of_stage(plan: list[Stage], run: str) -> list[str]:
    """The words of the first stage that runs a command."""
    return next(stage.options for stage in plan if stage.run == run)


@pytest.mark.parametrize("name", [*papers(), *pretrain.graph_embeddings()])
def test_every_stage_is_a_command_that_accepts_its_arguments(name: str) -> None:
    """Each value parses to the type of its option, and no option without a default is left out."""
    for profile in pretrain.pipeline_of(name)["profiles"]:
        plan = commands(
            name, profile, Path("/w"), inputs_of(name, profile), Machine(workers=3), plan=True
        )
        for stage in (s for s in plan if not s.result):
            found = find_command(stage.run.split())
            assert found is not None, stage.run
            _, command, rest = found
            function = load_function(command.function)
            if command.choices:
                function, rest = function(rest[0]), rest[1:]
            parsed = parse(function, [*rest, *stage.options], command.positions, stage.run)
            assert parsed.given


def test_a_plan_leaves_the_number_of_processes_to_the_machine_that_runs_it() -> None:
    def workers(machine: Machine, plan: bool) -> list[str]:
        options = options_of_stage(
            commands("kebiolm", "small", Path("/w"), where=machine, plan=plan), "data link"
        )
        return options[options.index("--workers") + 1 :][:1] if "--workers" in options else []

    assert workers(Machine(), True) == []
    assert workers(Machine(), False) == [str(os.cpu_count())]
    assert workers(Machine(workers=3), True) == workers(Machine(workers=3), False) == ["3"]


def test_values_of_a_pipeline() -> None:
    """{NAME} alone is the input as it is, a list among them; within a text it is its words; an
    empty one is an option not given."""
    values = {"work": "/my work", "CORPUS": ["/a b", "/c"], "NONE": "", "SEED": 3, "FRESH": False}
    arguments = {
        "input": ["{work}/x", "{CORPUS}", "{NONE}"],
        "corpus": "{CORPUS}",
        "folder": "{work}/linked",
        "text": "{CORPUS}",
        "none": "{NONE}",
        "seed": "{SEED}",
        "fresh": "{FRESH}",
        "k": 30,
        "more": True,
    }
    filled = pretrain.fill_all(arguments, values)
    assert filled["input"] == ["/my work/x", "/a b", "/c"] and filled["corpus"] == ["/a b", "/c"]
    assert filled["folder"] == "/my work/linked" and filled["none"] is None
    assert filled["seed"] == 3 and filled["fresh"] is False
    words = call.option_words(filled)
    assert words[:4] == ["--input", "/my work/x", "/a b", "/c"] and "--none" not in words
    assert words[-6:] == ["--fresh", "false", "--k", "30", "--more", "true"]
    assert pretrain.fill("x {CORPUS}", values) == "x '/a b' /c"
    odd = {"input": ["--x", "A=1.txt", "b c"], "name": "-1"}
    assert call.option_words(odd) == ["--input=--x A=1.txt 'b c'", "--name=-1"]
    options = {n: Option(n, kind, None, "") for n, kind in (("input", list[str]), ("name", str))}
    read = collect(call.option_words(odd), options, (), "x")
    assert {name: value for name, (_, value) in read.items()} == odd
    assert call.option_words({"config": ["a", "b"]}) == ["--config", "a", "--config", "b"]
    with pytest.raises(InputError, match=r"\{WORK\}/x: no input WORK; .*hoose from: work, CORPUS"):
        pretrain.fill("{WORK}/x", values)


class Training(NamedTuple):
    """A training that a pipeline can start, and the config files of its command."""

    paper: str
    profile: str
    variant: str
    pipeline: dict[str, Any]
    files: list[str]


@cache
def trainings() -> list[Training]:
    """Every training of every paper and profile."""
    found = []
    for paper in papers():
        pipeline = pretrain.pipeline_of(paper)
        for profile in pipeline["profiles"]:
            for variant, own in pipeline["variants"].items():
                if profile not in own.get("profiles", pipeline["profiles"]):
                    continue
                plan = commands(
                    paper,
                    profile,
                    Path("/w"),
                    inputs_of(paper, profile),
                    Machine(devices=1),
                    variants=[variant],
                    plan=True,
                )
                (words,) = [stage.options for stage in plan if stage.result]
                own_files = [b for a, b in pairwise(words) if a == "--config"]
                found.append(Training(paper, profile, variant, pipeline, own_files))
    return found


def test_the_configs_of_a_variant_are_laid_over_the_paper_s_in_order() -> None:
    """The paper's own config first, then the variant's and the profile's, each whole and in its
    order, then the machine's."""
    found = trainings()
    assert len(found) > 50
    for paper, profile, variant, pipeline, files in found:
        folder = f"experiments/{paper}/"
        own = [folder + f for f in pipeline["variants"][variant].get("configs", [])]
        shared = [folder + f for f in pipeline["profiles"][profile].get("configs", [])]
        by_profile = pipeline["variants"][variant].get("profiles", {}).get(profile, {})
        last = [folder + f for f in by_profile.get("last", [])]
        ordered = {tuple(own + shared + last), tuple(shared + own + last)}
        assert files[0] == f"{folder}pretrain.yaml" and tuple(files[1:-1]) in ordered, (
            paper,
            profile,
            variant,
        )
        assert files[-1].startswith("experiments/common/")


def leaves(layer: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of a config with its whole name; the note on its origin is none."""
    for key, value in layer.items():
        if isinstance(value, dict) and key != "paper":
            yield from leaves(value, f"{above}{key}.")
        elif key != "paper":
            yield above + key, value


@cache
def settings_in(layer: str) -> dict[str, Any]:
    """The settings of a config, by whole name."""
    return dict(leaves(yaml.safe_load((ROOT / layer).read_text())))


def test_no_profile_undoes_a_variant() -> None:
    """The layers of every training, laid over each other: what an ablation's file sets is still
    set."""
    ablations = set()
    for paper, profile, variant, _, files in trainings():
        read = {layer: settings_in(layer) for layer in files}
        whole = {key: value for layer in files for key, value in read[layer].items()}
        for own in (layer for layer in files if "/pretrain_" in layer):
            ablations.add(paper)
            assert {key: whole[key] for key in read[own]} == read[own], (profile, variant)
    assert ablations == set(papers()) - {"zh"}  # what others are compared with


def test_graph_embeddings_are_pipelines_without_a_report() -> None:
    assert (
        "kg/cmekg_transr" in pretrain.graph_embeddings()
        and "kg/transr" not in pretrain.graph_embeddings()
    )
    for name in pretrain.graph_embeddings():
        for profile in pretrain.pipeline_of(name)["profiles"]:
            plan = commands(name, profile, Path("/w"), seed=3, fresh=True)
            assert [s.run for s in plan] == [
                "graph build cmekg",
                "graph refine",
                "graph embed",
            ] and not plan[-1].result
            words = plan[-1].options
            assert all((ROOT / w).is_file() for w in words if w.startswith("experiments/"))
            assert (
                words[words.index("--graph") + 1]
                == plan[1].options[plan[1].options.index("--out") + 1]
            )
            assert (
                words[words.index("--seed") + 1] == "3"
                and words[words.index("--fresh") + 1] == "true"
            )
            assert ("experiments/kg/small_transr.yaml" in words) == (profile == "small")
            (own,) = commands(name, profile, Path("/w"), Inputs(graph=("/g",)))
            assert own.options[own.options.index("--graph") + 1] == "/g"
            assert own.options[-1] == "false"


def test_a_graph_embedding_is_trained(
    tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a graph of one's own and a run that is interrupted by nothing: a table, and where it
    is."""
    graph = ladder(tmp_path / "g")
    short = yaml.safe_load((ROOT / "experiments" / "kg" / "cmekg_transr.yaml").read_text())
    sizes = {"epochs": 1, "warm_epochs": 1, "dim": 8, "relation_dim": 8, "held_out": 10}
    short["profiles"]["small"]["stages"][-1]["arguments"] |= sizes
    monkeypatch.setattr(pretrain, "pipeline_of", lambda name: short)
    report = pretrain.pretrain("kg/cmekg_transr", "small", Inputs(graph=(str(graph),))).report
    (folder,) = (runs / "data").glob("kg-cmekg_transr-small-*")
    assert EmbeddingTable.load(folder / "transr").projection is not None
    assert str(folder) in report


def test_a_graph_or_corpus_of_ones_own_replaces_its_stage() -> None:
    plain = [s.run for s in commands("kebiolm", "small", Path("/w"))]
    assert plain[0] == "graph build hpo" and "graph texts" in plain
    own = commands("kebiolm", "small", Path("/w"), Inputs(graph=("/g",), corpus=("/t.jsonl",)))
    assert {"graph build hpo", "graph texts"}.isdisjoint(s.run for s in own)
    assert all("/g" in s.options for s in own)


def test_several_graphs() -> None:
    plan = commands("sapbert", "small", Path("/w"), Inputs(graph=("/a", "/b c")))
    pairs = options_of_stage(plan, "data pairs")
    assert pairs[pairs.index("--graph") + 1 : pairs.index("--unite")] == ["/a", "/b c"]
    own = commands("sapbert", "small", Path("/w"), Inputs(graph=("/my graph",)))
    assert any("/my graph" in s.options for s in own)


def test_the_corpus_of_the_initial_checkpoint_is_added_to_its_own_text() -> None:
    plan = commands("zh", "small", Path("/w"), Inputs(corpus=("/a.txt", "/b c.txt")))
    for stage in (s.options for s in plan if s.run in ("data vocabulary", "data link")):
        first = stage.index("/w/texts.jsonl")
        assert stage[first : first + 3] == ["/w/texts.jsonl", "/a.txt", "/b c.txt"]
    assert "" not in [w for s in commands("zh", "small", Path("/w")) for w in s.options]


def test_every_report_fills_in() -> None:
    """Whatever a pipeline reports is a metric that its training logs at the start and the end."""
    for paper in papers():
        report = yaml.safe_load((ROOT / "experiments" / paper / "pipeline.yaml").read_text())[
            "report"
        ]
        assert set(report) == {"held_out", "column", "rows"} and report["column"].format("x")
        assert all(key.startswith(("val/", "entities/")) for key in report["rows"].values())


def test_what_no_run_counted_is_left_out() -> None:
    """Masked words alone (VARIANTS=mlm) count no mentions; beside another training they take
    nothing away."""
    template = (
        "{val/words:.0f} words, {val/mentions:.0f} mentions, each ranked, {val/odd:.0f} and"
        " {val/words:.0f} more"
    )
    alone = {"mlm": {"end": {"val/words": 7.0}}}
    assert pretrain.counts(template, alone) == "7 words"
    both = {"full": {"end": {"val/words": 7.0, "val/mentions": 3.0, "val/odd": 1.0}}, **alone}
    assert pretrain.counts(template, both) == "7 words, 3 mentions, each ranked, 1 and 7 more"
    assert pretrain.counts("{val/mentions:.0f} mentions, each ranked", alone) == ""
    less = {"whole": {"end": {"val/mentions": 3.0}}, "less": {"end": {"val/mentions": 0.0}}}
    assert pretrain.counts("{val/mentions:.0f} mentions", less) == "3 mentions"
    nothing = {"less": {"end": {"val/mentions": 0.0}}}
    assert pretrain.counts("{val/mentions:.0f} mentions", nothing) == "0 mentions"


@pytest.mark.parametrize(
    ("paper", "profile", "given", "message"),
    [
        (
            "kebiolmm",
            "small",
            Inputs(),
            "no paper 'kebiolmm'; did you mean kebiolm.*Choose from: .*sapbert",
        ),
        (
            "kg/cmekg_transx",
            "small",
            Inputs(),
            "no graph embedding 'cmekg_transx'; did you mean cmekg_transr. Choose from: cmekg",
        ),
        (
            "kebiolm",
            "papre",
            Inputs(),
            "no profile 'papre'; did you mean paper.*Choose from: small, paper",
        ),
        ("kebiolm", "paper", Inputs(corpus=("x",)), "needs UMLS=.*MRCONSO"),
        ("kebiolm", "paper", Inputs(umls=Path("x")), "needs CORPUS=.*PubMed"),
        ("sapbert", "ontologies", Inputs(), "needs MIRROR=.*MeSH"),
    ],
)
def test_a_missing_or_unknown_input_is_an_error(
    paper: str, profile: str, given: Inputs, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        commands(paper, profile, Path("/w"), given)


def test_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrain, "gpus", lambda: 0)
    with pytest.raises(InputError, match="needs a CUDA GPU"):
        machine_words(Machine(), gpu=True)
    assert machine_words(Machine()) == [
        "--config",
        "experiments/common/cpu.yaml",
        "--trainer.devices",
        "1",
    ]
    planned = machine_words(Machine(devices=8, nodes=2), gpu=True, plan=True)
    assert planned[:4] == ["--config", "experiments/common/ddp.yaml", "--trainer.devices", "8"]
    assert machine_words(Machine(devices=2))[-2:] == ["--trainer.strategy", "ddp"]
    monkeypatch.setattr(pretrain, "gpus", lambda: 2)
    assert machine_words(Machine(), gpu=True)[:2] == ["--config", "experiments/common/ddp.yaml"]
    with pytest.raises(InputError, match="DEVICES=4, but this machine has 2 GPUs"):
        machine_words(Machine(devices=4))
    with pytest.raises(InputError, match="DEVICES=0: expected a number of at least 1"):
        machine_words(Machine(devices=0))
    assert "16-mixed" in machine_words(Machine(precision="16-mixed"))


def test_a_plan_runs_nothing(runs: Path) -> None:
    lines = pretrain.pretrain("kebiolm", "small", seed=7, plan=True).report.splitlines()
    stages = commands("kebiolm", "small", runs / "data" / "kebiolm-small", seed=7, plan=True)
    assert [line for line in lines if not line.startswith("#")] == [s.command for s in stages]
    assert not (runs / "data").exists()


def test_table_shows_start_and_end_of_each_run() -> None:
    results = {
        "transe": {"start": {"a": 0.1}, "end": {"a": 0.7}},
        "random": {"start": {"a": 0.2}, "end": {"a": 0.6}},
    }
    rows = table({"accuracy": "a"}, results, "{} vectors").splitlines()
    assert "transe vectors" in rows[0] and rows[-1].split() == [
        "accuracy",
        "0.1000",
        "0.7000",
        "0.2000",
        "0.6000",
    ]


def test_the_name_of_a_single_run_is_not_shown() -> None:
    rows = table({"loss": "a"}, {"transe": {"start": {"a": 2}, "end": {"a": 1}}}).splitlines()
    assert [row.split() for row in rows] == [["start", "end"], ["loss", "2.0000", "1.0000"]]


def test_a_metric_that_only_some_runs_have() -> None:
    """Its place stays empty in the others, and columns stay aligned; one that no run has is
    misspelt."""
    results = {
        "one": {"start": {"a": 1, "b": 3}, "end": {"a": 2, "b": 4}},
        "two": {"start": {"a": 5}, "end": {"a": 6}},
    }
    head, _, every, some = table({"x": "a", "y": "b"}, results).splitlines()
    assert every.split() == ["x", "1.0000", "2.0000", "5.0000", "6.0000"]
    assert some.split() == ["y", "3.0000", "4.0000"] and every.index("2.0000") == some.index(
        "4.0000"
    )
    assert head.index("two") > len(some)
    swapped = table({"y": "b"}, dict(reversed(results.items()))).splitlines()
    assert swapped[-1].index("4.0000") == every.index("6.0000")
    with pytest.raises(
        InputError, match=r"report, 'z': no run has a metric 'val/lss'; .*hoose from: a, b"
    ):
        table({"x": "a", "z": "val/lss"}, results)


def test_logs_are_named_for_their_result_or_module() -> None:
    """Stages at the same time each have a log of their own name, and one without a result is not
    called None.log."""
    assert Stage("A", "experiments.run", ["--x"], "plain").log == "plain.log"
    assert Stage("B", "graph refine", ["graph"]).log == "graph-refine.log"
    assert Stage("C", "kg.build.refine:refine", []).log == "kg.build.refine-refine.log"


def test_another_pipeline_s_stage_is_a_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SMedBERT's and EMBERT's first stage pre-trains zh: it must, and say why it cannot."""
    started: list[Stage] = []
    monkeypatch.setattr(pretrain, "run_stages", lambda stages, work: started.extend(stages))
    monkeypatch.setattr(pretrain, "read_json", lambda file: {"end": {}} | dict.fromkeys(RUN, 1))
    monkeypatch.setattr(pretrain, "table", lambda *_: "a table")
    first = commands("smedbert", "small", Path("/w"))[0].words
    assert first[:2] == ["-m", "core.call"] and call.main(first[2:]) == 0
    assert [s.title for s in started] == [s.title for s in commands("zh", "small", Path("/w"))]
    assert "a table" in capsys.readouterr().out
    assert call.main([*first[2:3], "--paper", "nothing"]) == 2
    assert capsys.readouterr().err.startswith("error: no paper 'nothing'")


@pytest.mark.slow
def test_the_whole_pipeline_on_a_small_graph(tmp_path: Path) -> None:
    """Graph, TransE, linking, corpus, two trainings, and the table, on fake HPO files; a second
    call finds every run finished."""
    from kg.build.sources import hpo
    from tests.fakes import hpo as fake

    fake.write(tmp_path / "hpo", terms=120)
    hpo.read(tmp_path / "hpo").save(tmp_path / "graph")
    with open(tmp_path / "texts.txt", "w") as handle:
        handle.writelines(
            f"{' '.join(text.split())}\n" for _, _, text in hpo.texts(tmp_path / "hpo")
        )
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "KEPL_RUNS": str(tmp_path / "runs"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'm.db'}",
    }
    inputs = (
        f"Inputs(graph=({str(tmp_path / 'graph')!r},), corpus=({str(tmp_path / 'texts.txt')!r},))"
    )
    program = (
        "from core.logs import set_up; from experiments.machine import Inputs, Machine; set_up();"
        f" from experiments.pretrain import pretrain; print(pretrain('kebiolm', 'small', {inputs},"
        " Machine(workers=2), args='--trainer.max_steps 3').report)"
    )
    for expected in ("KeBioLM from TransE", "already finished"):
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert (
            expected in done.stderr
            and "linking accuracy@1" in done.stdout
            and "MLflow run" in done.stdout
        )


def test_variants_choose_among_trainings() -> None:
    def results(
        *variants: str, paper: str = "smedbert", profile: str = "small"
    ) -> list[str | None]:
        plan = commands(
            paper, profile, Path("/w"), inputs_of(paper, profile), variants=variants, plan=True
        )
        return [s.result for s in plan if s.result]

    assert results() == ["smedbert"] and results("plain", "smedbert") == ["smedbert", "plain"]
    assert results("losses", "type") == ["type", "losses"]  # in the pipeline's order
    assert results(paper="kebiolm") == ["transe"] and results(
        "random", "transe", paper="kebiolm"
    ) == ["transe", "random"]
    assert "denoising" in results(paper="genbioel") and "denoising" not in results(
        paper="genbioel", profile="paper"
    )
    assert results("random", paper="kebiolm", profile="paper") == ["random"]
    before = [s.title for s in commands("smedbert", "small", Path("/w")) if not s.result]
    assert [
        s.title for s in commands("smedbert", "small", Path("/w"), variants=["k5"]) if not s.result
    ] == before
    with pytest.raises(
        InputError,
        match=(
            r"VARIANTS: no variant 'tpye'; did you mean type\? Choose from: smedbert, plain, type"
        ),
    ):
        results("tpye")
    with pytest.raises(InputError, match="no variant 'type'; this pipeline has none"):
        commands("kg/cmekg_transr", "small", Path("/w"), variants=["type"])


def test_a_variant_may_differ_by_profile() -> None:
    plan = commands(
        "sapbert",
        "small",
        Path("/w"),
        inputs_of("sapbert", "small"),
        variants=["bilingual"],
        plan=True,
    )
    titles = [stage.title for stage in plan]
    assert "Encoder with the graph's characters" in titles
    paper = commands(
        "sapbert",
        "paper",
        Path("/w"),
        inputs_of("sapbert", "paper"),
        variants=["bilingual"],
        plan=True,
    )
    assert "Encoder with the graph's characters" not in [stage.title for stage in paper]
    with pytest.raises(InputError, match="bilingual: none in PROFILE=ontologies; choose from: sma"):
        commands(
            "sapbert",
            "ontologies",
            Path("/w"),
            inputs_of("sapbert", "ontologies"),
            variants=["bilingual"],
            plan=True,
        )


def test_variants_train_together_on_a_cpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    both = ["transe", "random"]
    assert [
        s.together for s in commands("kebiolm", "small", Path("/w"), variants=both) if s.result
    ] == [1, 1]
    monkeypatch.setattr(pretrain, "gpus", lambda: 2)
    plan = commands("kebiolm", "small", Path("/w"), where=Machine(devices=2), variants=both)
    assert [s.together for s in plan if s.result] == [None, None]


def test_templates_say_nothing_of_a_relation_that_makes_equivalences() -> None:
    """Else the text would hold the answers of the evaluation of synonyms."""
    words = options_of_stage(commands("smedbert", "small", Path("/w")), "graph texts")
    assert set(words[words.index("--without") + 1 :]) == set(EQUIVALENT)


def test_words_of_a_person_come_last(tmp_path):
    """--args replace what the pipeline says of the same setting, and are not replaced by it."""
    stages = commands(
        "sapbert", "small", tmp_path, variants=["english"], args="--model.init_args.encoder mine"
    )
    words = stages[-1].options
    places = [i for i, word in enumerate(words) if word == "--model.init_args.encoder"]
    assert len(places) == 2 and words[places[-1] + 1] == "mine"


@pytest.mark.parametrize(
    ("paper", "profile", "given", "message"),
    [
        ("sapbert", "small", Inputs(corpus=("/x",)), "CORPUS: no stage of sapbert uses it"),
        ("sapbert", "small", Inputs(linker=("given",)), "belongs to kebiolm .small, paper.$"),
        ("smedbert", "small", Inputs(linker=("given",)), "LINKER: no stage of smedbert"),
        ("kebiolm", "small", Inputs(umls=Path("/x")), "UMLS: .* PROFILE=small .*kebiolm .paper."),
        (
            "kebiolm",
            "paper",
            Inputs(umls=Path("/x"), graph=("/g",), corpus=("/t",)),
            "UMLS: no stage of kebiolm uses it",
        ),
        ("kg/cmekg_transr", "small", Inputs(encoder="minilm"), "ENCODER: no stage"),
    ],
)
def test_an_input_that_no_stage_uses_is_refused(
    paper: str, profile: str, given: Inputs, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrain, "gpus", lambda: 1)
    with pytest.raises(InputError, match=message):
        commands(paper, profile, Path("/w"), given)


def test_the_mentions_of_a_person_s_own_text_are_used_in_the_small_profile() -> None:
    own = Inputs(corpus=("/t.jsonl",), linker=("given", "--unknown", "drop"))
    (link,) = [s for s in commands("kebiolm", "small", Path("/w"), own) if s.run == "data link"]
    place = link.options.index("--linker")
    assert link.options[place + 1 : place + 4] == ["given", "--unknown", "drop"]
    (link,) = [s for s in commands("kebiolm", "small", Path("/w")) if s.run == "data link"]
    assert link.options[link.options.index("--linker") + 1] == "dictionary"


def test_inputs_are_those_of_the_caller_s_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stages run in the checkout, where a folder of the same name may be."""
    monkeypatch.chdir(tmp_path)
    for name in ("minilm", "my_bert"):
        (tmp_path / name).mkdir()
    own = Inputs(graph=("g", "/h"), corpus=("a/b.txt",), umls=Path("m"), mirror=("d",))
    assert own.list_inputs() == {
        "GRAPH": [str(tmp_path / "g"), "/h"],
        "CORPUS": [str(tmp_path / "a" / "b.txt")],
        "UMLS": [str(tmp_path / "m")],
        "MIRROR": [str(tmp_path / "d")],
    }
    assert Inputs(encoder="my_bert").list_inputs() == {"ENCODER": [str(tmp_path / "my_bert")]}
    for name in ("minilm", "someone/bert"):  # a packaged name comes first, and one of the hub
        assert Inputs(encoder=name).list_inputs() == {"ENCODER": [name]}
    assert Inputs(linker=("given",)).list_inputs() == {"LINKER": ["given"]}


@pytest.mark.parametrize("name", ["devices", "nodes", "workers"])
def test_numbers_of_a_machine_are_positive(name: str) -> None:
    with pytest.raises(InputError, match=f"^{name.upper()}=0: expected a number of at least 1"):
        machine_words(Machine(**{name: 0}))


def test_stages_are_numbered_as_they_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    groups: list[int] = []
    monkeypatch.setattr(pretrain, "run_stages", lambda group, work: groups.append(len(group)))
    together = [Stage(f"train {n}", "x.y", [], f"t{n}", together=1) for n in range(2)]
    with caplog.at_level("INFO"):
        pretrain.run_groups([Stage("graph", "graph build", []), *together], tmp_path)
    assert groups == [1, 2]
    lines = [line for line in caplog.messages if line.startswith("[")]
    assert lines[0] == "[1/3] graph" and lines[1] == "[2/3] train 0"
    assert lines[2].startswith("[3/3] train 1 (at the same time; output in ")
