"""Settings of typed commands: words of the command line, of make, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.choices import list_known, nearest
from core.files import InputError
from core.settings import MAKE, Option, Parsed, make_words, options_of, parse
from core.values import describe_type, several


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Options that commands share.

    Args:
        beams: Beams of the search.
        rule: Rule of its end.
    """

    beams: int = 5
    rule: Literal["best", "first"] | None = None


def command(
    task: str,
    model: str = "minilm",
    epochs: int | None = None,
    rate: float = 0.1,
    folds: Sequence[int] = (),
    mirror: Sequence[Path] = (),
    fresh: bool = False,
    out: Path | None = None,
    options: dict[str, Any] | None = None,
    *,
    shared: Shared,
) -> None:
    """A command.

    Args:
        task: The task.
        model: The model,
            on two lines.
        epochs: Passes.
        rate: Learning rate.
        folds: Folds.
        mirror: Folders.
        fresh: Again.
        out: Folder.
    """


def read(*words: str, **more: Any) -> Parsed:
    return parse(command, words, ["task"], "kepl x", **more)


def test_flags_and_settings_are_the_same_options() -> None:
    typed = read(
        "NCBI", "--epochs", "3", "--beams=7", "--fresh", "--mirror", "a", "b", "--out", "x y"
    )
    made = read("TASK=NCBI", "EPOCHS=3", "BEAMS=7", "FRESH=1", "MIRROR=a b", "OUT=x y")
    assert typed == made
    assert typed.arguments == {
        "task": "NCBI",
        "model": "minilm",
        "epochs": 3,
        "rate": 0.1,
        "folds": (),
        "mirror": [Path("a"), Path("b")],
        "fresh": True,
        "out": Path("x y"),
        "shared": Shared(beams=7),
    }


def test_values_keep_their_type_and_every_sign() -> None:
    odd = 'a $HOME/b "c"; `id` x\\y a$(b'
    assert read(f"TASK={odd}", "MODEL=1e-4").arguments["task"] == odd
    assert (
        read("t", "MODEL=1e-4").arguments["model"] == "1e-4"
        and read("t", "RATE=1e-4").arguments["rate"] == 1e-4
    )
    assert (
        read("t", "FOLDS=0,2").arguments["folds"]
        == [0, 2]
        == read("t", "--folds", "0", "2").arguments["folds"]
    )
    assert (
        read("t", "FRESH=no").arguments["fresh"] is False
        and read("t", "--fresh", "BEAMS=1").arguments["fresh"] is True
    )
    assert read("t", "MIRROR=").arguments["mirror"] == ()  # make's way of not giving a setting


def test_a_path_with_blanks_that_exists_is_one_word(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    assert several(str(tmp_path / "a b")) == [str(tmp_path / "a b")]
    assert several(r"'a b' c\d") == ["a b", r"c\d"]
    with pytest.raises(InputError, match="quote a word with blanks"):
        several("o'brien")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["t", "EPOCHES=3"], "kepl x: no setting EPOCHES; did you mean EPOCHS?"),
        (["t", "--epoches", "3"], "no setting --epoches; did you mean --epochs?"),
        (["t", "EPOCHS=three"], "EPOCHS=three: expected a whole number"),
        (["t", "--epochs", "three"], "--epochs three: expected a whole number"),
        (["t", "--epochs"], "--epochs: expected a value: a whole number"),
        (["t", "RATE=x"], "RATE=x: expected a number"),
        (["t", "RULE=last"], "RULE=last: expected one of best, first"),
        (["t", "FRESH=maybe"], "FRESH=maybe: expected yes or no"),
        (["t", "FOLDS=a"], "FOLDS=a: expected whole numbers, with commas"),
        (["t", "u"], "unexpected 'u'"),
        ([], "kepl x: TASK is missing: The task."),
    ],
)
def test_what_is_refused_is_named_as_it_was_typed(words: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(*words)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_options_of_recipes_join_the_command() -> None:
    extra = [Option("hits", float | None, None, "Share.")]
    assert (
        read("t", "HITS=0.5", extra=extra)
        == Parsed(read("t").arguments, {"hits": 0.5}, frozenset({"task", "hits"}))
        and read("t", extra=extra).extra == {}
    )
    with pytest.raises(InputError, match="no setting HITS"):
        read("t", "HITS=0.5")


@pytest.mark.parametrize("value", ["--trainer.max_steps 40", "--model.init_args.lr=0.1", "-1"])
def test_a_value_may_begin_with_dashes(value: str) -> None:
    def trains(args: str = "") -> None:
        """Train.

        Args:
            args: Further words.
        """

    for words in (["--args", value], [f"--args={value}"], [f"ARGS={value}"]):
        assert parse(trains, words, what="t").arguments == {"args": value}
    with pytest.raises(InputError, match="--args: expected a value"):
        parse(trains, ["--args", "--trainer"], what="t")


def test_makes_own_names_are_left_out_unless_the_command_has_them() -> None:
    assert read("t", "ACCEL=gpu", "PORT=1", ignored=MAKE) == read("t")
    with pytest.raises(InputError, match="no setting ACCEL"):
        read("t", "ACCEL=gpu")


def test_help_of_every_option_comes_from_the_docstrings() -> None:
    found = options_of(command)
    assert (
        found["model"].help == "The model, on two lines."
        and found["beams"].help == "Beams of the search."
    )
    assert found["model"].heading == "" and found["rule"].heading == "Options that commands share"
    assert (
        describe_type(found["mirror"].type) == "one or several words"
        and "shared" not in found
        and "options" not in found
    )


def escaped(value: str) -> str:
    """A value as GNU make writes it into MAKEFLAGS."""
    return "".join("\\" + c if c in " \\" else "$$" if c == "$" else c for c in value)


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30),
        min_size=1,
        max_size=4,
    )
)
def test_make_words_are_what_was_typed(values: list[str]) -> None:
    settings = [f"N{i}={value}" for i, value in enumerate(values)]
    for options in ("", "s", " -j2 --jobserver-auth=3,4 --no-print-directory"):
        flags = f"{options} -- {' '.join(escaped(s) for s in reversed(settings))}"
        assert make_words(flags) == settings
    assert make_words("s") == make_words("") == []


