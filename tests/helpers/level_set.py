"""One step of the level-set method, transcribed from the paper."""

import numpy as np


class ByHand:
    """Algorithm 2 on single rows, transcribed with plain numbers from the paper's F and G.

    alpha is unscaled, with d = c1 alpha^2 in place of alpha^2 (the correction of Lemma 1): what is
    scaled in the code is the same step in alpha.
    """

    def __init__(self, solver, owner, c1, c2, model, ridge):
        self.solver, self.c1, self.c2, self.model, self.ridge = solver, c1, c2, model, ridge
        self.groups = [np.flatnonzero(owner == value) for value in range(max(owner) + 1)]
        n_pairs, n_values = len(owner), len(self.groups)
        self.w = np.zeros(model.n_params)
        self.a, self.b, self.alpha = np.zeros((3, n_pairs))
        self.y, self.t = np.full(n_values, 1 / n_values), 0

    def step(self, x, omega, sides, r, slack):
        """For features x, weight omega over the mean, and 1 / P(set) for the row's sets, else 0."""
        c1, c2, interval = self.c1, self.c2, self.solver.interval * self.c2
        decay = 1.0 / np.sqrt(self.t + 1)
        eta, tau = self.solver.step_size * decay, self.solver.dual_step_size * decay
        scale = 2 * (1 + np.sqrt(2) * np.sqrt(c1) * interval) ** 2
        d = self.model.n_coef
        T = self.model.transform.numpy()
        moved_x = np.append((x - self.model.centre.numpy()) @ T, np.ones(len(self.w) - d))
        a, b, alpha, h = self.a, self.b, self.alpha, moved_x @ self.w
        u, u_ = sides * omega
        F = c1 * c2**2 - 2 * c1 * c2 * h * (u - u_) + c1 * (h - a) ** 2 * u + c1 * (h - b) ** 2 * u_
        G = 2 * c1 * h * (u - u_)
        values = np.array([F[group].sum() for group in self.groups]) - np.append(r, slack)
        s = self.model.scale.numpy()  # the penalty is on the coefficients of standardised columns
        coefficients = s * (T @ self.w[:d])
        values[0] += 0.5 * self.ridge * coefficients @ coefficients
        of_pair = np.zeros(len(a))
        for i, group in enumerate(self.groups):
            of_pair[group] = self.y[i]
        dF = -2 * c1 * c2 * (u - u_) + 2 * c1 * (h - a) * u + 2 * c1 * (h - b) * u_
        grad_w = (of_pair @ dF + (of_pair * alpha) @ (2 * c1 * (u - u_))) * moved_x
        grad_w[:d] += self.y[0] * self.ridge * T.T @ (s * coefficients)
        self.w = self.w - eta * grad_w
        self.a = np.clip(a + eta * 2 * c1 * of_pair * (h - a) * u, -interval, interval)
        self.b = np.clip(b + eta * 2 * c1 * of_pair * (h - b) * u_, -interval, interval)
        # min over alpha of -alpha G + c1 alpha^2 + c1 (alpha - alpha')^2 / tau
        moved = (G + 2 * c1 * alpha / tau) / (2 * c1 + 2 * c1 / tau)
        moved = np.clip(moved, -interval, interval)
        mu = -moved * G + c1 * moved**2 + c1 * (moved - alpha) ** 2 / tau
        sums = np.array([mu[group].sum() for group in self.groups])
        pi = self.y * np.exp(-tau * (sums - values) / scale)
        self.y, self.alpha, self.t = pi / pi.sum(), moved, self.t + 1

    def agrees_with(self, descent):
        """Assert that the code's state is this one, and not where it began."""
        x = np.concatenate((self.w, self.a, self.b))
        np.testing.assert_allclose(descent.x, x, atol=1e-12)
        np.testing.assert_allclose(descent.y.weights, self.y, rtol=1e-12)
        np.testing.assert_allclose(descent.y.alpha, np.sqrt(self.c1) * self.alpha, atol=1e-12)
        assert np.abs(self.w).max() > 1e-3
        assert np.abs(self.alpha).max() > 0
