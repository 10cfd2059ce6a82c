"""The numbers of the papers' YAML files against this table, which is typed from the papers.

A number that a paper does not state is not here; its YAML says so under `paper:`. Small profiles
have numbers of their own, which stay within what training of their size takes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2] / "experiments"

#: what baselines share with SMedBERT, and BERT's masks
OF_SMEDBERT: dict[str, Any] = {
    "model.lr": 5e-5,
    "model.warmup_steps": 0.1,
    "data.batch_size": 512,
    "data.max_length": 512,
    "data.mask": 0.12,
    "data.random": 0.015,
    "data.keep": 0.015,
    "trainer.max_epochs": 1,
}

#: file -> {setting: the paper's number}
PAPERS: dict[str, dict[str, Any]] = {
    # KeBioLM: Sections 3.2 and 4.1
    "kebiolm/pretrain.yaml": {
        "model.text_layers": 8,
        "model.of_layers": 12,  # 8 and 4 layers
        "model.candidates": 100,
        "model.max_mentions": 50,
        "model.lr": 5e-5,
        "model.warmup_steps": 10_000,
        "data.batch_size": 512,
        "data.max_length": 512,
        "data.max_mentions": 50,
        "data.mask": 0.12,
        "data.random": 0.015,
        "trainer.max_epochs": 2,
    },
    "kg/transe.yaml": {"dim": 100, "norm": 2, "lr": 1e-3, "batch_size": 2048, "epochs": 30},
    # SMedBERT: Section 3 and Appendix B
    "smedbert/pretrain.yaml": {
        "model.scale": 10,
        "model.neighbour_weight": 2,
        "model.mention_weight": 4,
        "model.lr": 5e-5,
        "data.k": 10,
        "data.batch_size": 512,
        "data.max_length": 512,
        "trainer.max_epochs": 1,
    },
    # the baselines ERNIE (Zhang et al. 2019, Sections 3.4 and 4.1) and KnowBERT (Peters et al.
    # 2019, Section 3.2), with SMedBERT's optimiser, batches and text
    "ernie/pretrain.yaml": {
        "model.heads": 4,
        "model.entity_weight": 1.0,
        "data.exchanged": 0.05,
        "data.hidden": 0.15,
        **OF_SMEDBERT,
    },
    "knowbert/pretrain.yaml": {
        "model.entity_weight": 1.0,
        "data.n_candidates": 30,
        **OF_SMEDBERT,
    },
    # EMBERT: Section 4.1
    "embert/pretrain.yaml": {
        "model.consistency_weight": 2,
        "model.segmentation_weight": 2,
        "model.masking_weight": 0.5,
        "model.position_size": 200,
        "model.lr": 5e-5,
        "model.warmup_steps": 0.1,
        "model.weight_decay": 0.01,
        "data.batch_size": 256,
        "data.max_length": 512,
        "data.rate": 0.15,
    },
    # GenBioEL: Table 11
    "genbioel/pretrain.yaml": {
        "model.smoothing": 0.1,
        "model.dropout": 0.1,
        "model.lr": 4e-5,
        "model.weight_decay": 0.01,
        "model.warmup_steps": 1600,
        "data.batch_size": 384,
        "trainer.max_steps": 80_000,
        "trainer.gradient_clip_val": 0.1,
    },
    "genbioel/finetune.yaml": {
        "model.smoothing": 0.1,
        "model.dropout": 0.1,
        "model.weight_decay": 0.01,
        "data.batch_size": 8,
        "trainer.gradient_clip_val": 0.1,
        **{
            f"tasks.paper.{task}.{setting}": value
            for task, values in {
                "BC5CDR-EL": (1e-5, 20_000, 500),
                "COMETA-EL": (1e-5, 40_000, 500),
                "AAP-EL": (5e-6, 30_000, 0),
                "NCBI-EL": (3e-7, 20_000, 0),
            }.items()
            for setting, value in zip(
                ("model.init_args.lr", "trainer.max_steps", "model.init_args.warmup_steps"),
                values,
                strict=True,
            )
        },
    },
    # SapBERT: Section A.3; batches are of pairs here, of names there
    "sapbert/pretrain.yaml": {
        "model.lr": 2e-5,
        "model.weight_decay": 0.01,
        "data.batch_size": 480 / 2,
        "trainer.max_epochs": 1,
    },
    "sapbert/finetune.yaml": {
        "model.lr": 2e-5,
        "model.weight_decay": 0.01,
        "data.batch_size": 256 / 2,
        "trainer.max_epochs": 3,
        "epochs.paper.AAP-EL": 15,
        "epochs.paper.COMETA-EL": 10,
        "epochs.paper.other": 3,
    },
    # KeBioLM: Section 4.3
    **{
        f"finetune/{task}.yaml": {
            "model.warmup_steps": 0.1,
            "data.max_length": length,
            "data.batch_size": 16,
            "trainer.max_epochs": 60,
            "grid.model.init_args.lr": [1e-5, 3e-5, 5e-5],
        }
        for task, length in {
            "NCBI": 512,
            "BC5-chem": 512,
            "BC5-disease": 512,
            "BC2GM": 512,
            "JNLPBA": 512,
            "ChemProt": 256,
            "DDI": 256,
            "GAD": 128,
        }.items()
    },
    # SMedBERT: Appendix B
    "finetune/cMedQQ.yaml": {
        "grid.model.init_args.lr": [2e-5, 4e-5, 6e-5],
        "grid.data.init_args.batch_size": [8, 16],
        "grid.trainer.max_epochs": [2, 3, 4],
    },
}

#: settings that no paper states: file -> {setting: number}; who trains where, and for how long
OWN: dict[str, dict[str, Any]] = {
    "common/cpu.yaml": {
        "trainer.accelerator": "cpu",
        "trainer.devices": 1,
        "trainer.precision": "32-true",
    },
    "common/gpu.yaml": {
        "trainer.accelerator": "gpu",
        "trainer.devices": 1,
        "trainer.precision": "bf16-mixed",
    },
    "common/ddp.yaml": {
        "trainer.accelerator": "gpu",
        "trainer.devices": 8,
        "trainer.num_nodes": 1,
        "trainer.strategy": "ddp",
        "trainer.precision": "bf16-mixed",
        "data.num_workers": 4,
    },
    "zh/pretrain.yaml": {
        "seed_everything": 0,
        "checkpoint_every": 1000,
        "model.layers": 4,
        "model.hidden": 256,
        "model.heads": 4,
        "model.intermediate": 1024,
        "model.lr": 5e-4,
        "model.warmup_steps": 2000,
        "model.weight_decay": 0.01,
        "model.beta2": 0.98,
        "data.batch_size": 256,
        "data.max_length": 512,
        "data.whole_words": True,
        "trainer.max_epochs": -1,  # steps decide
        "trainer.max_steps": 100_000,
        "trainer.gradient_clip_val": 1.0,
    },
    "zh/small.yaml": {
        "checkpoint_every": 100,
        "model.lr": 1e-3,
        "model.warmup_steps": 100,
        "model.dropout": 0.0,
        "data.batch_size": 16,
        "data.max_length": 128,
        "trainer.max_steps": 650,
    },
    "zh/encoder.yaml": {
        "small.model.init_args.lr": 1e-4,
        "small.Tagger": {"data.init_args.batch_size": 8},
        "small.RelationClassifier": {"model.init_args.lr": 1e-3},
    },
}

#: what a training of any size here stays within: a hundredfold rate is a slip
RANGES = {
    "lr": (1e-7, 3e-3),
    "weight_decay": (0, 0.1),
    "dropout": (0, 0.5),
    "warmup_steps": (0, 20_000),
    "temperature": (0.01, 1),
    "smoothing": (0, 0.2),
    "gradient_clip_val": (0.1, 5),
    "batch_size": (1, 2048),
    "max_epochs": (-1, 100),
}
#: of graph embeddings, which have no layers: the rates and sizes of PyKEEN's own configurations
OUTSIDE = {("lr", 0.04), ("batch_size", 4096)}
YAMLS = sorted(ROOT.rglob("*.yaml"))


def setting(loaded: dict[str, Any], name: str) -> Any:
    """A setting by its dotted name; `model.` and `data.` are of their init_args."""
    first, _, rest = name.partition(".")
    if first in ("model", "data"):
        return loaded[first]["init_args"][rest]
    for level in ("tasks.paper", "epochs.paper"):
        if name.startswith(f"{level}."):
            one, _, own = name.removeprefix(f"{level}.").partition(".")
            group, part = level.split(".")
            found = loaded[group][part][one]
            return found[own] if own else found
    return loaded[first][rest] if rest else loaded[first]


@pytest.mark.parametrize("file", [*PAPERS, *OWN])
def test_numbers_are_those_of_the_table(file: str) -> None:
    loaded = yaml.safe_load((ROOT / file).read_text("utf-8"))
    expected = (PAPERS | OWN)[file]
    assert {name: setting(loaded, name) for name in expected} == expected


def list_numbers(value: Any, name: str = "") -> list[tuple[str, float]]:
    """(the last part of its name, number) of every number in a YAML file."""
    if isinstance(value, dict):
        pairs = [pair for key, own in value.items() for pair in list_numbers(own, str(key))]
        return pairs
    if isinstance(value, list):
        return [pair for own in value for pair in list_numbers(own, name)]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return []
    return [(name.rpartition(".")[2], float(value))]


@pytest.mark.parametrize(
    "file", sorted(ROOT.rglob("*.yaml")), ids=lambda p: str(p.relative_to(ROOT))
)
def test_every_number_is_one_of_a_training(file: Path) -> None:
    loaded = yaml.safe_load(file.read_text("utf-8")) or {}
    wrong = [
        (name, number)
        for name, number in list_numbers(loaded)
        if name in RANGES
        and not RANGES[name][0] <= number <= RANGES[name][1]
        and (name, number) not in OUTSIDE
    ]
    assert wrong == []


def test_the_small_profile_of_smedbert_divides_its_weight_by_the_dimensions() -> None:
    """D11 of models/smedbert: lambda_2 / 64."""
    small = yaml.safe_load((ROOT / "smedbert" / "small.yaml").read_text())
    assert setting(small, "model.mention_weight") == 4 / 64


@pytest.mark.parametrize("variant", ["c075", "c25"])
def test_the_rates_of_table_5_change_the_rate_alone(variant: str) -> None:
    """D8 of models/embert: they start from the checkpoint of all other variants."""
    changed = yaml.safe_load((ROOT / "embert" / f"pretrain_{variant}.yaml").read_text())
    assert set(changed) == {"data", "paper"}
    assert set(changed["data"]["init_args"]) == {"rate"}


def list_masks(value: Any) -> list[tuple[float, ...]]:
    """(masked, replaced, kept) of every part of a YAML that has all three."""
    if not isinstance(value, dict):
        return []
    own = [tuple(value[name] for name in ("mask", "random", "keep"))] if "keep" in value else []
    return own + [found for part in value.values() for found in list_masks(part)]


def test_masks_are_bert_s() -> None:
    """15 % of the tokens: 80 % of them masked, 10 % replaced, 10 % kept (Devlin et al. 2019)."""
    found = {
        file: rates
        for file in YAMLS
        for rates in list_masks(yaml.safe_load(file.read_text("utf-8")))
        if all(isinstance(rate, int | float) for rate in rates)
    }
    assert len(found) >= 5
    assert {
        file.parent.name for file, rates in found.items() if rates != (0.12, 0.015, 0.015)
    } == set()
