"""
Fair rankings, without a threshold
==================================

A score that orders applications is judged by an AUC: how often does a good case outrank
a bad one? It is unfair if the good cases of one group outrank the bad ones of the other
less often than the other way round. :class:`~fairconstrained.AUCFairClassifier` bounds
that difference.
"""

import matplotlib.pyplot as plt
import numpy as np
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
# All four comparisons of positives with negatives, on rows not trained on. The
# constraint is on the two that cross groups.

figure, axes = plt.subplots(1, 3, figsize=(10, 3.5), layout="constrained")
for ax, (slack, clf) in zip(axes, models.items(), strict=True):
    scores = clf.decision_function(X[test])
    sets = {
        (g, label): (groups[test] == g) & (y[test] == label)
        for g in (0, 1)
        for label in (0, 1)
    }
    table = np.array(
        [[auc_between(scores, sets[g, 1], sets[h, 0]) for h in (0, 1)] for g in (0, 1)]
    )
    image = ax.imshow(table, cmap="Blues", vmin=0.7, vmax=1.0)
    for g, h in np.ndindex(2, 2):
        ax.text(
            h,
            g,
            f"{table[g, h]:.3f}",
            ha="center",
            va="center",
            fontsize=13,
            color="w" if table[g, h] > 0.85 else "k",
        )
    auc = roc_auc_score(y[test], scores)
    gap = inter_group_auc_gap(y[test], scores, sensitive_features=groups[test])
    title = "no constraint" if slack == 1.0 else f"slack {slack:g}"
    ax.set_title(f"{title}\nAUC {auc:.3f}, gap {gap:.3f}")
    ax.set(xticks=[0, 1], xticklabels=["group 0", "group 1"], xlabel="negatives of")
    ax.set(yticks=[0, 1], yticklabels=["group 0", "group 1"])
axes[0].set_ylabel("positives of")
figure.colorbar(image, ax=axes, label="share of pairs in the right order", shrink=0.85)
plt.show()
