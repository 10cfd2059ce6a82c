"""kepl measure speed: the JSON that every benchmark prints, and its guards."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from benchmarks.perf import speed
from benchmarks.perf.speed import (
    decode,
    finetune_batches,
    kebiolm_link,
    linking,
    miner,
    names_embedding,
    neighbours,
    probe,
    pubmed_link,
    sapbert_step,
)
from benchmarks.results import list_stored
from kg.build.sources import hpo
from kg.search.trie import Ragged, Trie
from tests.commands import command
from tests.fakes import hpo as fake_hpo

pytestmark = pytest.mark.usefixtures("preloaded", "runs")
measure = command("measure speed")


def test_unknown_name(capsys):
    assert speed.speed_names() and "linking" in speed.speed_names()
    assert measure(["nothing", "--json"]) == 2
    assert (
        capsys.readouterr().err
        == f"error: no benchmark 'nothing'; choose from: {', '.join(speed.speed_names())}\n"
    )


@pytest.mark.slow
def test_linking_prints_its_result(capsys, monkeypatch):
    hpo = linking.hpo()
    monkeypatch.setattr(linking, "hpo", lambda: (hpo[0].slice(0, 5000), *hpo[1:3], hpo[3][:50]))
    assert (
        measure(["linking", "--json", "--repeats", "1", "--names", "2000", "--abstracts", "20"])
        == 0
    )
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    result = json.loads(printed)
    assert set(result) >= set(speed.KEYS)
    assert result["equal"] is True and result["name"] == "linking"
    assert result["ratio"] == min(s["ratio"] for s in result["settings"]) > 0
    assert [s["setting"] for s in result["settings"]] == ["hpo", "umls_like"]
    assert result["settings"][1]["memory_mb"] < 100 and all(
        s["mentions"] for s in result["settings"]
    )


def test_different_results_exit_1(capsys, monkeypatch):
    settings = [{"setting": "x", "ratio": 1}]
    same = dict.fromkeys(speed.KEYS, 1) | {"name": "linking", "settings": settings}
    monkeypatch.setattr(linking, "measure_speed", lambda: same)
    assert measure(["linking"]) == 0
    (result,) = list_stored("speed")
    assert result.value() == 1 and result.scores["x"] == {"ratio": 1}
    assert "1 times the reference at worst, same results" in capsys.readouterr().out
    monkeypatch.setattr(
        linking,
        "measure_speed",
        lambda: same | {"equal": False, "settings": []},
    )
    assert measure(["linking"]) == 1
    assert "RESULTS DIFFER, not saved" in capsys.readouterr().out
    (kept,) = list_stored("speed")
    assert kept.created == result.created and kept.scores == result.scores
    monkeypatch.setattr(linking, "measure_speed", lambda: {"equal": True})
    with pytest.raises(ValueError, match="lacks name, ours"):
        measure(["linking"])


def test_finetune_batches_prints_its_result(capsys, tmp_path, monkeypatch):
    """With an encoder of one small layer in place of MiniLM, but its tokens."""
    small = BertConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    BertModel(small, add_pooling_layer=False).save_pretrained(tmp_path)
    monkeypatch.setattr(
        finetune_batches,
        "TextEncoder",
        lambda name, real=finetune_batches.TextEncoder: real(str(tmp_path)),
    )
    assert measure(["finetune_batches", "--json", "--repeats", "1", "--examples", "40"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result) >= set(speed.KEYS) and result["equal"] is True
    assert result["ratio"] == min(s["ratio"] for s in result["settings"]) > 0
    assert all(s["padded_tokens"][0] < s["padded_tokens"][1] for s in result["settings"])


def test_miner_prints_its_result(capsys, monkeypatch):
    """The same pairs and gradients as the reference; without it one clear line."""
    pytest.importorskip(
        "pytorch_metric_learning", reason="pytorch-metric-learning is not installed: make setup"
    )
    monkeypatch.setattr(
        miner,
        "compare_setting",
        lambda names, repeats, real=miner.compare_setting: real(names // 4, repeats),
    )
    assert measure(["miner", "--json", "--repeats", "1", "--large", "64"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result) >= set(speed.KEYS) and result["equal"] is True and result["memory_ratio"] > 0
    assert [s["names"] for s in result["settings"]] == [120, 240]
    monkeypatch.setattr(miner.importlib.util, "find_spec", lambda name: None)
    assert measure(["miner"]) == 2
    assert "pytorch-metric-learning, the reference, is not installed" in capsys.readouterr().err


def test_pubmed_link_prints_its_result(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pubmed_link, "WORKERS", 2)
    assert (
        measure(["pubmed_link", "--json", "--documents", "60", "--files", "9", "--names", "600"])
        == 0
    )
    result = json.loads(capsys.readouterr().out)
    assert set(result) >= set(speed.KEYS) and result["equal"] is True and result["ratio"] > 0
    assert [s["setting"] for s in result["settings"]] == ["plain XML", "compressed XML"]


def test_sapbert_step_prints_its_result(capsys, tmp_path, monkeypatch):
    small = hpo.read(fake_hpo.write(tmp_path, 60))
    monkeypatch.setattr(sapbert_step.hpo, "read", lambda: small)
    assert measure(["sapbert_step", "--json", "--repeats", "1", "--pairs", "6"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result) >= set(speed.KEYS) and result["equal"] is True
    assert (
        result["settings"][0]["padded_tokens"][0] < result["settings"][0]["padded_tokens"][1] == 300
    )


def test_retrieval_prints_its_result(capsys):
    arguments = ["--names", "3000", "--mentions", "40", "--size", "32", "--repeats", "1"]
    assert measure(["retrieval", "--json", *arguments]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result) >= set(speed.KEYS) and result["equal"] is True
    assert [s["setting"] for s in result["settings"]] == ["float32", "float16"]


def test_decode_prints_its_result(capsys, monkeypatch):
    """The same names and scores as generate, in both settings."""
    monkeypatch.setattr(decode, "bart", lambda size, layers, real=decode.bart: real(32, 1))
    arguments = [
        "--names",
        "3000",
        "--mentions",
        "4",
        "--batch",
        "3",
        "--context",
        "20",
        "--repeats",
        "1",
        "--curve",
        "1",
        "2",
    ]
    assert measure(["decode", "--json", *arguments]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result) >= set(speed.KEYS) and result["equal"] is True
    assert [s["setting"] for s in result["settings"]] == ["tiny", "base size"]
    assert result["ratio"] == min(s["ratio"] for s in result["settings"]) > 0
    assert (
        set(result["settings"][0]["curve"]) == {"1", "2"}
        and result["settings"][0]["best_top1"] > 0.5
    )


def test_decode_sees_a_difference(monkeypatch):
    """A search that loses names, or scores them otherwise, is no equal one."""
    trie = Trie.build(Ragged.from_lists([[3], [4, 5]]), vocabulary=9)
    found, wanted = [[(0, -1.0), (1, -2.0)]], [[((3,), -1.0), ((4, 5), -2.0)]]
    assert decode.same(found, wanted, trie) == (1, 1)
    assert decode.same([found[0][:1]], wanted, trie) == (1, 0)
    assert decode.same([found[0][::-1]], wanted, trie) == (0, 0)
    assert decode.same([[(0, -1.0), (1, -2.1)]], wanted, trie) == (1, 0)


def test_trie_prints_its_result(capsys):
    assert measure(["trie", "--json", "--names", "20000"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result) >= set(speed.KEYS) and result["equal"] is True
    setting = result["settings"][0]
    assert setting["array_bytes"] <= 45 and setting["ratio"] > 3 and setting["distinct"] <= 20000


@pytest.mark.slow
def test_transr_prints_its_result(capsys):
    """The stock model's scores, and its MRR after training."""
    arguments = ["--triples", "1500", "--entities", "300", "--repeats", "1", "--dims", "8", "16"]
    assert measure(["transr", "--json", *arguments]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result) >= set(speed.KEYS) and result["equal"] is True
    assert result["ratio"] == min(s["ratio"] for s in result["settings"]) > 0
    assert all(s["mrr"] == pytest.approx(s["reference_mrr"], abs=1e-3) for s in result["settings"])