def test_make_words_by_hand() -> None:
    """Dollars are doubled, blanks and backslashes escaped; the last word that was typed comes
    first."""
    assert make_words("s -- B=$$HOME/$$$$\\ x A=one\\\\two") == [r"A=one\two", "B=$HOME/$$ x"]


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("seed", "did you mean seeds? "),  # cut short
        ("mod", "did you mean model? "),  # the shortest of what begins so
        ("mo", ""),  # two letters are no word
        ("EPOHCS", "did you mean epochs? "),  # the case is no part of a slip
        ("zebra", ""),
    ],
)
def test_the_nearest_word(word: str, hint: str) -> None:
    assert nearest(word, ["model_folder", "model", "seeds", "epochs", "Moon"]) == hint


@pytest.mark.parametrize(
    ("word", "meant"),
    [("true", True), ("YES", True), ("1", True), ("False", False), ("no", False), ("0", False)],
)
def test_words_for_yes_and_no(word: str, meant: bool) -> None:
    assert read("t", f"FRESH={word}").arguments["fresh"] is meant


def test_a_word_that_is_not_known_is_told_what_is() -> None:
    known = ["disease", "gene"]
    assert list_known("gnee", known) == "did you mean gene? Choose from: disease, gene"
    assert list_known("x", iter(known)) == "choose from: disease, gene"
    assert list_known("x", []) == "there is none"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("count: 1\ncount: 2\n", "s.yaml: not YAML (the key 'count' is there twice, in lines 1"),
        ("- count\n", "s.yaml: expected settings, as name: value, got ['count']"),
        ("", "s.yaml: expected settings, as name: value, got nothing"),
        ("count: [1]\n", "s.yaml: count ['1']: expected a whole number"),
        ("names: {a: b}\n", "s.yaml: names {'a': 'b'}: expected"),
        ("cuont: 1\n", "s.yaml: no setting --cuont; did you mean --count? Choose from: --names"),
        ("count: many\n", "s.yaml: count many: expected a whole number"),
        ("count: [1\n", "s.yaml: not YAML (while parsing"),
    ],
)
def test_a_file_of_settings_is_one_or_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(text)
    with pytest.raises(InputError, match=re.escape(message)):
        parse(take_names, ["--config", "s.yaml"], what="take")
    for missing, why in (("no.yaml", "No such file"), (".", "Is a directory")):
        with pytest.raises(InputError, match=f"{re.escape(missing)}: {why}.* Expected a YAML"):
            parse(take_names, ["--config", missing], what="take")


def test_settings_of_a_file_are_those_that_are_typed(tmp_path: Path) -> None:
    """A list may be one word, a dash stands for an underscore, nothing is a setting not given."""
    file = tmp_path / "s.yaml"
    file.write_text("names: one\nis-loud: yes\ncount:\n")
    found = parse(take_names, ["--config", str(file)], what="take")
    assert found.arguments == {"names": ["one"], "is_loud": True, "count": 3}
    file.write_text("names: [no, 007, 1e-5, 2024-01-02, 'null']\ncount: 10\n")
    found = parse(take_names, ["--config", str(file)], what="take")
    assert found.arguments["names"] == ["no", "007", "1e-5", "2024-01-02", "null"]
    assert found.arguments["count"] == 10
    file.write_text("names: one\nis-loud: true\n")
    found = parse(take_names, ["--config", str(file)], what="take")
    assert found.given == {"names", "is_loud"}
    found = parse(take_names, ["--config", str(file), "--names", "two", "three"], what="take")
    assert found.arguments["names"] == ["two", "three"]


def take_names(names: Sequence[str] = (), is_loud: bool = False, count: int = 3) -> None:
    """Take names.

    Args:
        names: Names.
        is_loud: Whether it is.
        count: How many.
    """
