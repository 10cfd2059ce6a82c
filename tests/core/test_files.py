"""Written, sealed, verified and locked files."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from core import files, reading
from core.files import InputError, atomic_folder, atomic_write, check_writable, lock_file
from tests.fakes.leftovers import left_by


def test_a_locked_file_is_for_one(tmp_path: Path) -> None:
    lock = tmp_path / "deep" / "lock"
    with (
        lock_file(lock, "w", "taken"),
        pytest.raises(InputError, match="taken"),
        lock_file(lock, "w", "taken"),
    ):
        pass
    with lock_file(tmp_path / "deep" / "lock", "ab+", "taken") as handle:
        handle.write(b"x")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError), lock_file(tmp_path / "file" / "lock", "w", "taken"):
        pass


def test_temporary_names_are_of_one_machine_process_and_moment(tmp_path: Path) -> None:
    names = {files._target(tmp_path / "a").name for _ in range(100)}
    assert len(names) == 100 and all(
        f".{files._machine()}-{os.getpid()}-" in name for name in names
    )


def test_content_is_on_the_disk_before_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    real = os.replace
    monkeypatch.setattr(
        os,
        "fsync",
        lambda number: done.append(os.path.basename(os.readlink(f"/proc/self/fd/{number}"))),
    )
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("rename"), real(a, b)))
    with atomic_write(tmp_path / "a.txt") as handle:
        handle.write("x")
    assert done[0].startswith("a.txt.") and done[1:] == ["rename", tmp_path.name]
    done.clear()
    with atomic_folder(tmp_path / "out") as folder:
        (folder / "inside").write_text("x")
    assert "inside" in done[:2] and done[2:] == ["rename", tmp_path.name]


def test_a_folder_in_the_way_of_a_file_is_reported_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "file").write_text("mine")
    wrong = {
        tmp_path / "out": "out: a folder; expected",
        tmp_path / "file" / "below": "file: a file is in the way",
    }
    for path, message in wrong.items():
        with pytest.raises(InputError, match=message):
            check_writable(path)
        with pytest.raises(InputError, match=message), atomic_write(path):
            pytest.fail("the work began")
    with (
        pytest.raises(InputError, match="file: a file is in the way"),
        atomic_folder(tmp_path / "file"),
    ):
        pytest.fail("the work began")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_without_permission_is_reported_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    for opening in (atomic_write, atomic_folder):
        with (
            pytest.raises(InputError, match="out: no permission to write|content: no permission"),
            opening(tmp_path / "out"),
        ):
            pytest.fail("the work began")


def test_an_older_folder_stays_when_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("1")
    real = os.replace

    def full(a: Path, b: Path) -> None:
        if ".old" not in a.name and ".old" not in b.name:
            raise OSError(28, "No space left on device")
        real(a, b)

    monkeypatch.setattr(os, "replace", full)
    with (
        pytest.raises(InputError, match="out: the disk is full"),
        atomic_folder(tmp_path / "out") as folder,
    ):
        (folder / "new").write_text("2")
    assert [p.name for p in tmp_path.rglob("*")] == ["out", "old"]


FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
import numpy as np, pyarrow as pa, pyarrow.parquet as pq, torch
from pathlib import Path
from safetensors.torch import save_file
from core.files import InputError, atomic_folder, atomic_write

out, big, told = Path(sys.argv[1]), torch.zeros(100_000), []

def tried(opening, name, write):
    try:
        with opening(out / name) as place:
            write(place)
    except InputError as error:
        told.append(str(error))

tried(lambda path: atomic_write(path, "wb"), "checkpoint", lambda handle: torch.save({"w": big}, handle))
tried(atomic_write, "text", lambda handle: handle.write("x" * 1_000_000))
tried(atomic_folder, "export", lambda folder: save_file({"w": big}, folder / "w.safetensors"))
tried(atomic_folder, "graph", lambda folder: pq.write_table(pa.table({"a": np.random.rand(100_000)}), folder / "t.parquet"))
tried(atomic_folder, "trie", lambda folder: np.save(folder / "a.npy", big.numpy()))
assert len(told) == 5 and all("not written" in line for line in told), told
assert [line.rpartition("/")[2].partition(":")[0] for line in told] == ["checkpoint", "text", "export", "graph", "trie"], told
assert list(out.iterdir()) == []
"""  # noqa: E501


