"""What a masked language model knows of a graph: KeBioLM's probing (Section 4.6, Tables 5 to 7).

    python -m benchmarks.run probe GRAPH=hpo MODEL=kebiolm [METHOD=beam MASKS=10 BEAM=5 LIMIT= SEED=] ...   (make probe)

    GRAPH      hpo (the graph of the small profile), medlama (MIRROR= says where its files or their archive lie), or a folder:
               a graph, or queries of `python -m datamodules.probing`
    MODEL      kebiolm with its fused entities, or any masked LM: minilm, a folder, a hub name;  CKPT  one exact run
    METHOD     beam (any order, BEAM beams), confidence (the most probable token first)
    MASKS      answers of 1 to so many tokens (10);  BEAM  beams (5)
    PROMPTS    medlama: relation (default: its name), default_prompt, human_prompt
    SPECIAL    no (default: special and unused tokens are never guessed), yes
    LIMIT      so many of the queries, drawn by SEED (default: all, 0);  SIZE  tokens of a batch (8192);  DEVICE  cpu, cuda

A guess is right when it is a name of an answer, both in lower case and without spaces. Recall is the mean over relations
of the share of their queries that were answered:

    recall@5   any of the best 5 guesses of any length is right: with 10 lengths up to 50 guesses, as the paper counts
    strict     one of 5 guesses is right: the 5 different ones of the best mean log probability per token, over all lengths

Both for all queries, those of Type 1 (an answer stands in the query) and of Type 2. Scores go to
runs/probing/<stamp>/<label>/ (summary.json, guesses.parquet) and to MLflow; later runs on the same queries are compared.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast

from benchmarks.graphs import graph_folder
from benchmarks.linking.settings import choice, device_of, number
from core.dotted import imported
from core.files import InputError, digest, read_json, write_json, written
from core.tracking import commit, new_run, runs_folder
from datamodules import probing as asked
from datamodules.probing import MASK, Query
from datamodules.tokenizers import load_tokenizer, replacements
from experiments.encoders import encoder
from kg.graph import fingerprint
from models.metrics import bootstrap_interval, compared, score
from models.probing import MaskedLM, fillings

SETTINGS = (
    "GRAPH", "MODEL", "CKPT", "METHOD", "MASKS", "BEAM", "PROMPTS", "SPECIAL", "LIMIT", "SEED", "SIZE", "MIRROR", "DEVICE",
)  # fmt: skip
METHODS = ("beam", "confidence")
TYPES = {"all": "all", "type 1": "Type 1, an answer stands in the query", "type 2": "Type 2"}
MEASURES = ("recall", "strict")
BEST = 5  # guesses that count strictly


class Guess(NamedTuple):
    """A filling as text."""

    query: int
    masks: int
    rank: int  # from 1, among the guesses of this length
    text: str
    score: float  # sum of its tokens' log probabilities
    right: bool


# queries


def folder_of(given: Mapping[str, str]) -> Path:
    """The folder of queries that GRAPH= means; they are made if they are not there. Raises InputError."""
    name, place = given.get("GRAPH") or "hpo", runs_folder() / "data" / "probing"
    if name != "medlama" and given.get("PROMPTS"):
        raise InputError(
            f"PROMPTS={given['PROMPTS']}: only GRAPH=medlama has templates; see datamodules.probing --templates"
        )
    if name == "medlama":
        prompts = choice(given, "PROMPTS", (asked.TEXT, "default_prompt", "human_prompt"), asked.TEXT)
        out = place / ("medlama" if prompts == asked.TEXT else f"medlama-{prompts}")
        if given.get("MIRROR"):
            return asked.medlama(given["MIRROR"], str(out), prompts)
        if not (out / "manifest.json").is_file():
            raise InputError("GRAPH=medlama: MIRROR= must say where MedLAMA's files are: a folder, or their archive")
        return out
    if (Path(name) / asked.FILE).is_file():
        return Path(name)
    graph = graph_folder(name)
    return asked.build(str(graph), str(place / ("hpo" if name == "hpo" else fingerprint(graph)[:12])))


def sampled(queries: Sequence[Query], limit: int | None, seed: int) -> list[Query]:
    """`limit` of the queries, drawn by `seed`, in their order; None: all."""
    if limit is None or limit >= len(queries):
        return list(queries)
    return [queries[i] for i in np.sort(np.random.default_rng(seed).choice(len(queries), limit, replace=False))]


# guesses


def form(name: str) -> str:
    """What two names have in common when they count as the same: in lower case, without spaces."""
    return "".join(name.lower().split())


def never_guessed(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Special and unused tokens."""
    return sorted(set(range(len(tokenizer))) - set(replacements(tokenizer).tolist()))


