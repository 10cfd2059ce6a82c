"""Commands that use models on text: link, predict, embed.

A command is a record: its fields are the options, its docstring is their help, `run` does it.
Importing them loads no model library.
"""

from __future__ import annotations

import json as jsons
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from core.files import InputError, descriptor_of
from core.json_files import digest
from core.outputs import Output, check_ending
from core.reading import limit_documents, lines, lines_of
from core.settings import given_options
from core.stopping import report_interrupt
from core.tracking import runs_folder
from datamodules.options import Files
from inference.entity_tagger import EntityTagger
from inference.options import LinkerOptions, Matching, Pooling, TextFiles, Work, check_device

if TYPE_CHECKING:
    from torch import Tensor  # the command starts without torch

    from inference.taggers import PairModel, Ranker, RelationModel

LOG = logging.getLogger(__name__)


def merge_several(graphs: Sequence[Path]) -> Path:
    """The folder of a graph, or of several merged into one, kept below the folder of runs. Raises
    InputError as kg.build.merge does."""
    if len(graphs) == 1:
        return graphs[0]
    from kg.build.merge import merge
    from kg.graph import fingerprint

    for folder in graphs:
        if not folder.is_dir():
            raise InputError(f"--graph {folder}: no such folder, so no knowledge graph here")
    name = digest([fingerprint(folder) for folder in graphs])[:16]
    out = runs_folder() / "data" / "merged" / name
    with redirect_stdout(sys.stderr):  # standard output is the answer's
        merge(graphs, out)
    return out


@dataclass(frozen=True, kw_only=True)
class Link:
    """Find the entities of a graph in text. Without --text and --input, the lines of standard input
    are texts.

    Args:
        graph: Folder of a graph (kepl graph build), or of several, which are merged by name and
            alias (kepl graph merge).
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
        json: Print JSON lines.

    Examples:
      kepl link --graph graph --text "Marfan syndrome with arachnodactyly"
      echo "Marfan syndrome" | kepl link --graph graph --json
      kepl link --graph graph --input notes/ --output links.jsonl --workers 8
      kepl link --graph graph --input notes/ --output links.jsonl --types disease phenotype
      kepl link --graph graph --input notes/ --output o.jsonl --chain "dictionary > sapbert"
    """

    graph: Sequence[Path]
    chain: str = "dictionary"
    text: str | None = None
    input: Sequence[Path] = ()
    output: Path | None = None
    nil: float | None = None
    top: int = 5
    types: Sequence[str] = ()
    negation: bool = False
    json: bool = False
    matching: Matching = Matching()
    linker: LinkerOptions = LinkerOptions()
    reading: TextFiles = TextFiles()
    work: Work = Work()

    def run(self) -> None:
        from inference.chain import Pipeline
        from inference.output_formats import format_of
        from inference.stream import link_files

        limit_documents(self.reading.max_document)
        if self.text is not None and self.input:
            raise InputError("--text and --input: expected one of the two")
        if bool(self.input) != bool(self.output):
            raise InputError(
                "--input and --output go together; the answer to --text goes to standard output"
            )
        if self.output:
            format_of(self.output, self.reading.to)
            # folders among them, or no files at all
            models = [step.strip() for step in re.split("[>+]", self.chain) if "/" in step]
            Output(self.output, [*self.input, *self.graph, *models])
        pipeline = Pipeline(
            merge_several(self.graph),
            self.chain,
            self.nil,
            self.top,
            self.work,
            self.types,
            self.negation,
            self.matching,
            **given_options(self.linker),
        )
        left_out: Counter[str] = Counter()
        if self.input and self.output:
            counts = link_files(
                pipeline,
                self.input,
                self.output,
                self.reading,
                report=LOG.info,
                left_out=left_out,
                work=self.work,
            )
            summary = (
                f"{self.output}: {counts.documents:,} documents, {counts.mentions:,} mentions,"
                f" {counts.linked:,} linked"
            )
            _print_counts(
                {"output": str(self.output)} | counts._asdict(), summary, left_out, self.json
            )
            return
        _answer(self.text, pipeline.link, partial(_print_linked, json=self.json))


