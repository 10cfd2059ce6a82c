"""Decoding several masks against the algorithm in full, and what a batch must not change."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    RobertaConfig,
    RobertaForMaskedLM,
)

from core.files import InputError
from models import probing
from models.kebiolm import KeBioLM, KeBioLMEncoder
from models.kebiolm import masked_lm as kebiolm_masked_lm
from models.probing import (
    Filling,
    MaskedLM,
    best_of,
    best_tokens,
    fillings,
    from_transformers,
    masked_lm,
)
from tests.fakes.kebiolm import Folders

MASK = 1


def bert(
    seed: int = 0, vocab: int = 7, hidden: int = 16, layers: int = 2, length: int = 40
) -> BertForMaskedLM:
    """A random BERT with sharp predictions."""
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * hidden,
        max_position_embeddings=length,
        initializer_range=0.5,
    )
    return BertForMaskedLM(config).eval()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("mlm")
    bert().save_pretrained(folder)
    return str(folder)


def wrap_model(model: BertForMaskedLM) -> MaskedLM:
    return from_transformers(copy.deepcopy(model))


def log_probabilities(model: BertForMaskedLM, ids: Sequence[int]) -> Tensor:
    with torch.no_grad():
        return model(input_ids=torch.tensor([list(ids)])).logits[0].log_softmax(-1)


def slow(
    model: BertForMaskedLM, prompt: Sequence[int], masks: int, beams: int, never: Sequence[int] = ()
) -> list[tuple[tuple[int, ...], float]]:
    """Section 4.6.2 word by word: each step, every token at every place that is still masked, given
    what is decoded; the best B sets of (place, token) by accumulated log probability, a set by the
    best of its orders."""
    first = list(prompt).index(MASK)
    wide = [*prompt[:first], *[MASK] * masks, *prompt[first + 1 :]]
    kept: dict[frozenset[tuple[int, int]], float] = {frozenset(): 0.0}
    for _ in range(masks):
        found: dict[frozenset[tuple[int, int]], float] = {}
        for known, score in kept.items():
            ids = list(wide)
            for place, token in known:
                ids[first + place] = token
            table = log_probabilities(model, ids)
            for place in set(range(masks)) - {p for p, _ in known}:
                for token in range(table.shape[1]):
                    if token not in never:
                        more = known | {(place, token)}
                        total = score + float(table[first + place, token])
                        found[more] = max(found.get(more, -math.inf), total)
        kept = dict(sorted(found.items(), key=lambda item: -item[1])[:beams])
    return [(tuple(token for _, token in sorted(known)), score) for known, score in kept.items()]


def agree(ours: list[Filling], theirs: list[tuple[tuple[int, ...], float]]) -> None:
    assert [f.tokens for f in ours] == [tokens for tokens, _ in theirs]
    assert [f.score for f in ours] == pytest.approx([score for _, score in theirs], abs=1e-4)


PROMPT = [2, 3, MASK, 4, 3]


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    masks=st.integers(1, 4),
    beams=st.integers(1, 6),
    first=st.integers(0, 3),
)
def test_search_equals_its_definition(seed: int, masks: int, beams: int, first: int) -> None:
    model = bert(seed)
    prompt = [2, 3, 4, 5]
    prompt.insert(first, MASK)
    for never in ((), (0, 1)):
        (ours,) = fillings(wrap_model(model), [prompt], MASK, masks, beams, never)
        agree(ours, slow(model, prompt, masks, beams, never))
        assert len(set(f.tokens for f in ours)) == len(ours)


@pytest.mark.parametrize("seed", range(4))
def test_confidence_fills_the_most_probable_place_first(seed: int) -> None:
    """Jiang et al. 2020, Section 4: predict all, write the most confident one, predict again."""
    model, masks = bert(seed), 4
    ids = [2, 3, *[MASK] * masks, 4]
    score, open_ = 0.0, set(range(2, 2 + masks))
    while open_:
        table = log_probabilities(model, ids)
        place, token = max(itertools.product(open_, range(7)), key=lambda at: float(table[at]))
        score += float(table[place, token])
        ids[place] = token
        open_.remove(place)
    (ours,) = fillings(wrap_model(model), [[2, 3, MASK, 4]], MASK, masks, beams=1)
    agree(ours, [(tuple(ids[2 : 2 + masks]), score)])


def test_enough_beams_find_the_best_of_all_orders_and_fillings() -> None:
    model, masks, words = bert(3, vocab=5), 3, (2, 3, 4)
    best: dict[tuple[int, ...], float] = {}
    for tokens in itertools.product(words, repeat=masks):
        for order in itertools.permutations(range(masks)):
            ids, score = [2, *[MASK] * masks, 3], 0.0
            for place in order:
                score += float(log_probabilities(model, ids)[1 + place, tokens[place]])
                ids[1 + place] = tokens[place]
            best[tokens] = max(best.get(tokens, -math.inf), score)
    (ours,) = fillings(wrap_model(model), [[2, MASK, 3]], MASK, masks, beams=1000, never=(0, 1))
    agree(ours, sorted(best.items(), key=lambda item: -item[1]))


class _Table(nn.Module):
    """A masked LM by hand: states are one-hot tokens in a row; the first mask's log odds depend on
    what follows it."""

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, L) -> (B, L, 4) probabilities of the tokens 0..3 at each position."""
        states = torch.full((*ids.shape, 4), 0.25)
        states[:, 1] = torch.tensor([0.1, 0.1, 0.2, 0.6])
        decided = ids[:, 2] != MASK
        states[:, 2] = torch.tensor([0.05, 0.05, 0.4, 0.5])
        states[decided & (ids[:, 2] == 2), 1] = torch.tensor([0.02, 0.02, 0.95, 0.01])
        return states


