"""Columns that give each group coefficients of its own, in training and prediction."""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse

from fairconstrained.estimators._predictions import like
from fairconstrained.groups import encode_groups


def with_group_columns(X, codes, n_groups):
    """``[X, 1[g], 1[g] X]`` for every group g but the first: the linear model of the paper.

    Paper: (1, x, s, s x) with s = 1, 2; here indicators, because they span the same models for two
    groups and also work for more.
    """
    blocks = [X]
    for g in range(1, n_groups):
        rows = like((codes == g).astype(np.float64)[:, None], X)
        blocks += [rows, X.multiply(rows) if sparse.issparse(X) else X * rows]
    if sparse.issparse(X):
        return sparse.csr_array(sparse.hstack(blocks))
    return torch.hstack(blocks) if isinstance(X, torch.Tensor) else np.hstack(blocks)


def known_codes(sensitive_features, n_samples, groups):
    """The index of the group of each sample among the groups seen in training."""
    if sensitive_features is None:
        raise ValueError(
            "sensitive_features is needed for predictions, because group_features=True: pass "
            "predict(X, sensitive_features=...), or through a pipeline or search with "
            "sklearn.set_config(enable_metadata_routing=True)."
        )
    codes, labels = encode_groups(sensitive_features, n_samples)
    known = {label: i for i, label in enumerate(groups.tolist())}
    unknown = [label for label in labels.tolist() if label not in known]
    if unknown:  # 1 is not "1"
        raise ValueError(
            f"sensitive_features has groups that were not seen in training: {unknown}; known are "
            f"{list(known)}."
        )
    return np.array([known[label] for label in labels.tolist()])[codes]
