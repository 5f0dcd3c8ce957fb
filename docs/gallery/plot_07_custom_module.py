"""
Your own torch module, loss and constraint
==========================================

:func:`fairconstrained.training.train` needs no estimator: it takes any module, any loss
and constraints as functions of outputs and batch, and trains with the solvers of the
package.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from fairconstrained.datasets import make_biased_classification
from fairconstrained.solvers import EarlyStoppedSGDA
from fairconstrained.training import train

data = make_biased_classification(2000, bias=0.4, random_state=0)
X = torch.tensor(data.data, dtype=torch.float32)
y = torch.tensor(data.target, dtype=torch.float32)
group = torch.tensor(data.sensitive_features)


# %%
# The constraint here is on *scores*: mean outputs of the two groups may differ by at
# most 0.2. It is a function whose values must be at most zero. Because of ``groups=``,
# batches have equally many rows of each group.


def loss(outputs, batch):
    return torch.nn.functional.binary_cross_entropy_with_logits(
        outputs[:, 0], batch[1], reduction="none"
    )


def equal_mean_scores(outputs, batch):
    z, g = outputs[:, 0], batch[2]
    difference = z[g == 0].mean() - z[g == 1].mean()
    return torch.stack((difference, -difference)) - 0.2


torch.manual_seed(0)
module = torch.nn.Sequential(
    torch.nn.Linear(10, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)
)
rows = (X, y, group)
options = {"solver": EarlyStoppedSGDA(n_steps=600), "random_state": 0}
free = train(module, loss, lambda outputs, batch: outputs.mean() - 1e3, rows, **options)
bound = train(module, loss, equal_mean_scores, rows, groups=group, **options)
print("constraint values:", np.round(bound.values, 3), "feasible:", bound.feasible)

# %%
# What the constraint does to the scores:

figure, axes = plt.subplots(
    2, 1, figsize=(4.8, 3.8), layout="constrained", sharex=True, sharey=True
)
edges = np.linspace(-7, 7, 45)
for ax, (name, trained) in zip(
    axes, {"free": free, "constrained": bound}.items(), strict=True
):
    with torch.no_grad():
        z = trained.module(X)[:, 0]
    for g, color in enumerate(["#0072B2", "#D55E00"]):
        ax.hist(
            z[group == g].numpy(), edges, alpha=0.45, color=color, label=f"group {g}"
        )
        ax.axvline(z[group == g].mean(), color=color, linewidth=2)
    accuracy = ((z > 0) == (y > 0.5)).float().mean()
    ax.set(title=f"{name}, accuracy {accuracy:.3f}", ylabel="rows")
    ax.spines[["top", "right"]].set_visible(False)
axes[1].set_xlabel("score")
axes[0].legend(frameon=False)
plt.show()
