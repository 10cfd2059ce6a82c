"""The commands of `kepl`: typed functions whose parameters are options and whose docstrings are
help. See app.cli."""

from __future__ import annotations

import json as jsons
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from benchmarks.options import Choices, Protocol
from core.files import InputError, descriptor_of, digest, limit_documents, lines, lines_of
from core.outputs import Output, check_ending
from core.settings import given_options
from core.stopping import keeping
from datamodules.options import Files
from experiments.machine import Inputs, Machine
from inference.options import LinkerOptions, Matching, Work, check_device

Profile = Literal["small", "paper"]
Format = Literal["jsonl", "text", "pubtator", "pubmed", "bioc", "biocjson"]
OutFormat = Literal["jsonl", "pubtator", "bioc", "biocjson"]
LOG = logging.getLogger(__name__)


# --- graphs and pre-training ----------------------------------------------------------------------


def graph(what: Literal["info"], folder: Path, json: bool = False) -> None:
    """Build, merge and embed graphs, or count what is in one.

    Args:
        what: Count what is in a graph: info.
        folder: Folder of the graph.
        json: Print one JSON object.

    Examples:
      kepl graph build hpo --out graph
      kepl graph build medic CTD_diseases.tsv.gz --out medic
      kepl graph info graph --json
    """
    from app.graphs import format_info, graph_info

    info = graph_info(folder)
    print(jsons.dumps(info, ensure_ascii=False) if json else format_info(info))


def pretrain(
    paper: str,
    profile: str = "small",
    seed: int = 0,
    fresh: bool = False,
    variants: Sequence[str] = (),
    args: str = "",
    plan: bool = False,
    rehearse: int | None = None,
    scale: float | None = None,
    *,
    inputs: Inputs,
    machine: Machine,
) -> None:
    """Pre-train a paper's model: graph, embeddings, linked corpus, training; scores on held-out
    text.

    Args:
        paper: Paper, initial encoder (zh), or kg/<graph>_<model>.
        profile: Settings and data for a laptop (small), or the paper's (paper); SapBERT has
            ontologies, too.
        seed: Seed of training.
        fresh: Train again what is finished.
        variants: Train these variants of the pipeline (ablations among them) instead of its usual
            ones.
        args: Further words for LightningCLI, such as "--trainer.max_steps 100".
        plan: Only list the stages.
        rehearse: Run all stages of PROFILE=paper on synthetic inputs, so many steps of training,
            and print what each takes.
        scale: Share of the paper's data that a rehearsal writes, above 0 and at most 1 (0.001
            without it).

    Examples:
      make pretrain-kebiolm
      kepl pretrain kebiolm --variants mlm wem --seed 1
      kepl pretrain kebiolm --graph my_graph --corpus my_texts.jsonl
      kepl pretrain kebiolm --profile paper --rehearse 2 --scale 0.001
    """
    if rehearse is not None or scale is not None:
        from benchmarks.perf.rehearse import run_rehearsal

        print(
            run_rehearsal(
                paper, profile, rehearse, scale, inputs, machine, seed, variants, args, plan
            )
        )
        return
    from experiments.pretrain import pretrain

    print(pretrain(paper, profile, inputs, machine, seed, fresh, variants, args, plan))


def finetune(
    task: str,
    model: str | None = None,
    seeds: str | None = None,
    ckpt: str | None = None,
    profile: Profile = "small",
    epochs: int | None = None,
    lr: float | None = None,
    fresh: bool = False,
    args: str = "",
    options: Mapping[str, float] | None = None,
    *,
    files: Files,
    machine: Machine,
) -> None:
    """Fine-tune an encoder on a task and score it, or a linker on a linking task (see the end).

    Args:
        task: Task (kepl tasks lists them).
        model: Encoder. Default: minilm for English, zh for Chinese; it is pre-trained first where
            that is missing.
        seeds: How many seeds (3), or which ones (0,7). Default: 1; of the paper's profile 5.
        ckpt: Folder of one exact run of the encoder.
        profile: Settings for a laptop (small), or the paper's, with its grid.
        epochs: Passes over the training data. Default: as the task's YAML says.
        lr: Learning rate. Default: as the task's YAML says, for the encoder's width.
        fresh: Train again what is finished.
        args: Further words for LightningCLI.

    Examples:
      make finetune TASK=cMedQANER
      kepl finetune NCBI --model minilm --seeds 3 --mirror downloads/
      kepl finetune AAP-EL --model sapbert --folds 0 --mirror downloads/
    """
    from benchmarks.finetune import format_scores, seed_results
    from experiments.seeds import train_seeds

    trained = train_seeds(
        task,
        model,
        seeds=seeds,
        ckpt=ckpt,
        profile=profile,
        epochs=epochs,
        lr=lr,
        fresh=fresh,
        args=args,
        options=options,
        files=files,
        machine=machine,
    )
    print(format_scores(seed_results(trained)))


