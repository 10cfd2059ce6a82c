"""Settings of a command: the parameters of a typed function, from the command line, from `make` and
from a YAML file.

    kepl finetune NCBI --epochs 3        kepl finetune NCBI EPOCHS=3        make finetune TASK=NCBI EPOCHS=3

name the same option. A parameter that is a dataclass is replaced by its fields, so commands share
groups of options. The function must be importable without model libraries: help and errors need its
signature alone.
"""  # noqa: E501

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import textwrap
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import docstring_parser

from core.choices import list_known
from core.files import InputError
from core.reading import excerpt
from core.values import (
    TRUTH,
    describe_type,
    format_default,
    holds_numbers,
    is_bool,
    is_list,
    is_mapping,
    split_list,
    split_lists,
)
from core.yaml_files import read_yaml

FROM_MAKE = "@make"  #: the hidden word that says: the settings are those of make's command line
#: make's own names, which no command accepts
MAKE = ("PYTHON", "ACCEL", "TORCH_INDEX", "EXTRAS", "SCISPACY", "PORT", "TESTS_AT_ONCE")

#: an option as a flag; the value "--trainer.max_steps 40" of --args is none
OPTION = re.compile(r"--[A-Za-z][\w-]*(=.*)?", re.S)

#: The environment holds credentials, stores and launchers, never settings of a run.
ENVIRONMENT = {
    "KEPL_RUNS": "folder of runs, their data and the MLflow store (default: runs/ of the checkout)",
    "KEPL_TOKEN": "token that `kepl serve` asks every client for",
    "KEPL_TAGS": "set by `kepl sweep` for its runs: tags of their MLflow runs",
    "MLFLOW_TRACKING_URI, MLFLOW_TRACKING_*": "MLflow server or store, and its credentials",
    "HF_TOKEN, HF_HOME, HF_HUB_OFFLINE": "the Hugging Face hub",
    "CUDA_VISIBLE_DEVICES, OMP_NUM_THREADS": "devices and threads of a process",
    "RANK, LOCAL_RANK, WORLD_SIZE, MASTER_*": "set by torchrun",
    "SLURM_*": "set by srun",
}


NEEDED = inspect.Parameter.empty  #: the default of an option without one


class Option(NamedTuple):
    """An option of a command. heading: what the record of options that it belongs to is about."""

    name: str
    type: Any
    default: Any
    help: str
    heading: str = ""


class Parsed(NamedTuple):
    """Arguments of the function, and the options that only the recipes of models name
    (:func:`parse`, `extra`).

    given: the options that were typed, or that a file of settings has.
    """

    arguments: dict[str, Any]
    extra: dict[str, Any]
    given: frozenset[str]


# --- make -----------------------------------------------------------------------------------------


def make_words(flags: str) -> list[str]:
    """The settings NAME=value in MAKEFLAGS, as typed behind `make`.

    GNU make puts them after a word of two dashes, blanks and backslashes escaped by a backslash and
    $ doubled; no shell has read them. The last one typed comes first.
    """
    words = [
        re.sub(r"\\(.)", r"\1", word, flags=re.S).replace("$$", "$")
        for word in re.findall(r"(?:\\.|[^ \\])+", flags, re.S)
    ]
    return words[: words.index("--") : -1] if "--" in words else []


# --- parsing --------------------------------------------------------------------------------------


def groups_of(function: Callable[..., Any]) -> dict[str, type]:
    """{parameter: its dataclass} of the parameters that have several options."""
    hints = get_type_hints(function)
    return {
        name: hints[name]
        for name in inspect.signature(function).parameters
        if name in hints and isinstance(hints[name], type) and dataclasses.is_dataclass(hints[name])
    }


def given_options(group: Any) -> dict[str, Any]:
    """The options of a group (a dataclass) that were given: on a command line, or in Python with
    another value than the default."""
    values = {field.name: getattr(group, field.name) for field in dataclasses.fields(group)}
    names = getattr(group, "_given", None)
    if names is None:
        defaults = {field.name: field.default for field in dataclasses.fields(group)}
        names = {name for name, value in values.items() if value != defaults[name]}
    return {name: value for name, value in values.items() if name in names}


def options_of(function: Callable[..., Any], extra: Sequence[Option] = ()) -> dict[str, Option]:
    """Every option of a command, by name, with its help from the docstrings' Args."""
    return _read_options(function) | {option.name: option for option in extra}


