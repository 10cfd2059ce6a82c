"""What a masked language model has learnt of a graph: KeBioLM's probing (Section 4.6, Tables 5 to
7).

    kepl probe --graph hpo --model kebiolm [--method beam --masks 10 --beam 5 --limit 1000 ...]

A guess is right when it is a name of an answer, both in lower case and without spaces. Recall is
the mean over relations of the share of their queries that were answered:

    recall@5   any of the best 5 guesses of any length is right: with 10 lengths up to 50 guesses,
               as the paper counts
    strict     one of 5 guesses is right: the 5 different ones of the best mean log probability per
               token, over all lengths

Both for all queries, those of Type 1 (an answer is in the query) and of Type 2. guesses.parquet is
beside the result.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast

from benchmarks.graphs import graph_folder
from benchmarks.groups import find_differences, group_results
from benchmarks.options import Probing
from benchmarks.paired_tests import others
from benchmarks.results import (
    Model,
    Result,
    label,
    list_stored,
    model_of,
    result_folder,
    save_logged,
)
from core.artifact import has_manifest, read_manifest
from core.dotted import import_object
from core.files import InputError, atomic_write
from core.reading import excerpt
from core.tracking import runs_folder
from datamodules import probing as query_data
from datamodules.options import Files
from datamodules.probing import Query
from datamodules.relation_templates import MASK, TEXT
from datamodules.tokenizers import load_tokenizer, replacements
from experiments.names import encoder
from inference.options import checked_device
from kg.graph import fingerprint
from models.metrics import score
from models.probing import MaskedLM, fillings

LOG = logging.getLogger(__name__)
TYPES = {"all": "all", "type 1": "Type 1, an answer is in the query", "type 2": "Type 2"}
MEASURES = ("recall", "strict")
BEST = 5  # guesses that count strictly
EXAMPLES = 4  # queries that are shown


class Guess(NamedTuple):
    """A filling as text."""

    query: int
    masks: int
    rank: int  # from 1, among the guesses of this length
    text: str
    score: float  # sum of its tokens' log probabilities
    right: bool


# queries


def folder_of(graph: str, templates: str | None = None, files: Files | None = None) -> Path:
    """The folder of queries of a graph, made if they are not there. Raises InputError.

    graph: hpo (the graph of the small profile), medlama (`files.mirror` has its files), a folder of
        a graph, or one of queries.
    """
    place, mirror = runs_folder() / "data" / "probing", files.mirror if files else ()
    if graph != "medlama" and templates:
        raise InputError(
            f"TEMPLATES={templates}: only GRAPH=medlama has templates; see datamodules.probing"
            " --templates"
        )
    if graph == "medlama":
        templates = templates or TEXT
        out = place / ("medlama" if templates == TEXT else f"medlama-{templates}")
        if mirror:
            return query_data.medlama(str(mirror[0]), str(out), templates)
        if not has_manifest(out):
            raise InputError(
                "GRAPH=medlama: MIRROR= must say where MedLAMA's files are: a folder, or their"
                " archive"
            )
        return out
    if (Path(graph) / query_data.FILE).is_file():
        return Path(graph)
    graph_path = graph_folder(graph)
    name = "hpo" if graph == "hpo" else fingerprint(graph_path)[:12]
    return query_data.build_queries(str(graph_path), str(place / name))


def sample_queries(queries: Sequence[Query], limit: int | None, seed: int) -> list[Query]:
    """`limit` of the queries, drawn by `seed`, in their order; None: all."""
    if limit is None or limit >= len(queries):
        return list(queries)
    rows = np.sort(np.random.default_rng(seed).choice(len(queries), limit, replace=False))
    return [queries[row] for row in rows]


# guesses


def form(name: str) -> str:
    """The form that two names share when they count as the same: in lower case, without spaces."""
    return "".join(name.lower().split())


def never_guessed(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Special and unused tokens."""
    return sorted(set(range(len(tokenizer))) - set(replacements(tokenizer).tolist()))


def texts_of(tokenizer: PreTrainedTokenizerFast, tokens: Sequence[Sequence[int]]) -> list[str]:
    """The text of each filling; a piece of a word at its beginning is shown without its mark."""
    texts: list[str] = tokenizer.batch_decode(
        [list(t) for t in tokens], clean_up_tokenization_spaces=False
    )
    return [text.strip().removeprefix("##") for text in texts]


