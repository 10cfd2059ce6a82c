"""KeBioLM as a linker: the nearest entities by brute force, the concepts that they represent,
windows around mentions."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from app.cli import main
from core.files import InputError
from core.json_files import write_json
from datamodules.contexts import mark_mention
from datamodules.kebiolm import KeBioLMData
from datamodules.linking import Dictionary
from datamodules.tasks.linking import linking_task
from datamodules.tokenizers import load_tokenizer
from inference.entity_table import EntityReader, table_of
from inference.linkers import Names
from kg.vectors.embeddings import EmbeddingTable
from models.kebiolm import KeBioLM, KeBioLMEncoder
from models.transformer_files import load_bert
from tests.fakes.kebiolm import Folders

TEXT = "the patient shows renal failure and a rare cardiac lesion under onset"
NAMES = {
    "E1": ["renal failure"],
    "E2": ["cardiac lesion", "heart lesion"],
    "E3": ["nasal spasm"],
    "E4": [],
}


class Words:
    """A tokenizer whose tokens are words."""

    cls_token_id, sep_token_id, unk_token_id = 1, 2, 3

    def __call__(self, texts: str | list[str], **_: object) -> dict[str, list]:  # type: ignore[type-arg]
        if isinstance(texts, str):
            return {"input_ids": [10 + int(w[1:]) for w in texts.split()]}
        offsets = [[m.span() for m in re.finditer(r"\S+", text)] for text in texts]
        return {
            "input_ids": [[10 + int(w[1:]) for w in text.split()] for text in texts],
            "offset_mapping": offsets,
        }


WORDS = Words()


@pytest.fixture
def model(fake_kebiolm: Folders) -> KeBioLMEncoder:
    torch.manual_seed(0)
    return KeBioLMEncoder(load_bert(fake_kebiolm.bert), torch.randn(4, 8), text_layers=2).eval()


def reader(model: KeBioLMEncoder, fake_kebiolm: Folders, **more: int) -> EntityReader:
    return EntityReader(
        model, load_tokenizer(fake_kebiolm.bert), list(NAMES), NAMES, "fake", **more
    )


def context(mention: str) -> str:
    start = TEXT.index(mention)
    return mark_mention(TEXT, start, start + len(mention))


@torch.no_grad()
def test_scores_are_eq_3_by_hand(model: KeBioLMEncoder, fake_kebiolm: Folders) -> None:
    tokenizer = load_tokenizer(fake_kebiolm.bert)
    (found,) = reader(model, fake_kebiolm).nearest(["cardiac lesion"], [context("cardiac lesion")])
    ids = [
        tokenizer.cls_token_id,
        *tokenizer(TEXT, add_special_tokens=False)["input_ids"],
        tokenizer.sep_token_id,
    ]
    words = tokenizer.convert_ids_to_tokens(ids)
    first = words.index("cardiac")
    # after two layers
    states = model.bert(torch.tensor([ids]), output_hidden_states=True).hidden_states[2][0]
    query = model.mention_projection(torch.cat([states[first], states[first + 1]]))
    by_hand = (model.entity @ query).tolist()
    assert [row for row, _ in found] == sorted(range(4), key=lambda i: -by_hand[i])
    assert np.allclose([s for _, s in found], sorted(by_hand, reverse=True), atol=1e-4)


def test_the_same_whatever_the_batch(model: KeBioLMEncoder, fake_kebiolm: Folders) -> None:
    mentions = ["cardiac lesion", "renal failure", "nasal"]
    contexts = [context("cardiac lesion"), context("renal failure"), None]
    whole = reader(model, fake_kebiolm).nearest(mentions, contexts)
    single = reader(model, fake_kebiolm, tokens=1).nearest(mentions[::-1], contexts[::-1])[::-1]
    for one, other in zip(whole, single, strict=True):
        assert [r for r, _ in one] == [r for r, _ in other]
        assert np.allclose([s for _, s in one], [s for _, s in other], atol=1e-4)


def test_one_reading_serves_all_mentions_of_a_text(
    model: KeBioLMEncoder, fake_kebiolm: Folders
) -> None:
    """And each is found as in a window of its own, where the text fits."""
    one = reader(model, fake_kebiolm)
    mentions = ["renal failure", "cardiac lesion", "onset"]
    (reading,) = one.readings(mentions, [context(m) for m in mentions])
    for number, first, last in reading.spans:
        ids, start, end = one.inputs(mentions[number], context(mentions[number]))
        assert reading.ids == ids and (first, last) == (start, end)
    assert [number for number, *_ in reading.spans] == [0, 1, 2]
    part = TEXT.replace("renal failure", "START renal failur ENDe")
    alone = one.readings(
        ["renal failur", "renal failure", "\x00"], [part, context("renal failure"), None]
    )
    # a part of a word, and what has no token, is read by itself
    assert sorted(len(r.spans) for r in alone) == [1, 1, 1]
    assert one.readings([], []) == []


@settings(max_examples=60, deadline=None)
@given(words=st.integers(1, 60), room=st.integers(8, 40), at=st.data())
def test_windows_hold_every_mention_with_something_beside_it(
    words: int, room: int, at: st.DataObject
) -> None:
    """Each mention is in one reading, whole; windows are no longer than allowed, and as few as
    share a quarter."""
    one = SimpleNamespace(tokenizer=WORDS, max_length=room + 2)
    one.inputs = lambda m, c: EntityReader.inputs(one, m, c)  # type: ignore[arg-type]
    text = " ".join(f"w{i}" for i in range(words))
    chosen = at.draw(st.lists(st.integers(0, words - 1), min_size=1, max_size=8, unique=True))
    mentions = [f"w{i}" for i in chosen]
    contexts = [re.sub(rf"\b{m}\b", f"START {m} END", text) for m in mentions]
    found = EntityReader.readings(one, mentions, contexts)  # type: ignore[arg-type]
    seen = {}
    for reading in found:
        assert len(reading.ids) <= room + 2 and reading.ids[0] == 1 and reading.ids[-1] == 2
        for number, first, last in reading.spans:
            seen[number] = reading.ids[first:last]
            sides_ = first - 1, len(reading.ids) - 1 - last
            whole = (chosen[number], words - 1 - chosen[number])
            assert all(
                side >= min(own, room // 4 // 2 - 1)
                for side, own in zip(sides_, whole, strict=True)
            )
    assert seen == {n: [10 + i] for n, i in enumerate(chosen)}
    assert len(found) <= 1 + max(0, math.ceil((words - room) / (room - room // 4)))


def test_inputs_are_cut_around_the_mention_and_never_lose_it(
    model: KeBioLMEncoder, fake_kebiolm: Folders
) -> None:
    one = reader(model, fake_kebiolm, max_length=8)
    tokens = one.tokenizer.convert_ids_to_tokens
    ids, start, end = one.inputs("cardiac lesion", context("cardiac lesion"))
    assert tokens(ids) == ["[CLS]", "a", "rare", "cardiac", "lesion", "under", "onset", "[SEP]"]
    assert tokens(ids[start:end]) == ["cardiac", "lesion"]
    ids, start, end = one.inputs(" ".join(["renal"] * 20), None)
    assert tokens(ids) == ["[CLS]", *["renal"] * 6, "[SEP]"] and (start, end) == (1, 7)
    ids, start, end = one.inputs("\x00", None)  # nothing that the tokenizer keeps
    assert tokens(ids[start:end]) == ["[UNK]"]


def test_an_entity_represents_the_concept_of_its_id_or_else_of_its_names(
    model: KeBioLMEncoder, fake_kebiolm: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        ("E1", "kidney failing"),
        ("D2", "heart lesion"),
        ("D3", "Heart Lesion"),
        ("D9", "unknown"),
    ]
    dictionary = Names(Dictionary([i for i, _ in rows], [n for _, n in rows]), "lower")
    linker = reader(model, fake_kebiolm).on(dictionary)
    assert linker.means == ["E1", None, None, None]
    assert linker.names_of == [["kidney failing"], ["heart lesion"], [], []]
    assert "3 of the dictionary's 4 concepts are entities of the model" in capsys.readouterr().err
    (ranking,) = linker.link(["cardiac lesion"], [context("cardiac lesion")])
    order = [
        row for row, _ in linker.reader.nearest(["cardiac lesion"], [context("cardiac lesion")])[0]
    ]
    by_hand = [c for row in order for c in {0: ["E1"], 1: ["D2", "D3"]}.get(row, [])]
    assert [c.concept for c in ranking] == by_hand
    assert {c.concept: c.tied for c in ranking} == {"E1": False, "D2": True, "D3": True}
    # an entity table has no language: on a bilingual graph the id says which entity it is
    chinese = Names(Dictionary(["E1"], ["肾衰竭"]), "lower")
    assert reader(model, fake_kebiolm).on(chinese).means[0] == "E1"
    with pytest.raises(InputError, match="none of the dictionary's 1 concepts"):
        reader(model, fake_kebiolm).on(Names(Dictionary(["Z"], ["zzz"]), "lower"))


def export_of(folders: Folders, folder: Path) -> Path:
    module = KeBioLM(folders.bert, folders.entities, text_layers=2)
    module.configure_model()
    folder.mkdir(parents=True)
    module.export(folder)
    data = KeBioLMData(
        folders.corpus, folders.bert, folders.entities, batch_size=16, graph=folders.graph
    )
    data.setup()
    data.export(folder)
    write_json(folder / "manifest.json", {"paper": "kebiolm", "checksums": {}})
    return folder


def test_evaluate_links_with_the_table_and_by_names(
    fake_kebiolm: Folders,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from tests.fakes import linking as fakes

    monkeypatch.setenv("KEPL_RUNS", str(tmp_path / "runs"))
    export = export_of(fake_kebiolm, tmp_path / "export")
    table = EmbeddingTable.load(fake_kebiolm.entities)
    ids, names = table_of(export)
    assert ids == table.entity_ids and names["E000"] == ["renal failure"]
    data = fakes.write(tmp_path / "data") / str(linking_task("NCBI-EL").dataset)
    words = ["evaluate", "NCBI-EL", f"DATA={data}", f"MODEL={export}"]
    assert main([*words, "BY=names"]) == 0
    assert "cls" in capsys.readouterr().out
    assert main(words) == 0
    told = capsys.readouterr()
    # of the fake dictionary only "renal failure" (D004) is a name of an entity of the model
    assert (
        "1 of the dictionary's" in told.err
        and "export-" in told.out
        and "against tfidf" in told.out
    )
    (file,) = (tmp_path / "runs" / "linking" / "NCBI-EL").glob("*/*entities*/predictions.jsonl")
    found = [json.loads(line)["first5"] for line in file.read_text().splitlines()]
    assert {c for rankings in found for ranking in rankings for c in ranking} == {"D004"}
    shutil.copytree(export, tmp_path / "broken")
    (tmp_path / "broken" / "entities.txt").unlink()
    assert main(["evaluate", "NCBI-EL", f"DATA={data}", f"MODEL={tmp_path / 'broken'}"]) == 2
    assert "entities.txt: missing" in capsys.readouterr().err


def test_another_way_of_linking_is_one_error(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path / "runs"))
    assert main(["evaluate", "HPO-EL", "MODEL=minilm", "BYE=names"]) == 2
    assert "no setting BYE; did you mean BY?" in capsys.readouterr().err