def finetune_linker(
    task: str,
    model: str = "sapbert",
    ckpt: str | None = None,
    split: Literal["dev", "test"] | None = None,
    folds: Sequence[int] = (),
    graph: Path | None = None,
    profile: Profile = "small",
    epochs: int | None = None,
    seed: int = 0,
    fresh: bool = False,
    args: str = "",
    options: Mapping[str, Any] | None = None,
    *,
    protocol: Protocol,
    linker: LinkerOptions,
    files: Files,
    machine: Machine,
) -> None:
    """Fine-tune a linker on a linking task and score it, without and with dictionary back-off.

    Args:
        task: Linking task.
        model: Linker to start from: a paper's run, or an encoder of its kind.
        ckpt: Folder of one exact run.
        split: Split to score. Default: test, or dev where there is no test.
        folds: Folds of a task that has several. Default: all.
        graph: Folder of a graph that replaces the task's dictionary.
        profile: Settings for a laptop (small), or the paper's.
        epochs: Passes over the training data. Default: as the paper's YAML says.
        seed: Seed of training.
        fresh: Train again what is finished.
        args: Further words for LightningCLI.
    """
    from benchmarks.linking.evaluate import format_scores
    from benchmarks.linking.tuning import finetuned_scores

    for results in finetuned_scores(
        task,
        model,
        ckpt=ckpt,
        split=split,
        folds=folds,
        graph=graph,
        profile=profile,
        epochs=epochs,
        seed=seed,
        fresh=fresh,
        args=args,
        options=options,
        protocol=protocol,
        linker=linker,
        files=files,
        machine=machine,
    ):
        print(format_scores(results))


def rerank(
    task: str,
    model: str = "sapbert",
    ckpt: str | None = None,
    start: str | None = None,
    split: Literal["dev", "test"] | None = None,
    folds: Sequence[int] = (),
    graph: Path | None = None,
    epochs: int | None = None,
    seed: int = 0,
    fresh: bool = False,
    args: str = "",
    *,
    protocol: Protocol,
    linker: LinkerOptions,
    files: Files,
    machine: Machine,
) -> None:
    """Train a cross-encoder that ranks a linker's candidates again, on a linking task's training
    mentions, and score it.

    Args:
        task: Linking task with training mentions.
        model: Linker that finds the candidates: a paper's run, or an encoder.
        ckpt: Folder of one exact run of it.
        start: Encoder that the reranker starts from. Default: the linker's own.
        split: Split to score. Default: test, or dev where there is no test.
        folds: Folds of a task that has several. Default: all.
        graph: Folder of a graph that replaces the task's dictionary.
        epochs: Passes over the training mentions. Default: as experiments/reranker/train.yaml says.
        seed: Seed of training.
        fresh: Train again what is finished.
        args: Further words for LightningCLI.

    Examples:
      make rerank TASK=NCBI-EL MODEL=sapbert SPLIT=dev MIRROR=downloads/
      kepl rerank NCBI-EL --model sapbert --start minilm --seed 1 --mirror downloads/
    """
    from benchmarks.linking.evaluate import format_scores
    from benchmarks.linking.rerank import reranked_scores

    for results in reranked_scores(
        task,
        model,
        ckpt=ckpt,
        start=start,
        split=split,
        folds=folds,
        graph=graph,
        epochs=epochs,
        seed=seed,
        fresh=fresh,
        args=args,
        protocol=protocol,
        linker=linker,
        files=files,
        machine=machine,
    ):
        print(format_scores(results))


# --- use ------------------------------------------------------------------------------------------


