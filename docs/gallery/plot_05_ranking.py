"""
Fair rankings, without a threshold
==================================

A score that orders applications is judged by an AUC: how often does a good case outrank
a bad one? It is unfair if the good cases of one group outrank the bad ones of the other
less often than the other way round. :class:`~fairconstrained.AUCFairClassifier` bounds
that difference.
"""

import matplotlib.pyplot as plt
from sklearn.metrics import roc_auc_score

from fairconstrained import AUCFairClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.metrics import auc_between, inter_group_auc_gap

data = make_biased_classification(8000, bias=0.3, random_state=0)
train, test = slice(None, 4000), slice(4000, None)
X, y, groups = data.data, data.target, data.sensitive_features

models = {}
for slack in (1.0, 0.1, 0.02):
    clf = AUCFairClassifier("inter_group", slack=slack)
    models[slack] = clf.fit(X[train], y[train], sensitive_features=groups[train])

# %%
# All four comparisons of positives with negatives, on rows not used for training. The
# constraint applies to the two that cross groups: they meet as the slack shrinks.

names = {s: "no constraint" if s == 1.0 else f"slack {s:g}" for s in models}
pairs = {(0, 1): "#0072B2", (1, 0): "#D55E00", (0, 0): "0.6", (1, 1): "0.75"}
in_order = {pair: [] for pair in pairs}
for slack, clf in models.items():
    scores = clf.decision_function(X[test])
    for g, h in pairs:
        positive = (groups[test] == g) & (y[test] == 1)
        negative = (groups[test] == h) & (y[test] == 0)
        in_order[g, h].append(auc_between(scores, positive, negative))
    auc = roc_auc_score(y[test], scores)
    gap = inter_group_auc_gap(y[test], scores, sensitive_features=groups[test])
    print(f"{names[slack]}: AUC {auc:.3f}, gap {gap:.3f}")

figure, ax = plt.subplots(figsize=(4.8, 3.6), layout="constrained")
for (g, h), color in pairs.items():
    label = f"positives of {g}, negatives of {h}"
    ax.plot(list(names.values()), in_order[g, h], "o-", color=color, label=label)
ax.set(ylabel="fraction of pairs in the right order")
figure.legend(frameon=False, fontsize=8, ncols=2, loc="outside upper center")
ax.spines[["top", "right"]].set_visible(False)
plt.show()
