"""Files of fitted models that are read without running code."""

from __future__ import annotations

from typing import Any


def trusted_types(model: Any) -> list[str]:
    """Return names of this package's types in a fitted model, for readers that want them named.

    skops, and mlflow with it, reads a file only if every type in it is one of scikit-learn's or
    trusted by name. Types of other packages are not in the list: look at them with
    ``skops.io.get_untrusted_types`` and decide.

    Parameters
    ----------
    model : fitted estimator
        An estimator of this package, or a pipeline or search with one inside.

    Returns
    -------
    list of str

    Raises
    ------
    ImportError
        If skops, of the extra ``clients``, is not installed.

    Examples
    --------
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.export import trusted_types
    >>> data = make_biased_classification(300, random_state=0)
    >>> clf = RateConstrainedClassifier()
    >>> clf = clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    >>> trusted_types(clf)  # doctest: +SKIP
    ['fairconstrained.estimators.rate_constrained.RateConstrainedClassifier',
     'fairconstrained.models.specification.Linear']
    """
    try:
        import skops.io
    except ImportError as error:
        raise ImportError(
            "trusted_types needs skops: pip install 'fairconstrained[clients]'."
        ) from error
    found = skops.io.get_untrusted_types(data=skops.io.dumps(model))
    return [name for name in found if name.startswith("fairconstrained.")]