def predict(
    model: str,
    text: str | None = None,
    input: Sequence[Path] = (),
    output: Path | None = None,
    task: str | None = None,
    split: Literal["train", "dev", "test"] = "test",
    tagger: Sequence[str] = (),
    format: Format | None = None,
    to: OutFormat | None = None,
    encoding: str = "utf-8",
    empty: Literal["error", "skip"] = "error",
    fresh: bool = False,
    max_document: int = 16,
    json: bool = False,
    device: str = "cpu",
    precision: Literal["fp32", "bf16"] = "fp32",
    *,
    files: Files,
    work: Work,
) -> None:
    r"""What a fine-tuned model finds in new text: entities, relations, classes of two texts, ranked
    answers.

    Without --text, --input and --task, the lines of standard input are texts.

    Args:
        model: Fine-tuned model: TASK/encoder (the newest run at default settings),
            TASK/encoder@<hash>-seed<k>, or a folder.
        text: One text.
        input: Files or folders with JSON lines, plain text, PubTator, PubMed XML or BioC; pairs and
            answers as JSON lines.
        output: File for the result of --input or --task; a killed run is resumed by the same
            command.
        task: Task whose --split is read instead, with the words of its files.
        split: Split of --task.
        tagger: For relations in text without entities, the fine-tuned taggers that find them.
        format: Format of --input. Default: by the file's name.
        to: Format of --output. Default: by the file's name.
        encoding: Encoding of text files.
        empty: What happens with documents that have no text.
        fresh: Start again instead of resuming.
        max_document: MiB that one document or line of --input has at most, decompressed.
        json: Print JSON lines.
        device: cpu or cuda.
        precision: Arithmetic of the model.

    Examples:
      kepl predict --model NCBI/minilm --text "Marfan syndrome with a dislocated lens"
      kepl predict --model NCBI/minilm --input notes/ --output entities.jsonl
      kepl predict --model NCBI/minilm --task NCBI --split test --output test.jsonl
      kepl predict --model ChemProt/minilm --tagger BC5-chem/minilm BC2GM/minilm \
        --input notes/ --output relations.jsonl
    """
    from experiments.names import finetuned

    limit_documents(max_document)
    check_device(device)
    if sum(map(bool, (text is not None, input, task))) > 1:
        raise InputError("--text, --input and --task: expected one of the three")
    if bool(input or task) != bool(output):
        raise InputError(
            "--input and --task go together with --output; the answer to --text goes to standard"
            " output"
        )
    folders = [finetuned(name).folder for name in (model, *tagger)]
    from inference.stream import format_of, predict_files, predict_task
    from inference.taggers import Tagger, load_tagger

    if output:
        format_of(output, to)
        Output(output, [*input, *folders])
    own = load_tagger(model, device=device, precision=precision)
    left_out: Counter[str] = Counter()
    if output:
        if task and to not in (None, "jsonl"):
            raise InputError(f"--to {to}: the predictions for a task's examples are JSON lines")
        if task:
            from datamodules.tasks.prepare import split_examples

            counts = predict_task(
                own, split_examples(task, split, files), output, fresh=fresh, report=LOG.info
            )
        else:
            loaded = [load_tagger(name, device=device, precision=precision) for name in tagger]
            taggers = [one for one in loaded if isinstance(one, Tagger)]
            if len(taggers) < len(tagger):
                raise InputError(
                    f"TAGGER={' '.join(tagger)}: expected fine-tuned taggers of entities"
                )
            counts = predict_files(
                own,
                input,
                output,
                taggers=taggers,
                input_format=format,
                output_format=to,
                encoding=encoding,
                empty=empty,
                fresh=fresh,
                report=LOG.info,
                left_out=left_out,
                work=work,
            )
        shown = (
            f"{output}: {counts.documents:,} documents, {counts.mentions:,} mentions,"
            f" {counts.relations:,} relations"
        )
        _print_counts({"output": str(output)} | counts._asdict(), shown, left_out, json)
        return
    if not isinstance(own, Tagger):
        raise InputError(
            f"MODEL={model}: a model of {own.kind}; give it files: --input FILE --output FILE"
        )
    _answer(text, own.predict, partial(_print_spans, json=json))


def _print_spans(number: int, one: str, spans: Sequence[Any], json: bool) -> None:
    """Print a text and its entities, or one JSON line of them."""
    mentions = [
        {"start": s.start, "end": s.end, "text": s.text, "type": s.type, "score": s.score}
        for s in spans
    ]
    if json:
        print(
            jsons.dumps({"id": str(number), "text": one, "mentions": mentions}, ensure_ascii=False)
        )
        return
    print(one)
    for s in spans:
        print(f"  {s.start:>5}-{s.end:<5} {s.text!r:<30} {s.type}  {s.score:.3f}")


