"""partial_fit: estimators that train on all that a stream has brought so far."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from fairconstrained.estimators._base import FairClassifier
from fairconstrained.estimators._checks import checked_weight, unchanged_on_error
from fairconstrained.estimators._stream import Stream
from fairconstrained.groups import encode_groups

__all__ = ["StreamingClassifier"]


class StreamingClassifier(FairClassifier):
    """A FairClassifier of two classes with ``partial_fit``; it has `stream_memory`, `epsilon`."""

    __metadata_request__partial_fit = {"sensitive_features": True}  # noqa: RUF012
    _stream = None

    def _from_moments(self):
        """Whether group moments are all that training needs."""
        raise NotImplementedError

    def partial_fit(self, X, y, classes=None, *, sensitive_features=None, sample_weight=None):
        """Train on all rows seen by this method so far.

        Moments of groups add up exactly over chunks of any size, single rows included. With
        ``objective="auc"``, a linear model and a surrogate of moments the whole stream counts,
        and the rows kept serve to measure true AUCs; otherwise the model is trained on the rows
        kept. Up to `stream_memory` rows all are kept: then the model is that of :meth:`fit` on the
        same rows, up to rounding. Beyond, they are a uniform sample.

        Every call runs the solver afresh (also a stochastic one); ``warm_start=True`` starts from
        the last solution, which is faster and agrees within the tolerance of the slack.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        classes : array-like of shape (2,), optional
            Both labels; needed in the first call unless its rows have both.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns), optional
            As in :meth:`fit`; new groups may come at any time.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self
            Ready to predict once both classes have been seen. A call to :meth:`fit` ends the
            stream.

        Raises
        ------
        ValueError
            For a label that is not in `classes`, another number of columns, or sensitive features
            in some chunks only; the estimator is then as it was before the call.
        """
        with unchanged_on_error(self):
            self._check_parameters()
            if self.epsilon is not None:
                raise ValueError(
                    f"{type(self).__name__}.partial_fit needs epsilon=None: every call would spend "
                    "the whole budget."
                )
            groups = self._extend_stream(X, y, classes, sensitive_features, sample_weight)
            stream = self._stream
            if len(np.unique(stream.y)) == 2:
                self._train(stream.X, stream.classes[stream.y], groups, stream.weight)
        return self

    def _forget(self):
        vars(self).pop("_stream", None)

    def _extend_stream(self, X, y, classes, sensitive_features, sample_weight):
        """Take in a chunk; give the groups of the rows kept."""
        first = self._stream is None
        X, y = validate_data(
            self,
            X,
            y,
            reset=first,
            accept_sparse="csr",
            dtype=np.float64,
            order="C",
            force_writeable=True,
        )
        weight = checked_weight(sample_weight, len(y))
        groups = None
        if sensitive_features is not None:
            groups = encode_groups(sensitive_features, len(y))
        if first:
            seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
            begun = Stream.begin(
                y, classes, groups, X.shape[1], seed, with_moments=self._from_moments()
            )
        stream = begun if first else self._stream
        self._stream = stream.extended(X, y, classes, groups, weight, self.stream_memory)
        groups = None if groups is None else (self._stream.group, self._stream.groups)
        if groups is None or len(groups[1]) < 2:
            groups = self._without_groups(groups, n_samples=len(self._stream.y))
        return groups
