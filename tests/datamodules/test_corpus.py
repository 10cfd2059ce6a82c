"""The corpus on disk: what is stored, resuming, and every kind of bad input."""

from __future__ import annotations

import json
import os
import resource
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.files import InputError
from core.reading import sha256
from datamodules import corpus
from datamodules.corpus import Corpus, is_held_out
from datamodules.tokenizers import load_tokenizer, tokenizer_fingerprint
from kg.graph import KnowledgeGraph, fingerprint
from tests.fakes import bert
from tests.fakes import linked as fake_linked
from tests.fakes.kebiolm import Folders


def rows(folder: str) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for p in sorted(Path(folder).glob("part-*.jsonl"))
        for line in p.read_text().splitlines()
    ]


def linked(folder: Path, fake: Folders, *documents: dict[str, Any]) -> str:
    """A linked folder with one part that holds `documents`."""
    return str(fake_linked.write(folder, documents))


def doc(text: str, *mentions: tuple[int, int, str], name: str = "d") -> dict[str, Any]:
    return fake_linked.document(name, text, *mentions)


def test_every_text_and_mention_is_there(fake_kebiolm: Folders) -> None:
    tokenizer, ids = (
        load_tokenizer(fake_kebiolm.bert),
        KnowledgeGraph.load(fake_kebiolm.graph).ids.to_pylist(),
    )
    built, names = (
        Corpus(fake_kebiolm.corpus),
        dict(
            zip(
                *[
                    KnowledgeGraph.load(fake_kebiolm.graph).entities[c].to_pylist()
                    for c in ("id", "name")
                ],
                strict=True,
            )
        ),
    )
    documents = rows(fake_kebiolm.linked)
    assert len(built) == len(documents) == 120
    for i, document in enumerate(documents):
        example = built[i]
        assert tokenizer.decode(example.ids) == " ".join(document["text"].split())
        assert [ids[e] for e in example.mentions[:, 2]] == [
            m["entity"] for m in document["mentions"]
        ]
        assert [tokenizer.decode(example.ids[a:b]) for a, b, _ in example.mentions] == [
            names[m["entity"]] for m in document["mentions"]
        ]
        starts = [
            bool(not t.startswith("##")) for t in tokenizer.convert_ids_to_tokens(example.ids)
        ]
        assert example.word_start.tolist() == starts
    assert built.lengths.tolist() == [len(built[i].ids) for i in range(len(built))]


def test_held_out_texts(fake_kebiolm: Folders) -> None:
    built, documents = Corpus(fake_kebiolm.corpus), rows(fake_kebiolm.linked)
    held = set(built.indices(True))
    assert held.isdisjoint(built.indices(False)) and len(held) + len(built.indices(False)) == len(
        built
    )
    assert held == {i for i, d in enumerate(documents) if is_held_out(d["text"], 0.1)}
    assert is_held_out("A  b", 0.5) == is_held_out("a b", 0.5)  # equal texts stay together
    share = np.mean([is_held_out(f"text {i}", 0.1) for i in range(5000)])
    assert 0.08 < share < 0.12
    counts = built.entity_counts(40)
    said = Counter(int(e) for i in built.indices(False) for e in built[int(i)].mentions[:, 2])
    assert counts.tolist() == [said[e] for e in range(40)] and counts.max() > 1
    unseen = Counter(int(e) for i in built.indices(True) for e in built[int(i)].mentions[:, 2])
    # held-out text counts for nothing
    assert unseen and (counts.sum() == built.mention_counts.sum() - unseen.total())