def test_by_hand() -> None:
    """Place 1: 3 has 0.6, place 2: 3 has 0.5, 2 has 0.4; once place 2 is 2, place 1 is 2 with
    0.95."""
    lm = MaskedLM(_Table(), torch.log, torch.eye(4))
    prompt = [0, MASK, 0]
    one = fillings(lm, [prompt], MASK, 2, beams=1)[0]
    assert one[0].tokens == (3, 3) and one[0].score == pytest.approx(math.log(0.6 * 0.5))
    # Both (3, ?) and (?, 2) are kept; (2, 2) is 0.4 * 0.95 = 0.38 by the order second place first.
    five = fillings(lm, [prompt], MASK, 2, beams=3)[0]
    assert [f.tokens for f in five] == [(2, 2), (3, 3), (3, 2)]
    assert [f.score for f in five] == pytest.approx([math.log(p) for p in (0.38, 0.3, 0.24)])


def test_batches_and_padding_change_nothing() -> None:
    model = wrap_model(bert(5, vocab=300, length=64))
    generator = torch.Generator().manual_seed(0)
    prompts = []
    for size in (3, 9, 4, 9, 10, 30, 3, 31):
        ids = torch.randint(2, 300, (size,), generator=generator).tolist()
        ids[size // 2] = MASK
        prompts.append(ids)
    told: list[int] = []
    together = fillings(model, prompts, MASK, 3, size=2000, progress=told.append)
    assert sum(told) == len(prompts) and len(told) < len(prompts)
    for prompt, found in zip(prompts, together, strict=True):
        (alone,) = fillings(model, [prompt], MASK, 3, size=1)
        agree(found, [(f.tokens, f.score) for f in alone])
    assert together == fillings(model, prompts, MASK, 3, size=2000)  # deterministic


def test_only_masked_states_reach_the_head_and_the_first_step_runs_once() -> None:
    model = bert(1, vocab=300)
    rows: list[int] = []
    heads: list[int] = []

    def states(ids: Tensor, mask: Tensor) -> Tensor:
        rows.append(len(ids))
        return probing._States(model.base_model)(ids, mask)

    def transform(hidden: Tensor) -> Tensor:
        heads.append(len(hidden))
        return hidden

    words = model.bert.embeddings.word_embeddings.weight
    fillings(MaskedLM(states, transform, words), [[2, 3, MASK, 4], [2, 5, MASK, 4]], MASK, 4)
    assert rows == [2, 10, 10, 10] and heads == [2 * 4, 10 * 3, 10 * 2, 10]


def test_fewer_than_beams_when_there_is_no_more() -> None:
    (found,) = fillings(wrap_model(bert()), [PROMPT], MASK, 2, beams=50, never=(0, 1, 2, 3, 4))
    assert sorted(f.tokens for f in found) == [(5, 5), (5, 6), (6, 5), (6, 6)]
    (one,) = fillings(wrap_model(bert()), [PROMPT], MASK, 3, beams=5, never=(0, 1, 2, 3, 4, 5))
    assert [f.tokens for f in one] == [(6, 6, 6)]


def test_probabilities_are_of_the_whole_vocabulary() -> None:
    model = bert(2)
    table = log_probabilities(model, PROMPT)
    (found,) = fillings(wrap_model(model), [PROMPT], MASK, 1, beams=3, never=(0, 1))
    wanted = sorted(range(2, 7), key=lambda t: -float(table[2, t]))[:3]
    agree(found, [((t,), float(table[2, t])) for t in wanted])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 3000), k=st.integers(1, 8))
