"""
Auditing a model you did not train
==================================

The metrics and displays need only predictions or scores, labels and groups, so they
work for any classifier of any library. Here we audit a gradient boosting model.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import RocCurveDisplay

from fairconstrained import metrics
from fairconstrained.datasets import make_biased_classification
from fairconstrained.display import GroupScoreDisplay

data = make_biased_classification(12_000, bias=0.4, weights=[0.7, 0.3], random_state=0)
X, y = data.data, data.target
groups = np.array(["a", "b"])[data.sensitive_features]
train, test = slice(None, 6000), slice(6000, None)
model = HistGradientBoostingClassifier(max_iter=40, random_state=0).fit(
    X[train], y[train]
)

predicted, scores = model.predict(X[test]), model.decision_function(X[test])
held_out = {"sensitive_features": groups[test]}

# %%
# One number for each criterion
# -----------------------------
#
# Each with a bootstrap interval: a gap without one says little.

judged = {
    "demographic_parity_difference": predicted,
    "equal_opportunity_difference": predicted,
    "false_positive_rate_difference": predicted,
    "error_rate_difference": predicted,
    "inter_group_auc_gap": scores,
    "intra_group_auc_gap": scores,
}
rng = np.random.default_rng(0)
draws = [rng.integers(0, 6000, 6000) for _ in range(60)]
rows = []
for name, what in judged.items():
    metric = getattr(metrics, name)
    again = [
        metric(y[test][i], what[i], sensitive_features=groups[test][i]) for i in draws
    ]
    low, high = np.quantile(again, [0.025, 0.975])
    rows.append((name, metric(y[test], what, **held_out), low, high))
table = pd.DataFrame(rows, columns=["metric", "value", "low", "high"]).set_index(
    "metric"
)
print(table.round(3))

# %%
# Pictures
# --------

figure, ax = plt.subplots(figsize=(4.8, 3.2), layout="constrained")
names = [name.replace("_", " ") for name in table.index]
ax.hlines(names, table["low"], table["high"], color="#0072B2", linewidth=3, alpha=0.5)
ax.plot(table["value"], names, "o", color="#0072B2")
ax.invert_yaxis()
ax.set(xlabel="value, 95 % of bootstrap draws", xlim=(0, None))
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Scores of the two groups:

figure, ax = plt.subplots(figsize=(4.8, 3.4), layout="constrained")
GroupScoreDisplay.from_predictions(scores, **held_out, ax=ax, bins=40)
ax.axvline(0, color="0.35", linestyle="--", linewidth=1)
plt.show()

# %%
# And ROC curves within each group:

figure, ax = plt.subplots(figsize=(4.8, 3.8), layout="constrained")
for name, color in {"a": "#0072B2", "b": "#D55E00"}.items():
    mine = groups[test] == name
    RocCurveDisplay.from_predictions(
        y[test][mine],
        scores[mine],
        name=f"group {name}",
        ax=ax,
        curve_kwargs={"color": color},
    )
ax.set(xlabel="false positive rate", ylabel="true positive rate")
plt.show()

# %%
# Within each group the model ranks equally well: the ROC curves coincide. Yet negatives
# of one group outrank positives of the other far more often than the reverse. The
# verdict depends on the criterion: choose it before you look.
