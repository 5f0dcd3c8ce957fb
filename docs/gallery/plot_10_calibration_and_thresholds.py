"""
Probabilities and thresholds after training
===========================================

A constrained model is still a scikit-learn classifier: you can calibrate its
probabilities and move its threshold. Both happen *after* training, and the constraint
may not survive them. Measure again.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn import config_context
from sklearn.calibration import CalibratedClassifierCV, calibration_curve
from sklearn.linear_model import LogisticRegression

from fairconstrained import RateConstrainedClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.metrics import demographic_parity_difference

data = make_biased_classification(12_000, bias=0.4, random_state=0)
X, y, groups = data.data, data.target, data.sensitive_features
train, test = slice(None, 6000), slice(6000, None)

plain = LogisticRegression().fit(X[train], y[train])
fair = RateConstrainedClassifier(slack=0.05).fit(
    X[train], y[train], sensitive_features=groups[train]
)
with config_context(enable_metadata_routing=True):
    calibrated = CalibratedClassifierCV(
        RateConstrainedClassifier(slack=0.05), method="isotonic", ensemble=False
    ).fit(X[train], y[train], sensitive_features=groups[train])
models = {
    "no constraint": plain,
    "slack 0.05": fair,
    "slack 0.05, calibrated": calibrated,
}

# %%
# Of the rows with predicted probability p, how many are positive? If labels differ
# between groups, a model with equal rates cannot be calibrated within each group,
# whatever you do afterwards. Solid lines are group 0, dotted lines group 1.

colors = ["#0072B2", "#D55E00", "#009E73"]
figure, ax = plt.subplots(figsize=(4.8, 3.8), layout="constrained")
for (name, model), color in zip(models.items(), colors, strict=True):
    p = model.predict_proba(X[test])[:, 1]
    for g, style in enumerate(["-", ":"]):
        rows = groups[test] == g
        positive, predicted = calibration_curve(
            y[test][rows], p[rows], n_bins=8, strategy="quantile"
        )
        ax.plot(predicted, positive, style, color=color, label=name if g == 0 else None)
ax.plot([0, 1], [0, 1], color="0.7", linewidth=1)
ax.set(xlabel="predicted probability", ylabel="fraction of positives")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The constraint applies to the threshold one half, on the training rows. Another
# threshold gives another classifier with another gap. Here it drifts a little, and
# nothing in the constraint prevents that.

# sphinx_gallery_thumbnail_number = 2
thresholds = np.linspace(0.1, 0.9, 33)
figure, ax = plt.subplots(figsize=(4.8, 3.4), layout="constrained")
for (name, model), color in zip(models.items(), colors, strict=True):
    p = model.predict_proba(X[test])[:, 1]
    gaps = [
        demographic_parity_difference(
            y[test], (p > t).astype(int), sensitive_features=groups[test]
        )
        for t in thresholds
    ]
    ax.plot(thresholds, gaps, color=color, label=name)
ax.axhline(0.05, color="0.35", linestyle="--")
ax.axvline(0.5, color="0.7", linewidth=1)
ax.set(xlabel="threshold", ylabel="demographic parity difference", ylim=(0, None))
ax.legend(frameon=False, loc="center")
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# If decisions need another threshold, train for it: weight the labels, or cap a rate
# with :class:`~fairconstrained.constraints.FalsePositiveRate` beside the parity
# constraint. If scores at all thresholds matter,
# :class:`~fairconstrained.PartialParityClassifier` compares distributions.

for name, model in models.items():
    gap = demographic_parity_difference(
        y[test], model.predict(X[test]), sensitive_features=groups[test]
    )
    print(f"{name:24} accuracy {model.score(X[test], y[test]):.3f}, gap {gap:.3f}")
