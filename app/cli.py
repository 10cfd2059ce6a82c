"""`kepl`: graphs, linking, vectors and scores from any folder.

    kepl graph build hpo --out graph                            any source of python -m kg.build
    kepl graph info graph [--json]
    kepl link --graph graph --text "He had arachnodactyly."     [--chain "dictionary > sapbert"] [--nil 0.8] [--json]
    kepl link --graph graph --input notes.jsonl --output links.jsonl        goes on where it was stopped
    kepl embed --model sapbert --input names.txt --output vectors.safetensors
    kepl serve --graph graph [--chain …] [--port 8000]          a page and an interface on http://127.0.0.1:8000
    kepl evaluate NCBI-EL MODEL=sapbert MIRROR=downloads/       as `make evaluate`

Exit codes: 0 done, 1 a failure that is no fault of the input, 2 wrong input or options (one line says which), 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from core.files import InputError

CHAINS = """chains:
  dictionary                      names of the graph, longest match
  dictionary > sapbert            the same mentions, each to its nearest name by SapBERT's vectors
  dictionary > genbioel           ... by generating a name
  kebiolm > names                 mentions that KeBioLM detects, linked where the graph has their name
  kebiolm > sapbert > genbioel    detect, find candidates, rank them again
A model is a paper (its newest run here), paper/stem, minilm, a folder or a hub name."""

EXAMPLES = {
    "link": """examples:
  kepl link --graph graph --text "Marfan syndrome with arachnodactyly"
  echo "Marfan syndrome" | kepl link --graph graph --json
  kepl link --graph graph --input notes/ --output links.jsonl --chain "dictionary > sapbert" --nil 0.8
  kepl link --graph graph --input abstracts.pubtator --output links.pubtator

"""
    + CHAINS,
    "embed": """examples:
  kepl embed --model sapbert --text "heart attack" --json
  kepl embed --model minilm --pooling mean --input names.txt --output vectors.safetensors""",
    "serve": """examples:
  kepl serve --graph graph
  KEPL_TOKEN=secret kepl serve --graph graph --chain "dictionary > sapbert" --port 8080
  curl -s 127.0.0.1:8000/link -H 'Content-Type: application/json' -d '{"texts": ["Marfan syndrome"]}'