def test_parallel_and_resumed_builds_are_identical(
    fake_kebiolm: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (fake_kebiolm.linked, fake_kebiolm.graph, fake_kebiolm.bert)
    corpus.build_corpus(*arguments, str(tmp_path / "two"), max_length=128, workers=2)
    assert sha256(tmp_path / "two") == sha256(fake_kebiolm.corpus)
    real = corpus._write_shard

    def dies(begun: Any, part: Any, *rest: Any, **settings: Any) -> dict[str, int]:
        if part[0].stem.endswith("1"):
            raise KeyboardInterrupt
        return real(begun, part, *rest, **settings)

    monkeypatch.setattr(corpus, "_write_shard", dies)
    with pytest.raises(KeyboardInterrupt):
        corpus.build_corpus(*arguments, str(tmp_path / "cut"), max_length=128)
    with pytest.raises(InputError, match="no corpus here"):
        Corpus(tmp_path / "cut")
    again: list[str] = []
    monkeypatch.setattr(
        corpus,
        "_write_shard",
        lambda begun, part, *rest, **own: (
            again.append(part[0].stem) or real(begun, part, *rest, **own)
        ),
    )
    shard = tmp_path / "cut" / "shards" / "shard-00000"
    whole = (shard / "tokens.npy").read_bytes()
    (shard / "tokens.npy").write_bytes(bytes([*whole[:-1], whole[-1] ^ 4]))
    with pytest.raises(
        InputError,
        match=(
            r"tokens\.npy: missing, or not the file its manifest describes\. Delete .*shard-00000"
        ),
    ):
        corpus.build_corpus(*arguments, str(tmp_path / "cut"), max_length=128)
    (shard / "tokens.npy").write_bytes(whole)
    corpus.build_corpus(*arguments, str(tmp_path / "cut"), max_length=128)
    assert sha256(tmp_path / "cut") == sha256(fake_kebiolm.corpus) and again == ["part-00001"]


def test_a_corpus_of_many_shards_is_that_of_one_and_opens_six_files(
    fake_kebiolm: Folders, tmp_path: Path
) -> None:
    lines = "".join(
        part.read_text() for part in sorted(Path(fake_kebiolm.linked).glob("part-*.jsonl"))
    ).splitlines(True)
    assert len(lines) == 120
    for name, size in (("one", len(lines)), ("many", 2)):
        parts = [
            map(json.loads, lines[begin : begin + size]) for begin in range(0, len(lines), size)
        ]
        source = fake_linked.write(tmp_path / f"linked-{name}", *parts)
        corpus.build_corpus(
            str(source), fake_kebiolm.graph, fake_kebiolm.bert, str(tmp_path / name), max_length=128
        )
    assert sha256(tmp_path / "one" / "arrays") == sha256(tmp_path / "many" / "arrays")
    before, limits = len(os.listdir("/proc/self/fd")), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 24, limits[1])
    )
    try:
        one, many = Corpus(tmp_path / "one"), Corpus(tmp_path / "many")
        assert len(os.listdir("/proc/self/fd")) <= before + 12
        for a, b in zip(one, many, strict=True):
            assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_other_settings_need_fresh(fake_kebiolm: Folders, tmp_path: Path) -> None:
    arguments = (fake_kebiolm.linked, fake_kebiolm.graph, fake_kebiolm.bert, str(tmp_path / "c"))
    corpus.build_corpus(*arguments, max_length=128)
    with pytest.raises(InputError, match="other settings .max_length.*--fresh"):
        corpus.build_corpus(*arguments, max_length=100)
    corpus.build_corpus(*arguments, max_length=100, fresh=True)
    assert Corpus(tmp_path / "c").manifest["settings"]["max_length"] == 100


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            doc("renal failure", (0, 99, "E000")),
            r"part-00000\.jsonl:2: mention \[0, 99\) is outside its text of 13",
        ),
        (doc("renal failure", (5, 5, "E000")), r"jsonl:2: mention \[5, 5\) is outside"),
        (doc("renal failure", (0, 5, "X1")), r"jsonl:2: unknown entity id 'X1'"),
        (doc("  "), r"jsonl:2: document 'd' has an empty text"),
        (
            doc("mild " * 200),
            r"jsonl:2: document 'd' has 800 tokens, the limit is 126.*split or truncate",
        ),
        ({"id": "x"}, r"jsonl:2: expected a JSON object with id, text and mentions"),
    ],
)
def test_bad_documents_name_file_and_line(
    fake_kebiolm: Folders, tmp_path: Path, document: dict[str, Any], message: str
) -> None:
    source = linked(tmp_path / "l", fake_kebiolm, doc("fine text"), document)
    with pytest.raises(InputError, match=message):
        corpus.build_corpus(
            source, fake_kebiolm.graph, fake_kebiolm.bert, str(tmp_path / "c"), max_length=128
        )
    assert (
        not list((tmp_path / "c").glob("*.partial"))
        and not (tmp_path / "c" / "manifest.json").exists()
    )


def test_long_texts_are_split_outside_mentions_or_truncated(
    fake_kebiolm: Folders, tmp_path: Path
) -> None:
    text = "the of renal failure with and renal lesion in"
    spans = [
        (text.index(n), text.index(n) + len(n), e)
        for n, e in (("renal failure", "E000"), ("renal lesion", "E001"))
    ]
    source = linked(tmp_path / "l", fake_kebiolm, doc(text, *spans))
    tokenizer = load_tokenizer(fake_kebiolm.bert)
    corpus.build_corpus(
        source,
        fake_kebiolm.graph,
        fake_kebiolm.bert,
        str(tmp_path / "s"),
        max_length=5,
        long_texts="split",
    )
    split = Corpus(tmp_path / "s")
    assert [tokenizer.decode(split[i].ids) for i in range(len(split))] == [
        "the of",
        "renal failure with",
        "and renal lesion",
        "in",
    ]
    assert [split[i].mentions.tolist() for i in range(4)] == [[], [[0, 2, 0]], [[1, 3, 1]], []]
    corpus.build_corpus(
        source,
        fake_kebiolm.graph,
        fake_kebiolm.bert,
        str(tmp_path / "t"),
        max_length=5,
        long_texts="truncate",
    )
    assert (
        len(Corpus(tmp_path / "t")) == 1
        and Corpus(tmp_path / "t").manifest["counts"]["truncated_tokens"] == 7
    )


