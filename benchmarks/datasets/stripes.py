"""Generated pictures, 16 by 16: 20,000 rows in two groups; needs no files.

The label is which way the stripes run; their phase is random, so no linear model can tell. One
group is brighter and has more of the positive label.
"""

import numpy as np
from sklearn.utils import Bunch

SIDE, N_ROWS = 16, 20_000


def load() -> Bunch:
    """Pixels in [0, 1], labels and sensitive features."""
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=N_ROWS)
    y = (rng.random(N_ROWS) < np.where(group == 1, 0.65, 0.35)).astype(int)
    phase = rng.uniform(0, 2 * np.pi, (N_ROWS, 1, 1))
    down, across = np.indices((SIDE, SIDE))
    slope = np.where(y == 1, 1, -1)[:, None, None]
    waves = np.sin(1.2 * (down + slope * across) + phase)
    light = np.where(group == 1, 0.55, 0.45)[:, None, None]
    pixels = light + 0.1 * waves + 0.15 * rng.normal(size=waves.shape)
    return Bunch(
        data=pixels.clip(0, 1).reshape(N_ROWS, -1),
        target=y,
        sensitive_features=np.where(group == 1, "bright", "dark"),
    )
