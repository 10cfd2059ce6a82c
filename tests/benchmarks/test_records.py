"""Published numbers: records, the tables made of them, the check of the documents, and `kepl
publish`."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.publish import publish
from benchmarks.records import (
    ROOT,
    TABLE,
    Record,
    count_complete,
    documents,
    load_records,
    problems,
    render,
    save_records,
    superseded_line,
    write_tables,
)
from benchmarks.results import Model, Result, load_result, save_result
from core.call import run_guarded
from core.files import InputError
from core.json_files import read_json, write_json


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The documents and records of this checkout, to be changed."""
    for page in documents():
        place = tmp_path / page.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, place)
    shutil.copytree(ROOT / "docs" / "results", tmp_path / "docs" / "results", dirs_exist_ok=True)
    return tmp_path


def small(folder: Path, prose: str) -> Path:
    """Two records, a table and a page with some prose."""
    results = folder / "docs" / "results"
    (results / "tables").mkdir(parents=True)
    (results / "constants.json").write_text(json.dumps({"Python 3.11": "the version needed"}))
    (results / "ner.json").write_text(
        json.dumps(
            {
                "commit": "abc",
                "records": [
                    {
                        "id": "f1",
                        "value": 0.8219,
                        "sd": 0.0071,
                        "interval": [0.7991, 0.8444],
                        "seeds": [0, 1, 2],
                    },
                    {
                        "id": "gain",
                        "value": 0.1,
                        "signed": True,
                        "digits": 2,
                        "p": 0.0412,
                        "commit": "def",
                    },
                ],
            }
        )
    )
    (results / "tables" / "ner.md").write_text(
        "| F1 | gain |\n|---|---|\n| {ner/f1} | {ner/gain.value}, p = {ner/gain.p} |\n"
    )
    (folder / "docs" / "page.md").write_text(
        f"# Page\n\n<!-- results: ner -->\n<!-- end -->\n\n{prose}\n"
    )
    return folder


def test_every_number_of_the_documents_is_in_a_record() -> None:
    assert problems() == []


def test_a_changed_digit_in_the_readme_is_found(checkout: Path) -> None:
    readme = checkout / "README.md"
    text = readme.read_text()
    shown = [
        m.end()
        for table in TABLE.finditer(text)
        for m in re.compile(r"\d\.\d+").finditer(text, *table.span())
    ]
    assert len(shown) > 10
    for end in shown:
        readme.write_text(text[: end - 1] + str((int(text[end - 1]) + 1) % 10) + text[end:])
        assert any("README.md" in line for line in problems(checkout)), text[end - 10 : end]
    readme.write_text(text + "\nKeBioLM scores 0.987.\n")
    assert any("0.987 is in no record" in line for line in problems(checkout))


def test_a_changed_record_is_found_and_written(checkout: Path) -> None:
    group, key = re.search(
        r"\{([\w-]+)/([\w-]+)\}", (checkout / "docs/results/tables/readme.md").read_text()
    ).groups()  # type: ignore
    old = load_records(checkout)[group][key]
    save_records(group, [Record(**{**old.__dict__, "value": old.value + 1})], checkout)
    assert any("README.md: the table readme differs" in line for line in problems(checkout))
    assert checkout / "README.md" in write_tables(checkout)
    assert problems(checkout) == []


def test_a_table_shows_value_deviation_and_interval(tmp_path: Path) -> None:
    small(tmp_path, "")
    assert [p.name for p in write_tables(tmp_path)] == ["page.md"]
    assert (
        "| 0.822 ± 0.007 [0.799, 0.844] | +0.10, p = 0.041 |"
        in (tmp_path / "docs" / "page.md").read_text()
    )
    assert write_tables(tmp_path) == []
    record = load_records(tmp_path)["ner"]["gain"]
    assert (record.commit, load_records(tmp_path)["ner"]["f1"].commit) == ("def", "abc")


