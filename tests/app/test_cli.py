"""`kepl`: verbs, exit codes, standard input, any folder."""

from __future__ import annotations

import inspect
import io
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from app.cli import drawn_papers, linker_options, load_verb, main, resolve
from app.verbs import LINKER, VERBS
from benchmarks import curve_figure, records
from benchmarks.perf import rehearse
from core import call
from core.files import InputError
from core.json_files import read_json
from core.logs import set_up
from core.settings import Option, options_of
from core.values import describe_type
from experiments.pretrain import names_in, papers, pipeline_of
from inference.chain import Pipeline
from tests.fakes import umls as fake_umls
from tests.fakes.graphs import graph
from tests.fakes.kebiolm import Folders

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    made = graph(
        {"renal failure": "disease", "foozin": "drug"}, [("foozin", "treats", "renal failure")]
    )
    return str(made.save(tmp_path / "graph"))


def test_a_text_is_linked(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["link", "--graph", folder, "--text", "Foozin in renal failure."]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "Foozin in renal failure." and said[1].split() == [
        "0-6",
        "'Foozin'",
        "foozin",
        "foozin",
        "1.000",
    ]
    assert main(["link", "--graph", folder, "--text", "foozin", "--json", "--nil", "2"]) == 0
    (mention,) = json.loads(capsys.readouterr().out)["mentions"]
    assert mention["entity"] is None and mention["candidates"][0]["entity"] == "foozin"


def test_lines_of_standard_input_are_texts(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"foozin\n\nnothing\n")))
    assert main(["link", "--graph", folder, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(x["text"], len(x["mentions"])) for x in lines] == [
        ("foozin", 1),
        ("", 0),
        ("nothing", 0),
    ]


def test_files_are_linked(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("foozin helps\nrenal failure\n")
    out = tmp_path / "deep" / "links.jsonl"
    assert (
        main(
            [
                "link",
                "--graph",
                folder,
                "--input",
                str(tmp_path / "notes.txt"),
                "--output",
                str(out),
            ]
        )
        == 0
    )
    assert "2 documents, 2 mentions, 2 linked" in capsys.readouterr().out
    assert len(out.read_text().splitlines()) == 2
    assert (
        main(
            [
                "link",
                "--graph",
                folder,
                "--input",
                str(tmp_path / "notes.txt"),
                "--output",
                str(out),
                "--json",
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out) == {
        "output": str(out),
        "documents": 2,
        "mentions": 2,
        "linked": 2,
        "relations": 0,
    }


def test_files_are_linked_by_several_workers(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):  # a part each
        (tmp_path / f"{name}.txt").write_text(f"foozin helps {name}\nrenal failure\n" * 50)
    words = ["link", "--graph", folder, "--input", str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    assert main([*words, "--output", str(tmp_path / "one.jsonl")]) == 0
    assert (
        main(
            [*words, "--output", str(tmp_path / "two.jsonl"), "WORKERS=2", "--engine", "processes"]
        )
        == 0
    )
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    capsys.readouterr()
    assert main([*words, "--output", str(tmp_path / "two.jsonl"), "--workers", "0"]) == 2
    assert "workers 0: expected at least 1" in capsys.readouterr().err


def test_what_is_in_a_graph(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "info", folder, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (
        found["entities"] == 2
        and found["types"] == {"disease": 1, "drug": 1}
        and found["relations of triples"] == {"treats": 1}
    )
    assert main(["graph", "info", folder]) == 0
    assert "treats" in capsys.readouterr().out


def test_vectors_of_texts(
    fake_kebiolm: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "names.txt").write_text("renal failure\nlesion\n")
    words = ["embed", "--model", fake_kebiolm.bert, "--input", str(tmp_path / "names.txt")]
    assert main([*words, "--output", str(tmp_path / "v.safetensors")]) == 0
    vectors = load_file(tmp_path / "v.safetensors")["vectors"]
    assert vectors.shape == (2, 32) and "2 vectors of 32 by" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [x["text"] for x in lines] == ["renal failure", "lesion"]
    assert lines[0]["vector"] == pytest.approx(vectors[0].tolist(), abs=1e-5)


def test_vectors_are_rows_of_the_input(
    fake_kebiolm: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "names.txt").write_text("\nlesion\n  \n\nlesion\n")
    words = [
        "embed",
        "--model",
        fake_kebiolm.bert,
        "--input",
        str(tmp_path / "names.txt"),
        "--json",
    ]
    assert main(words) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [x["text"] for x in lines] == ["", "lesion", "  ", "", "lesion"]
    assert lines[1]["vector"] == lines[4]["vector"] != lines[0]["vector"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["link", "--graph", "nowhere", "--text", "x"], "no knowledge graph here"),
        (["link", "--text", "x"], "GRAPH is missing"),
        (["link", "--graph", "GRAPH", "--text", "x", "--chain", "sapbert"], "finds no mentions"),
        (["link", "--graph", "GRAPH", "--input", "x"], "--input and --output go together"),
        (["link", "--graph", "GRAPH", "--text", "x", "--set", "BEAMS=3"], "no setting --set"),
        (
            ["link", "--graph", "GRAPH", "--text", "x", "--beems", "3"],
            "no setting --beems; did you mean --beams?",
        ),
        (
            ["link", "--graph", "GRAPH", "--text", "x", "BEAMS=three"],
            "BEAMS=three: expected a whole number",
        ),
        (
            ["link", "--graph", "GRAPH", "--text", "x", "--precision", "fp8"],
            "--precision fp8: expected one of fp32, bf16",
        ),
        (
            ["link", "--graph", "GRAPH", "--input", "nowhere.txt", "--output", "o.jsonl"],
            "no such file",
        ),
        (["link", "--graph", "GRAPH", "--text", "x", "--top", "0"], "top 0"),
        (["embed", "--model", "minilm", "--text", "x"], "--output FILE or --json"),
        (
            ["embed", "--model", "sapbet", "--text", "x", "--json"],
            "no model 'sapbet'. Did you mean sapbert?",
        ),
        (["predict", "--model", "NCBI/minilm", "--text", "x"], "no fine-tuned model 'NCBI/minilm'"),
        (
            ["predict", "--model", "NCBI/minilm", "--text", "x", "--task", "NCBI"],
            "expected one of the three",
        ),
        (["graph", "info", "nowhere"], "no knowledge graph here"),
        (["graph", "build", "nothing"], "nothing"),
        (
            ["graph", "build", "mesh", "x", "--out=o", "--suplementary"],
            "no setting --suplementary; did you mean --supplementary?",
        ),
        (
            ["graph", "build", "umls", "x", "OUT=o", "LANGUAGE=ENG"],
            "no setting LANGUAGE; did you mean LANGUAGES?",
        ),
        (
            ["graph", "build", "umls", "x", "OUT=o", "INCLUDE_REL=perhaps"],
            "INCLUDE_REL=perhaps: expected yes or no",
        ),
        (["evaluate", "NO-EL"], "no linking task 'NO-EL'"),
        (["finetune", "NCBI", "--epochs"], "--epochs: expected a value: a whole number"),
        (["pretrain", "kebioml", "PLAN=1"], "no paper 'kebioml'; did you mean kebiolm?"),
        (["pretrain", "kebiolm", "ARMS=wem"], "ARMS: this setting is now called VARIANTS"),
        (["table", "kebioml", "1"], "no tables of paper 'kebioml'; did you mean kebiolm?"),
        (["lonk"], "no command 'lonk'; did you mean link?"),
        ([], ""),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    words: list[str],
    expected: str,
    folder: str,
    tmp_path: Path,
    runs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([folder if word == "GRAPH" else word for word in words]) == 2
    said = capsys.readouterr().err
    assert expected in said and "Traceback" not in said
    assert not list(tmp_path.glob("o.jsonl*"))


@pytest.mark.parametrize("verb", ["link", "embed", "predict", "graph info", "serve"])
def test_help_has_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*verb.split(), "--help"]) == 0
    assert "Examples:" in (said := capsys.readouterr().out) and f"kepl {verb}" in said


def test_settings_of_a_source_are_typed_either_way(tmp_path: Path) -> None:
    source = fake_umls.write(tmp_path / "META")
    assert (
        main(
            [
                "graph",
                "build",
                "umls",
                str(source),
                f"--out={tmp_path / 'a'}",
                "--languages",
                "ENG,SPA",
                "--include-rel",
            ]
        )
        == 0
    )
    assert (
        main(
            [
                "graph",
                "build",
                "umls",
                str(source),
                f"OUT={tmp_path / 'b'}",
                "LANGUAGES=ENG,SPA",
                "INCLUDE_REL=yes",
            ]
        )
        == 0
    )
    one, other = (read_json(tmp_path / name / "manifest.json") for name in "ab")
    assert one["options"] == other["options"] and one["options"]["include_rel"] is True
    assert one["options"]["languages"] == ["ENG", "SPA"]


def options() -> list[tuple[str, Option]]:
    """(command, option) of every command, those of recipes and of papers' figures included."""
    found = []
    for verb in VERBS:
        if verb == "figures":
            commands = list(drawn_papers().values())
        else:
            commands = [load_verb(verb)] + (
                [call.load_function(LINKER)] if verb == "finetune" else []
            )
        extra = [*resolve(verb, ["NCBI"])[2], *linker_options()] if verb == "finetune" else []
        found += [
            (f"{verb} {c.__module__}", option)
            for c in commands
            for option in options_of(c, extra).values()
        ]
    return found


def test_every_setting_of_every_command_has_help_and_a_type() -> None:
    every = options()
    assert len(every) > 200
    assert [(command, o.name) for command, o in every if len(o.help) < 8] == []
    for command, option in every:
        assert "typing" not in describe_type(option.type) and "NoneType" not in describe_type(
            option.type
        ), (
            command,
            option,
        )


def test_general_help_lists_every_command_and_the_environment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"\n  {verb} " in said for verb in VERBS)
    groups = said.partition("groups of commands")[2]
    for name in call.COMMANDS:
        group, _, rest = name.partition(" ")
        assert f"\n  {group} " in groups and rest in " ".join(groups.split())
    assert all(
        name.split(",")[0] in said
        for name in ("KEPL_TOKEN", "KEPL_RUNS", "MLFLOW_TRACKING_URI", "SLURM_*")
    )


def test_the_help_begins_with_what_every_user_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line[:2] == "  "]
    first = ["link", "predict", "finetune", "pretrain", "evaluate", "serve"]
    assert shown[shown.index("link") :][:6] == first and set(VERBS) <= set(shown)


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert re.fullmatch(r"kepl \d+\.\d+\.\d+, commit \S+\n", capsys.readouterr().out)


def test_a_file_has_settings_and_the_command_line_replaces_them(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(f"graph: [{folder}]\ntext: foozin\njson: true\nnil: 2\n")
    assert main(["link", "--config", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["mentions"][0]["entity"] is None
    assert main(["link", "--config", str(file), "NIL=0.5"]) == 0
    assert json.loads(capsys.readouterr().out)["mentions"][0]["entity"] == "foozin"
    wrong = {
        "grap: x\n": "own.yaml: no setting --grap; did you mean --graph?",
        "top: many\n": "top many: expected a whole",
    }
    for text, message in wrong.items():
        file.write_text(text)
        assert (
            main(["link", "--graph", folder, "--config", str(file)]) == 2
            and message in capsys.readouterr().err
        )


MODELS = ("torch", "pytorch_lightning", "mlflow", "transformers", "sklearn", "pykeen")
LIGHT = (*MODELS, "pandas")


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        *([verb, "--help"] for verb in VERBS),
        ["finetunes"],
        ["finetune", "NCBJ"],
        ["finetune", "NCBI", "EPOCHES=3"],
        ["finetune", "NCBI", "MODEL=sapbet"],
        ["pretrain", "kebioml"],
        ["evaluate", "HPO"],
        ["table", "kebioml", "1"],
        ["tasks"],
        ["data", "HPO-EL"],
        ["figures", "embert", "--help"],
        ["finetune", "NCBI-EL", "POOLING=sum"],
    ],
    ids=" ".join,
)
def test_help_and_slips_load_no_model_library(words: list[str]) -> None:
    """Loading any of these takes seconds: a misspelt word must not."""
    code = (
        f"import sys; from app.cli import main; main({words!r}); found = [m for m in {LIGHT!r} if m"
        " in sys.modules]; sys.exit(f'loaded: {found}' if found else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=environment()
    )
    assert done.returncode == 0, done.stderr[-500:]


def environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))} | {
        "PYTHONPATH": str(ROOT)
    }


