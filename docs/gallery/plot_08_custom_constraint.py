"""
Your own constraint
===================

Any linear combination of prediction rates can be a constraint, and several can be
combined. A lender's example: group 1 must not be approved *less* often than group 0
(more often is fine), and in each group at most a quarter of those who would default may
be approved.
"""

import matplotlib.pyplot as plt
import numpy as np

from fairconstrained import RateConstrainedClassifier
from fairconstrained.constraints import FalsePositiveRate, RateConstraint
from fairconstrained.datasets import make_biased_classification

data = make_biased_classification(6000, bias=0.4, random_state=0)
X, y, groups = data.data, data.target, data.sensitive_features

# %%
# :class:`~fairconstrained.constraints.RateConstraint` names the parts of the rows
# (here: the groups), the unions whose rates count, and the weights of the rates in each
# value: rate of group 0 minus rate of group 1 at most 0.01.

one_sided = RateConstraint(
    part={"first": {"group": 0}, "second": {"group": 1}},
    unions=[["first"], ["second"]],
    weights=[[[0, 1], [0, -1]]],
    slack=0.01,
)
cap = FalsePositiveRate(max=0.25, per_group=True)

choices = {
    "none": RateConstrainedClassifier(slack=1.0),
    "one-sided": RateConstrainedClassifier(one_sided),
    "one-sided\nand cap": RateConstrainedClassifier([one_sided, cap]),
}
for clf in choices.values():
    clf.fit(X, y, sensitive_features=groups)
both = choices["one-sided\nand cap"]
print("feasible:", both.feasible_)
for name, multiplier in zip(both.constraints_, both.multipliers_, strict=True):
    print(f"  multiplier {multiplier:.3f}: {name}")

# %%
# Multipliers say what each constraint costs: the objective falls at this rate as its
# slack grows. The objective is the log loss; accuracy may go either way.

for name, clf in choices.items():
    print(f"{' '.join(name.split())}: accuracy {clf.score(X, y):.3f}")
at = np.arange(len(choices))
rates = {
    "approved": lambda p, g: p[groups == g].mean(),
    "approved of those who default": lambda p, g: p[(groups == g) & (y == 0)].mean(),
}
for title, rate in rates.items():
    figure, ax = plt.subplots(figsize=(4.8, 3.4), layout="constrained")
    for g, color in enumerate(["#0072B2", "#D55E00"]):
        heights = [rate(clf.predict(X), g) for clf in choices.values()]
        place = at + 0.4 * g - 0.2
        bars = ax.bar(place, heights, 0.38, color=color, label=f"group {g}")
        ax.bar_label(bars, fmt="%.2f", padding=1)
    ax.set(ylabel=title, xticks=at, xticklabels=choices, ylim=(0, 0.8))
    ax.legend(frameon=False, ncols=2)
    ax.spines[["top", "right"]].set_visible(False)
ax.axhline(0.25, color="0.35", linestyle="--")
plt.show()
