"""Partial parity as differences of convex functions, and where a solver starts."""

import numpy as np
import pytest
import torch

from fairconstrained.constraints import (
    PARTIAL,
    PartialStatisticalParity,
)
from tests.helpers.notions import hard_values, random_rows, soft_values
from tests.helpers.numeric import numerical_jacobian
from tests.helpers.partial import CONVEX, INTERVALS, bound, variables

# --- differences of convex functions -------------------------------------------------------------


def notions(surrogate):
    return [
        notion(interval, surrogate=surrogate)
        for interval in INTERVALS
        for notion in (PARTIAL[name] for name in CONVEX)
    ]


every_surrogate = pytest.mark.parametrize("surrogate", ["logistic", "ramp"])


@every_surrogate
def test_convex_minus_concave_is_the_value(surrogate):
    for seed, notion in enumerate(notions(surrogate)):
        rows = random_rows(seed, n=90)
        constraint = bound(notion)
        assert constraint.difference_of_convex
        aux = variables(constraint, rows)
        for scale in (0.1, 1.0, 20.0):
            scaled = rows._replace(scores=scale * rows.scores)
            first, second = constraint.convex_parts(scaled.scores, scaled.on(constraint), aux)
            assert (first - second).numpy() == pytest.approx(
                soft_values(constraint, scaled, aux).numpy(), abs=1e-9
            )


@every_surrogate
def test_both_parts_are_convex_along_segments(surrogate):
    """For scores linear in parameters: midpoints lie below chords, strictly for some."""
    rng = np.random.default_rng(0)
    for seed, notion in enumerate(notions(surrogate)):
        rows = random_rows(seed, n=60)
        X = torch.as_tensor(rng.normal(size=(len(rows.y), 3)))
        constraint = bound(notion)
        bends = np.zeros(2)
        for _ in range(20):
            segment = [random_point(rng, constraint) for _ in range(2)]
            ends = [constraint.convex_parts(X @ w, rows.on(constraint), aux) for w, aux in segment]
            w, aux = (0.5 * (one + other) for one, other in zip(*segment, strict=True))
            middle = constraint.convex_parts(X @ w, rows.on(constraint), aux)
            bend = 0.5 * (ends[0] + ends[1]) - middle
            assert (bend > -1e-12).all()
            bends = np.maximum(bends, bend.max(dim=1).values.numpy())
        assert (bends > 0.01).all()


def random_point(rng, constraint):
    """A random point: parameters of three columns, extra variables."""
    sizes = ((3, 1), (constraint.n_aux,))
    return [torch.as_tensor(2.0 * rng.normal(size=size)) for size in sizes]


@pytest.mark.parametrize("surrogate", ["logistic", "ramp"])
def test_gradients_of_values_and_parts(surrogate):
    """In scores and extra variables, away from kinks."""
    for name, notion in PARTIAL.items():
        rows = random_rows(8, n=30)
        constraint = bound(notion([(0.0, 0.2), (0.4, 0.7)], surrogate=surrogate))
        aux = variables(constraint, rows)

        def values(x, constraint=constraint, rows=rows, name=name):
            moved = rows._replace(scores=x[: len(rows.y), None])
            terms = soft_values(constraint, moved, x[len(rows.y) :])
            if name == "group_auc":
                return terms
            parts = constraint.convex_parts(moved.scores, moved.on(constraint), x[len(rows.y) :])
            return torch.cat((terms, parts.reshape(-1)))

        x = torch.cat((rows.scores[:, 0], aux))
        exact = torch.autograd.functional.jacobian(values, x)
        assert exact.numpy() == pytest.approx(numerical_jacobian(values, x, 1e-6).numpy(), abs=1e-5)


# --- the start -----------------------------------------------------------------------------------


@every_surrogate
@pytest.mark.parametrize("name", PARTIAL)
def test_tied_scores_are_feasible_at_the_start(name, surrogate):
    """Strictly, by the whole slack; whatever the tied score, the intervals and the groups."""
    for interval in INTERVALS:
        for value in (0.0, -2.5):
            rows = random_rows(9)
            rows = rows._replace(scores=torch.full_like(rows.scores, value))
            constraint = bound(PARTIAL[name](interval, surrogate=surrogate))
            aux = constraint.init_aux(rows.scores, rows.on(constraint))
            slack = pytest.approx(np.full(len(constraint.slack), -0.05), abs=1e-9)
            assert hard_values(constraint, rows, aux).numpy() == slack
            assert soft_values(constraint, rows, aux).max().item() <= 1e-9


def test_the_start_puts_thresholds_at_the_grid_s_ranks():
    rows = random_rows(10, n_groups=2, n=400)
    constraint = bound(PartialStatisticalParity((0.1, 0.5), 0.1, n_grid=5), 2, temperature=50.0)
    theta = constraint.init_aux(rows.scores, rows.on(constraint)).numpy()
    rates = [np.mean(rows.scores[rows.group == g].numpy() > theta, axis=0) for g in (0, 1)]
    assert np.mean(rates, axis=0) == pytest.approx(np.linspace(0.12, 0.48, 5), abs=0.02)
    assert (np.diff(theta) < 0).all()