def link(
    graph: Path,
    chain: str = "dictionary",
    text: str | None = None,
    input: Sequence[Path] = (),
    output: Path | None = None,
    nil: float | None = None,
    top: int = 5,
    types: Sequence[str] = (),
    negation: bool = False,
    format: Format | None = None,
    to: OutFormat | None = None,
    encoding: str = "utf-8",
    empty: Literal["error", "skip"] = "error",
    fresh: bool = False,
    max_document: int = 16,
    json: bool = False,
    *,
    linker: LinkerOptions,
    matching: Matching,
    work: Work,
) -> None:
    """Find the entities of a graph in text. Without --text and --input, the lines of standard input
    are texts.

    Args:
        graph: Folder of a graph (kepl graph build).
        chain: What detects mentions, finds candidates and ranks them again; see the end.
        text: One text.
        input: Files or folders with JSON lines, plain text (a document a line), PubTator, PubMed
            XML or BioC.
        output: File for the result of --input; a killed run is resumed by the same command.
        nil: Least score of a linked mention. Default: every mention that has a candidate is linked.
        top: Candidates that are kept for each mention.
        types: Only mentions of these types, as the graph (or the detector) calls them. Default:
            all.
        negation: Say of each mention whether the text denies it, and whether it is of a relative,
            of the past or supposed, by ConText's English rules.
        format: Format of --input. Default: by the file's name.
        to: Format of --output. Default: by the file's name.
        encoding: Encoding of text files.
        empty: What happens with documents that have no text.
        fresh: Start again instead of resuming.
        max_document: MiB that one document or line of --input has at most, decompressed.
        json: Print JSON lines.

    Examples:
      kepl link --graph graph --text "Marfan syndrome with arachnodactyly"
      echo "Marfan syndrome" | kepl link --graph graph --json
      kepl link --graph graph --input notes/ --output links.jsonl --workers 8
      kepl link --graph graph --input notes/ --output links.jsonl --types disease phenotype
      kepl link --graph graph --input notes/ --output o.jsonl --chain "dictionary > sapbert"
    """
    from inference.chain import Pipeline
    from inference.stream import format_of, link_files

    limit_documents(max_document)
    if text is not None and input:
        raise InputError("--text and --input: expected one of the two")
    if bool(input) != bool(output):
        raise InputError(
            "--input and --output go together; the answer to --text goes to standard output"
        )
    if output:
        format_of(output, to)
        # folders among them, or no files at all
        models = [step.strip() for step in re.split("[>+]", chain) if "/" in step]
        Output(output, [*input, graph, *models])
    pipeline = Pipeline(
        graph, chain, nil, top, work, types, negation, matching, **given_options(linker)
    )
    left_out: Counter[str] = Counter()
    if input and output:
        counts = link_files(
            pipeline,
            input,
            output,
            input_format=format,
            output_format=to,
            encoding=encoding,
            empty=empty,
            fresh=fresh,
            report=LOG.info,
            left_out=left_out,
            work=work,
        )
        shown = (
            f"{output}: {counts.documents:,} documents, {counts.mentions:,} mentions,"
            f" {counts.linked:,} linked"
        )
        _print_counts({"output": str(output)} | counts._asdict(), shown, left_out, json)
        return
    _answer(text, pipeline.link, partial(_print_linked, json=json))


def _print_linked(number: int, own: str, mentions: Sequence[Any], json: bool) -> None:
    """Print a text and its mentions, or one JSON line of them."""
    from inference.attributes import NOT, describe_in_words
    from inference.chain import as_record

    if json:
        print(
            jsons.dumps(
                {"id": str(number), "text": own, "mentions": [as_record(m) for m in mentions]},
                ensure_ascii=False,
            )
        )
        return
    print(own)
    for m in mentions:
        meant = "NIL" if m.entity is None else f"{m.entity}  {m.name}"
        score = "" if m.score is None else f"  {m.score:.3f}"
        shown = "".join(
            f"  [{attribute}]" for attribute in describe_in_words(as_record(m)) if attribute != NOT
        )
        print(
            f"  {m.start:>5}-{m.end:<5} {m.text!r:<30}"
            f" {'not ' if m.negated else ''}{meant}{score}{shown}"
        )


def _answer(
    text: str | None,
    find: Callable[[list[str]], list[list[Any]]],
    show: Callable[[int, str, list[Any]], None],
) -> None:
    """show(number, text, what `find` returns for it) for --text or each line of standard input, a
    batch at a time; what is printed of a batch is not held back."""
    from inference.detectors import BATCH
    from inference.stream import batches

    number = 0
    with keeping(lambda: "what is printed is complete; the rest of the input is not read"):
        for batch in batches(iterate_texts(text), BATCH):
            for own, found in zip(batch, find(batch), strict=True):
                show(number, own, found)
                number += 1
            sys.stdout.flush()


def _print_counts(record: dict[str, Any], shown: str, left_out: Counter[str], json: bool) -> None:
    """Print what a file holds, and what of the input is not in it."""
    lost = {reason: count for reason, count in left_out.items() if count}
    if record["output"] == "-" or descriptor_of(record["output"]) == 1:  # the records are there
        LOG.info(shown)
        return
    if json:
        print(jsons.dumps(record | ({"left_out": lost} if lost else {})))
        return
    print(shown)
    for reason, count in lost.items():
        print(f"left out: {count:,} {reason}")


def serve(
    graph: Path,
    chain: str = "dictionary",
    nil: float | None = None,
    top: int = 5,
    host: str = "127.0.0.1",
    port: int = 8000,
    max_bytes: int = 1 << 20,
    max_seconds: float = 30.0,
    max_connections: int = 1000,
    names: Sequence[str] = (),
    types: Sequence[str] = (),
    negation: bool = False,
    *,
    linker: LinkerOptions,
    matching: Matching,
) -> None:
    r"""Serve a chain over HTTP, with a page to try it on. KEPL_TOKEN in the environment is asked of
    every client.

    Args:
        graph: Folder of a graph (kepl graph build).
        chain: What detects mentions, finds candidates and ranks them again; see the end.
        nil: Least score of a linked mention.
        top: Candidates that are kept for each mention.
        host: Address; the default is this machine alone.
        port: Port; 0 chooses a free one and prints it.
        max_bytes: Limit of a request's body.
        max_seconds: Limit of a request, from its first byte to its answer.
        max_connections: Limit of open connections.
        names: Host names, besides the machine's own, that clients may use; those of a proxy, for
            example.
        types: Only mentions of these types. Default: all.
        negation: Say of each mention whether the text denies it, and whether it is of a relative,
            of the past or supposed, by ConText's English rules.

    Examples:
      kepl serve --graph graph
      KEPL_TOKEN=secret kepl serve --graph graph --chain "dictionary > sapbert" --port 8080
      curl -s 127.0.0.1:8000/link -H 'Content-Type: application/json' \
        -d '{"texts": ["Marfan syndrome"]}'
    """
    from app.serve import Limits, start
    from inference.chain import Pipeline

    if max_bytes < 1 or max_seconds <= 0 or max_connections < 1:
        raise InputError("--max-bytes, --max-seconds, --max-connections: expected more than 0")
    pipeline = Pipeline(
        graph, chain, nil, top, None, types, negation, matching, **given_options(linker)
    )
    start(
        pipeline, host, port, Limits(bytes=max_bytes, seconds=max_seconds), max_connections, names
    )


