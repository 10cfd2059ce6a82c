"""`kepl`: knowledge-enhanced language models for biomedicine, from a graph to linked text and
scores.

A command is a record or a typed function (app.verbs, core.call): its fields or parameters are the
options, its docstring is their help (kepl VERB --help). Options are typed as `--name value` or, as
behind `make`, as NAME=value.

Exit codes: 0 done, 1 an internal error, 2 wrong input or options (one line says which), 130
    interrupted, 143 terminated (one line says what is kept, and how to continue).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import textwrap
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from app.unused import check_used
from app.verbs import GROUPS, LINKER, VERBS
from core import call
from core.call import load_function, run_guarded
from core.choices import list_known
from core.commands import SAFE_PATH, dies_with_its_parent
from core.files import InputError
from core.settings import (
    ENVIRONMENT,
    FROM_MAKE,
    MAKE,
    Option,
    Parsed,
    help_text,
    make_words,
    options_of,
    parse,
)
from core.stopping import report_interrupt, stoppable
from core.tracking import ROOT, commit

#: what is kept of a command that SIGINT or SIGTERM stops, where nothing else is said
KEPT = {
    "link": "nothing new is kept; give the same command again",
    "predict": "nothing new is kept; give the same command again",
    "embed": "nothing is written; give the same command again",
    "convert": "nothing is written; give the same command again",
    "evaluate": "results that are complete are kept; the same command makes the rest",
    "synonyms": "results that are complete are kept; the same command makes the rest",
    "probe": "results that are complete are kept; the same command makes the rest",
}
CHAINS = """Chains:
  dictionary                      names of the graph, longest match
  dictionary > sapbert            the same mentions, each to its nearest name by SapBERT's vectors
  NCBI/minilm > sapbert           mentions of a fine-tuned tagger (kepl finetune NCBI --model minilm)
  BC5-chem/minilm + BC5-disease/minilm > names     mentions of two taggers
  kebiolm > sapbert > genbioel    detect, find candidates, rank them again
A model is a paper (its newest run), paper/config (of its YAML in experiments/), TASK/encoder,
minilm, a folder or a hub name."""  # noqa: E501


# --- dispatch -------------------------------------------------------------------------------------


class Verb(NamedTuple):
    """A command: its function or record, and the options that plain words set, in order."""

    function: Callable[..., Any]
    positions: Sequence[str] = ()


def load_verb(verb: str) -> Callable[..., Any]:
    """The function, or the class of the record, of a command."""
    return load_function(VERBS[verb].function)


def drawn_papers() -> dict[str, Callable[..., Any]]:
    """{paper: what draws its figures}: the function `figures` of benchmarks.papers.<paper>."""
    folder = Path(__file__).parents[1] / "benchmarks" / "papers"
    names = [p.parent.name for p in sorted(folder.glob("*/__init__.py"))]
    modules = {name: importlib.import_module(f"benchmarks.papers.{name}") for name in names}
    return {name: module.figures for name, module in modules.items() if hasattr(module, "figures")}


def first_word(words: Sequence[str], name: str) -> str | None:
    """The value of a command's first option, typed as a plain word or by name."""
    for i, word in enumerate(words):
        if word.partition("=")[0] in (name.upper(), f"--{name}") and "=" in word:
            return word.partition("=")[2]
        if word == f"--{name}" and i + 1 < len(words):
            return words[i + 1]
    return words[0] if words and not words[0].startswith("--") and "=" not in words[0] else None


