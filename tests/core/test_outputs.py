"""Outputs of commands: what is refused, what is complete, links and devices."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from core.files import InputError, atomic_write
from core.json_files import read_object, write_json
from core.outputs import MANIFEST, RECORD, Output, check_ending, claimed_files


def write(
    path: Path, content: str, settings: dict[str, Any] | None = None, fresh: bool = False
) -> dict[str, Any] | None:
    """What an output says of itself; written where it is not complete."""
    own, output = settings or {"a": 1}, Output(path)
    finished = output.read_finished(own, fresh)
    if finished is None:
        with output.atomic_write(own, {"rows": 1}) as handle:
            handle.write(content)
    return finished


def test_an_input_and_what_is_in_a_folder_of_inputs_are_refused(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    (notes / "deep").mkdir(parents=True)
    file = tmp_path / "a.txt"
    file.write_text("a")
    (tmp_path / "link.txt").symlink_to(file)
    os.link(file, tmp_path / "hard.txt")
    (tmp_path / "linked").symlink_to(notes)
    (notes / "away.txt").symlink_to(tmp_path / "new.txt")
    for one in (file, tmp_path / "link.txt", tmp_path / "hard.txt", notes / ".." / "a.txt"):
        with pytest.raises(InputError, match="an input of the command"):
            Output(one, [file])
    places = (
        "notes/o.jsonl",
        "notes/deep/o.jsonl",
        "linked/o.jsonl",
        "notes/new/o.jsonl",
        "notes/../notes/o.jsonl",
    )
    for place in (*places, "notes/away.txt"):
        with pytest.raises(InputError, match="inside the folder"):
            Output(tmp_path / place, [notes])
    assert file.read_text() == "a" and Output(
        tmp_path / "o.jsonl", [notes, file, tmp_path / "missing"]
    )


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ([["a.txt", "1"], ["b.txt", "3"]], "input b.txt (changed)"),
        ([["a.txt", "1"], ["b.txt", "2"], ["c.txt", "4"]], "input c.txt (new)"),
        ([["a.txt", "1"]], "input b.txt (no more among them)"),
    ],
)
def test_the_input_that_differs_is_named(now: list[list[str]], said: str, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write(path, "ours", {"inputs": [["a.txt", "1"], ["b.txt", "2"]]})
    with pytest.raises(InputError) as error:
        write(path, "ours", {"inputs": now})
    assert f"other settings: {said}. " in str(error.value)


def test_a_file_of_somebody_else_is_only_replaced_with_fresh(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("theirs")
    with pytest.raises(InputError, match="not a file that this command wrote"):
        write(path, "ours")
    assert (
        path.read_text() == "theirs"
        and write(path, "ours", fresh=True) is None
        and path.read_text() == "ours"
    )
    path.write_text("edited")
    with pytest.raises(InputError, match="nobody changed"):
        write(path, "ours")


def test_a_complete_output_says_so_and_other_settings_are_named(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    assert write(path, "one") is None
    assert write(path, "two") == {"rows": 1} and path.read_text() == "one"
    with pytest.raises(
        InputError, match=r"other settings: a \(1 before, 2 now\), b \(null before, \"x\" now\)"
    ):
        write(path, "two", {"a": 2, "b": "x"})
    assert write(path, "two", {"a": 2}, fresh=True) is None and write(path, "", {"a": 2}) == {
        "rows": 1
    }
    path.unlink()
    assert write(path, "three", {"a": 3}) is None and path.read_text() == "three"


def test_a_file_that_comes_meanwhile_is_left_alone(tmp_path: Path) -> None:
    output = Output(tmp_path / "out.jsonl")
    with pytest.raises(InputError, match="meanwhile"), output.atomic_write({}, {}) as handle:
        handle.write("ours")
        (tmp_path / "out.jsonl").write_text("theirs")
    assert (tmp_path / "out.jsonl").read_text() == "theirs" and len(list(tmp_path.iterdir())) == 1


def test_of_a_link_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    for name in ("there", "dangling"):
        target, link = tmp_path / "far" / f"{name}.txt", tmp_path / f"{name}.txt"
        link.symlink_to(target)
        assert write(link, "x") is None
        assert link.is_symlink() and target.read_text() == "x" and not target.is_symlink()
        assert (tmp_path / "far" / f"{name}.txt{MANIFEST}").is_file() and write(link, "y") == {
            "rows": 1
        }
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(InputError, match="symbolic links"):
        Output(tmp_path / "a")


def test_a_device_and_a_fifo_are_written_to_and_stay(tmp_path: Path) -> None:
    before = os.stat(os.devnull)
    assert write(Path(os.devnull), "x") is None and os.stat(os.devnull).st_rdev == before.st_rdev
    (tmp_path / "null").symlink_to(os.devnull)
    assert write(tmp_path / "null", "x") is None
    fifo, came = tmp_path / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: came.append(fifo.read_text()))
    reader.start()
    assert write(fifo, "streamed") is None
    reader.join(10)
    assert came == ["streamed"] and fifo.is_fifo()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fifo", "null"]
    with pytest.raises(InputError, match="disk is full"):
        write(Path("/dev/full"), "x")


def test_standard_output_is_a_stream(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("-", "/dev/stdout", "/dev/fd/1"):
        write(Path(name), f"{name}\n")
    assert capfd.readouterr().out == "-\n/dev/stdout\n/dev/fd/1\n"


def test_names_of_any_length_that_a_file_may_have(tmp_path: Path) -> None:
    for name in ("a" * 250 + ".txt", "é" * 125 + ".txt"):
        assert write(tmp_path / name, "x") is None and write(tmp_path / name, "x") == {"rows": 1}
    assert (
        all(len(os.fsencode(p.name)) <= 255 for p in tmp_path.iterdir())
        and len(list(tmp_path.iterdir())) == 4
    )
    with pytest.raises(InputError, match="too long"):
        Output(tmp_path / ("a" * 256))


def test_an_unknown_ending_lists_the_known_ones() -> None:
    assert (
        check_ending("a.JSONL.gz", (".jsonl",)) == ".jsonl"
        and check_ending("/dev/null", (".jsonl",)) == ""
    )
    for name in ("a.csv", "a", "a.jsonl.zip", "a.gz"):
        with pytest.raises(InputError, match=r"ends in .jsonl, .xml"):
            check_ending(name, (".jsonl", ".xml"))


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz"])
def test_compressed_outputs_have_the_same_bytes(tmp_path: Path, ending: str) -> None:
    from core.reading import read_text

    for name in ("a", "b"):
        with atomic_write(tmp_path / f"{name}.txt.{ending}") as handle:
            handle.write("text\n" * 9)
    assert read_text(tmp_path / f"a.txt.{ending}") == "text\n" * 9
    assert (tmp_path / f"a.txt.{ending}").read_bytes() == (
        tmp_path / f"b.txt.{ending}"
    ).read_bytes()


def test_a_file_that_is_no_manifest_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / f"out.jsonl{MANIFEST}").write_text('{"mine": 1}')
    with pytest.raises(InputError, match="no manifest of an output"):
        write(tmp_path / "out.jsonl", "x", fresh=True)
    assert read_object(tmp_path / f"out.jsonl{MANIFEST}") == {"mine": 1}


def test_files_of_fixed_names_are_only_replaced_where_the_command_wrote_them(
    tmp_path: Path,
) -> None:
    names = ["plot.csv", "plot.png"]

    def draw(content: str, fresh: bool = False, fail: bool = False) -> None:
        with claimed_files(tmp_path, names, fresh):
            (tmp_path / "plot.csv").write_text(content)
            if fail:
                raise InputError("no data")

    draw("one")
    draw("two")  # its own file
    with pytest.raises(InputError, match="no data"):
        draw("three", fail=True)
    draw("four")
    with claimed_files(tmp_path, ["other.csv"]):
        (tmp_path / "other.csv").write_text("x")
    (tmp_path / "plot.csv").write_text("changed by hand")
    with pytest.raises(InputError, match=r"plot\.csv: exists, and is not a file .* --fresh"):
        draw("five")
    assert (tmp_path / "plot.csv").read_text() == "changed by hand"
    draw("five", fresh=True)
    (tmp_path / "plot.png").write_text("somebody's")
    with pytest.raises(InputError, match=r"plot\.png: exists"):
        draw("six")
    assert read_object(tmp_path / RECORD).keys() == {"plot.csv", "other.csv"}
    (tmp_path / RECORD).write_text('{"a": [1]}')
    with pytest.raises(InputError, match="no record of outputs"):
        draw("seven", fresh=True)


def test_what_a_kill_left_is_the_commands_own(tmp_path: Path) -> None:
    write_json(tmp_path / RECORD, {"plot.csv": None})
    (tmp_path / "plot.csv").write_text("half")
    with claimed_files(tmp_path, ["plot.csv"]):
        (tmp_path / "plot.csv").write_text("whole")
    with claimed_files(None, ["plot.csv"]):
        pass
