r"""The order in which candidates for a certificate are trained and tested.

Tests of one sequence that stops at the first failure need no correction for the number of
candidates: an error needs a model that violates the constraint and passes, and the first such model
of the sequence passes with probability at most :math:`\alpha`. Two sequences are tested, with
:math:`\varphi \alpha` and :math:`(1 - \varphi) \alpha`. A sequence whose models all pass hands its
part to the other, which goes on with :math:`\alpha`. The probability of an error is still at most
:math:`\alpha`. If both sequences have models that violate, neither hands anything on before the
first error, which has probability at most :math:`\varphi \alpha + (1 - \varphi) \alpha`. If only
one of them has, its first such model is tested with at most :math:`\alpha`. (A graphical procedure
of Bretz, Maurer, Brannath and Posch, "A graphical approach to sequentially rejective multiple test
procedures", Statistics in Medicine 28, 2009.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier

Parameters = Mapping[str, Any]
Candidate = tuple[Parameters, Any]  # a fitted model, and what was set for it
Test = Callable[[Parameters, Any, float], bool]  # at this fraction of the error: does it pass?
KEPT = 0.05, 0.1, 0.2, 0.35, 0.5, 0.75  # of the rarer decisions: what weaker models keep
# The next two were chosen on generated samples and samples of Adult that the evidence does not use.
# Of the probability of error, for the test on the training samples: a candidate that just holds on
# these often fails on others.
CAUTION = 0.02
FIRST = 0.9  # of the probability of error, for the sequence that is more likely to pass


def sequences(
    candidates: Sequence[Parameters],
    fit: Callable[[Parameters], Any],
    holds: Callable[[Any], bool] | None,
    X: Any,
) -> tuple[Iterator[Candidate], Iterator[Candidate]]:
    """Candidates from the strictest on, and weaker models; the likelier sequence to pass is first.

    Rates near 0 and 1 vary little, so that a model which hardly ever takes the rarer of its two
    decisions needs few samples for a certificate. Weaker models are the strictest candidate with
    thresholds that keep fractions of these decisions. They are first where it does not even hold
    (`holds`) on the training samples X. The order depends on the training samples alone. Without
    `holds` there are no weaker models. Each model is trained when it is asked for.
    """
    strictest = fit(candidates[0])
    looser = ((parameters, fit(parameters)) for parameters in candidates[1:])
    own = chain([(candidates[0], strictest)], looser)
    if holds is None:
        return own, iter(())
    weaker = _weaker(strictest, X)
    return (own, weaker) if holds(strictest) else (weaker, own)


def in_sequences(first: Iterable[Candidate], second: Iterable[Candidate], passes: Test) -> None:
    """Test both sequences, each until a model fails, and then with what the other hands on."""
    ahead, behind = iter(first), iter(second)
    failed = _first_failure(ahead, passes, FIRST)
    if failed is None:
        _first_failure(behind, passes, 1.0)
    elif _first_failure(behind, passes, 1.0 - FIRST) is None:
        _first_failure(chain([failed], ahead), passes, 1.0)


def _first_failure(models: Iterable[Candidate], passes: Test, fraction: float) -> Candidate | None:
    """The model that ends the sequence; None if all pass."""
    return next((model for model in models if not passes(*model, fraction)), None)


def _weaker(model: Any, X: Any) -> Iterator[Candidate]:
    """The model with thresholds at which it takes the rarer decision less often."""
    if len(model.classes_) != 2 or not hasattr(model, "decision_function"):
        return
    scores = np.asarray(model.decision_function(X))
    sign = 1.0 if (scores > 0).mean() <= 0.5 else -1.0
    rarer = np.sort(scores[sign * scores > 0] * sign)
    for kept in KEPT if len(rarer) else ():
        threshold = sign * float(np.quantile(rarer, 1.0 - kept))
        weaker = FixedThresholdClassifier(
            FrozenEstimator(model), threshold=threshold, response_method="decision_function"
        )
        yield {"threshold": threshold}, weaker.fit(X, model.predict(X))
