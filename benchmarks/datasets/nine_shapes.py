"""Generated pictures, 8 by 8: 6,000 rows, nine labels, five groups; needs no files.

Each label and each group adds a pattern of its own, under noise; labels are spread unequally over
the groups, so that accurate predictions tell groups.
"""

import numpy as np
from sklearn.utils import Bunch

SIDE, N_ROWS, N_LABELS, N_GROUPS = 8, 6_000, 9, 5


def load() -> Bunch:
    """Pixels, labels and sensitive features."""
    rng = np.random.default_rng(0)
    group = rng.integers(N_GROUPS, size=N_ROWS)
    of_label = rng.normal(size=(N_LABELS, SIDE, SIDE))
    of_group = rng.normal(size=(N_GROUPS, SIDE, SIDE))
    share = np.full((N_GROUPS, N_LABELS), 0.07)
    for g in range(N_GROUPS):
        share[g, (2 * g) % N_LABELS] += 0.2
        share[g, (2 * g + 1) % N_LABELS] += 0.17
    share /= share.sum(axis=1, keepdims=True)
    y = (rng.random((N_ROWS, 1)) > share.cumsum(axis=1)[group]).sum(axis=1).clip(0, N_LABELS - 1)
    noise = 1.3 * rng.normal(size=(N_ROWS, SIDE, SIDE))
    pixels = of_label[y] + 0.7 * of_group[group] + noise
    return Bunch(data=pixels.reshape(N_ROWS, -1), target=y, sensitive_features=group)