def demo(
    what: Literal["hpo", "medic", "cmekg"] = "hpo",
    chain: str = "dictionary",
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    linker: LinkerOptions,
    files: Files,
) -> None:
    """A page with linked text in one command: builds an available graph, and serves a chain over
    it.

    Args:
        what: hpo (phenotypes, with diseases and genes; from an installed package), medic (diseases;
            MIRROR= or a download) or cmekg (Chinese; from an installed package).
        chain: What detects mentions, finds candidates and ranks them again; see the end.
        host: Address; the default is this machine alone.
        port: Port; 0 chooses a free one and prints it.

    Examples:
      make demo
      kepl demo cmekg --port 8080
      kepl demo medic --chain "NCBI/minilm > sapbert" --mirror downloads/
    """
    from app.demos import DEMOS, demo_graph
    from app.serve import start
    from inference.chain import Pipeline

    pipeline = Pipeline(
        demo_graph(what, files), chain, negation=DEMOS[what].english, **given_options(linker)
    )
    start(pipeline, host, port, examples=DEMOS[what].examples)


def embed(
    model: str,
    text: str | None = None,
    input: Path | None = None,
    output: Path | None = None,
    pooling: Literal["cls", "mean", "text"] | None = None,
    max_length: int = 25,
    device: str = "cpu",
    fresh: bool = False,
    json: bool = False,
) -> None:
    """Vectors of names or short texts. Without --text and --input, the lines of standard input are
    texts.

    Args:
        model: Encoder: a paper, paper/stem, minilm, a folder or a hub name.
        text: One text.
        input: File with a text on each line.
        output: Safetensors file: vectors (n, H), a row for each line, also for a blank one.
        pooling: Vector of a text. Default: the model's own.
        max_length: Tokens of a text.
        device: cpu or cuda.
        fresh: Replace an existing file.
        json: Print JSON lines instead of writing a file.

    Examples:
      kepl embed --model sapbert --text "heart attack" --json
      kepl embed --model minilm --pooling mean --input names.txt --output vectors.safetensors
    """
    from experiments.names import encoder

    if bool(output) == json:
        raise InputError("--output FILE or --json: expected one of the two")
    chosen = encoder(model)
    if output is not None:
        check_ending(output, (".safetensors",))
        target = Output(output, [path for path in (input, Path(model)) if path is not None])
    texts = list(iterate_texts(text, input))
    from inference.encoders import embedder

    own = embedder(chosen, LinkerOptions(pooling=pooling, max_length=max_length, device=device))
    if output is None:
        for one, vector in zip(texts, own(texts).tolist(), strict=True):
            print(
                jsons.dumps(
                    {"text": one, "vector": [round(v, 6) for v in vector]}, ensure_ascii=False
                )
            )
        return
    from safetensors.torch import save

    settings = {name: str(value) for name, value in own.settings.items()}
    made_of = settings | {"texts": digest(texts)}
    facts = target.finished(made_of, fresh)
    if facts is None:
        vectors = own(texts)
        facts = {"vectors": len(texts), "size": vectors.shape[1]}
        with target.written(made_of, facts, "wb") as handle:
            handle.write(save({"vectors": vectors.contiguous()}, metadata=settings))
    else:
        LOG.info(f"{output}: already complete; --fresh makes it again")
    print(f"{output}: {facts['vectors']:,} vectors of {facts['size']} by {chosen.name}")


def iterate_texts(text: str | None, file: Path | None = None) -> Iterator[str]:
    """One text, a file's lines, or those of standard input as they come, blank ones included.

    Raises InputError for a line that is not UTF-8, or too long, and where there is none.
    """
    if text is not None:
        yield text
        return
    if file is None and sys.stdin is None:
        raise InputError(
            "standard input is closed; give --text, --input, or lines on standard input"
        )
    found = (
        lines_of(sys.stdin.buffer, "standard input")
        if file is None or str(file) == "-"
        else lines(file)
    )
    empty = True
    for _, line in found:
        empty = False
        yield line
    if empty:
        raise InputError(
            f"{file or 'standard input'}: no text; give --text, --input, or lines on standard input"
        )


