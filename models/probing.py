"""Several [MASK] tokens decoded in any order, by any masked language model (KeBioLM, Section
4.6.2).

    confidence-based decoding (Jiang et al., EMNLP 2020)     fillings with one beam
    beam search, B = 5                                       fillings

Each step predicts one token: of all tokens at all places that are still masked, given the query and
what is decoded, the B best by accumulated log probability. With one beam that is the
confidence-based method: the place with the most probable token first, one at a time, its refinement
left out as the paper leaves it out.

A beam is what it has decoded, the set of its (place, token) pairs. Two orders that lead to the same
set are one beam here, with the better of their scores; in the released code they fill two of the
five slots. Probabilities are the model's own over its whole vocabulary; tokens that may never be
guessed ([CLS], [unused7], …) are passed over, not taken out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM
from transformers.utils import logging

from core.files import InputError
from datamodules.pretrained import load
from models.encoders import states_at
from models.transformer_files import LAYERED, token_limit

#: what the head of a masked LM is called: BERT, RoBERTa, ALBERT
HEADS = ("cls", "lm_head", "predictions")
# states, and words, that a processor's logits are made of at a time: they stay near it
ROWS, COLUMNS = 512, 4096
BLOCK = 64


class Filling(NamedTuple):
    """What replaces [MASK]: its tokens and the sum of their log probabilities when they were
    decoded."""

    tokens: tuple[int, ...]
    score: float


class MaskedLM(nn.Module):
    """A masked language model in parts, so that only some positions need pass through the last
    ones.

    encoder    (B, L) ids and attention mask -> (B, L, H); with a method at(ids, mask, places (B,
               m)) -> (B, m, H) if it can make the states of some positions for less
    transform  (N, H) -> (N, H'), what its head does before it looks at words
    words      (V, H') and bias (V,): transform(h) words^T + bias are the logits
    max_length positions that the encoder has
    headless   its checkpoint has no head: states are multiplied with the word embeddings as they
               are
    """

    words: Tensor
    bias: Tensor

    def __init__(
        self,
        encoder: Callable[[Tensor, Tensor], Tensor],
        transform: Callable[[Tensor], Tensor],
        words: Tensor,
        bias: Tensor | None = None,
        max_length: int = 512,
        headless: bool = False,
    ) -> None:
        super().__init__()
        self.encoder, self.transform = encoder, transform
        self.max_length, self.headless = max_length, headless
        # Few rows by a column-major matrix is the product that processors are slowest at.
        self.register_buffer("words", words.detach().T.contiguous(), persistent=False)
        self.register_buffer(
            "bias", torch.zeros(len(words)) if bias is None else bias.detach(), persistent=False
        )

    def states(self, ids: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        """(B, L) ids and attention mask, (B, m) positions -> (B, m, H)."""
        if hasattr(self.encoder, "at"):
            result: Tensor = self.encoder.at(ids, mask, places)
            return result
        hidden = self.encoder(ids, mask)
        return hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1]))

    def logits(self, states: Tensor) -> Tensor:
        """(N, H) -> (N, V)."""
        return torch.addmm(self.bias, self.transform(states), self.words)


class _States(nn.Module):
    """A transformers encoder's last states."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        states: Tensor = self.base(
            input_ids=input_ids, attention_mask=attention_mask
        ).last_hidden_state
        return states


class _LayeredStates(_States):
    """Those of an encoder with BERT's layers."""

    def at(self, input_ids: Tensor, attention_mask: Tensor, places: Tensor) -> Tensor:
        return states_at(self.base, input_ids, attention_mask, places)


def from_transformers(model: Any, headless: bool = False) -> MaskedLM:
    """A transformers masked LM in parts, which are taken out of it: `model` is of no use
    afterwards.

    headless: leave its head aside. Raises InputError when it is none of the kinds in HEADS.
    """
    place = next((head for head in HEADS if hasattr(model, head)), None)
    head = getattr(model, place) if place else None
    decoding = [part for part in head.modules() if hasattr(part, "decoder")] if head else []
    if head is None or model.config.is_encoder_decoder or len(decoding) != 1:
        raise InputError(
            f"a {model.config.model_type} cannot be probed; expected a masked LM like BERT, RoBERTa"
            " or ALBERT"
        )
    length = token_limit(model.config)
    layered = model.config.model_type in LAYERED and not model.config.is_decoder
    states = (_LayeredStates if layered else _States)(model.base_model)
    if headless:
        return MaskedLM(
            states, nn.Identity(), model.get_input_embeddings().weight, None, length, headless=True
        ).eval()
    decoder, decoding[0].decoder = decoding[0].decoder, nn.Identity()
    return MaskedLM(states, head, decoder.weight, decoder.bias, length).eval()


def masked_lm(name: str) -> MaskedLM:
    """The masked LM in folder `name`, or of the hub model `name`, in float32, ready to predict.

    One whose checkpoint has no head (`headless`) predicts by its word embeddings. Raises InputError
    when there is none, or it is none of the kinds in HEADS.
    """
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # a missing head is no news; what is missing is looked at below
    try:
        loaded: Any = load(
            AutoModelForMaskedLM, name, dtype=torch.float32, output_loading_info=True
        )
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(
            f"masked language model {name!r}: neither a folder with config.json and weights nor a"
            " model of the hub, or none that predicts masked tokens."
            f" ({str(error).splitlines()[0]})"
        ) from error
    finally:
        logging.set_verbosity(verbosity)
    model, missing = loaded[0], loaded[1]["missing_keys"]
    prefixes = tuple(f"{head}." for head in HEADS)
    if lacking := sorted(key for key in missing if not key.startswith(prefixes)):
        raise InputError(
            f"masked language model {name!r}: its weights lack {lacking[:3]}; this is no whole"
            " model"
        )
    untied = [
        key
        for key in missing
        if "decoder" not in key and not key.endswith(("predictions.bias", "lm_head.bias"))
    ]
    try:
        return from_transformers(model, headless=bool(untied))
    except InputError as error:
        raise InputError(f"masked language model {name!r}: {error}") from error


def best_of(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row, (N, V) -> (N, k) values and places: `topk`, faster where V is
    large."""
    count, size = logits.shape
    if size < 4 * BLOCK * k:
        values, place = logits.topk(k)
        return values, place
    whole = size // BLOCK * BLOCK
    blocks = logits[:, :whole].unflatten(1, (-1, BLOCK))
    # the k largest are in the k blocks of the largest maxima
    chosen = blocks.amax(-1).topk(k).indices
    inside = blocks.gather(1, chosen[..., None].expand(-1, -1, BLOCK)).flatten(1)
    places = (chosen[..., None] * BLOCK + torch.arange(BLOCK, device=logits.device)).flatten(1)
    rest = torch.arange(whole, size, device=logits.device).expand(count, -1)
    values, index = torch.cat([inside, logits[:, whole:]], 1).topk(k)
    return values, torch.cat([places, rest], 1).gather(1, index)


@torch.no_grad()
def best_tokens(lm: MaskedLM, states: Tensor, k: int, never: Tensor) -> tuple[Tensor, Tensor]:
    """(log probabilities, tokens), (N, k) each, of the k most probable tokens at states (N, H),
    those of `never` left out.

    Logits are made for some columns of the vocabulary at a time, and the sum of their exponentials
    is carried along.
    """
    size = len(lm.bias)
    columns = COLUMNS if states.device.type == "cpu" else size
    barred = [
        never[(never >= start) & (never < start + columns)] - start
        for start in range(0, size, columns)
    ]
    values, tokens = [], []
    # fresh memory costs more than what is written
    room = lm.words.new_empty(min(ROWS, len(states)) * min(columns, size))
    for part in states.split(ROWS):
        hidden = lm.transform(part)
        peak = torch.full((len(part), 1), -torch.inf, device=part.device)
        total = torch.zeros_like(peak)  # of exp(logit - peak), over the columns so far
        value, token = [], []
        for start, out in zip(range(0, size, columns), barred, strict=True):
            some = slice(start, start + columns)
            words = lm.words[:, some]
            logits = room[: len(part) * words.shape[1]].view(len(part), words.shape[1])
            logits = torch.addmm(lm.bias[some], hidden, words, out=logits).float()
            higher = torch.maximum(peak, logits.amax(-1, keepdim=True))
            total.mul_(peak.sub_(higher).exp_())
            peak = higher
            if len(out):  # they have their share of the probability, and are not chosen
                total.add_(logits.index_select(1, out).sub_(peak).exp_().sum(-1, keepdim=True))
                logits.index_fill_(1, out, -torch.inf)
            best, place = best_of(logits, min(k, logits.shape[1]))
            value.append(best)
            token.append(place + start)
            total.add_(logits.sub_(peak).exp_().sum(-1, keepdim=True))
        highest, place = torch.cat(value, 1).topk(min(k, size))
        values.append(highest - total.log_().add_(peak))
        tokens.append(torch.cat(token, 1).gather(1, place))
    return torch.cat(values), torch.cat(tokens)


def _grow(
    tokens: Tensor, score: Tensor, open_: Tensor, value: Tensor, token: Tensor, beams: int
) -> tuple[Tensor, Tensor]:
    """One step of the search: (tokens, scores) of the best distinct continuations, best first.

    tokens (Q, b, n), -1 where masked; score (Q, b); open_ (Q, b, m) places that are masked; value
    and token (Q, b, m, k) the best log probabilities there. A continuation that exists already has
    the score -inf.
    """
    count, _, size = tokens.shape
    k = token.shape[-1]
    total = (score[:, :, None, None] + value).flatten(2)  # (Q, b, m * k)
    # No beam has more than `beams` distinct continuations of the best `beams`, so its own best
    # `beams` are enough.
    total, choice = total.topk(min(beams, total.shape[2]), dim=2)
    grown = tokens[:, :, None].expand(-1, -1, choice.shape[2], -1).clone()
    grown.scatter_(
        3, open_.gather(2, choice // k)[..., None], token.flatten(2).gather(2, choice)[..., None]
    )
    order = total.flatten(1).argsort(dim=1, descending=True, stable=True)
    total = total.flatten(1).gather(1, order)
    grown = grown.flatten(1, 2).gather(1, order[..., None].expand(-1, -1, size))  # (Q, c, n)
    again = (grown[:, :, None] == grown[:, None]).all(-1).tril(-1).any(-1)
    total, choice_kept = total.masked_fill(again, -torch.inf).topk(
        min(beams, total.shape[1]), dim=1
    )
    return grown.gather(1, choice_kept[..., None].expand(count, -1, size)), total


def _decode(
    lm: MaskedLM, ids: Tensor, mask: Tensor, first: Tensor, masks: int, beams: int, never: Tensor
) -> tuple[Tensor, Tensor]:
    """(tokens (Q, B, n), scores (Q, B)) of queries (Q, L) whose n masks begin at first (Q,)."""
    count = len(ids)
    place = first[:, None] + torch.arange(masks, device=ids.device)  # (Q, n)
    # the first step has one beam: nothing is decoded
    tokens = torch.full((count, 1, masks), -1, device=ids.device)
    score = torch.zeros(count, 1, device=ids.device)
    for step in range(masks):
        beam = tokens.shape[1]
        rows = ids[:, None].expand(-1, beam, -1).clone()
        positions = place[:, None].expand(-1, beam, -1)  # (Q, b, n)
        rows.scatter_(2, positions, torch.where(tokens < 0, rows.gather(2, positions), tokens))
        open_ = (tokens < 0).nonzero()[:, 2].view(count, beam, masks - step)
        states = lm.states(
            rows.flatten(0, 1),
            mask.repeat_interleave(beam, 0),
            positions.gather(2, open_).flatten(0, 1),
        )
        value, token = best_tokens(lm, states.flatten(0, 1), beams, never)
        shape = (count, beam, masks - step, -1)
        tokens, score = _grow(tokens, score, open_, value.view(shape), token.view(shape), beams)
    return tokens, score


def _batches(lengths: Sequence[int], beams: int, size: int) -> Iterator[list[int]]:
    """Numbers of sequences of similar length, as many as `size` tokens hold when each has `beams`
    rows; at most a tenth is padding."""
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    batch: list[int] = []
    for i in order:
        full = (len(batch) + 1) * beams * lengths[i] > size
        if batch and (full or 10 * lengths[batch[0]] < 9 * lengths[i]):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _widen(
    prompts: Sequence[Sequence[int]], mask_id: int, masks: int, most: int
) -> tuple[list[list[int]], list[int]]:
    """(prompts with `masks` masks in place of their one, the place of the first). Raises InputError
    for another number of masks, and more than `most` tokens."""
    wide: list[list[int]] = []
    first: list[int] = []
    for number, prompt in enumerate(prompts):
        wider = list(prompt)
        if wider.count(mask_id) != 1:
            raise InputError(f"query {number}: expected one mask, got {wider.count(mask_id)}")
        place = wider.index(mask_id)
        tokens = wider[:place] + [mask_id] * masks + wider[place + 1 :]
        if len(tokens) > most:
            raise InputError(
                f"query {number}: {len(tokens)} tokens with {masks} masks, but the encoder has"
                f" {most} positions"
            )
        wide.append(tokens)
        first.append(place)
    return wide, first


@torch.inference_mode()
def fillings(
    lm: MaskedLM,
    prompts: Sequence[Sequence[int]],
    mask_id: int,
    masks: int,
    beams: int = 5,
    never: Sequence[int] = (),
    pad_id: int = 0,
    size: int = 8192,
    progress: Callable[[int], object] | None = None,
) -> list[list[Filling]]:
    """The best fillings of each prompt with `masks` tokens, best first, at most `beams`.

    prompts   token ids, [CLS] and [SEP] with them, with `mask_id` once: the place of the answer,
              however long
    never     tokens that are not guessed
    size      tokens of a batch; it changes the time and not the result
    progress  told how many prompts have been answered

    Raises InputError for a prompt without one mask, and one that is too long for the encoder.
    Deterministic.
    """
    if masks < 1 or beams < 1:
        raise InputError(f"masks {masks}, beams {beams}: expected at least 1 of each")
    wide, first = _widen(prompts, mask_id, masks, lm.max_length)
    answers: list[list[Filling]] = [[] for _ in prompts]
    device = lm.words.device
    barred = torch.tensor(list(never), dtype=torch.long, device=device)
    for batch in _batches([len(prompt) for prompt in wide], beams, size):
        longest = len(wide[batch[-1]])
        padded = [wide[i] + [pad_id] * (longest - len(wide[i])) for i in batch]
        mask = [[1] * len(wide[i]) + [0] * (longest - len(wide[i])) for i in batch]
        starts = torch.tensor([first[i] for i in batch], device=device)
        tokens, score = _decode(
            lm,
            torch.tensor(padded, device=device),
            torch.tensor(mask, device=device),
            starts,
            masks,
            beams,
            barred,
        )
        for i, rows, scores in zip(batch, tokens.tolist(), score.tolist(), strict=True):
            answers[i] = [
                Filling(tuple(t), s) for t, s in zip(rows, scores, strict=True) if s > -torch.inf
            ]
        if progress is not None:
            progress(len(batch))
    return answers
