"""Losses equal their textbook formulas and scikit-learn's, with the right slopes, in any range."""

import numpy as np
import pytest
import torch
from sklearn import metrics

from fairconstrained.losses import (
    LOSSES,
    brier_loss,
    class_probabilities,
    hard_classes,
    log_loss,
    n_outputs,
    zero_one_loss,
)
from tests.helpers.notions import random_rows

losses = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
classes = pytest.mark.parametrize("n_classes", [2, 4])


def as_two_columns(scores):
    """One margin z as scores (-z/2, z/2) of two classes: the softmax of these is the sigmoid."""
    return torch.cat((-0.5 * scores, 0.5 * scores), dim=1)


@classes
def test_probabilities_sum_to_one_and_follow_the_tempered_softmax(n_classes):
    scores = random_rows(0, n_classes).scores
    assert scores.shape[1] == n_outputs(n_classes)
    columns = as_two_columns(scores) if n_classes == 2 else scores
    for temperature in (0.5, 1.0, 3.0):
        power = np.exp(temperature * columns.numpy())
        found = class_probabilities(scores, temperature).numpy()
        np.testing.assert_allclose(found, power / power.sum(axis=1, keepdims=True))
    torch.testing.assert_close(class_probabilities(scores, 2.0), class_probabilities(2.0 * scores))


@classes
def test_log_loss_and_accuracy_equal_scikit_learn(n_classes):
    scores, y, _, weight = random_rows(2, n_classes)
    proba = class_probabilities(scores).numpy()
    labels = list(range(n_classes))
    expected = metrics.log_loss(y, proba, sample_weight=weight, labels=labels)
    assert (weight @ log_loss(scores, y) / weight.sum()).item() == pytest.approx(expected)
    accuracy = metrics.accuracy_score(y, hard_classes(scores))
    assert zero_one_loss(scores, y).mean().item() == pytest.approx(1 - accuracy)


@classes
def test_brier_loss_is_half_the_squared_distance_to_the_one_hot_label(n_classes):
    scores, y, _, _ = random_rows(3, n_classes)
    distance = class_probabilities(scores).numpy() - np.eye(n_classes)[y]
    np.testing.assert_allclose(brier_loss(scores, y).numpy(), 0.5 * (distance**2).sum(axis=1))
    if n_classes == 2:  # scikit-learn's binary Brier loss
        mean = metrics.brier_score_loss(y, class_probabilities(scores)[:, 1])
        assert brier_loss(scores, y).mean().item() == pytest.approx(mean)


@losses
@classes
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_closed_forms_equal_autograd_and_are_finite(loss, n_classes, size):
    scores, y, _, _ = random_rows(4, n_classes)
    scores = (size * scores).requires_grad_()
    row = loss(scores, y)
    (expected,) = torch.autograd.grad(row.sum(), scores)
    torch.testing.assert_close(loss.gradient(scores.detach(), y), expected, rtol=1e-9, atol=1e-12)
    for values in (row, expected, class_probabilities(scores, 10.0)):
        assert values.isfinite().all()


def test_log_loss_is_linear_far_out_and_not_cut_off():
    """-log sigma(-z) = z + log(1 + exp(-z)): no clipping of probabilities hides a bad score."""
    z = torch.tensor([[1e4], [-1e4], [1e4]], dtype=torch.float64)
    assert log_loss(z, torch.tensor([0, 1, 1])).tolist() == [1e4, 1e4, 0.0]


def test_a_tie_goes_to_the_first_class():
    zeros = torch.zeros((1, 1)), torch.zeros((1, 2)), torch.zeros((1, 3))
    assert [hard_classes(scores).item() for scores in zeros] == [0, 0, 0]
