"""The commands of `kepl` that read and write a user's files, each with small inputs and tiny
models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from core.json_files import write_json
from tests.fakes import bert, linking, tasks
from tests.fakes.graphs import graph
from tests.faults.pipelines import CPU, Step

VERBS = "verbs"  #: as if it were the name of a paper's pipeline
DOCUMENTS = 2000
EL = ["NCBI-EL", "--split", "dev"]
ONCE = ["--shares", "0.5", "--seeds", "1", "--epochs", "1"]
PLAIN = ["--split", "dev", "--chains", "dictionary", "--peers", "phrases"]  # nothing to train
SMALL = "--data.init_args.batch_size 1 --data.init_args.candidates 3 --data.init_args.context 8"


def write_verb_sources(folder: Path) -> None:
    """A graph, texts, names, a linking task and an encoder: what the commands read and none
    changes."""
    names = [("D1", "renal failure", "exact", "en"), ("D2", "heart attack", "exact", "en")]
    graph({"D1": "disease", "D2": "disease", "foozin": "drug"}, [("D1", "near", "D2")], names).save(
        folder / "graph"
    )
    linking.write(folder / "linking")
    bert.write(folder / "encoder", ["heart", "attack", "renal", "failure"], length=512, dropout=0.0)
    tasks.write(folder / "tagging", "ner")
    texts = ["a heart attack and renal failure", "foozin for a heart attack", "nothing"]
    lines = [
        json.dumps({"id": str(n), "text": f"{n}: {texts[n % len(texts)]}"})
        for n in range(DOCUMENTS)
    ]
    (folder / "texts.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (folder / "few.jsonl").write_text("".join(f"{line}\n" for line in lines[:300]))
    (folder / "names.txt").write_text(
        "".join(f"{text} {n}\n" for n, text in enumerate(texts * 100))
    )
    command = {
        "command": "evaluate NCBI-EL",
        "settings": {"DATA": str(folder / "linking" / "NCBI-EL"), "SPLIT": "dev"},
    }
    write_json(
        folder / "sweep.yaml",
        command | {"grid": {"MODEL": ["exact", "tfidf"]}, "at_once": 1, "report": ["dev/acc_1"]},
    )


class VerbStep(Step):
    """A command. `input`: a copy of `source` in the place, which a fault may change."""

    def __init__(
        self, title: str, words: list[str], work: Path, source: Path | None = None
    ) -> None:
        self.source, self.input = source, work / "inputs" / source.name if source else None
        super().__init__(title, ["app.cli", *words])

    def prepare(self) -> None:
        """Put the input into the place."""
        if self.source and self.input:
            self.input.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.source, self.input)


def verb_steps(work: Path, sources: Path) -> list[Step]:
    """A tagger to predict with, and then each command."""
    encoder, data = str(sources / "encoder"), str(sources / "linking" / "NCBI-EL")
    tagging = str(sources / "tagging")
    tagger = work / "tagger"
    training = [
        "experiments.finetune",
        "--config",
        "experiments/finetune/NCBI.yaml",
        *CPU,
        "--model.init_args.encoder",
        encoder,
        "--run_folder",
        str(tagger),
        "--task_name",
        "NCBI",
        "--model_name",
        "encoder",
        "--model.init_args.load",
        "models.encoders.TextEncoder",
        "--data.init_args.tokenizer",
        encoder,
        "--data.init_args.task",
        tagging,
        "--data.init_args.batch_size",
        "8",
        "--trainer.max_epochs",
        "1",
    ]
    texts, few, names = (sources / name for name in ("texts.jsonl", "few.jsonl", "names.txt"))

    def reading(title: str, words: list[str], source: Path, output: str) -> VerbStep:
        given = ["--input", str(work / "inputs" / source.name), "--output", str(work / output)]
        return VerbStep(title, [*words, *given], work, source)

    link = ["link", "--graph", str(sources / "graph")]
    return [
        Step("A tagger", training, training=False),
        reading("link", link, texts, "links.jsonl"),
        reading(
            "link, two workers, PubTator",
            [*link, "--workers", "2", "--chain", "dictionary > names"],
            texts,
            "links.pubtator",
        ),
        reading("predict", ["predict", "--model", str(tagger / "export")], few, "entities.jsonl"),
        reading("embed", ["embed", "--model", encoder], names, "vectors.safetensors"),
        VerbStep("evaluate", ["evaluate", *EL, "--data", data, "--model", encoder], work),
        VerbStep(
            "rerank",
            ["rerank", *EL, "--data", data, "--model", encoder, "--epochs", "1", f"ARGS={SMALL}"],
            work,
        ),
        VerbStep("sweep", ["sweep", str(sources / "sweep.yaml")], work),
        VerbStep("curve", ["curve", "NCBI", "--data", tagging, "--models", encoder, *ONCE], work),
        VerbStep("peers", ["peers", "NCBI-E2E", "--data", data, *PLAIN], work),
    ]