def guesses(
    lm: MaskedLM,
    tokenizer: PreTrainedTokenizerFast,
    queries: Sequence[Query],
    masks: int = 10,
    beams: int = 5,
    special: bool = False,
    size: int = 8192,
) -> tuple[list[Guess], Counter[str]]:
    """(the guesses of 1 to `masks` tokens for each query, in order; what was not asked and why).

    A query that is too long for the model is not asked: it counts as not answered. Raises
    InputError for a query that the tokenizer does not turn into tokens with one mask.
    """
    collected: list[Guess] = []
    left_out: Counter[str] = Counter()
    ids: list[list[int]] = tokenizer([q.text.replace(MASK, tokenizer.mask_token) for q in queries])[
        "input_ids"
    ]  # type: ignore[assignment, arg-type]
    for query, own_ids in zip(queries, ids, strict=True):
        if own_ids.count(tokenizer.mask_token_id) != 1:  # type: ignore[arg-type]
            raise InputError(
                f"{excerpt(query.text)}: expected one mask token in this query, got "
                f"{own_ids.count(tokenizer.mask_token_id)}. Build the queries again."
            )  # type: ignore[arg-type]
    gold = [{form(name) for name in chain.from_iterable(q.names)} for q in queries]
    never = [] if special else never_guessed(tokenizer)
    with tqdm(total=masks * len(queries), desc="queries x lengths", disable=None) as bar:
        for n in range(1, masks + 1):
            fitting = [i for i, own_ids in enumerate(ids) if len(own_ids) + n - 1 <= lm.max_length]
            if len(fitting) < len(ids):
                left_out[f"queries too long for the model with {n} masks"] = len(ids) - len(fitting)
            filled = fillings(
                lm,
                [ids[i] for i in fitting],
                int(tokenizer.mask_token_id),
                n,
                beams,
                never,  # type: ignore[arg-type]
                int(tokenizer.pad_token_id),
                size,
                bar.update,  # type: ignore[arg-type]
            )
            tokens = [filling.tokens for filling in chain.from_iterable(filled)]
            texts = iter(texts_of(tokenizer, tokens))
            for i, several in zip(fitting, filled, strict=True):
                for rank, filling in enumerate(several, 1):
                    text = next(texts)
                    collected.append(Guess(i, n, rank, text, filling.score, form(text) in gold[i]))
    return sorted(collected, key=lambda g: (g.query, g.masks, g.rank)), left_out


def best_distinct(of_query: Sequence[Guess]) -> list[Guess]:
    """The BEST different guesses of one query over all lengths, by mean log probability per
    token."""
    best: dict[str, Guess] = {}
    for guess in sorted(of_query, key=lambda g: (-g.score / g.masks, g.masks, g.rank)):
        best.setdefault(form(guess.text), guess)
    return list(best.values())[:BEST]


def by_query(collected: Sequence[Guess], count: int) -> list[list[Guess]]:
    """The guesses of each of `count` queries."""
    several: list[list[Guess]] = [[] for _ in range(count)]
    for guess in collected:
        several[guess.query].append(guess)
    return several


# scores


def is_answered(of_query: Sequence[Guess]) -> bool:
    """Whether a guess of a query is right."""
    return any(guess.right for guess in of_query)


def hits(several: Sequence[Sequence[Guess]]) -> dict[str, np.ndarray]:
    """{measure: (n,) 1 where the query was answered}."""
    return {
        "recall": np.array([float(is_answered(guesses)) for guesses in several]),
        "strict": np.array([float(is_answered(best_distinct(guesses))) for guesses in several]),
    }


