"""ONNX graphs of fitted classifiers, through skl2onnx.

Everything after the inputs is computed in double precision, as here, whatever the inputs are.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from fairconstrained.models.cross_fitting import LEAST_GIVEN, Calibrated
from fairconstrained.models.perceptron import Layers
from fairconstrained.models.posteriors import LEAST, FittedPosteriors


def to_onnx(model: Any, X: Any, **options: Any) -> Any:
    """Return the ONNX graph of a fitted classifier of this package, or of a pipeline ending in one.

    Its outputs are the predicted labels and the class probabilities.

    Parameters
    ----------
    model : fitted classifier
        Linear models, perceptrons (``model=(64, 32)``) and classifiers given as `model` that
        skl2onnx converts. Modules of your own go through ``torch.onnx.export(clf.module_, ...)``.
    X : array-like of shape (n_samples, n_features)
        Some rows, for the types of the inputs. Use float64: labels are then those of ``predict``,
        except for scores that equal the threshold up to rounding.
    **options
        Options of ``skl2onnx.to_onnx``, such as ``target_opset``.

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    ValueError
        If the model cannot be converted: it needs the group to predict, is a module of your own,
        or has decisions but no probabilities inside.

    Examples
    --------
    >>> from fairconstrained.export import to_onnx
    >>> [output.name for output in to_onnx(clf, X[:1]).graph.output]  # doctest: +SKIP
    ['label', 'probabilities']
    """
    register_onnx_converters()
    import skl2onnx

    # Dictionaries of probabilities, skl2onnx's default, exist in single precision only.
    given = {"options": {id(model): {"zipmap": False}}, **options}
    return skl2onnx.to_onnx(model, X, **given)


def register_onnx_converters() -> None:
    """Let skl2onnx convert the classifiers of this package, also inside pipelines.

    Examples
    --------
    >>> from fairconstrained.export import register_onnx_converters
    >>> register_onnx_converters()  # doctest: +SKIP
    """
    from fairconstrained import estimators

    try:
        from skl2onnx import update_registered_converter
        from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes
    except ImportError as error:
        raise ImportError("ONNX needs skl2onnx: pip install 'fairconstrained[clients]'.") from error
    for name in estimators.__all__:
        update_registered_converter(
            getattr(estimators, name),
            f"Fair{name}",
            calculate_linear_classifier_output_shapes,
            _convert,
            options={"zipmap": [True, False, "columns"], "nocl": [True, False]},
        )


class _Graph:
    """ONNX operators of one version, for double precision."""

    def __init__(self, version: int):
        from onnx import TensorProto
        from skl2onnx.algebra import onnx_ops

        self.double, self.integer = int(TensorProto.DOUBLE), int(TensorProto.INT64)
        self._operators, self._version = onnx_ops, version

    def __getattr__(self, name: str) -> Any:
        """Return the operator as a function of its inputs, parameters and output names."""
        kind = getattr(self._operators, f"Onnx{name}")
        return lambda *inputs, **given: kind(*inputs, op_version=self._version, **given)

    def product(self, X: Any, matrix: Any) -> Any:
        return self.MatMul(X, np.asarray(matrix, dtype=np.float64))

    def sub_model(self, model: Any, X: Any) -> Any:
        """Return class probabilities of a scikit-learn classifier, in double precision."""
        from skl2onnx.algebra.onnx_operator import OnnxSubEstimator

        if not hasattr(model, "predict_proba"):
            raise ValueError(f"ONNX needs a classifier with predict_proba; got {model!r}.")
        answer = OnnxSubEstimator(model, X, op_version=self._version, options={"zipmap": False})
        return self.Cast(answer[1], to=self.double)


def _convert(scope: Any, operator: Any, container: Any) -> None:
    from skl2onnx.common.data_types import guess_proto_type

    clf, graph = operator.raw_operator, _Graph(container.target_opset)
    if getattr(clf, "group_features", False):
        raise ValueError("ONNX needs group_features=False: the graph would have to know the group.")
    scores = _scores(graph, clf, operator.inputs[0])
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


def _scores(graph: _Graph, clf: Any, X: Any) -> Any:
    """Return scores (n, K) of the classifier."""
    posteriors = getattr(clf.model_, "fitted_", None)
    table = graph.Cast(X, to=graph.double) if posteriors is None else _columns(graph, posteriors, X)
    if hasattr(clf, "coef_"):
        return graph.Add(graph.product(table, clf.coef_.T), clf.intercept_)
    if isinstance(clf.module_, Layers):
        return _layers(graph, clf.module_.__getstate__(), table)
    raise ValueError(
        "ONNX of a module of your own: torch.onnx.export(clf.module_, ...) gives its scores."
    )


def _layers(graph: _Graph, record: Any, table: Any) -> Any:
    """Add a perceptron, layer by layer."""
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
    """Shift, scale and clip columns."""
    moved = graph.Sub(graph.Gather(table, arrays["index"], axis=1), arrays["centre"])
    return graph.Max(graph.Min(graph.Div(moved, arrays["scale"]), arrays["high"]), arrays["low"])


# --- posteriors: as in models/posteriors.py and models/cross_fitting.py --------------------------


def _columns(graph: _Graph, fitted: FittedPosteriors, X: Any) -> Any:
    """Return the columns of posteriors; products of columns are by matrices."""
    label = _posteriors(graph, fitted.label_model, X)
    n_classes = len(fitted.classes)
    logs = graph.Log(graph.Max(label, np.array([LEAST])))
    if n_classes == 2:
        logs = graph.product(logs, [[-1.0], [1.0]])
    own = graph.Concat(logs, graph.product(label, np.eye(n_classes)[:, 1:]), axis=1)
    table, n_own = [own], 2 * (n_classes - 1) + (n_classes > 2)
    for task, prior, model in fitted.group_models:
        answer = _posteriors(graph, model, X)
        within = graph.product(label, task.labels[:, None])
        parts = np.eye(len(model.kinds))[:, np.isin(model.kinds, task.parts)]
        density = graph.Mul(within, graph.product(answer, parts / np.maximum(prior, LEAST)))
        n_parts = parts.shape[1]
        each_own = np.repeat(np.eye(n_own), n_parts, axis=1)
        each_part = np.tile(np.eye(n_parts), n_own)
        products = graph.Mul(graph.product(own, each_own), graph.product(density, each_part))
        table += [density, products]
    return graph.Concat(*table, axis=1)


def _posteriors(graph: _Graph, fitted: Calibrated, X: Any) -> Any:
    """Return calibrated posteriors of the kinds: the mean over the classifiers."""
    each = [_posteriors_of(graph, fitted, model, X) for model in fitted.models]
    return graph.Div(reduce(graph.Add, each), np.array([float(len(each))]))


def _posteriors_of(graph: _Graph, fitted: Calibrated, model: Any, X: Any) -> Any:
    n_kinds, calibrator = len(fitted.kinds), fitted.calibrator
    known = np.eye(n_kinds)[:, calibrator.classes_].T
    given = graph.sub_model(model, X)
    if not hasattr(calibrator, "coef_"):  # there is one kind only
        ones = graph.product(given, np.ones((len(model.classes_), 1)))
        return graph.product(graph.Div(ones, ones), calibrator.class_prior_[None] @ known)
    logs = graph.Log(graph.Max(given, np.array([LEAST_GIVEN])))
    place = fitted.kinds[None] == model.classes_[:, None]
    lacking = np.log(LEAST_GIVEN) * ~place.any(axis=0)
    evidence = graph.Add(graph.product(logs, place), lacking)
    if n_kinds == 2:
        free = graph.product(evidence, [[-1.0], [1.0]])
    else:
        free = graph.product(evidence, np.eye(n_kinds) - 1.0 / n_kinds)
    scores = graph.Add(graph.product(free, calibrator.coef_.T), calibrator.intercept_)
    if len(calibrator.coef_) == 1:  # margins between two kinds
        return graph.product(graph.Sigmoid(graph.product(scores, [[-1.0, 1.0]])), known)
    return graph.product(graph.Softmax(scores, axis=1), known)
