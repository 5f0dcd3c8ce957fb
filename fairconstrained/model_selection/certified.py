"""A classifier whose constraint is certified on rows that its training has not seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import KW_ONLY, dataclass, replace
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import indexable

from fairconstrained.arrays import (
    as_numpy,
    check_all_samples,
    check_array,
    check_confidence,
    check_has,
    check_number,
    in_rows,
    rows_of,
)
from fairconstrained.exceptions import (
    ConstraintNotSatisfiedWarning,
    MissingSensitiveFeaturesWarning,
    NotCertifiedError,
    SmallGroupWarning,
    ignoring,
    warn_caller,
)
from fairconstrained.inputs.groups import within_strata
from fairconstrained.inputs.samples import check_samples
from fairconstrained.inputs.values import listed
from fairconstrained.metrics.certificates import certify
from fairconstrained.metrics.claims import BOUNDS, Claim, constraint_bound, read_claim
from fairconstrained.metrics.inputs import (
    CONSTANT,
    last_step,
    nearly_constant,
    predicted,
    scores_of,
)
from fairconstrained.metrics.statements import Certificate
from fairconstrained.model_selection._common import (
    DelegatingClassifier,
    passing_metadata,
    plain_objects,
    warn_of_exact_scores,
)
from fairconstrained.model_selection.splits import holdout_split
from fairconstrained.privacy.seeds import without_seeds

Parameters = Mapping[str, Any]
Candidate = tuple[Parameters, Any]  # a fitted model, and its settings

# Fractions of the slack that candidates are trained to keep. A smaller gap in training leaves more
# room for the bound, at more error.
FRACTIONS = 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95
# Fractions of the rarer decisions that weaker models keep, where no candidate passes at its own
# threshold.
KEPT = 0.05, 0.1, 0.2, 0.35, 0.5, 0.75
# The next two were chosen on generated samples and samples of Adult that the evidence does not use.
# Share of the probability of error for the test on the training samples: a candidate that just
# passes there often fails on others.
CAUTION = 0.02
FIRST = 0.9  # share of the probability of error for the sequence that is likelier to pass
# Gaps between rates of decisions, which shrink with thresholds at which fewer decisions are taken.
OF_DECISIONS = {"demographic_parity", "equalized_odds", "equal_opportunity"}
OF_DECISIONS |= {"false_positive_rate_parity"}


class _Tested(NamedTuple):
    """A candidate and its last test."""

    parameters: Parameters
    model: Any
    found: Certificate | None  # None if nothing can be certified
    accuracy: float
    useful: bool  # whether its predictions are not nearly constant

    @property
    def kept(self) -> bool:
        """Whether the candidate is certified."""
        return self.found is not None and self.found.kept

    @property
    def words(self) -> str:
        """The candidate's settings in words, such as slack=0.05."""
        return ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())


