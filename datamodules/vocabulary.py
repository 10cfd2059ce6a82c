"""A character vocabulary for Chinese, as a BERT tokenizer that ``AutoTokenizer.from_pretrained``
loads.

    kepl data vocabulary --graph GRAPH [--texts FILE ...] --out FOLDER

Every Chinese character is a token; Latin text is lower-cased and falls into word pieces. The
vocabulary holds, in this order: [PAD] [UNK] [CLS] [SEP] [MASK], [unused0] ... [unused99], the
characters of BLOCKS whether they occur or not, every character of the graph and those that the
texts have RARE times or more, and the most frequent Latin word pieces. Characters that the
tokenizer does not split off (letters, digits, signs such as ℃) are there twice, the second time as
`##` pieces, so that no word of known characters is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast

from core.artifact import Artifact
from core.files import InputError
from core.json_files import digest
from core.reading import sha256
from datamodules.tokenizers import load_tokenizer, tokenizer_fingerprint
from kg.documents.formats import documents
from kg.graph import KnowledgeGraph, fingerprint

FORMAT = 1
VOCABULARY = Artifact("vocabulary", "kepl data vocabulary --help", FORMAT, ("recipe",), "")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
UNUSED = 100
#: [first, last] code points that are always there
BLOCKS = {
    "printable ASCII": (0x21, 0x7E),
    "CJK unified ideographs": (0x4E00, 0x9FFF),
    "CJK punctuation": (0x3001, 0x301F),
    "full-width forms": (0xFF01, 0xFF5E),
    "Greek letters": (0x391, 0x3C9),
    "Roman numerals": (0x2160, 0x217B),
    "circled and bracketed numbers": (0x2460, 0x249B),
    "quotation marks and dashes": (0x2010, 0x2026),
    "units": (0x3380, 0x33D5),
}
SIGNS = "℃℉‰±×÷≤≥≈≠∶→←↑↓°·•μµ²³§®"
RARE = 10
# words that the trainer of word pieces sees, at most; frequencies are scaled down to it
REPEATS = 1_000_000


def normaliser() -> normalizers.Normalizer:
    """BERT's: blanks around Chinese characters, lower case, no accents, no control characters."""
    return normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=True, lowercase=True
    )


def count_words(texts: Iterable[str]) -> tuple[Counter[str], Counter[str]]:
    """(characters, words of ASCII letters) of the texts once they are normalised and split as the
    tokenizer does."""
    characters: Counter[str] = Counter()
    words: Counter[str] = Counter()
    normal, split = normaliser(), pre_tokenizers.BertPreTokenizer()
    for text in texts:
        line = normal.normalize_str(text)
        characters.update(line)
        if any("a" <= c <= "z" for c in line):
            words.update(w for w, _ in split.pre_tokenize_str(line) if w.isascii() and w.isalpha())
    return Counter({c: n for c, n in characters.items() if not c.isspace()}), words


def whole(character: str) -> bool:
    """Whether the tokenizer makes a word of the character alone: Chinese characters and
    punctuation."""
    words = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(
        normaliser().normalize_str(f"a{character}a")
    )
    return len(words) > 1


def word_pieces(words: Counter[str], size: int) -> list[str]:
    """At most `size` pieces of two letters and more, learnt from the words' frequencies, in
    alphabetical order."""
    if not words or size < 1:
        return []
    scale = min(1.0, REPEATS / words.total())
    texts = chain.from_iterable(
        repeat(word, max(1, round(n * scale))) for word, n in sorted(words.items())
    )
    letters = sorted(set("".join(words)))
    single = [*letters, *(f"##{letter}" for letter in letters)]
    pieces = Tokenizer(models.WordPiece({}, unk_token="[UNK]", max_input_chars_per_word=100))
    pieces.pre_tokenizer = pre_tokenizers.Whitespace()
    pieces.train_from_iterator(
        texts,
        trainers.WordPieceTrainer(
            vocab_size=size + len(single),
            min_frequency=3,
            # numbered here, or the trainer's hash order would break ties differently each time
            special_tokens=single,
            continuing_subword_prefix="##",
            show_progress=False,
        ),
    )
    return sorted(piece for piece in pieces.get_vocab() if len(piece.removeprefix("##")) > 1)


def vocabulary(graph: Iterable[str], texts: Iterable[str] = (), pieces: int = 4000) -> list[str]:
    """Tokens in the order of their ids, from the graph's names and further texts."""
    counted, words = count_words(graph)
    seen, more = count_words(texts)
    blocks = chain.from_iterable(range(first, last + 1) for first, last in BLOCKS.values())
    always = "".join(map(chr, blocks)) + SIGNS
    characters = {c for c in normaliser().normalize_str(always) if not c.isspace()} | set(counted)
    characters |= {c for c, n in seen.items() if n >= RARE}
    inside = [c for c in sorted(characters) if not whole(c)]
    tokens = [
        *SPECIAL,
        *(f"[unused{i}]" for i in range(UNUSED)),
        *sorted(characters),
        *(f"##{c}" for c in inside),
    ]
    return list(dict.fromkeys([*tokens, *word_pieces(words + more, pieces)]))


def tokenizer(tokens: list[str], max_length: int = 512) -> PreTrainedTokenizerFast:
    """A fast BERT tokenizer of the vocabulary `tokens`."""
    ids = {token: i for i, token in enumerate(tokens)}
    backend = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    backend.normalizer = normaliser()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=max_length,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **{f"{t.strip('[]').lower()}_token": t for t in SPECIAL},
    )


def _graph_texts(graph: KnowledgeGraph) -> Iterator[str]:
    for table, column in (
        (graph.names, "name"),
        (graph.definitions, "text"),
        (graph.triples, "relation"),
    ):
        yield from table[column].unique().to_pylist()


def build_vocabulary(
    graph: str, texts: list[str], out: str, pieces: int = 4000, fresh: bool = False
) -> Path:
    """Make a BERT tokenizer of Chinese characters, of a graph and files of text. Returns its
    folder.

    Args:
        graph: Folder of a knowledge graph.
        texts: Files of text, in the formats of `kepl data link`.
        out: Folder for the tokenizer.
        pieces: Latin word pieces at most.
        fresh: Build again even if it is there.

    Raises InputError for a broken file, or a folder that holds something else.
    """
    folder = Path(out)
    for text in texts:
        if not Path(text).is_file():
            raise InputError(f"{text}: no such file. Check the path.")
    recipe = {
        "format": FORMAT,
        "graph": fingerprint(graph),
        "texts": [sha256(text) for text in texts],
        "pieces": pieces,
    }
    if VOCABULARY.is_kept(folder, {"recipe": recipe}, fresh):
        return folder
    progress = tqdm(
        documents([Path(t) for t in texts], None, "skip", used=False),
        unit=" texts",
        desc="vocabulary",
        dynamic_ncols=True,
    )
    tokens = vocabulary(
        _graph_texts(KnowledgeGraph.load(graph)), (d.text for d in progress), pieces
    )
    manifest: dict[str, Any] = {"recipe": recipe, "vocabulary": digest(tokens)}
    with VOCABULARY.create(folder, manifest) as partial:
        tokenizer(tokens).save_pretrained(partial)
        loaded = load_tokenizer(str(partial))
        manifest["tokens"] = len(loaded)
        manifest["fingerprint"] = tokenizer_fingerprint(loaded)
    return folder