def tallies(queries: Sequence[Query], hit: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(m, 2) tallies of the queries `rows`, whose ratio is the mean over relations of the mean over
    their queries.

    A query weighs what its relation's others leave it, so that relations weigh the same; weights
    add up to m.
    """
    chosen = np.flatnonzero(rows)
    sizes = Counter(queries[i].relation for i in chosen)
    weight = np.array([len(chosen) / len(sizes) / sizes[queries[i].relation] for i in chosen])
    return np.stack([hit[chosen] * weight, weight], axis=1)


def members(queries: Sequence[Query]) -> dict[str, np.ndarray]:
    """{type: which queries belong to it}; types without any are left out."""
    within = np.array([q.within for q in queries], dtype=bool)
    groups = {"all": np.ones(len(queries), bool), "type 1": within, "type 2": ~within}
    return {name: rows for name, rows in groups.items() if rows.any()}


def tallies_of(
    queries: Sequence[Query], several: Sequence[Sequence[Guess]]
) -> dict[str, np.ndarray]:
    """{"type/measure": (m, 2) weighted hits of its queries}."""
    hit = hits(several)
    result = {}
    for name, rows in members(queries).items():
        for measure in MEASURES:
            result[f"{name}/{measure}"] = tallies(queries, hit[measure], rows)
    return result


def scores_of(
    queries: Sequence[Query], counted: Mapping[str, np.ndarray]
) -> dict[str, dict[str, float]]:
    """{type: recall and strict recall, how many queries and relations}."""
    result = {}
    for name, rows in members(queries).items():
        relations = {queries[i].relation for i in np.flatnonzero(rows)}
        result[name] = {measure: score(counted[f"{name}/{measure}"]) for measure in MEASURES} | {
            "examples": int(rows.sum()),
            "relations": len(relations),
        }
    return result


# runs


def masked_lm(
    name: str, ckpt: str | None = None
) -> tuple[Model, dict[str, Any], MaskedLM, PreTrainedTokenizerFast]:
    """(model, its options for the label, what fills masks, its tokenizer). Raises InputError for
    one that cannot be probed."""
    chosen = encoder(name, ckpt)
    if chosen.linker is not None:
        raise InputError(
            f"MODEL={name}: it reads mentions that a linker found, and a query has none; it cannot"
            " be probed"
        )
    lm: MaskedLM = import_object(chosen.masked_lm, "models")(chosen.folder)
    if lm.headless:
        LOG.warning(
            f"{name}: its checkpoint has no masked-LM head; its states are multiplied with its word"
            " embeddings as they are"
        )
    return (
        model_of(name, chosen),
        {"head": False} if lm.headless else {},
        lm,
        load_tokenizer(chosen.folder),
    )


def count_beams(probe: Probing) -> int:
    """The beams of a probing's method. Raises InputError for numbers below 1, and beams where the
    method has one."""
    if probe.method == "confidence" and probe.beam is not None:
        raise InputError(f"BEAM={probe.beam}: METHOD=confidence has one beam; leave it out")
    numbers = (probe.masks, probe.beam, probe.size, probe.limit)
    if any(number is not None and number < 1 for number in numbers):
        raise InputError(
            f"MASKS={probe.masks}, BEAM={probe.beam}, SIZE={probe.size}, LIMIT={probe.limit}:"
            " expected numbers of at least 1"
        )
    if probe.method != "beam":
        return 1
    return 5 if probe.beam is None else probe.beam


def score_probing(probe: Probing) -> Result:
    """Probe a model with the queries of a graph; the result is saved and logged. Raises InputError
    for what cannot be done."""
    beams = count_beams(probe)
    device = checked_device(probe.device)
    folder = folder_of(probe.graph, probe.templates, probe.files)
    all_queries = query_data.load_queries(folder)
    queries = sample_queries(all_queries, probe.limit, probe.seed)
    who, options, lm, tokenizer = masked_lm(probe.model, probe.ckpt)
    LOG.info(
        f"{label(who.name, options)}: {len(queries):,} of {len(all_queries):,} queries, 1 to"
        f" {probe.masks} masks, {beams} beam{'s' if beams > 1 else ''}"
    )
    collected, left_out = guesses(
        lm.to(device), tokenizer, queries, probe.masks, beams, probe.special_tokens, probe.size
    )
    several = by_query(collected, len(queries))
    distinct = [len({form(g.text) for g in query_guesses}) for query_guesses in several]
    drawn = len(queries) < len(all_queries)
    counted = tallies_of(queries, several)
    result = Result(
        kind="probing",
        task="probing",
        split="all",
        metric="recall",
        model=who,
        options=options,
        protocol={
            "queries": read_manifest(folder)["sha256"],
            "limit": probe.limit if drawn else None,
            "seed": probe.seed if drawn else None,
            "method": probe.method,
            "masks": probe.masks,
            "beams": beams,
            "special": probe.special_tokens,
        },
        scores=scores_of(queries, counted),
        tallies=counted,
        data={"queries": read_manifest(folder)["sha256"]},
        details={
            "asked": str(folder),
            "left_out": dict(left_out),
            "guesses": {
                "at most": probe.masks * beams,
                "distinct, mean": round(float(np.mean(distinct)), 2),
                "distinct, most": max(distinct),
            },
        },
    )
    columns = {field: [getattr(g, field) for g in collected] for field in Guess._fields}
    with atomic_write(result_folder(result) / "guesses.parquet", "wb") as handle:
        pq.write_table(pa.table(columns), handle, compression="zstd")
    return save_logged(result, "probing")


def guesses_in(folder: str | Path) -> list[Guess]:
    """The guesses that the result in a folder was made from."""
    return [Guess(**row) for row in pq.read_table(Path(folder) / "guesses.parquet").to_pylist()]


def format_probing(result: Result) -> str:
    """The scores as a table, what else was asked the same queries in the same way, and examples
    (Table 7)."""
    counts, mine = result.details["guesses"], group_results([result])[result.label]
    text = [
        (
            f"{result.label}: macro recall over relations; up to {counts['at most']} guesses a"
            f" query, {counts['distinct, mean']} different ones on average,"
            f" {counts['distinct, most']} at most"
        ),
        (
            f"{'':<8}{'recall@' + str(result.protocol['beams']):>9}{'95 % interval':>18}{'strict@' + str(BEST):>10}"  # noqa: E501
            f"{'95 % interval':>18}{'queries':>9}{'relations':>11}"
        ),
    ]
    for name in TYPES:
        if name not in result.scores:
            text.append(f"{name:<8} no query belongs to it")
            continue
        cells = []
        for measure, w in (("recall", 0), ("strict", 1)):
            low, high = mine.interval(f"{name}/{measure}") or (0.0, 0.0)
            value = 100 * (result.value(measure, name) or 0.0)
            cells.append(f"{value:.2f}{100 * low:>{12 - w}.2f} to {100 * high:.2f}".rjust(27 + w))
        score = result.scores[name]
        text.append(
            f"{name:<8}{cells[0]}{cells[1]}{int(score['examples']):>9,}{int(score['relations']):>11,}"
        )
    left_out = result.details["left_out"].items()
    text += [f"not asked, and counted as not answered: {n:,} {what}" for what, n in left_out]
    pool = [
        r
        for r in list_stored("probing")
        if r.folder != result.folder and not find_differences(r.protocol, result.protocol)
    ]
    for key in result.tallies:
        text += others(mine, pool, key)
    queries = sample_queries(
        query_data.load_queries(result.details["asked"]),
        result.protocol["limit"],
        result.protocol["seed"] or 0,
    )
    scored = {result.label: by_query(guesses_in(result.folder), len(queries))}
    for other in pool:
        name = other.label if other.label not in scored else Path(other.folder).name
        scored[name] = by_query(guesses_in(other.folder), len(queries))
    return "\n".join([*text, examples(queries, scored)])


def render_guesses(guesses: Sequence[Guess]) -> list[str]:
    """As in Table 7: the best guess of one token and the best of several, right ones before others;
    those right in stars."""
    lines = []
    for group in ([g for g in guesses if g.masks == 1], [g for g in guesses if g.masks > 1]):
        best = min(group, key=lambda g: (not g.right, -g.score / g.masks), default=None)
        if best is None:
            lines.append("-")
        else:
            lines.append(f"*{best.text}*" if best.right else best.text)
    return lines


def examples(queries: Sequence[Query], scored: Mapping[str, Sequence[Sequence[Guess]]]) -> str:
    """Table 7: queries that some model answered, those of Type 2 first, from different relations;
    then one nobody did."""

    def order(i: int) -> tuple[bool, int, int]:
        right = sum(is_answered(several[i]) for several in scored.values())
        return queries[i].within, right, i

    answered = [
        i
        for i in range(len(queries))
        if any(is_answered(several[i]) for several in scored.values())
    ]
    chosen: list[int] = []
    for again in (False, True):
        for i in sorted(answered, key=order):
            new = queries[i].relation not in {queries[c].relation for c in chosen}
            if len(chosen) < EXAMPLES and i not in chosen and (new or again):
                chosen.append(i)
    chosen += [i for i in range(len(queries)) if i not in answered][:1]
    lines = ["", "Examples: the best guess of one token | of several; *right*"]
    for i in chosen:
        query = queries[i]
        names = [several[0] for several in query.names[:3] if several]
        more = f", … ({len(query.answers):,} answers)" if len(query.answers) > 3 else ""
        lines.append(f"{query.text}  Type {1 if query.within else 2}; {', '.join(names)}{more}")
        lines += [
            f"    {label:<28} {' | '.join(render_guesses(several[i]))}"
            for label, several in scored.items()
        ]
    return "\n".join(lines)
