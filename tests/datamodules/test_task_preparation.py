"""Task definitions: every one is prepared from fake files, kept when nothing changed, and counted
beside the papers."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from benchmarks.counts import CountRow, count_examples, count_rows, counts_table
from core.files import InputError
from datamodules.chineseblue import REPEATED
from datamodules.tasks import KINDS, load_task
from datamodules.tasks import prepare as benchmark_tasks
from datamodules.tasks.definition import derivation_settings
from datamodules.tasks.prepare import all_tasks, find_task, prepare_task, read_splits
from tests.fakes import blurb, chineseblue

ISSUE = {
    "cMedQANER": ("ner", "entity_f1"),
    "cMedQQ": ("pair", "f1"),
    "cMedQNLI": ("pair", "f1"),
    "cMedQA": ("ranking", "acc1"),
    "WebMedQA": ("ranking", "acc1"),
    "CMeEE": ("nested", "entity_f1"),
    "CMeIE": ("relation", "micro_f1"),
    "DXY-RE": ("relation", "micro_f1"),
    "DXY-NER": ("ner", "entity_f1"),
    "KUAKE-QQR": ("pair", "accuracy"),
    "KUAKE-QTR": ("pair", "accuracy"),
    "BC5-chem": ("ner", "entity_f1"),
    "BC5-disease": ("ner", "entity_f1"),
    "NCBI": ("ner", "entity_f1"),
    "BC2GM": ("ner", "entity_f1"),
    "JNLPBA": ("ner", "entity_f1"),
    "ChemProt": ("relation", "micro_f1"),
    "DDI": ("relation", "micro_f1"),
    "GAD": ("relation", "micro_f1"),
    "NeikeQA": ("ranking", "acc1"),
}
VARIANTS = {"cMedQA:clean": "clean", "CMeEE:resplit": "resplit", "CMeIE:resplit": "resplit"}


def write(name: str, folder: Path) -> Path:
    chineseblue.write(find_task(name).dataset, folder)
    return blurb.write(find_task(name).dataset, folder)


def test_the_issues_tasks_are_all_there():
    known = all_tasks()
    assert {n: (t.kind, t.metric) for n, t in known.items() if n not in VARIANTS} == ISSUE
    assert {n: t.variant for n, t in known.items() if t.variant} == VARIANTS
    for definition in known.values():
        assert (
            definition.kind in KINDS
            and definition.language in ("en", "zh")
            and definition.published
        )
        assert (definition.metric == "f1") == (definition.positive is not None)
        assert (definition.kind == "relation") == bool(definition.markers)
    assert (
        known["GAD"].negative == "0"
        and known["DDI"].negative == known["ChemProt"].negative == "false"
    )


def test_aliases_and_unknown_names():
    assert find_task("cNNER") is find_task("CMeEE") or find_task("cNNER") == find_task("CMeEE")
    assert (
        find_task("CHIP-RE").name == "CMeIE"
        and find_task("CHIP-RE:resplit").name == "CMeIE:resplit"
    )
    assert find_task("cNNER:resplit").name == "CMeEE:resplit"
    with pytest.raises(
        InputError,
        match=re.escape(
            "no task 'cMedQAN'; did you mean cMedQANER? Choose from: cMedQANER, cMedQQ, "
        ),
    ):
        find_task("cMedQAN")


@pytest.mark.parametrize("name", all_tasks())
def test_every_task_is_prepared_from_fake_files(name, tmp_path, capsys):
    data = write(name, tmp_path / "data")
    out = prepare_task(name, data, tmp_path / "out")
    loaded = load_task(out)
    definition = find_task(name)
    assert out == tmp_path / "out" and loaded.kind == definition.kind
    manifest = loaded.manifest
    assert (manifest["name"], manifest["suite"], manifest["variant"]) == (
        name,
        definition.suite,
        definition.variant,
    )
    unlabelled = (
        name in ("CMeEE", "CMeIE", "KUAKE-QQR", "KUAKE-QTR") or definition.variant is not None
    )
    assert (
        manifest["scored"] == ("dev" if unlabelled else "test")
        and ("test" in loaded.splits) != unlabelled
    )
    assert manifest["selection"] == ("train" if unlabelled else "dev") and "dev" in loaded.splits
    assert all(manifest["inputs"][f] for f in definition.files["train"])
    said = capsys.readouterr().err
    assert all(note in said for note in manifest["notes"])
    assert ("not the official set" in said) == (definition.variant is not None)
    if definition.kind == "relation":
        assert all(any(m in e.text for m in definition.markers) for e in loaded.splits["train"])
    if definition.negative is not None:
        assert loaded.labels[0] == definition.negative
    # the same files again: kept, silent; other files: built again
    before = (out / "manifest.json").stat().st_mtime_ns
    prepare_task(name, data, out)
    assert (out / "manifest.json").stat().st_mtime_ns == before and capsys.readouterr().err == ""


def test_a_folder_is_built_again_when_files_readers_or_itself_changed(tmp_path, monkeypatch):
    data = write("cMedQQ", tmp_path / "data")
    out = prepare_task("cMedQQ", data, tmp_path / "out")

    def built() -> bool:
        before = (out / "manifest.json").stat().st_mtime_ns
        prepare_task("cMedQQ", data, out)
        return (out / "manifest.json").stat().st_mtime_ns != before

    assert not built()
    (out / "train.jsonl").write_text("")
    assert built() and not built()
    (out / "dev.jsonl").unlink()
    assert built()
    chineseblue.pairs(data / "cMedQQ/train.txt", chineseblue.PAIRS[:3])
    assert built() and len(load_task(out).splits["train"]) == 3
    monkeypatch.setattr(benchmark_tasks, "READERS", 99)
    assert built() and not built()
    (data / "cMedQQ/test.txt").unlink()
    assert built() and load_task(out).manifest["scored"] == "dev"
    (out / "manifest.json").write_text("[]")
    assert built()


def test_missing_files(tmp_path):
    data = write("CMeIE", tmp_path / "data")
    (data / "CMeIE/CMeIE_dev.json").unlink()
    (data / "CMeIE/53_schemas.json").rename(tmp_path / "schema")
    with pytest.raises(
        InputError,
        match=r"53_schemas\.json: no such file; CMeIE_train\.json cannot be read without it",
    ):
        prepare_task("CMeIE", data, tmp_path / "out")
    shutil.rmtree(data)
    with pytest.raises(
        InputError, match=r"CMeIE_train\.json: no such file, .*`make data TASK=CMeIE`.*MIRROR="
    ):
        prepare_task("CMeIE", data, tmp_path / "out")


def test_a_task_without_dev_chooses_its_epoch_on_train(tmp_path, capsys):
    data = write("cMedQQ", tmp_path / "data")
    (data / "cMedQQ/dev.txt").unlink()
    manifest = load_task(prepare_task("cMedQQ", data, tmp_path / "out")).manifest
    assert (manifest["scored"], manifest["selection"]) == ("test", "train")
    assert "cMedQQ: no dev split: a part of train chooses the epoch" in capsys.readouterr().err


def test_a_test_file_without_labels_is_reported(tmp_path, capsys):
    data = write("CMeEE", tmp_path / "data")
    prepare_task("cNNER", data, tmp_path / "out")
    said = capsys.readouterr().err
    assert "CMeEE: test: CMeEE_test.json has no gold labels, so it is not scored" in said
    assert "CMeEE: no test split: dev is scored" in said
    chineseblue.nested(data / "CMeEE/CMeEE_train.json", labels=False)
    with pytest.raises(InputError, match="no gold labels"):
        prepare_task("cNNER", data, tmp_path / "out")


def test_what_is_odd_is_in_the_manifest_and_printed(tmp_path, capsys):
    data = write("ChemProt", tmp_path / "data")
    odd = load_task(prepare_task("ChemProt", data, tmp_path / "out")).manifest["odd"]
    assert odd["train"] == odd["test"] and sum(odd["train"].values()) == 3
    assert "ChemProt: test: 1 gold relations between two sentences" in capsys.readouterr().err


def test_dev_comes_out_of_train_by_whole_documents(tmp_path):
    splits, _, _ = read_splits(find_task("DDI"), write("DDI", tmp_path / "ddi"))
    assert len(splits["dev"]) == 2495 and len(splits["train"]) == 505
    assert not {e.document for e in splits["train"]} & {e.document for e in splits["dev"]}
    splits, _, _ = read_splits(find_task("GAD"), write("GAD", tmp_path / "gad"))
    assert (len(splits["train"]), len(splits["dev"]), len(splits["test"])) == (5, 535, 2)


def test_a_made_task_is_built_again_when_its_settings_change(tmp_path, monkeypatch):
    data = write("NeikeQA", tmp_path / "data")
    out = prepare_task("NeikeQA", data, tmp_path / "out")
    manifest = load_task(out).manifest
    assert (
        manifest["made"] == derivation_settings("NeikeQA") and manifest["made"]["negatives"] == 10
    )
    assert {s: n["documents"] for s, n in manifest["splits"].items()} == manifest["made"]["sizes"]
    assert manifest["splits"]["test"] == {"examples": 5500, "documents": 500, "positive": 500}
    other = {"sizes": {"train": 4, "dev": 3, "test": 3}, "negatives": 2, "seed": 0}
    monkeypatch.setattr(benchmark_tasks, "derivation_settings", lambda name: other)
    again = load_task(prepare_task("NeikeQA", data, out))
    assert {s: len(examples) for s, examples in again.splits.items()} == {
        "train": 12,
        "dev": 9,
        "test": 9,
    }
    monkeypatch.undo()
    plain = load_task(
        prepare_task("cMedQQ", write("cMedQQ", tmp_path / "questions"), tmp_path / "other")
    )
    # the manifests of other tasks, and so their checksums, stay as they are
    assert "made" not in plain.manifest


def test_counts(tmp_path):
    def folder_of(definition):
        if definition.name == "cMedQNLI":
            raise InputError("no such thing here")
        return write(definition.name, tmp_path / definition.dataset)

    rows = count_rows(folder_of)
    assert {row.task for row in rows} == set(all_tasks())
    by = {(r.task, r.split, r.unit): r for r in rows}
    assert by["NCBI", "train", "mentions"] == CountRow(
        "NCBI", "train", "mentions", 4, 5137, "KeBioLM Table 1"
    )
    assert by["NCBI", "train", "mentions"].difference == 4 - 5137
    assert (
        by["cMedQNLI", "dev", "examples"].here is None
        and by["cMedQNLI", "dev", "examples"].difference is None
    )
    assert (
        by["CMeIE", "train", "triples"].here == 4
        and by["cMedQA:clean", "dev", "questions"].here == 1
    )
    table = counts_table(rows)
    lines = table.splitlines()
    assert lines[0].split()[:6] == ["task", "split", "unit", "here", "published", "difference"]
    assert re.search(r"^NCBI +train +mentions +4 +5,137 +-5,133 +KeBioLM Table 1$", table, re.M)
    assert re.search(
        r"^cMedQNLI +dev +examples +- +9,065 +SMedBERT Table 5, EMBERT Table 2$", table, re.M
    )
    assert table.count("cMedQNLI: no such thing here") == 1


def test_a_triple_that_occurs_twice_is_counted_twice():
    assert count_examples("triples", [], {REPEATED: 2}) == 2
    with pytest.raises(ValueError, match="no unit"):
        count_examples("pages", [], {})


def test_manifests_are_plain_json(tmp_path):
    out = prepare_task("GAD", write("GAD", tmp_path / "data"), tmp_path / "out")
    manifest = json.loads((out / "manifest.json").read_text())
    assert (
        manifest["splits"]["dev"]["examples"] == 535
        and manifest["readers"] == benchmark_tasks.READERS
    )
