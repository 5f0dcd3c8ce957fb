"""Model cards, and the types that readers of a stored model have to trust."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from math import isnan
from typing import Any

from sklearn.utils.validation import check_is_fitted

from fairconstrained.estimators.base import FairClassifier
from fairconstrained.inputs.groups import group_name
from fairconstrained.inputs.values import in_words
from fairconstrained.metrics.claims import slacks_of
from fairconstrained.metrics.statements import Certificate, in_markdown

# Where a wrapper keeps the fitted estimator in it.
_INSIDE = ("best_estimator_", "estimator_", "estimator")

_UNCERTIFIED = """\
None. On new rows the violation differs from that on training rows, and is mostly larger:
`fairconstrained.metrics.certify` bounds it from rows that no fit has seen."""
_ON_ROWS = """\
on the training rows, and for a scikit-learn classifier as `model` out of fold: by copies that were
not fitted to the row; for `Boosting` on the training rows that it holds out"""
_NOT_PRIVATE = "None: the model was trained without differential privacy."
_ONE_FIT = """\
This is the promise of one fit. What {wrapper} learnt, trained or chosen besides by the same rows is
not covered by this epsilon. One epsilon for a whole search: `PrivateGridSearch`."""
_LIMITS = """\
The constraint is on the groups and the criterion above. It says nothing about other groups, about
subgroups of these, about other criteria of fairness, or about rows of another population."""


@dataclass(frozen=True)
class ModelCard:
    """A model card in sections. ``str`` returns Markdown.

    Parameters
    ----------
    title : str
    sections : dict of str to str
        Markdown of each section, by its heading.

    Examples
    --------
    >>> from fairconstrained.export import ModelCard
    >>> print(ModelCard("A model", {"Limits": "Many."}))
    # A model
    <BLANKLINE>
    ## Limits
    <BLANKLINE>
    Many.
    """

    title: str
    sections: dict[str, str]

    def __str__(self) -> str:
        parts = [f"# {self.title}", *(f"## {name}\n\n{s}" for name, s in self.sections.items())]
        return "\n\n".join(parts)

    def to_skops(self, model: Any) -> Any:
        """Return a ``skops.card.Card`` with these sections and a diagram of the model."""
        skops = _skops("to_skops")
        as_published = pickle.loads(pickle.dumps(model))  # without the seed of a private fit
        return skops.card.Card(as_published).add(**self.sections)


def model_card(model: Any, *, certificate: Certificate | None = None) -> ModelCard:
    """Fill a model card from a fit: constraint, violation, groups, certificate and privacy.

    Parameters
    ----------
    model : fitted estimator
        An estimator of this package, or a pipeline, search or ``CertifiedClassifier`` with one
        inside.
    certificate : Certificate, optional
        The result of :func:`fairconstrained.metrics.certify`; by default the ``certificate_`` of
        the model, if it has one.

    Returns
    -------
    ModelCard

    Raises
    ------
    ValueError
        If the model is not fitted, or there is no estimator of this package in it.

    Examples
    --------
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.export import model_card
    >>> data = make_biased_classification(300, random_state=0)
    >>> clf = RateConstrainedClassifier()
    >>> clf = clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    >>> print(model_card(clf).sections["Groups"])
    Sensitive features are used in training only. Groups: 0, 1.
    """
    check_is_fitted(model)
    around = [model]  # the model, the models inside of it, and last an estimator of this package
    while not isinstance(inner := around[-1], FairClassifier):
        # Searches and wrappers of any library keep the fitted model under one of a few names.
        inside = [getattr(inner, name) for name in _INSIDE if hasattr(inner, name)]
        inside += [step for _, step in getattr(inner, "steps", [])[-1:]]
        if not inside:
            raise ValueError(
                f"model must be a classifier of fairconstrained, or hold one; got {model!r}."
            )
        around.append(inside[0])
    clf = around[-1]
    check_is_fitted(clf)
    certificate = certificate or getattr(model, "certificate_", None)
    groups = in_markdown(", ".join(map(group_name, clf.groups_)))
    used = "and in prediction" if getattr(clf, "group_features", False) else "only"
    proof = f"```text\n{certificate}\n```" if certificate else _UNCERTIFIED
    sections = {
        "Model": _model(clf),
        "Constraint": _constraint(clf),
        "Groups": f"Sensitive features are used in training {used}. Groups: {groups}.",
        "Certificate": proof,
        "Privacy": _privacy(around),
        "Limits": _LIMITS,
    }
    notions = ", ".join(clf.violations_) or "no constraint"
    return ModelCard(f"{type(clf).__name__}: {notions}", sections)


def trusted_types(model: Any) -> list[str]:
    """Return the names of this package's and scikit-learn's types in a fitted model, to be trusted.

    skops, and mlflow with it, reads a file only if every type in it is trusted, by itself or by
    name. It trusts most of scikit-learn's types by itself, but not the types of boosted trees, as a
    file made up by an attacker could misuse them: read files from people you trust. Types of other
    packages are not in the list: look at them with ``skops.io.get_untrusted_types`` and decide.

    Parameters
    ----------
    model : fitted estimator
        An estimator of this package, or a pipeline or search with one inside.

    Returns
    -------
    list of str

    Examples
    --------
    >>> from fairconstrained.export import trusted_types
    >>> trusted_types(clf)  # a fitted RateConstrainedClassifier  # doctest: +SKIP
    ['fairconstrained.estimators.rate_constrained.RateConstrainedClassifier',
     'fairconstrained.models.specification.Linear']
    """
    skops = _skops("trusted_types")
    found = skops.io.get_untrusted_types(data=skops.io.dumps(model))
    return [name for name in found if name.startswith(("fairconstrained.", "sklearn."))]


def _skops(name: str) -> Any:
    try:
        import skops.card
        import skops.io
    except ImportError as error:
        raise ImportError(f"{name} needs skops: pip install skops.") from error
    return skops


def _privacy(around: list[Any]) -> str:
    """Return a text on the guarantee of the outermost model that has one, and on its limits."""
    if around[-1].privacy_ is None:
        return _NOT_PRIVATE
    # A private search has spent more than the fit that it chose.
    place = next(i for i, model in enumerate(around) if hasattr(model, "privacy_"))
    text = f"```text\n{around[place].privacy_}\n```"
    wrapper = " and ".join(type(model).__name__ for model in around[:place])
    return f"{text}\n\n{_ONE_FIT.format(wrapper=wrapper)}" if wrapper else text


def _model(clf: Any) -> str:
    *others, last = map(in_words, clf.classes_)
    classes = f"{', '.join(others)} or {last}"
    features = f" from {clf.n_features_in_} features" if hasattr(clf, "n_features_in_") else ""
    best = clf._description_.favourable  # of ordered categories, which no parameter says
    favourable = "" if best is None else f" The favourable one is {in_markdown(in_words(best))}."
    return (
        f"```python\n{clf!r}\n```\n\n"
        f"It predicts {in_markdown(classes)}{features}.{favourable} Training ended "
        f"after {clf.n_iter_} iterations: {clf.status_}."
    )


def _constraint(clf: Any) -> str:
    source = _ON_ROWS if clf.privacy_ is None else "by the noisy numbers that were released"
    rows = [f"| {name} | {value:.6g} |" for name, value in clf.violations_.items()]
    left_out = f" Left out: {in_markdown('; '.join(clf.left_out_))}." if clf.left_out_ else ""
    if any(map(isnan, clf.violations_.values())):
        verdict = "It is NOT kept there: where it is nan, nothing is compared."
    elif not len(clf.multipliers_):
        verdict = "It is penalised and not bounded."
    else:
        verdict = f"It {'is' if clf.feasible_ else 'is NOT'} kept "
        if clf.privacy_ is None:
            verdict += "there, to the last row."
        else:
            verdict += f"by these numbers, whose error is {clf.excess_error_:.2g} (two standard "
            verdict += "deviations of the noise)."
    if clf.training_violation_ != clf.violation_ and not isnan(clf.violation_):
        trained = f"{clf.training_violation_:.6g}"
        verdict += f" By the model that predicts it is {trained} on all training rows."
    table = "\n".join(["| criterion | violation |", "|---|---|", *rows])
    return f"Measured {source}:\n\n{table}\n\n{verdict}{_slacks(clf)}{left_out}"


def _slacks(clf: Any) -> str:
    """Return a sentence on the slack of all criteria, or of each, in units of violations."""
    if not hasattr(clf, "slack"):
        return ""
    words = [f"{slack}" for slack in slacks_of(clf)]
    if len(set(words)) == 1:
        return f" The slack is {words[0]}."
    return "".join(
        f" The slack of {name} is {slack}."
        for name, slack in zip(clf.violations_, words, strict=True)
    )
