"""
A fitted model from elsewhere
=============================

The model is in production, its training rows are gone, or it comes from another library
than scikit-learn. New rows with labels and groups suffice to make it fair: it predicts,
but is never refitted.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator

from fairconstrained import RateConstrainedClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.metrics import equalized_odds_difference
from fairconstrained.models import Posteriors

data = make_biased_classification(9000, bias=0.5, random_state=0)
X, y, s = data.data, data.target, data.sensitive_features
old, new, test = slice(0, 3000), slice(3000, 6000), slice(6000, 9000)

# %%
# Any object with ``predict_proba`` and ``classes_`` will do. This one stands in for a
# library unrelated to scikit-learn.


class Elsewhere:
    """A model behind somebody else's interface."""

    classes_ = np.array([0, 1])

    def __init__(self, X, y):
        self._score = (
            HistGradientBoostingClassifier(random_state=0).fit(X, y).decision_function
        )

    def fit(self, X, y):
        raise NotImplementedError("This model is what it is.")

    def predict_proba(self, X):
        """Probabilities of both labels."""
        p = 1.0 / (1.0 + np.exp(-self._score(X)))
        return np.column_stack((1.0 - p, p))


production = Elsewhere(X[old], y[old])
before = production.predict_proba(X[test]).argmax(axis=1)

# %%
# Only the model of the groups is fitted. A frozen scikit-learn model is cloned for
# this; if yours cannot be cloned, name one. The rows must be new: on its own training
# rows a model looks better than it is, and whatever learns from it would rely on that.

model = Posteriors(
    FrozenEstimator(production),
    group_model=HistGradientBoostingClassifier(random_state=0),
)
fair = RateConstrainedClassifier(
    "equalized_odds", slack=0.05, model=model, random_state=0
)
fair.fit(X[new], y[new], sensitive_features=s[new])
after = fair.predict(X[test])

# %%
# Rates of positive predictions among true positives and among true negatives, on test
# rows: equalized odds brings both together.

figure, ax = plt.subplots(figsize=(4.8, 3.4), layout="constrained")
at = np.arange(4)
cells = [(label, g) for label in (1, 0) for g in (0, 1)]
for k, (name, predicted) in enumerate({"before": before, "after": after}.items()):
    gap = equalized_odds_difference(y[test], predicted, sensitive_features=s[test])
    error = np.mean(predicted != y[test])
    print(f"{name}: error {error:.3f}, equalized odds gap {gap:.3f}")
    rates = [predicted[(y[test] == c) & (s[test] == g)].mean() for c, g in cells]
    color = ["0.75", "#0072B2"][k]
    ax.bar(at + 0.4 * k - 0.2, rates, 0.38, color=color, label=f"{name}, gap {gap:.2f}")
kinds = {1: "positives", 0: "negatives"}
labels = [f"{kinds[c]}\ngroup {g}" for c, g in cells]
ax.set(xticks=at, xticklabels=labels, ylabel="rate of positive predictions")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()
