"""Entity linking, with numbers that can be compared: every score says by which protocol it was measured.

tasks      what there is, and a data set's files made into a task folder (datamodules.linking)
linkers    exact match, TF-IDF, any encoder with nearest-name search, dictionary back-off
scores     Acc@1, Acc@5, MRR, sub-populations, protocol stamps, reasons of errors
evaluate   python -m benchmarks.run evaluate TASK MODEL=…
"""

from __future__ import annotations

from collections.abc import Sequence


def run_evaluate(words: Sequence[str]) -> None:
    """`evaluate TASK [MODEL=…] …` of benchmarks.run."""
    from benchmarks.linking.evaluate import evaluate_words

    evaluate_words(words)
