r"""
Why the gap is larger on new rows
=================================

A slack is kept on the training rows. The rate of a group of m rows is uncertain by
about :math:`\sqrt{r (1 - r) / m}`, so on new rows the gap scatters around the slack,
widely if a group is small. No training method can remove that; more rows can, and a
margin helps.
"""

import matplotlib.pyplot as plt
import numpy as np

from fairconstrained import RateConstrainedClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.metrics import demographic_parity_difference

slack, sizes, draws = 0.05, [50, 100, 200, 400], 6
rng = np.random.default_rng(0)
population = make_biased_classification(30_000, bias=0.4, random_state=3)
large, small = (np.flatnonzero(population.sensitive_features == g) for g in (0, 1))


def sample(n_large, n_small):
    rows = np.concatenate((rng.choice(large, n_large), rng.choice(small, n_small)))
    return (
        population.data[rows],
        population.target[rows],
        population.sensitive_features[rows],
    )


# %%
# Each model is trained on 1,000 rows of one group and m of the other. Its gap is
# measured on these rows, on new rows of the same numbers, and on so many new rows that
# it is nearly exact.


def gap(model, X, y, groups):
    return demographic_parity_difference(y, model.predict(X), sensitive_features=groups)


names = ["training rows", "new rows, as many", "new rows, 10,000"]
gaps = {name: [[] for _ in sizes] for name in names}
for k, m in enumerate(sizes):
    for _ in range(draws):
        X, y, groups = sample(1000, m)
        clf = RateConstrainedClassifier(slack=slack).fit(
            X, y, sensitive_features=groups
        )
        gaps[names[0]][k].append(gap(clf, X, y, groups))
        gaps[names[1]][k] += [gap(clf, *sample(1000, m)) for _ in range(5)]
        gaps[names[2]][k].append(gap(clf, *sample(5000, 5000)))

figure, ax = plt.subplots(figsize=(7.4, 4), layout="constrained")
for i, (name, color) in enumerate(
    zip(names, ["0.6", "#D55E00", "#0072B2"], strict=True)
):
    boxes = ax.boxplot(
        gaps[name],
        positions=np.arange(len(sizes)) + 0.26 * (i - 1),
        widths=0.2,
        patch_artist=True,
        medianprops={"color": "k"},
        flierprops={"markersize": 3},
    )
    for box in boxes["boxes"]:
        box.set(facecolor=color, alpha=0.7)
    ax.bar(0, 0, color=color, alpha=0.7, label=f"on {name}")
ax.axhline(slack, color="0.2", linestyle="--", linewidth=1, label=f"slack {slack}")
ax.set(xticks=range(len(sizes)), xticklabels=sizes, ylim=(0, None))
ax.set(
    xlabel="rows of the small group in training", ylabel="demographic parity difference"
)
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Two effects add up: the model was fitted to these rows (blue against grey), and a gap
# measured on few rows is itself noisy (orange against blue). The second also makes a
# *fair* model look unfair: before you blame a model for a gap, ask on how many rows it
# was measured.
