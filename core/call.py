"""Commands as typed functions or records, named by their words or as `package.module:function`.

    kepl graph merge A B --out C
    python -P -m core.call graph merge A B --out C              the same, as a child of a pipeline
    python -P -m core.call kg.build.merge:merge A B --out C     the same, by the function's name

The parameters of the function, or the fields of the record, are the options (core.settings), its
docstring is their help.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from core.artifact import format_counts
from core.choices import list_known
from core.files import InputError, explain_error
from core.logs import set_up
from core.settings import help_text, is_option, options_of, parse
from core.stopping import format_stop
from core.tracking import ROOT, note_command


class Command(NamedTuple):
    """A command.

    function: package.module:function, or the class of a record that has `run`.
    about: one line of help, which does not import the function.
    positions: the options that plain words set, in order.
    choices: package.module:function that lists what the first word may be; `function` then returns
        the function of that word.
    """

    function: str
    about: str
    positions: Sequence[str] = ()
    choices: str = ""


COMMANDS = {
    "graph build": Command(
        "kg.build.source:source_command",
        "build a graph from a source (hpo, umls, mesh, ...)",
        ("path",),
        "kg.build.source:source_names",
    ),
    "graph find": Command(
        "kg.build.lookup:find_name", "the entities of a name", ("folder", "name")
    ),
    "graph show": Command(
        "kg.build.lookup:show_entity", "what a graph says of an entity", ("folder", "entity")
    ),
    "graph add": Command(
        "kg.build.edit:add_names", "add names to the entities of a graph", ("graph", "names")
    ),
    "graph stop": Command(
        "kg.build.edit:stop_names", "take names out of a graph", ("graph", "words")
    ),
    "graph info": Command(
        "benchmarks.graph_counts:GraphCounts", "count what is in a graph", ("folder",)
    ),
    "graph merge": Command(
        "kg.build.merge:merge", "merge graphs by names and aliases", ("graphs",)
    ),
    "graph refine": Command(
        "kg.build.refine:refine", "prepare a Chinese graph for training", ("graph",)
    ),
    "graph shuffle": Command(
        "kg.build.shuffle:shuffle_graph",
        "permute a graph's triples: a control of what they say",
        ("graph",),
    ),
    "graph texts": Command(
        "kg.build.texts:write_texts", "write a source's running text", ("source", "path")
    ),
    "graph clean": Command("kg.build.cleaning:clean_files", "clean text of the web, in segments"),
    "graph thesaurus": Command(
        "kg.build.thesaurus:build_thesaurus", "collect the names of each entity that mean the same"
    ),
    "graph segment build": Command(
        "kg.build.segment.mining:build_segmenter", "mine phrases, and cut long entity names"
    ),
    "graph segment show": Command(
        "kg.build.segment.evaluation:show_pieces", "cut names, step by step", ("name",)
    ),
    "graph segment score": Command(
        "kg.build.segment.evaluation:score_pieces", "compare with names cut by hand"
    ),
    "graph embed": Command(
        "benchmarks.embeddings:Embedding",
        "train a graph embedding (TransE, TransR)",
        ("config",),
    ),
    "graph neighbours": Command(
        "kg.pagerank.table:rank", "rank the neighbours of every entity by PageRank"
    ),
    "data link": Command("kg.linking.run:link_corpus", "link a corpus with a graph, in parts"),
    "data corpus": Command(
        "datamodules.corpus:build_corpus", "turn linked text into a corpus of token ids"
    ),
    "data fetch": Command(
        "datamodules.sources:fetch_dataset",
        "fetch and verify the files of a data set",
        ("dataset",),
    ),
    "data held-out": Command(
        "datamodules.linking.layperson:write_held_out",
        "write the names of HPO-EL's dev and test, which no training may see",
        ("out",),
    ),
    "data medlama": Command(
        "datamodules.probing:medlama", "make fill-in queries of MedLAMA's files", ("path",)
    ),
    "data queries": Command(
        "datamodules.probing:build_queries", "make fill-in queries of a graph's triples"
    ),
    "data synonyms build": Command(
        "datamodules.synonyms:build_samples", "make samples of synonyms, of a graph's equivalences"
    ),
    "data synonyms drop": Command(
        "datamodules.synonyms:drop", "drop the sentences that name both sides of a sample"
    ),
    "data vocabulary": Command(
        "datamodules.vocabulary:build_vocabulary", "make a Chinese BERT tokenizer of graph and text"
    ),
    "data vectors": Command(
        "experiments.vectors:write_vectors", "write vectors of entities: means over their mentions"
    ),
    "import released": Command(
        "experiments.released:released_command",
        "make an export of a paper's released checkpoint",
        ("source",),
        "experiments.released:released_papers",
    ),
    "import model": Command(
        "experiments.names:copy_encoder",
        "copy the encoder that a name means to a folder",
        ("name",),
    ),
    "measure speed": Command(
        "benchmarks.perf.speed:speed_command",
        "compare our speed or memory with a plain reference",
        (),
        "benchmarks.perf.speed:speed_names",
    ),
    "measure scale": Command(
        "benchmarks.perf.scale:print_scale", "time, memory and files, over the size of the data"
    ),
    "measure engines": Command(
        "benchmarks.perf.scale.engines:print_engines",
        "linking in processes, and on nodes that are lost",
    ),
    "measure search": Command(
        "benchmarks.perf.scale.search:print_search", "backends of the search among names"
    ),
    "measure gpu": Command("benchmarks.perf.gpu:check_gpu", "tests and speed on a CUDA device"),
    "measure forms": Command(
        "benchmarks.linking.forms:print_scores_of_forms", "what forms of names are worth on HPO"
    ),
    "measure sentences": Command(
        "benchmarks.linking.forms:print_scores_of_splitters",
        "splitters of sentences on DDI",
        ("archive",),
    ),
}


def paper_commands() -> dict[str, Command]:
    """The commands of papers alone: experiments/<paper>/commands.yaml, {words: {function, about,
    positions}}."""
    commands: dict[str, Command] = {}
    for file in sorted((ROOT / "experiments").glob("*/commands.yaml")):
        listed = yaml.safe_load(file.read_text("utf-8"))
        commands |= {name: Command(**fields) for name, fields in listed.items()}
    return commands


COMMANDS |= paper_commands()
HELP = ("-h", "--help")
#: words of torch, and of the loader
NO_MEMORY = ("can't allocate memory", "annot allocate memory", "failed to map segment")


def command_words(run: str, options: Sequence[str]) -> list[str]:
    """What follows `python` for a command, a package.module:function, or a module of its own such
    as LightningCLI's."""
    if re.fullmatch(r"\w+(\.\w+)+", run):
        return ["-m", run, *options]
    return ["-m", "core.call", *run.split(), *options]


