"""What attention does with entities: how alike synonyms are used, and what stays inside a long entity.

measures   numbers of one attention matrix, pure
sentences  sentences with an entity, a synonym and a random entity for it; sentences with a long entity and its two halves
maps       the attention of an encoder's layer, summed over heads
figures    python -m benchmarks.run figures PAPER MODEL=… BASE=…
"""
