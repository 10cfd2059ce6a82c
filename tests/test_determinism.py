"""The same command writes the same files, whatever order a process gives to its sets."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.verbs import VERBS
from core.call import COMMANDS
from core.tracking import ROOT
from inference.convert import FORMATS
from tests.fakes import bert, obo
from tests.faults.outcome import differing, outcome
from tests.faults.pipelines import Step, papers, steps, write_sources
from tests.faults.verbs import VerbStep, verb_steps, write_verb_sources

#: what two runs may differ in: times, names of runs in MLflow, the machine's state; the table of
#: peers has speeds and memory in its rows, and the manifest of a table holds its seconds
VARYING = re.compile(
    r"\.(seconds|date|created|began|ended|mlflow_run|commit|milliseconds|parent|memory"
    r"|start_seconds|(texts|sentences)_a_second)(\.\w+)*$|/tables/peers_\w+\.csv:|^runs/tables/peers_"
    r"|: train/seconds at |\.checksums\.[\w/]+/manifest\.json$"
)


def test_vectors_are_the_same_bytes(tmp_path: Path) -> None:
    names = ["heart attack", "renal failure", "heart", "attack of the heart", "renal"]
    encoder = bert.write(tmp_path / "encoder", " ".join(names).split())
    written = []
    for number in range(2):
        (tmp_path / "names.txt").write_text("".join(f"{name}\n" for name in names))
        output = tmp_path / f"{number}.safetensors"
        words = ["embed", "--model", str(encoder), "--input", str(tmp_path / "names.txt")]
        assert main([*words, "--output", str(output)]) == 0
        written.append(output.read_bytes())
    assert written[0] == written[1]


def mask_run(value: Any) -> Any:
    """A line of a model card, or of MLflow's description of a model, without the run's name and
    time."""
    if not isinstance(value, str):
        return value
    return re.sub(r"MLflow run `\w+`|^model_uuid: \w+$|^utc_time_created: .*$", "", value)


Steps = Callable[[Path, Path], Sequence[Step]]

#: commands that no test here runs twice, and why
UNCHECKED = {
    **dict.fromkeys(
        (
            *("graph find", "graph show", "graph info", "graph segment show"),
            *("graph segment score", "tasks", "counts", "overlap", "cases", "compare"),
        ),
        "prints",
    ),
    **dict.fromkeys(("data", "data fetch"), "verifies checksums of what it fetches"),
    **dict.fromkeys(
        ("import released", "import model", "push", "register"), "copies weights with checksums"
    ),
    **dict.fromkeys(
        [name for name in COMMANDS if name.startswith("measure ")], "measures the machine"
    ),
    **dict.fromkeys(("serve", "demo", "dashboard", "sync"), "serves or delivers, writes no file"),
    **dict.fromkeys(
        ("finetune", "pretrain", "curve", "knowledge", "peers", "synonyms", "probe"),
        "trains or scores as the stages of pipelines, evaluate and rerank do",
    ),
    **dict.fromkeys(
        ("table", "figures", "publish", "results"),
        "formats finished results; make results-check compares the files with those of the records",
    ),
    "data vectors": "means of an encoder's vectors; embed has the same encoder",
    "onnx": "the exporter of torch; the outputs are compared with torch's",
}
OWN_TABLES = {
    "entities.csv": "id,name,type\nD1,renal failure,disease\nD2,heart attack,disease\n"
    "D3,gout,disease\nF1,foozin,drug\nF2,barzin,drug\nF3,goutine,drug\n",
    "names.csv": "id,name,language\nD2,myocardial infarction,en\nD1,kidney failure,en\n"
    "D2,心病,zh\nD1,肾病,zh\n",
    "triples.csv": "head,relation,tail\nF1,treats,D1\nF2,treats,D2\nF3,treats,D3\nF1,treats,D3\n",
    "equivalences.csv": "head,tail\nF1,F2\n",
}
MEDLAMA = (
    "head_cui,head_name,rel,tail_cuis_list,tail_names_list,tail_names,tail_cuis\n"
    "C1,propranolol,may_treat,x,x,Tremor || Migraine,C2 || C3\n"
)


def write_data_sources(folder: Path) -> None:
    """Tables, an ontology, an encoder, texts with mentions, text of the web: what
    :func:`data_steps` reads."""
    for place, files in {
        "own": OWN_TABLES,
        ".": {"add.csv": "id,name\nD3,podagra\n", "stop.txt": "gout\n"},
        "medlama/2021AA": {"may_treat_1000.csv": MEDLAMA},
    }.items():
        (folder / place).mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / place / name).write_text(content)
    obo.write_text(folder / "x.obo")
    bert.write(folder / "encoder", ["renal", "failure", "heart", "attack"])
    mention = {"start": 2, "end": 14, "type": "Disease", "entity": "D2", "negated": True}
    documents = [{"id": f"d/{n}", "text": "a heart attack", "mentions": [mention]} for n in (1, 2)]
    texts = [{"id": str(n), "text": f"a text of the web, {n} of three. "} for n in (1, 2, 3)]
    for name, records in (("annotated.jsonl", documents), ("web.jsonl", texts)):
        (folder / name).write_text("".join(f"{json.dumps(one)}\n" for one in records))


def data_steps(work: Path, sources: Path) -> list[Step]:
    """Commands of graphs, data and formats that no pipeline's small profile has."""
    graph, out = str(work / "graph"), ["--out"]

    def write(words: str, *paths: Path | str, to: str, more: str = "") -> Step:
        given = [*words.split(), *map(str, paths), *out, str(work / to), *more.split()]
        return Step(words, ["app.cli", *given])

    lengths = "--shortest 5 --longest 60 --chinese 0 --workers 1"
    convert = ["convert", str(sources / "annotated.jsonl")]
    return [
        write("graph build tables", sources / "own", to="graph"),
        write("graph build obo", sources / "x.obo", to="ontology"),
        write("graph add", graph, sources / "add.csv", to="added"),
        write("graph stop", graph, sources / "stop.txt", to="stopped"),
        write("graph merge", graph, work / "ontology", to="merged"),
        write("graph shuffle", graph, to="shuffled"),
        write("graph thesaurus --graph", graph, to="thesaurus"),
        write("graph texts obo", sources / "x.obo", to="texts.jsonl"),
        write("graph clean --input", sources / "web.jsonl", to="clean.jsonl", more=lengths),
        write("data queries --graph", graph, to="queries"),
        write("data medlama", sources / "medlama", to="medlama"),
        write(f"data characters --encoder {sources / 'encoder'} --graph", graph, to="characters"),
        *(
            Step(f"convert {form}", ["app.cli", *convert, f"{work}/x.{form}", "--to", form])
            for form in FORMATS
        ),
    ]


