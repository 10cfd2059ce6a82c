"""Fetching data sets: a real server on loopback, mirrors with hostile archives, sums, resuming,
messages."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import os
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import datamodules.sources as data
from app.cli import main
from benchmarks.counts import count_rows
from core.files import InputError
from datamodules.sources import addresses, listing, mirrors
from datamodules.tasks import fetch
from datamodules.tasks.linking import linking_tasks
from datamodules.tasks.prepare import all_tasks, find_task, prepare_task
from tests.fakes import linking as linking_files

ONE, TWO, SECRET = b"one " * 50_000, b"two", b"from outside"

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data"
real = pytest.mark.skipif(not REAL.is_dir(), reason=f"no real data in {REAL}")


def sum_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Server:
    """Serves `files`; supports Range. `cut`: how many bytes of the next answers are sent before the
    connection ends."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.cut: list[int] = []
        self.ranges = True
        self.codes: list[int] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = self.headers.get("Range") if outer.ranges else None
                outer.asked.append((self.path, self.headers.get("Range")))
                if outer.codes or self.path not in outer.files:
                    self.send_error(outer.codes.pop(0) if outer.codes else 404)
                    return
                content = outer.files[self.path]
                start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
                if start >= len(content) and asked:
                    self.send_error(416)
                    return
                self.send_response(206 if asked else 200)
                if asked:
                    self.send_header(
                        "Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}"
                    )
                self.send_header("Content-Length", str(len(content) - start))
                self.end_headers()
                rest = content[start:]
                self.wfile.write(rest[: outer.cut.pop(0)] if outer.cut else rest)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(addresses, "PAUSE", 0.0)
    monkeypatch.setattr(addresses, "TIMEOUT", 5.0)
    running = Server()
    yield running
    running.server.shutdown()
    running.server.server_close()


