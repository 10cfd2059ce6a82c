"""SapBERT: Self-Alignment Pre-training for Biomedical Entity Representations.

Liu, Shareghi, Meng, Basaldella and Collier, NAACL 2021. https://arxiv.org/abs/2010.11784

    f(x), the [CLS] state of a name        SapBERTEncoder.vectors
    Online hard pairs mining, Eq. (1)      hard_pairs
    Loss function, Eq. (2)                 models.losses.multi_similarity
    both at once, in little memory         mined_multi_similarity
    InfoNCE and NCA, footnote 7            models.losses.info_nce, models.losses.nca
    Pairs of names, Appendix A.2 and A.3   datamodules.sapbert

Deviations from the printed paper, each pinned by a test:
    D1  Eq. (1) as printed keeps the triplets with d(a,p) >= d(a,n) + margin, which are those that
        are wrong by the margin. The released code keeps d(a,p) + margin >= d(a,n), and so does
        `condition` "released", the default; "printed" is Eq. (1).
    D2  Eq. (1) measures distances between f as it is. Here, as in the released code, f has unit
        length before.
    D3  A pair that several triplets keep counts once in Eq. (2), as in the released code.
    D4  Names of a step are encoded in groups of similar length, each padded to its longest. The
        paper pads all to 25.
    D5  With several processes each mines among the names of all; the released code does so on one
        machine only.
    D6  With mining, InfoNCE and NCA (footnote 7) go over the pairs that it keeps, each once. The
        released code's library counts a positive or negative of InfoNCE once for each triplet that
        keeps it, and its NCA goes over all pairs of the step and weights a name's loss by how many
        triplets it is in.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from core.files import InputError
from core.json_files import read_json, write_json
from datamodules.sapbert import SapBERTBatch
from models.base import PaperModule
from models.encoders import TextEncoder
from models.layers import pool_states, unit_length
from models.losses import info_nce, multi_similarity, multi_similarity_rows, nca
from models.packing import Layout
from models.sentence import NAME_TOKENS, save_sentence_files
from models.transformer_files import save_transformer, set_dropout

POOLING = ("cls", "mean")
CONDITIONS = ("released", "printed")
LOSSES = ("ms", "infonce", "nca")
# names up to which (N, N) matrices are in memory at once, which needs the fewest operations
WHOLE = 1024
# pairs of which each validation loss is one batch, whatever the training's batch size
HELD_OUT_PAIRS = 240


class _Similarities(torch.autograd.Function):
    """One matrix product for distances and similarities, and one for their gradient."""

    @staticmethod
    def forward(ctx: Any, f: Tensor) -> tuple[Tensor, Tensor]:
        distance = torch.cdist(f, f)
        ctx.save_for_backward(f)
        ctx.mark_non_differentiable(distance)
        return distance.square().mul_(-0.5).add_(1), distance

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Tensor:
        return (gradients[0] + gradients[0].T) @ ctx.saved_tensors[0]


def similarities(f: Tensor) -> tuple[Tensor, Tensor]:
    """((N, N) cosine similarities, (N, N) L2 distances without gradient) of unit vectors f (N, H),
    in float32."""
    with torch.autocast(f.device.type, enabled=False):
        return _Similarities.apply(f.float())


def all_pairs(concept: Tensor, first: int, anchors: int) -> tuple[Tensor, Tensor]:
    """(A, N) bool each: the names of the same concept as `anchors` anchors from `first` on, but
    themselves; all others."""
    negative = concept[first : first + anchors, None] != concept[None]
    positive = ~negative
    positive.diagonal(first).fill_(False)
    return positive, negative


def hard_pairs(
    distance: Tensor,
    concept: Tensor,
    margin: float = 0.2,
    condition: str = "released",
    first: int = 0,
) -> tuple[Tensor, Tensor]:
    """P and N of Eq. (1), as bool like `distance`: the pairs in a kept triplet; row = anchor.

    distance (A, N) of the anchors `first`, `first` + 1, … to all names, concept (N,) labels. A
    triplet (a, p, n) is kept when d(a,n) - d(a,p) <= margin ("released", D1) or d(a,p) - d(a,n) >=
    margin ("printed"). That one such n exists for (a, p), or one such p for (a, n), shows at the
    nearest negative and the farthest positive already: O(N²), without ever listing triplets.
    """
    positive, negative = all_pairs(concept, first, len(distance))
    # min_n d(a,n); inf without negatives
    nearest = distance.masked_fill(~negative, torch.inf).amin(1, keepdim=True)
    farthest = distance.masked_fill(~positive, -torch.inf).amax(1, keepdim=True)  # max_p d(a,p)
    if condition == "printed":
        return positive & (distance - nearest >= margin), negative & (farthest - distance >= margin)
    return positive & (nearest - distance <= margin), negative & (distance - farthest <= margin)


class _MinedMultiSimilarity(torch.autograd.Function):
    """Eq. (1) and (2) over `chunk` anchors at a time: beyond f and its gradient, memory for some
    (chunk, N) blocks.

    The gradient is available in the forward pass, where the distances are.
    """

    @staticmethod
    def forward(
        ctx: Any,
        f: Tensor,
        concept: Tensor,
        margin: float,
        condition: str,
        scales: dict[str, float],
        chunk: int,
    ) -> tuple[Tensor, Tensor]:
        loss, counts, to_f = (
            f.new_zeros(()),
            torch.zeros(2, dtype=torch.long, device=f.device),
            torch.zeros_like(f),
        )
        for first in range(0, len(f), chunk):
            anchors = f[first : first + chunk]
            distance = torch.cdist(anchors, f)
            positive, negative = hard_pairs(distance, concept, margin, condition, first)  # Eq. (1)
            similarity = distance.square_().mul_(-0.5).add_(1)
            # Eq. (2)
            terms, weight = multi_similarity_rows(similarity, positive, negative, **scales)
            loss += terms.sum()
            counts += torch.stack([positive.sum(), negative.sum()])
            to_f[first : first + chunk].addmm_(weight, f)
            to_f.addmm_(weight.T, anchors)
        ctx.save_for_backward(to_f.div_(len(f)))
        ctx.mark_non_differentiable(counts)
        return loss / len(f), counts

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        return ctx.saved_tensors[0] * gradients[0], None, None, None, None, None


def mined_multi_similarity(
    f: Tensor,
    concept: Tensor,
    margin: float = 0.2,
    condition: str = "released",
    alpha: float = 60.0,
    beta: float = 1.0,
    epsilon: float = 0.5,
    chunk: int = 32,
) -> tuple[Tensor, Tensor]:
    """(Eq. (2) over the hard pairs of unit vectors f (N, H), (2,) how many positive and negative
    ones), in float32.

    hard_pairs and models.losses.multi_similarity; of more than WHOLE names in one pass that never
    holds (N, N) numbers.
    """
    scales: dict[str, Any] = {"alpha": alpha, "beta": beta, "epsilon": epsilon}
    with torch.autocast(f.device.type, enabled=False):
        if len(f) > WHOLE:
            return _MinedMultiSimilarity.apply(f.float(), concept, margin, condition, scales, chunk)
        similarity, distance = similarities(f)
        positive, negative = hard_pairs(distance, concept, margin, condition)
        loss = multi_similarity(similarity, positive, negative, alpha, beta, epsilon)
        return loss, torch.stack([positive.sum(), negative.sum()])


def gather_rows(rows: Tensor) -> Tensor:
    """The rows of all processes in the order of their ranks; gradient flows to this process's own
    rows only.

    A loss over all rows then has, on every process, the gradient of its own rows; their sum is one
    process's gradient.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return rows
    parts = [torch.empty_like(rows) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(parts, rows.detach().contiguous())
    parts[torch.distributed.get_rank()] = rows
    return torch.cat(parts)


def _one_of(name: str, value: str, wanted: tuple[str, ...]) -> str:
    if value not in wanted:
        raise InputError(f"{name} {value!r}: expected one of {', '.join(wanted)}")
    return value


class SapBERTEncoder(TextEncoder):
    """A BERT whose `pooling`, "cls" (the paper) or "mean" of all tokens without padding, is a
    name's vector."""

    def __init__(self, name: str, attention: str = "sdpa", pooling: str = "cls") -> None:
        self.pooling = _one_of("pooling", pooling, POOLING)
        super().__init__(name, attention)

    def vectors(
        self, input_ids: Tensor, attention_mask: Tensor, tokens: Tensor | None = None
    ) -> Tensor:
        """(N, L) ids and mask of names -> f (N, H), of any length.  tokens: their places, of a
        :class:`Layout`."""
        mask = attention_mask if tokens is None else Layout(attention_mask, tokens, {})
        return pool_states(self(input_ids, mask), attention_mask, self.pooling)

    @classmethod
    def from_export(cls, folder: str | Path) -> SapBERTEncoder:
        """The encoder in an export folder (:meth:`SapBERT.export`)."""
        file = Path(folder) / "sapbert.json"
        if not file.is_file():
            raise InputError(f"{file}: missing; this is no SapBERT export. Export the run again.")
        return cls(str(folder), pooling=str(read_json(file).get("pooling")))


class SapBERT(PaperModule):
    """Self-alignment pre-training (Section 2).

    encoder      a BERT: folder or hub name (the paper: PubMedBERT)
    pooling      "cls" or "mean"
    margin       λ of Eq. (1); condition: "released" or "printed" (D1); mine = False uses all pairs
                 of a batch
    alpha, beta, epsilon  of Eq. (2): scale of negatives, scale of positives, offset
    loss         "ms", or footnote 7's "infonce" (with `temperature`) and "nca" (with `scale`)
    The rest as in :class:`PaperModule`; warmup_steps None is a constant learning rate, as in the
    released code.
    """

    def __init__(
        self,
        encoder: str,
        pooling: str = "cls",
        margin: float = 0.2,
        condition: str = "released",
        mine: bool = True,
        alpha: float = 60.0,
        beta: float = 1.0,
        epsilon: float = 0.5,
        loss: str = "ms",
        temperature: float = 0.07,
        scale: float = 1.0,
        lr: float = 2e-5,
        warmup_steps: float | None = None,
        **training: Any,
    ) -> None:
        super().__init__(lr, warmup_steps=warmup_steps, **training)
        self.source = encoder
        self.pooling = _one_of("pooling", pooling, POOLING)
        self.margin, self.condition, self.mine = (
            margin,
            _one_of("condition", condition, CONDITIONS),
            mine,
        )
        self.scales: dict[str, Any] = {"alpha": alpha, "beta": beta, "epsilon": epsilon}
        self.loss: Any = {
            "ms": None if mine else partial(multi_similarity, **self.scales),
            "infonce": partial(info_nce, temperature=temperature),
            "nca": partial(nca, scale=scale),
        }[_one_of("loss", loss, LOSSES)]
        self.encoder: SapBERTEncoder | None = None

    def configure_model(self) -> None:
        """Read the encoder; Lightning calls this before it needs parameters."""
        if self.encoder is not None:
            return
        self.encoder = SapBERTEncoder(self.source, self.attention, self.pooling)
        if self.dropout is not None:
            set_dropout(self.encoder, self.dropout)
        self.train()  # from_pretrained returns modules in evaluation mode, without dropout

    def decays(self, name: str, parameter: nn.Parameter) -> bool:
        return True  # the released code's AdamW decays every parameter

    def forward(self, batch: SapBERTBatch) -> Tensor:
        """f (N, H) of the batch's names, of unit length, in float32."""
        assert self.encoder is not None
        pooled = []
        groups = zip(batch.input_ids, batch.attention_mask, strict=True)
        for number, (ids, mask) in enumerate(groups):
            places = None if batch.places is None else batch.places[f"tokens{number}"]
            pooled.append(self.encoder.vectors(ids, mask, places))
        return unit_length(torch.cat(pooled))

    def alignment(self, f: Tensor, concept: Tensor) -> tuple[Tensor, Tensor]:
        """(loss, (2,) positive and negative pairs in it) of unit vectors f (N, H) with labels (N,);
        in float32."""
        if self.loss is None:
            return mined_multi_similarity(f, concept, self.margin, self.condition, **self.scales)
        with torch.autocast(f.device.type, enabled=False):
            similarity, distance = similarities(f)
            if self.mine:
                positive, negative = hard_pairs(distance, concept, self.margin, self.condition)
            else:
                positive, negative = all_pairs(concept, 0, len(f))
            return self.loss(similarity, positive, negative), torch.stack(
                [positive.sum(), negative.sum()]
            )

    def on_fit_start(self) -> None:
        if self.trainer.accumulate_grad_batches > 1:
            raise InputError(
                f"trainer.accumulate_grad_batches {self.trainer.accumulate_grad_batches}: expected"
                " 1, because pairs are mined within one batch. Take a smaller"
                " data.init_args.batch_size, or more processes (DEVICES)."
            )

    def training_step(self, batch: SapBERTBatch, batch_idx: int) -> Tensor:
        f, concept = gather_rows(self(batch)), gather_rows(batch.concept)
        loss, counts = self.alignment(f, concept)
        # a name
        pairs = dict(zip(("train/positives", "train/negatives"), counts / len(f), strict=True))
        self.log_dict({"train/loss": loss.detach()} | pairs, prog_bar=True, batch_size=1)
        # Every process has its own rows' part of the gradient; DDP averages, so undo that.
        return loss * self.trainer.world_size

    def on_validation_epoch_start(self) -> None:
        self._held: list[tuple[Tensor, Tensor, Tensor]] = []

    def validation_step(self, batch: SapBERTBatch, batch_idx: int) -> None:
        self._held.append((self(batch), batch.concept, batch.query))

    def validation_metrics(self) -> dict[str, Tensor]:
        """Nearest names of held-out synonyms, and the loss of each paired with a name of its
        concept.

        A name that several concepts share is there once for each; as good as the best counts as
        found.
        """
        f, concept, query = (torch.cat(part) for part in zip(*self._held, strict=True))
        self._held.clear()
        queries, gold, names, owner = f[query], concept[query], f[~query], concept[~query]
        similarity = queries @ names.T  # (Q, D)
        correct = gold[:, None] == owner[None]
        best = similarity.max(1).values
        right = similarity.masked_fill(~correct, -torch.inf).max(1).values >= best - 1e-6
        partner = names[correct.int().argmax(1)]
        losses = []
        for first in range(0, len(gold), HELD_OUT_PAIRS):
            part = slice(first, first + HELD_OUT_PAIRS)
            pairs, labels = torch.cat([queries[part], partner[part]]), gold[part].repeat(2)
            losses.append(self.alignment(pairs, labels)[0] * len(gold[part]))
        return {
            "val/loss": torch.stack(losses).sum() / len(gold),
            "val/acc1": right.float().mean(),
            "val/queries": torch.tensor(float(len(gold))),
            "val/names": torch.tensor(float(len(names))),
        }

    def export(self, folder: str | Path) -> None:
        """Write the encoder as a Hugging Face folder (``AutoModel`` loads it;
        ``SentenceTransformer`` makes the same vectors, but for pooling "text") and how its vectors
        are taken, into `folder`."""
        assert self.encoder is not None
        save_transformer(self.encoder.bert, folder)
        save_sentence_files(folder, self.encoder.hidden_size, self.pooling, NAME_TOKENS)
        write_json(Path(folder) / "sapbert.json", {"pooling": self.pooling})
