"""GenBioEL: Generative Biomedical Entity Linking via Knowledge Base-Guided Pre-training and
Synonyms-Aware Fine-tuning.

Yuan, Yuan and Yu, NAACL 2022. https://arxiv.org/abs/2204.05164

    Seq2seq EL: p(s | P_m, c, m), Section 2.1     GenBioEL.losses
    encoder's and decoder's inputs, Section 2.1   datamodules.genbioel.inputs
    KB-guided pre-training, Section 2.2, E.1, E.2 datamodules.genbioel.samples
    Synonyms-aware fine-tuning, Section 2.3       datamodules.genbioel.finetuning
    BART's own objective, the baseline            datamodules.genbioel.denoising
    Table 11's optimiser and schedule             GenBioEL.factor

Deviations from the printed paper, each pinned by a test:
    D1  The decoder starts with </s>, BART's own start, where the paper prints [BOS].
    D2  The loss is its sum over the global batch divided by the number of predicted tokens there.
    D3  Table 10's third row is printed for concepts without a third name, and Appendix E.2 says
        what it holds for one and two names; so two names use it here, with `few` 1 one name only,
        as in the released code.
    D4  Table 10's sentences end without the full stop that it prints, as in the examples of Section
        2.2.
    D5  The synonyms of a context are neither the mention nor the target.
    D6  Names of several concepts are gone through in alphabetical order when each is left to one;
        the paper states none.
    D7  Abbreviations are expanded in mentions, not in the text around them, by Schwartz and
        Hearst's rules, not Ab3P's.
    D8  TF-IDF vectors are fitted on the task's names; the paper uses those of ScispaCy.
    D9  The learning rate goes down to 1e-7 (the released code's polynomial schedule of power 1),
        not to 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, BartConfig, BartForConditionalGeneration

from core.files import InputError
from datamodules.genbioel import GenBioELBatch
from datamodules.pretrained import load
from datamodules.steps import places
from models.base import PaperModule, warmup_linear
from models.encoders import attention_mask_4d
from models.losses import word_loss
from models.measures import Measures
from models.packing import Layout, layout

LAST_RATE = 1e-7
ATTENTION = ("sdpa", "eager")


def load_bart(
    name: str, attention: str = "sdpa", dropout: float | None = None
) -> BartForConditionalGeneration:
    """The BART in folder `name`, or of the hub model `name`, in float32; dropout None: its own.

    Raises InputError when it cannot be had or is no BART. Reads safetensors, or a .bin file with
    weights only.
    """
    try:
        config = load(AutoConfig, name)
        if not isinstance(config, BartConfig):
            raise InputError(
                f"encoder {name!r}: a {config.model_type} model; expected a BART (model_type bart)"
            )
        if dropout is not None:
            config.dropout = config.attention_dropout = config.activation_dropout = dropout
        loaded: Any = load(
            BartForConditionalGeneration,
            name,
            config=config,
            dtype=torch.float32,
            attn_implementation=attention,
            output_loading_info=True,
        )
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(
            f"encoder {name!r}: neither a folder with config.json and weights nor a model of the"
            f" hub. Check the path, or the name and the network. ({str(error).splitlines()[0]})"
        ) from error
    bart: BartForConditionalGeneration = loaded[0]
    if missing := sorted(loaded[1]["missing_keys"]):
        raise InputError(f"encoder {name!r}: its weights lack {missing[:3]}; this is no whole BART")
    return bart


def new_bart(
    vocab_size: int,
    layers: int,
    hidden: int,
    heads: int,
    intermediate: int,
    max_length: int,
    dropout: float = 0.1,
) -> BartForConditionalGeneration:
    """A BART of `layers` + `layers` layers with random weights. Raises InputError when `heads` does
    not divide `hidden`."""
    if hidden % heads:
        raise InputError(f"hidden {hidden}: expected a multiple of heads, {heads}")
    config = BartConfig(
        vocab_size=vocab_size,
        d_model=hidden,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=intermediate,
        decoder_ffn_dim=intermediate,
        max_position_embeddings=max_length,
        dropout=dropout,
        attention_dropout=dropout,
        activation_dropout=dropout,
    )
    return BartForConditionalGeneration(config)


class GenBioELModel(nn.Module):
    """The BART of an export: ``bart`` is a ``BartForConditionalGeneration``, of which a search uses
    what it needs.

    datamodules.genbioel.inputs.Inputs.from_export makes the inputs that it was trained on.
    """

    def __init__(self, name: str, attention: str = "sdpa") -> None:
        super().__init__()
        self.bart = load_bart(name, attention)
        self.hidden_size, self.max_length = (
            self.bart.config.d_model,
            self.bart.config.max_position_embeddings,
        )

    @classmethod
    def from_export(cls, folder: str | Path) -> GenBioELModel:
        """The model in an export folder (:meth:`GenBioEL.export`), in evaluation mode. Raises
        InputError for another one."""
        if not (Path(folder) / "genbioel.json").is_file():
            raise InputError(
                f"{folder}/genbioel.json: missing; this is no GenBioEL export. Export the run"
                " again."
            )
        return cls(str(folder)).eval()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor
    ) -> Tensor:
        """(B, L) ids and mask, (B, T) decoder ids -> (B, T, V) logits of the token that follows
        each."""
        output: Tensor = self.bart(
            input_ids, attention_mask, decoder_input_ids=decoder_input_ids, use_cache=False
        ).logits
        return output


class GenBioEL(PaperModule):
    """Pre-training and fine-tuning (Section 2); which of them, the data say.

    encoder     the initial checkpoint, a BART: folder or hub name; None: a new one of the sizes
                below, with the data's vocabulary
    layers, hidden, heads, intermediate, positions   sizes of a new one; not looked at for `encoder`
    smoothing   ε of the label smoothing
    The rest as in :class:`PaperModule`; the learning rate ends at 1e-7 (D9).
    """

    def __init__(
        self,
        encoder: str | None = None,
        layers: int = 3,
        hidden: int = 256,
        heads: int = 4,
        intermediate: int = 1024,
        positions: int = 256,
        smoothing: float = 0.1,
        lr: float = 4e-5,
        warmup_steps: float | None = 1600,
        **training: Any,
    ) -> None:
        super().__init__(lr, warmup_steps=warmup_steps, **training)
        if self.attention not in ATTENTION:
            raise InputError(
                f"attention {self.attention!r}: expected one of {', '.join(ATTENTION)}"
            )
        if not 0 <= smoothing < 1:
            raise InputError(f"smoothing {smoothing}: expected 0 or more, below 1")
        self.source, self.smoothing = encoder, smoothing
        self.sizes = {
            "layers": layers,
            "hidden": hidden,
            "heads": heads,
            "intermediate": intermediate,
        }
        self.positions = positions
        self.bart: BartForConditionalGeneration | None = None

    def configure_model(self) -> None:
        """Read or make the BART; Lightning calls this before it needs parameters.

        Raises InputError when the one that was given has other special tokens, or fewer tokens or
        positions, than the data.
        """
        if self.bart is not None:
            return
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        inputs = data.inputs
        if self.source is None:
            dropout = 0.1 if self.dropout is None else self.dropout
            bart = new_bart(
                len(data.tokenizer), **self.sizes, max_length=self.positions, dropout=dropout
            )
            bart.set_attn_implementation(self.attention)
        else:
            bart = load_bart(self.source, self.attention, self.dropout)
        config = bart.config
        for wanted, got, what in (
            (len(data.tokenizer), config.vocab_size, "tokens"),
            (max(inputs.max_length, inputs.longest), config.max_position_embeddings, "positions"),
        ):
            if wanted > got:
                raise InputError(
                    f"encoder {self.source or 'from scratch'}: {got} {what}, but the data has"
                    f" {wanted}. Take the encoder's own tokenizer, or a shorter max_length,"
                    " max_mention or max_name."
                )
        special = {
            "pad": (inputs.pad, config.pad_token_id),
            "</s>": (inputs.eos, config.eos_token_id),
            "decoder's start": (inputs.eos, config.decoder_start_token_id),
        }
        if wrong := [name for name, (ours, stored) in special.items() if ours != stored]:
            raise InputError(
                f"encoder {self.source}: {wrong[0]} is another token than in the data's tokenizer"
            )
        self.bart = bart
        self.train()  # from_pretrained returns modules in evaluation mode, without dropout

    def factor(self, step: int, warmup: int, total: int) -> float:
        """Linear warm-up, then linearly down to LAST_RATE (D9)."""
        factor = warmup_linear(step, warmup, total)
        last = min(1.0, LAST_RATE / self.lr)
        return factor if step < warmup else last + (1 - last) * factor

    def logits(self, batch: GenBioELBatch) -> tuple[Tensor, Tensor]:
        """((N, V) float logits, (N,) labels) of the tokens that are predicted: y_i given y_<i, P_m,
        c, m (Section 2.1)."""
        states, labels = self.states_and_labels(batch)
        return self.words(states).float(), labels

    def masks(self, batch: GenBioELBatch) -> tuple[Tensor | None, Tensor | None]:
        """(mask of the encoder's tokens, of the decoder's), as the BART accepts them without
        reading one on a GPU."""
        assert self.bart is not None
        packed = layout(batch)
        if not isinstance(packed, Layout):
            return packed, None
        size = batch.decoder_input_ids.shape[1]
        # (1, 1, T, T)
        causal = torch.ones(size, size, dtype=torch.bool, device=packed.mask.device).tril()[
            None, None
        ]
        if self.attention == "eager":
            causal = torch.zeros(causal.shape, device=causal.device).masked_fill(
                ~causal, torch.finfo(torch.float32).min
            )
        read = attention_mask_4d(self.bart, packed.mask[..., None].float(), packed)
        # (B, 1, 1, L): the same for whatever looks at it
        return None if read is None else read[:, :, :1], causal

    def states_and_labels(self, batch: GenBioELBatch) -> tuple[Tensor, Tensor]:
        """((N, H) states, (N,) labels) of the tokens that are predicted."""
        assert self.bart is not None
        mask, causal = self.masks(batch)
        states = self.bart.model(
            batch.input_ids,
            mask,
            decoder_input_ids=batch.decoder_input_ids,
            decoder_attention_mask=causal,
            use_cache=False,
        ).last_hidden_state  # (B, T, H)
        place = places(batch, "predicted")
        return states.flatten(0, 1)[place], batch.labels.flatten()[place]

    def words(self, states: Tensor) -> Tensor:
        """(N, H) states -> (N, V) logits: the vocabulary's product is for the tokens that are
        predicted only."""
        assert self.bart is not None
        return nn.functional.linear(states, self.bart.lm_head.weight) + self.bart.final_logits_bias

    def losses(self, batch: GenBioELBatch) -> Tensor:
        """(1,) sum over the predicted tokens of the smoothed -log p_θ(y_i | y_<i, P_m, c, m)."""
        assert self.bart is not None
        return word_loss(
            *self.states_and_labels(batch), self.words, self.bart.config.vocab_size, self.smoothing
        )[None]

    def training_step(self, batch: GenBioELBatch, batch_idx: int) -> Tensor:
        return self.step_mean(self.losses(batch), batch.counts, batch_idx)

    def measures(self, batch: GenBioELBatch) -> Measures:
        """-log p of a token, share of tokens that are the likeliest, share of samples of which
        every token is."""
        logits, labels = self.logits(batch)
        # unsmoothed: whatever ε, comparable
        loss = nn.functional.cross_entropy(logits, labels, reduction="sum")
        right = logits.argmax(-1) == labels
        rows = (batch.labels != -100).nonzero()[:, 0]
        wrong = torch.zeros(len(batch.labels), device=labels.device).index_add_(
            0, rows, (~right).float()
        )
        scored = (batch.labels != -100).any(1)
        tokens, samples = batch.counts[0], scored.sum()
        return {
            "loss": (loss, tokens),
            "token_accuracy": (right.sum(), tokens),
            "exact": ((scored & (wrong == 0)).sum(), samples),
            "samples": samples,
        }

    def export(self, folder: str | Path) -> None:
        """Write the BART as a Hugging Face folder that ``AutoModelForSeq2SeqLM`` loads; the data
        adds how inputs are made."""
        assert self.bart is not None
        self.bart.save_pretrained(folder)