def test_overlapping_mentions_keep_the_longest(fake_kebiolm: Folders, tmp_path: Path) -> None:
    source = linked(
        tmp_path / "l",
        fake_kebiolm,
        doc("renal failure rare", (0, 5, "E001"), (0, 13, "E000"), (6, 18, "E002")),
    )
    corpus.build_corpus(
        source, fake_kebiolm.graph, fake_kebiolm.bert, str(tmp_path / "c"), max_length=128
    )
    built = Corpus(tmp_path / "c")
    assert (
        len(built[0].mentions) == 1
        and built.manifest["counts"]["overlapping_mentions_dropped"] == 2
    )


def test_what_does_not_belong_together(fake_kebiolm: Folders, tmp_path: Path) -> None:
    other = load_tokenizer(str(bert.write(tmp_path / "b", ["zebra"])))
    with pytest.raises(InputError, match="built with another tokenizer"):
        Corpus(fake_kebiolm.corpus, tokenizer=tokenizer_fingerprint(other))
    with pytest.raises(InputError, match="built with another graph"):
        Corpus(fake_kebiolm.corpus, graph="0" * 64)
    Corpus(fake_kebiolm.corpus, graph=fingerprint(fake_kebiolm.graph))


@pytest.mark.parametrize("cut", [True, False])
def test_a_damaged_shard(cut: bool, fake_kebiolm: Folders, tmp_path: Path) -> None:
    """Half a file, or all of it with another bit."""
    shutil.copytree(fake_kebiolm.corpus, tmp_path / "c")
    file = tmp_path / "c" / "arrays" / "tokens.npy"
    whole = bytearray(file.read_bytes())
    whole[-1] ^= 4
    file.write_bytes(whole[:-2] if cut else whole)
    with pytest.raises(
        InputError,
        match=r"arrays/tokens\.npy: missing, or not the file its manifest describes",
    ):
        Corpus(tmp_path / "c")
    corpus.build_corpus(
        fake_kebiolm.linked,
        fake_kebiolm.graph,
        fake_kebiolm.bert,
        str(tmp_path / "c"),
        max_length=128,
        fresh=True,
    )
    assert sha256(tmp_path / "c") == sha256(fake_kebiolm.corpus)  # the advice of the message works


def slow_disjoint(spans: np.ndarray) -> list[list[int]]:
    """The longest stays, then the leftmost, by comparing all pairs."""
    kept: list[list[int]] = []
    for row in sorted(spans.tolist(), key=lambda r: (r[0] - r[1], r[0])):
        if all(row[1] <= other[0] or row[0] >= other[1] for other in kept):
            kept.append(row)
    return sorted(kept)


def test_overlapping_mentions_are_resolved_as_by_comparing_all_pairs() -> None:
    rng = np.random.default_rng(0)
    for count in (0, 1, 2, 5, 30, 200):
        start = rng.integers(0, 3 * count + 1, count)
        spans = np.stack(
            [start, start + rng.integers(1, 9, count), rng.integers(0, 50, count)], axis=1
        )
        assert corpus._disjoint(spans).tolist() == slow_disjoint(spans)


def test_the_work_for_a_mention_does_not_grow_with_the_text(
    fake_kebiolm: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces of a long text take their mentions by search, not by a look at all of them."""
    looked_at: list[int] = []
    original = np.searchsorted

    def counting(rows: np.ndarray, *arguments: Any, **options: Any) -> Any:
        looked_at.append(len(rows))
        return original(rows, *arguments, **options)

    (entity, *_) = KnowledgeGraph.load(fake_kebiolm.graph).ids.to_pylist()
    text = "fever " * 400
    mentions = [(6 * n, 6 * n + 5, entity) for n in range(400)]
    folder = linked(tmp_path / "linked", fake_kebiolm, doc(text.strip(), *mentions))
    monkeypatch.setattr(corpus.np, "searchsorted", counting)
    corpus.build_corpus(
        folder,
        fake_kebiolm.graph,
        fake_kebiolm.bert,
        str(tmp_path / "out"),
        max_length=12,
        long_texts="split",
        workers=1,
    )
    made = Corpus(str(tmp_path / "out"))
    found = [made[n].mentions for n in range(len(made))]
    assert sum(map(len, found)) == 400 and len(found) >= 40
    assert all((m[:, 0] < m[:, 1]).all() and (m[:, 1] <= 10).all() for m in found)