@cache  # a wrong option is looked for in all commands
def _read_options(function: Callable[..., Any]) -> dict[str, Option]:
    groups = groups_of(function)
    options: dict[str, Option] = {}
    owners: list[Callable[..., Any]] = [function, *groups.values()]
    for owner in owners:
        described = reversed(owner.__mro__) if isinstance(owner, type) else [owner]
        texts: dict[str, str] = {}
        for part in described:
            arguments = docstring_parser.parse(inspect.getdoc(part) or "").params
            texts |= {argument.arg_name: argument.description or "" for argument in arguments}
        hints = get_type_hints(owner)
        about = inspect.getdoc(owner) or ""
        heading = (
            "" if owner is function else " ".join(about.split()).partition(". ")[0].rstrip(".")
        )
        for name, parameter in inspect.signature(owner).parameters.items():
            if owner is function and (name in groups or name in NO_OPTIONS):
                continue
            default = parameter.default
            help = " ".join(texts.get(name, "").split())
            options[name] = Option(name, hints[name], default, help, heading)
    return options


def with_options(
    function: Callable[..., Any], about: str, options: Sequence[Option]
) -> Callable[..., Any]:
    """`function`, which accepts any keyword, as a command with these options."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(option.name, keyword, default=option.default, annotation=option.type)
        for option in options
    ]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {option.name: option.type for option in options}
    lines = [f"    {option.name}: {option.help}" for option in options]
    function.__doc__ = "\n".join([about, "", "Args:", *lines])
    return function


def _typed_as(form: str, name: str) -> str:
    """An option's name in the form that its user types: EPOCHS or --epochs."""
    return name.upper() if form == "make" else "--" + name.replace("_", "-")


def collect(
    words: Sequence[str],
    options: Mapping[str, Option],
    positions: Sequence[str],
    what: str,
    owners: Callable[[str], Sequence[str]] = lambda name: (),
) -> dict[str, tuple[str, Any]]:
    """{option: (as it was typed, its text or texts)} of command-line words. Raises InputError for a
    word that means nothing.

    positions: the options that plain words set, in order.  what: the command, for messages.
    owners: the other commands that have an option.
    """
    values: dict[str, tuple[str, Any]] = {}
    waiting, left = deque(positions), deque(words)
    while left:
        word = left.popleft()
        typed = split_setting(word)
        if typed is not None:
            form, name, value = typed
            key = name.lower().replace("-", "_")
            if key not in options or (form == "flag" and name != name.lower()):
                raise InputError(explain_unknown(form, name, options, what, owners(key)))
            if form == "make" and not value:
                continue  # NAME= is a setting that was not given
            content = take_value(word, options[key], value, left)
            if key == "config" and key in values and is_list(options[key].type):
                content = [*values[key][1], *content]  # files of settings are laid over each other
            values[key] = (_typed_as(form, key), content)
        elif waiting:
            key = waiting.popleft()
            content = [word, *take_words(left)] if is_list(options[key].type) else word
            values[key] = (key.upper(), content)
        else:
            raise InputError(
                f"{what}: unexpected {word!r}; options are typed as --name value or NAME=value"
            )
    return values


def split_setting(word: str) -> tuple[str, str, str | None] | None:
    """(form, name, value) of a word such as NAME=value, --name=value or --name (no value); None of
    other words."""
    if setting := re.match(r"([A-Z][A-Z0-9_]*)=(.*)", word, re.S):
        return "make", setting[1], setting[2]
    if not word.startswith("--"):
        return None
    name, has_value, value = word[2:].partition("=")
    return "flag", name, value if has_value else None


def take_words(left: deque[str]) -> Iterator[str]:
    """The words up to the next option, taken away."""
    while left and not is_option(left[0]):
        yield left.popleft()


def take_value(word: str, option: Option, value: str | None, left: deque[str]) -> Any:
    """The text or texts of an option: `value`, or where it has none the words after it, taken away.
    Raises InputError where there are none."""
    if value is not None:
        return split_list(value, option.type) if is_list(option.type) else value
    if option.name == "config" and is_list(option.type):
        return [left.popleft()] if left else []
    if is_list(option.type):
        words = list(take_words(left))
        return split_lists(words, option.type) if holds_numbers(option.type) else words
    if is_bool(option.type):
        return left.popleft() if left and left[0].lower() in TRUTH else "true"
    if not left or OPTION.fullmatch(left[0]):
        raise InputError(f"{word}: expected a value: {describe_type(option.type)}")
    return left.popleft()


