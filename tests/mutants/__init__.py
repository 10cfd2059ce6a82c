"""Faults that the tests must notice: one-line changes of the code, each of which a named test must
fail with."""
