"""Probabilities of groups from the rows whose group is known, by any classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.validation import _num_samples

from fairconstrained.arrays import as_numpy
from fairconstrained.groups import EstimatedGroups, known_fraction
from fairconstrained.inputs.groups import encode_groups
from fairconstrained.inputs.samples import check_samples
from fairconstrained.models.cross_fitting import (
    assign_folds,
    calibrated,
    cross_fit,
    is_scoring_classifier,
)


def estimate_group_probabilities(
    classifier: Any,
    X: Any,
    sensitive_features: Any,
    *,
    y: Any = None,
    cv: int = 5,
    random_state: Any = None,
) -> EstimatedGroups:
    r"""Estimate the groups of all rows from rows of known group, by any classifier.

    The result holds the probability of each group, and the known groups, which correct it.

    With `y` it is :math:`P(g \mid x, y)`, which criteria within labels need, from one classifier
    for each label; without, :math:`P(g \mid x)`. The classifier is fitted once for each fold of the
    rows, on the known groups of the others, and each row gets the prediction of the fit that has
    not seen it. A logistic regression on these predictions calibrates them, so that they are right
    on average (within each label).

    Parameters
    ----------
    classifier : classifier
        With ``predict_proba`` or ``decision_function``. It receives X unchanged and is cloned.
    X : array-like of shape (n_samples, n_features)
        What tells the groups apart. For a model of `X` it should hold all features of the model, so
        that its predictions say nothing more about the group.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        The groups; missing where they are to be estimated.
    y : array-like of shape (n_samples,), optional
        Labels.
    cv : int, default=5
        Number of folds.
    random_state : int, RandomState or None, default=None
        Shuffles the rows into folds, and seeds classifiers that have no seed of their own.

    Returns
    -------
    EstimatedGroups
        Unbiased, however good the classifier is. Its `probabilities` are not corrected.

    Raises
    ------
    ValueError
        If the classifier is none, if lengths differ, if no group is known (within some label), or
        if `cv` is less than 2.

    Notes
    -----
    The estimates hold for rows of unknown group if groups are missing at random within each label,
    or at random if no `y` is given. The better the classifier, the more certain they are.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.models import estimate_group_probabilities
    >>> data = make_biased_classification(1000, random_state=0)
    >>> partly = np.where(np.arange(1000) < 500, data.sensitive_features, np.nan)
    >>> estimate_group_probabilities(LogisticRegression(), data.data, partly, y=data.target)
    <EstimatedGroups of 1000 samples, [0.0, 1.0]>
    """
    if not is_scoring_classifier(classifier):
        raise ValueError(
            f"classifier must have fit, and predict_proba or decision_function; got {classifier!r}."
        )
    if cv < 2:
        raise ValueError(f"cv must be at least 2 folds; got {cv!r}.")
    check_samples(X=X, sensitive_features=sensitive_features, y=y)
    groups = encode_groups(sensitive_features, _num_samples(X))
    codes, labels = groups.certain("estimate_group_probabilities")
    of_row = np.zeros(len(codes)) if y is None else column_or_1d(as_numpy(y))
    known_fraction(groups.known, y)  # raises
    rng, kinds = check_random_state(random_state), np.arange(len(labels))
    label = np.unique(of_row, return_inverse=True)[1].reshape(-1)
    fold = assign_folds(label * (len(labels) + 1) + codes, cv, rng)
    folds = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(cv)]
    probabilities = np.zeros((len(codes), len(labels)))
    weight = np.ones(len(codes))
    for k in np.unique(label):
        rows = label == k
        used, there = rows & groups.known, np.unique(codes[rows & groups.known])
        place = np.minimum(np.searchsorted(there, codes), len(there) - 1)
        options = {"X": X, "folds": folds, "rng": rng, "sample_weight": None}
        _, evidence = cross_fit(classifier, kinds[there], place, used, **options)
        out_of_fold = calibrated([evidence], place, weight, used).posteriors(evidence)
        probabilities[np.ix_(rows, there)] = out_of_fold[rows]
    names = pd.Index(labels.tolist(), tupleize_cols=False)
    index = getattr(sensitive_features, "index", None)
    is_index = hasattr(index, "equals")  # lists have a method of this name
    table = pd.DataFrame(probabilities, index if is_index else None, names)
    return EstimatedGroups(sensitive_features, table, y=y)
