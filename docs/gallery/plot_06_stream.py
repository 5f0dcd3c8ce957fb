"""
Learning from a stream of chunks
================================

If data arrive in chunks, :meth:`fairconstrained.AUCFairClassifier.partial_fit` keeps as
many rows as you allow. As long as all of them fit, the last model is the same as from
one fit. After that, it is fitted to a uniform sample of the stream.
"""

import matplotlib.pyplot as plt
from sklearn.metrics import roc_auc_score

from fairconstrained import AUCFairClassifier
from fairconstrained.constraints import AUCParity
from fairconstrained.datasets import make_biased_classification
from fairconstrained.metrics import group_auc_gap

data = make_biased_classification(12_000, bias=0.4, random_state=0)
X, y, groups = data.data, data.target, data.sensitive_features
test = slice(8000, None)

clf = AUCFairClassifier(
    AUCParity("group_auc", surrogate="binormal"),
    slack=0.03,
    stream_memory=2000,
    random_state=0,
)
seen, auc, gap = [], [], []
ends = [100, 250, 500, 1000, 2000, 4000, 6000, 8000]
for start, end in zip([0, *ends], ends, strict=False):
    chunk = slice(start, end)
    clf.partial_fit(
        X[chunk], y[chunk], classes=[0, 1], sensitive_features=groups[chunk]
    )
    scores = clf.decision_function(X[test])
    seen.append(end)
    auc.append(roc_auc_score(y[test], scores))
    gap.append(group_auc_gap(y[test], scores, sensitive_features=groups[test]))

whole = AUCFairClassifier(
    AUCParity("group_auc", surrogate="binormal"), slack=0.03, random_state=0
)
whole.fit(X[:8000], y[:8000], sensitive_features=groups[:8000])
one_fit = roc_auc_score(y[test], whole.decision_function(X[test]))

# %%
# The stream kept 2,000 of 8,000 rows, enough for this model with few columns.

curves = {
    "AUC on held-out rows": (auc, "#0072B2", one_fit, "one fit"),
    "group AUC gap on held-out rows": (gap, "#D55E00", 0.03, "slack, on the rows seen"),
}
for name, (values, color, line, label) in curves.items():
    figure, ax = plt.subplots(figsize=(4.8, 3.4), layout="constrained")
    ax.plot(seen, values, "o-", color=color, label="stream")
    ax.axhline(line, color="0.35", linestyle="--", label=label)
    ax.set(xscale="log", xlabel="rows seen", ylabel=name)
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
ax.set_ylim(bottom=0)
plt.show()
