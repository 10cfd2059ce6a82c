"""SMedBERT's batches: masks, sentence order, who gets knowledge and who predicts neighbours,
negatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.files import InputError
from datamodules.corpus import Corpus
from datamodules.segments import cut_place, place_segments
from datamodules.smedbert import SMedBERTBatch, SMedBERTData
from datamodules.smedbert.negatives import Sampler, once, without_neighbours
from kg.graph import KnowledgeGraph
from tests.fakes.chinese import LENGTH
from tests.fakes.smedbert import Folders


def data(fake: Folders, **given: Any) -> SMedBERTData:
    made = SMedBERTData(
        corpus=fake.corpus,
        tokenizer=fake.bert,
        graph=fake.graph,
        entities=fake.entities,
        neighbours=fake.neighbours,
        **{"k": 5, "batch_size": 16, "max_length": LENGTH + 1, "n_negatives": 7, **given},
    )
    made.setup()
    return made


def triples(fake: Folders) -> set[tuple[int, int, int]]:
    return set(map(tuple, KnowledgeGraph.load(fake.graph).triple_indices().tolist()))  # type: ignore[arg-type]


def test_a_cut_goes_between_words_outside_mentions_and_to_a_sentence_end() -> None:
    starts, none = np.ones(12, bool), np.zeros((0, 2), int)
    ends = np.zeros(12, bool)
    assert cut_place(starts, none, ends) == 6
    ends[[3, 11]] = True
    assert cut_place(starts, none, ends) == 4  # behind token 3; behind token 11 is the end
    assert cut_place(starts, np.array([[5, 8]]), np.zeros(12, bool)) == 5
    starts[1:] = False
    assert cut_place(starts, none, ends) == 0
    assert cut_place(np.ones(1, bool), none, np.zeros(1, bool)) == 0
    early = np.zeros(12, bool)
    early[0] = True  # a sentence of one token is no half
    assert cut_place(np.ones(12, bool), none, early) == 6


@settings(max_examples=50, deadline=None)
@given(n=st.integers(2, 20), at=st.data())
def test_places_are_the_two_segments_with_a_separator_between(n: int, at: Any) -> None:
    cut = at.draw(st.integers(1, n - 1))
    tokens = [f"t{i}" for i in range(n)]
    for swap in (False, True):
        line = ["-"] * (n + 3)
        for token, place in zip(tokens, place_segments(n, cut, swap), strict=True):
            line[place] = token
        first, second = (tokens[cut:], tokens[:cut]) if swap else (tokens[:cut], tokens[cut:])
        assert line == ["-", *first, "-", *second, "-"]
    assert place_segments(n, 0, False).tolist() == list(range(1, n + 1))


def test_a_batch_is_its_sequences(fake_smedbert: Folders) -> None:
    made = data(fake_smedbert)
    corpus, tokenizer = Corpus(fake_smedbert.corpus), made.tokenizer
    indices = made.order(0)[0]
    batch = made.batch(indices, 0)
    swapped = 0
    for row, index in enumerate(indices):
        example, n = corpus[int(index)], int(batch.attention_mask[row].sum())
        ids = batch.original_ids[row, :n].tolist()
        assert ids[0] == tokenizer.cls_token_id and ids[-1] == tokenizer.sep_token_id
        assert (batch.original_ids[row, n:] == tokenizer.pad_token_id).all()
        inner = ids[1:-1]
        if batch.order[row] == -100:
            assert inner == example.ids.tolist() and not batch.second[row].any()
            continue
        middle = inner.index(tokenizer.sep_token_id)
        halves = inner[:middle], inner[middle + 1 :]
        if batch.order[row] == 1:
            halves, swapped = halves[::-1], swapped + 1
        assert halves[0] + halves[1] == example.ids.tolist()
        assert batch.second[row, :n].tolist() == [0] * (middle + 2) + [1] * (n - middle - 2)
    assert 0 < swapped < len(indices)
    predicted = batch.mlm_labels != -100
    assert torch.equal(batch.mlm_labels[predicted], batch.original_ids[predicted])
    assert torch.equal(batch.input_ids[~predicted], batch.original_ids[~predicted])
    special = torch.isin(batch.original_ids, torch.tensor(tokenizer.all_special_ids))
    assert not (predicted & special).any()


def test_mentions_are_masked_whole_and_either_infused_or_predicting(fake_smedbert: Folders) -> None:
    """D6: masked mentions take knowledge in, unmasked ones with neighbours predict them; both are
    on their own tokens."""
    made, corpus = data(fake_smedbert, max_mentions=2), Corpus(fake_smedbert.corpus)
    known = (np.asarray(made.table.rows)[:, :5, 0] >= 0).any(1)
    seen = 0
    for epoch in range(20):
        indices = made.order(epoch)[0]
        batch = made.batch(indices, epoch)
        predicted = batch.mlm_labels != -100
        for row, start, end in batch.masked.span.tolist():
            assert predicted[row, start:end].all()
        for row, start, end in batch.unmasked.span.tolist():
            assert not predicted[row, start:end].any()
        found: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        for part in (batch.masked, batch.unmasked):
            for (row, start, end), entity in zip(
                part.span.tolist(), part.entity.tolist(), strict=True
            ):
                found.setdefault(row, []).append(
                    (entity, tuple(batch.original_ids[row, start:end].tolist()))
                )
        masked = {(r, s) for r, s, _ in batch.masked.span.tolist()}
        for row, index in enumerate(indices):
            example = corpus[int(index)]
            wanted = [
                (int(e), tuple(example.ids[s:t].tolist())) for s, t, e in example.mentions[:2]
            ]
            lonely = [w for w in wanted if not known[w[0]] and w not in found.get(row, [])]
            assert sorted(found.get(row, [])) == sorted(w for w in wanted if w not in lonely)
        seen += len(masked)
    assert seen > 10


def test_a_share_of_unmasked_mentions_reads_half_of_its_neighbours_and_predicts_the_others(
    fake_smedbert: Folders,
) -> None:
    """D9: the same masks and mentions as without; no neighbour is both told and asked for, none is
    lost, none is a negative."""
    plain, some, every = (data(fake_smedbert, infused=share) for share in (0.0, 0.5, 1.0))

    def near(part: Any) -> dict[tuple[int, ...], set[int]]:
        rows = zip(part.span.tolist(), part.neighbours.tolist(), strict=True)
        return {tuple(span): {n for n in own if n >= 0} for span, own in rows}

    told_shares, given = [], 0
    for epoch in range(20):
        indices = plain.order(epoch)[0]
        before, half, all_told = (made.batch(indices, epoch) for made in (plain, some, every))
        whole, masked = near(before.unmasked), near(before.masked)
        assert torch.equal(before.input_ids, half.input_ids) and near(before.infused) == masked
        for batch in (half, all_told):
            infused, asked = near(batch.infused), near(batch.unmasked)
            assert near(batch.masked) == masked and infused | masked == infused
            # each once
            assert len(asked) == len(batch.unmasked.span) and len(infused) == len(
                batch.infused.span
            )
            brought = {span: own for span, own in infused.items() if span not in masked}
            for span, own in whole.items():
                one, other = brought.get(span, set()), asked.get(span, set())
                assert one | other == own and not one & other
                assert span not in brought or len(brought[span]) == len(own) // 2
                given += len(brought.get(span, ()))
            assert not (batch.mlm_labels != -100)[
                [r for r, *_ in brought], [s for _, s, _ in brought]
            ].any()
            rows, places = (batch.unmasked.neighbours >= 0).nonzero(as_tuple=True)
            assert (
                batch.candidates[:, 0].tolist() == batch.unmasked.neighbours[rows, places].tolist()
            )
            for row, negatives in zip(rows.tolist(), batch.candidates[:, 1:].tolist(), strict=True):
                assert not whole[tuple(batch.unmasked.span[row].tolist())] & set(negatives)
            lost = batch.infused.neighbours < 0
            assert (batch.infused.type[lost] == -1).all() and (
                batch.infused.relation[lost] == 0
            ).all()
        told_shares.append((len(whole), len(set(near(half.infused)) & set(whole))))
        assert set(near(all_told.infused)) >= set(whole)
    total, told_ones = map(sum, zip(*told_shares, strict=True))
    assert told_ones / total == pytest.approx(0.5, abs=0.1) and given > 50
    blank = some.batch(plain.held_out_indices, -1, blank=True)
    assert not len(blank.infused.span)


def test_masked_share(fake_smedbert: Folders) -> None:
    """The share of tokens that are predicted is the setting's within a point, and so is the share
    of mentions."""
    made = data(fake_smedbert, mask=0.2, random=0.05, keep=0.05)
    batches = [
        made.batch(indices, epoch) for epoch in range(60) for indices in made.order(epoch)[:4]
    ]
    special = torch.tensor(made.tokenizer.all_special_ids)
    tokens = sum(int((~torch.isin(b.original_ids, special)).sum()) for b in batches)
    predicted = sum(int((b.mlm_labels != -100).sum()) for b in batches)
    assert predicted / tokens == pytest.approx(0.3, abs=0.01)
    hidden = sum(int((b.input_ids == made.tokenizer.mask_token_id).sum()) for b in batches)
    assert hidden / tokens == pytest.approx(0.2, abs=0.01)
    order = torch.cat([b.order for b in batches])
    assert (order == 1).sum() / (order >= 0).sum() == pytest.approx(0.5, abs=0.03)


def test_candidates_are_neighbours_and_negatives_of_their_type(fake_smedbert: Folders) -> None:
    """D8, and Q: the first candidate is a neighbour by a triple of the graph; negatives have its
    type and are no neighbours."""
    made, facts = data(fake_smedbert), triples(fake_smedbert)
    batch = made.batch(made.order(0)[0], 0)
    there = batch.unmasked.neighbours >= 0
    rows, places = there.nonzero(as_tuple=True)
    assert len(rows) == len(batch.candidates) == int(batch.counts[2]) > 20
    for pair, (m, k) in enumerate(zip(rows.tolist(), places.tolist(), strict=True)):
        own, near = int(batch.unmasked.entity[m]), int(batch.unmasked.neighbours[m, k])
        relation, direction = (
            int(batch.unmasked.relation[m, k]),
            int(batch.unmasked.direction[m, k]),
        )
        assert ((own, relation, near) if direction == 1 else (near, relation, own)) in facts
        assert batch.unmasked.type[m, k] == made.types[near] and batch.candidates[pair, 0] == near
        others = batch.candidates[pair, 1:]
        others = others[others >= 0]
        assert (made.types[others.numpy()] == made.types[near]).all()
        assert not torch.isin(others, batch.unmasked.neighbours[m]).any()
    assert (batch.candidates == -1).any()  # the fake graph is small: some draws are neighbours
    assert torch.allclose(
        batch.log_q[:, 0].double(), torch.from_numpy(made.sampler.log_q[batch.candidates[:, 0]])
    )


@pytest.mark.parametrize("epoch", [0, -1])
def test_negatives_do_not_depend_on_batch_mates(
    fake_smedbert: Folders, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes that share a batch out draw the negatives that one would, or their gradients
    would differ."""
    monkeypatch.setattr("datamodules.smedbert.RANKED", 9)
    made = data(fake_smedbert)
    indices = made.order(0)[0]
    whole = made.batch(indices, epoch)
    parts = [made.batch(indices[rows], epoch) for rows in (slice(5), slice(5, 6), slice(6, None))]
    for name in ("candidates", "log_q", *(("ranked", "even") if epoch < 0 else ())):
        assert torch.equal(torch.cat([getattr(p, name) for p in parts]), getattr(whole, name)), name


