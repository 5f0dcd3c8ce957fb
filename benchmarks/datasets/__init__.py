"""Data sets: each file has ``DATASETS``, a table; ``load()`` of one gives a Bunch."""