def resolve(verb: str, words: Sequence[str]) -> tuple[Verb, list[str], list[Option]]:
    """(the command, its words, the options that recipes of models add). Raises InputError for a
    verb that does not exist."""
    if verb not in VERBS:
        names = [*VERBS, *groups_of_commands()]
        raise InputError(f"no command {verb!r}; {list_known(verb, names)}")
    words, positions = list(words), VERBS[verb].positions
    if verb == "figures":
        papers, paper = drawn_papers(), first_word(words, "paper")
        if paper is None and "--help" in words:
            return Verb(load_verb(verb), positions), words, []
        if paper not in papers:
            raise InputError(
                f"PAPER={paper or ''}: expected a paper with figures;"
                f" {list_known(paper or '', papers)}"
            )
        return (
            Verb(papers[paper]),
            [w for w in words if w not in (paper, "--paper") and w.partition("=")[0] != "PAPER"],
            [],
        )
    if verb == "table" and "--help" not in words:
        _check_table(first_word(words, "paper"), words)
    if verb == "finetune" and _trains_linker(words):
        return Verb(load_function(LINKER), positions), words, linker_options()
    extra = []
    if verb == "finetune":
        from experiments.recipes import own_options

        extra = [Option(o.name.lower(), float | None, None, o.help) for o in own_options()]
    return Verb(load_verb(verb), positions), words, extra


def _check_table(paper: str | None, words: Sequence[str]) -> None:
    """Raise InputError, with what there is, for a paper that has no tables, and for one without a
    table's number."""
    used: dict[str, list[str]] = {}
    for file in sorted((Path(__file__).parents[1] / "benchmarks" / "papers").glob("*/table*.yaml")):
        used.setdefault(file.parent.name, []).append(file.stem.removeprefix("table"))
    if paper is not None and paper not in used:
        raise InputError(f"no tables of paper {paper!r}; {list_known(paper, used)}")
    if paper is not None and len(words) == 1:
        raise InputError(
            f"kepl table {paper}: expected the number of a table: {', '.join(used[paper])}"
        )


def _trains_linker(words: Sequence[str]) -> bool:
    """Whether `finetune` is asked for a linking task, or for --linking."""
    if any(word.partition("=")[0] in ("--linking", "LINKING") for word in words):
        return True
    task = first_word(words, "task") or ""
    if not task.endswith(("-EL", "-CDN")) and ":" not in task:
        return False  # most names: no import
    from datamodules.tasks.linking import linking_tasks

    return task in linking_tasks()


def linker_options() -> list[Option]:
    """Options of fine-tuning a linker that papers' finetune.yaml name, each a choice."""
    import yaml

    options: dict[str, Option] = {}
    for file in sorted((Path(__file__).parents[1] / "experiments").glob("*/finetune.yaml")):
        for name, group in (
            yaml.safe_load(file.read_text())["finetune"].get("options") or {}
        ).items():
            values = tuple(str(v) for v in group["values"])
            options.setdefault(
                name, Option(name.lower(), Literal[values] | None, None, group["help"])
            )  # type: ignore[valid-type]
    return list(options.values())


def arguments(verb: str, words: Sequence[str], ignored: Sequence[str] = ()) -> tuple[Verb, Parsed]:
    """The command and its arguments. Raises InputError for what it does not accept."""
    command, words, extra = resolve(verb, words)
    parsed = parse(
        command.function,
        words,
        command.positions,
        f"kepl {verb}",
        extra,
        ignored,
        partial(owners_of, verb),
    )
    check_used(verb, command.function, parsed.arguments, parsed.given)
    _check_names(verb, parsed.arguments)
    return command, parsed


def owners_of(verb: str, option: str) -> list[str]:
    """The other commands that have an option, as they are typed."""
    functions = {name: load_verb(name) for name in VERBS}
    functions["finetune (a linking task)"] = load_function(LINKER)
    return [
        f"kepl {name}"
        for name, function in functions.items()
        if name != verb and option in options_of(function)
    ]


def _check_names(verb: str, values: Mapping[str, Any]) -> None:
    """Raise InputError for a task, paper or model that there is not, before anything slow is
    imported."""
    if verb in ("finetune", "rerank", "evaluate", "cases") and values.get("task"):
        from datamodules.tasks.linking import END_TO_END, linking_task, linking_tasks
        from datamodules.tasks.prepare import find_task

        linker = verb != "finetune" or values["task"] in linking_tasks()
        if verb not in ("evaluate", "cases") or values["task"] not in END_TO_END:
            (linking_task if linker else find_task)(values["task"])
    model = values.get("model")
    if (
        verb in ("finetune", "rerank", "evaluate", "synonyms", "probe", "embed")
        and model
        and model not in ("exact", "tfidf", "translated")
    ):
        from experiments.finetuned_names import NotTrained
        from experiments.names import encoder

        if ":" in model and model.partition(":")[0] in ("sgns", "glove"):
            return
        try:
            encoder(model, values.get("ckpt"))
        except NotTrained:
            if verb != "finetune":
                raise