def test_every_writer_tells_of_a_full_disk_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    """torch, safetensors, Arrow and NumPy each hide the system's error behind one of their own."""
    here = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, cwd=here
    )
    assert done.returncode == 0, done.stderr[-1500:]


def test_other_failures_within_the_block_are_not_the_disks(tmp_path: Path) -> None:
    with pytest.raises(KeyError), atomic_write(tmp_path / "a"):
        raise KeyError("x")
    with pytest.raises(InputError, match="its own message"), atomic_write(tmp_path / "a"):
        raise InputError("its own message")
    with pytest.raises(InputError, match="gone.txt: no such file"), atomic_write(tmp_path / "a"):
        (tmp_path / "gone.txt").read_text()
    assert list(tmp_path.iterdir()) == []


def test_who_reads_a_file_while_it_is_replaced_reads_the_old_one_whole(tmp_path: Path) -> None:
    """The new content comes under another name and replaces the old one by renaming: no moment has
    half of either."""
    path = tmp_path / "rows"
    path.write_text("old")
    with open(path) as reader:
        with atomic_write(path) as handle:
            handle.write("new")
            handle.flush()
            assert path.read_text() == "old"
        assert reader.read() == "old" and path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["rows"]


def test_what_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic_write(path) as handle:
        handle.write("half")
        raise RuntimeError
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["rows"]


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for name in ("first", "second"):
        with atomic_folder(path) as folder:
            (folder / name).write_text(name)
        assert [p.name for p in path.iterdir()] == [name]
    with pytest.raises(RuntimeError), atomic_folder(path) as folder:
        (folder / "third").write_text("half")
        raise RuntimeError
    assert [p.name for p in path.iterdir()] == ["second"] and [
        p.name for p in tmp_path.iterdir()
    ] == ["folder"]


def ended_and_not_asked_for() -> tuple[subprocess.Popen[bytes], str]:
    """A process that has ended, and whose parent has not asked how, and when it began."""
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    began = files._began(process.pid)
    process.stdin.close()  # type: ignore[union-attr]
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    return process, began


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_process_left_goes_with_the_next_write(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of this machine's dead processes alone: another machine's, and one that still writes, keep
    theirs."""
    ours = files._target(tmp_path / "a.txt")
    # a number that came again
    gone = [left_by(tmp_path / "a.txt"), left_by(tmp_path / "a.txt", os.getpid(), "1")]
    process, began = ended_and_not_asked_for()
    gone.append(left_by(tmp_path / "a.txt", process.pid, began))
    with monkeypatch.context() as other:
        other.setattr(files, "_machine", lambda: "elsewhere-00000000")
        theirs = left_by(tmp_path / "a.txt")
    for left in (ours, *gone, theirs):
        left.write_text("half")
    assert len({ours, *gone, theirs}) == 5
    if kind == "file":
        with atomic_write(tmp_path / "b") as handle:
            handle.write("whole")
    else:
        with atomic_folder(tmp_path / "b") as folder:
            (folder / "c").write_text("whole")
    assert {p.name for p in tmp_path.iterdir()} == {ours.name, theirs.name, "b"}
    process.wait()


def test_a_folder_taken_away_by_a_killed_process_comes_back(tmp_path: Path) -> None:
    """Killed after the older folder has made room and before the new one is in its place."""
    old, new = left_by(tmp_path / "graph", kind=".old"), left_by(tmp_path / "graph")
    for folder, content in ((old, "old"), (new, "half")):
        folder.mkdir()
        (folder / "content").write_text(content)
    files.remove_leftovers(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["graph"] and (
        tmp_path / "graph" / "content"
    ).read_text() == "old"


def test_a_reader_that_stops_before_the_end_leaves_no_complaint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    (tmp_path / "x.txt").write_bytes(b"a\r\xff\rc\r")  # line ends of old Macs
    with pytest.raises(InputError, match=r"x\.txt:2: not utf-8"):
        list(reading.lines(tmp_path / "x.txt"))
    gc.collect()
    assert said == []
