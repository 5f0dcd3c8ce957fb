"""Rankings: AUCFairClassifier as a user gets it, with other objectives, and its baselines."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from benchmarks.objectives.auc_fair import (
    FREE,
    NETWORK,
    ONLINE,
    OURS,
    OURS_WITH_GROUPS,
    PROXY,
    RESCALED,
    WITH_MARGIN,
    differences,
)
from benchmarks.objectives.rate_constrained import ALPHA, Rows, base_model, dense
from benchmarks.solvers import Cells, Method, grid, without_slack
from fairconstrained import AUCFairClassifier
from fairconstrained.constraints import AUCParity
from fairconstrained.exact_auc import COMPARISONS
from fairconstrained.solvers import QCQP, LevelSet, cosine

# True gaps do not follow the slack of a surrogate: from 0.01 to where it no longer binds.
SURROGATE_SLACKS = [0.01, 0.1, 0.3, 0.6, 1.0]
WIDE = [0.2, 0.3]  # others have points there, so our frontier has to reach as far
WEIGHTS = [0.03, 0.1, 0.2, 0.3, 1.0]  # of the penalty on the correlation
PROXY_STEPS = 1_500
CHUNK = 500  # rows of a call; the model does not depend on it
# Of 0.02, 0.005 and 0.002 it has the least training objective on COMPAS: a row is noisier than 100.
STEP_OF_A_ROW = 0.005
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


def one_at_a_time(train: Rows, *, constraint: str, slack: float, seed: int) -> Any:
    """Take one step of the paper's level sets for each row, which is then forgotten."""
    criterion = AUCParity(constraint, surrogate="quadratic")
    solver = LevelSet(batch_size=1, step_size=STEP_OF_A_ROW)
    model = AUCFairClassifier(criterion, slack=slack, alpha=ALPHA, solver=solver, random_state=seed)
    for rows in np.array_split(np.arange(len(train.y)), len(train.y) // CHUNK):
        model.partial_fit(train.X[rows], train.y[rows], sensitive_features=train.groups[rows])
    return lambda X, groups: model.decision_function(X)


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


def proxy_lagrangian(train: Rows, *, constraint: str, slack: float, seed: int) -> Any:
    """Play smooth AUCs against true ones on mini-batches (Cotter et al. 2019).

    The model descends along the log loss plus the multiplier times a pairwise sigmoid, and the
    multiplier ascends along the true gap of the batch. As in the paper, of the points that are
    looked at the one of highest AUC that keeps the training gap is the result, or the nearest.
    """
    rng = np.random.default_rng(seed)
    scale = StandardScaler().fit(dense(train.X))
    X, y = torch.as_tensor(scale.transform(dense(train.X))), torch.as_tensor(train.y).double()
    sets = COMPARISONS[constraint](2)[0].reshape(4, 4)[:, train.y * 2 + train.groups]
    member = torch.as_tensor(sets).double()
    w = torch.zeros(X.shape[1] + 1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([w], lr=0.02)
    multiplier, best = 0.0, (math.inf, math.inf, w.detach())

    def difference(wins: Tensor, batch: Any) -> Tensor:
        a, b, c, d = member[:, batch]  # a set without rows counts as a tie
        first, second = ((u.sum() * v.sum()).clamp_min(1.0) for u, v in ((a, b), (c, d)))
        return a @ wins @ b / first - c @ wins @ d / second

    for step in range(PROXY_STEPS):
        batch, decay = rng.integers(len(y), size=256), cosine(step / PROXY_STEPS)
        z = X[batch] @ w[:-1] + w[-1]
        pairs = z[:, None] - z[None, :]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(z, y[batch])
        proxy = multiplier * difference(torch.sigmoid(2.0 * pairs), batch)
        optimizer.zero_grad()
        (loss + 0.5 * ALPHA * (w[:-1] ** 2).sum() + proxy).backward()
        optimizer.param_groups[0]["lr"] = 0.02 * decay
        optimizer.step()
        true = float(difference(0.5 + 0.5 * torch.sign(pairs.detach()), batch))
        moved = multiplier + 0.05 * decay * true
        # Of the two bounds one is slack: its multiplier is zero.
        multiplier = math.copysign(max(abs(moved) - 0.05 * decay * slack, 0.0), moved)
        if step % 50 == 49:
            scores = (X @ w[:-1] + w[-1]).detach().numpy()
            gap = float(np.abs(differences(train.y, train.groups, scores, constraint)).max())
            best = min(
                best, (max(gap, slack), 1.0 - roc_auc_score(train.y, scores), w.detach() * 1)
            )
    coef = best[2].numpy()
    return lambda X, groups: scale.transform(dense(X)) @ coef[:-1]


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
    "auc_one_at_a_time": Method(ONLINE, [], one_at_a_time),
    "auc_default_with_groups": Method(OURS_WITH_GROUPS, NAME, fit_with_groups),
    "auc_correlation_penalty": Method(
        "correlation penalty", NAME, correlation_penalty, correlation_cells
    ),
    "auc_proxy_lagrangian": Method(PROXY, [], proxy_lagrangian),
    "auc_rescaled_group": Method(RESCALED, NAME, rescaled_group, between_groups),
    "auc_unconstrained": Method(FREE, NAME, unconstrained, without_slack),
}
