"""Synthetic inputs of a rehearsal (benchmarks.perf.rehearse): real formats, a paper's sizes, no
real content.

A writer accepts the file or folder to write, the scale, and the paper's sizes, of which it writes
the share `scale`; it returns what it wrote in words. `experiments/<paper>/pipeline.yaml` names a
writer for each input that its profile starts from:

    umls            META folder of a UMLS release in Rich Release Format
    pubmedds        documents in PubMedDS's layout, JSON lines with mentions of that release's
                    concepts
    chinese_graph   a Chinese graph of kg.build, with equivalences
    chinese_text    documents that name its entities, JSON lines
    bert, bart      an encoder of random weights with a tokenizer of its own, in the Hugging Face
                    layout

`write_inputs` writes those of a rehearsal, in a process of its own.

Everything is a function of the numbers given, so a text can name a graph's entities without reading
the graph.
"""

from __future__ import annotations

import json
import logging
import string
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from core.dotted import import_object
from core.files import atomic_write
from core.json_files import read_json, write_json
from core.logs import quiet_libraries
from datamodules.corpus import is_held_out

LOG = logging.getLogger(__name__)
SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in ("a", "e", "i", "o", "u", "ia", "or")]
#: different words of running text; a tokenizer holds the first ones whole and cuts the others
WORDS = 60_000
#: ways to write a concept's name of the words {a} and {b}; the first is the preferred one
FORMS = (
    "{a} {b}",
    "{b} of the {a}",
    "{a} {b} syndrome",
    "chronic {a} {b}",
    "{b}, {a}",
    "{a} {b} nos",
    "acute {b} of {a}",
)
SMALL = "the of with and in is to a by was were as are defined described".split()
SOURCES = ("MSH", "NCI", "SNOMEDCT_US", "MTH", "RXNORM", "OMIM", "GO", "HGNC", "MEDCIN", "LNC")
#: {rank by frequency: label} of relations that are not just numbered; one and its inverse, from an
#: even rank on
RELATIONS = {
    0: "isa",
    1: "inverse_isa",
    2: "may_treat",
    3: "may_be_treated_by",
    60: "has_tradename",
    61: "tradename_of",
}
# of Chinese names, by type: three characters, so that names of one ending look alike
# (datamodules.synonyms)
ENDINGS = {
    "疾病": ("综合征", "功能病", "炎症病"),
    "药物": ("注射液", "口服片", "胶囊剂"),
    "症状": ("疼痛感", "肿胀感", "麻木感"),
    "检查": ("造影术", "试验法", "测定法"),
}
BEGINNINGS = ("", "慢性", "急性", "先天性", "老年性")
CHARACTERS = [chr(c) for c in range(0x6C00, 0x7100)]  #: of the middle of names and of running text
KINDS = list(ENDINGS)
SAME = "别称"  #: the relation that kg.build.refine makes equivalences of


def scale_size(size: float, scale: float, least: int = 1) -> int:
    """The share `scale` of `size`, `least` or more."""
    return max(least, round(size * scale))


def word(number: int) -> str:
    """A word of two syllables or more, another one for each number."""
    number += len(SYLLABLES)
    syllables = ""
    while number:
        number, digit = divmod(number, len(SYLLABLES))
        syllables = SYLLABLES[digit] + syllables
    return syllables


