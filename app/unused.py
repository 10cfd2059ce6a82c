"""Options that a command has and that the rest of its words leave without a use: they are refused.

An option that only some models use is checked where the model is loaded
(inference.options.check_uses).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from core.files import InputError
from core.settings import groups_of

Arguments = Mapping[str, Any]  #: {option: its value}, those of groups among them

PROTOCOL = ("normalise", "abbreviations", "train_names", "composite", "nil", "names")
WORKERS = ("workers", "engine")


class Rule(NamedTuple):
    """Options, when they have a use, and what they belong to."""

    options: tuple[str, ...]
    is_used: Callable[[Arguments], bool]
    belongs_to: str


def _is_end_to_end(arguments: Arguments) -> bool:
    from datamodules.tasks.linking import END_TO_END

    own_texts = bool(arguments.get("gold")) and arguments["model"] is None
    return arguments["task"] in END_TO_END or own_texts


def _has_gold(arguments: Arguments) -> bool:
    return bool(arguments["gold"])


def _is_linking(arguments: Arguments) -> bool:
    from datamodules.tasks.linking import END_TO_END, linking_tasks

    return arguments["task"] in linking_tasks() or arguments["task"] in END_TO_END


def _has_model(arguments: Arguments) -> bool:
    """Whether a model links, and neither a dictionary nor a baseline."""
    if _is_end_to_end(arguments):
        return (arguments["chain"] or "dictionary") not in ("dictionary", "dictionary > names")
    return arguments["model"] not in (None, "exact", "tfidf", "translated")


def _is_table_of(*kinds: str) -> Callable[[Arguments], bool]:
    def is_used(arguments: Arguments) -> bool:
        from benchmarks.tables import definition_of

        return definition_of(arguments["paper"], arguments["table"]).get("kind", "scores") in kinds

    return is_used


def _counts_entities(arguments: Arguments) -> bool:
    return not any(_is_table_of(kind)(arguments) for kind in MEASURED_TABLES)


MEASURED_TABLES = ("scores", "finetune", "synonyms", "probing", "populations", "sizes")
INPUT = "--input FILE"
LAYOUT = ("document", "id_field", "text_field")
GOLD = "one's own annotated texts (--gold FILE)"
MODEL_SYSTEM = "a model (--model sapbert)"

RULES: dict[str, tuple[Rule, ...]] = {
    "link": (
        Rule(
            ("output", "format", "to", "encoding", "empty", "fresh", *LAYOUT, *WORKERS),
            lambda given: bool(given["input"]),
            INPUT,
        ),
        Rule(("max_document",), lambda given: given["text"] is None, INPUT),
    ),
    "predict": (
        Rule(
            ("format", "encoding", "empty", "tagger", *LAYOUT, *WORKERS),
            lambda given: bool(given["input"]),
            INPUT,
        ),
        Rule(("split", "mirror", "data"), lambda given: given["task"] is not None, "--task TASK"),
        Rule(
            ("output", "to", "fresh"),
            lambda given: bool(given["input"] or given["task"]),
            f"{INPUT} or --task TASK",
        ),
        Rule(
            ("max_document",), lambda given: given["text"] is None and given["task"] is None, INPUT
        ),
    ),
    "embed": (Rule(("fresh",), lambda given: given["output"] is not None, "--output FILE"),),
    "evaluate": (
        Rule(
            ("model", "ckpt", "folds", "backoff", "rerank", *PROTOCOL),
            lambda given: not _is_end_to_end(given),
            "a linking task (NCBI-EL); an end-to-end task has --chain",
        ),
        Rule(
            ("chain", "threshold", "forms", "kinds"),
            _is_end_to_end,
            "an end-to-end task (NCBI-E2E); a linking task has --model",
        ),
        Rule(("ckpt", "backoff", *WORKERS), _has_model, MODEL_SYSTEM),
        Rule(("gold_format", "gold_types"), _has_gold, GOLD),
        Rule(
            ("split", "mirror", "data"),
            lambda given: not given["gold"],
            "a task; --gold is scored as a whole",
        ),
    ),
    "compare": (
        Rule(("gold_format", "gold_types", "graph", "chains"), _has_gold, GOLD),
        Rule(("samples", "split", "profile"), lambda given: not given["gold"], "a task"),
        Rule(("samples",), lambda given: given["task"] == "synonyms", "the task synonyms"),
        Rule(("split",), _is_linking, "a linking task (NCBI-EL)"),
        Rule(
            ("profile",),
            lambda given: given["task"] != "synonyms" and not _is_linking(given),
            "a task of fine-tuning (NCBI)",
        ),
    ),
    "cases": (
        Rule(("gold_format", "gold_types"), _has_gold, GOLD),
        Rule(("split", "folds", "mirror", "data"), lambda given: not given["gold"], "a task"),
    ),
    "peers": (
        Rule(("gold_format", "gold_types"), _has_gold, GOLD),
        Rule(("split", "mirror", "data"), lambda given: not given["gold"], "a task"),
    ),
    "synonyms": (
        Rule(
            ("ckpt", "pooling", "similarity", "max_length", "precision", "knowledge", "device"),
            lambda given: ":" not in given["model"],
            "an encoder (--model zh)",
        ),
        Rule(("seed",), lambda given: ":" in given["model"], "word vectors (--model sgns:char)"),
    ),
    "probe": (
        Rule(
            ("mirror", "data"),
            lambda given: given["graph"] == "medlama",
            "--graph medlama",
        ),
        Rule(("seed",), lambda given: given["limit"] is not None, "--limit NUMBER"),
    ),
    "overlap": (Rule(("ckpt",), lambda given: given["model"] is not None, "--model NAME"),),
    "pretrain": (
        Rule(("fresh",), lambda given: given["rehearse"] is None, "training (no --rehearse)"),
    ),
    "table": (
        Rule(("seeds",), lambda given: bool(given["run"]), "--run"),
        Rule(("split", "folds"), _is_table_of("scores", "populations"), "a table of linking"),
        Rule(("profile",), _is_table_of("scores", "finetune"), "a table of fine-tuning"),
        Rule(("samples",), _is_table_of("synonyms"), "a table of synonyms"),
        Rule(
            ("limit", "seed", "method", "masks", "beam"), _is_table_of("probing"), "a probing table"
        ),
        Rule(
            ("graph",),
            lambda given: _is_table_of("probing")(given) or _counts_entities(given),
            "a table of probing, or of a graph's entities",
        ),
        Rule(("model", "ckpt"), _counts_entities, "a table of a graph's entities"),
    ),
}


def flat(function: Callable[..., Any], arguments: Arguments) -> dict[str, Any]:
    """Arguments of a command with the options of its groups in place of these."""
    merged = dict(arguments)
    for group in groups_of(function):
        values = merged.pop(group)
        merged |= {
            option.name: getattr(values, option.name) for option in dataclasses.fields(values)
        }
    return merged


def check_used(
    verb: str, function: Callable[..., Any], arguments: Arguments, typed: Collection[str]
) -> None:
    """Raise InputError for an option that is given and has no use beside the other arguments."""
    values = flat(function, arguments)
    for rule in RULES.get(verb, ()):
        unused = sorted(set(rule.options) & set(typed))
        if unused and unused[0] in values and not rule.is_used(values):
            raise InputError(
                f"kepl {verb}: --{unused[0].replace('_', '-')} has no use here; it belongs to"
                f" {rule.belongs_to}"
            )