@pytest.mark.parametrize(
    "prose, wrong",
    [
        ("F1 is 0.822, or 0.82, from 0.799 to 0.844; p = 0.041; a gain of 0.1.", None),
        (
            "Python 3.11, Section 4.1, `--nil 0.8`, [a page](page-1.5.md), 127.0.0.1 and v1.2.3.",
            None,
        ),
        ("```\nloss 5.55\n```", None),
        ("F1 is 0.823.", "0.823"),
        ("A gain of 0.2 points.", "0.2"),
        ("| other | table |\n|---|---|\n| 1,234.5 | |", "1,234.5"),
        ("Python 3.12", "3.12"),
    ],
)
def test_numbers_in_prose(tmp_path: Path, prose: str, wrong: str | None) -> None:
    small(tmp_path, prose)
    write_tables(tmp_path)
    (tmp_path / "docs" / "needs.md").write_text("Python 3.11\n")
    found = problems(tmp_path)
    assert [line.partition(" ")[2].split(" is in")[0] for line in found] == (
        [wrong] if wrong else []
    )
    assert not wrong or found[0].startswith("docs/page.md:")


def test_numbers_of_another_page_do_not_count(tmp_path: Path) -> None:
    small(tmp_path, "")
    write_tables(tmp_path)
    (tmp_path / "docs" / "other.md").write_text("F1 is 0.822; Python 3.11.\n")
    assert len(problems(tmp_path)) == 1
    (tmp_path / "docs" / "other.md").write_text(
        "<!-- numbers: ner -->\nF1 is 0.822; Python 3.11.\n"
    )
    assert problems(tmp_path) == []
    (tmp_path / "docs" / "other.md").write_text("<!-- numbers: nothing -->\nPython 3.11\n")
    assert problems(tmp_path) == ["docs/other.md: no group of records nothing"]


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    results = small(tmp_path, "Python 3.11") / "docs" / "results"
    (results / "tables" / "ner.md").write_text("{ner/recall}")
    with pytest.raises(InputError, match="no record ner/recall"):
        problems(tmp_path)
    (results / "ner.json").write_text('{"records": [{"id": "a", "value": 1, "colour": "red"}]}')
    with pytest.raises(InputError, match="expected fields of a record, got colour"):
        load_records(tmp_path)
    (results / "ner.json").write_text(
        '{"records": [{"id": "a", "value": 1}, {"id": "a", "value": 2}]}'
    )
    with pytest.raises(InputError, match="two records with the id 'a'"):
        load_records(tmp_path)
    shown = [Record(id="a", value=1, p=p).part("p") for p in (0.00003, 0.0004, 0.0412, 0.5)]
    assert shown == ["< 0.0001", "0.0004", "0.041", "0.50"]
    with pytest.raises(InputError, match="has no part 'sd'"):
        Record(id="a", value=1).part("sd")


def run(
    folder: Path,
    model: str,
    seed: int,
    hits: list[int],
    protocol: str = "one",
    of: str = "h-seed{}",
) -> Path:
    tally = np.array([[hit, 1] for hit in hits])
    result = Result(
        kind="synonyms",
        task="D1",
        split="test",
        metric="acc@1",
        protocol={"samples": protocol},
        model=Model(model, of.format(seed)),
        scores={"overall": {"acc@1": float(np.mean(hits))}},
        tallies={"acc@1": tally},
        seed=seed,
        argv=["synonyms", "--model", model],
        commit="abc123",
        data={"samples": "0f" * 32},
    )
    save_result(result, folder / model / f"seed{seed}")
    return folder / model


