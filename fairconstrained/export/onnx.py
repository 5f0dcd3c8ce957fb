"""ONNX graphs of fitted classifiers, through skl2onnx.

Everything after the inputs is computed in double precision, as in this package, for any type of
inputs; a sum over boosted trees is rounded once to single precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.validation import check_is_fitted

from fairconstrained.models.cross_fitting import LEAST_PROBABILITY, Calibrator, Ensemble, InKinds
from fairconstrained.models.perceptron import Layers
from fairconstrained.models.posteriors import LEAST, FittedPosteriors, PartModel
from fairconstrained.numerics import TINY

# The graphs of skl2onnx differ: other neighbours where several are equally near, and probabilities
# as of several classes for discriminant analysis of two.
_OTHER_ANSWERS = (KNeighborsClassifier, LinearDiscriminantAnalysis)


def to_onnx(model: Any, X: Any, **options: Any) -> Any:
    """Return the ONNX graph of a fitted classifier of this package, or of a pipeline ending in one.

    Its outputs are the predicted labels and the class probabilities. For scikit-learn's boosted
    trees from :class:`~fairconstrained.models.SingleFit` or
    :class:`~fairconstrained.models.Boosting` it is the graph of the booster inside. Converters of
    other trees round thresholds to single precision, and send missing values to the right of each
    split: rows next to a threshold, or with missing values, may get another label.

    Parameters
    ----------
    model : fitted classifier
        Linear models, perceptrons (``model=(64, 32)``) and classifiers given as `model` that
        skl2onnx converts. Modules of your own go through ``torch.onnx.export(clf.module_, ...)``.
    X : array-like or DataFrame of shape (n_samples, n_features)
        Some rows, for the types of the inputs: one for an array, and one for each column of a
        DataFrame. Use float64: labels then agree with ``predict``, except for scores that equal the
        threshold up to rounding. Words need a pipeline that encodes them.
    **options
        Options of ``skl2onnx.to_onnx``, such as ``target_opset``.

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    NotFittedError
        If the model is not fitted.
    ValueError
        If the model cannot be converted: it needs the group to predict, is a module of your own,
        has decisions but no probabilities inside, or a part that skl2onnx cannot convert, or
        converts to a graph with other answers.

    Examples
    --------
    >>> from fairconstrained.export import to_onnx
    >>> [output.name for output in to_onnx(clf, X[:1]).graph.output]  # doctest: +SKIP
    ['label', 'probabilities']
    """
    check_is_fitted(model)
    register_onnx_converters()
    import skl2onnx
    from onnx.shape_inference import InferenceError, infer_shapes
    from skl2onnx.common.exceptions import MissingConverter, MissingShapeCalculator

    # Boosted trees inside are the model, unless they lack a class. Graphs of other classifiers may
    # mix precisions, which is mended around them.
    inside: Any = getattr(getattr(model, "model_", None), "estimator_", None)
    ours = isinstance(inside, HistGradientBoostingClassifier)
    if ours and np.array_equal(inside.classes_, model.classes_):
        model = inside
    # Dictionaries of probabilities, skl2onnx's default, exist in single precision only.
    given = {"options": {id(model): {"zipmap": False}}, **options}
    try:
        graph = skl2onnx.to_onnx(model, X, **given)
        infer_shapes(graph, check_type=True, strict_mode=True)  # as when it will be loaded
        return graph
    except (MissingConverter, MissingShapeCalculator) as error:
        unknown = str(error).partition("'<class '")[2].partition("'")[0].rpartition(".")[2]
        raise ValueError(
            f"skl2onnx has no converter for {unknown or 'a part of the model'}: register one by "
            "skl2onnx.update_registered_converter (onnxmltools has those for LightGBM and XGBoost)."
        ) from error
    except (InferenceError, AttributeError, NameError, NotImplementedError) as error:
        raise ValueError(
            f"skl2onnx has no graph of this model in double precision: {error}"
        ) from error


def register_onnx_converters() -> None:
    """Register converters with skl2onnx for the classifiers of this package, also in pipelines.

    Examples
    --------
    >>> from fairconstrained.export import register_onnx_converters
    >>> register_onnx_converters()  # doctest: +SKIP
    """
    from fairconstrained import estimators

    try:
        from skl2onnx import update_registered_converter
    except ImportError as error:
        raise ImportError("ONNX needs skl2onnx: pip install 'fairconstrained[onnx]'.") from error
    options = {"zipmap": [True, False, "columns"], "nocl": [True, False]}
    for name in estimators.__all__:
        update_registered_converter(
            getattr(estimators, name), f"Fair{name}", _shapes, _convert, options=options
        )
    update_registered_converter(
        HistGradientBoostingClassifier,
        "SklearnHistGradientBoostingClassifier",
        _shapes,
        _boosted_trees,
        options={**options, "raw_scores": [True, False]},
    )


class _Graph:
    """ONNX operators of one version, for double precision."""

    def __init__(self, scope: Any, container: Any):
        from onnx import TensorProto
        from skl2onnx.algebra import onnx_ops

        self.double, self.integer = int(TensorProto.DOUBLE), int(TensorProto.INT64)
        self._operators, self._version = onnx_ops, container.target_opset
        self._scope, self._container = scope, container

    def __getattr__(self, name: str) -> Any:
        """Return an ONNX operator as a function of inputs, parameters and output names."""
        kind = getattr(self._operators, f"Onnx{name}")
        version = int(name[-1]) if name[-1].isdigit() else self._version
        return lambda *inputs, **given: kind(*inputs, op_version=version, **given)

    def product(self, X: Any, matrix: Any) -> Any:
        return self.MatMul(X, np.asarray(matrix, dtype=np.float64))

    def sub_model(self, model: Any, X: Sequence[Any]) -> Any:
        """Add a scikit-learn classifier; return its class probabilities in double precision.

        The classifier is converted alone and its nodes are copied, because skl2onnx has no
        pipelines within converters.
        """
        from onnx.compose import add_prefix
        from skl2onnx import convert_sklearn
        from skl2onnx.common.data_types import DoubleTensorType

        parts = [model, *getattr(model, "get_params", dict)().values()]
        if unlike := [part for part in parts if isinstance(part, _OTHER_ANSWERS)]:
            raise ValueError(f"The graph of skl2onnx has other probabilities than {unlike[0]!r}.")
        if not hasattr(model, "predict_proba"):
            raise ValueError(f"ONNX needs a classifier with predict_proba; got {model!r}.")
        scope, container = self._scope, self._container
        model = model.estimator if isinstance(model, FrozenEstimator) else model
        if isinstance(model, InKinds):
            return _in_kinds(self, model, X)
        # A search predicts by its best model, and has no converter.
        model = getattr(model, "best_estimator_", model)
        if len(X) > 1 and not hasattr(model, "steps"):  # only pipelines know columns by name
            table = scope.declare_local_variable("table", DoubleTensorType([None, len(X)]))
            self.Identity(_table(self, X), output_names=[table.full_name]).add_to(scope, container)
            X = [table]
        alone = convert_sklearn(
            model,
            initial_types=[(column.raw_name, column.type) for column in X],
            options={id(model): {"zipmap": False}},
            target_opset={"": self._version, "ai.onnx.ml": 3},  # onnx may have more than skl2onnx
        )
        # Two converted models may have nodes of the same names.
        prefix = scope.get_unique_operator_name("model") + "_"
        own = add_prefix(alone, prefix).graph
        for column in X:
            name = scope.get_unique_operator_name("column")
            to = [prefix + column.raw_name]
            container.add_node("Identity", [column.full_name], to, op_domain="", name=name)
        container.nodes.extend(own.node)
        container.initializers.extend(own.initializer)
        container.node_domain_version_pair_sets |= {
            (used.domain, used.version) for used in alone.opset_import
        }
        answer = scope.declare_local_variable("posteriors", DoubleTensorType())
        given, name = [own.output[1].name], scope.get_unique_operator_name("posteriors")
        container.add_node("Cast", given, [answer.full_name], name=name, to=self.double)
        return answer


def _shapes(operator: Any) -> None:
    """Set the types of labels and probabilities for one table or its columns as inputs."""
    from skl2onnx.common.data_types import Int64TensorType, StringTensorType

    classes, n_rows = operator.raw_operator.classes_, operator.inputs[0].get_first_dimension()
    if classes.dtype.kind in "mM":
        raise ValueError("ONNX has no dates: fit the model to texts, as by y.astype(str).")
    kind = StringTensorType if classes.dtype.kind in "OUS" else Int64TensorType
    labels, probabilities = operator.outputs
    labels.type, probabilities.type.shape = kind([n_rows]), [n_rows, len(classes)]


def _convert(scope: Any, operator: Any, container: Any) -> None:
    clf, graph = operator.raw_operator, _Graph(scope, container)
    if getattr(clf, "group_features", False):
        raise ValueError("ONNX needs group_features=False: the graph would have to know the group.")
    _answer(graph, _scores(graph, clf, operator.inputs), scope, operator, container)


def _answer(graph: _Graph, scores: Any, scope: Any, operator: Any, container: Any) -> None:
    """Add the labels and probabilities of scores (n, K) as outputs."""
    from skl2onnx.common.data_types import guess_proto_type

    clf = operator.raw_operator
    labels, probabilities = (output.full_name for output in operator.outputs)
    if len(clf.classes_) == 2:
        threshold = np.array([getattr(clf, "threshold_", 0.0)])
        chosen = graph.Cast(graph.Greater(scores, threshold), to=graph.integer)
        codes = graph.Reshape(chosen, np.array([-1]))
        given = graph.Sigmoid(graph.product(scores, [[-1.0, 1.0]]))
    else:
        codes = graph.ArgMax(scores, axis=1, keepdims=0)
        given = graph.Softmax(scores, axis=1)
    names = clf.classes_.astype(str if clf.classes_.dtype.kind in "OUS" else np.int64)
    wanted = guess_proto_type(operator.outputs[1].type)
    graph.Gather(names, codes, output_names=[labels]).add_to(scope, container)
    graph.Cast(given, to=wanted, output_names=[probabilities]).add_to(scope, container)


def _table(graph: _Graph, columns: Sequence[Any]) -> Any:
    """Return the columns as one table of numbers; raise ValueError for columns of words."""
    from skl2onnx.common.data_types import StringTensorType

    words = [own.raw_name for own in columns if isinstance(own.type, StringTensorType)]
    if words:
        raise ValueError(f"ONNX needs a pipeline that encodes the words in the columns {words}.")
    numbers = [graph.Cast(column, to=graph.double) for column in columns]
    return numbers[0] if len(numbers) == 1 else graph.Concat(*numbers, axis=1)


def _scores(graph: _Graph, clf: Any, X: Sequence[Any]) -> Any:
    """Return scores (n, K) of the classifier for one table, or its columns."""
    if hasattr(clf.model_, "estimator_"):
        inside = clf.model_.estimator_
        logs = graph.Log(graph.Max(graph.sub_model(inside, X), np.array([TINY])))
        place = np.asarray(inside.classes_)[:, None] == clf.classes_  # it may lack classes
        logs = graph.Add(graph.product(logs, place), np.log(TINY) * ~place.any(axis=0))
        return graph.product(logs, [[-1.0], [1.0]]) if len(clf.classes_) == 2 else logs
    posteriors = getattr(clf.model_, "fitted_", None)
    table = _table(graph, X) if posteriors is None else _columns(graph, posteriors, X)
    if hasattr(clf, "coef_"):
        return graph.Add(graph.product(table, clf.coef_.T), clf.intercept_)
    if isinstance(clf.module_, Layers):
        return _layers(graph, clf.module_.__getstate__(), table)
    raise ValueError(
        "ONNX of a module of your own: torch.onnx.export(clf.module_, ...) gives its scores."
    )


def _layers(graph: _Graph, record: Any, table: Any) -> Any:
    """Return the output of a perceptron, added layer by layer."""
    if record["kind"] == "Sequential":
        for layer in record["layers"]:
            table = _layers(graph, layer, table)
        return table
    arrays = record["arrays"]
    return {
        "Standardize": lambda: graph.Div(graph.Sub(table, arrays["centre"]), arrays["scale"]),
        "PiecewiseLinear": lambda: _ramps(graph, arrays, table),
        "Linear": lambda: graph.Add(graph.product(table, arrays["weight"].T), arrays["bias"]),
        "ReLU": lambda: graph.Relu(table),
    }[record["kind"]]()


def _ramps(graph: _Graph, arrays: Any, table: Any) -> Any:
    """Return columns that are shifted, scaled and clipped."""
    moved = graph.Sub(graph.Gather(table, arrays["index"], axis=1), arrays["centre"])
    return graph.Max(graph.Min(graph.Div(moved, arrays["scale"]), arrays["high"]), arrays["low"])


# --- boosted trees: skl2onnx rounds their thresholds, and leaves their categories out ------------


def _boosted_trees(scope: Any, operator: Any, container: Any) -> None:
    from onnx.numpy_helper import from_array

    model, graph = operator.raw_operator, _Graph(scope, container)
    trees = [(k, tree) for each in model._predictors for k, tree in enumerate(each)]
    nodes = np.concatenate([tree.nodes for _, tree in trees])
    place = np.concatenate([np.arange(len(tree.nodes)) for _, tree in trees])
    tree_of_node = np.cumsum(place == 0) - 1
    target = np.array([k for k, _ in trees])[tree_of_node]
    table = _table(graph, operator.inputs)
    if model.is_categorical_ is not None:
        left = [trees[i][1].raw_left_cat_bitsets for i in tree_of_node]
        table, nodes = _split_columns(graph, model, table, nodes, left)
    leaf = nodes["is_leaf"] == 1
    scores = graph.TreeEnsembleRegressor_3(
        table,
        n_targets=model.n_trees_per_iteration_,
        base_values_as_tensor=from_array(model._baseline_prediction.ravel()),
        nodes_treeids=tree_of_node,
        nodes_nodeids=place,
        nodes_modes=np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_featureids=nodes["feature_idx"],
        nodes_values_as_tensor=from_array(nodes["num_threshold"].copy()),
        nodes_truenodeids=nodes["left"].astype(np.int64),
        nodes_falsenodeids=nodes["right"].astype(np.int64),
        nodes_missing_value_tracks_true=nodes["missing_go_to_left"].astype(np.int64),
        target_treeids=tree_of_node[leaf],
        target_nodeids=place[leaf],
        target_ids=target[leaf],
        target_weights_as_tensor=from_array(nodes["value"][leaf]),
    )
    _answer(graph, graph.Cast(scores, to=graph.double), scope, operator, container)


def _split_columns(graph: _Graph, model: Any, table: Any, nodes: Any, left: Any) -> Any:
    """Add a column for each split of categories, 1 on the right; return table and nodes."""
    order = np.argsort(~model.is_categorical_, kind="stable")  # the trees see categories first
    nodes, columns, n_columns = nodes.copy(), [table], len(order)
    nodes["feature_idx"] = order[nodes["feature_idx"]]
    encoder = model._preprocessor.named_transformers_["encoder"]
    for feature, categories in zip(order, encoder.categories_, strict=False):
        own = np.flatnonzero(nodes["is_categorical"] & (nodes["feature_idx"] == feature))
        if len(own):
            bits = np.stack([left[i][nodes["bitset_idx"][i]] for i in own]).view(np.uint8)
            right = 1.0 - np.unpackbits(bits, axis=1, bitorder="little")[:, : len(categories)]
            # Categories that training did not see go where missing values go.
            unknown = 1.0 - nodes["missing_go_to_left"][own]
            value = graph.Gather(table, np.array([feature]), axis=1)
            known = graph.Cast(graph.Equal(value, categories[None].astype(float)), to=graph.double)
            columns.append(graph.Add(graph.product(known, (right - unknown[:, None]).T), unknown))
            nodes["feature_idx"][own] = n_columns + np.arange(len(own))
            # The new column is 0 or 1, so that rounding cannot change a side.
            nodes["num_threshold"][own] = 0.5
            n_columns += len(own)
    return graph.Concat(*columns, axis=1), nodes


# --- posteriors: as in models/posteriors.py and models/cross_fitting.py --------------------------


def _columns(graph: _Graph, fitted: FittedPosteriors, X: Any) -> Any:
    """Return the columns of posteriors, means over the folds."""
    ensembles = [fitted.labels, *([] if fitted.groups is None else [fitted.groups])]
    answers = [[_evidence(graph, one, model, X) for model in one.models] for one in ensembles]
    # A frozen classifier stands for all folds of the other model.
    n_folds = max(map(len, answers))
    each = [
        _assembled(graph, fitted, *(one[k % len(one)] for one in answers)) for k in range(n_folds)
    ]
    return graph.Div(reduce(graph.Add, each), np.array([float(n_folds)]))


def _assembled(
    graph: _Graph, fitted: FittedPosteriors, label_evidence: Any, group_evidence: Any = None
) -> Any:
    """Return the columns of posteriors from the evidence of label and group in one fold."""
    n_classes = len(fitted.classes)
    free = _contrasts(graph, label_evidence, n_classes)
    label = _posteriors(graph, fitted.calibrator, label_evidence, free)
    logs = graph.Log(graph.Max(label, np.array([LEAST])))
    if n_classes == 2:
        logs = graph.product(logs, [[-1.0], [1.0]])
    label_columns = graph.Concat(logs, graph.product(label, np.eye(n_classes)[:, 1:]), axis=1)
    table, width = [label_columns], 2 * (n_classes - 1) + (n_classes > 2)
    for model in fitted.parts:
        within = graph.product(label, model.task.labels[:, None])
        parts = np.eye(model.calibrator.n_kinds)[:, model.task.parts]
        posterior = _posteriors_of_parts(graph, model, group_evidence, free)
        density = graph.product(posterior, parts / model.prior)
        density = graph.Mul(within, density)
        n_parts = parts.shape[1]
        # ONNX has no outer product of columns: two matrices of zeros and ones repeat them side by
        # side.
        each_column = np.repeat(np.eye(width), n_parts, axis=1)
        each_part = np.tile(np.eye(n_parts), width)
        products = graph.Mul(
            graph.product(label_columns, each_column), graph.product(density, each_part)
        )
        table += [density, products]
    return graph.Concat(*table, axis=1)


def _posteriors_of_parts(graph: _Graph, model: PartModel, evidence: Any, label: Any) -> Any:
    """Return posteriors of each part and of no part, given contrasts of the label."""
    n_kinds, n_outcomes = model.task.has_outcome.shape
    if n_outcomes == n_kinds:
        evidence = graph.product(evidence, model.task.has_outcome)
    else:
        sums = graph.product(graph.Softmax(evidence, axis=1), model.task.has_outcome)
        evidence = graph.Log(graph.Max(sums, np.array([LEAST_PROBABILITY])))
    free = _contrasts(graph, evidence, n_outcomes)
    if not model.task.labels.all():
        free = graph.Concat(free, label, axis=1)
    return _posteriors(graph, model.calibrator, evidence, free)


def _evidence(graph: _Graph, ensemble: Ensemble, model: Any, X: Any) -> Any:
    """Return the evidence on the kinds by one classifier of an ensemble."""
    logs = graph.Log(graph.Max(graph.sub_model(model, X), np.array([LEAST_PROBABILITY])))
    place = ensemble.kinds[None] == model.classes_[:, None]
    return graph.Add(graph.product(logs, place), np.log(LEAST_PROBABILITY) * ~place.any(axis=0))


def _contrasts(graph: _Graph, evidence: Any, n_kinds: int) -> Any:
    """Return differences of evidence between kinds, or from their mean."""
    if n_kinds == 2:
        return graph.product(evidence, [[-1.0], [1.0]])
    return graph.product(evidence, np.eye(n_kinds) - 1.0 / n_kinds)


def _posteriors(graph: _Graph, calibrator: Calibrator, evidence: Any, free: Any) -> Any:
    """Return calibrated posteriors of the kinds, given contrasts of evidence."""
    n_kinds, model = calibrator.n_kinds, calibrator.model
    known = np.eye(n_kinds)[:, model.classes_].T
    if not hasattr(model, "coef_"):  # there is one kind only
        ones = graph.product(evidence, np.ones((n_kinds, 1)))
        # A column of ones with as many rows as the input, which no constant can have.
        return graph.product(graph.Div(ones, ones), model.class_prior_[None] @ known)
    scores = graph.Add(graph.product(free, model.coef_.T), model.intercept_)
    if len(model.coef_) == 1:  # margins between two kinds
        return graph.product(graph.Sigmoid(graph.product(scores, [[-1.0, 1.0]])), known)
    return graph.product(graph.Softmax(scores, axis=1), known)


def _in_kinds(graph: _Graph, model: InKinds, X: Any) -> Any:
    """Return the probabilities of kinds, joined classes, by a frozen classifier."""
    logs = graph.Log(graph.Max(graph.sub_model(model.model, X), np.array([LEAST_PROBABILITY])))
    place = np.asarray(model.model.classes_)[:, None] == model.names
    return graph.product(graph.Softmax(graph.product(logs, place), axis=1), model.is_kind)