def test_neighbours_prints_its_result(capsys):
    arguments = ["--entities", "2000", "--triples", "20000", "--texts", "2"]
    assert measure(["neighbours", "--json", *arguments]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (
        set(result) >= set(speed.KEYS)
        and result["equal"] is True
        and result["evenly"]["equal"] is True
    )
    assert result["ratio"] > 1


def test_neighbours_by_hand():
    """In- and outgoing together, best score first, at most K."""
    outgoing, incoming = neighbours.lists(np.array([[0, 5, 1], [2, 6, 0], [0, 7, 3]]))
    rows = neighbours.sorted_anew([0, 4], outgoing, incoming, {1: 0.1, 2: 0.3, 3: 0.2})
    assert (
        rows[0, :4].tolist() == [[2, 6, -1], [3, 7, 1], [1, 5, 1], [-1, 0, 0]]
        and (rows[1, :, 0] == -1).all()
    )


def test_kebiolm_link_prints_its_result(capsys, monkeypatch):
    """Small: same entities where texts fit."""
    monkeypatch.setattr(kebiolm_link, "reader", lambda real=kebiolm_link.reader: real(50, 32, 2))
    assert measure(["kebiolm_link", "--json", "--texts", "2"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    assert (
        found["equal"]
        and [s["same"] for s in found["settings"][:2]] == [1.0, 1.0]
        and len(found["settings"]) == 3
    )


def test_names_embedding_prints_its_result(capsys, monkeypatch, tmp_path):
    """Figures of few names; a word is missing in each query."""
    small = hpo.read(fake_hpo.write(tmp_path, 60))
    monkeypatch.setattr(names_embedding.hpo, "read", lambda: small)
    monkeypatch.setattr(
        names_embedding, "shorten_names", lambda names: [name[1:] for name in names]
    )
    assert measure(["names_embedding", "--json", "--names", "60"]) in (0, 1)
    result = json.loads(capsys.readouterr().out)
    (setting,) = result["settings"]
    assert set(result) >= set(speed.KEYS) and result["equal"] == (setting["same"] >= 0.99)
    assert 0 < setting["int8_same"] <= 1 and setting["queries"] == 60


def test_queries_lack_a_word():
    assert [len(q.split()) for q in names_embedding.shorten_names(["a b", "a b c", "d e f g"])] == [
        2,
        3,
    ]


def test_names_embedding_tells_vectors_that_differ(monkeypatch):
    answers = iter(
        [(2.0, torch.zeros(100)), (1.0, torch.arange(100) // 98), (1.0, torch.zeros(100))]
    )
    monkeypatch.setattr(names_embedding, "time_embedding", lambda *_: next(answers))
    own = SimpleNamespace(encoder=torch.nn.Linear(2, 2), bf16=False)
    found = names_embedding.measure_setting(own, ["a"] * 100, ["a"] * 100)
    assert (found["ratio"], found["same"], found["equal"], found["int8_same"]) == (
        2.0,
        0.98,
        False,
        1.0,
    ) and not own.bf16


def test_probe_prints_its_result(capsys, monkeypatch):
    """A small model: the figures are there, and what they say holds."""
    monkeypatch.setattr(probe, "bert", lambda size, layers, real=probe.bert: real(32, 1))
    assert measure(["probe", "--json", "--queries", "4", "--masks", "3"]) in (0, 1)
    result = json.loads(capsys.readouterr().out)
    assert set(result) >= set(speed.KEYS) and result["ratio"] > 0
    (setting,) = result["settings"]
    assert result["equal"] == (
        setting["best"] >= setting["best_reference"] - 1e-4 and not setting["worse"]
    )
    assert setting["queries"] == 4 and 0 <= setting["duplicates"] < 1


def test_the_reference_of_probe_by_brute_force():
    """One mask: the five most probable tokens. Two: slots may repeat, and without repetition they
    are ours."""
    model = probe.bert(32, 1)
    ours = probe.from_transformers(probe.copy.deepcopy(model))
    query = probe.synthetic(1)[0]
    one = probe.reference(model, query, probe.MASK, 1)
    (fast,) = probe.fillings(ours, [query], probe.MASK, 1)
    assert [f.tokens for f in one] == [f.tokens for f in fast]
    assert np.allclose([f.score for f in one], [f.score for f in fast], atol=1e-4)
    two = probe.reference(model, query, probe.MASK, 2, beams=1)
    (fast,) = probe.fillings(ours, [query], probe.MASK, 2, beams=1)
    assert two[0].tokens == fast[0].tokens and abs(two[0].score - fast[0].score) < 1e-4