def test_runs_become_records(tmp_path: Path) -> None:
    for seed in (0, 1):
        new = run(tmp_path / "runs", "new", seed, [1] * (30 - seed) + [0] * (10 + seed))
        old = run(tmp_path / "runs", "old", seed, [1] * 10 + [0] * 30)
    (tmp_path / "docs" / "results").mkdir(parents=True)
    file, records = publish([new], "synonyms", [old], "two cores", tmp_path)
    first, difference = load_records(tmp_path)["synonyms"].values()
    assert [r.id for r in records] == [first.id, difference.id]
    assert first.value == pytest.approx((30 / 40 + 29 / 40) / 2, abs=1e-6) and first.sd is not None
    assert first.interval is not None and first.interval[0] < first.value < first.interval[1]
    assert (first.seeds, first.commit, first.machine) == ([0, 1], "abc123", "two cores")
    assert (first.argv, dict(first.data)) == (
        ["synonyms", "--model", "new"],
        {"samples": "0f" * 32},
    )
    assert (
        difference.signed
        and difference.value > 0.4
        and difference.p is not None
        and difference.p < 0.01
    )
    assert difference.metric == "acc@1 minus old"
    publish([new], "synonyms", machine="m", root=tmp_path)
    assert [r.machine for r in load_records(tmp_path)["synonyms"].values()] == ["m", "two cores"]
    assert file.read_text().count("\n  {") == 2
    _, records = publish([new, old], "both", [old], root=tmp_path)
    assert len(records) == 3  # no difference of the one from itself


def test_runs_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    one = run(tmp_path / "runs", "one", 0, [1, 0])
    other = run(tmp_path / "runs", "other", 0, [1, 0], protocol="another")
    with pytest.raises(InputError, match="different protocols"):
        publish([one, other], "g", root=tmp_path)
    with pytest.raises(InputError, match="different protocols"):
        publish([one], "g", [other], root=tmp_path)
    with pytest.raises(InputError, match=r"expected a folder with result\.json"):
        publish([tmp_path / "nothing"], "g", root=tmp_path)
    with pytest.raises(InputError, match="expected letters"):
        publish([one], "../g", root=tmp_path)


