"""Batched beam search over the names of a trie, for BART.

    kg.search.trie.Trie  the names, as arrays: children of all beams of all mentions are looked up
                         at once
    constrained_search   a ranking of leaves for each mention of a batch

The decoder reads a prompt (one a mention, of any length) in one pass, and then one token of each
beam a step. The beams of a mention are handed to the decoder as positions of one sequence, not as
rows of a batch: each sees the prompt and its own ancestors through the attention mask. So nothing
in the key-value cache is ever reordered or repeated, and the context's keys and values exist once a
mention instead of once a beam. Positions are counted from each prompt's own end and padding is
masked, hence a mention's result does not depend on the others in its batch.

Log-probabilities are those of the full vocabulary; the trie says which of them may be taken. A name
that ends is closed by </s>. The beams that remain are the best by the sum of log-probabilities of
the name so far.

Finish rules, that is which names end up in the ranking (at most `beams`):
    best          every name that a beam completes is a candidate; the best by the final score are
                  kept, and the search stops when nothing that still runs can score higher than
                  these
    transformers  the same, but a completed name must be among the best `beams` of its step, running
                  ones included: the rule of transformers' generate(early_stopping="never")
    fairseq       the rule of GenBioEL's released search: of each step only the best `beams`
                  continuations are looked at, completed or not; after n names have been completed,
                  one counts only at a rank below beams - n, else it is dropped; stops at `beams`
                  names, so a better one that is longer may be missed
Final scores:
    sum           log-probability of the name and its </s>, given prompt and context
    name          its mean over these tokens
    mean          the mean over everything behind the first occurrence of the prompt's last token,
                  as in GenBioEL's released search; when a mention contains that token (" is"), the
                  rest of the prompt is in the mean, by mistake
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import BartForConditionalGeneration, DynamicCache, EncoderDecoderCache

from core.choices import list_known
from core.files import InputError
from kg.search.trie import Tensors, Trie

RULES = ("best", "transformers", "fairseq")
SCORES = ("sum", "mean", "name")
NEVER = float("-inf")
#: Steps between two looks at what is finished, on an accelerator: each look waits for the device.
STEPS = 4
#: Rows of the output embedding that the CPU multiplies at a time.
BLOCK = 1024

Ranking = list[tuple[int, float]]


def _looks(device: torch.device) -> bool:
    """Whether reading a value is free, so that work can be cut to what lives. An accelerator would
    have to be waited for."""
    return device.type == "cpu"


class _Beams(NamedTuple):
    """Of M mentions with K beams each, at one depth of the trie; R is the size of a ranking."""

    node: Tensor  # (M, K) node of the trie
    total: Tensor  # (M, K) sum of log-probabilities; -inf: no beam
    seen: Tensor  # (M, K, S) which of the S tokens that beams have read so far are a beam's own
    states: Tensor  # (M, K, hidden) of the decoder, from which the next token is predicted
    score: Tensor  # (M, R) final scores of completed names, best first; -inf: none
    leaf: Tensor  # (M, R)
    mention: Tensor  # (M,) which mention of the call a row is
    prompt: Tensor  # (M,) length of its prompt
    # (M, 2) log-probability and number of the prompt's tokens that belong to the score "mean"
    extra: Tensor


class Decoder:
    """BART's decoder over a batch of contexts, which reads prompts and then the beams' tokens.

    Its cache holds every token that any beam has read, also of beams that are gone; a mask shows a
    beam its own only.
    """

    def __init__(
        self, model: BartForConditionalGeneration, input_ids: Tensor, attention_mask: Tensor
    ) -> None:
        self.model, self.decoder = model, model.model.decoder
        self.encoded = model.model.encoder(
            input_ids, attention_mask=attention_mask
        ).last_hidden_state
        self.context = self._additive(attention_mask[:, None, None].bool())  # (M, 1, 1, L)
        self.biased = bool(model.final_logits_bias.any())  # in BART's own weights it is zero
        caches = (DynamicCache(config=model.config), DynamicCache(config=model.config))
        self.cache = EncoderDecoderCache(*caches)

    def _additive(self, visible: Tensor) -> Tensor:
        """0 where visible, the lowest number elsewhere: what eager and SDPA attention both
        accept."""
        zero = self.encoded.new_zeros(())
        return torch.where(visible, zero, torch.finfo(zero.dtype).min)

    def _read(self, ids: Tensor, positions: Tensor, visible: Tensor) -> Tensor:
        """(M, T) tokens at `positions` (M, T), which see `visible` (M, 1, T, cached + T) -> states
        (M, T, hidden)."""
        states = (
            self.decoder.embed_tokens(ids)
            + self.decoder.embed_positions(ids, position_ids=positions)[0]
        )
        states = self.decoder.layernorm_embedding(states)
        mask = self._additive(visible)
        for layer in self.decoder.layers:
            states = layer(
                states, mask, self.encoded, self.context, past_key_values=self.cache, use_cache=True
            )
        return states

    def read_prompts(self, prompts: Tensor, lengths: Tensor) -> Tensor:
        """(M, P) prompts, padded on the right to any token -> states (M, P, hidden)."""
        at = torch.arange(prompts.shape[1], device=prompts.device)
        self.prompt = (at < lengths[:, None])[:, None, None]  # (M, 1, 1, P): padding is never seen
        return self._read(
            prompts, at.expand_as(prompts), (at[:, None] >= at).expand(len(prompts), 1, -1, -1)
        )

    def read_beams(self, tokens: Tensor, positions: Tensor, seen: Tensor) -> Tensor:
        """(M, K) tokens of the beams, all at `positions` (M,), with ancestors `seen` (M, K, S) ->
        (M, K, hidden)."""
        prompt = self.prompt.expand(-1, -1, seen.shape[1], -1)
        return self._read(
            tokens, positions[:, None].expand_as(tokens), torch.cat([prompt, seen[:, None]], dim=3)
        )

    def keep(self, rows: Tensor) -> None:
        """Continue with these mentions (n,) only."""
        self.encoded, self.context, self.prompt = (
            x[rows] for x in (self.encoded, self.context, self.prompt)
        )
        self.cache.batch_select_indices(rows)

    def logits(self, states: Tensor) -> Tensor:
        """(n, hidden) -> (n, vocabulary) float32, a new tensor."""
        weight, bias = self.model.lm_head.weight, self.model.final_logits_bias[0].to(states.dtype)
        if not _looks(states.device):
            return functional.linear(states, weight, bias).float()
        states = states.to(weight.dtype)  # under autocast they differ
        scores = states.new_empty(len(states), len(weight))
        # a block's product stays in the cache: up to twice as fast
        for first in range(0, len(weight), BLOCK):
            part = slice(first, first + BLOCK)
            torch.mm(states, weight[part].T, out=scores[:, part])
            if self.biased:
                scores[:, part] += bias[part]
        return scores.float()


def _prompt_scores(decoder: Decoder, prompts: Sequence[Sequence[int]], states: Tensor) -> Tensor:
    """(M, 2) what the score "mean" counts of the prompts: log-probability and number of the tokens
    behind the first occurrence of the last token. (0, 0) where that token is only at the end."""
    extra = torch.zeros(len(prompts), 2)
    for row, prompt in enumerate(prompts):
        first = list(prompt).index(prompt[-1])
        if first < len(prompt) - 1:
            logp = decoder.logits(states[row, first : len(prompt) - 1]).log_softmax(-1)
            taken = logp.gather(1, torch.tensor(prompt[first + 1 :], device=logp.device)[:, None])
            extra[row] = torch.tensor([float(taken.sum()), float(len(taken))])
    return extra.to(states.device)


class _Step(NamedTuple):
    """What M x K beams can do next: complete their name, or continue with one of the best K
    children of all."""

    closed: Tensor  # (M, K) total with </s>; -inf where no name ends
    leaf: Tensor  # (M, K)
    total: Tensor  # (M, beams), descending; -inf: none
    parent: Tensor  # (M, beams) beam
    node: Tensor  # (M, beams)
    token: Tensor  # (M, beams)


def _renormalise(into: Tensor, close: Tensor) -> tuple[Tensor, Tensor]:
    """(n, width) and (n,) log probabilities of the children and of the end, over these alone."""
    whole = torch.cat([into, close[:, None]], dim=1).logsumexp(1)
    whole = whole.masked_fill(whole == NEVER, 0.0)  # the root of an empty list of candidates
    return into - whole[:, None], close - whole


def _next(
    decoder: Decoder,
    state: _Beams,
    trie: Tensors,
    width: int | None,
    beams: int,
    eos: int,
    renormalised: bool,
) -> _Step:
    """Score the children of every beam. `width` is the most children that a node of this level has;
    None: ask the device."""
    mentions, now = state.node.shape
    node, before = state.node.flatten(), state.total.flatten()
    live = (
        torch.arange(len(node), device=node.device)
        if width is not None
        else (before > NEVER).nonzero().flatten()
    )
    node, before = node[live], before[live]
    start = trie.starts[node].long()  # (n,)
    count = trie.starts[node + 1].long() - start
    width = int(count.max()) if width is None else width
    width = max(width, -(-beams // now))  # so that there are `beams` to choose from
    offset = torch.arange(width, device=node.device)
    # (n, width)
    token = (
        trie.tokens[(start[:, None] + offset).clamp(max=len(trie.tokens) - 1)].long() & trie.mask
    )

    at = torch.searchsorted(trie.leaf_nodes, node.to(trie.leaf_nodes.dtype)).clamp(
        max=len(trie.leaf_nodes) - 1
    )
    logp = decoder.logits(state.states.flatten(0, 1)[live])  # (n, vocabulary)
    if not renormalised:
        torch.log_softmax(logp, -1, out=logp)
    into = logp.gather(1, token).masked_fill_(offset >= count[:, None], NEVER)
    close = logp[:, eos].masked_fill(trie.leaf_nodes[at] != node, NEVER)
    if renormalised:
        into, close = _renormalise(into, close)

    def scatter_live(values: Tensor) -> Tensor:
        """(n, ...) of live beams -> (mentions, now, ...)"""
        grid = values.new_full(
            (mentions * now, *values.shape[1:]), NEVER if values.is_floating_point() else 0
        )
        return grid.index_copy_(0, live, values).view(mentions, now, *values.shape[1:])

    total, best = scatter_live(into + before[:, None]).flatten(1).topk(beams, dim=1)
    parent = best // width
    node = trie.starts[state.node.gather(1, parent)].long() + best % width
    node = node.clamp(max=len(trie.tokens) - 1)  # where there is no child
    return _Step(
        scatter_live(close + before),
        scatter_live(at),
        total,
        parent,
        node,
        trie.tokens[node].long() & trie.mask,
    )


def _finish(step: _Step, state: _Beams, rule: str) -> tuple[Tensor, Tensor]:
    """(which completed names count (M, K), which continuations run on (M, beams)) by the finish
    rule."""
    beams = step.total.shape[1]
    ends, runs = step.closed > NEVER, step.total > NEVER
    if rule == "best":
        return ends, runs
    order = torch.cat([step.total, step.closed], dim=1).argsort(dim=1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(
        1, order, torch.arange(order.shape[1], device=order.device).expand_as(order)
    )
    if rule == "transformers":
        return ends & (rank[:, beams:] < beams), runs
    had = (state.score > NEVER).sum(1, keepdim=True)
    return ends & (rank[:, beams:] < beams - had), runs & (rank[:, :beams] < beams)


T = TypeVar("T", _Beams, _Step)


def _rows(tensors: T, rows: Tensor) -> T:
    """The same of some mentions (n,) only."""
    return type(tensors)(*(field[rows] for field in tensors))


def _final(state: _Beams, total: Tensor, length: Tensor | int, score: str) -> Tensor:
    """(M, K) final score of names with log-probabilities `total` (M, K), of `length` tokens with
    </s>."""
    if score == "sum":
        return total
    return (total + state.extra[:, :1]) / (length + state.extra[:, 1:])


def _rank_ends(state: _Beams, step: _Step, ends: Tensor, length: int, score: str) -> _Beams:
    """The state with the names that end here, at `length` tokens, in the rankings. ends (M, K)
    says which count."""
    ends_here = _final(state, step.closed, length, score).masked_fill(~ends, NEVER)
    best, at = torch.cat([state.score, ends_here], dim=1).topk(state.score.shape[1], dim=1)
    return state._replace(score=best, leaf=torch.cat([state.leaf, step.leaf], dim=1).gather(1, at))


def _rankings(scores: Tensor, leaves: Tensor, concepts: np.ndarray | None) -> list[Ranking]:
    """The rankings of (M, K) scores and leaves, without empty places. concepts: the leaf of the
    whole trie for each leaf of a forest; None: the leaves are the trie's own."""
    rankings = []
    for row_scores, row_leaves in zip(scores.tolist(), leaves.tolist(), strict=True):
        if concepts is not None:
            row_leaves = concepts[row_leaves].tolist()
        pairs = zip(row_leaves, row_scores, strict=True)
        rankings.append([(leaf, value) for leaf, value in pairs if value > NEVER])
    return rankings


