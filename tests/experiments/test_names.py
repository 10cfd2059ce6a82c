"""Which model a name means; an encoder copied to where a pipeline starts from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.results import Model, model_of
from core.files import InputError
from core.json_files import read_json, write_json
from core.reading import sha256
from core.tracking import ROOT
from experiments.finetuned_names import NotTrained, find_finetuned
from experiments.names import PLAIN, copy_encoder, encoder
from experiments.recipes import options
from models.transformer_files import load_bert
from tests.commands import command
from tests.fakes import bert


def test_a_folder_is_copied_once(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = bert.write(tmp_path / "bert", ["heart", "fever"], layers=1), tmp_path / "start"
    run = command("import model")
    assert run([str(source), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: {source}\n" and sha256(out) == sha256(source)
    before = os.stat(out / "config.json").st_mtime_ns
    assert run([str(source), "--out", str(out)]) == 0
    assert (
        "there already; kept" in capsys.readouterr().out
        and os.stat(out / "config.json").st_mtime_ns == before
    )
    (out / "half").write_text("left over")  # another content: somebody's, perhaps
    with pytest.raises(InputError, match="it is left alone"):
        copy_encoder(str(source), out)
    assert (out / "half").is_file()


def test_a_folder_under_another_name(runs: Path, tmp_path: Path) -> None:
    """NAME=FOLDER: its results are the name's."""
    source = bert.write(tmp_path / "bert", ["heart", "fever"], layers=1)
    name = f"lab/biobert={source}"
    found = encoder(name)
    assert (found.name, found.folder) == ("lab--biobert", str(source))
    assert model_of(name, found) == Model("lab/biobert", "", encoder(str(source)).identity)
    odd = source.rename(tmp_path / "a=b")  # a folder's own name may have the sign
    assert model_of(str(odd), encoder(str(odd))).name.startswith("a=b-")
    for wrong in ("lab/biobert=nowhere", "lab/biobert="):
        with pytest.raises(InputError, match="expected NAME=FOLDER"):
            encoder(wrong)
    with pytest.raises(InputError, match="no CKPT="):
        encoder(f"x={odd}", str(odd))


def test_a_papers_name_is_its_newest_export(runs: Path, tmp_path: Path) -> None:
    for number, name in enumerate(("old", "new")):
        run = runs / "zh" / "pretrain" / name / "seed0"
        write_json(run / "export" / "manifest.json", {"paper": "zh", "n": number, "checksums": {}})
        write_json(run / "export" / "config.json", {})
        write_json(run / "finished.json", {})
        os.utime(run / "finished.json", (number, number))
    assert "kept" not in copy_encoder("zh", tmp_path / "start") and sha256(
        tmp_path / "start"
    ) == sha256(encoder("zh").folder)
    assert "kept" in copy_encoder("zh", tmp_path / "start")


def test_what_cannot_be_copied(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NotTrained, match="make pretrain-zh"):
        copy_encoder("zh", tmp_path / "start")
    with pytest.raises(InputError, match="some/model: a model of the hub.* ENCODER=some/model"):
        copy_encoder("some/model", tmp_path / "start")
    code = command("import model")([str(tmp_path / "none"), "--out", str(tmp_path / "start")])
    assert (
        code == 2
        and "no such folder" in capsys.readouterr().err
        and not (tmp_path / "start").exists()
    )


def test_options_are_those_of_the_recipes() -> None:
    assert (
        "smedbert" in options()["HITS"]
        and "smedbert" in options()["K"]
        and encoder("minilm").option_keys == {}
    )


def fine_tuned(
    runs: Path,
    name: str,
    seed: int = 0,
    time: int = 0,
    request: dict[str, Any] | None = None,
    select: float = 0.5,
) -> Path:
    """The export of a finished run in runs/finetune/<name>."""
    run = runs / "finetune" / name / f"seed{seed}"
    manifest = {
        "paper": "finetune",
        "kind": "ner",
        "identity": f"{name}-{seed}",
        "head": {},
        "linker": None,
        "request": request or {},
        "model": {"init_args": {"load": "models.encoders.TextEncoder"}},
        "fine_tuned": {"metric": "entity_f1", "select": {"entity_f1": select}},
    }
    write_json(run / "export" / "manifest.json", manifest)
    write_json(run / "finished.json", {})
    os.utime(run / "finished.json", (time, time))
    return run / "export"


