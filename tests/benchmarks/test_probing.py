"""make probe: what counts as right, macro recall by hand, summaries, comparison, examples and
Tables 5 and 6."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoTokenizer, BertForMaskedLM

from app.cli import main
from benchmarks import probing
from benchmarks.commands import Probe
from benchmarks.groups import group_results
from benchmarks.options import Choices
from benchmarks.paired_tests import STYLES, difference
from benchmarks.probing import (
    Guess,
    best_distinct,
    by_query,
    examples,
    form,
    guesses,
    hits,
    never_guessed,
    sample_queries,
    scores_of,
    tallies,
    tallies_of,
)
from benchmarks.results import list_stored
from core.files import InputError
from core.json_files import write_json
from datamodules.probing import Query, load_queries
from models.kebiolm import KeBioLM
from models.metrics import score
from models.probing import masked_lm
from tests.fakes import results as fake
from tests.fakes.kebiolm import Folders
from tests.fakes.results import markdown


def query(text: str, relation: str, within: bool = False, *names: str) -> Query:
    return Query(text, relation, "tail", [f"id {n}" for n in names], [[n] for n in names], within)


def guess(
    number: int, masks: int, rank: int, text: str, score: float, right: bool = False
) -> Guess:
    return Guess(number, masks, rank, text, score, right)


def test_names_are_compared_in_lower_case_without_spaces() -> None:
    assert (
        form("Non-Small  cell")
        == form("non - small cell")
        == form("non-small cell")
        != form("non small cell")
    )


def test_macro_recall_by_hand() -> None:
    """Relation a: 1 of 4 answered, relation b: 1 of 1: the mean is 0.625, whatever the number of
    queries."""
    asked = [query("", "a")] * 4 + [query("", "b")]
    hit = np.array([1.0, 0, 0, 0, 1])
    t = tallies(asked, hit, np.ones(5, bool))
    assert score(t) == pytest.approx((0.25 + 1) / 2) and t[:, 1].sum() == pytest.approx(5)
    assert score(tallies(asked, hit, np.array([1, 1, 0, 0, 0], bool))) == pytest.approx(0.5)


def test_strict_selects_the_best_different_guesses_by_mean_log_probability() -> None:
    own = [
        guess(0, 1, 1, "a", -1.0),
        guess(0, 2, 1, "b b", -1.8),
        guess(0, 2, 2, "A", -1.9),
        guess(0, 3, 1, "c", -6.0),
        guess(0, 1, 2, "d", -3.0),
        guess(0, 1, 3, "e", -4.0),
        guess(0, 1, 4, "f", -5.0, right=True),
    ]
    assert [g.text for g in best_distinct(own)] == ["b b", "A", "c", "d", "e"]
    assert {k: v.tolist() for k, v in hits([own, []]).items()} == {
        "recall": [1.0, 0.0],
        "strict": [0.0, 0.0],
    }


def test_results_by_type() -> None:
    asked = [query("", "a", True), query("", "a"), query("", "b")]
    several = [[guess(0, 1, 1, "x", -1.0, True)], [], [guess(2, 1, 1, "x", -1.0)]]
    found = scores_of(asked, tallies_of(asked, several))
    assert found["all"]["recall"] == pytest.approx(0.25) and found["type 1"]["recall"] == 1
    assert (
        found["type 2"]["recall"] == 0
        and found["type 2"]["relations"] == 2
        and found["all"]["examples"] == 3
    )
    assert "type 1" not in scores_of(asked[1:], tallies_of(asked[1:], several[1:]))


def test_a_sample_is_drawn_by_seed() -> None:
    asked = [query(str(i), "a") for i in range(50)]
    some = sample_queries(asked, 10, 0)
    assert len(some) == 10 and some == sample_queries(asked, 10, 0) != sample_queries(asked, 10, 1)
    assert [int(q.text) for q in some] == sorted(int(q.text) for q in some)
    assert sample_queries(asked, None, 0) == sample_queries(asked, 99, 0) == asked


@pytest.fixture
def tiny(fake_kebiolm: Folders, tmp_path: Path) -> str:
    """The fake BERT with a head."""
    torch.manual_seed(0)
    BertForMaskedLM.from_pretrained(fake_kebiolm.bert).save_pretrained(tmp_path / "tiny")
    AutoTokenizer.from_pretrained(fake_kebiolm.bert).save_pretrained(tmp_path / "tiny")
    return str(tmp_path / "tiny")


def test_guesses_are_the_models(tiny: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    lm = masked_lm(tiny)
    asked = [
        query("renal failure near [MASK].", "r", False, "X"),
        query("[MASK] near hepatic tumor.", "r", False, "Y"),
    ]
    with torch.no_grad():
        model = BertForMaskedLM.from_pretrained(tiny).eval()
        ids = tokenizer(asked[0].text, return_tensors="pt")["input_ids"]
        table = (
            model(input_ids=ids)
            .logits[0, ids[0].tolist().index(tokenizer.mask_token_id)]
            .log_softmax(-1)
        )
    table[never_guessed(tokenizer)] = -torch.inf
    wanted = [
        tokenizer.convert_ids_to_tokens(int(t)).removeprefix("##") for t in table.topk(5).indices
    ]
    asked[0] = asked[0]._replace(names=[["nothing", wanted[2].upper()]])
    found, left_out = guesses(lm, tokenizer, asked, masks=2)
    first = [g for g in found if g.query == 0 and g.masks == 1]
    assert [g.text for g in first] == wanted and [g.right for g in first] == [
        form(w) == form(wanted[2]) for w in wanted
    ]
    assert [g.score for g in first] == pytest.approx(table.topk(5).values.tolist(), abs=1e-4)
    assert len(found) == 20 and not left_out
    special = set(tokenizer.convert_ids_to_tokens(never_guessed(tokenizer)))
    assert special == set(tokenizer.all_special_tokens)
    lm.max_length = len(tokenizer(asked[1].text)["input_ids"])
    short, left_out = guesses(lm, tokenizer, asked[1:], masks=2)
    assert len(short) == 5 and dict(left_out) == {"queries too long for the model with 2 masks": 1}
    with pytest.raises(InputError, match="expected one mask token in this query, got 2"):
        guesses(lm, tokenizer, [query("[MASK] [MASK].", "r")])


def export_of(fake: Folders, folder: Path) -> Path:
    """A KeBioLM's export that finds mentions, without training."""
    torch.manual_seed(1)
    model = KeBioLM(fake.bert, fake.entities, text_layers=2, candidates=7)
    model.configure_model()
    assert model.encoder is not None
    nn.init.normal_(model.encoder.detector.weight)
    folder.mkdir(parents=True)
    model.export(folder)
    AutoTokenizer.from_pretrained(fake.bert).save_pretrained(folder)
    write_json(folder / "manifest.json", {"paper": "kebiolm", "checksums": {}})
    return folder


