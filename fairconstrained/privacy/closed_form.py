"""The noise of DP-FERMI by the formulas of its paper."""

from __future__ import annotations

import math

from fairconstrained.privacy.accounting import Unit, check_budget, check_positive

__all__ = ["fermi_closed_form_sigmas"]


def fermi_closed_form_sigmas(
    *,
    epsilon: float,
    delta: float,
    n_rows: int,
    n_steps: int,
    batch_size: int,
    least_proportion: float,
    lipschitz: float,
    dual_bound: float,
    n_classes: int = 2,
    unit: Unit = "sensitive_features",
) -> tuple[float, float]:
    """Noise on the mean gradients of DP-FERMI by the paper's formulas (its Theorem 3.3).

    They are kept for comparison: :func:`calibrate` needs less noise for the same promise, and
    :func:`privacy_spent` tells what these really cost.

    Parameters
    ----------
    epsilon, delta : float
        The budget that the theorem claims; ``epsilon <= 2 log(1/delta)``.
    n_rows, n_steps, batch_size : int
        n, T and m of the theorem, which asks for ``T >= (n sqrt(epsilon) / (2 m))**2``.
    least_proportion : float
        rho: a lower bound on the proportion of every group.
    lipschitz : float
        L_theta: a Lipschitz constant of the class probabilities in the parameters.
    dual_bound : float
        D: a bound on the entries of the dual variable W.
    n_classes : int, default=2
        l; used for the record only.
    unit : {"record", "sensitive_features"}, default="sensitive_features"
        Who is protected.

    Returns
    -------
    sigma_theta, sigma_w : float
        Standard deviations of the noise on the mean over a batch of the gradients in theta and W.

    Raises
    ------
    ValueError
        If a condition of the theorem is not met.

    Notes
    -----
    The theorem's proof goes through the moments accountant for each gradient alone, with the whole
    epsilon, and through group proportions that are not private. Compare before relying on it.

    Examples
    --------
    What a claimed epsilon of 1 costs: in the gradient in W, one row contributes at most
    ``2 / (sqrt(rho) m)``, in the one in theta at most ``2 L D / (sqrt(rho) m)``.

    >>> from fairconstrained.privacy import (
    ...     Gaussian, Phase, fermi_closed_form_sigmas, privacy_spent)
    >>> n, m, T, rho = 36_000, 1024, 7_000, 0.3
    >>> sigma_theta, sigma_w = fermi_closed_form_sigmas(
    ...     epsilon=1.0, delta=1e-5, n_rows=n, n_steps=T, batch_size=m, least_proportion=rho,
    ...     lipschitz=1.0, dual_bound=1.0)
    >>> noises = [Gaussian(sigma * m * rho**0.5 / 2) for sigma in (sigma_theta, sigma_w)]
    >>> spent = privacy_spent([Phase(noises, m / n, T)], delta=1e-5, unit="sensitive_features")
    >>> print(f"{spent:.2f}")
    1.63
    """
    check_positive("epsilon", epsilon)
    check_budget(delta=delta, unit=unit)
    log = math.log(1 / delta)
    if epsilon > 2 * log:
        raise ValueError(f"Theorem 3.3 needs epsilon <= 2 log(1/delta) = {2 * log:.4g}.")
    fewest = (n_rows * math.sqrt(epsilon) / (2 * batch_size)) ** 2
    if n_steps < fewest:
        raise ValueError(f"Theorem 3.3 needs at least {math.ceil(fewest)} steps; got {n_steps}.")
    common = n_steps * log / (epsilon * n_rows) ** 2
    reach = (lipschitz * dual_bound) ** 2
    if unit == "sensitive_features":
        theta = 16 * reach * common / least_proportion
        w = 16 * common / least_proportion
    else:
        theta = (64 / least_proportion + 32 * (dual_bound * n_classes) ** 2) * reach * common
        w = 32 * common * (1 / least_proportion + dual_bound**2)
    return math.sqrt(theta), math.sqrt(w)