def test_a_difference_is_recorded_with_the_seeds_that_it_is_over(tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        new = run(tmp_path / "runs", "new", seed, [1] * (30 - seed) + [0] * (10 + seed))
    for seed in (1, 2):
        old = run(tmp_path / "runs", "old", seed, [1] * 10 + [0] * 30)
    _, records = publish([new], "g", [old], root=tmp_path)
    assert [record.seeds for record in records] == [[0, 1, 2], [1, 2]]
    assert records[1].value == pytest.approx((29 + 28) / 80 - 10 / 40, abs=1e-6)


def test_results_keep_the_command_that_made_them(tmp_path: Path) -> None:
    one = run(tmp_path / "runs", "one", 0, [1, 0])
    (file,) = one.glob("**/result.json")
    unnamed = replace(load_result(file.parent), argv=())

    def score(words: list[str]) -> int:
        save_result(unnamed, file.parent)
        return 0

    assert run_guarded(score, ["synonyms", "--quiet", "--model", "one"]) == 0
    _, [record] = publish([one], "g", root=tmp_path)
    assert record.argv == ["synonyms", "--model", "one"]
    write_json(file, read_json(file) | {"argv": []})
    with pytest.raises(InputError, match=r"no argv, so nobody can make this result again"):
        publish([one], "g", root=tmp_path)


def test_a_linker_has_a_record_of_each_score(tmp_path: Path) -> None:
    hits = np.array([[1, 1], [0, 1], [1, 1], [1, 1]])
    result = Result(
        kind="linking",
        task="A-EL",
        split="test",
        metric="acc@1",
        protocol={},
        model=Model("one"),
        scores={
            "overall": {"acc@1": 0.75, "mrr": 0.8, "examples": 4},
            "overlap": {"acc@1": 0.5, "mrr": 0.6, "examples": 2},
            "unseen": {"acc@1": 0.5, "examples": 2},
        },
        tallies={"acc@1": hits, "overlap": hits[:2]},
        argv=["evaluate", "A-EL"],
        commit="abc123",
    )
    save_result(result, tmp_path / "runs" / "one")
    _, records = publish([tmp_path / "runs"], "g", root=tmp_path)
    values = {record.id: record.value for record in records}
    assert values == {
        "a-el-one-acc-1": 0.75,
        "a-el-one-mrr": 0.8,
        "a-el-one-overlap-acc-1": 0.5,
        "a-el-one-overlap-mrr": 0.6,
    }
    intervals = {record.id for record in records if record.interval}
    assert intervals == {"a-el-one-acc-1", "a-el-one-overlap-acc-1"}


def test_a_copied_number_is_shown_in_the_history_alone(checkout: Path) -> None:
    before = problems(checkout)
    file = checkout / "docs" / "results" / "knowledge-embert.json"
    content = read_json(file)
    content["records"][0]["source"] = "copied"
    write_json(file, content)
    shown = sorted(set(problems(checkout)) - set(before))
    tables = {line.partition("the table ")[2].split()[0] for line in shown if "the table" in line}
    assert "knowledge-embert" in tables
    assert all("copied from earlier documents" in line for line in shown if "the table" in line)
    text = "<!-- results: knowledge-embert -->\n<!-- end -->\n"
    for page in checkout.glob("**/*.md"):
        if "tables" not in page.parts:
            page.unlink()
    (checkout / "docs" / "results" / "history.md").write_text(text)
    write_tables(checkout)
    assert not [line for line in problems(checkout) if "copied" in line]
    (checkout / "docs" / "page.md").write_text(text)
    write_tables(checkout)
    assert len([line for line in problems(checkout) if "copied" in line]) == 1


def test_a_table_says_which_numbers_do_not_keep_their_command(tmp_path: Path) -> None:
    whole = Record(id="a", value=1, argv=["link"], commit="c" * 40)
    older = Record(id="b", value=2, commit=f"{'a' * 40}+changes, {'b' * 40}")
    unknown = Record(id="c", value=2)
    copied = Record(id="d", value=3, source="copied")
    assert superseded_line([whole, copied]) == ""
    line = "\n*Measured at commits aaaaaaa, bbbbbbb, before results kept their command.*\n"
    assert superseded_line([whole, older]) == line
    assert "at a commit that is not on record" in superseded_line([unknown])
    save_records("g", [whole, older], tmp_path)
    (tmp_path / "docs" / "results" / "tables").mkdir()
    template = tmp_path / "docs" / "results" / "tables" / "t.md"
    template.write_text("{g/a} {g/b}\n")
    assert render("t", load_records(tmp_path), tmp_path) == f"1.000 2.000\n{line}"


def test_what_records_lack_is_counted(tmp_path: Path) -> None:
    whole = Record(id="a", value=1, argv=["link"], commit="c", data={"text": "0f"})
    lacking = [replace(whole, id="b", argv=()), replace(whole, id="c", source="copied", argv=())]
    save_records("g", [whole, *lacking], tmp_path)
    assert count_complete(tmp_path).startswith("3 records: 1 with their command's words")
    assert "; 0 with command and commit alone; 1 measured before results kept them; 1 copied" in (
        count_complete(tmp_path)
    )


@pytest.mark.parametrize("of", ["", "h-seed{}"])
def test_two_results_of_one_seed_are_no_two_seeds(tmp_path: Path, of: str) -> None:
    run(tmp_path / "runs" / "fp32", "one", 0, [1, 0], of=of)
    run(tmp_path / "runs" / "bf16", "one", 0, [1, 1], of=of)
    other = run(tmp_path / "other", "other", 0, [1, 0], of=of)
    for folders, against in (([tmp_path / "runs"], []), ([other], [tmp_path / "runs"])):
        with pytest.raises(
            InputError, match=r"fp32\S* and \S*bf16\S* are both one with seed 0. Give one of"
        ):
            publish(folders, "g", against, root=tmp_path)
    assert not (tmp_path / "docs").exists()


def test_a_score_that_its_outcomes_do_not_come_to_is_not_published(tmp_path: Path) -> None:
    one = run(tmp_path / "runs", "one", 0, [1, 0])
    (file,) = one.glob("**/result.json")
    record = read_json(file)
    for group in record["scores"].values():
        group[record["metric"]] = 0.75
    write_json(file, record)
    with pytest.raises(InputError, match=r"result\.json: .* is 0\.750000, but outcomes\.parquet"):
        publish([one], "g", root=tmp_path)
    assert not (tmp_path / "docs").exists()
