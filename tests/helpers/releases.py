"""Helpers of privacy tests: prices of releases, and a record of the releases that a fit makes."""

from hypothesis import settings
from hypothesis import strategies as st

from fairconstrained.privacy import Phase, PrivacyGuarantee, mechanisms, privacy_spent

DELTA = 1e-5
noises = st.floats(0.7, 20.0)
steps = st.integers(1, 500)
units = st.sampled_from(["record", "sensitive_features"])
few = settings(max_examples=15)


def plan_of(*phases, delta=DELTA, unit="record", n_steps=None):
    """A plan of these phases without a price, for objects that make the releases."""
    rate = min(phase.sampling_rate for phase in phases)
    n_steps = n_steps or max(phase.n_steps for phase in phases)
    return PrivacyGuarantee(0.0, delta, unit, (), rate, n_steps, "", phases)


def answered_by(patch, answer):
    """Let `answer` make every release; return a growing list of (shape, deviation, sum) of each."""
    seen = []

    def made(honest):
        def noisy(total, deviation, rng):
            seen.append((tuple(total.shape), float(deviation), total.clone()))
            return answer(honest, total, deviation, rng)

        return noisy

    for kind, honest in mechanisms.ADD_NOISE.items():
        patch.setitem(mechanisms.ADD_NOISE, kind, made(honest))
    return seen


def honest(add_noise, total, deviation, rng):
    return add_noise(total, deviation, rng)


def without_noise(add_noise, total, deviation, rng):
    return total


def with_less_noise(fraction):
    return lambda add_noise, total, deviation, rng: add_noise(total, fraction * deviation, rng)


def without_clips(patch, model):
    """Let rows have nine times the gradient, as if none of them was clipped."""
    honest = model.linearize_rows

    def unclipped(self, w, X):
        scores, clipped = honest(self, w, X)
        return scores, lambda cotangent, max_norm: clipped(9 * cotangent, 9 * max_norm)

    patch.setattr(model, "linearize_rows", unclipped)


def spent(*releases, q=1.0, n=1, delta=DELTA, unit="record"):
    """Epsilon of n batches with these joint releases each."""
    return privacy_spent([Phase(releases, q, n)], delta=delta, unit=unit)