def texts_of(tokenizer: PreTrainedTokenizerFast, tokens: Sequence[Sequence[int]]) -> list[str]:
    """What each filling says; a piece of a word at its beginning is shown without its mark."""
    said: list[str] = tokenizer.batch_decode([list(t) for t in tokens], clean_up_tokenization_spaces=False)
    return [text.strip().removeprefix("##") for text in said]


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

    A query that is too long for the model is not asked: it counts as not answered. Raises InputError for a query that the
    tokenizer does not turn into tokens with one mask.
    """
    found: list[Guess] = []
    left_out: Counter[str] = Counter()
    ids: list[list[int]] = tokenizer([q.text.replace(MASK, tokenizer.mask_token) for q in queries])["input_ids"]  # type: ignore[assignment, arg-type]
    for query, one in zip(queries, ids, strict=True):
        if one.count(tokenizer.mask_token_id) != 1:  # type: ignore[arg-type]
            raise InputError(f"{query.text!r:.80}: wanted one mask token in this query, got "
                             f"{one.count(tokenizer.mask_token_id)}. Build the queries again.")  # type: ignore[arg-type]  # fmt: skip
    gold = [{form(name) for several in q.names for name in several} for q in queries]
    never = [] if special else never_guessed(tokenizer)
    with tqdm(total=masks * len(queries), desc="queries x lengths", disable=None) as bar:
        for n in range(1, masks + 1):
            fitting = [i for i, one in enumerate(ids) if len(one) + n - 1 <= lm.max_length]
            if len(fitting) < len(ids):
                left_out[f"queries too long for the model with {n} masks"] = len(ids) - len(fitting)
            filled = fillings(
                lm, [ids[i] for i in fitting], int(tokenizer.mask_token_id), n, beams, never,  # type: ignore[arg-type]
                int(tokenizer.pad_token_id), size, bar.update,  # type: ignore[arg-type]
            )  # fmt: skip
            said = iter(texts_of(tokenizer, [f.tokens for several in filled for f in several]))
            for i, several in zip(fitting, filled, strict=True):
                for rank, filling in enumerate(several, 1):
                    text = next(said)
                    found.append(Guess(i, n, rank, text, filling.score, form(text) in gold[i]))
    return sorted(found, key=lambda g: (g.query, g.masks, g.rank)), left_out


def best_distinct(found: Sequence[Guess], count: int = BEST) -> list[Guess]:
    """The `count` best different guesses of one query over all lengths, by mean log probability per token."""
    best: dict[str, Guess] = {}
    for guess in sorted(found, key=lambda g: (-g.score / g.masks, g.masks, g.rank)):
        best.setdefault(form(guess.text), guess)
    return list(best.values())[:count]


def by_query(found: Sequence[Guess], count: int) -> list[list[Guess]]:
    """The guesses of each of `count` queries."""
    several: list[list[Guess]] = [[] for _ in range(count)]
    for guess in found:
        several[guess.query].append(guess)
    return several


# scores


def hits(several: Sequence[Sequence[Guess]]) -> dict[str, np.ndarray]:
    """{measure: (n,) 1 where the query was answered}."""
    return {
        "recall": np.array([float(any(g.right for g in own)) for own in several]),
        "strict": np.array([float(any(g.right for g in best_distinct(own))) for own in several]),
    }


def tallies(queries: Sequence[Query], hit: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(m, 2) tallies of the queries `rows`, whose ratio is the mean over relations of the mean over their queries.

    A query weighs what its relation's others leave it, so that relations weigh the same; weights add up to m.
    """
    chosen = np.flatnonzero(rows)
    sizes = Counter(queries[i].relation for i in chosen)
    weight = np.array([len(chosen) / len(sizes) / sizes[queries[i].relation] for i in chosen])
    return np.stack([hit[chosen] * weight, weight], axis=1)


def members(queries: Sequence[Query]) -> dict[str, np.ndarray]:
    """{type: which queries belong to it}; types without any are left out."""
    within = np.array([q.within for q in queries], dtype=bool)
    every = {"all": np.ones(len(queries), bool), "type 1": within, "type 2": ~within}
    return {name: rows for name, rows in every.items() if rows.any()}


def results_of(queries: Sequence[Query], several: Sequence[Sequence[Guess]]) -> dict[str, dict[str, float]]:
    """{type: recall and strict recall with their intervals, and counts}."""
    found: dict[str, dict[str, float]] = {}
    hit = hits(several)
    for name, rows in members(queries).items():
        own: dict[str, float] = {}
        for measure in MEASURES:
            t = tallies(queries, hit[measure], rows)
            low, high = bootstrap_interval(t)
            own |= {measure: score(t), f"{measure} low": low, f"{measure} high": high}
        own |= {
            "queries": int(rows.sum()),
            "relations": len({q.relation for q, r in zip(queries, rows, strict=True) if r}),
        }
        found[name] = own
    return found


