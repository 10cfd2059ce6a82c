"""What encoder and decoder read (Yuan et al., NAACL 2022, Section 2.1), the same in training and
for a linker.

    encoder   <s> left START mention END right </s>
    decoder   </s> mention is name </s>       without prompt: </s> name </s>

Text is lower-cased and its white space squeezed, so that START and END in capitals are never the
text's own words. Every piece (side, mention, marker, name) is made into tokens by itself, with a
blank before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerFast

from core.files import InputError
from core.json_files import read_json
from core.reading import excerpt
from datamodules.contexts import END, START, balance_sides, sides
from datamodules.tokenizers import load_tokenizer

IS = "is"
FILE = "genbioel.json"  #: in an export: the settings below


def plain(text: str) -> str:
    """`text` in lower case, runs of white space as one blank, none at the ends."""
    return " ".join(text.lower().split())


class Window(NamedTuple):
    """The words around a mention that are looked at."""

    left: str
    right: str


def window(left: str, right: str, words: int) -> Window:
    """At most `words` words of both sides, those next to the mention, balanced around it."""
    before, after = plain(left).split(), plain(right).split()
    keep, follow = balance_sides(len(before), len(after), words)
    return Window(" ".join(before[len(before) - keep :]), " ".join(after[:follow]))


class Inputs:
    """Token ids of encoder and decoder.

    tokenizer    a BART's; raises InputError when " is" is not one token in it, because names hang
                 from that token
    max_length   tokens of the encoder's input; context is cut to fit, the mention and the markers
                 never are
    max_mention  tokens of a mention, in encoder and prompt; of a longer one the first count
    max_name     tokens of a name with its </s>; a longer one is an InputError (training leaves it
                 out)
    max_words    words of context, on both sides together
    prompt       whether the decoder starts with the mention and "is"
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        max_length: int = 1024,
        max_mention: int = 128,
        max_name: int = 128,
        max_words: int = 384,
        prompt: bool = True,
    ) -> None:
        self.tokenizer = tokenizer
        self.max_length, self.max_mention, self.max_name = max_length, max_mention, max_name
        self.max_words, self.prompted = max_words, prompt
        special = [
            tokenizer.bos_token_id,
            tokenizer.eos_token_id,
            tokenizer.pad_token_id,
            tokenizer.mask_token_id,
        ]
        if None in special:
            raise InputError("tokenizer without <s>, </s>, <pad> or <mask>: expected a BART's")
        self.bos, self.eos, self.pad, self.mask = (int(i) for i in special if isinstance(i, int))
        linking = self.ids([IS])[0]
        if len(linking) != 1:
            raise InputError(
                f'tokenizer: " {IS}" is {len(linking)} tokens; expected one, from which the names'
                " hang. Take a BART's, or train one: kepl data tokenizer --help"
            )
        self.linking = linking[0]
        self.start, self.end = self.ids([START, END])
        least = max_mention + len(self.start) + len(self.end) + 2
        if max_mention < 1 or max_name < 2 or max_length < least:
            raise InputError(
                f"max_length {max_length}, max_mention {max_mention}, max_name {max_name}: expected"
                f" at least {least} (mention, markers, <s> and </s>), 1 and 2"
            )

    @property
    def root(self) -> int:
        """The token before a name's first one: what the names of a prefix tree hang from."""
        return self.linking if self.prompted else self.eos

    @property
    def longest(self) -> int:
        """Tokens that the decoder reads at most."""
        return max(self.max_mention + 2 if self.prompted else 1, 1) + self.max_name

    @property
    def settings(self) -> dict[str, Any]:
        """What an export keeps, so that a linker makes the same inputs."""
        return {
            "max_length": self.max_length,
            "max_mention": self.max_mention,
            "max_name": self.max_name,
            "max_words": self.max_words,
            "prompt": self.prompted,
        }

    @classmethod
    def from_export(cls, folder: str | Path) -> Inputs:
        """As the run that made the export. Raises InputError when there is none."""
        file = Path(folder) / FILE
        if not file.is_file():
            raise InputError(f"{file}: missing; this is no GenBioEL export. Export the run again.")
        return cls(load_tokenizer(str(folder)), **read_json(file))

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens of each text with a blank before it; none of an empty text."""
        token_ids: list[list[int]] = self.tokenizer(
            [f" {text}" if text else "" for text in texts],
            add_special_tokens=False,
            return_attention_mask=False,
            padding=False,
            truncation=False,
            verbose=False,
        )["input_ids"]
        return token_ids

    def around(
        self, left: Sequence[int], mention: Sequence[int], right: Sequence[int]
    ) -> list[int]:
        """<s> left START mention END right </s>, of at most max_length tokens."""
        marked = [*self.start, *mention[: self.max_mention], *self.end]
        keep, follow = balance_sides(len(left), len(right), self.max_length - 2 - len(marked))
        return [self.bos, *left[len(left) - keep :], *marked, *right[:follow], self.eos]

    def query_ids(self, mention: Sequence[int]) -> list[int]:
        """</s> mention is; without prompt </s> alone."""
        return (
            [self.eos, *mention[: self.max_mention], self.linking] if self.prompted else [self.eos]
        )

    def encoder_input(self, mention: str, context: str | None = None) -> list[int]:
        """The encoder's ids of a mention in its context (None: the mention alone).

        `context` has START and END around the mention as the text writes it; what is between is
        replaced by `mention`, whose abbreviations may be expanded. Raises InputError for a context
        without markers, and for a mention that has no tokens.
        """
        around = window(*sides(mention, context), self.max_words)
        left, mention_ids, right = self.ids([around.left, plain(mention), around.right])
        if not mention_ids:
            raise InputError(f"mention {mention!r}: nothing is left of it as tokens. Leave it out.")
        return self.around(left, mention_ids, right)

    def prompt(self, mention: str) -> list[int]:
        """The decoder's ids before the name."""
        return self.query_ids(self.ids([plain(mention)])[0])

    def name(self, name: str) -> list[int]:
        """The ids to be generated for a (normalised) name, </s> last. Raises InputError for none,
        and for too many."""
        ids = self.ids([name])[0]
        if not ids or len(ids) >= self.max_name:
            raise InputError(
                f"name {excerpt(name)}: {len(ids)} tokens; expected 1 to {self.max_name - 1}. Leave"
                " it out."
            )
        return [*ids, self.eos]
