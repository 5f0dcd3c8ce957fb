"""Data sets for fair classification: generators with a bias of known size, and real data."""

from fairconstrained.datasets.loading import list_datasets, load_dataset
from fairconstrained.datasets.synthetic import make_biased_classification, make_loan_applications

__all__ = ["list_datasets", "load_dataset", "make_biased_classification", "make_loan_applications"]
