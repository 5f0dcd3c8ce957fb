"""What the tests of privacy accounting share: what releases cost, and what they draw."""

from hypothesis import settings
from hypothesis import strategies as st

from fairconstrained.privacy import (
    Phase,
    privacy_spent,
)

DELTA = 1e-5


rates = st.floats(1e-3, 0.9)
noises = st.floats(0.7, 20.0)
steps = st.integers(1, 500)
units = st.sampled_from(["record", "sensitive_features"])
few = settings(max_examples=15)


def spent(*releases, q=1.0, n=1, delta=DELTA, unit="record"):
    """Epsilon of n batches with these joint releases each."""
    return privacy_spent([Phase(releases, q, n)], delta=delta, unit=unit)
