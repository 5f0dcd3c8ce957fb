"""Log loss plus a penalty on the correlation of scores with the group (Beutel et al. 2019).

For group AUC only: the other notions are no correlations. The paper's baseline minimises a pairwise
loss by mini-batches; here the log loss, which ranks better, by L-BFGS. `slack` is the weight of the
penalty.
"""

from typing import Any

import numpy as np
from scipy.optimize import minimize

from benchmarks.objectives.auc_fair import ALPHA, Fitted

METHOD = "correlation penalty"
OBJECTIVES = ["auc_fair"]
WEIGHTS = [0.03, 0.1, 0.2, 0.3, 1.0]
SMOOTH = 1e-3  # |r| is sqrt(r^2 + SMOOTH^2)


def slacks(notion: str, asked: list[float]) -> list[float]:
    """Weights of the penalty, for group AUC."""
    return WEIGHTS if notion == "group_auc" else []


def fit(X: Any, y: Any, sensitive_features: Any, *, notion: str, slack: float, seed: int) -> Fitted:
    """Minimise the log loss plus `slack` times the absolute correlation."""
    n, d = X.shape
    sign = 2.0 * y - 1.0
    group = (sensitive_features - sensitive_features.mean()) / sensitive_features.std()

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
    return Fitted(lambda X, groups: X @ found.x[:d] + found.x[d])