def test_a_fine_tuned_models_name_is_its_newest_run_at_default_settings(runs: Path) -> None:
    default = {"args": "", "options": {}, "profile": "small"}
    fine_tuned(runs, "NCBI/minilm/aaaa", 0, 1, default)
    new = fine_tuned(runs, "NCBI/minilm/bbbb", 1, 3, default)
    fine_tuned(runs, "NCBI/minilm/bbbb", 2, 4, default)
    other = fine_tuned(runs, "NCBI/minilm/cccc", 0, 9, default | {"args": "--model.init_args.lr 1"})
    fine_tuned(runs, "NCBI/minilm/dddd", 0, 9, default | {"options": {"HITS": 0.5}})
    # not finished
    write_json(
        runs / "finetune/NCBI/minilm/eeee/seed0/export/manifest.json",
        read_json(new / "manifest.json"),
    )
    assert (
        find_finetuned("NCBI/minilm").folder == new
        and find_finetuned("NCBI/minilm").identity == "NCBI/minilm/bbbb-1"
    )
    assert (
        find_finetuned("NCBI/minilm@cccc-seed0").folder == other
        and find_finetuned("NCBI/minilm@c-seed0").folder == other
    )
    assert find_finetuned(str(new)).folder == find_finetuned(str(new.parent)).folder == new
    found = encoder("NCBI/minilm")
    assert (found.folder, found.load, found.identity) == (
        str(new / "encoder"),
        PLAIN,
        "NCBI/minilm/bbbb-1",
    )
    with pytest.raises(
        InputError,
        match=r"no such run; expected one of NCBI/minilm@aaaa-seed0, .*NCBI/minilm@dddd-seed0",
    ):
        find_finetuned("NCBI/minilm@bbbb-seed0")


def test_of_a_grid_the_point_that_was_chosen(runs: Path) -> None:
    request = {"profile": "paper"}
    fine_tuned(runs, "NCBI/minilm/aaaa/grid-1", 0, 5, request, select=0.4)
    best = fine_tuned(runs, "NCBI/minilm/aaaa/grid-2", 0, 3, request, select=0.6)
    assert find_finetuned("NCBI/minilm").folder == best


def test_variants_stems_and_checkpoints_have_folders_of_their_own(runs: Path) -> None:
    for name, folder in (
        ("cMedQA:clean/zh", "cMedQA-clean/zh"),
        ("NCBI/kebiolm/pretrain_rand", "NCBI/kebiolm-pretrain_rand"),
        ("NCBI/owner/model", "NCBI/owner--model"),
        ("NCBI/kebiolm@12ab-seed0", "NCBI/kebiolm@12ab-seed0"),
    ):
        export = fine_tuned(runs, f"{folder}/ffff")
        assert find_finetuned(name).folder == export
    only = fine_tuned(runs, "GAD/minilm/ffff", request={"args": "--x 1"})
    fine_tuned(runs, "GAD/minilm/ffff", 1, request={"args": "--x 1"})
    # the only settings that there are, of the lowest seed
    assert find_finetuned("GAD/minilm").folder == only
    fine_tuned(runs, "GAD/minilm/eeee", request={"args": "--x 2"})
    with pytest.raises(
        InputError, match="no run with default settings; name one of GAD/minilm@eeee-seed0, .*, or"
    ):
        find_finetuned("GAD/minilm")
    assert find_finetuned("GAD/minilm@ffff-seed0").folder == only
    default = fine_tuned(runs, "GAD/minilm/dddd")
    assert find_finetuned("GAD/minilm").folder == default


@pytest.mark.parametrize(
    "name, message",
    [
        (
            "NCBI/minilmm",
            (
                "Did you mean NCBI/minilm. Trained on NCBI: minilm. Run `make finetune TASK=NCBI"
                " MODEL=minilmm`"
            ),
        ),
        ("NCBBI/minilm", "Did you mean NCBI/minilm"),
        ("ncbi/minilm", "Did you mean NCBI/minilm"),
        (
            "GAD/minilm",
            "Trained on GAD: nothing yet. Run `make finetune TASK=GAD MODEL=minilm` first",
        ),
        ("sapbart", "Did you mean sapbert"),
        ("minilmm", "Did you mean minilm"),
        ("smedbert2/x", "Did you mean smedbert/x"),
        (
            "./nowhere",
            "no such folder; choose from: .*minilm, TASK/encoder, a folder or a hub name",
        ),
    ],
)
def test_a_wrong_name_lists_the_names_and_queries_no_hub(
    runs: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    fine_tuned(runs, "NCBI/minilm/aaaa")
    monkeypatch.setattr(
        "datamodules.pretrained.hub_folder", lambda name: pytest.fail("asked the hub")
    )
    with pytest.raises(InputError, match=message):
        encoder(name)
    other = "Expected a folder or TASK/encoder; trained: NCBI/minilm"
    with pytest.raises(InputError, match=message if "/minilm" in name else other):
        find_finetuned(name)


def test_a_hub_name_is_asked_for_once_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked = []

    def model_info(self: object, name: str, timeout: float) -> None:
        asked.append(name)
        raise OSError("no route\nto the hub")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)  # the suite's
    assert encoder("ncbi/MedCPT").folder == "ncbi/MedCPT"
    with pytest.raises(InputError) as error:
        load_bert(encoder("ncbi/MedCPT").folder)
    assert (
        asked == ["ncbi/MedCPT"]
        and "\n" not in str(error.value)
        and "(no route)" in str(error.value)
    )


def test_looking_a_name_up_loads_no_model_library() -> None:
    code = (
        "import sys, experiments.names; print([m for m in ('torch', 'transformers', 'mlflow',"
        " 'numpy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "[]\n"
