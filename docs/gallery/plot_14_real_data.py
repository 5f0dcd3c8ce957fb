"""
On real data: income and sex
============================

This example uses the Adult table of the 1994 census if the folder
``FAIRCONSTRAINED_DATA`` has it, and otherwise generated data. It prints which you see.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import MaxAbsScaler

from fairconstrained import RateConstrainedClassifier
from fairconstrained.datasets import load_dataset, make_biased_classification
from fairconstrained.display import TradeoffDisplay

if os.environ.get("FAIRCONSTRAINED_DATA"):
    data = load_dataset("adult", preprocess="one_hot", download_if_missing=False)
    source = "Adult, 1994 census"
else:
    data = make_biased_classification(
        14_000, bias=0.3, weights=[0.75, 0.25], random_state=0
    )
    source = "generated data"
print(source)

rng = np.random.default_rng(0)
rows = rng.permutation(len(data.target))[:14_000]
train, test = rows[:8_000], rows[8_000:]
X, y = MaxAbsScaler().fit_transform(data.data), data.target
groups = np.asarray(data.sensitive_features)

# %%
# Four slacks on 8,000 training rows; judged on the others.

slacks = (0.01, 0.03, 0.06, 0.1)
plain = LogisticRegression(max_iter=1000).fit(X[train], y[train])
predicted = {"no constraint": plain.predict(X[test])}
for slack in slacks:
    clf = RateConstrainedClassifier("demographic_parity", slack=slack)
    clf.fit(X[train], y[train], sensitive_features=groups[train])
    predicted[f"slack {slack:g}"] = clf.predict(X[test])

unconstrained, *constrained = predicted.values()
figure, ax = plt.subplots(figsize=(4.8, 3.6), layout="constrained")
held_out = {"sensitive_features": groups[test], "ax": ax}
TradeoffDisplay.from_predictions(y[test], constrained, name="constrained", **held_out)
TradeoffDisplay.from_predictions(
    y[test], [unconstrained], name="no constraint", **held_out
)
ax.set(title=f"{source}, {len(test):,} held-out rows", xlim=(0, None))
plt.show()

# %%
# What that means for the two groups:

figure, ax = plt.subplots(figsize=(4.8, 3.4), layout="constrained")
colors = ["#0072B2", "#D55E00"]
for k, (group, color) in enumerate(zip(np.unique(groups), colors, strict=True)):
    rates = [p[groups[test] == group].mean() for p in predicted.values()]
    place = np.arange(5) + 0.4 * k - 0.2
    bars = ax.bar(place, rates, 0.38, color=color, label=f"group {group}")
    ax.bar_label(bars, fmt="%.2f", padding=1, fontsize=8)
ax.set(xticks=range(5), ylabel="rate of positive predictions")
ax.set_xticklabels([name.replace(" ", "\n") for name in predicted])
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# With incomes of 1994, this table serves to compare methods, not to build a model.
