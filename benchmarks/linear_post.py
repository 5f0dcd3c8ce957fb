"""LinearPost: the linear program of Xian and Zhao (2024, arXiv:2405.04025), by scipy's HiGHS.

It takes posteriors for the truth. With p(x) that of the label and d_q(x) = P(part q | x) / P(q),

    min_h  mean_i (1 - 2 p(x_i)) h_i   s.t.  |r_q - r_q'| <= slack,  r_q = mean_i d_q(x_i) h_i

over 0 <= h_i <= 1, and the multipliers mu_q of the last equations make the rule: predict 1 where
1 - 2 p(x) < mu . d(x). As there, uniform noise on the risk breaks ties, so that predictions are
random. Two differences: the rates are fractions of the program's variables here, which leaves it
sparse, and posteriors are whatever the caller has (there: of a model fitted on other rows).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

NOISE = 1e-4  # on the risk, of the paper

Floats = NDArray[np.float64]


def linear_post(
    label: Floats, densities: Floats, combinations: Floats, slack: float, rng: np.random.Generator
) -> Floats:
    """Return multipliers mu, (n_parts,), of the rule ``1 - 2 p(x) + noise < d(x) mu``.

    Parameters
    ----------
    label : ndarray of shape (n,)
        Posterior of label 1.
    densities : ndarray of shape (n, n_parts)
        P(part | x) / P(part).
    combinations : ndarray of shape (m, n_parts)
        Each value combines the parts' rates, and must be at most `slack`.

    Raises
    ------
    RuntimeError
        If HiGHS does not solve the program.
    """
    n, n_parts = densities.shape
    risk = 1.0 - 2.0 * label + NOISE * rng.uniform(size=n)
    free: tuple[float | None, float | None] = (None, None)
    for method in ("highs", "highs-ipm"):  # the simplex method now and then ends without an answer
        solved = linprog(
            # Times n, because HiGHS's tolerance of multipliers is absolute. Scores of a whole group
            # can be near zero, and then a small error in the multipliers changes all its labels.
            np.concatenate((risk, np.zeros(n_parts))),
            A_ub=sparse.hstack((sparse.csr_array((len(combinations), n)), combinations), "csr"),
            b_ub=np.full(len(combinations), slack),
            A_eq=sparse.hstack((densities.T / n, -sparse.eye_array(n_parts)), format="csr"),
            b_eq=np.zeros(n_parts),
            bounds=[(0.0, 1.0)] * n + [free] * n_parts,
            method=method,
            options={"presolve": False},
        )
        if solved.status == 0:
            return np.asarray(solved.eqlin.marginals) / n
    raise RuntimeError(f"HiGHS did not solve the program: {solved.message}")