def _prune(
    state: _Beams, step: _Step, total: Tensor, length: int, heights: Tensor, score: str
) -> Tensor:
    """(M, K) totals of the beams, without those that cannot enter a mention's full ranking: at
    best, every further token is certain, and a mean is over as many of them as there can be.

    (Nor could a beam that is given up outrank, by the transformers rule, a name that enters the
    ranking.)
    """
    worst = state.score[:, -1:]
    best = _final(state, total, length + 1 + heights[step.node].long(), score)
    return total.masked_fill((worst > NEVER) & (best <= worst), NEVER)


def _advance(decoder: Decoder, state: _Beams, step: _Step, total: Tensor, depth: int) -> _Beams:
    """The state in which the beams have read their new token, the `depth`-th of the name. `total`
    (M, K) says which live."""
    beams = total.shape[1]
    if _looks(total.device):  # leave out beams that are dead in every mention
        beams = 1 + int((total > NEVER).any(0).nonzero().max())
    parent = step.parent[:, :beams]
    eye = torch.eye(beams, dtype=torch.bool, device=total.device).expand(len(total), -1, -1)
    seen = torch.cat(
        [state.seen.gather(1, parent[..., None].expand(-1, -1, state.seen.shape[2])), eye], dim=2
    )
    states = decoder.read_beams(step.token[:, :beams], state.prompt + depth - 1, seen)
    return state._replace(
        node=step.node[:, :beams], total=total[:, :beams], seen=seen, states=states
    )