def test_from_a_graph_to_a_comparison(
    fake_kebiolm: Folders, tiny: str, tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"GRAPH={fake_kebiolm.graph}", "MASKS=2", "LIMIT=12"]
    assert main(["probe", f"MODEL={tiny}", *words]) == 0
    said = capsys.readouterr()
    assert (
        "12 of 78 queries" in said.err and "recall@5" in said.out and "up to 10 guesses" in said.out
    )
    (result,) = list_stored("probing")
    assert (
        result.protocol["beams"] == 5
        and result.protocol["masks"] == 2
        and result.scores["all"]["examples"] == 12
    )
    assert result.details["guesses"]["at most"] == 10 and result.mlflow_run
    asked = sample_queries(load_queries(result.details["asked"]), 12, 0)
    kept = tallies_of(asked, by_query(probing.guesses_in(result.folder), 12))
    assert scores_of(asked, kept) == result.scores and all(
        np.array_equal(kept[k], result.tallies[k]) for k in kept
    )
    export = export_of(fake_kebiolm, tmp_path / "kebiolm" / "seed0" / "export")
    assert main(["probe", f"MODEL={export}", *words]) == 0
    said = capsys.readouterr()
    assert (
        f"all, against {result.label} (" in said.out
        and "strict" in said.out
        and "Examples" in said.out
    )
    assert main(["probe", f"MODEL={fake_kebiolm.bert}", *words, "METHOD=confidence"]) == 0
    said = capsys.readouterr()
    # asked in another way
    assert (
        "no masked-LM head" in said.err and "without head" in said.out and "against" not in said.out
    )
    assert list_stored("probing")[-1].details["guesses"]["at most"] == 2