def test_best_of_is_topk(seed: int, size: int, k: int) -> None:
    logits = torch.randn(5, size, generator=torch.Generator().manual_seed(seed))
    k = min(k, size)
    values, places = best_of(logits, k)
    wanted = logits.topk(k)
    assert torch.equal(values, wanted.values) and torch.equal(places, wanted.indices)
    logits[:, : size - k] = -torch.inf  # all that is barred
    assert torch.equal(best_of(logits, k)[0], logits.topk(k).values)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    columns=st.integers(1, 25),
    rows=st.integers(1, 9),
    barred=st.integers(0, 16),
)
def test_the_head_in_parts_is_the_whole_head(
    seed: int, columns: int, rows: int, barred: int
) -> None:
    """Whatever part of the vocabulary is seen at a time, and whichever tokens are barred (a whole
    part, too)."""
    random = torch.Generator().manual_seed(seed)
    states, words = (
        3 * torch.randn(7, 6, generator=random),
        3 * torch.randn(20, 6, generator=random),
    )
    bias = 30 * torch.randn(20, generator=random)
    never = torch.randperm(20, generator=random)[:barred]
    lm = MaskedLM(lambda ids, mask: states, nn.Tanh(), words, bias)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probing, "COLUMNS", columns)
        patch.setattr(probing, "ROWS", rows)
        values, tokens = best_tokens(lm, states, 4, never)
    table = (states.tanh().double() @ words.double().T + bias.double()).log_softmax(-1)
    table[:, never] = -torch.inf
    wanted = table.topk(4)
    assert torch.equal(tokens, wanted.indices)
    torch.testing.assert_close(values.double(), wanted.values, atol=1e-4, rtol=1e-5)


def test_bad_input() -> None:
    lm = wrap_model(bert())
    with pytest.raises(InputError, match="query 1: expected one mask, got 2"):
        fillings(lm, [PROMPT, [MASK, MASK]], MASK, 1)
    with pytest.raises(InputError, match="expected one mask, got 0"):
        fillings(lm, [[2, 3]], MASK, 1)
    with pytest.raises(
        InputError, match="query 0: 41 tokens with 2 masks, but the encoder has 40 positions"
    ):
        fillings(lm, [[MASK] + [2] * 39], MASK, 2)
    with pytest.raises(InputError, match="masks 0, beams 5"):
        fillings(lm, [PROMPT], MASK, 0)
    assert fillings(lm, [], MASK, 1) == []