# --- scores ---------------------------------------------------------------------------------------


def evaluate(
    task: str,
    model: str | None = None,
    ckpt: str | None = None,
    split: Literal["dev", "test"] | None = None,
    folds: Sequence[int] = (),
    backoff: bool = False,
    graph: Path | None = None,
    rerank: str | None = None,
    chain: str | None = None,
    threshold: float | None = None,
    *,
    protocol: Protocol,
    linker: LinkerOptions,
    files: Files,
    work: Work,
    matching: Matching,
) -> None:
    """Score a linker on a linking task, beside exact match and TF-IDF; on an end-to-end task (-E2E)
    a chain, detection included.

    Args:
        task: Linking task.
        model: exact, tfidf, or an encoder: a paper, paper/stem, minilm, a folder or a hub name.
            Default: tfidf.
        ckpt: Folder of one exact run of the encoder.
        split: Split to score. Default: test, or dev where there is no test.
        folds: Folds of a task that has several. Default: all.
        backoff: An exact match comes before what the model finds.
        graph: Folder of a graph that replaces the task's dictionary.
        rerank: Model that ranks the linker's candidates again: reranker, its folder, or another
            linker.
        chain: Of an end-to-end task: what detects mentions, finds candidates and ranks them again.
            Default: dictionary.
        threshold: Of an end-to-end task: least score of a linked mention. Default: every mention
            that has a candidate is linked.

    Examples:
      make evaluate TASK=HPO-EL MODEL=sapbert
      make evaluate TASK=NCBI-E2E CHAIN="NCBI/minilm > sapbert" MIRROR=downloads/
      kepl evaluate NCBI-EL --model minilm --pooling mean --mirror downloads/
    """
    from datamodules.tasks.linking import END_TO_END

    if task in END_TO_END:
        from benchmarks.linking import ends

        chosen = chain or "dictionary"
        found = ends.score_chain(
            task,
            chosen,
            split=split,
            graph=graph,
            nil=threshold,
            linker=linker,
            matching=matching,
            files=files,
            work=work,
        )
        print(ends.format_chain_score(found))
        return
    from benchmarks.linking.evaluate import format_scores, score_linker

    results = score_linker(
        task,
        model or "tfidf",
        ckpt=ckpt,
        split=split,
        folds=folds,
        backoff=backoff,
        graph=graph,
        protocol=protocol,
        linker=linker,
        files=files,
        work=work,
        rerank=rerank,
    )
    print(format_scores(results))


def peers(
    task: str,
    chains: str = "",
    peers: Sequence[str] = (),
    split: Literal["dev", "test"] | None = None,
    graph: Path | None = None,
    threshold: float | None = None,
    *,
    linker: LinkerOptions,
    files: Files,
) -> None:
    """Chains of this project beside other people's linkers on an end-to-end task: scores, speed,
    memory; one table.

    What is missing is trained or installed first: taggers and encoders of the chains, peers in
    environments of their own.

    Args:
        task: End-to-end task (-E2E).
        chains: Our chains, separated by semicolons. Default: the dictionary; a tagger with names,
            and with SapBERT.
        peers: gilda, phrases (spaCy's PhraseMatcher), scispacy, scispacy-tagger, medcat. Default:
            all.
        split: Split to score. Default: test, or dev where there is no test.
        graph: Folder of a graph that replaces the task's dictionary.
        threshold: Least score of a linked mention of our chains. Default: every mention that has a
            candidate is linked.

    Examples:
      make peers TASK=NCBI-E2E MIRROR=downloads/
      make peers TASK=BC5CDR-disease-E2E SPLIT=dev MIRROR=downloads/
      kepl peers NCBI-E2E --chains "dictionary; NCBI/minilm > sapbert" --peers gilda phrases
    """
    from benchmarks.peers import compare_peers, format_comparison

    wanted = [chain.strip() for chain in chains.split(";") if chain.strip()]
    print(
        format_comparison(
            *compare_peers(
                task,
                wanted,
                peers,
                split=split,
                graph=graph,
                nil=threshold,
                linker=linker,
                files=files,
            )
        )
    )


def compare(
    task: str,
    profile: Profile = "small",
    base: str | None = None,
    samples: Path | None = None,
    split: Literal["dev", "test"] | None = None,
) -> None:
    """Every system that was scored on a task, best first, with paired tests.

    Args:
        task: Task, linking task, or synonyms.
        profile: Profile of fine-tuning.
        base: System that all others are compared with. Default: the best.
        samples: Folder of the samples of synonym retrieval. Default: those of the newest score.
        split: Split of a linking task. Default: that of the newest score.
    """
    from benchmarks.compare import compare

    print(compare(task, profile, base, samples, split))


