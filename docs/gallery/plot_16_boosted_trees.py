"""
Make my boosted trees fair
==========================

On tables, people trust boosted trees. Here they keep a promise: the classifier stays
what it is, and is fitted as it is. What is trained under the constraint is a small
linear model of its posteriors: the probability of the label, and of the group where the
notion asks for it. Of all classifiers that do not see the group, the best one has that
form.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split

from fairconstrained import RateConstrainedClassifier
from fairconstrained.metrics import demographic_parity_difference

# %%
# Applicants for a loan: a table with words, categories and missing values, in which the
# label depends on income and debt together.

rng = np.random.default_rng(0)
n = 8000
group = rng.choice(["older", "younger"], size=n, p=[0.6, 0.4])
income = rng.lognormal(0.25 * (group == "older"), 0.5)
debt = rng.lognormal(-0.3, 0.6, size=n)
housing = np.where(
    rng.random(n) < np.where(group == "older", 0.7, 0.3), "owns", "rents"
)
table = pd.DataFrame(
    {
        "income": np.where(rng.random(n) < 0.1, np.nan, income),
        "debt": debt,
        "housing": pd.Categorical(housing),
    }
)
repaid = (income / debt - 0.3 * income * debt + 0.4 * rng.normal(size=n) > 1.0).astype(
    int
)
parts = train_test_split(table, repaid, group, stratify=repaid, random_state=0)
(X, X_test), (y, y_test), (s, s_test) = parts[:2], parts[2:4], parts[4:]

# %%
# The classifier goes where "linear" stands by default. X goes to it as it came.

trees = HistGradientBoostingClassifier(random_state=0)
fair = RateConstrainedClassifier(
    "demographic_parity", slack=0.05, model=trees, random_state=0
)
fair.fit(X, y, sensitive_features=s)
print(f"gap on rows that the trees had not seen: {fair.violation_:.3f}")

# %%
# ``violation_`` is measured out of fold: each row is judged by trees that have not seen
# it. So it says what new rows will see, up to their sampling error.


def measured(predicted):
    gap = demographic_parity_difference(y_test, predicted, sensitive_features=s_test)
    return gap, np.mean(predicted != y_test)


plain = trees.fit(X, y)
numbers = (
    X.assign(housing=X["housing"] == "owns").fillna(X["income"].median()).astype(float)
)
numbers_test = X_test.assign(housing=X_test["housing"] == "owns")
numbers_test = numbers_test.fillna(X["income"].median()).astype(float)
curves = {"trees": [], "linear": []}
slacks = [0.02, 0.05, 0.1]
for slack in slacks:
    fair.set_params(slack=slack).fit(X, y, sensitive_features=s)
    curves["trees"].append(measured(fair.predict(X_test)))
    linear = RateConstrainedClassifier(slack=slack).fit(
        numbers, y, sensitive_features=s
    )
    curves["linear"].append(measured(linear.predict(numbers_test)))
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for (name, points), color in zip(curves.items(), ["#0072B2", "#E69F00"], strict=True):
    ax.plot(*np.transpose(points), "o-", color=color, label=f"{name}, constrained")
ax.plot(
    *measured(plain.predict(X_test)), "s", color="black", label="trees, unconstrained"
)
ax.set(xlabel="gap on test rows", ylabel="error on test rows", xlim=(0, None))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
plt.show()

# %%
# Parameters of the trees are those of the model, in searches too. What the linear model
# does is in its coefficients: of the log odds and the probability of the label, of how
# much more likely than on average each group is, and of the products of these.

fair.set_params(model__max_depth=3)
print(fair.model, np.round(fair.coef_[0], 2))
