"""Specifications of models: the objects that the ``model`` parameter of an estimator takes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator
from sklearn.utils import InputTags, check_array, column_or_1d, get_tags
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import indexable, validate_data
from torch import Generator, Tensor, nn

from fairconstrained.arrays import Floats, is_number
from fairconstrained.inputs.labels import plain_labels
from fairconstrained.inputs.samples import texts_and_dates
from fairconstrained.models.boosters.words import as_codes
from fairconstrained.models.cross_fitting import evidence_of
from fairconstrained.models.encodings import PiecewiseLinear, Standardize
from fairconstrained.models.features import Features, column_variances, standard_scale
from fairconstrained.models.linear import LinearModel, with_sums
from fairconstrained.models.network import NetworkModel, check_rows_independent, materialize
from fairconstrained.models.perceptron import PerceptronModel
from fairconstrained.numerics import TINY
from fairconstrained.sharing import NO_STORE, Handle

Head = tuple[Floats, Floats]  # coefficients (K, n_columns) and intercepts (K,) on the columns


class Specification(BaseEstimator):  # type: ignore[misc]
    """Base of model specifications: from samples to columns, and from columns to a model.

    It has the interface of a scikit-learn estimator, so it can be cloned, printed and searched
    (``model__...``).
    """

    # scikit-learn would make metadata of it, to be requested by users.
    __metadata_request__transform = {"head": UNUSED}  # noqa: RUF012 (read by scikit-learn)

    is_linear = True  # in the columns
    fit_intercept = True  # of a linear model
    log_odds: int | None = None  # the column with the log odds of two classes, if there is one
    needs_label_rates = False  # whether it has a training of its own, by rates of predicted labels
    learns_from: Any = frozenset()  # sources of learnt columns: the labels, "y", and the "group"
    column_range: Any = None  # (low, high) of columns that are computed from X by public models
    handle: Handle = NO_STORE  # to results that fits of clones of the same estimator share

    def input_tags(self) -> Any:
        """Return scikit-learn's tags for X; here numbers without missing values."""
        return InputTags(sparse=True)

    def check(self) -> None:
        """Raise ValueError for a bad parameter, before any work."""

    def training_rows(self, estimator: Any, X: Any, y: Any, *, reset: bool = True) -> Any:
        """Return X and y, validated by scikit-learn; tensors stay tensors where it allows them.

        ``n_features_in_`` and ``feature_names_in_`` of the estimator are set, or compared if not
        `reset`.
        """
        if type(X).__name__ == "RecordBatch":  # of Arrow; scikit-learn sees no names in it
            X = X.to_pandas()
        if words := texts_and_dates(X):
            raise ValueError(f"X must hold numbers; {words}")
        # Where scikit-learn takes tensors, they stay on their device, in double precision.
        stays = isinstance(X, Tensor) and get_config()["array_api_dispatch"]
        dtype = torch.float64 if stays else [np.float64, np.float32]
        numbers = {"accept_sparse": "csr", "dtype": dtype, "order": "C"}
        return validate_data(estimator, X, plain_labels(y), reset=reset, **numbers)

    def new_rows(self, estimator: Any, X: Any) -> Any:
        """Return X for the model in prediction, validated by scikit-learn."""
        return self.training_rows(estimator, X, "no_validation", reset=False)

    def fit_transform(self, rows: Any, part_of_cell: Callable[[], Any], rng: Generator) -> Any:
        """Learn the columns, and return them for the training rows; here X itself.

        `part_of_cell` returns an array (n_classes, n_groups) with the part of each (label, group)
        cell in the constraints, or -1 for cells in no part.
        """
        return rows.X

    def transform(self, X: Any, head: Head | None = None) -> Any:
        """Return columns of new rows, or columns that suffice for labels by a head; here X."""
        return X

    def build(
        self, X: Features, weight: Tensor, n_outputs: int, alpha: float
    ) -> LinearModel | NetworkModel:
        """Build the model that solvers see for these columns; here a linear model.

        Its coordinates suit rows of these weights (n,) and the l2 penalty `alpha`. A network that
        does not return scores of shape (n, n_outputs) is a ValueError.
        """
        return LinearModel.preconditioned(X, weight, n_outputs, alpha, self.fit_intercept)

    def build_private(
        self, centre: Tensor, scale: Tensor, n_outputs: int, public_range: Any, run: Any = None
    ) -> LinearModel | NetworkModel:
        """Build the model without reading the data, for private training.

        Linear models and perceptrons see ``(x - centre) / scale``, by public or released values
        (n_features,). In a `public_range` of columns, (low, high), perceptrons may see where a
        number lies. Linear models also have coefficients for the sums of runs of columns: `run` has
        the index of each column's run, -1 for none. It is a ValueError if a network mixes rows.
        """
        # Without an intercept the scores are zero at the origin, so it must not move.
        origin = centre if self.fit_intercept else torch.zeros_like(centre)
        transform = 1.0 / scale if run is None else with_sums(1.0 / scale, run)
        return LinearModel(n_outputs, origin, transform, self.fit_intercept, scale)


