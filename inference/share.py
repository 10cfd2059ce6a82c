"""Commands that give models to others: push (the hub), onnx (a file for other engines), register
(MLflow's registry).

A command is a record: its fields are the options, its docstring is their help, `run` does it.
"""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.artifact import check_export, has_manifest
from core.files import InputError, atomic_folder, check_writable
from core.json_files import read_json
from core.reading import sha256

if TYPE_CHECKING:
    from torch import nn

LOG = logging.getLogger(__name__)
#: files of a model that are copied beside its ONNX file
BESIDE_ONNX = ("config.json", "tokenizer*", "vocab*", "special_tokens_map.json", "*.model")
TOLERANCE = 1e-4  #: most that an output of the ONNX file may differ from torch's
ONNX_FILE = "model.onnx"
TOKENIZER_FILES = ("config.json", "tokenizer*", "vocab*", "special_tokens_map.json", "*.model")


@dataclass(frozen=True, kw_only=True)
class Push:
    """Upload an export to the Hugging Face hub: its files as they are, with its model card.

    Needs a token that may write (HF_TOKEN, or `hf auth login`). The licences of the sources in the
    model card bind whoever passes the model on.

    Args:
        folder: Export of a run (runs/…/export), or a folder in the hub's layout.
        repository: owner/name on the hub; made where it does not exist.
        public: Make a new repository public. Default: private.
        message: Of the commit.

    Examples:
      kepl push runs/sapbert/pretrain/0123/seed0/export lab/sapbert-hpo
    """

    folder: Path
    repository: str
    public: bool = False
    message: str = "Upload by kepl"

    def run(self) -> None:
        if re.fullmatch(r"[\w.-]+/[\w.-]+", self.repository) is None:
            raise InputError(f"repository {self.repository!r}: expected owner/name")
        if not (self.folder / "config.json").is_file():
            raise InputError(
                f"{self.folder}: no config.json; expected an export of a run, or a folder in the"
                " hub's layout"
            )
        if has_manifest(self.folder):
            check_export(self.folder)
        address = push_folder(self.folder, self.repository, self.public, self.message)
        print(f"{address}: {self.folder}")


