"""
Comparing solvers
=================

The same constraint with three algorithms: the deterministic default, mini-batch
descent-ascent, and the stochastic augmented Lagrangian of the benchmark by Kliachkin et
al. ``history_`` records each run.
"""

import warnings

import matplotlib.pyplot as plt

from fairconstrained import LossParityClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.display import ConvergenceDisplay
from fairconstrained.exceptions import ConstraintNotSatisfiedWarning
from fairconstrained.metrics import loss_gap
from fairconstrained.solvers import ALM, SGDA, AugmentedLagrangian

data = make_biased_classification(
    4000, bias=0.6, imbalance=0.5, weights=[0.75, 0.25], random_state=0
)
X, y, groups = data.data, data.target, data.sensitive_features

solvers = {
    "AugmentedLagrangian": AugmentedLagrangian(),
    "SGDA": SGDA(batch_size=512),
    "ALM": ALM(step_size=0.05, dual_step_size=0.5, batch_size=256),
}
fitted = {}
for name, solver in solvers.items():
    clf = LossParityClassifier(slack=0.02, solver=solver, random_state=0)
    with warnings.catch_warnings():
        # What it warns of is in the table below.
        warnings.simplefilter("ignore", ConstraintNotSatisfiedWarning)
        fitted[name] = clf.fit(X, y, sensitive_features=groups)
    gap = loss_gap(y, clf.predict_proba(X), sensitive_features=groups)
    print(f"{name:20} accuracy {clf.score(X, y):.4f}, gap {gap:.4f}, {clf.status_}")

# %%
# How fast does each come near the slack, and does it stay there?

figure, ax = plt.subplots(figsize=(4.8, 3.4), layout="constrained")
for name, clf in fitted.items():
    ax.plot(clf.history_["time"], clf.history_["violation"], label=name)
ax.axhline(0.02, color="0.35", linestyle="--", label="slack 0.02")
ax.set(xlabel="seconds", ylabel="gap of mean losses", ylim=(0, None))
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# An iteration of the default is one update of the multipliers; for the others it is a
# thirtieth of the mini-batch steps. Multipliers and objectives meet; only the default
# reports a residual, which says how far from solved the problem is.

display = None
for name, clf in fitted.items():
    display = ConvergenceDisplay.from_estimator(
        clf, name=name, ax=None if display is None else display.ax_, alpha=0.8
    )
display.figure_.set_size_inches(7, 7.5)
plt.show()
