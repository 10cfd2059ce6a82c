"""What an exported model says of itself: its manifest for programs, README.md (a Hugging Face
model card) for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from core.artifact import MANIFEST, content_digest, read_manifest, write_manifest
from core.files import atomic_write
from core.journal import run_id_in
from core.json_files import digest, read_json
from core.reading import sha256
from datamodules.pretrained import HUB_NAME
from experiments.tracking import Run, data_folders, data_hashes

CARD = "README.md"
#: of a data folder's manifest, what its users want to know
TOLD = ("source", "version", "licence", "counts")


def data_provenance(config: Any) -> dict[str, dict[str, Any]]:
    """{setting: {digest of its content, and source, version, licence and counts where it has
    them}} of every data folder."""
    hashes, sources = data_hashes(config), {}
    for name, folder in data_folders(config).items():
        manifest = read_manifest(folder)
        sources[name] = {"sha256": hashes[name]} | {k: manifest[k] for k in TOLD if manifest.get(k)}
    return sources


def plain(value: Any, prefix: str = "") -> dict[str, Any]:
    """Settings that are numbers, words or switches, by their dotted names; folders, which
    `data_provenance` lists, left out."""
    if isinstance(value, dict):
        settings: dict[str, Any] = {}
        for name, inner in value.items():
            settings |= plain(inner, f"{prefix}.{name}")
        return settings
    if value is None or isinstance(value, list) or (isinstance(value, str) and "/" in value):
        return {}
    return {prefix.removeprefix("."): value}


def _cell(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) >= 100:
        return f"{value:,.0f}"
    if isinstance(value, float):
        return f"{value:.4f}" if 1e-2 <= abs(value) < 1e5 or value == 0 else f"{value:.3g}"
    if isinstance(value, dict):
        return ", ".join(
            f"{k} {_cell(v)}" for k, v in value.items() if not isinstance(v, (dict, list))
        )
    return f"{value:,}" if type(value) is int else str(value).replace("|", "\\|").replace("\n", " ")


def _table(head: list[str], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *(map(_cell, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


#: kind of a fine-tuned model -> what the hub calls its task
HUB_TASKS = {
    "ner": "token-classification",
    "nested": "token-classification",
    "relation": "text-classification",
    "pair": "text-classification",
    "ranking": "text-ranking",
}


def hub_facts(
    manifest: Mapping[str, Any], config: Mapping[str, Any], files: list[str]
) -> dict[str, Any]:
    """What the hub's search and its pages read of a card: pipeline_tag, base_model, datasets,
    metrics and model-index, each where it is known."""
    scored = manifest.get("fine_tuned")
    base = str(config.get("model", {}).get("init_args", {}).get("encoder", ""))
    hub_name = HUB_NAME.fullmatch(base) is not None and "/" in base and not Path(base).exists()
    front: dict[str, Any] = {"base_model": base if hub_name else None}
    if not scored:
        sentence = "modules.json" in files
        return front | {"pipeline_tag": "sentence-similarity" if sentence else None}
    task = HUB_TASKS[manifest["kind"]]
    metric, split = scored["metric"], scored["scored_on"]
    value = round(float(scored["score"][metric]), 4)
    result = {
        "task": {"type": task},
        "dataset": {"name": manifest["task"], "type": manifest["task"], "split": split},
        "metrics": [{"type": metric, "value": value}],
    }
    index = [{"name": f"{scored['model']} on {manifest['task']}", "results": [result]}]
    return front | {
        "pipeline_tag": task,
        "datasets": [manifest["task"]],
        "metrics": [metric],
        "model-index": index,
    }


MADE_OF = ["setting", "digest of its content", "source", "licence", "counts"]
TRAINED_WITH = ("python", "torch", "pytorch-lightning", "transformers", "tokenizers")


def card(
    name: str, manifest: Mapping[str, Any], config: Mapping[str, Any], files: list[str], about: str
) -> str:
    """The model card of an export.

    name      of the model, its heading
    manifest  what the manifest holds: data, scores, commit, mlflow_run
    config    of the run
    files     in the export's folder
    about     what was trained, a sentence or two
    """
    licences = sorted({str(d["licence"]) for d in manifest["data"].values() if d.get("licence")})
    scores = {k: v for k, v in manifest["scores"].items() if isinstance(v, (int, float))}
    settings = plain({k: config[k] for k in ("model", "data", "trainer") if k in config})
    front = front_matter(manifest, config, files, licences)
    data = [data_row(setting, made_of) for setting, made_of in manifest["data"].items()]
    heading = (
        f"# {name}\n\n{about} Seed {manifest['seed']}, commit `{manifest['commit']}`, MLflow"
        f" run `{manifest['mlflow_run']}`.\n"
    )
    rows = [[k, float(v)] for k, v in sorted(scores.items())]
    parts = [
        f"---\n{yaml.safe_dump(front, allow_unicode=True, sort_keys=False)}---\n",
        heading,
        f"## Scores\n\n{_table(['metric', 'value'], rows)}\n",
    ]
    if data:
        parts.append(f"## Made of\n\n{_table(MADE_OF, data)}\n")
    if licences:
        parts.append("The licences of these sources bind whoever passes the model on.\n")
    rows = [[k, v] for k, v in settings.items()]
    parts.append(f"## Settings\n\n{_table(['setting', 'value'], rows)}\n")
    parts.append(how_to_use(manifest, files))
    return "\n".join(parts)


def front_matter(
    manifest: Mapping[str, Any],
    config: Mapping[str, Any],
    files: list[str],
    licences: Sequence[str],
) -> dict[str, Any]:
    """What the hub reads of a card."""
    front: dict[str, Any] = {
        "library_name": "transformers" if "config.json" in files else "pytorch",
        "tags": ["biomedical", "kepl", str(manifest["paper"])],
    }
    if language := manifest.get("language"):
        front["language"] = language
    front |= {k: v for k, v in hub_facts(manifest, config, files).items() if v}
    if licences:
        front |= {"license": "other", "license_name": "; ".join(licences)[:200]}
    return front


def data_row(setting: str, made_of: Mapping[str, Any]) -> list[Any]:
    """A row of what a model was made of, as MADE_OF names its columns."""
    source = " ".join(str(made_of.get(word, "")) for word in ("source", "version")).strip()
    checksum = f"`{made_of['sha256'][:12]}`"
    return [setting, checksum, source, made_of.get("licence", ""), made_of.get("counts", "")]


def how_to_use(manifest: Mapping[str, Any], files: list[str]) -> str:
    """The lines that load an export, its files and the packages that it was trained with."""
    use = 'safetensors.torch.load_file("model.safetensors")'
    if "config.json" in files:
        use = 'AutoModel.from_pretrained("<this folder>")'
    if "head" in manifest:
        use = 'from inference.taggers import load_tagger\n\nmodel = load_tagger("<this folder>")'
    versions = [f"{name} {value}" for name, value in manifest.items() if name in TRAINED_WITH]
    return (
        f"## Use\n\n```python\n{use}\n```\n\nFiles: {', '.join(f'`{f}`' for f in files)}. Trained"
        f" with {', '.join(versions)}. A research model: not a medical device.\n"
    )


def identify(folder: Path) -> dict[str, Any]:
    """{checksums: {file: sha256}, identity: a digest of what the files hold} of an export: config,
    weights, tokenizer and tables.

    The card and the export's own manifest are left out: commit, scores and times are in them, which
    change nothing that a model computes. In the identity the manifest of a table counts by its
    content.
    """
    written = (folder / MANIFEST, folder / CARD)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path not in written)
    checksums = {file.relative_to(folder).as_posix(): sha256(file) for file in files}
    tables = {
        file.relative_to(folder).as_posix(): content_digest(file.parent)
        for file in files
        if file.name == MANIFEST
    }
    return {"checksums": checksums, "identity": digest(checksums | tables)}


def describe(
    folder: Path,
    run: Run,
    name: str,
    about: str,
    scores: Mapping[str, Any],
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write manifest and card into an export's folder; everything else is in it
    already."""
    manifest = {
        "paper": run.paper,
        "stem": run.stem,
        "seed": run.seed,
        "scores": dict(scores),
        "data": data_provenance(run.config),
        **identify(folder),
        "mlflow_run": run_id_in(run.folder),
        **(more or {}),
        **read_json(run.folder / "environment.json"),
    }
    files = sorted(p.name for p in folder.iterdir())
    write_manifest(folder, manifest)
    facts = json.loads(json.dumps(manifest, default=str))
    with atomic_write(folder / CARD) as handle:
        handle.write(card(name, facts, run.config, files, about))
