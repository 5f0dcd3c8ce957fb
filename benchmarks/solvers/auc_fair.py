"""Rankings: AUCFairClassifier as a user gets it, with other objectives, and its baselines."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

from benchmarks.objectives.auc_fair import (
    FREE,
    NETWORK,
    OURS,
    OURS_WITH_GROUPS,
    RESCALED,
    WITH_MARGIN,
)
from benchmarks.objectives.rate_constrained import ALPHA, Rows, base_model
from benchmarks.solvers import Cells, Method, grid, without_slack
from fairconstrained import AUCFairClassifier
from fairconstrained.constraints import AUCParity
from fairconstrained.solvers import QCQP

# True gaps do not follow the slack of a surrogate: from 0.01 to where it no longer binds.
SURROGATE_SLACKS = [0.01, 0.1, 0.3, 0.6, 1.0]
WIDE = [0.2, 0.3]  # others have points there, so our frontier has to reach as far
WEIGHTS = [0.03, 0.1, 0.2, 0.3, 1.0]  # of the penalty on the correlation
SMOOTH = 1e-3  # |r| is sqrt(r^2 + SMOOTH^2)
# Of the paper on rescaling; AUCs of the grid are exact to about 1 / QUANTILES.
SCALES, OFFSETS, QUANTILES = np.arange(0.05, 5.001, 0.05), np.arange(-3.0, 3.001, 0.1), 200


def ranker(name: str, surrogate: str = "soft_bins", **options: Any) -> Method:
    """Return the classifier with these parameters."""

    def fit(train: Rows, *, constraint: str, slack: float, seed: int) -> Any:
        given = {"slack": slack, "alpha": ALPHA, "random_state": seed, **options}
        model = AUCFairClassifier(AUCParity(constraint, surrogate=surrogate), **given)
        model.fit(train.X, train.y, sensitive_features=train.groups)
        return lambda X, groups: model.decision_function(X)

    return Method(name, ["auc_fair"], fit)


def default_cells(asked: dict[str, list[Any]]) -> Cells:
    """Return wide slacks as well."""
    return grid({**asked, "slack": sorted({*asked["slack"], *WIDE})})


def fit_with_groups(train: Rows, *, constraint: str, slack: float, seed: int) -> Any:
    """Train the default with each column once more, zero outside of the second group.

    The scores of one group can then be rescaled, as by the post-processing, and everybody's group
    is needed to predict.
    """
    model = AUCFairClassifier(constraint, slack=slack, alpha=ALPHA)
    columns = _with_groups(train.X, train.groups)
    model.fit(columns, train.y, sensitive_features=train.groups)
    return lambda X, groups: model.decision_function(_with_groups(X, groups))


def _with_groups(X: Any, groups: Any) -> Any:
    second = np.asarray(groups == 1, dtype=float)[:, None]
    if sparse.issparse(X):
        return sparse.csr_array(sparse.hstack([X, X.multiply(second), second]))
    return np.hstack([X, X * second, second])


def correlation_penalty(train: Rows, *, constraint: str, slack: float, seed: int) -> Any:
    """Minimise the log loss plus `slack` times the absolute correlation of scores with the group.

    Beutel et al. (2019) minimise a pairwise loss by mini-batches; here the log loss, which ranks
    better, by L-BFGS.
    """
    X, y = train.X, train.y
    n, d = X.shape
    sign = 2.0 * y - 1.0
    group = (train.groups - train.groups.mean()) / train.groups.std()

    def penalised(w: Any) -> tuple[float, Any]:
        z = X @ w[:d] + w[d]
        margin = sign * z
        centred = z - z.mean()
        deviation = np.sqrt((centred**2).mean() + 1e-12)
        r = float(group @ centred) / n / deviation
        smooth = np.sqrt(r**2 + SMOOTH**2)
        on_loss = -sign / (1.0 + np.exp(margin))
        on_correlation = (group - r * centred / deviation) / deviation
        on_scores = (on_loss + slack * r / smooth * on_correlation) / n
        gradient = np.append(X.T @ on_scores + ALPHA * w[:d], on_scores.sum())
        value = np.logaddexp(0.0, -margin).mean() + slack * smooth + 0.5 * ALPHA * w[:d] @ w[:d]
        return value, gradient

    start = np.append((X.T @ (y - y.mean())) / n, 0.0)
    found = minimize(penalised, start, jac=True, method="L-BFGS-B", options={"maxiter": 1_000})
    return lambda X, groups: X @ found.x[:d] + found.x[d]


def correlation_cells(asked: dict[str, list[Any]]) -> Cells:
    """Return the weights for group AUC: the other notions are no correlations."""
    wanted = [name for name in asked["constraint"] if name == "group_auc"]
    return grid({"constraint": wanted, "slack": WEIGHTS})


def rescaled_group(train: Rows, *, constraint: str, slack: float, seed: int) -> Any:
    """Replace one group's scores by w1 score + w2 (Kallus and Zhou 2019).

    The paper's grid of w1 and w2, on the scores of a logistic regression without constraints in
    units of their deviation; among the pairs that keep the training gap the one of highest AUC. It
    needs everybody's group to predict, and cannot change the AUC within a group.
    """
    X, y = train.X, train.y
    model = base_model(len(y)).fit(X, y)
    scores = model.decision_function(X)
    mean, deviation = scores.mean(), scores.std()
    z = (scores - mean) / deviation
    levels = (np.arange(QUANTILES) + 0.5) / QUANTILES
    cells = [(label, group) for label in (0, 1) for group in (0, 1)]
    masks = [(y == label) & (train.groups == group) for label, group in cells]
    quantiles = [np.quantile(z[mask], levels) for mask in masks]
    fractions = np.array([mask.mean() for mask in masks])

    def quality(pair: tuple[float, float]) -> tuple[float, float]:
        scale, offset = pair
        moved = [
            scale * q + offset if group else q
            for q, (_, group) in zip(quantiles, cells, strict=True)
        ]
        gap, auc = _gap_and_auc(moved, fractions, constraint)
        return max(gap, slack), -auc

    scale, offset = min(product(SCALES, OFFSETS), key=quality)

    def rescaled(X: Any, groups: Any) -> NDArray[np.float64]:
        z = (model.decision_function(X) - mean) / deviation
        return np.where(groups == 1, scale * z + offset, z)

    return rescaled


def _gap_and_auc(
    cells: list[NDArray[np.float64]], fractions: NDArray[np.float64], constraint: str
) -> tuple[float, float]:
    """Compute both from sorted scores of the cells (label, group): 00, 01, 10, 11."""
    of_pairs = np.array([[np.searchsorted(b, a).mean() / len(b) for b in cells] for a in cells])
    weights = np.outer(fractions, fractions)
    auc = (weights * of_pairs)[2:, :2].sum() / weights[2:, :2].sum()
    if constraint == "inter_group":
        return abs(of_pairs[3, 0] - of_pairs[2, 1]), auc
    between = (weights * of_pairs)[np.ix_((1, 3), (0, 2))].sum()
    return abs(between / weights[np.ix_((1, 3), (0, 2))].sum() - 0.5), auc


def between_groups(asked: dict[str, list[Any]]) -> Cells:
    """Return the runs of the two notions between groups that the paper post-processes."""
    return [cell for cell in grid(asked) if cell["constraint"] in ("group_auc", "inter_group")]


def unconstrained(train: Rows, *, constraint: str, slack: float, seed: int) -> Any:
    """Train LogisticRegression without the sensitive features."""
    model = base_model(len(train.y)).fit(train.X, train.y)
    return lambda X, groups: model.decision_function(X)


NAME = ["auc_fair"]
SOLVERS = {
    "auc_default": ranker(OURS)._replace(cells=default_cells),
    # With probabilities of its own, under the AUCs of normal scores.
    "auc_log_loss": ranker("fairconstrained, log loss", "binormal", objective="log"),
    # The slack is narrowed by one standard error of the training gap.
    "auc_with_margin": ranker(WITH_MARGIN, margin=1.0),
    # As in Figures 2 and 4 of the same paper.
    "auc_network": ranker(NETWORK, model=(10,))._replace(OBJECTIVES=[]),
    # Quadratic surrogates of all AUCs (Yao, Lin, Yang 2023), solved exactly from group moments.
    "auc_surrogate_exact": ranker(
        "quadratic surrogate, exact", "quadratic", solver=QCQP()
    )._replace(cells=lambda asked: grid({**asked, "slack": SURROGATE_SLACKS})),
    "auc_default_with_groups": Method(OURS_WITH_GROUPS, NAME, fit_with_groups),
    "auc_correlation_penalty": Method(
        "correlation penalty", NAME, correlation_penalty, correlation_cells
    ),
    "auc_rescaled_group": Method(RESCALED, NAME, rescaled_group, between_groups),
    "auc_unconstrained": Method(FREE, NAME, unconstrained, without_slack),
}
