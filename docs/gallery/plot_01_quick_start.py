"""
Quick start
===========

Train a classifier that keeps a promise to groups, compare it with one that makes none,
and then do the same with your own table.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from fairconstrained import RateConstrainedClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.metrics import demographic_parity_difference

# %%
# Two models, one promise
# -----------------------
#
# The generator draws labels that favour group 0. A plain logistic regression learns
# that; the constrained one may let the rates of positive predictions differ by at most
# ``slack``.

data = make_biased_classification(6000, bias=0.4, random_state=0)
X, y, groups = data.data, data.target, data.sensitive_features

plain = LogisticRegression().fit(X, y)
fair = RateConstrainedClassifier("demographic_parity", slack=0.05)
fair.fit(X, y, sensitive_features=groups)
print(fair)
print(f"largest gap on the training rows: {fair.violation_:.3f}")
print(f"promise kept: {fair.feasible_}")

# %%
# The rates come together, at the price of some accuracy. Predictions need no group.

models = {"no constraint": plain, "slack 0.05": fair}
rates = {
    f"{name}\naccuracy {m.score(X, y):.3f}": [
        m.predict(X[groups == g]).mean() for g in (0, 1)
    ]
    for name, m in models.items()
}

figure, ax = plt.subplots(figsize=(4.8, 3.4), layout="constrained")
at = np.arange(2)
for g, color in enumerate(["#0072B2", "#D55E00"]):
    heights = [by_group[g] for by_group in rates.values()]
    bars = ax.bar(at + 0.36 * g - 0.18, heights, 0.34, color=color, label=f"group {g}")
    ax.bar_label(bars, fmt="%.2f", padding=2)
ax.set(xticks=at, xticklabels=rates, ylabel="rate of positive predictions", ylim=(0, 1))
ax.legend(ncols=2, frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The same on your own table
# --------------------------
#
# First we write a CSV file, which stands in for yours.

folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "applications.csv"
columns = {name: X[:, j] for j, name in enumerate(data.feature_names)}
columns |= {"approved": y, "sex": np.where(groups == 0, "m", "f")}
pd.DataFrame(columns).to_csv(path, index=False)

# %%
# The rest is your code: read, split, fit, measure. With four of the imports above it
# is a program of twelve lines. The group is not a feature, columns of words become
# columns of zeros and ones, and nothing needs to be scaled.

table = pd.read_csv(path)
y, sex = table.pop("approved"), table.pop("sex")
X = pd.get_dummies(table, dtype=float)
X, X_test, y, y_test, sex, sex_test = train_test_split(
    X, y, sex, stratify=y, random_state=0
)

clf = RateConstrainedClassifier("demographic_parity", slack=0.05)
clf.fit(X, y, sensitive_features=sex)
gap = demographic_parity_difference(
    y_test, clf.predict(X_test), sensitive_features=sex_test
)
print(f"held-out rows: accuracy {clf.score(X_test, y_test):.3f}, gap {gap:.3f}")

# %%
# The slack is kept on the training rows. On other rows the gap scatters around it, most
# in small groups: :ref:`sphx_glr_auto_examples_plot_12_small_groups.py` shows by how
# much. Pipelines and searches pass ``sensitive_features`` on:
# :doc:`/guide/cross_validation`.

folder.cleanup()