@pytest.mark.parametrize("chain", ["dictionary", "dictionary > names"])
def test_a_dictionary_links_without_a_model_library(chain: str, folder: str) -> None:
    words = ["link", "--graph", folder, "--chain", chain, "--text", "foozin"]
    heavy = LIGHT if chain == "dictionary" else MODELS
    code = (
        f"import sys; from app.cli import main; assert main({words!r}) == 0; found = [m for m in"
        f" {heavy!r} if m in sys.modules]; sys.exit(f'loaded: {{found}}' if found else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=environment()
    )
    assert done.returncode == 0 and "foozin" in done.stdout, done.stderr[-500:]


def test_messages_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    set_up()
    logging.getLogger("benchmarks.x").info("going")
    logging.getLogger("kg.y").warning("odd")
    assert capsys.readouterr() == ("", "going\nwarning: odd\n")
    set_up(quiet=True)
    logging.getLogger("benchmarks.x").info("going")
    logging.getLogger("kg.y").error("wrong")
    assert capsys.readouterr().err == "error: wrong\n"
    set_up()


def test_the_command_runs_from_any_folder(folder: str, tmp_path: Path) -> None:
    root = tmp_path / "checkout"
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / "bin").mkdir()
    shutil.copy(ROOT / "bin" / "kepl", root / "bin")
    for room in ("app", "core", "kg", "datamodules", "experiments", "inference", "benchmarks"):
        (root / room).symlink_to(ROOT / room)
    (root / ".venv" / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (root / ".venv" / "bin" / "python").chmod(0o755)
    (tmp_path / "link").symlink_to(root / "bin" / "kepl")
    words = ["link", "--graph", Path(folder).name, "--text", "foozin", "--json"]
    done = subprocess.run([tmp_path / "link", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["mentions"][0]["entity"] == "foozin"
    (root / ".venv" / "bin" / "python").unlink()
    done = subprocess.run([tmp_path / "link", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "run `make setup`" in done.stderr


def test_bad_bytes_on_standard_input_are_one_error(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"foozin\n\xff\xfe\n")))
    assert main(["link", "--graph", folder]) == 2
    assert "error: standard input:2: not utf-8 text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "quantum"], "device quantum: expected cpu, cuda"),
        (["--nil", "nan"], "nan: expected a number"),
        (["BEAMS=x"], "BEAMS=x: expected a whole number"),
        (["--candidates", "all:x"], "candidates 'all:x': expected all, tfidf:50"),
    ],
)
def test_options_that_the_chain_does_not_use_are_checked(
    folder: str, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["link", "--graph", folder, "--text", "foozin", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_chain_from_python_refuses_no_number() -> None:
    with pytest.raises(InputError, match="nil nan: expected a number"):
        Pipeline("graph", nil=float("nan"))


def test_a_paper_without_tables_lists_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["table", "foo"]) == main(["table", "sapber", "1"]) == main(["table", "sapbert"]) == 2
    )
    said = capsys.readouterr().err.splitlines()
    assert (
        "no tables of paper 'foo'" in said[0]
        and "choose from: embert, genbioel, kebiolm, sapbert, smedbert" in said[0]
    )
    assert "did you mean" in said[1].lower() and "expected the number of a table: 1, 2" in said[2]


def test_what_a_file_holds_and_is_not_linked_is_counted(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.pubtator").write_text("1|t|foozin\n1|a|helps\n1\tCID\tA\tB\n")
    (notes / "b.pdf").write_text("x")
    words = [
        "link",
        "--graph",
        folder,
        "--input",
        str(notes),
        "--output",
        str(tmp_path / "a.pubtator.jsonl"),
    ]
    assert main(words) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[1:] == [
        "left out: 1 files of a folder whose names stand for no format (.pdf)",
        "left out: 1 relation lines",
    ]
    (record,) = [
        json.loads(line) for line in (tmp_path / "a.pubtator.jsonl").read_text().splitlines()
    ]
    assert record["text"] == "foozin\nhelps"  # the last ending decides about the format
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"]["relation lines"] == 1


def test_every_profile_of_every_pipeline_can_be_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipeline's own, too (SapBERT's ontologies); another one is refused with those that there
    are."""
    inputs = {"UMLS": tmp_path, "CORPUS": tmp_path / "c.txt"}
    given = ["--mirror", str(tmp_path), "--plan", "true"]
    found = {paper: pipeline_of(paper)["profiles"] for paper in papers()}
    assert "ontologies" in found["sapbert"]
    for paper, profiles in found.items():
        for profile in profiles:
            used = names_in(profiles[profile]["stages"])
            own = [f"{name}={path}" for name, path in inputs.items() if name in used]
            words = ["pretrain", paper, "--profile", profile, *given, *own]
            assert main(words) == 0, (paper, profile)
    assert main(["pretrain", "sapbert", "PROFILE=ontology", *given]) == 2
    assert "from: small, ontologies, paper" in capsys.readouterr().err


def test_a_denied_mention_is_printed_as_such(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["link", "--graph", folder, "--text", "no renal failure", "--negation", "true"]) == 0
    )
    assert "not renal failure" in capsys.readouterr().out


def test_what_make_results_does_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written: list[Path] = []
    wrong: list[str] = []
    monkeypatch.setattr(records, "write_tables", lambda: written)
    monkeypatch.setattr(records, "problems", lambda: wrong)
    monkeypatch.setattr(records, "count_complete", lambda: "2 records")
    monkeypatch.setattr(curve_figure, "write_figures", lambda: [])
    monkeypatch.setattr(curve_figure, "figure_problems", lambda: [])
    assert main(["results"]) == 0
    told = capsys.readouterr().out
    assert told.splitlines()[0] == "every table and figure is as its records say"
    assert told.splitlines()[1] == "results-check: every table and number is in the records"
    written.append(Path("docs/x.md"))
    wrong.append("docs/y.md: 3: 0.5 is in no record")
    assert main(["results"]) == 1
    assert capsys.readouterr().out.splitlines() == ["docs/x.md", wrong[0], "2 records"]
    assert main(["results", "--check"]) == 1
    assert capsys.readouterr().out.splitlines() == [wrong[0], "2 records"]


def test_what_a_rehearsal_gets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = inspect.signature(rehearse.run_rehearsal)
    found: dict[str, Any] = {}

    def keep(*values: Any, **named: Any) -> str:
        found.update(asked.bind(*values, **named).arguments)
        return "a table"

    monkeypatch.setattr(rehearse, "run_rehearsal", keep)
    words = ["kebiolm", "--rehearse", "3", "--scale", "0.5", "--seed", "7", "--plan", "true"]
    assert main(["pretrain", *words, "--variants", "pretrain_rand", "--args", "--x 1"]) == 0
    assert capsys.readouterr().out == "a table\n"
    chosen = ("paper", "steps", "scale", "seed", "variants", "args", "plan")
    assert [found[name] for name in chosen] == [
        *("kebiolm", 3, 0.5, 7),
        ["pretrain_rand"],
        "--x 1",
        True,
    ]
