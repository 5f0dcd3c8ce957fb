"""Seeds of noise, which a fitted private estimator neither pickles nor shows."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from sklearn.base import BaseEstimator, clone
from sklearn.utils import estimator_html_repr


class HiddenSeed:
    """A base class that hides seeds of private fits, with which the noise could be subtracted.

    Whatever leaves the process is made of a copy, and a copy of a private fit has no seed.
    """

    keeps_seed = False  # set to True, copies and pickles have random_state: for experiments
    _begun = False  # whether a private fit has released something, and perhaps failed after that

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to copy, pickle and show."""
        state: dict[str, Any] = super().__getstate__()  # type: ignore[assignment]
        begun = self._begun or getattr(self, "privacy_", None) is not None
        return {**state, **self._without_seed()} if begun and not self.keeps_seed else state

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

    # scikit-learn 1.6 calls these two, and later versions call the one above.
    def _repr_html_inner(self) -> Any:
        return self._html_repr()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        shown = super()._repr_mimebundle_(**options)  # type: ignore[misc]
        return {**shown, **({"text/html": self._html_repr()} if "text/html" in shown else {})}


def private_parts(estimator: Any, varied: Iterable[str] = ()) -> list[str]:
    """List the prefixes of the parameters of parts that are private, or are if one is `varied`."""
    params = {**estimator.get_params(), **dict.fromkeys(varied, True)}
    ends = [name for name in params if name.split("__")[-1] == "epsilon"]
    return [name.removesuffix("epsilon") for name in ends if params[name] is not None]


def without_seeds(estimator: Any, varied: Iterable[str] = ()) -> Any:
    """Return the estimator, or a clone without the seeds of private parts if they have any."""
    params = estimator.get_params()
    seeds = {f"{prefix}random_state": None for prefix in private_parts(estimator, varied)}
    if all(params.get(name) is None for name in seeds):
        return estimator
    return clone(estimator).set_params(**seeds)
