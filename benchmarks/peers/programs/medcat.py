"""MedCAT (Kraljevic et al. 2021): a concept database of the graph's names, trained unsupervised on
the task's other texts.

Its models are downloads; here concepts, vocabulary and word vectors come from the graph and those
texts alone, and its tokenizer is the one without a spaCy model. Of mentions that overlap the
longest is kept: with that tokenizer MedCAT leaves them all, whatever its setting.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any


def make(
    names: Path, options: dict[str, Any]
) -> Callable[[Sequence[str]], list[list[tuple[int, int, str]]]]:
    """See benchmarks.peers.worker; options["train"]: file of the texts to learn from."""
    import pandas as pd
    from gensim.models import Word2Vec
    from gensim.utils import simple_preprocess
    from medcat.cat import CAT
    from medcat.config import Config
    from medcat.model_creation.cdb_maker import CDBMaker
    from medcat.vocab import Vocab

    rows = list(map(json.loads, names.read_text(encoding="utf-8").split("\n")[:-1]))
    entities = dict.fromkeys(row[0] for row in rows)
    ids = {entity: f"C{number}" for number, entity in enumerate(entities)}  # it upper-cases ids
    table = pd.DataFrame(
        [(ids[e], name, "P" if kind == "preferred" else "A") for e, name, kind, _ in rows],
        columns=["cui", "name", "name_status"],
    )
    config = Config()
    database = CDBMaker(config).prepare_csvs([table], full_build=True)
    texts = [
        json.loads(line)[1]
        for line in Path(options["train"]).read_text(encoding="utf-8").split("\n")[:-1]
    ]
    words = [simple_preprocess(text, min_len=1, max_len=50) for text in texts]
    vectors = Word2Vec(words, vector_size=100, min_count=1, epochs=10, workers=1, seed=0).wv
    vocabulary = Vocab()
    for word, count in Counter(chain.from_iterable(words)).items():
        vocabulary.add_word(word, count, vectors[word])
    vocabulary.init_cumsums()
    cat = CAT(database, vocabulary, config)
    cat.trainer.train_unsupervised(texts)
    back = {short: entity for entity, short in ids.items()}

    def link(texts: Sequence[str]) -> list[list[tuple[int, int, str]]]:
        result = []
        for text in texts:
            mentions: list[tuple[int, int, str]] = []
            for e in sorted(
                cat.get_entities(text)["entities"].values(),
                key=lambda e: (e["start"] - e["end"], e["start"]),
            ):
                if all(e["end"] <= start or end <= e["start"] for start, end, _ in mentions):
                    mentions.append((e["start"], e["end"], back[e["cui"]]))
            result.append(sorted(mentions))
        return result

    return link
