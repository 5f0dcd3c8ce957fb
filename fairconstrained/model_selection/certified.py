"""A classifier whose constraint is certified on rows that its training has not seen."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, indexable

from fairconstrained.arrays import as_numpy, check_array, rows_of
from fairconstrained.exceptions import (
    ConstraintNotSatisfiedWarning,
    MissingSensitiveFeaturesWarning,
    NotCertifiedError,
    SmallGroupWarning,
    warn_caller,
)
from fairconstrained.metrics import Certificate, certify
from fairconstrained.metrics._answers import last_step, predicted
from fairconstrained.metrics._findings import CAPS, PARITIES
from fairconstrained.metrics.bounds import check_confidence
from fairconstrained.model_selection._delegation import estimator_has
from fairconstrained.model_selection._exact import warn_of_exact_scores
from fairconstrained.model_selection._holdout import split_within_groups
from fairconstrained.model_selection._sequence import CAUTION, in_sequences, sequences
from fairconstrained.samples import check_all_samples, check_samples

FRACTIONS = 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95  # of the slack: what candidates are trained to keep
OF_DECISIONS = set(PARITIES) - {"error_rate_parity"}  # gaps between rates of decisions
BOUNDS = "slack", "max"  # of constraints, if they have one of their own


class CertifiedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    r"""The most accurate candidate whose constraint holds on new data, with a certificate of it.

    Some rows of every group are split off. On the others candidates are trained, from the strictest
    to the loosest; each is tested on the rows split off, until one fails. For a gap between rates
    of decisions a second sequence is tested: the strictest candidate with thresholds at which it
    takes the rarer of its two decisions less often. The most accurate model of those that passed is
    kept, as it was trained and tested: with probability at least `confidence` it keeps the
    constraint on the population, whichever was chosen.

    Parameters
    ----------
    estimator : classifier
        Any, also a pipeline, with a parameter that trades error against violation. Steps that ask
        for `sensitive_features` receive them.
    constraint : str or constraint object, optional
        What to certify, as in :func:`~fairconstrained.metrics.certify`. By default the
        estimator's own `constraint`.
    slack : float, optional
        The bound to certify. By default the `slack` or `max` of the constraint, or else the
        estimator's own `slack`.
    confidence : float, default=0.95
        Probability that a certified model keeps the constraint.
    candidates : dict of str to sequence, or sequence of dict, optional
        One parameter with its values, or parameters to set, *from the strictest to the loosest*. By
        default fractions of the slack for the estimator's parameter `slack`, or for that of its
        constraint.
    certify_size : float, default=0.5
        Fraction of each group's rows that is split off.
    on_failure : {"warn", "raise"}, default="warn"
        What to do if no candidate passes: warn and keep what was tested without a claim
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
        is not trained again on all rows: another model would have no certificate.
    certificate_ : Certificate or None
        What the test of `estimator_` found; None without `sensitive_features`.
    certified_ : bool
        Whether that is a certificate.
    candidates_ : DataFrame
        What was tested: parameters, or the ``threshold`` of the strictest candidate, ``estimate``
        and ``upper`` of the violation (at the level of its test), ``accuracy`` on the rows split
        off, ``kept``.
    classes_, n_features_in_, feature_names_in_
        As usual.

    Notes
    -----
    Tests in a fixed sequence that stops at the first failure need no correction for the number of
    candidates: an error needs a candidate that violates the constraint and passes, and the first
    candidate of the sequence that violates it passes with probability at most the level of the
    tests (Learn then Test, Angelopoulos et al. 2021, Section 3). Two sequences divide 1 -
    `confidence`: the one that is more likely to pass is tested with 90 % of it, the other one with
    10 %, and a sequence whose models all pass hands its part on to the other (Bretz et al. 2009).
    The probability of an error remains at most 1 - `confidence`. Which is which matters for the
    chance of success, not for the validity, and the training samples decide it: thresholds come
    first if the strictest candidate hardly holds on them.

    Rates near 0 and 1 vary little. With few samples a model that hardly ever takes one of its two
    decisions is all that can be certified for a gap between rates of decisions; its ``accuracy`` in
    `candidates_` tells what it is worth.

    Samples are split at random within each group, which keeps them independent draws of the group;
    for a cap on all samples together they are split without regard to groups, which keeps them
    independent draws of the population. A certificate counts samples: `sample_weight` is for
    training only.

    References
    ----------
    Angelopoulos, Bates, Candes, Jordan and Lei, "Learn then Test: Calibrating predictive algorithms
    to achieve risk control", arXiv 2110.01052 (2021). Bretz, Maurer, Brannath and Posch, "A
    graphical approach to sequentially rejective multiple test procedures", Statistics in Medicine
    28 (2009). Thomas et al., "Preventing undesirable behavior of intelligent machines", Science 366
    (2019), for tests after training.

    Examples
    --------
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.model_selection import CertifiedClassifier
    >>> data = make_biased_classification(6000, random_state=0)
    >>> clf = CertifiedClassifier(RateConstrainedClassifier(slack=0.1), random_state=0)
    >>> clf = clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    >>> clf.certified_, clf.certificate_.upper <= 0.1
    (True, True)
    """

    def __init__(
        self,
        estimator: Any,
        *,
        constraint: Any = None,
        slack: float | None = None,
        confidence: float = 0.95,
        candidates: Any = None,
        certify_size: Any = 0.5,
        on_failure: str = "warn",
        min_group_size: Any = "auto",
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.constraint = constraint
        self.slack = slack
        self.confidence = confidence
        self.candidates = candidates
        self.certify_size = certify_size
        self.on_failure = on_failure
        self.min_group_size = min_group_size
        self.random_state = random_state

    def fit(
        self, X: Any, y: ArrayLike, *, sensitive_features: Any = None, **fit_params: Any
    ) -> Self:
        """Train candidates, test them, keep the best that is certified.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns), optional
        **fit_params
            More metadata, with one row per sample, that the estimator requests.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or an input is not valid, or within
            :func:`~fairconstrained.distributed.sharded_rows` of several workers.
        NotCertifiedError
            With ``on_failure="raise"``, if no candidate is certified.

        Warns
        -----
        ConstraintNotSatisfiedWarning
            With ``on_failure="warn"``, if no candidate is certified.
        SmallGroupWarning
            Names the groups about which the certificate says nothing.
        PrivacyWarning
            If the estimator is private: a certificate tells exact numbers of the rows split off.
        """
        self._check_parameters()
        check_all_samples(
            "CertifiedClassifier.fit",
            "each worker would certify another model, with rows of its own. Fit the estimator "
            "there, and certify it by metrics.certify with rows that no worker has trained on.",
        )
        constraint = self._own("constraint")
        slack = self._allowed(constraint)
        candidates = self._candidates(slack)
        check_samples(X=X, y=y, sensitive_features=sensitive_features, **fit_params)
        X, y = indexable(X, y)
        if y is None:
            raise ValueError(
                "CertifiedClassifier requires y to be passed, but the target y is None."
            )
        check_array(y, ensure_2d=False, dtype=None, input_name="y")  # finite
        check_classification_targets(y)
        warn_of_exact_scores(self.estimator, "CertifiedClassifier")
        n_samples = len(y)  # type: ignore[arg-type]
        size = float(self.certify_size)
        # The bound of a cap on all samples together is for draws of all of them: as many of each
        # group as there happen to be. Other bounds take the sizes of groups as given.
        apart = None if _of_all_samples(constraint) else sensitive_features
        train, test = split_within_groups(apart, n_samples, size, self.random_state)
        given = {**fit_params}
        if sensitive_features is not None:
            given["sensitive_features"] = sensitive_features
        with config_context(enable_metadata_routing=True):
            routed = process_routing(self, "fit", **given).estimator.fit
            known = {name: rows_of(values, train) for name, values in routed.items()}
            tested = self._tested(
                candidates,
                (*(rows_of(of, train) for of in (X, y, sensitive_features)), known),
                (rows_of(X, test), rows_of(y, test), rows_of(sensitive_features, test)),
                constraint,
                slack,
            )
        self._keep(tested)
        return self

    def _tested(
        self, candidates: list[dict[str, Any]], train: Any, test: Any, constraint: Any, slack: float
    ) -> list[tuple[dict[str, Any], Any, Certificate | None, float]]:
        """What was tested, each as its last test found it."""
        X, y, own_groups, known = train
        X_test, y_test, groups = test

        def fit(parameters: Mapping[str, Any]) -> Any:
            return clone(self.estimator).set_params(**parameters).fit(X, y, **known)

        if groups is None and not _of_all_samples(constraint):
            return [(candidates[0], fit(candidates[0]), None, float("nan"))]
        given: dict[str, Any] = {
            "constraint": constraint,
            "slack": slack,
            "min_group_size": self.min_group_size,
        }
        interval = self._own("interval", None)

        def holds(model: Any) -> bool:
            cautious = 1.0 - CAUTION * (1.0 - self.confidence)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SmallGroupWarning)  # the test warns of them
                found = certify(
                    model, X, y, sensitive_features=own_groups, confidence=cautious, **given
                )
            return found.kept

        tested: list[tuple[dict[str, Any], Any, Certificate | None, float]] = []

        def passes(parameters: Mapping[str, Any], model: Any, fraction: float) -> bool:
            found = certify(
                model,
                X_test,
                y_test,
                sensitive_features=groups,
                confidence=1.0 - fraction * (1.0 - self.confidence),
                interval=getattr(last_step(model), "interval_", interval),
                name="rows split off before training",
                **given,
            )
            # What holds with more confidence is stated with that of the whole procedure.
            certificate = replace(found, confidence=float(self.confidence))
            labels = as_numpy(predicted(model, X_test, groups))
            accuracy = float(np.mean(labels == np.asarray(as_numpy(y_test))))
            tested[:] = [row for row in tested if row[1] is not model]  # it may be tested again
            tested.append((dict(parameters), model, certificate, accuracy))
            return certificate.kept

        # Rates of other events do not fall with those of a decision.
        of_decisions = getattr(constraint, "name", constraint) in OF_DECISIONS and interval is None
        ordered = sequences(candidates, fit, holds if of_decisions else None, X)
        in_sequences(*ordered, passes)
        return tested

    def _keep(self, tested: list[tuple[dict[str, Any], Any, Certificate | None, float]]) -> None:
        passed = [row for row in tested if row[2] is not None and row[2].kept]
        _, model, certificate, _ = max(passed, key=lambda row: row[3]) if passed else tested[0]
        self.estimator_, self.certificate_, self.certified_ = model, certificate, bool(passed)
        self.classes_ = model.classes_
        self.candidates_ = pd.DataFrame(
            {
                **parameters,
                "estimate": np.nan if found is None else found.estimate,
                "upper": np.nan if found is None else found.upper,
                "accuracy": accuracy,
                "kept": found is not None and found.kept,
            }
            for parameters, _, found, accuracy in tested
        )
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))
        if passed:
            return
        if certificate is None:
            message = (
                "sensitive_features is not given: CertifiedClassifier cannot compare groups and "
                "certifies nothing. Pass them to fit, through a pipeline or search with "
                "sklearn.set_config(enable_metadata_routing=True)."
            )
            category: type[Warning] = MissingSensitiveFeaturesWarning
        else:
            message = (
                f"No candidate is certified: the strictest has {certificate.constraint} "
                f"of at most {certificate.upper:.3g} (confidence {self.confidence:g}), above the "
                f"slack of {certificate.slack:g} ({certificate.binding}; {certificate.n_samples} "
                "rows). More rows, a larger certify_size or slack, or stricter candidates can help."
            )
            category = ConstraintNotSatisfiedWarning
        if self.on_failure == "raise":
            raise NotCertifiedError(message)
        warn_caller(message, category)

    # ------------------------------------------------------------------ parameters and rows

    def _check_parameters(self) -> None:
        check_confidence(self.confidence)
        size = self.certify_size
        if isinstance(size, bool) or not isinstance(size, Real) or not 0 < float(size) < 1:
            raise ValueError(f"certify_size must be a number between 0 and 1; got {size!r}.")
        if self.on_failure not in ("warn", "raise"):
            raise ValueError(f"on_failure must be 'warn' or 'raise'; got {self.on_failure!r}.")

    def _own(self, name: str, *default: Any) -> Any:
        """The parameter of this object, or else of the estimator: of one of its steps."""
        value = getattr(self, name, None)
        if value is not None:
            return value
        key = self._key(name)
        if key is None and default:
            return default[0]
        if key is None:
            raise ValueError(
                f"{name} must be given: {type(self.estimator).__name__} has no parameter of this "
                "name, or several."
            )
        return self.estimator.get_params()[key]

    def _key(self, name: str) -> str | None:
        """The estimator's parameter of this name, its own or that of the only step that has it."""
        parameters = self.estimator.get_params()
        if name in parameters:
            return name
        parents = {key: key.removesuffix(f"__{name}") for key in parameters}
        found = [
            key
            for key, parent in parents.items()
            if parent != key and hasattr(parameters[parent], "fit")
        ]
        return found[0] if len(found) == 1 else None

    def _allowed(self, constraint: Any) -> Any:
        """The bound: this object's, the constraint's own, or the estimator's."""
        own = (self.slack, *(getattr(constraint, name, None) for name in BOUNDS))
        given = [value for value in own if value is not None]
        return given[0] if given else self._own("slack")

    def _slack_key(self) -> str | None:
        """The estimator's parameter that bounds the violation; that of its constraint if set."""
        parameters, constraint = self.estimator.get_params(), self._key("constraint")
        own = [f"{constraint}__{name}" for name in BOUNDS]
        given = [key for key in own if parameters.get(key) is not None]
        return given[0] if given else self._key("slack")

    def _candidates(self, slack: float) -> list[dict[str, Any]]:
        given = self.candidates
        if given is None:
            key = self._slack_key()
            if key is None:
                raise ValueError(
                    f"candidates must be given: {type(self.estimator).__name__} has no parameter "
                    "slack, or several. Name a parameter that trades error against violation, with "
                    "its values from the strictest to the loosest: {'C': [0.01, 0.1, 1.0]}."
                )
            given = {key: [fraction * slack for fraction in FRACTIONS]}
        if isinstance(given, Mapping):
            if len(given) != 1:
                raise ValueError(
                    "candidates must name one parameter, or be a sequence of dicts; got a dict of "
                    f"{list(given)}."
                )
            ((key, values),) = given.items()
            given = [{key: value} for value in values]
        if not len(given) or not all(isinstance(parameters, Mapping) for parameters in given):
            raise ValueError(
                "candidates must be a dict of one parameter to its values, or a sequence of dicts "
                f"of parameters, and not empty; got {self.candidates!r}."
            )
        return [dict(parameters) for parameters in given]

    # ------------------------------------------------------------------ predictions, as estimator_

    @estimator_has("predict")  # type: ignore[untyped-decorator]
    def predict(self, X: Any, **params: Any) -> Any:
        """Labels that `estimator_` predicts.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        **params
            What its method takes.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict(X, **params)

    @estimator_has("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, **params: Any) -> Any:
        """Class probabilities of `estimator_`; see :meth:`predict`."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict_proba(X, **params)

    @estimator_has("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any, **params: Any) -> Any:
        """Scores of `estimator_`; see :meth:`predict`."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.decision_function(X, **params)

    # ------------------------------------------------------------------ scikit-learn's protocols

    def get_metadata_routing(self) -> MetadataRouter:
        """Metadata of this object and of the estimator.

        Returns
        -------
        MetadataRouter
        """
        router = MetadataRouter(owner=type(self).__name__)
        router.add_self_request(self)
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router.add(estimator=self.estimator, method_mapping=mapping)
        return router

    __metadata_request__fit = {"sensitive_features": True}  # noqa: RUF012 (scikit-learn's way)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        if inner.classifier_tags is not None:
            tags.classifier_tags.multi_class = inner.classifier_tags.multi_class
        return tags


def _of_all_samples(constraint: Any) -> bool:
    """Whether it is a cap that groups play no part in."""
    cap = getattr(constraint, "name", constraint) in CAPS
    return cap and not getattr(constraint, "per_group", False)
