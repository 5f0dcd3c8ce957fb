"""Generated data whose groups differ outside the contested ranks: 20,000 rows; needs no files.

Half of one group and a tenth of the other are barred, and hardly ever positive; among the others
the groups differ little. Fairness is asked for at the top, where nobody is barred.
"""

import numpy as np
from sklearn.utils import Bunch

from benchmarks.partial_tasks import Task
from fairconstrained.datasets import make_biased_classification

BARRED = (0.1, 0.5)  # share of each group
KEPT = 0.05  # share of the barred that keep their label
TASK = Task(
    interval=(0.0, 0.3),
    slacks={
        "statistical_parity": [0.3, 0.2, 0.1, 0.05, 0.01],
        "demographic_parity": [0.15, 0.1, 0.05, 0.03, 0.005],
    },
    paper=[],
    shares=(0.6, 0.2, 0.2),
)


def load() -> Bunch:
    """Features, labels, sensitive features and the task of partial parity."""
    data = make_biased_classification(20_000, bias=0.25, random_state=0)
    rng = np.random.default_rng(0)
    groups, n = data.sensitive_features, len(data.target)
    barred = rng.random(n) < np.take(BARRED, groups)
    data.target = np.where(barred & (rng.random(n) > KEPT), 0, data.target)
    data.data = np.column_stack((data.data, barred))
    data.update(task=TASK)
    return data
