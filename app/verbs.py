"""The commands of `kepl` that are one word, in the order of its help: those of every user first.

A command of several words (kepl graph merge) is in core.call.
"""

from __future__ import annotations

from core.call import Command

GROUPS = {
    "commands": {
        "link": Command("inference.commands:Link", "find the entities of a graph in text"),
        "predict": Command(
            "inference.commands:Predict", "what a fine-tuned model finds in new text"
        ),
        "finetune": Command(
            "benchmarks.commands:Finetune",
            "fine-tune an encoder, or a linker, on a task, and score it",
            ("task",),
        ),
        "pretrain": Command("app.commands:Pretrain", "pre-train a paper's model", ("paper",)),
        "evaluate": Command(
            "benchmarks.commands:Evaluate", "score a linker beside both baselines", ("task",)
        ),
        "serve": Command("app.commands:Serve", "serve a chain over HTTP, with a page"),
    },
    "graphs and data": {
        "data": Command("app.commands:data", "fetch and verify a task's files", ("task",)),
        "tasks": Command("app.commands:tasks", "list the tasks"),
        "demo": Command("app.commands:Demo", "a page with linked text, in one command", ("what",)),
        "embed": Command("inference.commands:Embed", "vectors of names or short texts"),
        "convert": Command(
            "inference.convert:Convert",
            "annotated texts from one format into another",
            ("input", "output"),
        ),
    },
    "papers and comparisons": {
        "rerank": Command(
            "benchmarks.commands:Rerank",
            "train a cross-encoder that ranks a linker's candidates again",
            ("task",),
        ),
        "compare": Command(
            "benchmarks.commands:Compare", "every system scored on a task, best first", ("task",)
        ),
        "curve": Command(
            "benchmarks.commands:Curve",
            "score against the share of the training documents",
            ("task",),
        ),
        "knowledge": Command(
            "benchmarks.commands:Knowledge",
            "a paper's primary comparison with its controls",
            ("paper",),
        ),
        "table": Command(
            "app.commands:table",
            "a paper's table, reported beside measured",
            ("paper", "table"),
        ),
        "figures": Command("app.commands:figures", "a paper's figures", ("paper",)),
        "cases": Command("benchmarks.commands:Cases", "what a scored linker gets wrong", ("task",)),
        "peers": Command(
            "benchmarks.commands:Peers", "chains beside other people's linkers", ("task",)
        ),
        "synonyms": Command(
            "benchmarks.commands:Synonyms", "which of 20 names means the same (SMedBERT, Table 1)"
        ),
        "probe": Command(
            "benchmarks.commands:Probe", "fill-in queries of a graph's triples (KeBioLM)"
        ),
        "overlap": Command(
            "benchmarks.commands:Overlap",
            "annotated mentions that a graph has a name for",
            ("task",),
        ),
        "counts": Command(
            "benchmarks.commands:Counts", "sizes of every split beside the papers'", ("task",)
        ),
        "sweep": Command(
            "app.commands:Sweep", "a grid or a search of runs, resumable", ("config",)
        ),
    },
    "models for others": {
        "push": Command(
            "inference.share:Push", "upload a trained model to the hub", ("folder", "repository")
        ),
        "onnx": Command("inference.share:Onnx", "write an encoder or a tagger as an ONNX file"),
        "register": Command("inference.share:Register", "a model in MLflow's registry, whole"),
    },
    "maintenance": {
        "dashboard": Command("app.commands:dashboard", "compare runs in MLflow"),
        "publish": Command(
            "app.commands:publish", "write results of finished runs into docs/results", ("runs",)
        ),
        "results": Command("app.commands:results", "write the results tables of README and docs"),
        "sync": Command("app.commands:sync", "deliver to MLflow what it missed", ("folder",)),
    },
}
VERBS = {name: verb for verbs in GROUPS.values() for name, verb in verbs.items()}
LINKER = "benchmarks.commands:FinetuneLinker"  #: `kepl finetune` of a linking task