def option_words(arguments: Mapping[str, Any]) -> list[str]:
    """Arguments as words of a command line. An empty list, and None, is an option not given."""
    words: list[str] = []
    for name, value in arguments.items():
        if value is None or value == []:
            continue
        if name == "config":
            words += [word for file in value for word in ("--config", str(file))]
        elif isinstance(value, list):
            texts = [str(item) for item in value]
            odd = any(is_option(text) for text in texts)  # a file of the name --x or A=1
            words += [f"--{name}={shlex.join(texts)}"] if odd else [f"--{name}", *texts]
        else:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            words += [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]
    return words


def names_in(group: str) -> list[str]:
    """The commands whose names begin with the words of `group`."""
    return [name for name in COMMANDS if name.startswith(f"{group} ")]


def group_help(group: str) -> str:
    """The commands of a group, a line each."""
    return "\n".join(f"  {name:<24}{COMMANDS[name].about}" for name in names_in(group))


def find_command(words: Sequence[str]) -> tuple[str, Command, list[str]] | None:
    """(name, command, the words behind it); None where the words name no command."""
    for count in (3, 2):
        name = " ".join(words[:count])
        if name in COMMANDS:
            return name, COMMANDS[name], list(words[count:])
    if words and ":" in words[0]:
        named = [command for command in COMMANDS.values() if command.function == words[0]]
        return words[0], named[0] if named else Command(words[0], ""), list(words[1:])
    return None


def load_function(name: str) -> Callable[..., Any]:
    """The function package.module:function. Raises InputError for one that does not exist."""
    module, _, leaf = name.partition(":")
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), leaf)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # a library that the module needs
        raise InputError(f"{name}: no module {error.name!r}; expected module:function") from error
    except AttributeError as error:
        raise InputError(f"{name}: no function {leaf!r} in {module}") from error
    return function


