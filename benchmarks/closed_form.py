"""DP-FERMI with the noise of its paper's formulas, to compare with a calibrated one."""

from __future__ import annotations

import math
from dataclasses import replace

from fairconstrained.privacy import (
    Gaussian,
    Phase,
    TrainingPlan,
    one_off_gaussian,
    privacy_guarantee,
)
from fairconstrained.privacy.accounting import Unit, check_budget, check_positive
from fairconstrained.solvers import DPFERMI, Budget
from fairconstrained.solvers.private.dpfermi import (
    _COUNTS_FRACTION,
    _FINAL_FRACTION,
    _SCALING_FRACTION,
    _STEPS,
)

__all__ = ["ClosedFormNoise", "fermi_closed_form_sigmas"]


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

    They are for comparison: ``calibrate`` needs less noise for the same promise, and
    ``privacy_spent`` tells what these really cost.

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

    >>> from benchmarks.closed_form import fermi_closed_form_sigmas
    >>> from fairconstrained.privacy import Gaussian, Phase, privacy_spent
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


class ClosedFormNoise(DPFERMI):
    r"""As :class:`DPFERMI`, with the noise of the paper's formulas instead of a calibrated one.

    ``privacy_`` holds what the noise really costs, counts and final table included. That is usually
    more than the epsilon that was asked for.

    Parameters
    ----------
    step_size, dual_step_size, n_steps, batch_size, output
        As in :class:`DPFERMI`.
    lipschitz : float, default=1.0
        :math:`L_\theta`, of the class probabilities in the parameters.
    dual_bound : float, default=1.0
        D, of the entries of W.
    least_proportion : float, default=0.1
        :math:`\rho`, a public lower bound on the fraction of rows in every group.
    n_classes : int, default=2
        l; it matters for records only.

    Notes
    -----
    Rows' gradients are clipped to what the theorem's constants say,
    :math:`2 L D / \sqrt\rho` for sensitive features and :math:`2 L D (1 / \sqrt\rho + D)` for
    records, so that the cost is what it is said to be also where the constants are wrong.

    References
    ----------
    Lowy, Gupta and Razaviyayn, Theorem 3.3.

    Examples
    --------
    >>> from benchmarks.closed_form import ClosedFormNoise
    >>> ClosedFormNoise(least_proportion=0.3).clip
    1.0
    """

    keeps_budget = False  # search_privacy_cost asks

    def __init__(
        self,
        *,
        step_size: float | None = None,
        dual_step_size: float = 0.2,
        n_steps: int = _STEPS,
        batch_size: int | None = None,
        output: str = "average",
        lipschitz: float = 1.0,
        dual_bound: float = 1.0,
        least_proportion: float = 0.1,
        n_classes: int = 2,
    ):
        super().__init__(
            step_size=step_size,
            dual_step_size=dual_step_size,
            n_steps=n_steps,
            batch_size=batch_size,
            output=output,
        )
        self.lipschitz = lipschitz
        self.dual_bound = dual_bound
        self.least_proportion = least_proportion
        self.n_classes = n_classes

    def plan(self, n_rows: int, budget: Budget, counts: bool) -> TrainingPlan:
        """Noise of the theorem, and its price."""
        self._check_parameters()
        rate = self._rate(n_rows)
        batch_size = max(1, round(rate * n_rows))
        sigma_theta, sigma_w = fermi_closed_form_sigmas(
            epsilon=budget.epsilon,
            delta=budget.delta,
            n_rows=n_rows,
            n_steps=self.n_steps,
            batch_size=batch_size,
            least_proportion=self.least_proportion,
            lipschitz=self.lipschitz,
            dual_bound=self.dual_bound,
            n_classes=self.n_classes,
            unit=budget.unit,
        )
        # The theorem's noise is on means over the batch, in units of the gradients in x and in W.
        gradient = sigma_theta * batch_size / self._max_norm(budget.unit)
        table = sigma_w * batch_size / self._reach(budget.unit)
        of_scaling = 0.5 * _SCALING_FRACTION * (budget.unit == "record")
        shares = {"group counts": _COUNTS_FRACTION * counts, "final table": _FINAL_FRACTION}
        shares.update({"mean squared norm": of_scaling, "moments of the columns": of_scaling})
        once = {
            name: one_off_gaussian(
                share, epsilon=budget.epsilon, delta=budget.delta, unit=budget.unit, of=name
            )
            for name, share in shares.items()
            if share
        }
        steps = [Gaussian(table, of="histogram"), Gaussian(gradient, of="gradient")]
        phases = [*(Phase([noise]) for noise in once.values()), Phase(steps, rate, self.n_steps)]
        privacy = privacy_guarantee(phases, delta=budget.delta, unit=budget.unit)
        privacy = replace(privacy, n_steps=self.n_steps, sampling_rate=rate)
        counts_noise, final_noise, scaling_noise, _ = (
            once[name].noise_multiplier if name in once else math.inf for name in shares
        )
        return TrainingPlan(gradient, table, counts_noise, final_noise, privacy, scaling_noise)

    def _max_norm(self, unit: str) -> float:
        """Largest norm of a row's gradient in x by the theorem's constants."""
        return self.lipschitz * self.dual_bound * self._reach(unit)

    def _reach(self, unit: str) -> float:
        """Largest norm of a row's gradient in W."""
        common: dict[str, float] = {"sensitive_features": 0.0, "record": 2.0 * self.dual_bound}
        own: float = 2.0 / self.least_proportion**0.5
        return own + common[unit]