def english_name(concept: int, form: int) -> str:
    """The name of a concept in one of the FORMS, lower case; further forms are numbered."""
    turn, kind = divmod(form, len(FORMS))
    name = FORMS[kind].format(
        a=word(concept % 9973), b=word(9973 + concept // 9973 * 131 + concept % 131)
    )
    return f"{name} type {turn + 1}" if turn else name


def chinese_name(entity: int) -> str:
    """The name of an entity: a kind of it, two characters or more, and what its type ends in."""
    rest, kind = divmod(entity, len(KINDS))
    rest, ending = divmod(rest, 3)
    rest, beginning = divmod(rest, len(BEGINNINGS))
    middle = ""
    while rest or len(middle) < 2:
        rest, digit = divmod(rest, len(CHARACTERS))
        middle = CHARACTERS[digit] + middle
    return BEGINNINGS[beginning] + middle + ENDINGS[KINDS[kind]][ending]


def frequent_first(rng: np.random.Generator, size: int, count: int) -> np.ndarray:
    """(count,) numbers below `size`, the one on rank i drawn about as often as 1 / i."""
    return np.minimum(np.exp(rng.random(count) * np.log(size + 1)).astype(np.int64) - 1, size - 1)


# --- UMLS and PubMedDS ----------------------------------------------------------------------------


def umls(
    place: Path,
    scale: float,
    *,
    concepts: int,
    names: int,
    relations: int,
    definitions: int,
    english: float = 0.7,
    seed: int = 0,
) -> str:
    """MRCONSO, MRSTY, MRREL, MRDEF and release.dat. names, relations: rows; english: share of the
    names."""
    rng = np.random.default_rng(seed)
    concepts, names = scale_size(concepts, scale, 300), scale_size(names, scale, 1500)
    relations = scale_size(relations, scale, 2000)
    definitions = min(concepts, scale_size(definitions, scale, 50))
    owner = np.sort(
        np.concatenate([np.arange(concepts), rng.integers(0, concepts, names - concepts)])
    )
    form = np.arange(names) - np.searchsorted(owner, owner)
    source, draw = rng.integers(0, len(SOURCES), names), rng.random(names)
    # of the others than the preferred ones
    spanish = rng.random(names) < (1 - english) * names / max(1, names - concepts)
    suppressed = np.select([(form == 0) | (draw < 0.9), draw < 0.95], ["N", "O"], "Y")
    with atomic_write(place / "MRCONSO.RRF") as handle:
        for n in range(names):
            language, sab, status, kind = "ENG", SOURCES[source[n]], "P", "PT"
            if form[n] > 0:
                status, kind = "S", "AB" if draw[n] > 0.97 else "SY"
                if spanish[n]:
                    language, sab = "SPA", "MSHSPA"
            handle.write(
                f"C{owner[n] + 1:07d}|{language}|{status}|L{n:07d}|PF|S{n:07d}|Y|A{n:07d}||M{n}|D{n}|{sab}|{kind}|D{n}|"  # noqa: E501
                f"{english_name(int(owner[n]), int(form[n])).capitalize()}|0|{suppressed[n]}||\n"
            )
    with atomic_write(place / "MRSTY.RRF") as handle:
        handle.writelines(
            f"C{c + 1:07d}|T{c % 127 + 1:03d}|A1.2|Type {c % 127 + 1}|AT{c:08d}|256|\n"
            for c in range(concepts)
        )
    write_relations(place / "MRREL.RRF", rng, concepts, relations)
    texts = sentences(rng, definitions, 24)
    with atomic_write(place / "MRDEF.RRF") as handle:
        defined = np.sort(rng.choice(concepts, definitions, replace=False))
        for c, text in zip(defined, texts, strict=True):
            source_name = "MSH" if c % 2 else "NCI"
            handle.write(f"C{c + 1:07d}|A{c:07d}|AT{c:08d}||{source_name}|{text}|N||\n")
    with atomic_write(place / "release.dat") as handle:
        handle.write("umls.release.name=synthetic\numls.release.date=20990101\n")
    return (
        f"{concepts:,} concepts, {names:,} names, {relations:,} relations, {definitions:,}"
        " definitions"
    )


def write_relations(file: Path, rng: np.random.Generator, concepts: int, relations: int) -> None:
    """MRREL: every relation and its inverse, as UMLS lists both."""
    head, tail = frequent_first(rng, concepts, relations), rng.integers(0, concepts, relations)
    label = frequent_first(rng, 900, relations)
    with atomic_write(file) as handle:
        for n in range(relations):
            number = int(label[n & ~1]) ^ (n & 1)
            first, two = (head[n & ~1], tail[n & ~1]) if n & 1 else (tail[n], head[n])
            rela = "" if number % 5 == 4 else RELATIONS.get(number, f"relation_{number}")
            sab = SOURCES[n % len(SOURCES)]
            handle.write(
                f"C{first + 1:07d}|A{n:07d}|SCUI|RO|C{two + 1:07d}|A{n:07d}|SCUI|{rela}|R{n:08d}||{sab}|{sab}|||N||\n"  # noqa: E501
            )


def sentences(rng: np.random.Generator, count: int, words: int) -> Iterator[str]:
    """So many sentences of about so many words."""
    for size in rng.integers(words // 2, words * 3 // 2 + 1, count):
        rare = frequent_first(rng, WORDS, int(size))
        small = rng.integers(0, 3 * len(SMALL), int(size))
        yield (
            " ".join(
                SMALL[s] if s < len(SMALL) else word(int(r))
                for s, r in zip(small, rare, strict=True)
            ).capitalize()
            + "."
        )


def hold_out(text: str, share: float, mark: str) -> str:
    """`text` with such a number behind it that a corpus holds the text out (datamodules.corpus); as
    it is without a share."""
    number = 0
    while share and not is_held_out(f"{text} {number}{mark}", share):
        number += 1
    return f"{text} {number}{mark}" if share else text


def pubmedds(
    place: Path,
    scale: float,
    *,
    documents: int,
    words: int,
    concepts: int,
    mentions: int = 12,
    held_out: float = 0.0,
    seed: int = 1,
) -> str:
    """Documents of about `words` words with `mentions` names of the concepts that :func:`umls`
    writes at this scale.

    held_out: share that the pipeline's corpus holds out; four documents are made to be among them,
        however few there are.
    """
    rng = np.random.default_rng(seed)
    documents, concepts = scale_size(documents, scale, 40), scale_size(concepts, scale, 300)
    with atomic_write(place) as handle:
        for number, title in enumerate(sentences(rng, documents, 10)):
            text, mentioned = "", []
            meant = frequent_first(rng, concepts, mentions)
            for concept, sentence in zip(
                meant, sentences(rng, mentions, max(2, words // mentions - 3)), strict=True
            ):
                name = english_name(int(concept), int(rng.integers(0, 2)))
                mentioned.append(
                    {
                        "mention": name,
                        "start_offset": len(text),
                        "end_offset": len(text) + len(name),
                        "link_id": f"C{concept + 1:07d}",
                    }
                )
                text += f"{name} {sentence.lower()} "
            if number < 4:
                text = hold_out(f"{title}\n{text}", held_out, ".").partition("\n")[2]
            handle.write(
                json.dumps(
                    {"_id": str(number), "title": title, "text": text, "mentions": mentioned}
                )
                + "\n"
            )
    return f"{documents:,} documents of some {words} words"


# --- Chinese --------------------------------------------------------------------------------------


def chinese_graph(
    place: Path,
    scale: float,
    *,
    entities: int,
    triples: int,
    same: float = 0.05,
    relations: int = 115,
    seed: int = 0,
) -> str:
    """A graph whose entities have types and names; a share `same` of them means the same as another
    of its type."""
    from kg.graph import KnowledgeGraph, table

    rng = np.random.default_rng(seed)
    entities, triples = scale_size(entities, scale, 400), scale_size(triples, scale, 2000)
    names = [chinese_name(e) for e in range(entities)]
    ids = [f"Z{e:07d}" for e in range(entities)]
    head, tail = frequent_first(rng, entities, triples), rng.integers(0, entities, triples)
    label = frequent_first(rng, relations, triples)
    rows = {
        (int(h), f"关系{r}", int(t)): None
        for h, r, t in zip(head, label, tail, strict=True)
        if h != t
    }
    other = rng.choice(entities - 4, scale_size(entities, same), replace=False)
    rows |= {(int(e), SAME, int(e) + 4): None for e in other}  # the next one of its type
    KnowledgeGraph(
        table(
            "entities",
            {"id": ids, "name": names, "type": [KINDS[e % len(KINDS)] for e in range(entities)]},
        ),
        table(
            "names",
            {
                "id": ids,
                "name": names,
                "kind": ["preferred"] * entities,
                "language": ["zh"] * entities,
                "source": ["synthetic"] * entities,
            },
        ),
        table("definitions", {"id": [], "text": []}),
        table(
            "triples",
            {
                "head": [ids[h] for h, _, _ in rows],
                "relation": [r for _, r, _ in rows],
                "tail": [ids[t] for _, _, t in rows],
            },
        ),
        {"source": "synthetic", "version": "1", "licence": "none"},
    ).save(place)
    return f"{entities:,} entities, {len(rows):,} triples"


def chinese_text(
    place: Path,
    scale: float,
    *,
    characters: float,
    entities: int,
    document: int = 1000,
    mention_every: int = 25,
    held_out: float = 0.0,
    seed: int = 1,
) -> str:
    """Documents of about `document` characters that name the entities of :func:`chinese_graph` at
    this scale.

    mention_every: characters for each mention.  held_out: as in :func:`pubmedds`.
    """
    rng = np.random.default_rng(seed)
    documents, entities = (
        scale_size(characters / document, scale, 40),
        scale_size(entities, scale, 400),
    )
    pool = ["".join(pair) for pair in rng.choice(CHARACTERS, (4000, 2))]  # words of running text
    clauses = document // mention_every
    with atomic_write(place) as handle:
        for number in range(documents):
            meant, surface = (
                frequent_first(rng, entities, clauses),
                frequent_first(rng, len(pool), clauses * 8).reshape(clauses, 8),
            )
            text = ""
            for clause, (entity, words) in enumerate(zip(meant, surface, strict=True)):
                name = chinese_name(int(entity))
                filler = "".join(
                    pool[w] for w in words[: max(1, (mention_every - len(name) - 1) // 2)]
                )
                text += (
                    filler[: len(filler) // 2]
                    + name
                    + filler[len(filler) // 2 :]
                    + ("。" if clause % 3 == 2 else "，")
                )
            text = hold_out(text, held_out if number < 4 else 0.0, "。")
            handle.write(json.dumps({"id": str(number), "text": text}, ensure_ascii=False) + "\n")
    return f"{documents:,} documents of some {document} characters"


# --- encoders -------------------------------------------------------------------------------------


def vocabulary(size: int, language: Literal["en", "zh"]) -> list[str]:
    """A WordPiece vocabulary of `size` tokens: special ones, characters, pieces, then Chinese
    characters or whole words."""
    unused = [f"[unused{i}]" for i in range(1, 100)]
    special = ["[PAD]", *unused, "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    marks = string.digits + string.ascii_lowercase + string.punctuation
    pieces = [f"##{p}" for p in (*string.digits, *string.ascii_lowercase, *SYLLABLES)]
    tokens = dict.fromkeys([*special, *marks, *"，。、；：？！", *pieces])
    if language == "zh":
        tokens |= dict.fromkeys(chr(c) for c in range(0x4E00, 0xA000))
    tokens |= dict.fromkeys([*SMALL, *(word(n) for n in range(max(0, size - len(tokens))))])
    return list(tokens)[:size]


def bert(
    place: Path,
    scale: float,
    *,
    vocabulary_size: int,
    layers: int,
    hidden: int,
    heads: int,
    intermediate: int,
    positions: int = 512,
    language: Literal["en", "zh"] = "en",
    seed: int = 0,
) -> str:
    """A BERT with the head of its masked LM. The scale changes nothing: an encoder is rehearsed at
    its own size."""
    import torch
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

    tokens = vocabulary(vocabulary_size, language)
    backend = Tokenizer(models.WordPiece({t: i for i, t in enumerate(tokens)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=positions,
    ).save_pretrained(place)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(tokens),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=intermediate,
        max_position_embeddings=positions,
    )
    BertForMaskedLM(config).save_pretrained(place)
    return f"a BERT of {layers} layers x {hidden}, {len(tokens):,} tokens, random weights"


def bart(
    place: Path,
    scale: float,
    *,
    vocabulary_size: int,
    layers: int,
    hidden: int,
    heads: int,
    intermediate: int,
    positions: int = 1024,
    seed: int = 0,
) -> str:
    """A BART of `layers` + `layers` layers with a byte-level BPE of its own. As in :func:`bert`,
    the scale changes nothing."""
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    from datamodules.tokenizers import byte_level_bpe

    # a pair seen once is not learnt
    texts = [f" {' '.join(SMALL)}"] * 1000 + [f" {word(n)}" for n in range(WORDS)] * 2
    tokenizer = byte_level_bpe(texts, vocabulary_size)
    tokenizer.save_pretrained(place)
    torch.manual_seed(seed)
    config = BartConfig(
        vocab_size=vocabulary_size,
        d_model=hidden,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=intermediate,
        decoder_ffn_dim=intermediate,
        max_position_embeddings=positions,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.eos_token_id,
        forced_eos_token_id=tokenizer.eos_token_id,
    )
    BartForConditionalGeneration(config).save_pretrained(place)
    return (
        f"a BART of {layers} + {layers} layers x {hidden}, {vocabulary_size:,} tokens, random"
        " weights"
    )


def write_inputs(file: Path) -> None:
    """Write the inputs that a file names, so that whoever starts it need not hold the libraries.

    Args:
        file: {inputs, folder, scale} as JSON; `descriptions`, what each input is, is added.
    """
    import transformers  # noqa: F401  what quiet_libraries silences must be there

    quiet_libraries()
    specification = read_json(file)
    descriptions = {}
    for name, recipe in specification["inputs"].items():
        begun = time.monotonic()
        sizes = {key: value for key, value in recipe.items() if key not in ("write", "to")}
        write = import_object(f"benchmarks.perf.synthetic.{recipe['write']}", "benchmarks")
        descriptions[name] = write(
            Path(specification["folder"]) / recipe["to"], specification["scale"], **sizes
        )
        LOG.info(f"{name}: {descriptions[name]} ({time.monotonic() - begun:.0f} s)")
    write_json(file, specification | {"said": descriptions})