@dataclass(frozen=True, kw_only=True)
class Predict:
    r"""What a fine-tuned model finds in new text: entities, relations, classes of two texts, ranked
    answers.

    Without --text, --input and --task, the lines of standard input are texts.

    Args:
        model: Fine-tuned model: TASK/encoder (the newest run at default settings),
            TASK/encoder@<hash>-seed<k>, or a folder; or a
            token classifier: a folder in the hub's layout, or a hub name.
        text: One text.
        input: Files or folders with JSON lines, plain text, PubTator, PubMed XML or BioC; pairs and
            answers as JSON lines.
        output: File for the result of --input or --task; a killed run is resumed by the same
            command.
        task: Task whose --split is read instead, with the words of its files.
        split: Split of --task.
        tagger: For relations in text without entities, the fine-tuned taggers that find them.
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

    model: str
    text: str | None = None
    input: Sequence[Path] = ()
    output: Path | None = None
    task: str | None = None
    split: Literal["train", "dev", "test"] = "test"
    tagger: Sequence[str] = ()
    json: bool = False
    device: str = "cpu"
    precision: Literal["fp32", "bf16"] = "fp32"
    files: Files = Files()
    reading: TextFiles = TextFiles()
    work: Work = Work()

    def run(self) -> None:
        limit_documents(self.reading.max_document)
        check_device(self.device)
        if sum(map(bool, (self.text is not None, self.input, self.task))) > 1:
            raise InputError("--text, --input and --task: expected one of the three")
        if bool(self.input or self.task) != bool(self.output):
            raise InputError(
                "--input and --task go together with --output; the answer to --text goes to"
                " standard output"
            )
        folders = [model_folder(name) for name in (self.model, *self.tagger)]
        from inference.load import load_model
        from inference.output_formats import format_of

        if self.output:
            format_of(self.output, self.reading.to)
            Output(self.output, [*self.input, *folders])
        model = load_model(self.model, device=self.device, precision=self.precision)
        if self.output:
            self.write(model, self.output)
            return
        if not isinstance(model, EntityTagger):
            raise InputError(
                f"MODEL={self.model}: a model of {model.kind}; give it files: --input FILE --output"
                " FILE"
            )
        _answer(self.text, model.predict, partial(_print_spans, json=self.json))

    def write(self, model: EntityTagger | RelationModel | PairModel | Ranker, output: Path) -> None:
        """Write what a model predicts for the files, or a task's examples."""
        from inference.load import load_entity_tagger
        from inference.predict import predict_files, predict_task

        left_out: Counter[str] = Counter()
        if self.task:
            from datamodules.tasks.prepare import split_examples

            if self.reading.to not in (None, "jsonl"):
                raise InputError(
                    f"--to {self.reading.to}: the predictions for a task's examples are JSON lines"
                )
            examples = split_examples(self.task, self.split, self.files)
            fresh = self.reading.fresh
            counts = predict_task(model, examples, output, fresh=fresh, report=LOG.info)
        else:
            taggers = [
                load_entity_tagger(name, device=self.device, precision=self.precision)
                for name in self.tagger
            ]
            counts = predict_files(
                model,
                self.input,
                output,
                self.reading,
                taggers=taggers,
                report=LOG.info,
                left_out=left_out,
                work=self.work,
            )
        summary = (
            f"{output}: {counts.documents:,} documents, {counts.mentions:,} mentions,"
            f" {counts.relations:,} relations"
        )
        _print_counts({"output": str(output)} | counts._asdict(), summary, left_out, self.json)


def model_folder(name: str) -> Path:
    """The folder of a model that predicts: fine-tuned here, or of others."""
    from experiments.finetuned_names import find_finetuned, is_fine_tuned
    from experiments.names import encoder, may_be_hub_name

    others = not is_fine_tuned(name) and (Path(name).is_dir() or may_be_hub_name(name))
    return Path(encoder(name).folder) if others else find_finetuned(name).folder