class Listed:
    """A sources.yaml of one data set, `Set`, in place of the real one."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.files = path, {}  # type: Path, dict[str, dict[str, Any]]
        monkeypatch.setattr(listing, "SOURCES", path)

    def add(self, name: str, content: bytes | None, url: str | None = None, **more: Any) -> None:
        known = content is not None
        self.files[name] = {"url": url, "sha256": sum_of(content) if known else None} | more  # type: ignore[arg-type]
        if known:
            self.files[name]["bytes"] = len(content)  # type: ignore[arg-type]
        entry = {
            "licence": "none",
            "citation": "none",
            "how": "1. Ask for it.\n2. Wait.",
            "files": self.files,
        }
        self.path.write_text(yaml.safe_dump({"Set": entry, "Set:other": entry | {"files": {}}}))
        listing._sources.cache_clear()


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listed]:
    monkeypatch.setattr(mirrors, "_seen", {})
    monkeypatch.setattr(data, "_told", set())
    yield Listed(tmp_path / "sources.yaml", monkeypatch)
    listing._sources.cache_clear()


def tar(path: Path, *members: tuple[str | tarfile.TarInfo, bytes], mode: str = "w:gz") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for member, content in members:
            info = tarfile.TarInfo(member) if isinstance(member, str) else member
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def zipped(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


# addresses


def test_files_are_fetched_verified_and_kept(tmp_path, server, listed):
    server.files = {"/a": ONE, "/b": TWO}
    listed.add("x/a.txt", ONE, server.url + "/a")
    listed.add("x/b.txt", TWO, server.url + "/b", optional=True)
    result = data.fetch("Set", tmp_path / "data")
    assert result == data.Fetched(tmp_path / "data" / "Set", {})
    assert (result.folder / "x/a.txt").read_bytes() == ONE and (
        result.folder / "x/b.txt"
    ).read_bytes() == TWO
    assert sorted(p.name for p in (result.folder / "x").iterdir()) == ["a.txt", "b.txt"]
    data.fetch("Set", tmp_path / "data")
    assert len(server.asked) == 2  # nothing is asked again


def test_a_cut_connection_is_taken_up_where_it_ended(tmp_path, server, listed):
    server.files = {"/a": ONE}
    server.cut = [70_000, 50_000]
    listed.add("a.txt", ONE, server.url + "/a")
    assert (data.fetch_dataset("Set", tmp_path) / "a.txt").read_bytes() == ONE
    assert [r for _, r in server.asked] == [None, "bytes=70000-", "bytes=120000-"]


def test_a_cut_run_is_taken_up_by_the_next(tmp_path, server, listed, monkeypatch):
    server.files = {"/a": ONE}
    listed.add("a.txt", ONE, server.url + "/a")
    monkeypatch.setattr(addresses, "TRIES", 1)
    server.cut = [70_000]
    with pytest.raises(
        InputError, match=r"a\.txt cannot be had .*cut after 70,000 of 200,000 bytes"
    ):
        data.fetch("Set", tmp_path)
    assert not (tmp_path / "Set/a.txt").exists() and list((tmp_path / "Set").glob("*.partial"))
    data.fetch("Set", tmp_path)
    assert (
        server.asked[-1] == ("/a", "bytes=70000-") and (tmp_path / "Set/a.txt").read_bytes() == ONE
    )


def test_a_server_without_ranges_sends_all_again(tmp_path, server, listed):
    server.files, server.ranges, server.cut = {"/a": ONE}, False, [70_000]
    listed.add("a.txt", ONE, server.url + "/a")
    assert (data.fetch_dataset("Set", tmp_path) / "a.txt").read_bytes() == ONE


@pytest.mark.parametrize("left", [b"another version " * 10, ONE + b"and more"])
def test_another_versions_beginning_is_thrown_away(tmp_path, server, listed, left):
    server.files = {"/a": ONE}
    listed.add("a.txt", ONE, server.url + "/a")
    (tmp_path / "Set").mkdir()
    (tmp_path / "Set/a.txt.new.partial").write_bytes(left)
    assert (data.fetch_dataset("Set", tmp_path) / "a.txt").read_bytes() == ONE


def test_errors_of_the_server(tmp_path, server, listed):
    server.files = {"/a": TWO}
    listed.add("a.txt", TWO, server.url + "/a")
    listed.add("b.txt", None, server.url + "/b", optional=True)
    server.codes = [503]
    result = data.fetch("Set", tmp_path)
    assert (result.folder / "a.txt").read_bytes() == TWO  # asked again after 503
    assert list(result.missing) == ["b.txt"] and "404" in result.missing["b.txt"]
    assert [p for p, _ in server.asked].count("/b") == 1  # but not after 404


def test_a_wrong_sum_is_an_error_and_nothing_stays(tmp_path, server, listed):
    server.files = {"/a": TWO}
    listed.add("a.txt", ONE, server.url + "/a")
    message = (
        rf"Set: {server.url}/a: checksum mismatch for a\.txt: expected sha256 {sum_of(ONE)}, got"
        rf" {sum_of(TWO)}\. .*MIRROR"
    )
    with pytest.raises(InputError, match=message):
        data.fetch("Set", tmp_path)
    assert list((tmp_path / "Set").iterdir()) == []


def test_too_much_is_refused(tmp_path, server, listed, monkeypatch):
    server.files = {"/a": ONE}
    listed.add("a.txt", None, server.url + "/a")
    monkeypatch.setattr(addresses, "LARGEST", 1000)
    with pytest.raises(InputError, match="sends more than 1,000 bytes"):
        data.fetch("Set", tmp_path)


def test_an_unknown_sum_is_recorded_and_checked_from_then_on(tmp_path, server, listed, capsys):
    server.files = {"/a": ONE}
    listed.add("a.txt", None, server.url + "/a")
    data.fetch("Set", tmp_path)
    assert (
        "no checksum of a.txt is recorded in sources.yaml, so this file's is taken as right from"
        f" now on: {sum_of(ONE)}" in (capsys.readouterr().err)
    )
    data.fetch("Set", tmp_path)
    assert capsys.readouterr().err == ""
    server.files["/a"] = TWO
    (tmp_path / "Set/a.txt").unlink()
    with pytest.raises(
        InputError,
        match=rf"expected sha256 {sum_of(ONE)}, got {sum_of(TWO)}.*sums\.json; delete its line",
    ):
        data.fetch("Set", tmp_path)
    (tmp_path / "Set/a.txt").write_bytes(b"put by hand")
    server.files["/a"] = ONE
    data.fetch("Set", tmp_path)
    assert (tmp_path / "Set/a.txt").read_bytes() == ONE


def test_a_file_put_by_hand_gets_its_checksum(tmp_path, listed, capsys):
    listed.add("a.txt", None)
    (tmp_path / "Set").mkdir()
    (tmp_path / "Set/a.txt").write_bytes(TWO)
    data.fetch("Set", tmp_path)
    assert sum_of(TWO) in capsys.readouterr().err


def test_a_member_of_a_fetched_archive(tmp_path, server, listed):
    server.files = {"/set.zip": zipped(tmp_path / "set.zip", ("in/a.txt", ONE)).read_bytes()}
    listed.add("a.txt", ONE, server.url + "/set.zip", archive="in/a.txt")
    assert (data.fetch_dataset("Set", tmp_path / "data") / "a.txt").read_bytes() == ONE
    listed.add("b.txt", TWO, server.url + "/set.zip", archive="in/b.txt")
    with pytest.raises(InputError, match=r"no member 'in/b\.txt' in this archive"):
        data.fetch("Set", tmp_path / "data")


def test_without_a_network_the_steps_are_printed(tmp_path, listed, monkeypatch):
    monkeypatch.setattr(addresses, "PAUSE", 0.0)
    listed.add("x/a.txt", ONE, "http://127.0.0.1:9/a")
    with pytest.raises(InputError) as caught:
        data.fetch("Set", tmp_path)
    message = str(caught.value)
    assert message.startswith(
        "Set: x/a.txt cannot be had (no MIRROR was given; http://127.0.0.1:9/a: "
    )
    assert (
        "1. Ask for it.\n2. Wait." in message
        and f"put the file at {tmp_path / 'Set/x/a.txt'}" in message
    )
    listed.add("x/a.txt", ONE)
    with pytest.raises(InputError, match="no MIRROR was given; no public address"):
        data.fetch("Set", tmp_path)
    listed.add("x/a.txt", ONE, "file:///etc/hostname")
    with pytest.raises(InputError, match="expected an http or https address"):
        data.fetch("Set", tmp_path)
    with pytest.raises(InputError, match="no data set 'Sett'; .*hoose from: Set, Set:other"):
        data.fetch("Sett", tmp_path)
    assert data.fetch("Set:other", tmp_path).folder == tmp_path / "Set-other"


@pytest.mark.parametrize("path", ["../a.txt", "x/../../a.txt", "/a.txt"])
def test_a_listed_path_stays_in_the_folder(tmp_path, listed, path):
    listed.add(path, ONE)
    with pytest.raises(InputError, match="does not stay in the data set's folder"):
        data.fetch("Set", tmp_path)


# mirrors


def as_folder(at: Path) -> None:
    (at / "deep/x").mkdir(parents=True)
    (at / "deep/x/a.txt").write_bytes(ONE)


def as_gz(at: Path) -> None:
    (at / "x").mkdir(parents=True)
    (at / "x/a.txt.gz").write_bytes(gzip.compress(ONE))


def as_other_name(at: Path) -> None:
    at.mkdir()
    (at / "whatever.bin").write_bytes(ONE)


def as_nested(at: Path) -> None:
    inner = tar(at.parent / "inner.tar.gz", ("x/a.txt", ONE)).read_bytes()
    zipped(at / "outer.zip", ("sub/inner.tar.gz", inner))


PLACES = {
    "folder": as_folder,
    "gz": as_gz,
    "other name": as_other_name,
    "tar.gz": lambda at: tar(at / "some.tar.gz", ("pre/x/a.txt", ONE)),
    "tgz": lambda at: tar(at / "some.tgz", ("./x/a.txt", ONE)),
    "tar": lambda at: tar(at / "some.tar", ("x/a.txt", ONE), mode="w"),
    "zip": lambda at: zipped(at / "some.zip", ("pre/x/a.txt", ONE)),
    "archive named as the folder": lambda at: zipped(at / "x.zip", ("a.txt", ONE)),
    "archive in the folder": lambda at: zipped(at / "x" / "a.zip", ("a.txt", ONE)),
    "nested": as_nested,
}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("place", PLACES)
def test_mirrors_are_searched_everywhere(tmp_path, listed, place, known):
    PLACES[place](tmp_path / "mirror")
    listed.add("x/a.txt", ONE if known else None)
    if place == "other name" and not known:
        with pytest.raises(InputError, match=r"in none of .*mirror"):
            data.fetch("Set", tmp_path / "data", [tmp_path / "mirror"])
        return
    folder = data.fetch_dataset("Set", tmp_path / "data", [tmp_path / "mirror"])
    assert (folder / "x/a.txt").read_bytes() == ONE


def test_a_mirror_may_be_an_archive_and_one_of_several(tmp_path, listed):
    listed.add("x/a.txt", ONE)
    listed.add("x/b.txt", None)
    one, two = (
        tar(tmp_path / "m.tar.gz", ("x/a.txt", ONE)),
        zipped(tmp_path / "m.zip", ("x/b.txt", TWO)),
    )
    folder = data.fetch_dataset("Set", tmp_path / "data", [one, two])
    assert (folder / "x/b.txt").read_bytes() == TWO
    with pytest.raises(InputError, match="no such folder or archive, given as MIRROR"):
        data.fetch_dataset("Set", tmp_path / "other", [tmp_path / "nowhere"])


def test_a_checksum_goes_before_a_path_and_a_wrong_checksum_at_the_path_is_an_error(
    tmp_path, listed
):
    listed.add("x/a.txt", ONE)
    (tmp_path / "m/x").mkdir(parents=True)
    (tmp_path / "m/x/a.txt").write_bytes(TWO)
    with pytest.raises(
        InputError,
        match=rf"m/x/a\.txt: checksum mismatch .*expected sha256 {sum_of(ONE)}, got {sum_of(TWO)}",
    ):
        data.fetch("Set", tmp_path / "data", [tmp_path / "m"])
    assert not (tmp_path / "data/Set/x/a.txt").exists()
    (tmp_path / "m/right").write_bytes(ONE)
    assert (
        data.fetch_dataset("Set", tmp_path / "data", [tmp_path / "m"]) / "x/a.txt"
    ).read_bytes() == ONE


def test_two_versions_at_one_path_are_not_chosen_from(tmp_path, listed):
    listed.add("x/a.txt", None)
    for name, content in (("1", ONE), ("2", TWO)):
        (tmp_path / name / "x").mkdir(parents=True)
        (tmp_path / name / "x/a.txt").write_bytes(content)
    with pytest.raises(InputError, match="is in the mirrors in several versions"):
        data.fetch("Set", tmp_path / "data", [tmp_path / "1", tmp_path / "2"])


def test_a_path_matches_whole_names_only(tmp_path, listed):
    listed.add("x/a.txt", None)
    (tmp_path / "m/xx").mkdir(parents=True)
    (tmp_path / "m/xx/a.txt").write_bytes(TWO)
    (tmp_path / "m/a.txt").write_bytes(TWO)
    with pytest.raises(InputError, match="cannot be had"):
        data.fetch("Set", tmp_path / "data", [tmp_path / "m"])


def test_a_damaged_file_is_replaced_or_reported(tmp_path, listed):
    listed.add("x/a.txt", ONE)
    (tmp_path / "m").mkdir()
    (tmp_path / "m/a").write_bytes(ONE)
    folder = data.fetch_dataset("Set", tmp_path / "data", [tmp_path / "m"])
    (folder / "x/a.txt").write_bytes(TWO)
    with pytest.raises(InputError, match=rf"{folder}/x/a\.txt: checksum mismatch"):
        data.fetch("Set", tmp_path / "data")
    data.fetch("Set", tmp_path / "data", [tmp_path / "m"])
    assert (folder / "x/a.txt").read_bytes() == ONE


def link(kind: bytes, name: str = "x/a.txt", to: str = "../../secret") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    return info


def zip_link() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("x/a.txt")
    info.create_system, info.external_attr = 3, 0o120777 << 16
    return info


HOSTILE = {
    "up": lambda p: tar(p / "m.tar.gz", ("../x/a.txt", SECRET)),
    "up inside": lambda p: tar(p / "m.tar.gz", ("y/../../x/a.txt", SECRET)),
    "absolute": lambda p: tar(p / "m.tar.gz", (str(p.parent / "x/a.txt"), SECRET)),
    "symlink": lambda p: tar(p / "m.tar.gz", (link(tarfile.SYMTYPE), b"")),
    "hard link": lambda p: tar(p / "m.tar.gz", (link(tarfile.LNKTYPE), b"")),
    "device": lambda p: tar(p / "m.tar.gz", (link(tarfile.CHRTYPE), b"")),
    "fifo": lambda p: tar(p / "m.tar.gz", (link(tarfile.FIFOTYPE), b"")),
    "zip up": lambda p: zipped(p / "m.zip", ("../x/a.txt", SECRET)),
    "zip backslash": lambda p: zipped(p / "m.zip", ("..\\x\\a.txt", SECRET)),
    "zip absolute": lambda p: zipped(p / "m.zip", ("/x/a.txt", SECRET)),
    "zip drive": lambda p: zipped(p / "m.zip", ("c:/x/a.txt", SECRET)),
    "zip symlink": lambda p: zipped(p / "m.zip", (zip_link(), b"/etc/hostname")),
    "nested up": lambda p: zipped(
        p / "m.zip", ("y.tar.gz", tar(p / "y.tar.gz", ("../x/a.txt", SECRET)).read_bytes())
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_members_that_leave_the_archive_or_are_no_files_are_refused(tmp_path, listed, kind, capsys):
    (tmp_path / "secret").write_bytes(SECRET)
    HOSTILE[kind](tmp_path / "mirror")
    before = {p for p in tmp_path.rglob("*") if p.is_file()}
    listed.add("x/a.txt", None)
    with pytest.raises(InputError, match="cannot be had"):
        data.fetch("Set", tmp_path / "data", [tmp_path / "mirror"])
    assert {p for p in tmp_path.rglob("*") if p.is_file()} - before <= {listed.path}
    said = capsys.readouterr().err
    assert "leaves the archive; not read" in said or "is a link or a device; not read" in said
    with pytest.raises(InputError, match="cannot be had"):
        data.fetch("Set", tmp_path / "data", [tmp_path / "mirror"])
    assert capsys.readouterr().err == ""  # told once


ZEROS = bytes(300_000)
BOMBS = {
    "gz": lambda p: (p / "x/a.txt.gz").write_bytes(gzip.compress(ZEROS)),
    "tar": lambda p: tar(p / "m.tar.gz", ("x/a.txt", ZEROS)),
    "tar of much else": lambda p: tar(p / "m.tar.gz", ("else", ZEROS), ("x/a.txt", TWO)),
    "zip": lambda p: zipped(p / "m.zip", ("x/a.txt", ZEROS)),
    "nested": lambda p: zipped(
        p / "m.zip", ("b.gz", gzip.compress(ZEROS)), ("x/a.txt.gz", gzip.compress(ZEROS))
    ),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_archives_that_grow_too_large_are_not_read_to_their_end(
    tmp_path, listed, kind, capsys, monkeypatch
):
    monkeypatch.setattr(mirrors, "LARGEST", 100_000)
    (tmp_path / "mirror/x").mkdir(parents=True)
    BOMBS[kind](tmp_path / "mirror")
    listed.add("x/a.txt", None)
    with pytest.raises(InputError, match="cannot be had"):
        data.fetch("Set", tmp_path / "data", [tmp_path / "mirror"])
    assert "more than 100,000 bytes unpacked; not read" in capsys.readouterr().err


def test_archives_within_archives_and_members_are_limited(tmp_path, listed, capsys, monkeypatch):
    content = zipped(tmp_path / "0.zip", ("x/a.txt", TWO)).read_bytes()
    for level in range(1, 5):
        content = zipped(
            tmp_path / "mirror" / f"{level}.zip", (f"{level}.zip", content)
        ).read_bytes()
        if level < 4:
            (tmp_path / "mirror" / f"{level}.zip").unlink()
    listed.add("x/a.txt", None)
    with pytest.raises(InputError, match="cannot be had"):
        data.fetch("Set", tmp_path / "data", [tmp_path / "mirror"])
    assert "more than 3 deep; not read" in capsys.readouterr().err
    monkeypatch.setattr(mirrors, "MEMBERS", 2)
    for make, name in ((zipped, "m.zip"), (tar, "m.tar.gz")):
        make(tmp_path / "other" / name, ("1", TWO), ("2", TWO), ("x/a.txt", TWO))
    with pytest.raises(InputError, match="cannot be had"):
        data.fetch("Set", tmp_path / "data", [tmp_path / "other"])
    assert capsys.readouterr().err.count("more than 2 files") == 2


def test_broken_archives_are_reported_and_the_search_continues(tmp_path, listed, capsys):
    (tmp_path / "mirror").mkdir()
    whole = tar(tmp_path / "mirror/z.tar.gz", ("x/a.txt", ONE)).read_bytes()
    (tmp_path / "mirror/a.tar.gz").write_bytes(whole[:50])
    (tmp_path / "mirror/b.zip").write_bytes(b"no zip")
    (tmp_path / "mirror/c.gz").write_bytes(b"no gz")
    (tmp_path / "mirror/pipe.txt").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "mirror/fifo.txt")
    (tmp_path / "mirror/loop").symlink_to(tmp_path / "mirror")
    listed.add("x/a.txt", ONE)
    folder = data.fetch_dataset("Set", tmp_path / "data", [tmp_path / "mirror"])
    assert (folder / "x/a.txt").read_bytes() == ONE
    said = capsys.readouterr().err
    assert all(f"{name}: cannot be read" in said for name in ("a.tar.gz", "b.zip", "c.gz"))


def test_a_mirror_is_searched_once(tmp_path, listed, monkeypatch):
    as_folder(tmp_path / "mirror")
    listed.add("x/a.txt", ONE)
    data.fetch("Set", tmp_path / "one", [tmp_path / "mirror"])
    monkeypatch.setattr(mirrors, "_sum", None)  # would fail if anything were read again
    data.fetch("Set", tmp_path / "two", [tmp_path / "mirror"])
    assert (tmp_path / "two/Set/x/a.txt").read_bytes() == ONE


# the real list and the command


def test_the_list_holds_every_file_of_every_task():
    known = listing.sources()
    for definition in all_tasks().values():
        source = known[definition.dataset]
        files = {f.path: f for f in source.files}
        assert source.licence and source.citation and source.how
        for split, paths in definition.files.items():
            assert set(paths) <= set(files), definition.name
            if split == "train":
                assert not any(files[p].optional for p in paths)
        for file in source.files:
            assert (file.sha256 is None) == (file.bytes is None), file
            assert file.sha256 is None or len(file.sha256) == 64
            assert file.url is None or file.url.startswith("https://raw.githubusercontent.com/")
            if file.url:
                commit = file.url.split("/")[5]
                assert len(commit) in (7, 40) and int(commit, 16)
    for one in linking_tasks().values():
        if one.dataset is not None:
            assert set(one.files) | set(one.optional) <= {
                f.path for f in known[one.dataset].files
            }, one.name
    linking = {t.dataset for t in linking_tasks().values() if t.dataset}
    # the last is pre-trained on
    assert {t.dataset for t in all_tasks().values()} | linking | {"Ontologies"} == set(known)
    for name in linking:
        source = known[name]
        assert source.licence and source.citation and source.how
        assert all((f.sha256 is None) == (f.bytes is None) for f in source.files)


def test_a_linking_task_is_fetched_like_any_other(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path))
    assert main(["data", "HPO-EL"]) == 0
    assert "nothing to fetch" in capsys.readouterr().out
    assert main(["data", "MedMentions-EL"]) == 2
    assert "corpus_pubtator.txt.gz" in capsys.readouterr().err


def test_the_command(tmp_path, capsys, monkeypatch):
    assert main(["data", "cMedQAN"]) == 2
    assert "no task 'cMedQAN'; did you mean cMedQANER?" in capsys.readouterr().err
    monkeypatch.setattr(
        data, "_download_file", lambda *_: pytest.fail("no test may reach for the network")
    )
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path))
    assert main(["data", "DXY-NER"]) == 2
    said = capsys.readouterr().err
    assert "DXY's data set is private" in said and "DXY-NER/DXY-NER/train.txt" in said
    (tmp_path / "m/DXY-NER").mkdir(parents=True)
    (tmp_path / "m/DXY-NER/train.txt").write_text("a O\n")
    assert main(["data", "DXY-NER", "--mirror", str(tmp_path / "m")]) == 0
    said = capsys.readouterr()
    assert "1 of 3 files of DXY-NER, verified" in said.out and "licence: private" in said.out
    assert "DXY-NER: without DXY-NER/dev.txt (no public address)" in said.err


def test_a_folder_is_read_as_training_reads_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path / "runs"))
    linking_files.write(tmp_path / "data")
    folder = tmp_path / "data" / "CHIP-CDN"
    assert main(["data", "CHIP-CDN", "--data", str(folder)]) == 0
    said = capsys.readouterr()
    assert "CHIP-CDN: train 90, dev 15, test 5 mentions" in said.out
    own = tmp_path / "own/NCBI-disease-IOB"
    own.mkdir(parents=True)
    for name in ("train", "devel"):
        (own / f"{name}.tsv").write_text("a\tO\ngout\tB\n\n")
    assert main(["data", "NCBI", "--data", str(tmp_path / "own")]) == 0
    assert "NCBI: train 1, dev 1 examples" in capsys.readouterr().out
    assert main(["data", "NCBI", "--data", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert main(["data", "Ontologies", "--data", str(tmp_path)]) == 2
    assert "a data set" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.data
@real
def test_real_mirror_has_every_task_that_it_holds(tmp_path):
    there = {
        "cMedQANER",
        "cMedQQ",
        "cMedQA:clean",
        "CMeEE:resplit",
        "CMeIE:resplit",
        "KUAKE-QQR",
        "KUAKE-QTR",
        "NeikeQA",
        "BC5-chem",
        "BC5-disease",
        "NCBI",
        "BC2GM",
        "ChemProt",
        "DDI",
        "GAD",
    }

    def folder_of(definition):
        return data.fetch_dataset(definition.dataset, tmp_path / "data", [REAL], network=False)

    rows = count_rows(folder_of)
    assert {row.task for row in rows if row.here is not None} == there
    differ = {(r.task, r.split, r.unit, r.difference) for r in rows if r.difference}
    assert differ == {
        ("cMedQANER", "train", "mentions", -135),
        ("cMedQANER", "dev", "mentions", -11),
        ("cMedQANER", "test", "mentions", -10),
        ("BC5-disease", "dev", "mentions", 2),
        ("NCBI", "train", "mentions", -3),
        ("ChemProt", "train", "examples", 29),
        ("ChemProt", "dev", "examples", 56),
        ("ChemProt", "test", "examples", 22),
    }
    for name in sorted(there):
        prepare_task(name, folder_of(all_tasks()[name]), tmp_path / "tasks" / name)


def test_a_data_set_by_its_own_name() -> None:
    assert (
        fetch.dataset_of("Ontologies") == "Ontologies"
        and fetch.dataset_of("NCBI") == find_task("NCBI").dataset
    )
    assert fetch.dataset_of("HPO-EL") is None and fetch.dataset_of("AAP-EL") == "AAP-EL"
    with pytest.raises(InputError, match="no task 'nothing'"):
        fetch.dataset_of("nothing")


def test_a_mirror_that_changes_while_it_is_copied_is_reported(tmp_path, listed):
    """What is copied is checked against what was found: a file that another one has replaced in
    between is no hit."""
    listed.add("x/a.txt", ONE)
    (tmp_path / "m").mkdir()
    (tmp_path / "m/a").write_bytes(ONE)
    (hit,), _ = mirrors.hits([tmp_path / "m"])
    (tmp_path / "m/a").write_bytes(TWO)
    target = tmp_path / "target"
    with pytest.raises(
        InputError, match=rf"changed while it was read \({sum_of(ONE)}, then {sum_of(TWO)}\)"
    ):
        mirrors.copy_hit(hit, target)
    assert not target.exists() and not list(tmp_path.glob("target*"))
    (tmp_path / "m/a").write_bytes(ONE)
    mirrors.copy_hit(hit, target)
    assert target.read_bytes() == ONE
