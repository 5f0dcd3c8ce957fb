"""Ranking problems on rows and on the moments of their cells."""

import numpy as np
import torch

from fairconstrained.constraints import AUCParity, Quadratic, Space
from fairconstrained.constraints.moments import Stack
from fairconstrained.models.features import as_features
from fairconstrained.problems import Rows
from fairconstrained.problems.moments import GroupMoments, MomentERM, whitened_model
from fairconstrained.problems.objectives import PairwiseLoss

ALPHA = 1e-2


def rows(seed=0, n=200, d=4, n_groups=2):
    """Features far from zero mean, whose means depend on label and group."""
    rng = np.random.default_rng(seed)
    y, group = np.indices((2, n_groups)).reshape(2, -1)
    y = np.append(y, rng.integers(2, size=n))
    group = np.append(group, rng.integers(n_groups, size=n))
    X = rng.normal(size=(len(y), d)) * [1.0, 3.0, 0.5, 1.0][:d] + 5.0
    X[:, 0] += y + 0.5 * group
    X[:, 1] -= 2.0 * y * group
    weight = rng.exponential(size=len(y)) + 0.1
    return Rows((as_features(X),), *map(torch.as_tensor, (y, group, weight)))


def moments_of(data, n_groups=2):
    return GroupMoments.from_rows(data, n_groups)


def problem(data, notion="inter_group", surrogate="binormal", slack=0.02, n_groups=2):
    space = Space([0, 1], list("abc"[:n_groups]))
    bound = AUCParity(notion, slack, surrogate=surrogate).bind(space, 0.0)
    shares = [float(data.weight[data.y == k].sum() / data.weight.sum()) for k in (0, 1)]
    moments = moments_of(data, n_groups)
    risk = PairwiseLoss(Quadratic(), tuple(shares))
    model = whitened_model(moments, moments.standard_scale(), ALPHA, 1.0)
    return MomentERM(model, data, risk, Stack(space, [bound]), ALPHA, moments=moments)