"""
    + CHAINS,
    "info": "example:\n  kepl graph info runs/data/kebiolm-small/graph --json",
}


def parser() -> argparse.ArgumentParser:
    shown = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(prog="kepl", description=__doc__, formatter_class=shown)
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    chain = argparse.ArgumentParser(add_help=False)
    chain.add_argument("--graph", required=True, help="folder of a graph (kepl graph build)")
    chain.add_argument("--chain", default="dictionary", help="what detects, finds and ranks (dictionary); see below")
    chain.add_argument(
        "--nil", type=float, help="least score of a linked mention (default: every mention that has a candidate)"
    )
    chain.add_argument("--top", type=int, default=5, help="candidates that are kept (5)")
    chain.add_argument("--device", default="cpu", help="cpu, cuda (cpu)")
    chain.add_argument(
        "--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of models, as make evaluate takes them"
    )
    graph = verbs.add_parser("graph", help="build a graph, or say what is in one").add_subparsers(
        dest="what", required=True
    )
    build = graph.add_parser("build", help="as python -m kg.build", add_help=False)
    build.add_argument("rest", nargs=argparse.REMAINDER)
    info = graph.add_parser("info", help="what is in a graph", epilog=EXAMPLES["info"], formatter_class=shown)
    info.add_argument("folder")
    info.add_argument("--json", action="store_true", help="as JSON")
    link = verbs.add_parser(
        "link", parents=[chain], help="entities out of text", epilog=EXAMPLES["link"], formatter_class=shown
    )
    link.add_argument("--text", help="one text; without --text and --input lines of standard input are texts")
    link.add_argument(
        "--input",
        nargs="+",
        help="files or folders: JSON lines, plain text (a document a line), PubTator, PubMed XML, BioC",
    )
    link.add_argument("--output", help="file for the result of --input")
    link.add_argument("--format", help="of --input, where its name does not say: jsonl, text, pubtator, pubmed, bioc, biocjson")
    link.add_argument("--to", help="of --output, where its name does not say: jsonl, pubtator, bioc, biocjson")
    link.add_argument("--encoding", default="utf-8", help="of text files (utf-8)")
    link.add_argument("--empty", default="error", help="error, skip: documents without text (error)")
    link.add_argument("--fresh", action="store_true", help="begin anew where a run was stopped")
    link.add_argument("--json", action="store_true", help="as JSON lines")
    serve = verbs.add_parser(
        "serve",
        parents=[chain],
        help="a page and an interface over HTTP",
        epilog=EXAMPLES["serve"],
        formatter_class=shown,
    )
    serve.add_argument("--host", default="127.0.0.1", help="address (127.0.0.1: this machine alone)")
    serve.add_argument("--port", type=int, default=8000, help="port (8000; 0 takes a free one and says which)")
    serve.add_argument("--max-bytes", type=int, default=1 << 20, help="of a request's body (1048576)")
    serve.add_argument("--max-seconds", type=float, default=30.0, help="that a request waits (30)")
    embed = verbs.add_parser(
        "embed", help="vectors of names or short texts", epilog=EXAMPLES["embed"], formatter_class=shown
    )
    embed.add_argument("--model", required=True, help="an encoder: a paper, paper/stem, minilm, a folder, a hub name")
    embed.add_argument("--text", help="one text")
    embed.add_argument("--input", help="file with a text a line; standard input without --text and --input")
    embed.add_argument("--output", help="safetensors file: vectors (n, H), in the order of the lines")
    embed.add_argument("--pooling", help="cls, mean, text (default: what the model says of itself, or cls)")
    embed.add_argument("--max-length", type=int, default=25, help="tokens of a text (25)")
    embed.add_argument("--device", default="cpu", help="cpu, cuda (cpu)")
    embed.add_argument("--json", action="store_true", help="JSON lines on standard output instead of a file")
    evaluate = verbs.add_parser("evaluate", help="score a linker, as make evaluate", add_help=False)
    evaluate.add_argument("rest", nargs=argparse.REMAINDER)
    return top


# verbs


def graph_info(folder: str) -> dict[str, Any]:
    """Counts of a graph, of its types and relations; where it comes from. Raises InputError."""
    from collections import Counter

    from kg.graph import KnowledgeGraph

    graph = KnowledgeGraph.load(folder)
    about = {k: v for k, v in graph.manifest.items() if k in ("source", "version", "licence")}
    types = Counter(graph.entities["type"].to_pylist()).most_common()
    relations = Counter(graph.triples["relation"].to_pylist()).most_common()
    languages = Counter(graph.names["language"].to_pylist()).most_common()
    return (
        about
        | graph.counts()
        | {"types": dict(types), "relations of triples": dict(relations), "languages": dict(languages)}
    )


def show_info(given: argparse.Namespace) -> None:
    found = graph_info(given.folder)
    if given.json:
        print(json.dumps(found, ensure_ascii=False))
        return
    for key, value in found.items():
        if isinstance(value, dict):
            shown = list(value.items())
            print(f"{key}:")
            print("\n".join(f"  {count:>12,}  {name}" for name, count in shown[:20]))
            if len(shown) > 20:
                print(f"  {'':>12}  and {len(shown) - 20:,} more")
        else:
            print(f"{key:<20}{value:,}" if isinstance(value, int) else f"{key:<20}{value}")


def _texts(text: str | None, input: str | None = None) -> list[str]:
    """The texts of --text, of a file's lines, or of standard input's."""
    if text is not None:
        return [text]
    if input is not None:
        from core.files import lines

        return [line for _, line in lines(input) if line.strip()]
    return [line.rstrip("\r\n") for line in sys.stdin if line.strip()]


def settings_of(given: argparse.Namespace) -> dict[str, str]:
    """What --set and --device say. Raises InputError for what is no setting."""
    if wrong := [word for word in given.set if "=" not in word]:
        raise InputError(f"--set {wrong[0]!r}: wanted NAME=VALUE")
    settings = dict(word.split("=", 1) for word in given.set)
    if settings:
        from benchmarks.linking.evaluate import SETTINGS

        if unknown := sorted(set(settings) - set(SETTINGS)):
            raise InputError(f"--set {unknown[0]}: no such setting; choose from: {', '.join(SETTINGS)}")
    return settings | ({"DEVICE": given.device} if given.device != "cpu" else {})


def link(given: argparse.Namespace) -> None:
    from inference.chain import Pipeline, as_record
    from inference.stream import format_of, link_files
    from kg.graph import fingerprint

    if given.text is not None and given.input:
        raise InputError("--text and --input: wanted one of the two")
    if bool(given.input) != bool(given.output):
        raise InputError("--input and --output go together; --text is answered on standard output")
    if given.output:
        format_of(given.output, given.to)
    settings = settings_of(given)
    pipeline = Pipeline(given.graph, given.chain, given.nil, given.top, settings)
    if given.input:
        made_of = {
            "graph": fingerprint(given.graph), "chain": given.chain, "models": pipeline.identities,
            "nil": given.nil, "top": given.top, "set": settings,
        }  # fmt: skip
        counts = link_files(
            pipeline, given.input, given.output, made_of, given.format, given.to, given.encoding, given.empty, given.fresh,
            told=lambda line: print(line, file=sys.stderr),
        )  # fmt: skip
        told = {"output": given.output} | counts._asdict()
        print(json.dumps(told) if given.json else f"{given.output}: {counts.documents:,} documents, {counts.mentions:,} mentions, "
              f"{counts.linked:,} linked")  # fmt: skip
        return
    texts = _texts(given.text)
    for number, (text, mentions) in enumerate(zip(texts, pipeline.link(texts), strict=True)):
        if given.json:
            print(
                json.dumps(
                    {"id": str(number), "text": text, "mentions": [as_record(m) for m in mentions]}, ensure_ascii=False
                )
            )
            continue
        print(text)
        for m in mentions:
            meant = "NIL" if m.entity is None else f"{m.entity}  {m.name}"
            score = "" if m.score is None else f"  {m.score:.3f}"
            print(f"  {m.start:>5}-{m.end:<5} {m.text!r:<30} {meant}{score}")


def serve(given: argparse.Namespace) -> None:
    import os
    import socket

    import uvicorn

    from app.serve import Limits, create_app
    from inference.chain import Pipeline

    if given.max_bytes < 1 or given.max_seconds <= 0:
        raise InputError(f"--max-bytes {given.max_bytes}, --max-seconds {given.max_seconds}: wanted more than 0")
    pipeline = Pipeline(given.graph, given.chain, given.nil, given.top, settings_of(given))
    app = create_app(
        pipeline, os.environ.get("KEPL_TOKEN") or None, Limits(bytes=given.max_bytes, seconds=given.max_seconds)
    )
    try:
        listening = socket.create_server((given.host, given.port), backlog=2048)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"--host {given.host} --port {given.port}: {error}. Choose another port, or --port 0."
        ) from error
    host, port = listening.getsockname()[:2]
    print(f"http://{host}:{port}  (interface: http://{host}:{port}/docs; Ctrl+C ends it)", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listening])


def embed(given: argparse.Namespace) -> None:
    from benchmarks.linking.evaluate import embedder_of

    if bool(given.output) == bool(given.json):
        raise InputError("--output FILE or --json: wanted one of the two")
    words = {"POOLING": given.pooling or "", "MAX_LENGTH": str(given.max_length), "DEVICE": given.device}
    texts = _texts(given.text, given.input)
    if not texts:
        raise InputError("no text; give --text, --input, or lines on standard input")
    label, embedder = embedder_of({k: v for k, v in words.items() if v}, given.model)
    vectors = embedder(texts)
    if given.json:
        for text, vector in zip(texts, vectors.tolist(), strict=True):
            print(json.dumps({"text": text, "vector": [round(v, 6) for v in vector]}, ensure_ascii=False))
        return
    from safetensors.torch import save

    from core.files import written

    with written(given.output, "wb") as handle:
        handle.write(
            save({"vectors": vectors.contiguous()}, metadata={k: str(v) for k, v in embedder.settings.items()})
        )
    print(f"{given.output}: {len(texts):,} vectors of {vectors.shape[1]} by {label}")


def main(words: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if words is None else words)
    if words[:2] == ["graph", "build"]:
        from kg.build import main as build

        return build(words[2:])
    if words[:1] == ["evaluate"]:
        from benchmarks.run import main as run

        return run(words)
    try:
        given = parser().parse_args(words)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        {"graph": show_info, "link": link, "embed": embed, "serve": serve}[given.verb](given)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
