"""Methods that a meta-estimator has if its estimator has them."""

from __future__ import annotations

from typing import Any

from sklearn.utils.metaestimators import available_if


def estimator_has(method: str) -> Any:
    """Decorator of a method that exists if the estimator has one of this name."""

    def check(self: Any) -> bool:
        getattr(getattr(self, "estimator_", self.estimator), method)
        return True

    return available_if(check)