def test_tables(runs: Path) -> None:
    fake.probed("kebiolm", 0.05)
    text = markdown("kebiolm", "6")
    assert (
        "| KeBioLM | 14.01 | 1.48 | 5.00 [" in text
        and "| 3.26 | 5.00 [" in text
        and "| 1.00 [0.00, " in text
    )
    fake.probed("minilm", 0.02, options={"head": False}, masks=3)
    with pytest.raises(InputError, match="kebiolm: masks 10; minilm without head: masks 3"):
        markdown("kebiolm", "6")
    assert "2.00" in markdown("kebiolm", "6", Choices(masks=3, graph="hpo"))
    write_json(
        runs / "data" / "probing" / "hpo" / "manifest.json",
        {"counts": {"queries": 1404, "relations": 8}},
    )
    text = markdown("kebiolm", "5")
    assert "| queries | 143,771 | 1,404 |" in text and "| answers a query, mean | 2.39 |  |" in text


def test_examples_show_models_side_by_side() -> None:
    asked = [
        query("a r [MASK].", "r", False, "Liver"),
        query("b r [MASK].", "r"),
        query("c s [MASK].", "s", True, "x"),
    ]
    right = [
        guess(0, 1, 2, "liver", -3.0, True),
        guess(0, 1, 1, "it", -1.0),
        guess(0, 2, 1, "the form", -2.0),
    ]
    scored = {"one": [right, [], []], "two": [[guess(0, 1, 1, "it", -1.0)], [], []]}
    text = examples(asked, scored)
    lines = text.splitlines()
    assert "a r [MASK].  Type 2; Liver" in lines and any(
        line.split() == ["one", "*liver*", "|", "the", "form"] for line in lines
    )
    assert any(line.split() == ["two", "it", "|", "-"] for line in lines) and "b r [MASK]." in text


def test_differences_are_paired(runs: Path) -> None:
    asked = [query(str(i), "r") for i in range(20)]
    ours, theirs = (
        [[guess(i, 1, 1, "x", -1.0, i < right)] for i in range(20)] for right in (15, 5)
    )
    made = [
        replace(fake.probed(name, 0.5), tallies=tallies_of(asked, several))
        for name, several in (("a", ours), ("m", theirs))
    ]
    told = difference(
        group_results(made)["a"], group_results(made)["m"], "all/recall", STYLES["probing"]
    )
    assert told is not None and told.startswith("+50.00, 95 % interval +")


def test_bad_input(
    fake_kebiolm: Folders, tiny: str, tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, message in (
        (["GRAPH=nowhere"], "GRAPH=nowhere: no such folder"),
        (["GRAPH=medlama"], "MIRROR= must say where"),
        (["METHOD=greedy"], "METHOD=greedy: expected one of beam, confidence"),
        (["METHOD=confidence", "BEAM=3"], "METHOD=confidence has one beam"),
        (["MASKS=0"], "MASKS=0, BEAM=None, SIZE=8192, LIMIT=None: expected numbers"),
        (["LIMIT=x"], "LIMIT=x: expected a whole number"),
        ([f"GRAPH={fake_kebiolm.graph}", "TEMPLATES=human_prompt"], "only GRAPH=medlama"),
        (["PROMPTS=human_prompt"], "PROMPTS: this setting is now called TEMPLATES"),
        (["SIZES=3"], "no setting SIZES; did you mean SIZE?"),
        (["hpo"], "unexpected 'hpo'"),
        ([f"GRAPH={fake_kebiolm.graph}", "MODEL=kebiolm"], "no finished run"),
    ):
        model = [] if any(w.startswith("MODEL=") for w in words) else [f"MODEL={tiny}"]
        assert main(["probe", *model, *words]) == 2, words
        assert message in capsys.readouterr().err
    with pytest.raises(InputError, match="no knowledge graph here"):
        Probe(model=tiny, graph=str(tmp_path)).run()
    assert list_stored("probing") == []