@dataclass(eq=False, repr=False)
class CertifiedClassifier(DelegatingClassifier):
    r"""The most accurate candidate whose constraint holds on new data, with a certificate of it.

    Some rows of every group are split off. On the others candidates are trained, from the strictest
    to the loosest; each is tested on the rows split off, until one fails. For a gap between rates
    of decisions a second sequence is tested: the strictest candidate with thresholds at which it
    takes the rarer of its two decisions less often. The most accurate model that passed is kept,
    exactly as tested: whichever it is, it keeps the constraint on the population with probability
    at least `confidence`. A model that predicts the same for 99 % or more of the rows split off is
    not kept: it satisfies any bound on a gap, and is useless.

    Parameters
    ----------
    estimator : classifier
        Any classifier or pipeline with a parameter that trades error against violation. Steps that
        request `sensitive_features` receive them.
    constraint : str or constraint object, optional
        Constraint to certify, as in :func:`~fairconstrained.metrics.certify`. By default the
        estimator's own `constraint`.
    slack : float, optional
        The bound to certify. By default the `slack`, `max`, or one minus the `ratio`, of the
        constraint, or else the estimator's own `slack`.
    confidence : float, default=0.95
        Probability that a certified model keeps the constraint.
    candidates : dict of str to sequence, optional
        One parameter with its values, *from the strictest to the loosest*. By default fractions of
        the slack for the estimator's parameter `slack`, or for that of its constraint.
    certify_size : float, default=0.5
        Fraction of each group's rows that is split off.
    on_failure : {"warn", "raise"}, default="warn"
        What to do if no candidate passes: warn, and keep a tested model without a certificate
        (`certified_` is False), or raise.
    min_group_size : int or "auto", default="auto"
        As in :func:`~fairconstrained.metrics.certify`.
    random_state : int, RandomState instance or None, default=None
        Seed of the split.

    Attributes
    ----------
    estimator_ : classifier
        The fitted candidate that predicts, in a
        :class:`~sklearn.model_selection.FixedThresholdClassifier` if it has another threshold. It
        is not retrained on all rows, since another model would have no certificate.
    certificate_ : Certificate or None
        Result of the test of `estimator_`; None without `sensitive_features`, except for a cap on
        all rows.
    certified_ : bool
        Whether that is a certificate.
    candidates_ : DataFrame
        Tested candidates: parameters, or the ``threshold`` of the strictest candidate,
        ``estimate`` and ``upper`` of the violation (at the level of its test), ``accuracy`` on the
        rows split off, ``kept``.
    classes_, n_features_in_, feature_names_in_
        As usual.

    Notes
    -----
    Tests in a fixed sequence that stops at the first failure need no correction for the number of
    candidates: an error needs a candidate that violates the constraint and passes, and the first
    such candidate passes with probability at most the level of the tests [1]_. Two sequences divide
    :math:`\alpha = 1 - \text{confidence}`. The one that is more likely to pass is tested with
    :math:`\varphi \alpha`, :math:`\varphi = 0.9`, the other one with the rest, and a sequence whose
    models all pass hands its part on to the other [2]_. The probability of an error remains at most
    :math:`\alpha`: if both have models that violate, neither hands anything on before the first
    error, which has probability at most :math:`\varphi\alpha + (1 - \varphi)\alpha`; if only one
    has, its first such model is tested with at most :math:`\alpha`. The training samples decide
    which is which: thresholds come first if the strictest candidate hardly holds on them.

    With few samples only models that hardly ever take one of their two decisions can be certified
    for a gap between rates of decisions; look at their ``accuracy`` in `candidates_`.

    Samples are split at random within each group, which keeps them independent draws of the group;
    for a cap on all samples together they are split without regard to groups. Certificates ignore
    `sample_weight`. Where groups are missing, a model that keeps the slack only without those rows
    is not certified: :func:`~fairconstrained.metrics.certify` says more.

    References
    ----------
    .. [1] Angelopoulos, Bates, Candes, Jordan and Lei, "Learn then Test: Calibrating predictive
       algorithms to achieve risk control", arXiv 2110.01052 (2021), Section 3.
    .. [2] Bretz, Maurer, Brannath and Posch, "A graphical approach to sequentially rejective
       multiple test procedures", Statistics in Medicine 28 (2009).

    Examples
    --------
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.model_selection import CertifiedClassifier
    >>> data = make_biased_classification(4000, random_state=0)
    >>> clf = CertifiedClassifier(RateConstrainedClassifier(slack=0.1), random_state=0)
    >>> clf = clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    >>> clf.certified_, clf.certificate_.upper <= 0.1
    (True, True)
    """

    estimator: Any
    _: KW_ONLY
    constraint: Any = None
    slack: float | None = None
    confidence: float = 0.95
    candidates: Any = None
    certify_size: Any = 0.5
    on_failure: str = "warn"
    min_group_size: Any = "auto"
    random_state: Any = None

    def fit(
        self, X: Any, y: ArrayLike, *, sensitive_features: Any = None, **fit_params: Any
    ) -> Self:
        """Train candidates, test them, and keep the most accurate one that is certified.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns), optional
        **fit_params
            More metadata, with one row per sample, that the estimator requests. With
            `control_features` the constraint is certified within strata, too.

        Raises
        ------
        ValueError
            If a parameter or an input is not valid, or within
            :func:`~fairconstrained.distributed.sharded_rows` of several workers.
        NotCertifiedError
            If no useful candidate is certified; with ``on_failure="warn"`` a
            ConstraintNotSatisfiedWarning. A candidate whose predictions are within 0.01 of a
            constant is not useful.

        Warns
        -----
        SmallGroupWarning
            Names the groups about which the certificate says nothing.
        PrivacyWarning
            If the estimator is private: a certificate tells exact numbers of the rows split off.
        """
        check_has("estimator", self.estimator, "fit")
        check_confidence(self.confidence)
        size = self.certify_size
        check_number("certify_size", size, "a number between 0 and 1", lambda s: 0 < s < 1)
        if self.on_failure not in ("warn", "raise"):
            raise ValueError(f"on_failure must be 'warn' or 'raise'; got {self.on_failure!r}.")
        check_all_samples(
            "CertifiedClassifier.fit",
            "each worker would certify another model, with rows of its own. Fit the estimator "
            "there, and certify it by metrics.certify with rows that no worker has trained on.",
        )
        constraint = self._argument("constraint", self.constraint)
        slack = self._argument("slack", self.slack, constraint_bound(constraint))
        how = {"interval": self._of_estimator("interval"), "min_group_size": self.min_group_size}
        groups, strata = sensitive_features, fit_params.get("control_features")
        claim = read_claim(constraint, slack, None, **how, in_strata=strata is not None)
        candidates = self._candidates(slack)
        check_samples(X=X, y=y, sensitive_features=sensitive_features, **fit_params)
        X, y = indexable(X, plain_objects(y))
        if y is None:
            raise ValueError(
                "CertifiedClassifier requires y to be passed, but the target y is None."
            )
        check_array(y, ensure_2d=False, dtype=None, input_name="y")  # finite
        check_classification_targets(y)
        warn_of_exact_scores(self.estimator, "CertifiedClassifier", candidates[0])
        self._begun = True
        if groups is not None and strata is not None:
            groups, _ = within_strata(groups, strata)
        # The bound of a cap on all samples together needs draws of all samples, with as many of
        # each group as there happen to be. Other bounds take the sizes of groups as given.
        train, test = holdout_split(
            len(y),  # type: ignore[arg-type]
            float(size),
            self.random_state,
            None if claim.pooled else groups,
        )
        metadata = {**fit_params}
        if sensitive_features is not None:
            metadata["sensitive_features"] = sensitive_features
        with passing_metadata(type(self).__name__):
            routed = process_routing(self, "fit", **metadata).estimator.fit
            training, split_off = (
                tuple(rows_of(values, rows) for values in (X, y, sensitive_features, strata))
                for rows in (train, test)
            )

            def fit(parameters: Parameters) -> Any:
                model = clone(self.estimator).set_params(**parameters)
                return model.fit(*training[:2], **rows_of(routed, train))

            if sensitive_features is None and not claim.pooled:
                tested = [_Tested(candidates[0], fit(candidates[0]), None, float("nan"), True)]
            else:
                tested = self._tested(candidates, fit, training, split_off, constraint, claim)
        self._keep(tested)
        return self

    def _tested(
        self,
        candidates: list[dict[str, Any]],
        fit: Callable[[Parameters], Any],
        train: tuple[Any, ...],
        test: tuple[Any, ...],
        constraint: Any,
        claim: Claim,
    ) -> list[_Tested]:
        """Train and test candidates in order; return the last test of each model."""

        def certified(model: Any, rows: tuple[Any, ...], level: float, **more: Any) -> Certificate:
            """Certify the model at a fraction `level` of the probability of error."""
            return certify(
                model,
                *rows[:2],
                sensitive_features=rows[2],
                control_features=rows[3],
                constraint=constraint,
                slack=claim.slack,
                min_group_size=self.min_group_size,
                confidence=1.0 - level * (1.0 - self.confidence),
                **more,
            )

        def holds(model: Any) -> bool:
            with ignoring(SmallGroupWarning):  # the test warns of them
                return certified(model, train, CAUTION).kept

        tested: dict[int, _Tested] = {}

        def passes(parameters: Parameters, model: Any, level: float) -> bool:
            interval = getattr(last_step(model), "interval_", claim.interval)
            found = certified(
                model, test, level, interval=interval, name="rows split off before training"
            )
            # Report the confidence of the whole procedure, not of the single test.
            certificate = replace(found, confidence=float(self.confidence))
            labels = as_numpy(predicted(model, test[0], test[2]))
            accuracy = float(np.mean(labels == np.asarray(as_numpy(test[1]))))
            tested.pop(id(model), None)  # it may be tested again
            shown = labels if claim.decides else scores_of(model, test[0], test[2])
            useful = not nearly_constant(shown)
            tested[id(model)] = _Tested(dict(parameters), model, certificate, accuracy, useful)
            return certificate.kept

        # Rates of other events do not fall with the rate of a decision.
        of_decisions = claim.decides and claim.notion in OF_DECISIONS
        in_sequences(*sequences(candidates, fit, holds if of_decisions else None, train[0]), passes)
        return list(tested.values())

    def _keep(self, tested: list[_Tested]) -> None:
        """Set the fitted attributes; warn, or raise an error, if no model has passed."""
        useful = [test for test in tested if test.useful]
        passed = [test for test in useful if test.kept]
        best = max(passed, key=lambda test: test.accuracy) if passed else (useful or tested)[0]
        self._predict_by(best.model)
        self.certificate_, self.certified_ = best.found, bool(passed)
        self.candidates_ = pd.DataFrame(
            {
                **test.parameters,
                "estimate": getattr(test.found, "estimate", np.nan),
                "upper": getattr(test.found, "upper", np.nan),
                "accuracy": test.accuracy,
                "kept": test.kept,
            }
            for test in tested
        )
        if passed:
            return
        category: type[Warning] = ConstraintNotSatisfiedWarning
        if best.found is None:
            message = (
                "sensitive_features is not given: CertifiedClassifier cannot compare groups and "
                "certifies nothing. Pass them to fit, through a pipeline or search with "
                "sklearn.set_config(enable_metadata_routing=True)."
            )
            category = MissingSensitiveFeaturesWarning
        elif np.isnan(best.found.estimate):
            left_out = listed(best.found.left_out, between="; ")
            message = f"No candidate is certified: nothing is left to compare ({left_out})."
        elif not useful:
            message = (
                "No useful model was found among the candidates: on the rows split off, the "
                f"predictions of all up to {tested[-1].words} are within {CONSTANT:g} of a "
                "constant. Give looser candidates, a larger slack, or more rows."
            )
        elif best.found.undecided:
            message = (
                "No useful model was found that is certified, since groups are missing: where rows "
                "of known group stand for all rows of their label, as in fits and metrics, the "
                f"strictest, {best.words}, has {best.found.constraint} of "
                f"{best.found.standing:.3g}, above the slack of {best.found.slack:g}."
            )
        else:
            message = (
                f"No useful model was found that is certified: the strictest, {best.words}, has "
                f"{best.found.constraint} of at most {best.found.upper:.3g} (confidence "
                f"{self.confidence:g}), above the slack of {best.found.slack:g} "
                f"({best.found.binding}; {in_rows(best.found.n_samples)}). More rows, a larger "
                "certify_size or slack, or stricter candidates can help."
            )
        if self.on_failure == "raise":
            raise NotCertifiedError(message)
        warn_caller(message, category)

    def _argument(self, name: str, *values: Any) -> Any:
        """Return the first value that is not None, or else the estimator's parameter `name`."""
        for value in (*values, self._of_estimator(name)):
            if value is not None:
                return value
        raise ValueError(
            f"{name} must be given: {type(self.estimator).__name__} has no parameter of this name, "
            "or several."
        )

    def _of_estimator(self, name: str) -> Any:
        """Return the value of the estimator's parameter `name`, or None if it has none."""
        return self.estimator.get_params().get(self._key(name))

    def _key(self, name: str) -> str | None:
        """Return the key of the estimator's parameter `name`, or of the only step that has one."""
        parameters, suffix = self.estimator.get_params(), f"__{name}"
        nested = [
            key
            for key in parameters
            if key.endswith(suffix) and hasattr(parameters[key.removesuffix(suffix)], "fit")
        ]
        own = [name] if name in parameters else nested
        return own[0] if len(own) == 1 else None

    def _without_seed(self) -> dict[str, Any]:
        return {"estimator": without_seeds(self.estimator, self.candidates or ())}

    def _candidates(self, slack: float) -> list[dict[str, Any]]:
        """Return the parameters of each candidate."""
        candidates = self.candidates
        if candidates is None:
            parameters, constraint = self.estimator.get_params(), self._key("constraint")
            bounds = {f"{constraint}__{name}": of for name, of in BOUNDS.items()}
            used = (key for key in bounds if parameters.get(key) is not None)
            key = next(used, self._key("slack"))
            if key is None:
                raise ValueError(
                    f"candidates must be given: {type(self.estimator).__name__} has no parameter "
                    "slack, or several. Name a parameter that trades error against violation, with "
                    "its values from the strictest to the loosest: {'C': [0.01, 0.1, 1.0]}."
                )
            bound = bounds.get(key, float)
            # Rounded: 0.1 of 0.1 is 0.010000000000000002, which the certificate would show.
            candidates = {key: [float(f"{bound(part * slack):.12g}") for part in FRACTIONS]}
        if (
            not isinstance(candidates, Mapping)
            or len(candidates) != 1
            or not all(isinstance(values, Sized) and len(values) for values in candidates.values())
        ):
            raise ValueError(
                "candidates must be a dict of one parameter to its values, which are not empty; "
                f"got {candidates!r}."
            )
        ((name, values),) = candidates.items()
        return [{name: value} for value in values]

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the routing of metadata to the classifier and its estimator."""
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return router.add(estimator=self.estimator, method_mapping=mapping)

    __metadata_request__fit = {"sensitive_features": True}  # noqa: RUF012 (scikit-learn's way)


def sequences(
    candidates: Sequence[Parameters],
    fit: Callable[[Parameters], Any],
    holds: Callable[[Any], bool] | None,
    X: Any,
) -> tuple[Iterator[Candidate], Iterator[Candidate]]:
    """Return the sequences of looser candidates and of weaker models, the likelier to pass first.

    Weaker models are the strictest candidate with thresholds at which it takes its rarer decision
    less often; they come first unless it `holds` already, on the training samples X.
    """
    strictest = fit(candidates[0])
    looser = ((parameters, fit(parameters)) for parameters in candidates[1:])
    own = chain([(candidates[0], strictest)], looser)
    if holds is None:
        return own, iter(())
    weaker = _weaker(strictest, X)
    return (own, weaker) if holds(strictest) else (weaker, own)


def in_sequences(
    first: Iterable[Candidate],
    second: Iterable[Candidate],
    passes: Callable[[Parameters, Any, float], bool],
) -> None:
    """Test both sequences until a model fails; a sequence without failure hands on its level."""
    ahead, behind = iter(first), iter(second)

    def failure(models: Iterable[Candidate], fraction: float) -> Candidate | None:
        return next((model for model in models if not passes(*model, fraction)), None)

    failed = failure(ahead, FIRST)
    if failed is None:
        failure(behind, 1.0)
    elif failure(behind, 1.0 - FIRST) is None:
        failure(chain([failed], ahead), 1.0)


def _weaker(model: Any, X: Any) -> Iterator[Candidate]:
    """Yield the model with thresholds at which it takes the rarer decision less often."""
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
