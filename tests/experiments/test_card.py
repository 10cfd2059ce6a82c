"""What an export says of itself: a card that Hugging Face's readers accept, whose every number is
the manifest's."""

from __future__ import annotations

from pathlib import Path

import yaml
from huggingface_hub import ModelCard

from core.artifact import content_digest
from core.json_files import read_json, write_json
from core.reading import sha256
from experiments.card import card, data_provenance, describe, how_to_use, identify, plain
from experiments.tracking import Run


def folders(tmp_path: Path) -> tuple[Path, Path]:
    graph, corpus = tmp_path / "graph", tmp_path / "corpus"
    graph.mkdir()
    corpus.mkdir()
    write_json(
        graph / "manifest.json",
        {"source": "HP|O", "version": "2025-01", "licence": "CC BY 4.0", "counts": {"names": 1234}},
    )
    write_json(corpus / "manifest.json", {"settings": {"max_length": 127}})
    return graph, corpus


def test_an_export_says_what_it_is_made_of_and_what_it_scores(runs: Path, tmp_path: Path) -> None:
    graph, corpus = folders(tmp_path)
    config = {
        "model": {"class_path": "models.x.X", "init_args": {"lr": 5e-4, "encoder": str(corpus)}},
        "data": {
            "init_args": {"graph": str(graph), "batch_size": 16, "texts": ["a"], "file": "/a/b.txt"}
        },
        "paper": {"lr": "Section 4"},
    }
    run = Run("sapbert", "pretrain", config, 3)
    write_json(run.folder / "mlflow.json", {"run_id": "abc123", "tracking_uri": "x"})
    write_json(
        run.folder / "environment.json",
        {"commit": "deadbeef", "torch": "2", "run_folder": str(run.folder)},
    )
    export = tmp_path / "export"
    export.mkdir()
    (export / "config.json").write_text("{}")
    describe(
        export,
        run,
        "sapbert/pretrain",
        "It was trained.",
        {"val/loss": 1.23456, "val/tokens": 5000.0},
    )
    manifest = read_json(export / "manifest.json")
    assert manifest["data"] == {
        "encoder": {"sha256": content_digest(corpus)},
        "graph": {
            "sha256": content_digest(graph),
            "source": "HP|O",
            "version": "2025-01",
            "licence": "CC BY 4.0",
            "counts": {"names": 1234},
        },
    }
    assert (manifest["mlflow_run"], manifest["seed"], manifest["commit"]) == (
        "abc123",
        3,
        "deadbeef",
    )
    text = (export / "README.md").read_text()
    read = ModelCard(text)  # as the hub reads it
    assert read.data.license == "other" and read.data.library_name == "transformers"
    assert {"kepl", "sapbert"} <= set(read.data.tags)
    assert "| val/loss | 1.2346 |" in text and "| val/tokens | 5,000 |" in text
    assert "MLflow run `abc123`" in text and "commit `deadbeef`" in text
    assert "| model.init_args.lr | 0.0005 |" in text
    assert (
        f"| graph | `{content_digest(graph)[:12]}` | HP\\|O 2025-01 | CC BY 4.0 | names"
        " 1,234 |" in text
    )
    # a card travels, this machine's folders do not
    assert str(tmp_path) not in text and "/a/b.txt" not in text


def test_a_card_without_licences_or_folders() -> None:
    manifest = {
        "paper": "x",
        "data": {},
        "scores": {},
        "seed": 0,
        "commit": "c",
        "mlflow_run": "r",
        "language": "zh",
    }
    front = yaml.safe_load(card("a", manifest, {}, ["model.safetensors"], "About.").split("---")[1])
    assert front == {
        "library_name": "pytorch",
        "tags": ["biomedical", "kepl", "x"],
        "language": "zh",
    }
    assert data_provenance({"a": {"b": 1, "c": "nowhere"}}) == {}
    assert plain({"a": {"b": 1, "c": None, "d": "x/y", "e": [1], "f": True}}) == {
        "a.b": 1,
        "a.f": True,
    }


def test_a_model_is_its_files(runs: Path, tmp_path: Path) -> None:
    """The identity is the same whatever was scored, when and by which commit, and another one for
    another byte of any file."""
    identities = []
    for number, weights in enumerate(("w", "w", "v")):
        run, export = Run("sapbert", "pretrain", {"a": number}, number), tmp_path / str(number)
        write_json(run.folder / "mlflow.json", {"run_id": f"run{number}"})
        write_json(run.folder / "environment.json", {"commit": f"commit{number}"})
        (export / "neighbours").mkdir(parents=True)
        for file in (
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "names.parquet",
            "neighbours/table.npy",
        ):
            (export / file).write_text(weights if file == "neighbours/table.npy" else file)
        write_json(export / "neighbours" / "manifest.json", {"seconds": number})
        describe(export, run, "a model", "About.", {"val/loss": float(number)})
        manifest = read_json(export / "manifest.json")
        assert manifest["identity"] == identify(export)["identity"]
        for file in ("model.safetensors", "neighbours/manifest.json"):
            assert manifest["checksums"][file] == sha256(export / file)
        assert set(manifest["checksums"]) == {
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "names.parquet",
            "neighbours/table.npy",
            "neighbours/manifest.json",
        }
        identities.append(manifest["identity"])
    assert identities[0] == identities[1] != identities[2]
    write_json(export / "neighbours" / "manifest.json", {"settings": {"k": 9}})
    assert identify(export)["identity"] != identities[2]


def test_what_the_hub_reads_of_a_fine_tuned_model() -> None:
    manifest = {
        "paper": "finetune",
        "kind": "ner",
        "task": "NCBI",
        "data": {},
        "scores": {},
        "seed": 0,
        "commit": "c",
        "mlflow_run": "r",
        "head": {},
        "fine_tuned": {
            "metric": "entity_f1",
            "scored_on": "test",
            "score": {"entity_f1": 0.82114},
            "model": "minilm",
        },
    }
    config = {"model": {"init_args": {"encoder": "lab/bert"}}}
    read = ModelCard(card("a", manifest, config, ["config.json"], "About."))
    assert read.data.base_model == "lab/bert" and read.data.pipeline_tag == "token-classification"
    assert read.data.datasets == ["NCBI"] and read.data.metrics == ["entity_f1"]
    (result,) = read.data.eval_results
    assert (result.metric_type, result.metric_value) == ("entity_f1", 0.8211)
    assert (result.dataset_name, result.dataset_split) == ("NCBI", "test")


def test_how_a_model_is_loaded_is_said_by_its_files() -> None:
    use = how_to_use({"torch": "2.0"}, ["config.json", "model.safetensors"])
    assert 'AutoModel.from_pretrained("<this folder>")' in use and "load_file" not in use
    use = how_to_use({}, ["model.safetensors"])
    assert 'safetensors.torch.load_file("model.safetensors")' in use and "AutoModel" not in use
    assert "load_tagger" in how_to_use({"head": {}}, ["config.json"])