class Linear(Specification):
    r"""Scores that are linear in the columns, :math:`z = X \beta + b`.

    Parameters
    ----------
    fit_intercept : bool, default=True
        Whether there is an intercept b, which is not penalised.

    Examples
    --------
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.models import Linear
    >>> RateConstrainedClassifier(model=Linear(fit_intercept=False)).get_params()[
    ...     "model__fit_intercept"]
    False
    """

    def __init__(self, *, fit_intercept: bool = True):
        self.fit_intercept = fit_intercept


class Network(Specification):
    """A neural network: a multilayer perceptron, or your own torch module.

    Parameters
    ----------
    layers : sequence of int or callable, default=(64, 32)
        Sizes of the hidden layers of a perceptron with rectified linear units. Or a function
        ``(n_features, n_outputs) -> torch.nn.Module``, with one output for two classes; it receives
        the columns unchanged.
    n_bins : int or None, default=64
        A perceptron sees each column of more than two values through ramps within at most this many
        bins, and learns steps and bends in a column quickly; neither units nor outliers matter. In
        private training the bins divide the public ``feature_range`` of a column into equal parts,
        and a column with the range (0, 1) counts as an indicator. None, or privately without
        ranges: columns are standardised.

    Notes
    -----
    Under the default solver a perceptron with at least two units per layer and output starts at the
    constrained linear model. Held-out rows decide how far it moves from there.

    Examples
    --------
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.models import Network
    >>> RateConstrainedClassifier(model=Network((8,)))
    RateConstrainedClassifier(model=Network(layers=(8,)))
    """

    is_linear = False

    def __init__(self, layers: Any = (64, 32), *, n_bins: int | None = 64):
        self.layers = layers
        self.n_bins = n_bins

    def check(self) -> None:
        """Raise ValueError unless the layers are sizes or a function that makes a module."""
        # A module is callable too, so that this comes first.
        if isinstance(self.layers, nn.Module):
            raise ValueError(
                "model must be a function that makes a module, so that each fit begins with a new "
                "one: lambda n_features, n_outputs: module. It got a module, "
                f"{type(self.layers).__name__}."
            )
        if not (callable(self.layers) or are_sizes(self.layers)):
            raise ValueError(
                "Network.layers must be a sequence of positive integers, or a callable "
                f"(n_features, n_outputs) -> nn.Module; got {self.layers!r}."
            )
        if self.n_bins is not None and not are_sizes([self.n_bins]):
            raise ValueError(
                f"Network.n_bins must be a positive integer or None; got {self.n_bins!r}."
            )

    def build(self, X: Features, weight: Tensor, n_outputs: int, alpha: float) -> NetworkModel:
        """Build the network; a perceptron encodes or standardises the columns by these rows."""
        centre = X.mean(weight)
        scale = standard_scale(column_variances(X, weight, centre))
        if callable(self.layers) or self.n_bins is None:
            return self._network(Standardize(centre, scale), centre, n_outputs)
        return self._network(PiecewiseLinear.of(X, weight, self.n_bins), centre, n_outputs)

    def build_private(
        self, centre: Tensor, scale: Tensor, n_outputs: int, public_range: Any, run: Any = None
    ) -> NetworkModel:
        first: nn.Module = Standardize(centre, scale)
        if public_range is not None and self.n_bins is not None:
            low, high = public_range
            first = PiecewiseLinear.within(low, high, centre, scale, self.n_bins)
        model = self._network(first, centre, n_outputs)
        check_rows_independent(model.network, len(centre))
        return model

    def _network(self, first: nn.Module, like: Tensor, n_outputs: int) -> NetworkModel:
        """Build a network for rows like `like`, (n_features,); a perceptron begins with `first`."""
        kind: type[NetworkModel] = NetworkModel
        if callable(self.layers):
            network = self.layers(len(like), n_outputs)
        else:
            sizes = [first(like[None]).shape[1], *map(int, self.layers), n_outputs]
            linear = [nn.Linear(n_in, n_out) for n_in, n_out in pairwise(sizes)]
            rectified = [part for layer in linear for part in (layer, nn.ReLU())]
            network, kind = nn.Sequential(first, *rectified[:-1]), PerceptronModel
        if not isinstance(network, nn.Module) or not any(
            parameter.requires_grad for parameter in network.parameters()
        ):
            raise ValueError(
                f"model must return an nn.Module with parameters to train; got {network!r}."
            )
        # A factory may return the same module twice, and an earlier fit keeps its own: copy it.
        network = copy.deepcopy(network).to(device=like.device, dtype=like.dtype).eval()
        materialize(network, like.new_zeros((2, len(like))))
        for training in (False, True):
            _check_scores(copy.deepcopy(network).train(training), like, n_outputs)
        return kind(network)


