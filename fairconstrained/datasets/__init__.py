"""Data sets for fair classification: a generator with adjustable bias, and real data."""

from fairconstrained.datasets.encoding import one_hot
from fairconstrained.datasets.loading import list_datasets, load_dataset
from fairconstrained.datasets.synthetic import make_biased_classification

__all__ = ["list_datasets", "load_dataset", "make_biased_classification", "one_hot"]
