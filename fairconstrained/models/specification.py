"""What the ``model`` parameter of an estimator may be: specifications of models, and short forms.

A specification says how rows become columns (:meth:`Specification.fit_transform`,
:meth:`Specification.transform`) and which model of flat parameters solvers see for these columns
(:meth:`Specification.build`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import InputTags
from sklearn.utils.validation import validate_data
from torch import Generator, Tensor, nn

from fairconstrained.models.base import column_variances
from fairconstrained.models.features import Features
from fairconstrained.models.linear import LinearModel, ScaledLinearModel
from fairconstrained.models.network import NetworkModel
from fairconstrained.models.per_row import check_rows_independent
from fairconstrained.models.perceptron import PerceptronModel
from fairconstrained.models.standardize import Standardize

__all__ = [
    "Linear",
    "Network",
    "Specification",
    "Standardize",
    "are_sizes",
    "multilayer_perceptron",
]


_AS_NUMBERS = {"accept_sparse": "csr", "dtype": np.float64, "order": "C"}


class Specification(BaseEstimator):  # type: ignore[misc]
    """Base of what ``model`` may be: from rows to columns, and from columns to a model.

    A scikit-learn estimator in form: it can be cloned, printed and searched (``model__...``).
    """

    linear: bool  # whether scores are linear in the parameters that solvers see
    learns_columns = False  # from all rows: then neither private training nor streams are possible

    def input_tags(self) -> Any:
        """What X may be, in scikit-learn's words; here numbers without missing values."""
        return InputTags(sparse=True)

    def check(self) -> None:
        """Raise ValueError for a bad parameter, before any work."""

    def training_rows(self, estimator: Any, X: Any, y: Any, *, reset: bool = True) -> Any:
        """X and y as the model takes them, checked by scikit-learn.

        Parameters
        ----------
        estimator : BaseEstimator
            Whose ``n_features_in_`` and ``feature_names_in_`` are set, or compared if not `reset`.
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        reset : bool, default=True
        """
        # Torch warns of read-only memory, which joblib's workers get.
        return validate_data(estimator, X, y, reset=reset, force_writeable=True, **_AS_NUMBERS)

    def new_rows(self, estimator: Any, X: Any) -> Any:
        """X as the model takes it in prediction, checked by scikit-learn."""
        return validate_data(estimator, X, reset=False, **_AS_NUMBERS)

    def fit_transform(
        self,
        X: Any,
        y: NDArray[np.int64],
        group: NDArray[np.int64],
        weight: NDArray[np.float64],
        *,
        classes: NDArray[Any],
        part_of_cell: Callable[[], NDArray[np.int64]],
        rng: Generator,
    ) -> Any:
        """Learn the columns and give those of the training rows; here the columns as given.

        Parameters
        ----------
        X : as :meth:`training_rows` gives it
        y, group : ndarray of shape (n,)
            Class and group indices.
        weight : ndarray of shape (n,)
        classes : ndarray of shape (n_classes,)
            The labels that the class indices stand for.
        part_of_cell : callable
            Gives what the constraints ask for, an array of shape (n_classes, n_groups): the part of
            the rows of each label and group, -1 where they take no part.
        rng : Generator
            Source of randomness.
        """
        return X

    def transform(self, X: Any) -> Any:
        """Columns of new rows; here the columns as given."""
        return X

    def build(
        self, X: Features, weight: Tensor, n_outputs: int, alpha: float
    ) -> LinearModel | NetworkModel:
        """Give the model that solvers see for these columns.

        Parameters
        ----------
        X : Features
        weight : Tensor of shape (n,)
        n_outputs : int
            Columns that the scores must have.
        alpha : float
            The l2 penalty, for the coordinates of a linear model.

        Raises
        ------
        ValueError
            If a network does not give scores of shape (n, n_outputs).
        """
        raise NotImplementedError

    def build_private(
        self, centre: Tensor, scale: Tensor, n_outputs: int
    ) -> LinearModel | NetworkModel:
        """Give the model without a look at the data, for private training.

        Parameters
        ----------
        centre, scale : Tensor of shape (n_features,)
            Public or released: linear models and perceptrons see ``(x - centre) / scale``.
        n_outputs : int

        Raises
        ------
        ValueError
            As :meth:`build`, and if a network mixes the rows of a batch.
        """
        raise NotImplementedError


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

    linear = True

    def __init__(self, *, fit_intercept: bool = True):
        self.fit_intercept = fit_intercept

    def build(self, X: Features, weight: Tensor, n_outputs: int, alpha: float) -> LinearModel:
        """Give a linear model in coordinates in which training is well conditioned."""
        return LinearModel.preconditioned(X, weight, n_outputs, alpha, self.fit_intercept)

    def build_private(self, centre: Tensor, scale: Tensor, n_outputs: int) -> LinearModel:
        """Give a linear model of ``(x - centre) / scale``."""
        # Without an intercept the origin matters: scores are zero there.
        origin = centre if self.fit_intercept else torch.zeros_like(centre)
        return ScaledLinearModel(n_outputs, origin, 1.0 / scale, self.fit_intercept)


