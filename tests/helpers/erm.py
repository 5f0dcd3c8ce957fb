"""Problems of the log loss under notions, on rows that a test makes."""

import numpy as np
import torch

from fairconstrained.constraints import Space
from fairconstrained.constraints.moments import stacked
from fairconstrained.datasets import make_biased_classification
from fairconstrained.fit.task import as_specification
from fairconstrained.losses import log_loss
from fairconstrained.models.features import as_features
from fairconstrained.problems import FairERM, Rows
from fairconstrained.problems.objectives import MeanLoss


def erm(X, y, group, notions=(), *, weight=None, model="linear", alpha=1e-3, slack=0.05):
    """The problem in the coordinates that estimators use; groups and labels are 0, 1, ..."""
    space = Space(list(range(int(max(y)) + 1)), list(range(int(max(group)) + 1)))
    columns = (y, group, np.ones(len(y)) if weight is None else weight)
    X = as_features(X)
    data = Rows((X,), *map(torch.as_tensor, columns))
    stack = stacked(space, [notion.bind(space, slack) for notion in notions])
    outputs = 1 if len(space.classes) == 2 else len(space.classes)
    made = as_specification(model).build(X, data.weight, outputs, alpha)
    return FairERM(made, data, MeanLoss(log_loss), stack, alpha)


def separated(notion, model="linear", n=150, slack=0.05):
    data = make_biased_classification(n, 6, 2, 2, bias=0.3, class_sep=1.5, random_state=1)
    torch.manual_seed(0)
    given = data.data, data.target, data.sensitive_features
    return erm(*given, [notion], model=model, alpha=1e-2, slack=slack)