def is_option(word: str) -> bool:
    """Whether a word of a command line begins an option: --name, or NAME=value."""
    return bool(OPTION.fullmatch(word) or re.match(r"[A-Z][A-Z0-9_]*=", word))


def explain_unknown(
    form: str,
    name: str,
    options: Mapping[str, Option],
    what: str,
    owners: Sequence[str] = (),
) -> str:
    """The message for an option that a command does not have: the commands that have it (owners),
    its new name, or the nearest one."""
    key = name.lower().replace("-", "_")
    if key in RENAMED and RENAMED[key] in options:
        return f"{_typed_as(form, key)}: this setting is now called {_typed_as(form, RENAMED[key])}"
    names = [_typed_as(form, option) for option in options]
    typed = _typed_as(form, key) if form == "make" else f"--{name}"
    if owners:
        return (
            f"{what}: no setting {typed}; it belongs to {', '.join(owners)}. Choose from:"
            f" {', '.join(names)}"
        )
    return f"{what}: no setting {typed}; {list_known(typed, names)}"


#: Parameters that are no options of the command line: those of recipes, and what checks the words
#: of other commands.
NO_OPTIONS = ("options", "check_words")
#: Names of before, refused with their present ones.
RENAMED = {
    "arms": "variants",
    "linked": "linked_text",
    "prompts": "templates",
    "special": "special_tokens",
}


def help_text(
    what: str, about: str, options: Mapping[str, Option], positions: Sequence[str], more: str = ""
) -> str:
    """A command's help: each option with its meaning, its values and its default."""
    words = "".join(f" [{p.upper()}]" for p in positions)
    about, _, examples = inspect.cleandoc(about).partition("\nExamples:")
    about = about.partition("\nArgs:")[0].strip()
    examples = f"Examples:{examples.rstrip()}\n" if examples else ""
    lines = [f"usage: {what}{words} [--name value | NAME=value ...]", "", about, "", "settings:"]
    heading = ""
    for option in options.values():
        if option.heading != heading:
            heading = option.heading
            lines += ["", f"{heading}:" if heading else "of the model:"]
        head = f"  --{option.name.replace('_', '-')}"
        note = (
            f"{option.help.rstrip('.')}. Accepts"
            f" {describe_type(option.type)}{format_default(option.default)}."
        )
        lines += textwrap.wrap(
            note, 118, initial_indent=f"{head:<22}  ", subsequent_indent=" " * 24
        )
    lines += ["", "of every command:"]
    lines.append(
        f"{'  --config':<22}  YAML file of settings, name: value; those of the command line replace"
        " its own."
    )
    lines.append(f"{'  --verbose, --quiet':<22}  Say more, or only errors, on standard error.")
    more = (examples + more).strip()
    return "\n".join([*lines, *(["", more] if more else [])])


def parse(
    function: Callable[..., Any],
    words: Sequence[str],
    positions: Sequence[str] = (),
    what: str = "",
    extra: Sequence[Option] = (),
    ignored: Sequence[str] = (),
    owners: Callable[[str], Sequence[str]] = lambda name: (),
) -> Parsed:
    """The arguments of `function` that the words of a command line mean.

    positions: options that plain words set, in order.  extra: options that no signature has, which
        recipes of models name.
    ignored: names of settings that are left out where the command has no such option (MAKE).
    owners: the other commands that have an option, for the error about it.
    Raises InputError for an unknown option, a value of another type, and a missing option that has
    no default.
    """
    options = options_of(function, extra)
    allowed = dict(options)
    if "config" not in options:  # the sweep's own file is named so
        allowed["config"] = Option("config", Sequence[Path], None, "")
    unused = {name for name in ignored if name.lower() not in options}
    words = [word for word in words if word.partition("=")[0] not in unused]
    typed = collect(words, allowed, positions, what, owners)
    if "config" in typed and "config" not in options:
        typed = read_settings(typed.pop("config")[1], options, owners) | typed
    values = convert(typed, options, allowed, what)
    for name, option in options.items():
        if option.default is inspect.Parameter.empty and values.get(name) is None:
            raise InputError(f"{what}: {name.upper()} is missing: {option.help}")
    converted = {
        option.name: values[option.name] for option in extra if values.get(option.name) is not None
    }
    return Parsed(grouped_arguments(function, values, typed), converted, frozenset(typed))