def _start(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    roots: int,
    ranking: int,
    score: str,
    device: torch.device,
) -> _Beams:
    """The state in which every mention has one beam, at its root, and the prompt has been read."""
    count = len(prompts)
    lengths = torch.tensor([len(p) for p in prompts])
    padded = torch.zeros(count, int(lengths.max()), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        padded[row, : len(prompt)] = torch.tensor(prompt)
    mention, lengths = torch.arange(count, device=device), lengths.to(device)
    states = decoder.read_prompts(padded.to(device), lengths)
    extra = torch.zeros(count, 2, device=device)
    return _Beams(
        node=(mention if roots > 1 else torch.zeros_like(mention))[:, None],
        total=torch.zeros(count, 1, device=device),
        seen=torch.zeros(count, 1, 0, dtype=torch.bool, device=device),
        states=states[mention, lengths - 1][:, None],
        score=torch.full((count, ranking), NEVER, device=device),
        leaf=torch.zeros(count, ranking, dtype=torch.long, device=device),
        mention=mention,
        prompt=lengths,
        extra=_prompt_scores(decoder, prompts, states) if score == "mean" else extra,
    )


def _refuse(
    model: BartForConditionalGeneration,
    trie: Trie,
    input_ids: Tensor,
    attention_mask: Tensor,
    prompts: Sequence[Sequence[int]],
    rule: str,
    score: str,
    beams: int,
) -> None:
    """Raise InputError for what cannot be searched."""
    if rule not in RULES:
        raise InputError(f"search: no finish rule {rule!r}; {list_known(rule, RULES)}")
    if score not in SCORES:
        raise InputError(f"search: no score {score!r}; {list_known(score, SCORES)}")
    if beams < 1:
        raise InputError(f"search: expected 1 beam or more, got {beams}")
    if model.training:
        raise InputError(
            "search: the model is in training mode, where dropout falsifies scores; call"
            " model.eval() first"
        )
    attention = model.config._attn_implementation
    if attention not in ("eager", "sdpa"):
        raise InputError(
            f"search: attention {attention!r} supports no mask of the beams; load the model with"
            " sdpa or eager"
        )
    if trie.vocabulary > model.lm_head.out_features:
        raise InputError(
            f"search: the trie's vocabulary has {trie.vocabulary} tokens, the model's "
            f"{model.lm_head.out_features}; expected the same tokenizer"
        )
    longest = model.config.max_position_embeddings
    if (
        input_ids.shape != attention_mask.shape
        or input_ids.ndim != 2
        or len(prompts) != len(input_ids)
    ):
        raise InputError(
            "search: expected contexts and masks (mentions, length) and a prompt each, got "
            f"{tuple(input_ids.shape)}, {tuple(attention_mask.shape)} and {len(prompts)} prompts"
        )
    if input_ids.shape[1] > longest:
        raise InputError(
            f"search: a context of {input_ids.shape[1]} tokens; the encoder accepts {longest}."
            " Cut it."
        )
    if len(prompts) and not bool(attention_mask.any(dim=1).all()):
        raise InputError("search: a context without tokens; give at least <s> and </s>")
    for row, prompt in enumerate(prompts):
        if not 1 <= len(prompt) < longest:
            raise InputError(
                f"search: prompt {row} has {len(prompt)} tokens; expected 1 to {longest - 1}"
            )


@torch.inference_mode()
def constrained_search(
    model: BartForConditionalGeneration,
    trie: Trie,
    input_ids: Tensor,
    attention_mask: Tensor,
    prompts: Sequence[Sequence[int]],
    *,
    beams: int = 5,
    candidates: Sequence[Sequence[int]] | None = None,
    finish_rule: str = "best",
    score: str | None = None,
    renormalised: bool = False,
) -> list[Ranking]:
    """For each mention its best names, best first: at most `beams` pairs (leaf of the trie, final
    score).

    input_ids, attention_mask  (M, L) contexts, on the model's device, padded on the right (BART
    counts positions from the left)
    prompts                    M lists of tokens that the decoder has read before the name, the
                               first being its start token; of any length, not empty
    candidates                 M lists of leaves to which a mention's names are restricted; an empty
                               list has an empty ranking
    finish_rule, score         as explained above; score None: "mean" with the fairseq rule, else
                               "name"
    renormalised               probabilities over what the trie allows at each step, not over the
                               vocabulary (an ablation)

    Rankings are shorter than `beams` where fewer names can be reached. A name that would go beyond
    the decoder's positions (prompt and name together more than max_position_embeddings) cannot.
    Raises InputError for shapes, rules or a model that it cannot use, and for a candidate that is
    no leaf.
    """
    score = score or ("mean" if finish_rule == "fairseq" else "name")
    _refuse(model, trie, input_ids, attention_mask, prompts, finish_rule, score, beams)
    if candidates is not None and len(candidates) != len(prompts):
        raise InputError(
            f"search: {len(prompts)} mentions but {len(candidates)} lists of candidates; expected"
            " one each"
        )
    if not len(prompts):
        return []
    names = trie if candidates is None else trie.forest(candidates)
    if not len(names):  # nothing but empty lists of candidates
        return [[] for _ in prompts]
    device, longest = input_ids.device, model.config.max_position_embeddings
    nodes = names.tensors(device)
    eos = int(model.config.eos_token_id)  # type: ignore[arg-type]

    decoder = Decoder(model, input_ids, attention_mask)
    state = _start(
        decoder, prompts, names.roots if candidates is not None else 1, beams, score, device
    )
    scores = torch.full((len(prompts), beams), NEVER, device=device)
    leaves = torch.zeros((len(prompts), beams), dtype=torch.long, device=device)
    for depth in range(names.depth + 1):  # of the nodes that the beams are at
        step = _next(
            decoder,
            state,
            nodes,
            None if _looks(device) else names.widths[depth],
            beams,
            eos,
            renormalised,
        )
        ends, runs = _finish(step, state, finish_rule)
        state = _rank_ends(state, step, ends, depth + 1, score)
        total = step.total.masked_fill(~runs | (state.prompt + depth + 1 > longest)[:, None], NEVER)
        if finish_rule == "fairseq":  # a mention with a full ranking is done
            total = total.masked_fill(state.score[:, -1:] > NEVER, NEVER)
        else:
            total = _prune(state, step, total, depth + 1, nodes.heights, score)
        if _looks(device) or depth % STEPS == STEPS - 1 or depth == names.depth:
            lives = (total > NEVER).any(1)
            rows = lives.nonzero().flatten()
            if len(rows) < len(total):
                scores[state.mention], leaves[state.mention] = state.score, state.leaf
                if not len(rows):
                    break
                decoder.keep(rows)
                state, step, total = _rows(state, rows), _rows(step, rows), total[rows]
        state = _advance(decoder, state, step, total, depth + 1)
    return _rankings(scores, leaves, None if candidates is None else names.concepts)
