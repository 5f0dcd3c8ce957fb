"""
Crossed groups and several classes
==================================

Two sensitive columns are crossed: a model can be fair by sex and by region, but unfair
to the women of one region. With several classes (multiclass labels) the constraint
applies to each class.
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
# Who is favoured: not one sex or one region.
order = np.random.default_rng(1).permutation(6)
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
# The rate of offers in each of the six groups. With "fair by sex" the gap between the
# sexes is within 0.05, but not the gap between the crossed groups. Each gap is that of
# the worst of the three classes.

for name, clf in models.items():
    sexes, crosses = (
        demographic_parity_difference(y, clf.predict(X), sensitive_features=columns)
        for columns in (people["sex"], people)
    )
    print(f"{name:22} accuracy {clf.score(X, y):.3f}", end=", ")
    print(f"gap by sex {sexes:.3f}, crossed {crosses:.3f}")

figure, ax = plt.subplots(figsize=(4.8, 3.6), layout="constrained")
styles = ["s", "D", "o"]
for (name, clf), marker in zip(models.items(), styles, strict=True):
    offered = pd.Series(clf.predict(X) == "offer")
    rates = offered.groupby([people["sex"], people["region"]]).mean()
    labels = [", ".join(group) for group in rates.index]
    ax.plot(rates, labels, marker, label=name)
ax.set(xlabel="rate of offers", xlim=(0, None))
figure.legend(frameon=False, loc="outside upper center", ncols=2)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Each multiplier belongs to two groups; the largest ones show which pair costs most.

for j in np.argsort(-by_both.multipliers_)[:3]:
    print(f"{by_both.multipliers_[j]:.3f}  {by_both.constraints_[j]}")
