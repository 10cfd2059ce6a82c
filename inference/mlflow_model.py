"""A model as MLflow serves it: `mlflow models serve -m runs:/<run>/model --env-manager local`, or
mlflow.pyfunc.load_model in Python.

A fine-tuned tagger answers texts (column `text`) with the mentions that `kepl predict` finds, a
chain over a graph with those of `kepl link`. The model's folder holds no weights where the store is
on this machine: it names the export of the run, whose checksum is verified when it is read.
`kepl register` writes a whole copy. Nothing in it is code: MLflow imports this module, so the
checkout must be on the path (`pip install -e .`, or PYTHONPATH).
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

from core.files import InputError, atomic_folder
from core.json_files import read_object, write_json
from inference.results import as_record

REFERENCE = "kepl.json"  #: in the model's data: what is served, and where it is
MODEL = "model"  #: the folder of a run's artifacts


class Served:
    """Answers a table with a column `text`: a list of mentions for each row."""

    def __init__(self, find: Any) -> None:
        self._find = find

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> list[list[Any]]:
        """The mentions of each text, as records. Raises InputError without a column `text`."""
        if hasattr(model_input, "columns"):
            if "text" not in model_input.columns:
                raise InputError(
                    f"expected a column 'text', got {', '.join(map(str, model_input.columns))}"
                )
            texts = [str(text) for text in model_input["text"]]
        else:
            texts = [str(text) for text in model_input]
        return [list(map(as_record, mentions)) for mentions in self._find(texts)]


def _load_pyfunc(data: str) -> Served:
    """What MLflow calls with the path of the model's data. Raises InputError for an export that is
    gone, or another one by now."""
    folder = Path(data)
    facts = read_object(folder / REFERENCE if folder.is_dir() else folder)
    place = folder / facts["folder"] if folder.is_dir() else Path(facts["folder"])
    if not place.is_dir():
        raise InputError(
            f"{place}: the model's folder is gone; train it again, or log a copy (kepl register)"
        )
    if "chain" in facts:
        from inference.chain import Pipeline

        return Served(Pipeline(place, facts["chain"], negation=facts["negation"]).link)
    from inference.load import load_entity_tagger

    tagger = load_entity_tagger(str(place))
    if tagger.identity != facts["identity"]:
        raise InputError(f"{place}: not the model that was logged. Log it again.")
    return Served(tagger.predict)


def write_model(folder: Path, data: Path) -> None:
    """Write the folder of an MLflow model around `data`, a reference or a folder with one."""
    import mlflow.pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema

    text = Schema([ColSpec(DataType.string, "text")])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an example of the input would run the model
        mlflow.pyfunc.save_model(
            str(folder),
            loader_module="inference.mlflow_model",
            data_path=str(data),
            signature=ModelSignature(inputs=text),
            pip_requirements=[],  # the checkout's own environment
        )


def write_reference(folder: Path, export: Path, identity: str) -> None:
    """Write the folder of an MLflow model that names a tagger's export."""
    with tempfile.TemporaryDirectory() as place, atomic_folder(folder) as partial:
        file = Path(place) / REFERENCE
        write_json(file, {"folder": str(export.resolve()), "identity": identity})
        write_model(partial, file)
