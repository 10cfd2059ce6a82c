"""Benchmarks from the command line.

python -m benchmarks.run finetune TASK [MODEL=…] [SEEDS=…] [PROFILE=small|paper] [MIRROR=…] …   (make finetune)
python -m benchmarks.run finetune LINKING-TASK [MODEL=sapbert] [FOLDS=0] …   mention-synonym pairs (make finetune)
python -m benchmarks.run evaluate TASK MODEL=… [POOLING=cls|mean] [MIRROR=…] …   entity linking   (make evaluate)
python -m benchmarks.run cases TASK [OF=LABEL]     what a scored linker gets wrong, most frequent first   (make cases)
python -m benchmarks.run compare TASK [BASE=encoder]  every encoder scored on it, with paired tests against the best, or BASE
python -m benchmarks.run figures sapbert [MODEL=… BASE=…]   a paper's figures   (make figures)
python -m benchmarks.run table PAPER N   a paper's table, reported beside measured   (make table)
python -m benchmarks.run synonyms [MODEL=…] [SAMPLES=… LINKED=…] …   which of 20 names means the same   (make synonyms)
python -m benchmarks.run probe [GRAPH=hpo|medlama|…] [MODEL=…] …   what a masked language model knows of a graph (make probe)
python -m benchmarks.run counts [MIRROR=…] [TASK …]   sizes of every split at hand, beside the papers'
python -m benchmarks.run overlap [TASK …] [GRAPH=hpo|…]   annotated mentions that a graph knows   (make overlap)
python -m benchmarks.run tasks                        what there is
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from core.files import InputError


def settings_of(words: Sequence[str], allowed: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """(plain words, NAME=VALUE settings). Raises InputError for a setting that is not allowed."""
    plain = [w for w in words if "=" not in w]
    given = dict(w.split("=", 1) for w in words if "=" in w)
    if unknown := sorted(set(given) - set(allowed)):
        raise InputError(f"no setting {unknown[0]!r}; choose from: {', '.join(allowed)}")
    return plain, {k: v for k, v in given.items() if v}


def _one_task(plain: list[str]) -> str:
    from benchmarks.tasks import tasks

    if len(plain) != 1:
        raise InputError(f"wanted one TASK, got {len(plain)}; choose from: {', '.join(tasks())}")
    return plain[0]


def run_finetune(words: Sequence[str]) -> None:
    from benchmarks.finetune import SETTINGS, finetune
    from benchmarks.tasks.linking import tasks as linking_tasks
    from experiments.encoders import options

    if any(word in linking_tasks() for word in words):
        from benchmarks.linking import finetune as linking

        plain, given = settings_of(words, linking.SETTINGS)
        linking.finetune(_one_task(plain), given)
        return
    plain, given = settings_of(words, (*SETTINGS, *options()))
    finetune(_one_task(plain), given)


def run_compare(words: Sequence[str]) -> None:
    from benchmarks.scored import comparison, retrieval_comparison
    from benchmarks.synonyms import sum_of

    plain, given = settings_of(words, ("PROFILE", "SAMPLES", "BASE"))
    if plain == ["synonyms"]:
        print(retrieval_comparison(sum_of(given), given.get("BASE")))
    else:
        print(comparison(_one_task(plain), given.get("PROFILE") or "small", given.get("BASE")))


def run_evaluate(words: Sequence[str]) -> None:
    from benchmarks.linking import run_evaluate

    run_evaluate(words)


def run_cases(words: Sequence[str]) -> None:
    from benchmarks.linking.study import SETTINGS, show_cases
    from benchmarks.tasks.linking import tasks

    plain, given = settings_of(words, tuple(s for s in SETTINGS if s not in ("TASK", "OUT")))
    if len(plain) != 1:
        raise InputError(f"wanted one TASK, got {len(plain)}; choose from: {', '.join(tasks())}")
    show_cases(plain[0], given)


def run_figures(words: Sequence[str]) -> None:
    import yaml

    from core.dotted import imported
    from core.tracking import ROOT

    there = {p.parent.name: p for p in sorted((ROOT / "experiments").glob("*/figures.yaml"))}
    plain = [w for w in words if "=" not in w]
    if len(plain) != 1 or plain[0] not in there:
        raise InputError(
            f"wanted one PAPER with figures, got {' '.join(plain) or 'none'}; choose from: {', '.join(there)}"
        )
    recipe = yaml.safe_load(there[plain[0]].read_text())
    _, given = settings_of(words, imported(recipe["settings"], "benchmarks"))
    more = {k: v for k, v in recipe.items() if k not in ("draw", "settings")}
    imported(recipe["draw"], "benchmarks")(given, **more)


def run_table(words: Sequence[str]) -> None:
    from benchmarks.table import SETTINGS, written_table

    plain, given = settings_of(words, SETTINGS)
    if len(plain) != 2:
        raise InputError(f"wanted PAPER and TABLE, such as sapbert 2, got {' '.join(plain) or 'nothing'}")
    text, files = written_table(plain[0], plain[1], given)
    print(text)
    print(f"\nwritten to {files[0]} and {files[1].name}")


def run_counts(words: Sequence[str]) -> None:
    from benchmarks.counts import count_rows, counts_table
    from benchmarks.tasks import task, tasks
    from benchmarks.tasks.definition import Definition
    from datamodules.sources import fetched, place

    plain, given = settings_of(words, ("MIRROR",))
    mirrors = [Path(m) for m in shlex.split(given.get("MIRROR", ""))]

    def folder_of(definition: Definition) -> Path:
        return fetched(definition.dataset, place(), mirrors)

    print(counts_table(count_rows(folder_of, [task(name) for name in plain] or list(tasks().values()))))


def run_synonyms(words: Sequence[str]) -> None:
    from benchmarks.synonyms import SETTINGS, evaluate

    plain, given = settings_of(words, SETTINGS)
    if plain:
        raise InputError(f"synonyms: wanted NAME=VALUE settings only, got {plain[0]!r}")
    evaluate(given)


def run_probe(words: Sequence[str]) -> None:
    from benchmarks.probing import SETTINGS, evaluate

    plain, given = settings_of(words, SETTINGS)
    if plain:
        raise InputError(f"probe: wanted NAME=VALUE settings only, got {plain[0]!r}")
    evaluate(given)


def run_overlap(words: Sequence[str]) -> None:
    from benchmarks.overlap import SETTINGS, overlaps, told

    plain, given = settings_of(words, SETTINGS)
    print(told(*overlaps(plain, given)))


def run_tasks(words: Sequence[str]) -> None:
    from benchmarks.tasks import tasks

    plain, _ = settings_of(words, ())
    if plain:
        raise InputError(f"tasks: wanted no argument, got {plain[0]!r}")
    for task in tasks().values():
        also = f" (also {', '.join(task.aliases)})" if task.aliases else ""
        print(f"{task.name:<16}{task.suite:<14}{task.kind:<10}{task.metric}{also}")


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "finetune": run_finetune,
    "evaluate": run_evaluate,
    "cases": run_cases,
    "compare": run_compare,
    "figures": run_figures,
    "synonyms": run_synonyms,
    "probe": run_probe,
    "table": run_table,
    "counts": run_counts,
    "overlap": run_overlap,
    "tasks": run_tasks,
}


def main(words: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if words is None else words)
    if not words or words[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if words else 2
    if "MAKELEVEL" in os.environ:
        from experiments.stages import dies_with_its_parent

        dies_with_its_parent()
    try:
        if words[0] not in COMMANDS:
            raise InputError(f"no command {words[0]!r}; choose from: {', '.join(COMMANDS)}")
        COMMANDS[words[0]](words[1:])
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
