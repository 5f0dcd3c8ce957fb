"""
Fair where the decision is made
===============================

A school admits about a quarter of its applicants. For applicants with no chance, or
sure of a place, it matters little whether scores are distributed alike; near the
cut-off it matters a lot. :class:`~fairconstrained.PartialParityClassifier` requires
parity only on an interval of ranks.
"""

import matplotlib.pyplot as plt
import numpy as np

from fairconstrained import PartialParityClassifier, RateConstrainedClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.display import GroupScoreDisplay, ParityCurveDisplay
from fairconstrained.metrics import ccdf_gap, partial_statistical_parity

data = make_biased_classification(3000, bias=0.35, class_sep=1.5, random_state=1)
X, y, groups = data.data, data.target, data.sensitive_features
school = {0: "north", 1: "south"}
groups = [school[g] for g in groups]

# %%
# Ranks count from the top of each group: 0.1 to 0.4 are those below the best tenth and
# above the lower 60 %. With ``group_features=True`` the groups have coefficients of
# their own (the paper's model), so that the scores can agree inside the interval and
# differ elsewhere; predictions then need the group.

interval = (0.1, 0.4)
plain = RateConstrainedClassifier(slack=1.0).fit(X, y, sensitive_features=groups)
partial = PartialParityClassifier(interval=interval, slack=0.1, group_features=True)
partial.fit(X, y, sensitive_features=groups)

scores_of = {
    "no constraint": plain.decision_function(X),
    "partial parity": partial.decision_function(X, sensitive_features=groups),
}
for name, scores in scores_of.items():
    accuracy = np.mean((scores > 0) == y)
    within = partial_statistical_parity(
        y, scores, sensitive_features=groups, interval=interval
    )
    ranks = ccdf_gap(y, scores, sensitive_features=groups, interval=interval)
    print(
        f"{name:15} accuracy {accuracy:.3f}, gap inside {within:.3f}, ranks {ranks:.3f}"
    )

# %%
# The distributions of the scores, with the ranks of the interval shaded. Under the
# constraint the shaded parts coincide.

rows = {"sensitive_features": groups, "bins": 40}
GroupScoreDisplay.from_estimator(plain, X, interval=interval, **rows)
plt.title("no constraint")
GroupScoreDisplay.from_estimator(partial, X, **rows)
plt.title("partial parity, slack 0.1")
plt.show()

# %%
# The curve shows, for every threshold, the fraction of each group above it. On the
# diagonal the groups fare alike; in the grey band the constrained curve follows it.

# sphinx_gallery_thumbnail_number = 3
figure, ax = plt.subplots(figsize=(4.8, 3.8), layout="constrained")
ParityCurveDisplay.from_estimator(
    plain, X, sensitive_features=groups, interval=interval, ax=ax, name="no constraint"
)
ParityCurveDisplay.from_predictions(
    scores_of["partial parity"], sensitive_features=groups, ax=ax, name="partial parity"
)
plt.show()
