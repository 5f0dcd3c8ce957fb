"""Seeds of noise, which a fitted private estimator neither pickles nor shows."""

from __future__ import annotations

import copy
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils import estimator_html_repr


class HiddenSeed:
    """A base before scikit-learn's: with the seed of a private fit its noise can be subtracted.

    Whatever leaves the process is made of a copy, and a copy of a private fit has no seed.
    """

    keeps_seed = False  # set to True, copies and pickles have random_state: for experiments

    def __getstate__(self) -> dict[str, Any]:
        """The state to copy, pickle and show."""
        state: dict[str, Any] = super().__getstate__()  # type: ignore[assignment]
        hides = getattr(self, "privacy_", None) is not None and not self.keeps_seed
        return {**state, **self._without_seed()} if hides else state

    def _without_seed(self) -> dict[str, Any]:
        return {"random_state": None}

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        shown: Any = copy.copy(self)
        # Lines are broken for classes with scikit-learn's own method alone.
        plain = {"__repr__": BaseEstimator.__repr__}
        shown.__class__ = type(type(self).__name__, (type(self),), plain)
        return str(BaseEstimator.__repr__(shown, N_CHAR_MAX))

    def _html_repr(self) -> Any:
        return estimator_html_repr(copy.copy(self))
