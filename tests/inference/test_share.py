"""Models for others: pushed to a hub, as ONNX, in MLflow's registry and behind its server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from huggingface_hub import constants

from app.cli import main
from core.files import InputError
from core.json_files import read_object
from core.tracking import ROOT
from inference import share
from inference.mlflow_model import _load_pyfunc, write_reference
from inference.taggers import Tagger, load_tagger
from models.encoders import TextEncoder
from tests.fakes import bert, graphs
from tests.fakes.hub import TOKEN, serve_hub
from tests.inference.conftest import Trained

TEXTS = ["advil and zyban today", "some polio fever"]


@pytest.fixture
def tracking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    address = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path / "runs"))
    return address


def test_a_folder_is_pushed_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = bert.write(tmp_path / "bert", ["gout"])
    (folder / "README.md").write_text("---\ntags: [kepl]\n---\n# A model\n")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with serve_hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        assert main(["push", str(folder), "lab/bert"]) == 0
        assert hub.created == [("lab/bert", True)]
        files = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
        assert hub.uploaded["lab/bert"] == files


@pytest.mark.parametrize("token", ["hf_wrong", ""])
def test_a_hub_that_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = bert.write(tmp_path / "bert", ["gout"])
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    with serve_hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        monkeypatch.setenv("HF_TOKEN", token)
        assert main(["push", str(folder), "lab/bert"]) == 2
    shown = capsys.readouterr().err
    assert "may write in HF_TOKEN" in shown and "Traceback" not in shown
    assert main(["push", str(tmp_path), "lab/bert"]) == 2
    assert "no config.json" in capsys.readouterr().err


def test_a_hub_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = bert.write(tmp_path / "bert", ["gout"])
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{taken.getsockname()[1]}")
        assert main(["push", str(folder), "lab/bert"]) == 2
        assert "the hub does not answer" in capsys.readouterr().err
        assert main(["push", str(folder), "lab/bert/x"]) == 2
    assert "repository 'lab/bert/x': expected owner/name" in capsys.readouterr().err


def test_an_encoder_as_onnx(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    source = bert.write(tmp_path / "bert", ["renal", "gout"], layers=2)
    assert main(["onnx", "--model", str(source), "--out", str(tmp_path / "out")]) == 0
    assert "differ from torch's by" in capsys.readouterr().out
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    ids = torch.tensor([[2, 7, 8, 9, 3]])
    inputs = {"input_ids": ids.numpy(), "attention_mask": np.ones((1, 5), np.int64)}
    (found,) = session.run(None, inputs)
    with torch.no_grad():
        expected = TextEncoder(str(source)).eval()(ids, torch.ones_like(ids)).numpy()
    assert np.abs(found - expected).max() < 1e-4
    assert (tmp_path / "out" / "tokenizer.json").is_file()
    assert main(["onnx", "--model", str(source), "--out", str(tmp_path / "out")]) == 2


def test_what_an_onnx_file_cannot_hold(trained: Callable[[str], Trained]) -> None:
    with pytest.raises(InputError, match="no flat tagger over a plain encoder"):
        share.torch_model(str(trained("pair").folder / "export"))
    model, _, output = share.torch_model(str(trained("ner").folder / "export"))
    assert output == "logits" and type(model).__name__ == "BertForTokenClassification"


def test_the_model_of_a_run(trained: Callable[[str], Trained], tmp_path: Path) -> None:
    export = trained("ner").folder / "export"
    tagger = load_tagger(export)
    assert isinstance(tagger, Tagger)
    write_reference(tmp_path / "model", export, tagger.identity)
    import mlflow.pyfunc

    made = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    found = made.predict(pd.DataFrame({"text": TEXTS[:1]}))
    assert found == [[s._asdict() for s in tagger.predict(TEXTS[0])[0]]]
    assert not list((tmp_path / "model").rglob("*.pkl"))
    data = next((tmp_path / "model" / "data").iterdir())
    facts = read_object(data)
    data.write_text(json.dumps(facts | {"identity": "other"}))
    with pytest.raises(InputError, match="not the model that was logged"):
        _load_pyfunc(str(data))
    data.write_text(json.dumps(facts | {"folder": str(tmp_path / "gone")}))
    with pytest.raises(InputError, match="is gone"):
        _load_pyfunc(str(data))


def test_a_registered_chain(
    tmp_path: Path, tracking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = graphs.write(tmp_path / "graph", {"G:1": ["gout"]})
    words = ["register", "--model", "dictionary", "--graph", str(graph), "--name", "linker"]
    assert main(words) == 0
    assert "linker: version 1" in capsys.readouterr().out
    import mlflow

    mlflow.set_tracking_uri(tracking)
    made = mlflow.pyfunc.load_model("models:/linker/1")
    ((mention,),) = made.predict(pd.DataFrame({"text": ["He has gout."]}))
    assert (mention["entity"], mention["start"]) == ("G:1", 7)


@pytest.mark.slow
def test_mlflow_serves_a_tagger(trained: Callable[[str], Trained], tmp_path: Path) -> None:
    export = trained("ner").folder / "export"
    tagger: Any = load_tagger(export)
    write_reference(tmp_path / "model", export, tagger.identity)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "mlflow", "models", "serve", "-m", str(tmp_path / "model")]
    words += ["--env-manager", "local", "-p", str(port), "-h", "127.0.0.1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MLFLOW_DISABLE_TELEMETRY": "true"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with subprocess.Popen(words, env=environment, cwd=tmp_path, start_new_session=True) as server:
        try:
            body = json.dumps({"dataframe_records": [{"text": text} for text in TEXTS]}).encode()
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/invocations", body, {"Content-Type": "application/json"}
            )
            for _ in range(120):
                try:
                    with urllib.request.urlopen(request, timeout=30) as reply:
                        found = json.loads(reply.read())["predictions"]
                    break
                except OSError:
                    time.sleep(0.5)
        finally:
            os.killpg(server.pid, 15)
    assert found == [[s._asdict() for s in own] for own in tagger.predict(TEXTS)]