@dataclass(frozen=True, kw_only=True)
class Embed:
    """Vectors of names or short texts. Without --text and --input, the lines of standard input are
    texts.

    Args:
        model: Encoder: a paper, paper/config, minilm, a folder or a hub name.
        text: One text.
        input: File with a text on each line.
        output: Safetensors file: vectors (n, H), a row for each line, also for a blank one.
        pooling: Vector of a text. Default: the model's own.
        max_length: Tokens of a text. Default: as the model's files say, else 25.
        device: cpu or cuda.
        fresh: Replace an existing file.
        json: Print JSON lines instead of writing a file.

    Examples:
      kepl embed --model sapbert --text "heart attack" --json
      kepl embed --model minilm --pooling mean --input names.txt --output vectors.safetensors
    """

    model: str
    text: str | None = None
    input: Path | None = None
    output: Path | None = None
    pooling: Pooling | None = None
    max_length: int | None = None
    device: str = "cpu"
    fresh: bool = False
    json: bool = False

    def run(self) -> None:
        if bool(self.output) == self.json:
            raise InputError("--output FILE or --json: expected one of the two")
        if self.text is not None and self.input is not None:
            raise InputError("--text or --input FILE: expected one of the two")
        from experiments.names import encoder  # loads a model library

        chosen = encoder(self.model)
        if self.output is not None:
            check_ending(self.output, (".safetensors",))
            target = Output(
                self.output, [path for path in (self.input, Path(self.model)) if path is not None]
            )
        texts = list(iterate_texts(self.text, self.input))
        from inference.encoders import embedder

        embed = embedder(
            chosen,
            LinkerOptions(pooling=self.pooling, max_length=self.max_length, device=self.device),
        )
        if self.output is None:
            for text, vector in zip(texts, embed(texts).tolist(), strict=True):
                print(
                    jsons.dumps(
                        {"text": text, "vector": [round(v, 6) for v in vector]}, ensure_ascii=False
                    )
                )
            return
        settings = {name: str(value) for name, value in embed.settings.items()}
        made_of = settings | {"texts": digest(texts)}
        facts = target.read_finished(made_of, self.fresh)
        if facts is None:
            vectors = embed(texts)
            facts = {"vectors": len(texts), "size": vectors.shape[1]}
            with target.atomic_write(made_of, facts, "wb") as handle:
                handle.write(encode_vectors(vectors, settings))
        else:
            LOG.info(f"{self.output}: already complete; --fresh makes it again")
        print(f"{self.output}: {facts['vectors']:,} vectors of {facts['size']} by {chosen.name}")


def encode_vectors(vectors: Tensor, facts: Mapping[str, str]) -> bytes:
    """A safetensors file of `vectors`, the same bytes for the same vectors and facts of them.

    safetensors writes the facts in the order of a hash table, another one each time.
    """
    from safetensors.torch import save

    content = save({"vectors": vectors.contiguous()}, metadata=dict(facts))
    size = int.from_bytes(content[:8], "little")
    header = jsons.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(facts.items()))
    text = jsons.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of eight bytes
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def _print_spans(number: int, text: str, spans: Sequence[Any], json: bool) -> None:
    """Print a text and its entities, or one JSON line of them."""
    mentions = [
        {"start": s.start, "end": s.end, "text": s.text, "type": s.type, "score": s.score}
        for s in spans
    ]
    if json:
        print(
            jsons.dumps({"id": str(number), "text": text, "mentions": mentions}, ensure_ascii=False)
        )
        return
    print(text)
    for s in spans:
        print(f"  {s.start:>5}-{s.end:<5} {s.text!r:<30} {s.type}  {s.score:.3f}")


def _print_linked(number: int, text: str, mentions: Sequence[Any], json: bool) -> None:
    """Print a text and its mentions, or one JSON line of them."""
    from inference.attributes import NOT, describe_in_words
    from inference.results import as_record

    if json:
        record = {"id": str(number), "text": text, "mentions": list(map(as_record, mentions))}
        print(jsons.dumps(record, ensure_ascii=False))
        return
    print(text)
    for m in mentions:
        meant = "NIL" if m.entity is None else f"{m.entity}  {m.name}"
        score = "" if m.score is None else f"  {m.score:.3f}"
        attributes = describe_in_words(as_record(m))
        listed = "".join(f"  [{attribute}]" for attribute in attributes if attribute != NOT)
        print(
            f"  {m.start:>5}-{m.end:<5} {m.text!r:<30}"
            f" {'not ' if m.negated else ''}{meant}{score}{listed}"
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
    with report_interrupt(lambda: "what is printed is complete; the rest of the input is not read"):
        for batch in batches(iterate_texts(text), BATCH):
            for item, answers in zip(batch, find(batch), strict=True):
                show(number, item, answers)
                number += 1
            sys.stdout.flush()


def _print_counts(record: dict[str, Any], summary: str, left_out: Counter[str], json: bool) -> None:
    """Print what a file holds, and what of the input is not in it."""
    lost = {reason: count for reason, count in left_out.items() if count}
    if record["output"] == "-" or descriptor_of(record["output"]) == 1:  # the records are there
        LOG.info(summary)
        return
    if json:
        print(jsons.dumps(record | ({"left_out": lost} if lost else {})))
        return
    print(summary)
    for reason, count in lost.items():
        print(f"left out: {count:,} {reason}")


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
    texts = (
        lines_of(sys.stdin.buffer, "standard input")
        if file is None or str(file) == "-"
        else lines(file)
    )
    empty = True
    for _, line in texts:
        empty = False
        yield line
    if empty:
        raise InputError(
            f"{file or 'standard input'}: no text; give --text, --input, or lines on standard input"
        )