# runs


def model_of(given: Mapping[str, str]) -> tuple[str, dict[str, Any], MaskedLM, PreTrainedTokenizerFast]:
    """(label, what decides its guesses, the model, its tokenizer) of what MODEL= names. Raises InputError."""
    name = given.get("MODEL") or "kebiolm"
    chosen = encoder(name, given.get("CKPT"))
    if chosen.linker is not None:
        raise InputError(
            f"MODEL={name}: it reads mentions that a linker found, and a query has none; it cannot be probed"
        )
    lm: MaskedLM = imported(chosen.masked_lm, "models")(chosen.folder)
    label = chosen.name.partition("@")[0].replace("/", "-") + (" without head" if lm.headless else "")
    if lm.headless:
        print(
            f"{name}: its checkpoint has no masked-LM head; its states are multiplied with its word embeddings as they are"
        )
    return label, {"model": chosen.identity, "headless": lm.headless}, lm, load_tokenizer(chosen.folder)


def evaluate(given: Mapping[str, str]) -> dict[str, Any]:
    """Probe MODEL with the queries of GRAPH; returns the summary that it writes. Raises InputError for what cannot be done."""
    method = choice(given, "METHOD", METHODS, "beam")
    if method == "confidence" and given.get("BEAM"):
        raise InputError(f"BEAM={given['BEAM']}: METHOD=confidence has one beam; leave it out")
    masks, beams = number(given, "MASKS", 10), number(given, "BEAM", 5) if method == "beam" else 1
    limit = number(given, "LIMIT", 1) if given.get("LIMIT") else None
    seed, size = number(given, "SEED", 0, 0), number(given, "SIZE", 8192)
    special, device = choice(given, "SPECIAL", ("yes", "no"), "no") == "yes", device_of(given)
    folder = folder_of(given)
    every = asked.load(folder)
    queries = sampled(every, limit, seed)
    label, identity, lm, tokenizer = model_of(given)
    print(
        f"{label}: {len(queries):,} of {len(every):,} queries, 1 to {masks} masks, {beams} beam{'s' if beams > 1 else ''}"
    )
    found, left_out = guesses(lm.to(device), tokenizer, queries, masks, beams, special, size)
    several = by_query(found, len(queries))
    distinct = [len({form(g.text) for g in own}) for own in several]
    made = {
        "at most": masks * beams,
        "distinct, mean": round(float(np.mean(distinct)), 2),
        "distinct, most": max(distinct),
    }
    stamp = {
        "queries": read_json(folder / "manifest.json")["sha256"], "limit": limit if len(queries) < len(every) else None,
        "seed": seed if len(queries) < len(every) else None, "method": method, "masks": masks, "beams": beams,
        "special": special,
    }  # fmt: skip
    summary: dict[str, Any] = {
        "model": label,
        "identity": identity,
        "stamp": stamp,
        "asked": str(folder),
        "results": results_of(queries, several),
        "guesses": made,
        "left_out": dict(left_out),
        "commit": commit(),
    }  # fmt: skip
    out = runs_folder() / "probing" / digest(stamp)[:12]
    out /= re.sub(r"[^\w.@+-]+", "-", label) + "-" + digest(identity)[:8]
    summary["folder"] = str(out)
    columns = {field: [getattr(g, field) for g in found] for field in Guess._fields}
    with written(out / "guesses.parquet", "wb") as handle:
        pq.write_table(pa.table(columns), handle, compression="zstd")
    summary["mlflow_run"] = record(summary)
    write_json(out / "summary.json", summary)
    print(report(summary))
    scored = {label: several}
    for other in others(summary):
        theirs = by_query(read_guesses(other), len(queries))
        scored[other["model"] if other["model"] not in scored else Path(other["folder"]).name] = theirs
        print(against(queries, several, theirs, other))
    print(examples(queries, scored))
    return summary


def read_guesses(summary: Mapping[str, Any]) -> list[Guess]:
    """The guesses that a summary was made from."""
    return [Guess(**row) for row in pq.read_table(Path(summary["folder"]) / "guesses.parquet").to_pylist()]


def summaries() -> list[dict[str, Any]]:
    """Everything that was probed, oldest first."""
    files = (runs_folder() / "probing").glob("*/*/summary.json")
    return [read_json(f) for f in sorted(files, key=lambda p: p.stat().st_mtime_ns)]