def run_command(
    words: Sequence[str],
    what: str = "kepl",
    ignored: Sequence[str] = (),
    owners: Callable[[str], Sequence[str]] = lambda name: (),
) -> int:
    """Run the command that the words name, or print its help. Returns the exit code.

    what: the program, for messages.  ignored: names of settings that are left out (settings.MAKE).
    owners: other commands that have an option, for the error about it.
    Raises InputError for words that name no command.
    """
    match = find_command(words)
    if match is None:
        return _print_group(words, what)
    name, command, rest = match
    what, function = f"{what} {name}", load_function(command.function)
    if command.choices:
        if not rest or rest[0] in HELP:
            choices = load_function(command.choices)()
            print(f"{inspect.getdoc(function)}\n\nChoose from: {', '.join(choices)}.")
            print(f"Options of one: {what} {choices[0]} --help")
            return 0 if rest else 2
        what, function, rest = f"{what} {rest[0]}", function(rest[0]), rest[1:]
    if set(HELP) & set(rest):
        print(help_text(what, function.__doc__ or "", options_of(function), command.positions))
        return 0
    arguments = parse(function, rest, command.positions, what, (), ignored, owners).arguments
    return invoke(function, arguments)


def invoke(function: Callable[..., Any], arguments: Mapping[str, Any]) -> int:
    """Call a command, or make its record and run it, and print what it returns. Returns the exit
    code.

    A record has `run`, and `show` where what it returns is printed in words of its own; of an
    object with a `report` that is printed.
    """
    if isinstance(function, type):
        record = function(**arguments)
        result = record.run()
        if hasattr(record, "show"):
            result = record.show(result)
    else:
        result = function(**arguments)
    result = getattr(result, "report", result)
    if isinstance(result, str):
        print(result)
    if isinstance(result, Path):
        print(format_counts(result))
    return result if isinstance(result, int) else 0


def _print_group(words: Sequence[str], what: str) -> int:
    group = " ".join(word for word in words[:2] if word not in HELP)
    if names_in(group) and set(HELP) & set(words):
        print(f"usage: {what} COMMAND [--name value | NAME=value ...]\n\n{group_help(group)}")
        return 0
    raise InputError(f"no command {group!r}; {list_known(group, COMMANDS)}")


def run_guarded(run: Callable[[list[str]], int], words: Sequence[str]) -> int:
    """Run a program on its words; a failure that is not an internal error becomes one line on
    standard error. Returns the exit code."""
    open_standard_streams()
    set_up("--verbose" in words, "--quiet" in words)
    words = [word for word in words if word not in ("--verbose", "--quiet")]
    try:
        check_words_are_text(words)
        note_command(words)
        code = run(words)
        sys.stdout.flush()  # here, where a failure is explained
        return code
    except BrokenPipeError:
        drop_output()
        return 1
    except KeyboardInterrupt as error:
        line, code = format_stop(error)
        print(line, file=sys.stderr)
        drop_output()
        return code
    except Exception as error:
        message = failure_message(error)
        if message is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        if isinstance(error, OSError):
            drop_output()
        return 2


def open_standard_streams() -> None:
    """Open what is closed of standard input, output and error, so that no other file has their
    numbers.

    Reading such an input finds nothing to read; writing such an output fails, instead of being lost
    in silence.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  for as long as the process lasts
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def drop_output() -> None:
    """Send standard output nowhere: Python would report a second time, at its end, that it cannot
    be written."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def check_words_are_text(words: Sequence[str]) -> None:
    """Raise InputError for a word that is not UTF-8, such as a file's name: settings and manifests
    hold such words."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"{word}: not UTF-8. Give another name; rename the file if it is one."
            ) from error


def failure_message(error: BaseException) -> str | None:
    """One line for a failure of the input or of the machine; None for an internal error."""
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, MemoryError) or any(words in str(error) for words in NO_MEMORY):
        return (
            "not enough memory. Use fewer workers or smaller batches, or a machine with more"
            " memory; the same command resumes."
        )
    if isinstance(error, OSError) and error.errno is not None:
        return str(explain_error(error, Path(os.fsdecode(error.filename or "output"))))
    return None


def main(words: Sequence[str] | None = None) -> int:
    """Run a command as a process of its own, such as a stage of a pipeline."""
    return run_guarded(run_command, sys.argv[1:] if words is None else words)


if __name__ == "__main__":
    sys.exit(main())
