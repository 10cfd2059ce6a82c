"""A folder that a command built: whole or not at all, kept when it is the same, else refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.artifact import (
    Artifact,
    check_export,
    content_digest,
    manifest_path,
    read_manifest,
    write_manifest,
)
from core.files import InputError
from core.reading import sha256

ROWS = Artifact("rows", "make rows", 1, keys=("settings", "counts"))


def build_rows(folder: Path, text: str = "a", size: int = 1) -> Path:
    """Rows of a size, as a builder makes them."""
    settings = {"format": 1, "sizes": (size,)}
    if not ROWS.is_kept(folder, {"settings": settings}):
        manifest: dict[str, object] = {"settings": settings}
        with ROWS.create(folder, manifest) as partial:
            (partial / "deep").mkdir()
            (partial / "deep" / "a.txt").write_text(text)
            manifest["counts"] = len(text)
    return folder


def test_the_manifest_describes_what_was_built(tmp_path: Path) -> None:
    folder = build_rows(tmp_path / "rows")
    manifest = ROWS.read(folder)
    assert manifest == {
        "settings": {"format": 1, "sizes": [1]},
        "counts": 1,
        "sha256": {"deep/a.txt": sha256(folder / "deep/a.txt")},
    }
    one = Artifact("row", "make row", verified="a.txt")
    with one.create(tmp_path / "row", {}) as partial:
        (partial / "a.txt").write_text("a")
    assert one.read(tmp_path / "row") == {"sha256": sha256(folder / "deep/a.txt")}
    stems = Artifact("row", "make row", verified="{}.txt")
    with stems.create(tmp_path / "row", {}) as partial:
        (partial / "a.txt").write_text("a")
    assert stems.read(tmp_path / "row")["sha256"].keys() == {"a"}
    none = Artifact("row", "make row", verified="")
    with none.create(tmp_path / "row", {"a": 1}) as partial:
        (partial / "a.txt").write_text("a")
    assert none.read(tmp_path / "row") == {"a": 1}


def test_nothing_is_left_of_what_fails(tmp_path: Path) -> None:
    with pytest.raises(KeyError), ROWS.create(tmp_path / "rows", {}) as partial:
        (partial / "a.txt").write_text("a")
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_the_same_is_kept_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = build_rows(tmp_path / "rows", "first")
    build_rows(folder, "second")
    assert (folder / "deep/a.txt").read_text() == "first"
    said = capsys.readouterr()
    assert said.err == (
        f"{folder}: kept: rows of the same inputs and settings (--fresh builds it again)\n"
    )
    settings = {"settings": {"format": 1, "sizes": (1,)}}
    assert ROWS.is_kept(folder, settings, quiet=True)
    assert not ROWS.is_kept(folder, settings, fresh=True) and not capsys.readouterr().err
    build_rows(folder, "second", size=2)
    assert (folder / "deep/a.txt").read_text() == "second"


def test_a_damaged_one_is_built_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = build_rows(tmp_path / "rows")
    (folder / "deep/a.txt").write_text("b")
    with pytest.raises(
        InputError,
        match=r"a\.txt: missing, or not the file its manifest describes\. Build it again: make",
    ):
        ROWS.read(folder)
    ROWS.read(folder, [])
    with pytest.raises(InputError, match=r"b\.txt: missing"):
        ROWS.read(folder, ["b.txt"])
    assert ROWS.read(build_rows(folder)) and "a.txt: missing" in capsys.readouterr().err
    (folder / "manifest.json").write_text("{")
    assert ROWS.read(build_rows(folder)) and "built again" in capsys.readouterr().err


def test_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    build_rows(tmp_path / "rows")
    for name, content in (("a.txt", "x"), ("manifest.json", '{"other": 1}')):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).write_text(content)
        with pytest.raises(InputError, match="that is no rows; it is left alone"):
            build_rows(folder)
        assert [p.name for p in folder.iterdir()] == [name]
        with pytest.raises(InputError, match="it is left alone"):  # before any work is done
            ROWS.is_kept(folder, {"settings": {}})
    plain = Artifact("row", "make row")  # has no keys of its own to be known by
    with pytest.raises(InputError, match="that is no row; it is left alone"):
        plain.is_kept(tmp_path / "manifest", {"settings": {}})
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="it is left alone"):
        build_rows(tmp_path / "file")


def test_what_is_none_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"no rows here \(manifest\.json is missing\)\. Build it: make rows"
    ):
        ROWS.manifest(tmp_path)
    folder = build_rows(tmp_path / "rows")
    whole = read_manifest(folder)
    for wrong in (
        whole | {"settings": {"format": 2}},
        whole | {"settings": None},
        {k: v for k, v in whole.items() if k != "counts"},
    ):
        write_manifest(folder, wrong)
        with pytest.raises(InputError, match=r"no rows of format 1\. Build it again: make rows"):
            ROWS.manifest(folder)
    for sums in (None, [], "x"):
        write_manifest(folder, whole | {"sha256": sums})
        with pytest.raises(InputError, match="expected an object under sha256"):
            ROWS.manifest(folder)
    write_manifest(folder, whole | {"sha256": {"deep/a.txt": 1}})
    with pytest.raises(InputError, match="expected checksums of files"):
        ROWS.read(folder)


def test_an_export_is_verified_against_its_checksums(tmp_path: Path) -> None:
    export = tmp_path / "export"
    (export / "encoder").mkdir(parents=True)
    for name in ("model.safetensors", "encoder/config.json"):
        (export / name).write_text(name)
    sums = {name: sha256(export / name) for name in ("model.safetensors", "encoder/config.json")}
    check_export(export)  # no manifest: somebody else's model
    write_manifest(export, {"paper": "kebiolm", "checksums": sums})
    check_export(export)
    check_export(export / "encoder")
    (export / "model.safetensors").write_text("modeL.safetensors")
    for folder in (export, export / "encoder"):  # the encoder's weights are in the file above
        with pytest.raises(
            InputError, match=r"model.safetensors: missing, or not the file its manifest describes"
        ):
            check_export(folder)
    (export / "model.safetensors").unlink()
    with pytest.raises(InputError, match="missing"):
        check_export(export)
    write_manifest(export, {"paper": "kebiolm"})
    with pytest.raises(InputError, match="expected checksums of files.*Export the run again"):
        check_export(export)
    check_export(export / "encoder")  # a part of nothing that has checksums


def test_what_is_in_a_folder_is_the_same_whatever_run_made_it(tmp_path: Path) -> None:
    """Run, machine, commit and time may differ; settings and checksums may not."""
    made = {"settings": {"dim": 8}, "sha256": {"a.npy": "0"}}
    circumstances = {"mlflow_run": "a", "commit": "b", "run_folder": "c", "machine": "d"}
    manifests = [
        made | circumstances | {"cpus": "2", "seconds": 1.5},
        dict(reversed((made | {"seconds": 2.5}).items())),
        made | {"settings": {"dim": 9}},
        made | {"sha256": {"a.npy": "1"}},
    ]
    digests = []
    for manifest in manifests:
        write_manifest(tmp_path, manifest)
        digests.append(content_digest(tmp_path))
    assert digests[0] == digests[1]
    assert len({*digests}) == 3


def test_an_export_is_known_by_its_identity(tmp_path: Path) -> None:
    """The checksums of a table's own manifest change with its seconds; without an identity they
    count."""
    digests = []
    for manifest in (
        {"identity": "i", "checksums": {"table/manifest.json": "0"}},
        {"identity": "i", "checksums": {"table/manifest.json": "1"}},
        {"identity": "j", "checksums": {"table/manifest.json": "1"}},
        {"checksums": {"table/manifest.json": "0"}},
        {"checksums": {"table/manifest.json": "1"}},
    ):
        write_manifest(tmp_path, manifest)
        digests.append(content_digest(tmp_path))
    assert digests[0] == digests[1]
    assert len({*digests}) == 4


def test_a_manifest_of_another_program_counts_by_its_bytes(tmp_path: Path) -> None:
    digests = set()
    for text in ("[]", "[1]", "3"):
        manifest_path(tmp_path).write_text(text)
        digests.add(content_digest(tmp_path))
    assert len(digests) == 3