def others(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What else was asked the same queries in the same way."""
    return [s for s in summaries() if s["stamp"] == summary["stamp"] and s["folder"] != summary["folder"]]


def against(
    queries: Sequence[Query],
    ours: Sequence[Sequence[Guess]],
    theirs: Sequence[Sequence[Guess]],
    other: Mapping[str, Any],
) -> str:
    """A line for each type and measure: our recall minus the other's, by paired bootstrap over queries."""
    lines = []
    after, before = hits(ours), hits(theirs)
    for name, rows in members(queries).items():
        for measure in MEASURES:
            c = compared({0: tallies(queries, before[measure], rows)}, {0: tallies(queries, after[measure], rows)})
            lines.append(
                f"{name}, {measure}, against {other['model']} ({100 * other['results'][name][measure]:.2f}): "
                f"{100 * c.difference:+.2f}, 95 % interval {100 * c.low:+.2f} to {100 * c.high:+.2f}, p = {c.p_bootstrap:.4f}"
            )
    return "\n".join(lines)


def record(summary: Mapping[str, Any]) -> str:
    """Log a summary to the MLflow experiment ``probing``. Returns the run's id."""
    client, identifier = new_run("probing", summary["model"], {"commit": summary["commit"]})
    for key, value in {**summary["stamp"], **summary["identity"], "asked": summary["asked"]}.items():
        client.log_param(identifier, key, str(value)[:500])
    for name, result in summary["results"].items():
        for key, value in result.items():
            client.log_metric(identifier, f"{name}/{key}".replace(" ", "_"), value)
    client.set_terminated(identifier)
    return identifier


def report(summary: Mapping[str, Any]) -> str:
    """The scores as a table."""
    made, stamp = summary["guesses"], summary["stamp"]
    text = [
        f"{summary['model']}: macro recall over relations; up to {made['at most']} guesses a query, {made['distinct, mean']} "
        f"different ones on average, {made['distinct, most']} at most",
        f"{'':<8}{'recall@' + str(stamp['beams']):>9}{'95 % interval':>18}{'strict@' + str(BEST):>10}{'95 % interval':>18}"
        f"{'queries':>9}{'relations':>11}",
    ]
    for name in TYPES:
        if r := summary["results"].get(name):
            cells = [
                f"{100 * r[m]:.2f}{100 * r[m + ' low']:>{12 - w}.2f} to {100 * r[m + ' high']:.2f}".rjust(27 + w)
                for m, w in (("recall", 0), ("strict", 1))
            ]
            text.append(f"{name:<8}{cells[0]}{cells[1]}{r['queries']:>9,}{r['relations']:>11,}")
        else:
            text.append(f"{name:<8} no query belongs to it")
    text += [f"not asked, and counted as not answered: {n:,} {what}" for what, n in summary["left_out"].items()]
    return "\n".join(text)


def shown(own: Sequence[Guess]) -> list[str]:
    """As in Table 7: the best guess of one token and the best of several, right ones before others; those right in stars."""
    lines = []
    for group in ([g for g in own if g.masks == 1], [g for g in own if g.masks > 1]):
        ordered = sorted(group, key=lambda g: (not g.right, -g.score / g.masks))
        lines.append((f"*{ordered[0].text}*" if ordered[0].right else ordered[0].text) if ordered else "-")
    return lines


def examples(queries: Sequence[Query], scored: Mapping[str, Sequence[Sequence[Guess]]], count: int = 4) -> str:
    """Table 7: queries that some model answered, those of Type 2 first, from different relations; then one nobody did."""

    def order(i: int) -> tuple[bool, int, int]:
        right = sum(any(g.right for g in several[i]) for several in scored.values())
        return queries[i].within, right, i

    answered = [i for i in range(len(queries)) if any(g.right for several in scored.values() for g in several[i])]
    chosen: list[int] = []
    for again in (False, True):
        for i in sorted(answered, key=order):
            new = queries[i].relation not in {queries[c].relation for c in chosen}
            if len(chosen) < count and i not in chosen and (new or again):
                chosen.append(i)
    chosen += [i for i in range(len(queries)) if i not in answered][:1]
    lines = ["", "Examples: the best guess of one token | of several; *right*"]
    for i in chosen:
        query = queries[i]
        names = [several[0] for several in query.names[:3] if several]
        more = f", … ({len(query.answers):,} answers)" if len(query.answers) > 3 else ""
        lines.append(f"{query.text}  Type {1 if query.within else 2}; {', '.join(names)}{more}")
        lines += [f"    {label:<28} {' | '.join(shown(several[i]))}" for label, several in scored.items()]
    return "\n".join(lines)