def format_version() -> str:
    """The version of pyproject.toml, and the checkout's commit."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return f"{project['name']} {project['version']}, commit {commit()}"


def groups_of_commands() -> list[str]:
    """The first words of commands that have several."""
    return list(dict.fromkeys(name.split()[0] for name in call.COMMANDS))


def general_help() -> str:
    """The help of `kepl`: its commands by use, their groups, and the environment."""
    lines = [str(__doc__).strip()]
    for group, commands in GROUPS.items():
        lines += ["", f"{group}:"]
        lines += [f"  {name:<12}{command.about}" for name, command in commands.items()]
    lines += ["", "groups of commands (kepl GROUP --help lists them with what each does):"]
    for group in groups_of_commands():
        listed = ", ".join(name.removeprefix(f"{group} ") for name in call.names_in(group))
        lines += textwrap.wrap(
            listed, 100, initial_indent=f"  {group:<12}", subsequent_indent=" " * 14
        )
    lines += ["", "The environment is no source of settings, except for:"]
    return "\n".join([*lines, *(f"  {name:<42}{meaning}" for name, meaning in ENVIRONMENT.items())])


def verb_help(verb: str, words: Sequence[str]) -> str:
    command, _, extra = resolve(verb, [*words, "--help"])
    more = ""
    if {"chain", "chains"} & set(options_of(command.function)):
        more += f"\n\n{CHAINS}"
    if call.names_in(verb):
        more += f"\n\nMore commands (each with its own --help):\n{call.group_help(verb)}"
    text = help_text(
        f"kepl {verb}",
        command.function.__doc__ or "",
        options_of(command.function, extra),
        command.positions,
        more,
    )
    linker = load_function(LINKER)
    if verb == "finetune" and command.function is not linker:
        text += "\n\n" + help_text(
            "kepl finetune",
            linker.__doc__ or "",
            options_of(linker, linker_options()),
            ("linking-task",),
        )
    return text


def main(words: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if words is None else words)
    ignored: Sequence[str] = ()
    if FROM_MAKE in words:
        ignored, words = (
            MAKE,
            [w for w in words if w != FROM_MAKE] + make_words(os.environ.get("MAKEFLAGS", "")),
        )
        dies_with_its_parent()
    return run_guarded(lambda words: run_command(words, ignored), words)


def run_command(words: list[str], ignored: Sequence[str]) -> int:
    """Run a command, or print its help. Returns the exit code."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(general_help())
        return 0 if words else 2
    if words == ["--version"]:
        print(format_version())
        return 0
    verb, rest = words[0], words[1:]
    group = verb if verb not in VERBS else " ".join(words[:2])
    if call.find_command(words) or call.names_in(group):
        return call.run_command(words, "kepl", ignored, partial(owners_of, group))
    if "--help" in rest or "-h" in rest:
        print(verb_help(verb, [w for w in rest if w not in ("--help", "-h")]))
        return 0
    command, parsed = arguments(verb, rest, ignored)
    more: dict[str, Any] = {"options": parsed.extra} if parsed.extra else {}
    if verb == "sweep":
        more["check_words"] = lambda words: arguments(words[0], words[1:])
    advice = KEPT.get(verb, "the same command resumes")
    with (
        stoppable() if verb in KEPT else contextlib.nullcontext(),
        report_interrupt(lambda: advice),
    ):
        return call.invoke(command.function, parsed.arguments | more)


if __name__ == "__main__":
    os.environ |= SAFE_PATH
    sys.exit(main())
