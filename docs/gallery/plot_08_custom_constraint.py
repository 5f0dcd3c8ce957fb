"""
A constraint of your own
========================

Any linear combination of prediction rates can be a constraint, and several hold at
once. Here a lender's: group 1 may not be approved *less* often than group 0 (more often
is fine), and of those who would default no more than a quarter may be approved, in each
group.
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
# Multipliers say what each promise costs: the objective falls at that rate as a slack
# grows. The objective is the log loss; accuracy, on the right, may go either way.

figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
at = np.arange(len(choices))
panels = {
    "approved": lambda p, g: p[groups == g].mean(),
    "approved of those who default": lambda p, g: p[(groups == g) & (y == 0)].mean(),
}
for ax, (title, rate) in zip(axes, panels.items(), strict=False):
    for g, color in enumerate(["#0072B2", "#D55E00"]):
        heights = [rate(clf.predict(X), g) for clf in choices.values()]
        bars = ax.bar(
            at + 0.4 * g - 0.2, heights, 0.38, color=color, label=f"group {g}"
        )
        ax.bar_label(bars, fmt="%.2f", padding=1, fontsize=8)
    ax.set(title=title, xticks=at, xticklabels=choices, ylim=(0, 0.8))
axes[0].legend(frameon=False, ncols=2)
axes[1].axhline(0.25, color="0.35", linestyle="--")
bars = axes[2].bar(at, [clf.score(X, y) for clf in choices.values()], 0.5, color="0.6")
axes[2].bar_label(bars, fmt="%.3f", padding=1, fontsize=8)
axes[2].set(title="accuracy", xticks=at, xticklabels=choices, ylim=(0.5, 0.85))
for ax in axes:
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
