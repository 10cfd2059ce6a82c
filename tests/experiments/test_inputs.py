"""What a pipeline starts from is checked before its first stage, also by PLAN=1."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from core.files import InputError
from core.json_files import write_json
from experiments.machine import Inputs
from experiments.pretrain import papers, pretrain, takes_type
from tests.fakes import bert


def model_of_type(folder: Path, kind: str) -> Path:
    bert.write(folder, ["gout"])
    write_json(folder / "config.json", {"model_type": kind})
    return folder


@pytest.mark.parametrize("paper", papers())
@pytest.mark.parametrize("kind", ["bert", "roberta", "bart", "modernbert", "t5", "gpt2"])
def test_a_type_is_taken_or_refused_at_once(paper: str, kind: str, tmp_path: Path) -> None:
    folder = model_of_type(tmp_path / "model", kind)
    began = time.process_time()
    try:
        pretrain(paper, inputs=Inputs(encoder=str(folder)), plan=True)
        refused = ""
    except InputError as error:
        refused = str(error)
    assert time.process_time() - began < 2
    if takes_type(paper, kind) and paper == "genbioel":  # its small profile starts from nothing
        assert "ENCODER: no stage of genbioel uses it with PROFILE=small" in refused
        return
    assert (refused == "") == takes_type(paper, kind)
    if refused:
        assert f"a {kind} model; {paper} starts from" in refused
        assert ("sapbert" in refused) == takes_type("sapbert", kind)


def test_the_papers_and_their_types() -> None:
    taking = {
        kind: [p for p in papers() if takes_type(p, kind)]
        for kind in ("bert", "roberta", "bart", "t5")
    }
    assert taking == {
        "bert": ["embert", "ernie", "kebiolm", "knowbert", "sapbert", "smedbert"],
        "roberta": ["embert", "ernie", "kebiolm", "knowbert", "sapbert", "smedbert"],
        "bart": ["genbioel", "sapbert"],
        "t5": ["sapbert"],
    }


@pytest.mark.parametrize(
    ("profile", "inputs"),
    [
        ("small", Inputs(graph=["nowhere/graph"])),
        ("paper", Inputs(umls=Path("nowhere"), corpus=["README.md"])),
        ("small", Inputs(corpus=["nowhere.txt"])),
    ],
)
def test_a_path_that_does_not_exist(
    profile: str, inputs: Inputs, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InputError, match=r"nowhere.*: no such file or folder"):
        pretrain("kebiolm", profile, inputs=inputs)
    pretrain("kebiolm", profile, inputs=inputs, plan=True)  # for another machine, maybe
    assert "no such file or folder on this machine" in caplog.text


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no config\.json"):
        pretrain("sapbert", inputs=Inputs(encoder=str(tmp_path)), plan=True)
    folder = model_of_type(tmp_path / "m", "bert")
    for file in folder.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(InputError, match="tokenizer"):
        pretrain("sapbert", inputs=Inputs(encoder=str(folder)), plan=True)
