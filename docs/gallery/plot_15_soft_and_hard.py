"""
Soft rates and predicted labels
===============================

Predicted labels are steps, and steps have no gradient. Solvers therefore train on
*soft* rates, means of probabilities, which can keep a slack that the labels break. The
solvers here move the targets of the soft rates until the labels keep it: this picture
shows both, round by round.
"""

import matplotlib.pyplot as plt
import numpy as np

from fairconstrained import RateConstrainedClassifier
from fairconstrained.datasets import make_biased_classification

data = make_biased_classification(
    8000, bias=0.5, imbalance=0.6, weights=[0.8, 0.2], random_state=1
)
clf = RateConstrainedClassifier("equalized_odds", slack=0.05)
clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
print(f"returned: gap of the labels {clf.violation_:.4f}")

# %%
# Soft and hard gaps over the iterations:

figure, ax = plt.subplots(figsize=(4.8, 3.4), layout="constrained")
history = clf.history_
at = np.arange(1, len(history["violation"]) + 1)
ax.plot(at, history["soft_violation"], ".:", color="#D55E00", label="soft rates")
ax.plot(at, history["violation"], ".-", color="#0072B2", label="predicted labels")
ax.axhline(0.05, color="0.35", linestyle="--", label="slack 0.05")
ax.set(xlabel="iteration", ylabel="equalized odds gap", ylim=(0, None))
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The difference arises because the hard rate counts a row of probability 0.51 fully,
# and one of 0.49 not at all.

figure, ax = plt.subplots(figsize=(4.8, 3.4), layout="constrained")
p = clf.predict_proba(data.data)[:, 1]
edges = np.linspace(0, 1, 26)
for g, color in enumerate(["#0072B2", "#D55E00"]):
    mine = p[(data.sensitive_features == g) & (data.target == 1)]
    soft, hard = mine.mean(), (mine > 0.5).mean()
    label = f"positives of group {g}: soft {soft:.3f}, hard {hard:.3f}"
    ax.hist(mine, edges, density=True, alpha=0.45, color=color, label=label)
ax.axvline(0.5, color="0.35", linestyle="--")
ax.set(xlabel="predicted probability", ylabel="density")
ax.legend(frameon=False, loc="upper left")
ax.set_ylim(top=1.3 * ax.get_ylim()[1])
ax.spines[["top", "right"]].set_visible(False)
plt.show()
