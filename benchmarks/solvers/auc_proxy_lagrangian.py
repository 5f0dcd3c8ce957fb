"""Proxy-Lagrangian (Cotter et al. 2019): two players, true AUCs for one, smooth ones for the other.

The model descends on mini-batches along the log loss plus the multipliers times a pairwise sigmoid
in place of each AUC; the multipliers ascend along the true AUCs of the batch. As in the paper, the
best point seen that keeps the training gap is kept, or else the nearest.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score
from torch import Tensor

from benchmarks.objectives.auc_fair import ALPHA, Fitted, differences
from benchmarks.objectives.rate_constrained import dense
from fairconstrained.auc import COMPARISONS

METHOD = "proxy-Lagrangian"
OBJECTIVES = ["auc_fair"]
STEPS, BATCH, LOOKS = 1_500, 256, 30
STEP_SIZE, DUAL_STEP_SIZE = 0.02, 0.05


def slacks(notion: str, asked: list[float]) -> list[float]:
    """Every notion at every slack."""
    return asked


def fit(X: Any, y: Any, sensitive_features: Any, *, notion: str, slack: float, seed: int) -> Fitted:
    """Play both sides on the same batches."""
    rng = np.random.default_rng(seed)
    rows, mean, deviation = _standardised(dense(X))
    labels = torch.as_tensor(y, dtype=torch.float64)
    sets = torch.as_tensor(COMPARISONS[notion](2)[0].reshape(4, 4), dtype=torch.float64)
    member = sets[:, torch.as_tensor(y * 2 + sensitive_features)]
    w = torch.zeros(rows.shape[1] + 1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([w], lr=STEP_SIZE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    multiplier = 0.0  # of the difference with its sign: one of the two constraints is slack
    best: tuple[tuple[float, float], Any] | None = None
    for step in range(1, STEPS + 1):
        batch = torch.as_tensor(rng.integers(len(y), size=BATCH))
        z = rows[batch] @ w[:-1] + w[-1]
        pairs = z[:, None] - z[None, :]
        proxy = _difference(torch.sigmoid(2.0 * pairs), member[:, batch])
        loss = F.binary_cross_entropy_with_logits(z, labels[batch])
        loss = loss + 0.5 * ALPHA * ((w[:-1] / deviation) ** 2).sum() + multiplier * proxy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        true = _difference(0.5 * (1.0 + torch.sign(pairs.detach())), member[:, batch]).item()
        decay = schedule.get_last_lr()[0] / STEP_SIZE
        ascent = multiplier + decay * DUAL_STEP_SIZE * true
        multiplier = _towards_zero(ascent, decay * DUAL_STEP_SIZE * slack)
        schedule.step()
        if step % (STEPS // LOOKS) == 0:
            scores = (rows @ w[:-1] + w[-1]).detach().numpy()
            gap = np.abs(differences(y, sensitive_features, scores, notion)).max()
            merit = max(gap, slack), 1.0 - roc_auc_score(y, scores)
            if best is None or merit < best[0]:
                best = merit, w.detach().clone().numpy()
    assert best is not None
    coef = best[1][:-1] / deviation.numpy()
    intercept = best[1][-1] - mean.numpy() @ coef
    return Fitted(lambda X, groups: X @ coef + intercept)


def _standardised(X: Any) -> tuple[Tensor, Tensor, Tensor]:
    rows = torch.as_tensor(X)
    mean, deviation = rows.mean(dim=0), rows.std(dim=0).clamp_min(1e-3)
    return (rows - mean) / deviation, mean, deviation


def _difference(wins: Tensor, member: Tensor) -> Tensor:
    """AUC(G1, G1') - AUC(G2, G2') of a batch; a set without rows counts as a tie."""
    a, b, c, d = member
    sizes = [(x.sum() * y.sum()).clamp_min(1.0) for x, y in ((a, b), (c, d))]
    return a @ wins @ b / sizes[0] - c @ wins @ d / sizes[1]


def _towards_zero(value: float, by: float) -> float:
    return float(np.sign(value) * max(abs(value) - by, 0.0))