def table(
    paper: str,
    table: str,
    out: Path | None = None,
    run: bool = False,
    seeds: str | None = None,
    fresh: bool = False,
    *,
    choices: Choices,
    files: Files,
) -> None:
    """A paper's table, reported beside measured; as Markdown and CSV.

    Args:
        paper: Paper whose table it is.
        table: Number of the table.
        out: Folder for the files. Default: runs/tables.
        run: First make the results that are missing; each prints how long it takes.
        seeds: Seeds of the missing fine-tunings.
        fresh: Replace existing files that this command did not write.
    """
    from benchmarks.tables import write_table

    text, paths = write_table(paper, table, choices, files, out, run, seeds, fresh)
    print(f"{text}\n\nwritten to {paths[0]} and {paths[1].name}")


def figures(paper: str) -> None:
    """A paper's figures; `kepl figures PAPER --help` has the settings of each.

    Args:
        paper: Paper whose figures they are.
    """


def cases(
    task: str,
    of: str | None = None,
    split: Literal["dev", "test"] | None = None,
    top: int = 20,
    folds: Sequence[int] = (),
    graph: Path | None = None,
    *,
    files: Files,
) -> None:
    """What a scored linker gets wrong, most frequent first; all cases go to cases.csv.

    Args:
        task: Linking task.
        of: Label or folder of a result. Default: the newest.
        split: Split of the result.
        top: Cases to print.
        folds: Folds of the result.
        graph: Folder of a graph that was the dictionary.
    """
    from benchmarks.linking.cases import scored_run, write_cases

    print(write_cases(scored_run(task, of, split, folds, graph, files), top))


def synonyms(
    model: str = "zh",
    ckpt: str | None = None,
    samples: Path | None = None,
    linked_text: Path | None = None,
    frequent: int = 200,
    seed: int = 0,
    pooling: Literal["cls", "mean", "text"] = "text",
    similarity: Literal["cosine", "dot"] = "cosine",
    max_length: int | None = None,
    precision: Literal["fp32", "bf16"] = "fp32",
    knowledge: bool = True,
    device: str = "cpu",
) -> None:
    """Which of 20 names means the same (SMedBERT, Table 1), by an encoder or by word vectors.

    Args:
        model: Encoder, or word vectors: sgns:char, sgns:word, glove:char, glove:word.
        ckpt: Folder of one exact run of the encoder.
        samples: Folder of `kepl data synonyms build`. Default: that of make pretrain-smedbert.
        linked_text: Text that word vectors are trained on and whose mentions are counted. Default:
            beside the samples.
        frequent: Dataset-3 has the pairs of which one side is mentioned at most so often.
        seed: Seed of word vectors.
        pooling: Vector of a name.
        similarity: Similarity of two vectors.
        max_length: Tokens of a name (default 25).
        precision: Arithmetic of the model.
        knowledge: Whether an encoder that reads linked mentions gets them.
        device: cpu or cuda.
    """
    from benchmarks.synonyms import format_retrieval, score_retrieval

    options = LinkerOptions(
        pooling=pooling,
        similarity=similarity,
        max_length=max_length,
        precision=precision,
        knowledge=knowledge,
        device=device,
    )
    print(
        format_retrieval(
            score_retrieval(
                model,
                ckpt=ckpt,
                samples=samples,
                linked_text=linked_text,
                frequent=frequent,
                seed=seed,
                linker=options,
            )
        )
    )


def probe(
    model: str = "kebiolm",
    graph: str = "hpo",
    ckpt: str | None = None,
    method: Literal["beam", "confidence"] = "beam",
    masks: int = 10,
    beam: int | None = None,
    templates: Literal["relation", "default_prompt", "human_prompt"] | None = None,
    special_tokens: bool = False,
    limit: int | None = None,
    seed: int = 0,
    size: int = 8192,
    device: str = "cpu",
    *,
    files: Files,
) -> None:
    """Fill-in queries of a graph's triples, answered by a masked language model (KeBioLM, Tables 5
    to 7).

    Args:
        model: KeBioLM, or any masked language model.
        graph: hpo, medlama (its files come from --mirror), or a folder of a graph or of queries.
        ckpt: Folder of one exact run.
        method: Search of answers with several tokens.
        masks: Answers of 1 to so many tokens.
        beam: Beams of the search (default 5).
        templates: Templates of MedLAMA's queries. Default: relation.
        special_tokens: Whether special and unused tokens may be guessed.
        limit: So many of the queries, drawn by --seed. Default: all.
        seed: Seed of the queries drawn.
        size: Tokens of a batch.
        device: cpu or cuda.
    """
    from benchmarks.probing import format_probing, score_probing

    result = score_probing(
        model,
        graph=graph,
        ckpt=ckpt,
        method=method,
        masks=masks,
        beam=beam,
        templates=templates,
        special_tokens=special_tokens,
        limit=limit,
        seed=seed,
        size=size,
        device=device,
        files=files,
    )
    print(format_probing(result))