class OfClassifier(Specification):
    """Base of specifications whose parameter `estimator` is a classifier, which reads X itself."""

    estimator: Any

    def input_tags(self) -> Any:
        try:
            return get_tags(self.estimator).input_tags
        except AttributeError:  # a frozen model of another library
            return InputTags(sparse=True, categorical=True, string=True, allow_nan=True)

    def training_rows(self, estimator: Any, X: Any, y: Any, *, reset: bool = True) -> Any:
        """Return X as given, and y as an array; the classifiers check the rest themselves."""
        X, y = validate_data(estimator, X, plain_labels(y), reset=reset, skip_check_array=True)
        X, y = indexable(X, column_or_1d(y, warn=True))
        return X, check_array(y, ensure_2d=False, dtype=None, input_name="y")

    def new_rows(self, estimator: Any, X: Any) -> Any:
        """Return X as given; the classifiers count its columns."""
        return validate_data(estimator, X, reset=False, skip_check_array=True, ensure_2d=False)


class PlainClassifier(OfClassifier):
    """Base of specifications whose fitted classifier, ``estimator_``, is the whole model."""

    needs_label_rates, learns_from = True, frozenset({"y", "group"})
    estimator_: Any
    classes_: NDArray[Any]

    def transform(self, X: Any, head: Head | None = None) -> Floats:
        """Return the scores of the classifier, (n, 1) for two classes, else (n, K)."""
        return scores_of(self.estimator_, X, self.classes_)


def scores_of(model: Any, X: Any, classes: NDArray[Any]) -> Floats:
    """Return log odds or decisions, (n, 1) for two classes, else (n, K)."""
    ((model, X),) = as_codes([model], X)
    evidence = evidence_of(model, X, classes, TINY)
    return np.diff(evidence, axis=1) if len(classes) == 2 else evidence


def are_sizes(given: Any) -> bool:
    """Return whether an object is a sequence of layer sizes that is not empty."""
    several = isinstance(given, Sequence) and len(given) > 0
    return several and all(is_number(n, Integral) and n > 0 for n in given)


def _check_scores(trial: nn.Module, like: Tensor, n_outputs: int) -> None:
    """Check a network's scores of two rows, without touching the global random state."""
    with torch.no_grad(), torch.random.fork_rng():
        given = trial(like.new_zeros((2, len(like))))
    if not (isinstance(given, Tensor) and given.is_floating_point()):
        raise ValueError(
            f"model must give scores as one tensor of real numbers; got {type(given).__name__}"
            f"{f' of {given.dtype}' if isinstance(given, Tensor) else ''}."
        )
    shape = tuple(given.shape)
    if shape != (2, n_outputs) and (shape, n_outputs) != ((2,), 1):
        raise ValueError(
            f"model must give scores of shape (n, {n_outputs}); for 2 rows it gave {shape}. Two "
            "classes take one column, more take one each."
        )