def push_folder(folder: Path, repository: str, public: bool, message: str) -> str:
    """Upload a folder to the hub; returns its address there. Raises InputError where the hub
    refuses or does not answer."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError, HTTPError

    api = HfApi(endpoint=constants.ENDPOINT)
    try:
        api.create_repo(repository, private=not public, exist_ok=True)
        api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            commit_message=message,
        )
    except HfHubHTTPError as error:
        status = error.response.status_code
        advice = (
            "give a token that may write in HF_TOKEN"
            if status in (401, 403)
            else "check the repository's name"
        )
        raise InputError(
            f"{constants.ENDPOINT}/{repository}: the hub refused ({status}); {advice}"
        ) from error
    except (OSError, HTTPError) as error:  # HTTPError: of the library that the hub's client uses
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{constants.ENDPOINT}: the hub does not answer ({reason})") from error
    return f"{constants.ENDPOINT}/{repository}"


@dataclass(frozen=True, kw_only=True)
class Onnx:
    """Write an encoder or a tagger as an ONNX file, whose outputs are compared with torch's.

    Of an encoder the output is last_hidden_state (batch, length, hidden), of a flat tagger logits
    (batch, length, labels), by input_ids and attention_mask. Pooling, and the CRF of a tagger that
    has one, are the reader's to do.

    Args:
        model: Encoder or fine-tuned tagger, as --model of embed and predict names it.
        out: Folder for model.onnx, config.json and the tokenizer.
        fresh: Replace an existing folder.

    Examples:
      kepl onnx --model minilm --out minilm-onnx
    """

    model: str
    out: Path
    fresh: bool = False

    def run(self) -> None:
        check_writable(self.out.parent / ONNX_FILE)
        if self.out.exists() and not self.fresh:
            raise InputError(f"{self.out}: exists already; give another --out, or --fresh")
        most = write_onnx(self.model, self.out)
        print(f"{self.out / ONNX_FILE}: {self.model}; outputs differ from torch's by {most:.1e}")


def torch_model(name: str) -> tuple[nn.Module, Path, str]:
    """(what returns the output, the folder of its tokenizer and config, the output's name) of a
    model. Raises InputError for one whose output needs more than tokens."""
    from core.dotted import import_object
    from datamodules.pretrained import find_pretrained, load
    from experiments.finetuned_names import find_finetuned, is_fine_tuned
    from experiments.names import architecture, encoder

    if is_fine_tuned(name) or architecture(encoder(name)) == "token":
        from transformers import AutoModelForTokenClassification

        folder = find_finetuned(name).folder if is_fine_tuned(name) else Path(encoder(name).folder)
        folder = folder if folder.is_dir() else Path(find_pretrained(str(folder)))
        architectures = read_json(folder / "config.json")["architectures"]
        if not str(architectures[0]).endswith("ForTokenClassification"):
            raise InputError(
                f"{name}: no flat tagger over a plain encoder ({architectures[0]}), so its output"
                " is not what one file of token scores can hold"
            )
        return load(AutoModelForTokenClassification, str(folder)), folder, "logits"
    chosen = encoder(name)
    if chosen.linker is not None:
        raise InputError(
            f"{name}: it reads linked mentions beside the tokens, which an ONNX file has no input"
            " for"
        )
    module = import_object(chosen.load, "models")(chosen.folder)
    if not hasattr(module, "bert"):
        raise InputError(f"{name}: expected an encoder or a tagger")
    return module.bert, Path(find_pretrained(chosen.folder)), "last_hidden_state"


def write_onnx(name: str, out: Path) -> float:
    """Write a model as ONNX into the folder `out`; returns the largest difference from torch.

    Raises InputError without the packages, as :func:`torch_model`, for a model that torch cannot
    export, and where outputs differ by more than TOLERANCE.
    """
    try:
        import onnxruntime  # noqa: F401  compares the file
        import onnxscript  # noqa: F401  torch.onnx needs it
    except ImportError as error:
        raise InputError(
            f"kepl onnx needs onnx, onnxscript and onnxruntime ({error}): pip install -e '.[onnx]'"
        ) from error
    model, folder, output = torch_model(name)
    whole = with_one_output(model, output)
    with atomic_folder(out) as partial:
        file = partial / ONNX_FILE
        export_onnx(name, whole, file, output)
        most = onnx_difference(whole, file, output)
        if most > TOLERANCE:
            raise InputError(f"{name}: the ONNX file's outputs differ from torch's by {most:.1e}")
        for pattern in BESIDE_ONNX:
            for path in folder.glob(pattern):
                shutil.copy(path, partial)
    return most


def with_one_output(model: Any, output: str) -> Any:
    """A model as a module that returns one of its outputs."""
    import torch

    class Output(torch.nn.Module):
        """The model with one output."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.model(input_ids=input_ids, attention_mask=attention_mask)[output]

    return Output().eval()


def random_ids(whole: Any, shape: tuple[int, int], seed: int) -> Any:
    """Random token ids of a model."""
    import torch

    size = int(whole.model.config.vocab_size)
    return torch.randint(0, size, shape, generator=torch.Generator().manual_seed(seed))


def export_onnx(name: str, whole: Any, file: Path, output: str) -> None:
    """Write a module as an ONNX file for texts of any number and length. Raises InputError where
    torch cannot."""
    import torch

    sample = random_ids(whole, (2, 9), 0)
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", min=2)
    try:
        with torch.no_grad():
            torch.onnx.export(
                whole,
                (sample, torch.ones_like(sample)),
                str(file),
                input_names=["input_ids", "attention_mask"],
                output_names=[output],
                dynamic_shapes=({0: batch, 1: length}, {0: batch, 1: length}),
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except Exception as error:
        reason = str(error).strip().splitlines()[0][:120] if str(error).strip() else "no reason"
        raise InputError(f"{name}: torch cannot export it to ONNX ({reason})") from error


def onnx_difference(whole: Any, file: Path, output: str) -> float:
    """The largest difference of an ONNX file's outputs from torch's, over texts of two shapes with
    padding."""
    import onnxruntime
    import torch

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    most = 0.0
    for shape in ((1, 3), (3, 17)):
        ids = random_ids(whole, shape, 1)
        mask = torch.ones_like(ids)
        mask[-1, -1] = 0
        outputs = session.run([output], {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})
        with torch.no_grad():
            expected = whole(ids, mask)
        difference = torch.from_numpy(outputs[0]) - expected
        most = max(most, float(difference[mask.bool()].abs().max()))
    return most


@dataclass(frozen=True, kw_only=True)
class Register:
    """Log a whole copy of a model to MLflow and register it, so that `mlflow models serve` answers
    from any machine with this checkout.

    Args:
        model: Fine-tuned tagger, as --model of predict names it; or with --graph the chain.
        name: Of the registered model.
        graph: Folder of a graph, for a chain; copied, too. The models of a chain must be where they
            are, or on the hub.
        negation: Say of each mention whether the text denies it.

    Examples:
      kepl register --model NCBI/minilm --name disease-tagger
      kepl register --model dictionary --graph hpo --name hpo-linker
    """

    model: str
    name: str
    graph: Path | None = None
    negation: bool = False

    def run(self) -> None:
        version = register_model(self.model, self.name, self.graph, self.negation)
        print(
            f"{self.name}: version {version}; mlflow models serve -m models:/{self.name}/{version}"
        )


def register_model(model: str, name: str, graph: Path | None, negation: bool) -> int:
    """Log and register a tagger, or a chain over a graph; returns the version. Raises InputError
    for a model that does not exist, and where MLflow does not answer."""
    import mlflow

    from core.journal import explaining_store
    from core.json_files import write_json
    from core.tracking import use_experiment
    from experiments.finetuned_names import find_finetuned
    from inference.mlflow_model import REFERENCE, write_model

    if graph is not None:
        from inference.chain import Pipeline

        Pipeline(graph, model, negation=negation)  # what is wrong with it is said now
        source, facts = graph, {"chain": model, "negation": negation}
    else:
        trained = find_finetuned(model)
        if trained.kind not in ("ner", "nested"):
            raise InputError(f"{model}: a model of kind {trained.kind}; expected a tagger")
        source, facts = trained.folder, {"identity": trained.identity}
    with tempfile.TemporaryDirectory() as place, explaining_store():
        data = Path(place) / "data"
        shutil.copytree(source, data / "content")
        write_json(data / REFERENCE, facts | {"folder": "content"})
        write_model(Path(place) / "model", data)
        use_experiment("registered")
        with mlflow.start_run(run_name=name) as run:
            mlflow.set_tags({"model": model, "checksum": sha256(source)})
            mlflow.log_artifacts(str(Path(place) / "model"), "model")
        version = mlflow.register_model(f"runs:/{run.info.run_id}/model", name)
    return int(version.version)
