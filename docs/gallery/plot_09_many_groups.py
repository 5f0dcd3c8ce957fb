"""
Crossed groups and several classes
==================================

Two sensitive columns are crossed: a model can be fair by sex and by region, and unfair
to the women of one region. Labels may have several classes; the promise then holds for
the worst class.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from fairconstrained import RateConstrainedClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.metrics import demographic_parity_difference

data = make_biased_classification(
    9000, n_groups=6, n_classes=3, bias=0.35, random_state=2
)
X, y = data.data, np.array(["no offer", "waiting list", "offer"])[data.target]
crossed = [
    (sex, region) for region in ("north", "centre", "south") for sex in ("f", "m")
]
order = np.random.default_rng(1).permutation(
    6
)  # who is favoured: not one sex or one region
people = pd.DataFrame(
    [crossed[i] for i in order[data.sensitive_features]], columns=["sex", "region"]
)

plain = RateConstrainedClassifier(slack=1.0).fit(X, y, sensitive_features=people)
by_column = RateConstrainedClassifier(slack=0.05).fit(
    X, y, sensitive_features=people["sex"]
)
by_both = RateConstrainedClassifier(slack=0.05).fit(X, y, sensitive_features=people)
models = {
    "no constraint": plain,
    "fair by sex": by_column,
    "fair by sex and region": by_both,
}

# %%
# Rates of every class in each of the six groups. With "fair by sex" the gap of the
# sexes is within 0.05, and the gap of the crossed groups is not.

names = sorted(set(people.itertuples(index=False, name=None)))
member = {
    name: ((people["sex"] == name[0]) & (people["region"] == name[1])).to_numpy()
    for name in names
}
colors = ["0.75", "#56B4E9", "#0072B2"]
figure, axes = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained", sharey=True)
for ax, (title, clf) in zip(axes, models.items(), strict=True):
    predicted = clf.predict(X)
    left = np.zeros(len(names))
    for label, color in zip(["no offer", "waiting list", "offer"], colors, strict=True):
        share = np.array([(predicted[member[name]] == label).mean() for name in names])
        ax.barh(np.arange(len(names)), share, left=left, color=color, label=label)
        left += share
    gaps = [
        demographic_parity_difference(y, predicted, sensitive_features=columns)
        for columns in (people["sex"], people)
    ]
    ax.set_title(
        f"{title}\ngap by sex {gaps[0]:.3f}, crossed {gaps[1]:.3f}", fontsize=10
    )
    ax.set(xlim=(0, 1), xlabel=f"share of predictions (accuracy {clf.score(X, y):.3f})")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set(
    yticks=np.arange(len(names)), yticklabels=[", ".join(name) for name in names]
)
figure.legend(
    *axes[0].get_legend_handles_labels(),
    loc="outside lower center",
    ncols=3,
    frameon=False,
)
plt.show()

# %%
# Each multiplier names the two groups that it holds together; the largest ones say
# which promise costs most.

for j in np.argsort(-by_both.multipliers_)[:3]:
    print(f"{by_both.multipliers_[j]:.3f}  {by_both.constraints_[j]}")
