"""Fits whose rows are divided among processes of ``torch.distributed``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from fairconstrained.samples import CHOSEN_WORKERS
from fairconstrained.workers import ALONE, Workers

__all__ = ["sharded_rows"]


@contextmanager
def sharded_rows(group: Any = None) -> Iterator[None]:
    """Within it the rows given to ``fit`` are this worker's part of the rows.

    All workers call ``fit`` with the same parameters, each with rows of its own, and end with the
    same model: without `epsilon` that of one worker with all rows, up to rounding. Only counts,
    tables of the constraint, gradients and the names of labels and groups travel between them, and
    scores where their order is compared.

    All estimators take part, with a linear model or with a fitted classifier as `model`, a
    :class:`sklearn.frozen.FrozenEstimator`. The constrained linear model on its posteriors learns
    from the rows of all, its calibration and the models of the groups from those of the first
    worker.

    AUCs, and gaps at all thresholds of an interval, are functions of all scores. Up to 400,000 rows
    each worker sends the scores of its rows, and the values are exact. Of more rows, W workers send
    :math:`K = 400000 / (W C)` quantiles for each of C labels and groups. ``violation_`` then
    differs from the gap of all rows by at most 4 / K for AUCs and 2 / (K L) for gaps in an interval
    of length L. A gap of ranks (``"rank_parity"``) differs by at most 2 / K from that of an
    interval whose ends are at most 1 / K away. If rows are divided at random, errors are about W
    times smaller. What is optimised, and its gradients, are sums over all rows. Platt scaling and
    ``interval="auto"`` use the same scores.

    With `epsilon`, linear models of all estimators take part. Each worker draws the Poisson batch
    of its own rows, the noise on the sum over all workers is drawn once, by the first, and
    ``privacy_`` is that of one worker with all rows. Sums over the rows of one worker travel
    without noise: the workers are one party, which has to trust the network between them. Where
    groups alone are secret, which worker has a row must not depend on its group.

    Parameters are chosen outside. Scores of a search or of cross-validation are those of a worker's
    own rows: workers would choose differently, and a ``GridSearchCV`` ends with an error on all.
    With `n_jobs`, fits are in threads or processes in which each worker is alone.
    ``CertifiedClassifier``, ``PrivateGridSearch`` and ``partial_fit`` are refused. An error in
    training, such as a file of ``Blocks`` that cannot be read, has to end its worker, since the
    others are still in the fit.

    Parameters
    ----------
    group : ProcessGroup, optional
        Of ``torch.distributed``; default: all processes. Its ``timeout`` is how long a worker that
        does not answer is waited for.

    Raises
    ------
    ValueError
        If ``torch.distributed`` is not initialised, or this process is not in the group.

    Examples
    --------
    A process alone; ``torchrun`` or Dask start several, and give each its rank.

    >>> import torch.distributed as dist
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.distributed import sharded_rows
    >>> data = make_biased_classification(500, random_state=0)
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> with sharded_rows():
    ...     clf = RateConstrainedClassifier().fit(
    ...         data.data, data.target, sensitive_features=data.sensitive_features)
    >>> clf.feasible_
    True
    >>> dist.destroy_process_group()
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise ValueError(
            "sharded_rows needs the workers of torch.distributed: call "
            "torch.distributed.init_process_group first, as programs for torchrun do."
        )
    workers = Workers.initialised(group)
    if workers.rank < 0:
        raise ValueError(
            "sharded_rows: this process is not in the group, so that it has no part of the rows."
        )
    before = CHOSEN_WORKERS.set(workers)
    try:
        yield
    finally:
        CHOSEN_WORKERS.reset(before)


@contextmanager
def taken_workers() -> Iterator[Workers]:
    """Yield the workers that the caller has chosen; what is fitted within it is fitted alone."""
    workers = CHOSEN_WORKERS.get() or ALONE
    before = CHOSEN_WORKERS.set(None)
    try:
        yield workers
    finally:
        CHOSEN_WORKERS.reset(before)