def overlap(
    task: Sequence[str] = (),
    graph: str | None = None,
    model: str | None = None,
    ckpt: str | None = None,
    *,
    files: Files,
) -> None:
    """Annotated mentions of NER and relation sets that a graph has a name for.

    Args:
        task: Tasks. Default: all of NER and relations.
        graph: hpo, or a folder of a graph (default hpo).
        model: A KeBioLM whose entities are counted, instead of a graph's.
        ckpt: Folder of one exact run of it.
    """
    from benchmarks.overlap import format_overlaps, overlaps

    print(format_overlaps(*overlaps(task, graph, model, ckpt, files)))


def counts(task: Sequence[str] = (), *, files: Files) -> None:
    """Sizes of every available split, beside the papers'.

    Args:
        task: Tasks. Default: all.
    """
    from benchmarks.counts import count_rows, counts_table
    from datamodules.sources import fetched, place
    from datamodules.tasks.prepare import all_tasks, find_task

    chosen = [find_task(name) for name in task] or list(all_tasks().values())
    print(counts_table(count_rows(lambda d: fetched(d.dataset, place(), files.mirror), chosen)))


def data(task: str, *, files: Files) -> None:
    """Fetch and verify a task's files.

    Args:
        task: Task, linking task or data set.
    """
    from datamodules.tasks.fetch import fetch_files

    print(fetch_files(task, files))


def tasks() -> None:
    """List the tasks: fine-tuning, linking, and both ends of linking."""
    from datamodules.tasks.linking import END_TO_END, linking_tasks
    from datamodules.tasks.prepare import all_tasks

    for task in all_tasks().values():
        also = f" (also {', '.join(task.aliases)})" if task.aliases else ""
        print(f"{task.name:<24}{task.suite:<14}{task.kind:<10}{task.metric}{also}")
    for name in linking_tasks():
        print(f"{name:<24}{'linking':<14}{'linking':<10}acc@1")
    for name in END_TO_END:
        print(f"{name:<24}{'linking':<14}{'text':<10}f1")


def sweep(
    config: Path,
    at_once: int | None = None,
    fresh: bool = False,
    *,
    check_words: Callable[[list[str]], object] = list,
) -> int:
    """A grid of runs, or a search by Optuna, under one parent in MLflow; a killed sweep is resumed
    by the same command.

    Args:
        config: YAML file of the sweep (benchmarks/sweeps has one).
        at_once: Runs at the same time. Default: as the file says.
        fresh: Run again what is done.
    """
    from benchmarks.sweep import run_sweep
    from core.commands import python_command

    return run_sweep(config, python_command("-m", "app.cli"), at_once, fresh, check_words)


def publish(
    runs: Sequence[Path],
    group: str,
    command: str,
    against: Sequence[Path] = (),
    machine: str | None = None,
    json: bool = False,
) -> None:
    """Write records of finished runs into docs/results: a number for each system, a mean over its
    seeds.

    Args:
        runs: Run folders, or folders of them (runs/finetune/NCBI).
        group: File of docs/results that the records are added to.
        command: The command that made the runs.
        against: Run folders of one system; the paired difference from it is published, too.
        machine: Where the runs were made. Default: this machine's cores.
        json: Print the records as JSON lines.

    Examples:
      kepl publish runs/finetune/NCBI --group ner --command "make finetune TASK=NCBI SEEDS=3"
    """
    from dataclasses import asdict

    from benchmarks.publish import publish

    file, records = publish(runs, group, command, against, machine)
    for one in records:
        print(
            jsons.dumps(asdict(one), ensure_ascii=False)
            if json
            else f"{{{group}/{one.id}}}  {one.part(None)}"
        )
    if not json:
        print(
            f"written to {file}; put the names in braces into a table of {file.parent / 'tables'},"
            " then: make results"
        )


def results(check: bool = False) -> int:
    """Write the results tables of the README and docs from the records in docs/results.

    Args:
        check: Write nothing; name each table that differs and each number that is in no record, and
            exit 1.

    Examples:
      make results
      make results-check
    """
    from benchmarks.records import problems, write_tables

    if not check:
        print("\n".join(map(str, write_tables())) or "every table is as its records say")
    found = problems()
    print("\n".join(found) or "results-check: every table and number is in the records")
    return 1 if found else 0


def dashboard(port: int = 5000) -> int:
    """Compare runs in MLflow, on this machine alone.

    Args:
        port: Port on 127.0.0.1.
    """
    from app.dashboard import serve

    return serve(port)


def sync(folder: Path | None = None) -> None:
    """Deliver to MLflow what runs recorded while it did not answer.

    Args:
        folder: Folder of runs. Default: that of all runs ($KEPL_RUNS).

    Examples:
      kepl sync
      kepl sync graphs/transe.training
    """
    from core.journal import sync

    runs, lines, busy = sync(folder)
    going = f"; {busy} still running, which deliver by themselves" if busy else ""
    print(f"{lines:,} records of {runs} runs delivered{going}")
