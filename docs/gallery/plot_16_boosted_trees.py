"""
Make my boosted trees fair
==========================

On tables, people trust boosted trees. Here they keep a promise: the classifier stays
what it is, and is fitted unchanged. The constraint trains a small linear model on its
posteriors: the probability of the label, and of the group where the criterion asks for
it. Of all classifiers that do not see the group, the best one has that form.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from fairconstrained import RateConstrainedClassifier
from fairconstrained.datasets import make_loan_applications
from fairconstrained.metrics import demographic_parity_difference

# %%
# Applicants for a loan: a table with words, numbers and missing values.

loans = make_loan_applications(8000, random_state=0)
words = loans.data.select_dtypes(exclude="number").columns
X = loans.data.astype(dict.fromkeys(words, "category"))
y, s = loans.target, loans.sensitive_features["sex"]
X, X_test, y, y_test, s, s_test = train_test_split(X, y, s, stratify=y, random_state=0)

# %%
# The classifier replaces the default, "linear". It receives X unchanged.

trees = HistGradientBoostingClassifier(max_iter=40, random_state=0)
fair = RateConstrainedClassifier(
    "demographic_parity", slack=0.05, model=trees, random_state=0
)
fair.fit(X, y, sensitive_features=s)
print(f"gap on rows that the trees had not seen: {fair.violation_:.3f}")

# %%
# ``violation_`` is measured out of fold: each row is judged by trees that have not seen
# it. So it predicts the gap on new rows, up to their sampling error.


def measured(predicted):
    gap = demographic_parity_difference(y_test, predicted, sensitive_features=s_test)
    return gap, np.mean(predicted != y_test)


unconstrained = measured(trees.fit(X, y).predict(X_test))
numbers = make_column_transformer(
    (make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder()), words),
    remainder=SimpleImputer(),
).fit(X)
models = {"trees": (trees, lambda X: X), "linear": ("linear", numbers.transform)}
figure, ax = plt.subplots(figsize=(4.8, 3.6), layout="constrained")
for (name, (model, seen)), color in zip(
    models.items(), ["#0072B2", "#E69F00"], strict=True
):
    points = []
    for slack in (0.02, 0.06, 0.12):
        clf = RateConstrainedClassifier(slack=slack, model=model, random_state=0)
        clf.fit(seen(X), y, sensitive_features=s)
        points.append(measured(clf.predict(seen(X_test))))
    ax.plot(*np.transpose(points), "o-", color=color, label=f"{name}, constrained")
ax.plot(*unconstrained, "s", color="black", label="trees, unconstrained")
ax.set(xlabel="gap on test rows", ylabel="error on test rows", xlim=(0, None))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
plt.show()

# %%
# Searches reach the parameters of the trees through ``model``. The coefficients of the
# linear model belong to the log odds and the probability of the label, to how much more
# likely than average each group is, and to the products of these.

fair.set_params(model__max_depth=3)
print(fair.model, np.round(fair.coef_[0], 2))
