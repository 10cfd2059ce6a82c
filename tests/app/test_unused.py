"""Options that are given and not used are refused, naming where they belong."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

from app.cli import arguments, load_verb, main, owners_of
from app.unused import RULES
from app.verbs import LINKER, VERBS
from core.call import load_function
from core.files import InputError
from core.settings import Option, options_of
from core.values import is_bool, is_list
from inference.chain import Pipeline
from inference.options import USERS, LinkerOptions
from tests.fakes.graphs import graph

#: what must be given beside the option that is tried; of verbs that need nothing: nothing
NEEDED = {
    "pretrain": ["kebiolm"],
    "finetune": ["NCBI"],
    "rerank": ["NCBI-EL", "--model", "minilm"],
    "predict": ["--model", "NCBI/minilm"],
    "link": ["--graph", "g"],
    "serve": ["--graph", "g"],
    "demo": ["hpo"],
    "embed": ["--model", "minilm", "--text", "a"],
    "evaluate": ["NCBI-EL"],
    "peers": ["NCBI-E2E"],
    "compare": ["NCBI"],
    "table": ["sapbert", "3"],
    "cases": ["NCBI-EL"],
    "overlap": ["NCBI"],
    "counts": ["NCBI"],
    "synonyms": ["--model", "zh"],
    "probe": ["--model", "minilm"],
    "sweep": ["--config", "s.yaml"],
}

#: {verb: words beside which the options of a rule have no use}
WITHOUT_USE = {
    "link": [["--graph", "g", "--text", "a"]],
    "predict": [["--model", "NCBI/minilm", "--text", "a"]],
    "embed": [["--model", "minilm", "--text", "a"]],
    "evaluate": [["--gold", "g.jsonl", "--graph", "g"], ["NCBI-E2E"], ["NCBI-EL"]],
    "compare": [
        ["NCBI"],
        ["NCBI-EL"],
        ["--gold", "g.jsonl", "--graph", "g"],
    ],
    "cases": [["NCBI-EL"], ["--gold", "g.jsonl", "--graph", "g"]],
    "peers": [["NCBI-E2E"], ["--gold", "g.jsonl", "--graph", "g"]],
    "synonyms": [["--model", "sgns:char"], ["--model", "zh"]],
    "probe": [["--model", "minilm", "--graph", "hpo"]],
    "overlap": [["NCBI"]],
    "pretrain": [["kebiolm", "--rehearse", "2"]],
    "table": [["sapbert", "3"], ["kebiolm", "3"], ["kebiolm", "6"]],
}

#: values of options that are more than their type
VALUES = {
    "device": "cpu",
    "max_length": "8",
    "candidates": "all",
    "index": "exact",
    "kinds": "exact",
}


def value_of(option: Option) -> str:
    """A value that the type of an option accepts."""
    kinds = [kind for kind in (get_args(option.type) or (option.type,)) if kind is not type(None)]
    if get_origin(option.type) is Literal:
        return str(get_args(option.type)[0])
    if literal := next((kind for kind in kinds if get_origin(kind) is Literal), None):
        return str(get_args(literal)[0])
    if is_bool(option.type):
        return "yes"
    names = {getattr(kind, "__name__", str(kind)) for kind in kinds}
    if "float" in names or "ClosedUnitInterval" in names or "PositiveFloat" in names:
        return "0.5"
    if option.name in VALUES:
        return VALUES[option.name]
    if is_list(option.type):
        return "0" if "int" in str(option.type) else "disease"
    return "1" if any("int" in name.lower() for name in names) else "x"


FUNCTIONS = {name: load_verb(name) for name in VERBS}


@pytest.mark.parametrize("verb", sorted(NEEDED))
def test_an_option_of_another_verb_is_refused_and_placed(verb: str) -> None:
    present = options_of(FUNCTIONS[verb])
    if verb == "finetune":  # a linking task has options of its own
        present = present | options_of(load_function(LINKER))
    foreign = {
        name: option
        for function in FUNCTIONS.values()
        for name, option in options_of(function).items()
        if name not in present and name != "config"  # the settings' file of any command
    }
    assert len(foreign) > 20
    for name, option in foreign.items():
        word = f"--{name.replace('_', '-')}"
        with pytest.raises(InputError, match=f"no setting {word}") as error:
            arguments(verb, [*NEEDED[verb], word, value_of(option)])
        belongs = owners_of(verb, name)
        assert belongs and any(owner in str(error.value) for owner in belongs), (name, error.value)
        with pytest.raises(InputError, match=f"no setting {name.upper()}"):
            arguments(verb, [*NEEDED[verb], f"{name.upper()}={value_of(option)}"])


@pytest.mark.parametrize("words", (["graph", "merge"], ["graph", "clean"], ["data", "vocabulary"]))
def test_a_command_of_a_group_places_an_option_of_a_verb(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--beams", "7"]) == 2
    assert "no setting --beams; it belongs to kepl link" in capsys.readouterr().err


def unused(verb: str, words: list[str], name: str) -> str | None:
    """The message that refuses an option, or None where it is accepted."""
    option = options_of(FUNCTIONS[verb])[name]
    try:
        arguments(verb, [*words, f"--{name.replace('_', '-')}", value_of(option)])
    except InputError as error:
        return str(error)
    return None


@pytest.mark.parametrize("verb", sorted(RULES))
def test_each_option_of_each_rule_is_refused_where_it_has_no_use(verb: str) -> None:
    assert set(RULES) == set(WITHOUT_USE)
    for rule in RULES[verb]:
        for name in rule.options:
            if name in VERBS[verb].positions:
                continue
            said = [
                unused(verb, words, name) for words in WITHOUT_USE[verb] if f"--{name}" not in words
            ]
            expected = f"kepl {verb}: --{name.replace('_', '-')} has no use here"
            refused = [message for message in said if message and expected in message]
            assert refused, (name, said)
            assert any(rule.belongs_to in message for message in refused), (name, refused)


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("link", ["--graph", "g", "--input", "n.txt", "--output", "o.jsonl", "--workers", "2"]),
        ("evaluate", ["NCBI-EL", "--model", "minilm", "--workers", "2"]),
        ("evaluate", ["NCBI-E2E", "--chain", "dictionary > minilm", "--threshold", "0.5"]),
        ("compare", ["NCBI-EL", "--split", "dev"]),
        ("probe", ["--model", "minilm", "--limit", "5", "--seed", "1"]),
        ("predict", ["--model", "m", "--input", "n.txt", "--output", "o.jsonl"]),
        ("predict", ["--model", "m", "--task", "NCBI", "--output", "o.jsonl"]),
        # what merely finds nothing to do
        ("evaluate", ["NCBI-EL", "--mirror", "downloads"]),
        ("finetune", ["NCBI", "--mirror", "downloads"]),
    ],
)
def test_used_options_are_accepted(verb: str, words: list[str]) -> None:
    _, parsed = arguments(verb, words)
    assert parsed.given


def test_a_config_file_gives_options_too(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("workers: 2\n")
    with pytest.raises(InputError, match="--workers has no use here; it belongs to --input FILE"):
        arguments("link", ["--graph", "g", "--text", "a", "--config", str(tmp_path / "c.yaml")])


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(
        graph({"acne": "skin", "gout": "joint"}, [("acne", "near", "gout")]).save(tmp_path / "g")
    )


MODEL_OPTIONS = sorted(set(USERS) - {"kinds"})


@pytest.mark.parametrize("name", MODEL_OPTIONS)
@pytest.mark.parametrize("chain", ["dictionary", "dictionary > names"])
def test_a_dictionary_chain_has_no_use_for_options_of_models(
    folder: str, capsys: pytest.CaptureFixture[str], chain: str, name: str
) -> None:
    option = options_of(LinkerOptions)[name]
    value = value_of(option)
    words = ["link", "--graph", folder, "--text", "acne", "--chain", chain]
    word = f"--{name.replace('_', '-')}"
    assert main([*words, word, value]) == 2
    said = capsys.readouterr().err
    assert f"{word}: the chain '{chain}' has no use for it; it belongs to {USERS[name]}" in said


def test_the_options_of_all_models_are_placed() -> None:
    assert set(USERS) == {*options_of(LinkerOptions), "kinds"}


def test_python_says_the_same(folder: str) -> None:
    with pytest.raises(InputError, match="--beams: the chain 'dictionary' has no use for it"):
        Pipeline(folder, beams=7)


def test_only_used_settings_decide_whether_an_output_is_resumed(folder: str) -> None:
    settings: dict[str, Any] = Pipeline(folder).settings
    assert not set(settings) & set(options_of(LinkerOptions))
    assert settings["models"] == []
