"""EMBERT's text changes: spans after replacement, what is hidden, and batches of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.files import InputError
from datamodules.corpus import Example
from datamodules.embert import EMBERTBatch, EMBERTData
from datamodules.embert.entity_names import Pieces, Replacements
from datamodules.embert.text import (
    ADJECTIVE,
    ATOMIC,
    ORIGINAL,
    RANDOM,
    SYNONYM,
    Corrupted,
    Text,
    corrupt_text,
    join_segments,
    part,
    replace_mentions,
)
from datamodules.tokenizers import load_tokenizer
from tests.fakes import bert
from tests.fakes import embert as fakes
from tests.fakes.chinese import LENGTH
from tests.fakes.embert import Folders

MASK, RANDOM_IDS = 4, np.arange(5, 9)
CHARACTERS = "慢性急肺炎肾癌病之人有甲片乙平"
SYNONYMS = {
    0: ["慢性肺炎", "肺炎之慢", "CAP 2型"],
    1: ["肾癌", "肾之病"],
    2: ["甲片"],
    3: ["急性肺炎", "急肺炎"],
}
NAMES = [
    (0, "慢性肺炎"),
    (0, "肺炎之慢"),
    (1, "肾癌"),
    (1, "肾之病"),
    (2, "甲片"),
    (3, "急性肺炎"),
    (4, "肺癌"),
    (5, "乙片"),
]
TYPES = np.array([0, 0, 1, 0, 0, 1])
LONG = [
    ("慢性肺炎", ["慢性", "肺炎"]),
    ("急性肺炎", ["急性", "肺炎"]),
    ("肺炎之慢", ["肺炎", "之", "慢"]),
    ("CAP 2型", ["CAP 2", "型"]),
]


class World:
    """A tokenizer of single characters, and the tables made with it."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = load_tokenizer(
            str(bert.write(folder, ["cap"], characters=CHARACTERS + "型"))
        )
        self.pieces = Pieces(LONG, self.tokenizer)
        self.names = Replacements(NAMES, TYPES, SYNONYMS, self.tokenizer)

    def ids(self, text: str) -> np.ndarray:
        return np.array(self.tokenizer(text, add_special_tokens=False)["input_ids"], np.int64)

    def words(self, ids: np.ndarray) -> str:
        return "".join(self.tokenizer.convert_ids_to_tokens(ids.tolist()))

    def text(self, parts: list[str | int], cut: int = 0) -> Text:
        """Of strings, and of entities by index, which have the first of their names."""
        ids, spans = [], []
        for p in parts:
            own = self.ids(p if isinstance(p, str) else dict(reversed(NAMES))[p])
            if isinstance(p, int):
                spans.append((len(ids), len(ids) + len(own), p, ORIGINAL))
            ids += own.tolist()
        return Text(
            np.array(ids, np.int64),
            np.ones(len(ids), bool),
            np.array(spans, np.int64).reshape(-1, 4),
            cut,
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world") / "bert")


def test_pieces_are_where_the_segmentation_has_them(world: World) -> None:
    found = world.pieces.piece_ends(world.ids("肺炎之慢"))
    assert found is not None and found.tolist() == [2, 3, 4]
    # "cap" and "2" are one token each, the space none
    latin = world.pieces.piece_ends(world.ids("CAP 2型"))
    assert latin is not None and latin.tolist() == [2, 3]
    assert world.pieces.piece_ends(world.ids("肾癌")) is None and len(world.pieces) == 4
    crossing = Pieces([("cap型", ["ca", "p型"])], world.tokenizer)
    assert crossing.crossed == 1 and not len(crossing)


def test_a_replacement_means_the_same_or_only_looks_alike(world: World) -> None:
    rng = np.random.default_rng(0)
    own = world.ids("慢性肺炎")
    same = [world.names.synonym(0, own, 9, rng) for _ in range(60)]
    assert {world.words(n.ids) for n in same if n is not None} == {"肺炎之慢", "cap2型"}
    assert {
        world.words(n.ids) for n in (world.names.synonym(0, own, 3, rng) for _ in range(20)) if n
    } == {"cap2型"}
    assert (
        world.names.synonym(0, own, 2, rng) is None
        and world.names.synonym(5, world.ids("乙片"), 9, rng) is None
    )
    # As long and of the same type, and neither itself nor a synonym.
    other = {
        world.words(n.ids)
        for n in (world.names.another(0, own, rng) for _ in range(40))
        if n is not None
    }
    assert other == {"急性肺炎"}
    assert world.names.another(1, world.ids("肾癌"), rng).ids.tolist() == world.ids("肺癌").tolist()  # type: ignore[union-attr]
    # three characters, type 0: only itself
    assert world.names.another(1, world.ids("肾之病"), rng) is None


PARTS = st.lists(
    st.one_of(st.sampled_from(["人有", "病", "之人人", "有"]), st.integers(0, 5)),
    min_size=1,
    max_size=9,
)


@settings(max_examples=150, deadline=None)
@given(
    parts=PARTS,
    share=st.sampled_from([0.3, 1.0]),
    room=st.integers(0, 8),
    seed=st.integers(0, 9),
    cut=st.integers(0, 9),
)
def test_spans_are_rebuilt_after_replacement(
    world: World, parts: list[str | int], share: float, room: int, seed: int, cut: int
) -> None:
    """Every mention still covers its name, whatever the lengths; everything else is unchanged."""
    before = world.text(parts)
    bounds = [
        0,
        *np.cumsum(
            [len(world.ids(p if isinstance(p, str) else dict(reversed(NAMES))[p])) for p in parts]
        ).tolist(),
    ]
    before = before._replace(cut=bounds[min(cut, len(parts) - 1)])
    limit = len(before.ids) + room
    after = replace_mentions(before, world.names, share, limit, np.random.default_rng(seed))
    assert len(after.ids) <= limit and len(after.word_start) == len(after.ids)
    # Rebuilt as text: the parts, each mention as its new name.
    names, mention = [], 0
    for p in parts:
        if isinstance(p, str):
            names.append(world.words(world.ids(p)))
            continue
        start, end, entity, kind = after.mentions[mention]
        own, new = dict(reversed(NAMES))[p], after.ids[start:end]
        allowed = {world.words(world.ids(n)) for n in SYNONYMS.get(p, [])}
        assert entity == p
        if kind == ORIGINAL:
            assert world.words(new) == own
        elif kind == SYNONYM:
            assert world.words(new) in allowed - {own}
        else:
            assert world.words(new) not in allowed and len(new) == len(own)
        names.append(world.words(new))
        mention += 1
    assert mention == len(after.mentions) and world.words(after.ids) == "".join(names)
    kinds = after.mentions[:, 3]
    for a, b in zip(after.mentions, after.mentions[1:], strict=False):
        # no boundary state in a replaced name
        assert not (a[3] != ORIGINAL and b[3] != ORIGINAL and a[1] == b[0])
    assert after.cut == sum(
        len(world.ids(n)) if i < min(cut, len(parts) - 1) else 0 for i, n in enumerate(names)
    ) or any(" " in n for n in names)
    if (
        share == 1.0
        and room == 8
        and len(kinds)
        and not {0, 1, 3}.isdisjoint(p for p in parts if isinstance(p, int))
    ):
        assert (kinds != ORIGINAL).any()


def test_half_of_what_is_replaced_is_by_synonyms(world: World) -> None:
    text = world.text(["人", 0, "有", 1, "病"])
    rng = np.random.default_rng(1)
    kinds = np.concatenate(
        [replace_mentions(text, world.names, 0.15, 99, rng).mentions[:, 3] for _ in range(4000)]
    )
    assert abs((kinds != ORIGINAL).mean() - 0.15) < 0.01
    assert abs((kinds == SYNONYM).sum() / (kinds != ORIGINAL).sum() - 0.5) < 0.04
    assert replace_mentions(text, world.names, 0.0, 99, rng) is text


def hidden(world: World, text: Text, seed: int, **settings: float) -> Corrupted:
    return corrupt_text(
        text, world.pieces, np.random.default_rng(seed), MASK, RANDOM_IDS, **settings
    )  # type: ignore[arg-type]


@settings(max_examples=150, deadline=None)
@given(
    parts=PARTS,
    seed=st.integers(0, 99),
    rate=st.sampled_from([0.15, 0.6, 1.0]),
    share=st.sampled_from([0.0, 0.5, 1.0]),
    entities=st.booleans(),
    swap=st.sampled_from([0.0, 0.7]),
)
def test_what_is_hidden(
    world: World,
    parts: list[str | int],
    seed: int,
    rate: float,
    share: float,
    entities: bool,
    swap: float,
) -> None:
    text = replace_mentions(world.text(parts), world.names, swap, 200, np.random.default_rng(seed))
    found = hidden(world, text, seed, rate=rate, parts=share, entities=entities)
    kind = np.full(len(text.ids), -1)
    for start, end, _, k in text.mentions:
        kind[start:end] = k
    changed = found.ids != text.ids
    assert not changed[kind == RANDOM].any() and (found.mlm[kind == RANDOM] == -100).all()
    assert (found.mlm[kind == SYNONYM] == -100).all()
    assert ((found.mlm == -100) | (found.mlm == text.ids)).all()
    covered = np.zeros(len(text.ids), bool)
    covered[found.parts[:, 0]] = True
    assert (
        len(found.parts) == covered.sum() and (found.part_ids == text.ids[found.parts[:, 0]]).all()
    )
    assert (found.ids[covered] == MASK).all() and not (
        changed & (found.mlm == -100) & ~covered
    ).any()
    budget = rate * (kind != RANDOM).sum()
    taken = (found.mlm != -100) | covered
    assert taken.sum() <= np.ceil(budget) and (share or not covered.any())
    segments = np.full(len(text.ids), -100)
    for start, end, _, k in text.mentions:
        ends = None if k == RANDOM else world.pieces.piece_ends(text.ids[start:end])
        own = covered[start:end]
        if ends is None:
            assert not own.any()
            if entities and k == ORIGINAL and not own.any():
                assert len(set((found.mlm[start:end] != -100).tolist())) == 1  # whole or not at all
            continue
        segments[start:end] = [1 if i + 1 in ends else 0 for i in range(end - start)]
        assert (found.segments[start:end] == 1).sum() == len(ends)  # as many as sub-entities
        middle = ends[-2]
        assert not (own[:middle].any() and own[middle:].any())  # never both
        if own.any():
            side = ADJECTIVE if own[0] else ATOMIC
            begin, size = (0, middle) if side == ADJECTIVE else (middle, end - start - middle)
            near = (middle, end - start - 1) if side == ADJECTIVE else (0, middle - 1)
            rows = found.parts[(found.parts[:, 0] >= start) & (found.parts[:, 0] < end)]
            wanted = [
                [start + begin + j, start + near[0], start + near[1], j, size, side]
                for j in range(size)
            ]
            assert rows.tolist() == wanted
            left = ~own
            assert not changed[start:end][left].any() and (found.mlm[start:end][left] == -100).all()
    assert (found.segments == segments).all()


@pytest.mark.parametrize("rate", [0.075, 0.15, 0.25])
@pytest.mark.parametrize("entities", [False, True])
def test_the_corruption_rate_is_what_it_says(world: World, rate: float, entities: bool) -> None:
    text = world.text(["人有病", 0, "之人", 1, "有", 3, "病人有之人有病人有之人"])
    taken, parts, directions, outcomes = 0, 0, [], [0, 0, 0]
    for seed in range(3000):
        found = hidden(world, text, seed, rate=rate, entities=entities)
        taken += int((found.mlm != -100).sum())
        parts += len(found.parts)
        directions += found.parts[found.parts[:, 3] == 0, 5].tolist()
        drawn = found.mlm != -100
        drawn[found.parts[:, 0]] = False
        outcomes[0] += int((drawn & (found.ids == MASK)).sum())
        outcomes[1] += int((drawn & (found.ids == text.ids)).sum())
        outcomes[2] += int(drawn.sum())
    assert abs(taken / 3000 / len(text.ids) - rate) < 0.01
    assert abs(parts / taken - 0.5) < 0.02 and abs(np.mean(directions) - 0.5) < 0.04
    assert (
        abs(outcomes[0] / outcomes[2] - 0.8) < 0.02 and abs(outcomes[1] / outcomes[2] - 0.1) < 0.04
    )
    assert not len(hidden(world, text, 0, parts=0.0).parts) and not len(
        hidden(world, text, 0, longest=1).parts
    )


def test_edges_of_a_text(world: World) -> None:
    """Entities at both ends and side by side, and one that is all there is."""
    text = world.text([0, 3, "人", 1])
    for seed in range(30):
        after = replace_mentions(text, world.names, 1.0, 99, np.random.default_rng(seed))
        assert (
            after.mentions[:, 3].tolist()[1] == ORIGINAL
            and (after.mentions[[0, 2], 3] != ORIGINAL).all()
        )
    alone = world.text([0])
    found = hidden(world, alone, 0, rate=1.0, parts=1.0)
    # the other half is left to predict from
    assert len(found.parts) == 2 and (found.mlm != -100).sum() == 2
    empty = Text(np.zeros(0, np.int64), np.zeros(0, bool), np.zeros((0, 4), np.int64), 0)
    assert not len(hidden(world, empty, 0).ids)


def test_segments_are_joined_within_the_limit(world: World) -> None:
    one = Example(world.ids("人有病"), np.ones(3, bool), np.array([[2, 3, 4]], np.int32))
    two = Example(
        world.ids("之肾癌甲片"), np.ones(5, bool), np.array([[1, 3, 1], [3, 5, 2]], np.int32)
    )
    whole = join_segments(part(one, 0, 3), part(two, 1, 5), 9)
    assert world.words(whole.ids) == "人有病肾癌甲片" and whole.cut == 3
    assert whole.mentions.tolist() == [[2, 3, 4, 0], [3, 5, 1, 0], [5, 7, 2, 0]]
    short = join_segments(part(one, 0, 3), part(two, 1, 5), 6)
    assert world.words(short.ids) == "人有病肾癌甲" and short.mentions.tolist() == [
        [2, 3, 4, 0],
        [3, 5, 1, 0],
    ]


def data(fake: Folders, **more: object) -> EMBERTData:
    given = {"batch_size": 8, "max_length": LENGTH + 1, "replace": 0.5, "rate": 0.3} | more
    made = EMBERTData(fake.corpus, fake.bert, fake.graph, fake.segments, fake.thesaurus, **given)  # type: ignore[arg-type]
    made.setup()
    return made


def test_batches_are_functions_of_their_examples(fake_embert: Folders) -> None:
    made = data(fake_embert)
    rows = made.order(0)[0]
    whole = made.batch(rows, 0)
    again, other = data(fake_embert).batch(rows, 0), made.batch(rows, 1)
    assert all(torch.equal(a, b) for a, b in zip(whole[:-1], again[:-1], strict=True))
    assert whole.input_ids.shape != other.input_ids.shape or not torch.equal(
        whole.input_ids, other.input_ids
    )
    halves = [made.batch(rows[:4], 0), made.batch(rows[4:], 0)]
    assert torch.equal(whole.counts, halves[0].counts + halves[1].counts)
    assert torch.equal(whole.hidden_ids, torch.cat([h.hidden_ids for h in halves]))
    assert torch.equal(whole.consistent, torch.cat([h.consistent for h in halves]))
    blank = made.batch(rows, 0, blank=True)
    assert (
        not blank.counts.any()
        and (blank.mlm_labels == -100).all()
        and not len(blank.hidden)
        and not len(blank.replaced)
    )
    assert (blank.pair == -100).all() and (blank.segment_labels == -100).all()


def test_a_batch_says_what_it_is(fake_embert: Folders) -> None:
    """Boundaries next to replaced names, halves inside their entities, pairs, counts."""
    made = data(fake_embert)
    tokenizer = made.tokenizer
    seen: list[EMBERTBatch] = [made.batch(rows, 0) for rows in made.order(0)]
    for b in seen:
        sizes = [
            b.mlm_labels.ne(-100).sum(),
            b.pair.ne(-100).sum(),
            len(b.replaced),
            b.segment_labels.ne(-100).sum(),
            (b.hidden[:, 5] == 0).sum(),
            (b.hidden[:, 5] == 1).sum(),
            len(b.input_ids),
        ]
        assert b.counts.tolist() == [float(s) for s in sizes] and len(b.hidden) == len(b.hidden_ids)
        assert (b.attention_mask.sum(1) <= LENGTH + 1).all()
        separators = (b.input_ids == tokenizer.sep_token_id).sum(1)
        assert torch.equal(separators, 1 + (b.pair != -100).long())
        for row, before, behind in b.replaced.tolist():
            assert 0 <= before < behind - 1 and b.attention_mask[row, behind] == 1
            assert (b.mlm_labels[row, before + 1 : behind] == -100).all()
        for row, first, last, position, length, side in b.hidden.tolist():
            at = (last + 1 if side == ATOMIC else first - length) + position
            assert b.input_ids[row, at] == tokenizer.mask_token_id
            assert tokenizer.mask_token_id not in b.input_ids[row, first : last + 1]
    pair = torch.cat([b.pair for b in seen])
    pair = pair[pair != -100].float()
    assert len(pair) > 50 and 0.35 < pair.mean() < 0.65
    consistent = torch.cat([b.consistent for b in seen]).float()
    assert len(consistent) > 50 and 0.3 < consistent.mean() < 0.7
    swapped = data(fake_embert, pair="sop", replace=0.0, rate=0.0)
    b = swapped.batch(swapped.order(0)[0], 0)
    for row, index in enumerate(swapped.order(0)[0]):
        own = sorted(swapped.corpus[int(index)].ids.tolist())  # type: ignore[index]
        kept = [i for i in b.input_ids[row].tolist() if i not in tokenizer.all_special_ids]
        assert sorted(kept) == own  # the same text, in another order


def test_unigrams_are_the_commonest_tokens(fake_embert: Folders) -> None:
    made = data(fake_embert)
    found = made.unigrams
    assert made.corpus is not None
    count: dict[tuple[int, int, int, int], int] = {}
    for index in made.train_indices:
        example = made.corpus[int(index)]
        for start, end, _ in example.mentions:
            for name, (kind, rest) in fakes.long_names():
                if (
                    made.tokenizer(name, add_special_tokens=False)["input_ids"]
                    == example.ids[start:end].tolist()
                ):
                    for side, piece in ((ATOMIC, rest), (ADJECTIVE, kind)):
                        for j, token in enumerate(
                            made.tokenizer(piece, add_special_tokens=False)["input_ids"]
                        ):
                            count[side, len(piece), j, token] = (
                                count.get((side, len(piece), j, token), 0) + 1
                            )
    assert found and {k[:3] for k in count} == set(found)
    for key, token in found.items():
        assert count[*key, token] == max(c for k, c in count.items() if k[:3] == key)


def test_parts_that_do_not_belong_together(fake_embert: Folders, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"segments.parquet: missing.*kepl graph segment build"):
        data(fake_embert._replace(segments=str(tmp_path)))
    with pytest.raises(InputError, match="max_length"):
        data(fake_embert, max_length=LENGTH)
    with pytest.raises(InputError, match="rate 1.5: expected a share"):
        data(fake_embert, rate=1.5)


def test_a_wrong_segment_is_of_the_same_side_of_the_split(fake_embert: Folders) -> None:
    """Training draws it from training text, validation from held-out text: else validation would
    see what was learnt."""
    made = data(fake_embert, replace=0.0, rate=0.0)
    assert made.corpus is not None

    def endings(indices: np.ndarray) -> set[tuple[int, ...]]:
        corpus = made.corpus
        assert corpus is not None
        examples = [corpus[int(i)] for i in indices]
        return {tuple(e.ids[made.cut(e) :].tolist()) for e in examples}

    sides = {True: endings(made.held_out_indices), False: endings(made.train_indices)}
    assert sides[True] - sides[False] and sides[False] - sides[True]
    for held_out, indices in ((True, made.held_out_indices), (False, made.train_indices)):
        wrong = 0
        for index in indices[:40]:
            for seed in range(6):
                text, label = made.text(int(index), held_out, np.random.default_rng(seed))
                if label == 1 and len(text.ids) < made.max_length - 3:  # not cut
                    wrong += 1
                    assert tuple(text.ids[text.cut :].tolist()) in sides[held_out]
        assert wrong > 10


def test_a_random_name_is_inconsistent_and_a_synonym_is_not(
    fake_embert: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The labels of Eq. (1), of replacements that are of one kind only."""
    made, real = data(fake_embert), replace_mentions
    for kind, label in ((SYNONYM, 1), (RANDOM, 0)):

        def one_kind(*given: object, kind: int = kind) -> Text:
            text = real(*given)  # type: ignore[arg-type]
            changed = text.mentions[:, 3] != ORIGINAL
            return text._replace(
                mentions=np.where(changed[:, None] & (np.arange(4) == 3), kind, text.mentions)
            )

        monkeypatch.setattr("datamodules.embert.replace_mentions", one_kind)
        found = made.batch(made.order(0)[0], 0).consistent
        assert len(found) > 3 and set(found.tolist()) == {label}