def read_settings(
    files: Sequence[str | Path],
    options: Mapping[str, Option],
    owners: Callable[[str], Sequence[str]] = lambda name: (),
) -> dict[str, tuple[str, Any]]:
    """{option: (file and name, text or texts)} of YAML files of settings, a later one over an
    earlier one. Raises InputError for a file that is none, and for a name that is no option."""
    settings: dict[str, tuple[str, Any]] = {}
    for file in files:
        for name, value in read_yaml(file, "settings, as name: value", words=True).items():
            key = str(name).replace("-", "_")
            if key not in options:
                raise InputError(
                    explain_unknown("flag", str(name), options, str(file), owners(key))
                )
            if value in ("", "~", "null"):
                continue  # as NAME= on a command line
            form = f"{file}: {name}"
            kind = options[key].type
            parts = value if isinstance(value, list) else [value]
            nested = any(isinstance(item, dict | list) for item in parts)
            if nested and is_mapping(kind):
                settings[key] = form, json.dumps(value)
                continue
            if nested or (isinstance(value, list) and not is_list(kind)):
                raise InputError(_wrong(form, excerpt(value), options[key]))
            if holds_numbers(kind):
                settings[key] = form, split_lists(parts, kind)
            else:
                settings[key] = form, parts if is_list(kind) else value
    return settings


def convert(
    typed: Mapping[str, tuple[str, Any]],
    options: Mapping[str, Option],
    allowed: Mapping[str, Option],
    what: str,
) -> dict[str, Any]:
    """{option: its value} of what was typed. Raises InputError for a value of another type."""
    from jsonargparse import ArgumentError, ArgumentParser

    parser = ArgumentParser(exit_on_error=False, default_env=False)
    for option in options.values():
        default = None if option.default is inspect.Parameter.empty else option.default
        kind = option.type if default is not None else option.type | None
        parser.add_argument(f"--{option.name}", type=kind, default=default)
    arguments = []
    for name, (form, content) in typed.items():
        if is_bool(allowed[name].type):
            if str(content).lower() not in TRUTH:
                raise InputError(_wrong(form, content, allowed[name]))
            content = str(TRUTH[str(content).lower()]).lower()
        text = json.dumps(content) if isinstance(content, list) else content
        arguments.append(f"--{name}={text}")
    try:
        values: dict[str, Any] = parser.parse_args(arguments).as_dict()
    except ArgumentError as error:
        raise InputError(explain(str(error), typed, allowed, what)) from error
    return values


def explain(
    error: str,
    typed: Mapping[str, tuple[str, Any]],
    options: Mapping[str, Option],
    what: str,
) -> str:
    """jsonargparse's error in one line: the option as it was typed."""
    patterns = (r'[Kk]ey "(\w+)"', r"argument --(\w+)", r"'(\w+)'")
    named = (re.search(pattern, error) for pattern in patterns)
    name = next((match[1] for match in named if match), "")
    if name in typed:
        form, content = typed[name]
        return _wrong(form, content, options[name])
    return f"{what}: {' '.join(error.split())}"


def grouped_arguments(
    function: Callable[..., Any], values: Mapping[str, Any], typed: Collection[str]
) -> dict[str, Any]:
    """A function's arguments of option values, those of its groups of options put together. A group
    knows which of its own were given (:func:`given_options`)."""
    groups = groups_of(function)
    arguments: dict[str, Any] = {}
    for name, kind in groups.items():
        own_names = {f.name for f in dataclasses.fields(kind)} & set(typed)
        arguments[name] = kind(**{option: values[option] for option in own_names})
        object.__setattr__(arguments[name], "_given", frozenset(own_names))
    for name in inspect.signature(function).parameters:
        if name in values and name not in groups:
            arguments[name] = values[name]
    return arguments


def _wrong(form: str, content: Any, option: Option) -> str:
    shown_value = " ".join(map(str, content)) if isinstance(content, list) else content
    separator = "=" if form.isupper() else " "  # NAME=value, --name value, file: name value
    return f"{form}{separator}{shown_value}: expected {describe_type(option.type)}"
