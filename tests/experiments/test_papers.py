"""The papers' numbers, typed from the papers, against every YAML that is to hold them and against
the classes' defaults."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest
import yaml

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

#: paper -> {place in its pretrain.yaml: (the number, where the paper prints it)}
PRINTED: dict[str, dict[str, tuple[Any, str]]] = {
    "kebiolm": {
        "data.mask": (0.12, "Section 3.2: replaces 12% of tokens to [MASK]"),
        "data.random": (0.015, "Section 3.2: and 1.5% tokens to random tokens"),
        "data.whole_entity_masking": (
            True,
            "Section 3.2: we mask all tokens within a word or entity span",
        ),
        "model.text_layers": (8, "Section 4.1: an 8-layer transformer for text-only encoding"),
        "model.of_layers": (
            12,
            "Section 4.1: and a 4-layer transformer for text-entity fusion encoding",
        ),
        "model.lr": (5e-5, "Section 4.1"),
        "model.warmup_steps": (10_000, "Section 4.1"),
        "model.candidates": (100, "Section 4.1: the most k = 100 similar entities"),
        "model.max_mentions": (50, "Section 4.1: max entities count"),
        "data.max_mentions": (50, "Section 4.1: max entities count"),
        "data.batch_size": (512, "Section 4.1"),
        "data.max_length": (512, "Section 4.1"),
        "trainer.max_epochs": (2, "Section 4.1"),
    },
    "sapbert": {
        "model.pooling": ("cls", "Section 2.1: the [CLS] token"),
        "model.mine": (True, "Section 2.1: online hard pairs mining"),
        "model.loss": ("ms", "Eq. (2)"),
        "model.lr": (2e-5, "Section A.3"),
        "model.weight_decay": (1e-2, "Section A.3"),
        "data.batch_size": (480 // 2, "Section A.3: 480 names, two a pair"),
        "trainer.max_epochs": (1, "Section A.3"),
        "model.margin": (0.2, "released code: TripletMarginMiner's margin"),
        "model.alpha": (60, "released code: scale of negatives"),
        "model.beta": (1, "released code: scale of positives"),
        "model.epsilon": (0.5, "released code: offset"),
        "data.max_length": (25, "released code"),
        "model.warmup_steps": (None, "released code: a constant rate"),
    },
    "smedbert": {
        "data.k": (10, "Appendix B: K = 10"),
        "data.infused": (0.0, "Section 3.4: masked mentions alone take knowledge in"),
        "model.scale": (10, "Appendix B: mu = 10"),
        "model.neighbour_weight": (2, "Appendix B: lambda_1 = 2"),
        "model.mention_weight": (4, "Appendix B: lambda_2 = 4"),
        "model.lr": (5e-5, "Appendix B"),
        "data.batch_size": (512, "Appendix B"),
        "data.max_length": (512, "Appendix B"),
        "trainer.max_epochs": (1, "Appendix B"),
        "data.n_negatives": (35, "released code"),
        "data.max_mentions": (30, "released code"),
        "data.mask": (0.12, "BERT's 80 % of 15 %"),
        "data.random": (0.015, "BERT's 10 % of 15 %"),
        "data.keep": (0.015, "BERT's 10 % of 15 %"),
    },
    "embert": {
        "model.consistency_weight": (2, "Section 4.1: lambda_1"),
        "model.segmentation_weight": (2, "Section 4.1: lambda_2"),
        "model.masking_weight": (0.5, "Section 4.1: lambda_3"),
        "model.position_size": (200, "Section 4.1: 200-dimension positional embeddings"),
        "model.lr": (5e-5, "Section 4.1"),
        "model.warmup_steps": (0.1, "Section 4.1: warmup proportion is 10%"),
        "model.weight_decay": (0.01, "Section 4.1"),
        "data.batch_size": (256, "Section 4.1"),
        "data.max_length": (512, "Section 4.1"),
        "data.rate": (0.15, "Section 4.6"),
    },
    "genbioel": {
        "model.smoothing": (0.1, "Table 11: label smoothing"),
        "model.dropout": (0.1, "Table 11: attention dropout"),
        "model.lr": (4e-5, "Table 11"),
        "model.weight_decay": (0.01, "Table 11"),
        "model.warmup_steps": (1600, "Table 11"),
        "data.batch_size": (384, "Table 11"),
        "trainer.max_steps": (80_000, "Table 11"),
        "trainer.gradient_clip_val": (0.1, "Table 11"),
        "data.prompt": (True, "Section 2.1"),
    },
}

#: file -> {place: the number}: ablations, graph embeddings, fine-tuning
OTHERS: dict[str, dict[str, Any]] = {
    # KeBioLM, Section 4.1: L2 norm, dimension 100, Adam at 1e-3, batches of 2048, 30 epochs
    "kg/transe.yaml": {
        "model": "TransE",
        "norm": 2,
        "dim": 100,
        "lr": 1e-3,
        "batch_size": 2048,
        "epochs": 30,
    },
    # SMedBERT, Appendix B: d_2 = 200
    "kg/transr.yaml": {"model": "TransR", "dim": 200, "relation_dim": 200},
    # KeBioLM, Table 4: text-only layers of 12; Table 3
    "kebiolm/pretrain_l4.yaml": {"model.text_layers": 4},
    "kebiolm/pretrain_l12.yaml": {"model.text_layers": 12},
    "kebiolm/pretrain_wem.yaml": {"data.whole_entity_masking": False},
    "kebiolm/pretrain_rand.yaml": {"model.random_entities": True},
    "kebiolm/pretrain_frz.yaml": {"model.freeze_entities": True},
    # SMedBERT, Figure 4
    "smedbert/pretrain_k5.yaml": {"data.k": 5},
    "smedbert/pretrain_k20.yaml": {"data.k": 20},
    "smedbert/pretrain_k30.yaml": {"data.k": 30},
    # EMBERT, Table 5
    "embert/pretrain_c075.yaml": {"data.rate": 0.075},
    "embert/pretrain_c25.yaml": {"data.rate": 0.25},
    # SapBERT, Section A.3: batches of 256 names, 3 epochs on scientific text
    "sapbert/finetune.yaml": {
        "data.batch_size": 256 // 2,
        "trainer.max_epochs": 3,
        "model.lr": 2e-5,
        "model.margin": 0.2,
    },
    # GenBioEL, Table 11: BC5CDR's column
    "genbioel/finetune.yaml": {
        "model.lr": 1e-5,
        "model.warmup_steps": 500,
        "trainer.max_steps": 20_000,
        "data.batch_size": 8,
        "model.smoothing": 0.1,
        "trainer.gradient_clip_val": 0.1,
    },
}

#: KeBioLM, Section 4.3: 60 epochs, batches of 16, 10 % warm-up; NER 512 tokens, ChemProt and DDI
#: 256, GAD 128
BLURB = {
    "BC2GM": 512,
    "BC5-chem": 512,
    "BC5-disease": 512,
    "JNLPBA": 512,
    "NCBI": 512,
    "ChemProt": 256,
    "DDI": 256,
    "GAD": 128,
}


def number(config: dict[str, Any], place: str) -> Any:
    """The value at a place: `model.` and `data.` mean their arguments."""
    room, _, name = place.rpartition(".")
    part = config[room] if room else config
    return part.get("init_args", part)[name]


def read(name: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((EXPERIMENTS / name).read_text())
    return config


PLACES = [(paper, place) for paper, places in PRINTED.items() for place in places]


@pytest.mark.parametrize(
    ("paper", "place"), PLACES, ids=[f"{paper}-{place}" for paper, place in PLACES]
)
def test_a_paper_is_trained_with_its_numbers(paper: str, place: str) -> None:
    """In pretrain.yaml, and as the class's default, where it has one: who calls the class trains as
    the paper does."""
    config, (printed, where) = read(f"{paper}/pretrain.yaml"), PRINTED[paper][place]
    assert number(config, place) == printed, where
    room, _, name = place.rpartition(".")
    if room == "trainer":
        return
    module, _, leaf = config[room]["class_path"].rpartition(".")
    # its own settings, then those of the class it extends
    parents = getattr(importlib.import_module(module), leaf).__mro__
    known = next(p for p in (inspect.signature(c).parameters for c in parents) if name in p)
    default = known[name].default
    if default not in (inspect.Parameter.empty, None):
        assert default == printed, f"{leaf}({name}): {where}"


@pytest.mark.parametrize(
    ("file", "place"), [(file, place) for file, places in OTHERS.items() for place in places]
)
def test_ablations_graphs_and_fine_tuning_have_the_papers_numbers(file: str, place: str) -> None:
    assert number(read(file), place) == OTHERS[file][place]


@pytest.mark.parametrize("task", BLURB)
def test_blurb_is_fine_tuned_with_kebiolms_numbers(task: str) -> None:
    config = read(f"finetune/{task}.yaml")
    found = [
        number(config, p)
        for p in ("trainer.max_epochs", "data.batch_size", "model.warmup_steps", "data.max_length")
    ]
    assert found == [60, 16, 0.1, BLURB[task]]
    assert config["grid"]["model.init_args.lr"] == [1e-5, 3e-5, 5e-5]


def test_genbioel_is_fine_tuned_with_table_11() -> None:
    """(learning rate, steps, warm-up steps) of each benchmark."""
    table = {
        "BC5CDR-EL": (1e-5, 20_000, 500),
        "COMETA-EL": (1e-5, 40_000, 500),
        "AAP-EL": (5e-6, 30_000, 0),
        "NCBI-EL": (3e-7, 20_000, 0),
    }
    tasks = read("genbioel/finetune.yaml")["tasks"]["paper"]
    for task, wanted in table.items():
        own = tasks[task]
        assert (
            own["model.init_args.lr"],
            own["trainer.max_steps"],
            own["model.init_args.warmup_steps"],
        ) == wanted


def test_sapbert_is_fine_tuned_for_so_many_epochs() -> None:
    """Section A.3: 3 on scientific text, 15 on AskAPatient, 10 on COMETA."""
    epochs = read("sapbert/finetune.yaml")["epochs"]["paper"]
    assert epochs == {"AAP-EL": 15, "COMETA-EL": 10, "COMETA": 10, "other": 3}


def test_every_number_that_a_yaml_says_is_the_papers_is_in_the_table() -> None:
    """Whose `paper:` entry names a section, an appendix, a table or the released code, and does not
    say "not in the paper"."""
    missing = []
    for paper, places in PRINTED.items():
        config = read(f"{paper}/pretrain.yaml")
        known = {place.rpartition(".")[2] for place in places}
        for name, where in config["paper"].items():
            printed = where.startswith(("Section", "Appendix", "Table", "Figure"))
            values = [
                part.get("init_args", part).get(name)
                for part in (config["model"], config["data"], config["trainer"])
            ]
            if printed and any(isinstance(v, int | float) for v in values) and name not in known:
                missing.append(f"{paper}: {name}")
    # "one or two names": a range, which D3 of models/genbioel.py explains
    assert missing == ["genbioel: few"]
