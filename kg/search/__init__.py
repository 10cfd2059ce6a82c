"""Search in names: by vectors, by character n-grams, and in a prefix tree of tokens."""
