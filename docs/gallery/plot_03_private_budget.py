"""
Private training and its budget
===============================

With ``epsilon=`` the fit is differentially private: whoever sees the model can hardly
tell whether a given row was in the training data. What does that cost, and what exactly
was released?
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from fairconstrained import RateConstrainedClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.metrics import demographic_parity_difference

data = make_biased_classification(16_000, n_features=8, bias=0.4, random_state=0)
X, y, groups = data.data, data.target, data.sensitive_features
train, test = slice(None, 8_000), slice(8_000, None)

# %%
# One fit and its receipt
# -----------------------
#
# ``feature_range`` comes from public knowledge: private training must not learn scales
# from the data. ``random_state`` is for this page only, since anyone who knows the seed
# can subtract the noise.

clf = RateConstrainedClassifier(
    slack=0.05, epsilon=1.0, feature_range=(-3, 3), random_state=0
)
clf.fit(X[train], y[train], sensitive_features=groups[train])
print(clf.privacy_)

# %%
# Budgets side by side
# --------------------
#
# The noise differs from fit to fit, so each budget is tried with several seeds and
# judged on rows that no fit has seen. An error below the dashed line comes with a
# larger gap: noise spends one on the other.


def judged(epsilon, seed):
    clf = RateConstrainedClassifier(
        slack=0.05, epsilon=epsilon, feature_range=(-3, 3), random_state=seed
    )
    clf.fit(X[train], y[train], sensitive_features=groups[train])
    predicted = clf.predict(X[test])
    gap = demographic_parity_difference(
        y[test], predicted, sensitive_features=groups[test]
    )
    return np.mean(predicted != y[test]), gap


with warnings.catch_warnings():
    # With little budget the noisy estimate may exceed the slack.
    warnings.simplefilter("ignore", UserWarning)
    results = {
        e: np.array([judged(e, seed) for seed in range(3)]) for e in (0.25, 0.5, 1.0)
    }
    reference = judged(None, 0)

at = np.arange(len(results))
measures = {"test error": ("#0072B2", (0.2, 0.27)), "test gap": ("#D55E00", (0, None))}
for column, (name, (color, limits)) in enumerate(measures.items()):
    values = np.stack([r[:, column] for r in results.values()])
    figure, ax = plt.subplots(figsize=(4.8, 3.4), layout="constrained")
    ax.plot(at, values, "o", color=color, alpha=0.35, markersize=5)
    ax.plot(at, values.mean(axis=1), color=color, label="private, mean of three fits")
    ax.axhline(reference[column], color="0.35", linestyle="--", label="not private")
    ax.set(xticks=at, xticklabels=results, xlabel="epsilon", ylabel=name, ylim=limits)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
plt.show()

# %%
# The page :doc:`/privacy` says what is promised, to whom, and what voids the promise.
