"""Readers and writers of the formats that texts come in."""