class Network(Specification):
    """A neural network: a perceptron with hidden layers of given sizes, or a module of your own.

    Parameters
    ----------
    layers : sequence of int or callable, default=(64, 32)
        Sizes of the hidden layers, which are rectified and see standardised columns; or a function
        ``(n_features, n_outputs) -> torch.nn.Module`` (one output for two classes).

    Examples
    --------
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.models import Network
    >>> RateConstrainedClassifier(model=Network((8,)))
    RateConstrainedClassifier(model=Network(layers=(8,)))
    """

    linear = False

    def __init__(self, layers: Any = (64, 32)):
        self.layers = layers

    def check(self) -> None:
        """Raise ValueError unless the layers are sizes or a callable."""
        if not (callable(self.layers) or are_sizes(self.layers)):
            raise ValueError(
                "Network.layers must be a sequence of positive integers, or a callable "
                f"(n_features, n_outputs) -> nn.Module; got {self.layers!r}."
            )

    def build(self, X: Features, weight: Tensor, n_outputs: int, alpha: float) -> NetworkModel:
        """Give the network; a perceptron standardises the columns by these rows."""
        centre = X.mean(weight)
        deviation = column_variances(X, weight, centre).sqrt()
        scale = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
        return self._network(centre, scale, n_outputs)

    def build_private(self, centre: Tensor, scale: Tensor, n_outputs: int) -> NetworkModel:
        """Give the network, whose rows must not depend on each other."""
        model = self._network(centre, scale, n_outputs)
        check_rows_independent(model.network, len(centre))
        return model

    def _network(self, centre: Tensor, scale: Tensor, n_outputs: int) -> NetworkModel:
        kind: type[NetworkModel] = NetworkModel
        if callable(self.layers):
            network = self.layers(len(centre), n_outputs)
        else:
            network = multilayer_perceptron(centre, scale, list(map(int, self.layers)), n_outputs)
            kind = PerceptronModel
        if not isinstance(network, nn.Module) or not any(
            parameter.requires_grad for parameter in network.parameters()
        ):
            raise ValueError(
                f"model must return an nn.Module with parameters to train; got {network!r}."
            )
        # A copy: a factory may give the same module twice, and a former fit keeps its own.
        network = copy.deepcopy(network).to(device=centre.device, dtype=centre.dtype).eval()
        for training in (False, True):
            _check_scores(copy.deepcopy(network).train(training), centre, n_outputs)
        return kind(network)


def multilayer_perceptron(
    centre: Tensor, scale: Tensor, hidden: Sequence[int], n_outputs: int
) -> nn.Sequential:
    """Rectified layers of the given sizes, on ``(x - centre) / scale``."""
    layers: list[nn.Module] = [Standardize(centre, scale)]
    sizes = [len(centre), *hidden]
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], n_outputs))


def are_sizes(given: Any) -> bool:
    """Whether these are sizes of layers."""
    return (
        isinstance(given, Sequence)
        and len(given) > 0
        and all(
            isinstance(n, (int, np.integer)) and not isinstance(n, bool) and bool(n > 0)
            for n in given
        )
    )


def _check_scores(trial: nn.Module, like: Tensor, n_outputs: int) -> None:
    """Try on two rows: the copy, and the global random numbers, are not those of training."""
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