def test_counts_of_a_blank_batch_are_zero(fake_smedbert: Folders) -> None:
    made = data(fake_smedbert)
    indices = made.order(0)[0]
    blank, full = made.batch(indices, -1, blank=True), made.batch(indices, -1)
    assert blank.counts.tolist() == [0, 0, 0, 0] and blank.input_ids.shape == full.input_ids.shape
    assert blank.candidates.shape == (0, 8) and len(blank.masked.span) == 0
    assert full.counts.tolist() == [
        (full.mlm_labels != -100).sum(),
        (full.order != -100).sum(),
        len(full.candidates),
        len(full.masked.span),
    ]


def test_validation_ranks_among_the_same_type(
    fake_smedbert: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datamodules.smedbert.RANKED", 9)
    made = data(fake_smedbert)
    batch = made.batch(made.held_out_indices, -1)
    for drawn in (batch.ranked, batch.even):
        assert drawn is not None and drawn.shape == (len(batch.candidates), 9)
        assert torch.equal(drawn[:, 0], batch.candidates[:, 0])
        for row in drawn.tolist():
            there = [e for e in row if e >= 0]
            assert len(set(there)) == len(there) and len({made.types[e] for e in there}) == 1
    assert (
        batch.ranked is not None
        and batch.even is not None
        and not torch.equal(batch.ranked, batch.even)
    )
    assert made.batch(made.order(0)[0], 0).ranked is None
    again = data(fake_smedbert).batch(made.held_out_indices, -1)
    assert all(torch.equal(a, b) for a, b in zip(flat(batch), flat(again), strict=True))


def test_once() -> None:
    assert once(np.array([[3, 1, 3, 3, 1], [1, 2, 3, 4, 5]])).tolist() == [
        [3, 1, -1, -1, -1],
        [1, 2, 3, 4, 5],
    ]


def flat(batch: SMedBERTBatch) -> list[torch.Tensor]:
    parts: list[torch.Tensor] = []
    for part in batch:
        parts += [part] if isinstance(part, torch.Tensor) else list(part or ())
    return parts


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), kinds=st.integers(1, 4))
def test_the_sampler_draws_by_frequency_within_a_type(seed: int, kinds: int) -> None:
    rng = np.random.default_rng(seed)
    types = np.concatenate([np.arange(kinds), rng.integers(0, kinds, 8)])
    frequency = rng.integers(0, 5, len(types))
    sampler = Sampler(types, frequency)
    for kind in range(kinds):
        own = types == kind
        q = (frequency[own] + 1) / (frequency[own] + 1).sum()
        assert np.exp(sampler.log_q[own]) == pytest.approx(q)
        drawn = sampler.draw(np.flatnonzero(own)[:1], 4000, rng)[0]
        assert (types[drawn] == kind).all()
        share = np.bincount(drawn, minlength=len(types))[own] / 4000
        assert np.abs(share - q).max() < 0.05
    others = sampler.others(np.arange(len(types)), 3, rng)
    for entity, row in enumerate(others):
        there = row[row >= 0]
        assert entity not in there and len(set(there.tolist())) == len(there)
        assert (
            len(there) == min(3, (types == types[entity]).sum() - 1)
            and (types[there] == types[entity]).all()
        )


def test_neighbours_are_no_negatives() -> None:
    assert without_neighbours(
        np.array([[1, 2, 3], [3, 3, 4]]), np.array([[2, 3], [4, -1]])
    ).tolist() == [[1, -1, -1], [3, 3, -1]]


def test_parts_that_do_not_belong_together_are_refused(fake_smedbert: Folders) -> None:
    with pytest.raises(InputError, match=r"infused 1\.5: expected a share from 0 to 1"):
        data(fake_smedbert, infused=1.5)
    with pytest.raises(InputError, match=r"6 neighbours an entity, but k is 7.*--k 7"):
        data(fake_smedbert, k=7)
    with pytest.raises(InputError, match=rf"--max-length {LENGTH - 1}"):
        data(fake_smedbert, max_length=LENGTH)
    with pytest.raises(InputError, match="fewer than one batch"):
        data(fake_smedbert, batch_size=10_000)