def test_files_of_graphs_and_data_are_the_same_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twice in this process; with two orders of sets at night."""
    write_data_sources(tmp_path / "sources")
    left = []
    for _ in range(2):
        shutil.rmtree(tmp_path / "work", ignore_errors=True)
        (tmp_path / "work").mkdir()
        for step in data_steps(tmp_path / "work", tmp_path / "sources"):
            assert main(step.words[1:]) == 0, f"{step.title}: {capsys.readouterr().err[-1000:]}"
        left.append(outcome(tmp_path / "work"))
    assert len(left[0]) > 40 and not list_differences(*left)


def list_differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """What two runs left and should not differ in."""
    return [
        f"{name}: {one.get(name)!r} {other.get(name)!r}"
        for name in differing(one, other)
        if not VARYING.search(name) and mask_run(one.get(name)) != mask_run(other.get(name))
    ]


def name_command(words: Sequence[str]) -> str:
    """The command that words begin with, "" for a module of its own."""
    every = {*COMMANDS, *VERBS}
    found = [" ".join(words[:length]) for length in (3, 2, 1)]
    return next((name for name in found if name in every), "")


def test_every_command_is_checked_or_says_why_not(tmp_path: Path) -> None:
    """A new command needs a step of :func:`data_steps`, of tests.faults.verbs or of a pipeline, or
    a reason."""
    checked = [*data_steps(tmp_path, tmp_path), *verb_steps(tmp_path, tmp_path)]
    for paper in papers():
        checked += steps(paper, tmp_path, tmp_path)[:-1]  # fine-tuning reads what was trained
    names = {name_command(step.words[1:]) for step in checked}
    missing = {*COMMANDS, *VERBS} - names - {*UNCHECKED}
    assert not missing, f"no check that two runs write the same bytes: {sorted(missing)}"
    assert {*UNCHECKED} <= {*COMMANDS, *VERBS}


def list_left(place: Path, sources: Path, seed: int, list_steps: Steps) -> dict[str, Any]:
    """What commands leave in `place`, run in processes of that hash seed."""
    shutil.rmtree(place, ignore_errors=True)
    (place / "work").mkdir(parents=True)
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYTHONHASHSEED": str(seed),
        "KEPL_RUNS": str(place / "runs"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{place / 'mlflow.db'}",
    }
    for step in list_steps(place / "work", sources):
        if isinstance(step, VerbStep):
            step.prepare()
        command = [sys.executable, "-P", "-m", *step.words]
        ended = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
        assert ended.returncode == 0, f"{step.title}: {ended.stderr[-1000:]}"
    return outcome(place)


def check_two_orders(tmp_path: Path, list_steps: Steps) -> dict[str, Any]:
    """Run commands with two orders of sets, and compare all that they leave, which is returned."""
    place, sources = tmp_path / "place", tmp_path / "sources"
    left = [list_left(place, sources, seed, list_steps) for seed in (1, 2)]
    different = list_differences(*left)
    assert not different, "\n".join(different)
    return left[0]


@pytest.mark.slow
def test_every_file_of_every_command_is_the_same(tmp_path: Path) -> None:
    """Tagger, link, predict, embed, evaluate, rerank and sweep, with two orders of sets."""
    write_verb_sources(tmp_path / "sources")
    left = check_two_orders(tmp_path, verb_steps)
    assert [name for name in left if name.endswith((".jsonl", ".safetensors", ".pubtator"))]


@pytest.mark.slow
def test_files_of_graphs_and_data_are_the_same_with_two_orders_of_sets(tmp_path: Path) -> None:
    write_data_sources(tmp_path / "sources")
    check_two_orders(tmp_path, data_steps)


@pytest.mark.slow
@pytest.mark.parametrize("paper", papers())
def test_every_file_of_a_pipeline_is_the_same(paper: str, tmp_path: Path) -> None:
    """From the graph to a fine-tuned model, small profile, with two orders of sets."""
    write_sources(tmp_path / "sources")
    check_two_orders(tmp_path, lambda work, sources: steps(paper, work, sources))