def test_a_saved_masked_lm(saved: str, tmp_path: Path) -> None:
    lm = masked_lm(saved)
    assert not lm.headless and lm.max_length == 40
    agree(fillings(lm, [PROMPT], MASK, 2)[0], slow(bert(), PROMPT, 2, 5))
    torch.manual_seed(0)
    config = RobertaConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
        pad_token_id=0,
    )
    other = RobertaForMaskedLM(config).eval()
    other.save_pretrained(tmp_path / "roberta")
    values, tokens = best_tokens(
        lm := masked_lm(str(tmp_path / "roberta")),
        lm.encoder(torch.tensor([PROMPT]), torch.ones(1, 5, dtype=torch.long))[:, 2],
        3,
        torch.tensor([], dtype=torch.long),
    )
    with torch.no_grad():
        wanted = other(input_ids=torch.tensor([PROMPT])).logits[0, 2].log_softmax(-1).topk(3)
    assert tokens[0].tolist() == wanted.indices.tolist() and torch.allclose(
        values[0], wanted.values, atol=1e-5
    )


def test_other_kinds(tmp_path: Path) -> None:
    """ALBERT is a masked LM, BART is none."""
    torch.manual_seed(0)
    config = AlbertConfig(
        vocab_size=50,
        hidden_size=16,
        embedding_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    model = AlbertForMaskedLM(config).eval()
    model.save_pretrained(tmp_path / "albert")
    (found,) = fillings(masked_lm(str(tmp_path / "albert")), [PROMPT], MASK, 2, beams=3)
    agree(found, slow(model, PROMPT, 2, 3))  # type: ignore[arg-type]
    small = BartConfig(
        vocab_size=50,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
    )
    BartForConditionalGeneration(small).save_pretrained(tmp_path / "bart")
    with pytest.raises(InputError, match=r"a bart cannot be probed"):
        masked_lm(str(tmp_path / "bart"))


def test_a_checkpoint_without_a_head_uses_the_word_embeddings(saved: str, tmp_path: Path) -> None:
    model = bert()
    model.bert.save_pretrained(tmp_path)
    lm = masked_lm(str(tmp_path))
    assert lm.headless
    with torch.no_grad():
        states = model.bert(input_ids=torch.tensor([PROMPT])).last_hidden_state[0, 2:3]
        table = (states @ model.bert.embeddings.word_embeddings.weight.T).log_softmax(-1)[0]
    (found,) = fillings(lm, [PROMPT], MASK, 1, beams=2)
    agree(found, [((int(t),), float(table[t])) for t in table.topk(2).indices])


def test_no_masked_lm(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"masked language model .*neither a folder"):
        masked_lm(str(tmp_path))
    bert().save_pretrained(tmp_path / "cut")
    state = load_file(tmp_path / "cut" / "model.safetensors")
    state.pop("bert.encoder.layer.0.attention.self.query.weight")
    save_file(state, tmp_path / "cut" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match="its weights lack .*query"):
        masked_lm(str(tmp_path / "cut"))


def test_kebiolm_fills_masks_with_its_fused_entities(fake_kebiolm: Folders, tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = KeBioLM(
        fake_kebiolm.bert, fake_kebiolm.entities, text_layers=2, candidates=7, dropout=0.0
    )
    model.configure_model()
    assert model.encoder is not None
    nn.init.normal_(model.encoder.detector.weight, std=1.0)  # so that it finds mentions
    nn.init.normal_(model.encoder.entity_projection.weight, std=0.5)
    model.export(tmp_path)
    model.eval()
    lm = kebiolm_masked_lm(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(fake_kebiolm.bert)
    ids = tokenizer("renal failure may cause [MASK].")["input_ids"]
    mask_id = tokenizer.mask_token_id
    inputs, ones = torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.long)
    with torch.no_grad():
        text, _ = model.encoder.text_states(inputs, ones)
        assert len(model.encoder.detect_mentions(text, ones))
        states = model.encoder(inputs, ones)
        plain = model.encoder.bert(inputs, ones).last_hidden_state
        table = model.head(
            states[0], model.encoder.bert.embeddings.word_embeddings.weight
        ).log_softmax(-1)
    assert not torch.allclose(states, plain)  # the entities are in it
    at = ids.index(mask_id)
    (found,) = fillings(lm, [ids], mask_id, 1, beams=4)
    agree(found, [((int(t),), float(table[at, t])) for t in table[at].topk(4).indices])
    both = fillings(
        lm,
        [ids, tokenizer("[MASK] near severe hepatic tumor of the patient.")["input_ids"]],
        mask_id,
        3,
    )
    agree(both[0], [(f.tokens, f.score) for f in fillings(lm, [ids], mask_id, 3)[0]])
    state = load_file(tmp_path / "kebiolm.safetensors")
    state.pop("head.dense.weight")
    save_file(state, tmp_path / "kebiolm.safetensors")
    assert KeBioLMEncoder.from_export(tmp_path)
    with pytest.raises(InputError, match=r"no head.dense.weight"):
        kebiolm_masked_lm(tmp_path)


def same_states(lm: MaskedLM, padded: bool) -> None:
    """States of some positions are those of all, there."""
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 7, (3, 9), generator=random)
    mask = torch.ones_like(ids)
    if padded:
        mask[0, 6:], mask[1, 8:] = 0, 0
    places = torch.tensor([[1, 4, 2], [7, 0, 3], [5, 5, 6]])
    with torch.no_grad():
        whole = lm.encoder(ids, mask)
        found = lm.states(ids, mask, places)
    assert found.shape == (3, 3, whole.shape[-1])
    torch.testing.assert_close(found, whole[torch.arange(3)[:, None], places], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("padded", [False, True])
def test_the_last_layer_at_some_positions_is_that_of_all(
    padded: bool, fake_kebiolm: Folders
) -> None:
    lm = wrap_model(bert(3))
    assert hasattr(lm.encoder, "at")
    same_states(lm, padded)
    same_states(wrap_model(bert(3, layers=1)), padded)
    roberta = RobertaConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
        pad_token_id=0,
        initializer_range=0.5,
    )
    lm = from_transformers(RobertaForMaskedLM(roberta).eval())
    assert hasattr(lm.encoder, "at")
    same_states(lm, padded)
    albert = AlbertConfig(
        vocab_size=50,
        hidden_size=16,
        embedding_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
    )
    lm = from_transformers(AlbertForMaskedLM(albert).eval())
    assert not hasattr(lm.encoder, "at")  # its layers are not BERT's: all of it runs
    same_states(lm, padded)
    causal = bert(3)
    causal.config.is_decoder = True
    assert not hasattr(wrap_model(causal).encoder, "at")
    for layers in (1, 2, 3):  # of three: with 3 none reads entities
        torch.manual_seed(1)
        model = KeBioLM(
            fake_kebiolm.bert, fake_kebiolm.entities, text_layers=layers, candidates=7, dropout=0.0
        )
        model.configure_model()
        assert model.encoder is not None
        nn.init.normal_(model.encoder.detector.weight, std=1.0)
        nn.init.normal_(model.encoder.entity_projection.weight, std=0.5)
        words = model.encoder.bert.embeddings.word_embeddings.weight
        same_states(MaskedLM(model.encoder.eval(), nn.Identity(), words), padded)


def test_a_roberta_has_no_positions_up_to_that_of_padding() -> None:
    """Positions begin behind the padding token's number: of 40 with padding 1, 38 are left."""
    config = RobertaConfig(
        vocab_size=9,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=40,
        pad_token_id=1,
    )
    assert from_transformers(RobertaForMaskedLM(config)).max_length == 38
    assert from_transformers(bert(length=40)).max_length == 40
