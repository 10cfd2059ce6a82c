"""Constrained search: equals scoring every name, generate, and a literal search by the fairseq
rule; bad input."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BartConfig, BartForConditionalGeneration

from core.files import InputError
from kg.search.trie import Ragged, Trie
from models import decoding
from models.decoding import constrained_search

VOCABULARY, EOS, ROOT = 60, 2, 16


@cache
def bart(seed=0, sharp=6.0, positions=40, attention="sdpa", vocabulary=VOCABULARY):
    """A tiny BART with random weights, large enough that its distributions are far from even."""
    torch.manual_seed(seed)
    config = BartConfig(
        vocab_size=vocabulary,
        d_model=16,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=positions,
        forced_eos_token_id=None,
        forced_bos_token_id=None,
        init_std=sharp / 16,
        attn_implementation=attention,
    )
    model = BartForConditionalGeneration(config).eval()
    torch.nn.init.normal_(model.final_logits_bias)
    return model


def sequences(count, seed, tokens=8, longest=5):
    """Distinct names over few tokens: many share beginnings, some are beginnings of others."""
    random = np.random.default_rng(seed)
    found = {
        tuple(random.integers(20, 20 + tokens, random.integers(1, longest + 1)).tolist())
        for _ in range(count)
    }
    return sorted(found)


def questions(count, seed, contexts=(3, 12), prompts=(2, 6), is_inside=False):
    """(ids, mask, prompts) of random lengths; contexts padded on the right with 1."""
    random = np.random.default_rng(seed)
    lengths = random.integers(*contexts, count)
    ids = torch.ones(count, int(lengths.max()), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.from_numpy(random.integers(3, VOCABULARY, length))
        mask[row, :length] = 1
    asked = []
    for _ in range(count):
        mention = random.integers(30, VOCABULARY, random.integers(*prompts)).tolist()
        if is_inside:
            mention[0] = ROOT
        asked.append([EOS, *mention, ROOT])
    return ids, mask, asked


def logp_of(model, ids, mask, tokens):
    """(len(tokens), vocabulary) log-probabilities of what follows each of `tokens`; one mention, no
    cache, no padding."""
    context = ids[mask.bool()][None]
    with torch.inference_mode():
        return (
            model(context, decoder_input_ids=torch.tensor([tokens]))
            .logits[0]
            .float()
            .log_softmax(-1)
        )


def brute_force(model, names, ids, mask, prompt, score="name", renormalised=False):
    """[(number of the name, score)], best first: every name scored by itself, from the
    definitions."""
    found = []
    closed = [[*name, EOS] for name in names]
    for number, name in enumerate(closed):
        logp = logp_of(model, ids, mask, [*prompt, *name[:-1]])
        each = []
        for i, token in enumerate(name):
            row = logp[len(prompt) - 1 + i]
            if renormalised:
                allowed = sorted({other[i] for other in closed if other[:i] == name[:i]})
                each.append(float(row[token] - row[allowed].logsumexp(0)))
            else:
                each.append(float(row[token]))
        before = [
            float(logp[i][prompt[i + 1]]) for i in range(prompt.index(prompt[-1]), len(prompt) - 1)
        ]
        if score == "mean":
            each = before + each
        found.append((number, sum(each) if score == "sum" else sum(each) / len(each)))
    return sorted(found, key=lambda x: -x[1])


def literal(model, names, ids, mask, prompt, beams, longest=30):
    """The released search, one mention, one beam after the other: [(name, score)], best first.

    From its description: candidates are the `beams` best continuations of all slots; a slot that is
    ignored, or whose sequence has ended, stays in place; as many ranks as hypotheses have finished
    may no longer finish.
    """
    closed = {(*name, EOS) for name in names}
    slots, finished, ignored = [((), 0.0)], [], 0
    for _ in range(longest):
        candidates = []
        for name, total in slots:
            logp = logp_of(model, ids, mask, [*prompt, *name])[-1]
            allowed = {
                c[len(name)] for c in closed if len(c) > len(name) and c[: len(name)] == name
            }
            candidates += [((*name, token), total + float(logp[token])) for token in allowed]
        candidates = sorted(candidates, key=lambda x: -x[1])[:beams]
        active, last = [], []
        for rank, (name, total) in enumerate(candidates):
            if rank < beams - ignored and name[-1] == EOS:
                finished.append(name)
                last.append((name, total))
            elif rank < beams - ignored:
                active.append((name, total))
            else:
                last.append((name, total))
        ignored += sum(name[-1] == EOS for name, _ in candidates[: beams - ignored])
        if len(finished) == beams:
            break
        slots = active + last
        if not slots:
            break
    first = prompt.index(ROOT)
    scored = []
    for name in finished:
        tokens = [*prompt, *name]
        logp = logp_of(model, ids, mask, tokens[:-1])
        each = [float(logp[i][tokens[i + 1]]) for i in range(first, len(tokens) - 1)]
        scored.append((name[:-1], sum(each) / len(each)))
    return sorted(scored, key=lambda x: -x[1])


def exhaustive(model, names, ids, mask, prompt, beams, score):
    """The default rule without its stopping: every completed name counts, beams run until none is
    left."""
    closed = {(*name, EOS) for name in names}
    slots, finished = [((), 0.0)], []
    while slots:
        candidates = []
        for name, total in slots:
            logp = logp_of(model, ids, mask, [*prompt, *name])[-1]
            allowed = {
                c[len(name)] for c in closed if len(c) > len(name) and c[: len(name)] == name
            }
            candidates += [((*name, token), total + float(logp[token])) for token in allowed]
        finished += [
            (n[:-1], t if score == "sum" else t / len(n)) for n, t in candidates if n[-1] == EOS
        ]
        slots = sorted((c for c in candidates if c[0][-1] != EOS), key=lambda x: -x[1])[:beams]
    return sorted(finished, key=lambda x: -x[1])[:beams]


def trie_of(names, vocabulary=VOCABULARY):
    trie = Trie.build(Ragged.from_lists(names), vocabulary=vocabulary)
    assert len(trie) == len(names)
    return trie


def named(trie, ranking):
    leaves = np.array([leaf for leaf, _ in ranking], np.int64)
    return list(
        zip(
            map(tuple, (r.tolist() for r in trie.sequences(leaves).rows())),
            (s for _, s in ranking),
            strict=True,
        )
    )


def assert_same(found, wanted, atol=2e-4):
    """The same names in the same order at the same scores, but for neighbours whose scores are
    equal to `atol`."""
    assert len(found) == len(wanted)
    assert [s for _, s in found] == pytest.approx([s for _, s in wanted], abs=atol)
    scores = dict(wanted)
    for name, score in found:
        assert scores[name] == pytest.approx(score, abs=atol)


@given(
    st.integers(1, 25),
    st.integers(0, 999),
    st.integers(1, 4),
    st.sampled_from(decoding.SCORES),
    st.booleans(),
)
@settings(max_examples=15, deadline=None)
def test_equals_scoring_every_name(count, seed, mentions, score, renormalised):
    """With as many beams as names nothing is pruned: whatever the score, the ranking is that of all
    names."""
    model, names = bart(seed % 3), sequences(count, seed)
    trie, (ids, mask, prompts) = trie_of(names), questions(mentions, seed, is_inside=seed % 2 == 0)
    found = constrained_search(
        model, trie, ids, mask, prompts, beams=len(names), score=score, renormalised=renormalised
    )
    for row, ranking in enumerate(found):
        wanted = brute_force(model, names, ids[row], mask[row], prompts[row], score, renormalised)
        assert_same(named(trie, ranking), [(names[number], value) for number, value in wanted])
        assert [v for _, v in ranking] == sorted((v for _, v in ranking), reverse=True)


@pytest.mark.parametrize("rule", decoding.RULES)
def test_the_same_at_every_batch_size(rule):
    """A mention's ranking depends on neither batch mates nor padding, whatever the lengths of
    contexts and prompts."""
    model, trie = bart(), trie_of(sequences(300, 0, longest=7))
    ids, mask, prompts = questions(11, 0, contexts=(2, 20), prompts=(1, 12))
    alone = [
        constrained_search(
            model,
            trie,
            ids[i : i + 1, : mask[i].sum()],
            mask[i : i + 1, : mask[i].sum()],
            [prompt],
            finish_rule=rule,
        )[0]
        for i, prompt in enumerate(prompts)
    ]
    assert all(len(ranking) == 5 for ranking in alone)
    for size in (2, 3, 11):
        for start in range(0, 11, size):
            part = slice(start, start + size)
            found = constrained_search(
                model, trie, ids[part], mask[part], prompts[part], finish_rule=rule
            )
            for one, two in zip(found, alone[part], strict=True):
                assert [leaf for leaf, _ in one] == [leaf for leaf, _ in two]
                assert [s for _, s in one] == pytest.approx([s for _, s in two], abs=1e-4)
    more = (
        torch.cat([ids, torch.full((11, 3), 7)], 1),
        torch.cat([mask, torch.zeros(11, 3).long()], 1),
    )
    for one, two in zip(
        constrained_search(model, trie, *more, prompts, finish_rule=rule), alone, strict=True
    ):
        assert_same(one, two)


def test_eager_attention_is_the_same():
    trie, asked = trie_of(sequences(100, 3)), questions(4, 3)
    one, two = (
        constrained_search(bart(1, attention=kind), trie, *asked) for kind in ("sdpa", "eager")
    )
    assert [[leaf for leaf, _ in r] for r in one] == [[leaf for leaf, _ in r] for r in two]


def generated(model, names, ids, mask, prompts, beams, penalty):
    """transformers' own search: [[(name, score)]]. All prompts have one length."""
    trie, length = {}, len(prompts[0])
    for name in names:
        node = trie
        for token in (*name, EOS):
            node = node.setdefault(token, {})

    def allowed(_, sequence):
        node = trie
        for token in sequence.tolist()[length:]:
            node = node.get(token, {})
        return list(node) or [EOS]

    out = model.generate(
        input_ids=ids,
        attention_mask=mask,
        decoder_input_ids=torch.tensor(prompts),
        prefix_allowed_tokens_fn=allowed,
        num_beams=beams,
        num_return_sequences=beams,
        early_stopping="never",
        length_penalty=penalty,
        max_length=length + 1 + max(map(len, names)),
        return_dict_in_generate=True,
        output_scores=True,
    )
    found = [[] for _ in prompts]
    for i, (tokens, score) in enumerate(
        zip(out.sequences.tolist(), out.sequences_scores.tolist(), strict=True)
    ):
        if score > -1e8:  # lower: generate fills up with sequences that the constraint forbids
            found[i // beams].append((tuple(tokens[length : tokens.index(EOS, length)]), score))
    return found


@pytest.mark.parametrize(("score", "penalty"), [("sum", 0.0), ("name", 1.0)])
@pytest.mark.parametrize("seed", range(3))
def test_equals_generate(score, penalty, seed):
    """With generate's own finish rule: the same names at the same scores, for two beams, five, and
    more than names."""
    model, names = bart(seed), sequences(250, seed, longest=7)
    trie, (ids, mask, prompts) = trie_of(names), questions(6, seed, prompts=(3, 4))
    for beams, some in ((2, names), (5, names), (5, names[:3]), (12, names)):
        own = trie if some is names else trie_of(some)
        found = constrained_search(
            model, own, ids, mask, prompts, beams=beams, score=score, finish_rule="transformers"
        )
        for ranking, wanted in zip(
            found, generated(model, some, ids, mask, prompts, beams, penalty), strict=True
        ):
            assert_same(named(own, ranking), wanted)


def test_the_default_rule_never_scores_lower():
    """It keeps the names that generate keeps, and others that a beam completes at a lower rank."""
    worse = 0
    for seed in range(4):
        model, trie = bart(seed), trie_of(sequences(250, seed, longest=7))
        asked = questions(6, seed)
        for score in ("sum", "name"):
            best, ranked = (
                constrained_search(model, trie, *asked, score=score, finish_rule=rule)
                for rule in ("best", "transformers")
            )
            for a, b in zip(best, ranked, strict=True):
                assert all(x >= y - 1e-4 for (_, x), (_, y) in zip(a, b, strict=True))
                worse += [leaf for leaf, _ in a] != [leaf for leaf, _ in b]
    assert worse  # they do differ


@given(st.integers(1, 60), st.integers(0, 999), st.integers(1, 5), st.sampled_from(["sum", "name"]))
@settings(max_examples=15, deadline=None)
def test_stopping_early_loses_nothing(count, seed, beams, score):
    """The search stops when no beam can get better; running on to the end finds the same."""
    model, names = bart(seed % 4), sequences(count, seed, tokens=4)
    trie, (ids, mask, prompts) = trie_of(names), questions(2, seed)
    found = constrained_search(model, trie, ids, mask, prompts, beams=beams, score=score)
    for row, ranking in enumerate(found):
        assert_same(
            named(trie, ranking),
            exhaustive(model, names, ids[row], mask[row], prompts[row], beams, score),
        )


@pytest.mark.parametrize("rule", ["best", "transformers"])
def test_a_long_name_may_catch_up(rule):
    """Three unlikely tokens, then only certain ones: its mean is the best in the end, when short
    names long fill the ranking."""
    model = bart(7, sharp=0.5)
    model.final_logits_bias[:] = 0
    model.final_logits_bias[0, 50] = 15
    long = (21, 22, 23, *[50] * 20)
    trie = trie_of([(50,), (50, 50), long])
    for ranking in constrained_search(model, trie, *questions(3, 0), beams=2, finish_rule=rule):
        assert [name for name, _ in named(trie, ranking)] == [long, (50, 50)]


@given(st.integers(1, 60), st.integers(0, 999), st.integers(1, 6), st.booleans())
@settings(max_examples=15, deadline=None)
def test_fairseq_rule_equals_the_literal_search(count, seed, beams, is_inside):
    """Names and scores of the released search, its mean over a part of the prompt included (a
    mention with " is")."""
    model, names = bart(seed % 4), sequences(count, seed, tokens=4)
    trie, (ids, mask, prompts) = trie_of(names), questions(3, seed, is_inside=is_inside)
    found = constrained_search(model, trie, ids, mask, prompts, beams=beams, finish_rule="fairseq")
    for row, ranking in enumerate(found):
        wanted = literal(model, names, ids[row], mask[row], prompts[row], beams)
        assert_same(named(trie, ranking), wanted)


def test_fairseq_rule_differs_from_the_default():
    model, trie = bart(1), trie_of(sequences(200, 5, longest=6))
    asked = questions(16, 5)
    sets = [
        [
            {leaf for leaf, _ in r}
            for r in constrained_search(model, trie, *asked, score="name", finish_rule=rule)
        ]
        for rule in ("best", "fairseq")
    ]
    assert 0 < sum(a != b for a, b in zip(*sets, strict=True)) < 16


def test_mean_counts_the_prompt_behind_the_first_is():
    """D: " is" inside the mention. The score "name" does not count it, "mean" does, as the released
    search."""
    model, names = bart(), sequences(12, 0)
    trie, (ids, mask, _) = trie_of(names), questions(2, 0)
    prompts = [[EOS, 33, ROOT, 40, 41, ROOT], [EOS, 33, 34, ROOT]]
    name, mean = (
        constrained_search(model, trie, ids, mask, prompts, beams=12, score=s)
        for s in ("name", "mean")
    )
    assert name[1] == mean[1] and name[0] != mean[0]
    logp = logp_of(model, ids[0], mask[0], prompts[0])
    tail = float(logp[2, 40] + logp[3, 41] + logp[4, ROOT])
    lengths = {leaf: len(s) + 1 for leaf, s in enumerate(trie.names())}
    wanted = {leaf: (tail + score * lengths[leaf]) / (3 + lengths[leaf]) for leaf, score in name[0]}
    assert dict(mean[0]) == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("rule", decoding.RULES)
def test_candidates(rule):
    """Each mention has its own names; none, one, doubled ones, all. Leaves are those of the whole
    trie."""
    model, names = bart(2), sequences(60, 2)
    trie, (ids, mask, prompts) = trie_of(names), questions(5, 2)
    random = np.random.default_rng(0)
    lists = [
        [],
        [7],
        [3, 3, 4],
        random.permutation(len(names))[:20].tolist(),
        list(range(len(names))),
    ]
    found = constrained_search(model, trie, ids, mask, prompts, candidates=lists, finish_rule=rule)
    whole = constrained_search(model, trie, ids, mask, prompts, finish_rule=rule)
    assert (
        found[0] == []
        and [leaf for leaf, _ in found[1]] == [7]
        and {leaf for leaf, _ in found[2]} == {3, 4}
    )
    assert {leaf for leaf, _ in found[3]} <= set(lists[3]) and len(found[3]) == 5
    assert [leaf for leaf, _ in found[4]] == [leaf for leaf, _ in whole[4]]
    for row in range(1, 4):
        some = [tuple(s.tolist()) for s in trie.sequences(np.unique(lists[row])).rows()]
        own = constrained_search(
            model,
            trie_of(some),
            ids[row : row + 1],
            mask[row : row + 1],
            [prompts[row]],
            finish_rule=rule,
        )[0]
        assert_same(named(trie, found[row]), named(trie_of(some), own))
    assert (
        constrained_search(model, trie, ids, mask, prompts, candidates=[[]] * 5, finish_rule=rule)
        == [[]] * 5
    )
    assert (
        constrained_search(model, trie, ids, mask, prompts, candidates=[[]] * 5, renormalised=True)
        == [[]] * 5
    )
    with pytest.raises(
        InputError, match=f"leaves run from 2 to {len(names)}; expected 0 to {len(names) - 1}"
    ):
        constrained_search(
            model, trie, ids, mask, prompts, candidates=[[2], [len(names)], [], [], []]
        )
    with pytest.raises(InputError, match="5 mentions but 1 lists of candidates"):
        constrained_search(model, trie, ids, mask, prompts, candidates=[[2]])


@pytest.mark.parametrize("rule", decoding.RULES)
def test_fewer_names_than_beams(rule):
    """Terminates, and finds all there are."""
    names = [(20,), (20, 21), (22, 23, 24)]
    found = constrained_search(bart(), trie_of(names), *questions(2, 0), beams=9, finish_rule=rule)
    assert [sorted(leaf for leaf, _ in r) for r in found] == [[0, 1, 2]] * 2
    assert (
        constrained_search(
            bart(), trie_of(names), torch.zeros(0, 3).long(), torch.zeros(0, 3).long(), []
        )
        == []
    )


def test_several_concepts_and_wide_vocabularies():
    """Predictions are leaves: two concepts of one name are both its; token ids above 65,535
    work."""
    model = bart(vocabulary=70_000)
    names = [(69_990, 5), (69_990, 5), (300, 69_999), (4,)]
    trie = Trie.build(Ragged.from_lists(names), np.array([9, 3, 1, 3]), vocabulary=70_000)
    assert trie.tokens.dtype == np.uint32 and len(trie) == 3
    ids, mask, prompts = questions(2, 0)
    for row, ranking in enumerate(constrained_search(model, trie, ids, mask, prompts)):
        distinct = [tuple(s.tolist()) for s in trie.names()]
        assert_same(ranking, brute_force(model, distinct, ids[row], mask[row], prompts[row]))
        assert {tuple(trie.concepts_of(leaf)) for leaf, _ in ranking} == {(3, 9), (1,), (3,)}


def test_loaded_trie(tmp_path):
    """A memory-mapped trie returns what the built one returns."""
    trie, asked = trie_of(sequences(80, 1)), questions(3, 1)
    loaded = Trie.load(trie.save(tmp_path / "trie"), "")
    assert constrained_search(bart(), loaded, *asked) == constrained_search(bart(), trie, *asked)


def test_names_beyond_the_decoder_are_not_reached():
    """Prompt and name must fit the positions: what does not is left out, of that mention only."""
    names = [(20,), (21, 22), (23, 24, 25, 26)]
    ids, mask, _ = questions(2, 0, contexts=(3, 8))
    prompts = [[EOS, 30, 31, 32, 33, 34, ROOT], [EOS, 30, ROOT]]
    found = constrained_search(bart(positions=9), trie_of(names), ids, mask, prompts)
    assert [sorted(leaf for leaf, _ in r) for r in found] == [[0, 1], [0, 1, 2]]


@pytest.mark.parametrize("rule", decoding.RULES)
def test_without_looking_at_the_data(monkeypatch, rule):
    """What runs on an accelerator, where no step waits for a value, returns the same rankings."""
    trie, asked = trie_of(sequences(200, 4, longest=9)), questions(7, 4)
    lists = [[], *(range(i, 200 - 20 * i, 3) for i in range(1, 7))]
    lists = [[leaf for leaf in each if leaf < len(trie)] for each in lists]
    wanted = [
        constrained_search(bart(), trie, *asked, candidates=c, finish_rule=rule)
        for c in (None, lists)
    ]
    monkeypatch.setattr(decoding, "_looks", lambda device: False)
    found = [
        constrained_search(bart(), trie, *asked, candidates=c, finish_rule=rule)
        for c in (None, lists)
    ]
    for one, two in zip(found[0] + found[1], wanted[0] + wanted[1], strict=True):
        assert_same(one, two)


def test_under_autocast():
    """Mixed precision runs, and scores differ by its rounding only."""
    trie, asked = trie_of(sequences(30, 4)), questions(3, 4)
    wanted = constrained_search(bart(), trie, *asked, beams=len(trie))
    with torch.autocast("cpu", torch.bfloat16):
        found = constrained_search(bart(), trie, *asked, beams=len(trie))
    for one, two in zip(found, wanted, strict=True):
        assert dict(one) == pytest.approx(dict(two), abs=0.5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("rule", decoding.RULES)
def test_gpu_returns_the_same(rule):
    trie, (ids, mask, prompts) = trie_of(sequences(200, 4, longest=9)), questions(7, 4)
    wanted = constrained_search(bart(5), trie, ids, mask, prompts, finish_rule=rule)
    found = constrained_search(
        bart(5).cuda(), trie, ids.cuda(), mask.cuda(), prompts, finish_rule=rule
    )
    bart(5).cpu()
    for one, two in zip(found, wanted, strict=True):
        assert_same(one, two, 1e-3)


def test_what_the_search_refuses():
    trie, (ids, mask, prompts) = trie_of([(20,)]), questions(2, 0)

    def refused(message, *asked, model=None, **settings):
        with pytest.raises(InputError, match=re.escape(message)):
            constrained_search(model or bart(), trie, *(asked or (ids, mask, prompts)), **settings)

    refused(
        "no finish rule 'first'; did you mean fairseq? Choose from: best, transformers, fairseq",
        finish_rule="first",
    )
    refused("no score 'max'; choose from: sum, mean, name", score="max")
    refused("expected 1 beam or more, got 0", beams=0)
    refused("training mode", model=BartForConditionalGeneration(bart().config))
    refused("the trie's vocabulary has 60 tokens, the model's 30", model=bart(vocabulary=30))
    refused("and a prompt each, got", ids, mask, prompts[:1])
    refused("and a prompt each, got", ids, mask[:, 1:], prompts)
    long = torch.full((2, 41), 5)
    refused("a context of 41 tokens; the encoder accepts 40", long, torch.ones_like(long), prompts)
    refused("a context without tokens", ids, torch.zeros_like(mask), prompts)
    refused("prompt 1 has 0 tokens; expected 1 to 39", ids, mask, [prompts[0], []])
    refused("prompt 0 has 40 tokens; expected 1 to 39", ids, mask, [[EOS] * 40, prompts[1]])
