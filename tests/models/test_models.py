"""Models: scores, their transpose and harmless coordinates; sums of clipped row gradients."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import nn

from fairconstrained.losses import log_loss
from fairconstrained.models import LinearModel, Network, NetworkModel, PiecewiseLinear, Standardize
from fairconstrained.models.features import DenseFeatures, SparseFeatures, as_features
from fairconstrained.models.network import check_rows_independent
from fairconstrained.models.perceptron import PerceptronModel, auditable
from tests.helpers.numeric import badly_scaled, numerical_jacobian, tensor
from tests.helpers.steep import STEEP

N, D = 12, 5


class Shared(nn.Module):
    """One layer used twice: its gradient is no outer product."""

    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.Linear(D, D), nn.Linear(D, 1)

    def forward(self, X):
        return self.last(self.layer(torch.tanh(self.layer(X))))[:, 0]


def convolutions():
    layers = nn.Unflatten(1, (1, 6, 6)), nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU()
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 3))


def module(build, seed=0):
    torch.manual_seed(seed)
    return NetworkModel(build().double())


def linear(transform, n_outputs=1, intercept=True):
    return LinearModel(n_outputs, tensor(np.linspace(-1, 1, D)), transform, intercept)


def binned():
    low, high = tensor(np.full(D, -3.0)), tensor([3.0, 3.0, 40.0, 3.0, 3.0])
    torch.manual_seed(0)
    return Network((4, 3)).build_private(torch.zeros_like(low), high, 1, (low, high))


PERCEPTRON = module(lambda: nn.Sequential(nn.Linear(D, 4), nn.Tanh(), nn.Linear(4, 3, bias=False)))
NORMALISED = module(lambda: nn.Sequential(nn.Linear(D, 4), nn.LayerNorm(4), nn.Linear(4, 1)))
MODELS = {
    "diagonal": linear(tensor(np.linspace(0.5, 2, D)), 3),
    "triangular": linear(torch.triu(torch.ones(D, D, dtype=torch.float64))),
    "no intercept": linear(torch.ones(D, dtype=torch.float64), intercept=False),
    "perceptron": PERCEPTRON,
    "layer normalisation": NORMALISED,
    "group normalisation": module(convolutions),
    "shared layer": module(Shared),
    "bins": binned(),
}


def case(model, seed=0):
    rng = np.random.default_rng(seed)
    n_features = 36 if model is MODELS["group normalisation"] else D
    w = model.init() + 0.3 * tensor(rng.normal(size=model.n_params))
    X = tensor(rng.normal(size=(N, n_features)) * rng.choice([0.1, 1, 10], size=(N, 1)))
    n_outputs = model.scores(w, DenseFeatures(X)).shape[1]
    return w, X, tensor(rng.normal(size=(N, n_outputs)))


def row_gradients(model, w, X, cotangent):
    rows = []
    for i in range(len(X)):
        _, pullback = model.linearize(w, DenseFeatures(X[i : i + 1]))
        rows.append(pullback(cotangent[i : i + 1]))
    return torch.stack(rows)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_the_sum_is_that_of_rows_clipped_one_by_one(model):
    """Limits may differ, and are infinite for public rows, whose gradients go in whole."""
    w, X, cotangent = case(model)
    rows = row_gradients(model, w, X, cotangent)
    norms = rows.norm(dim=1)
    each = torch.linspace(0.0, 1.0, N).to(rows) * norms.max()
    each[N // 2] = torch.inf
    scores, clipped = model.linearize_rows(w, DenseFeatures(X))
    torch.testing.assert_close(scores, model.linearize(w, DenseFeatures(X))[0])
    for limit in (norms.quantile(0.2), each):
        expected = (rows * (limit / norms).clamp_max(1)[:, None]).sum(dim=0)
        torch.testing.assert_close(clipped(cotangent, limit), expected, rtol=1e-9, atol=1e-11)


@given(st.sampled_from(sorted(MODELS)), st.integers(0, 1000), st.floats(1e-3, 10))
def test_one_row_more_moves_the_sum_by_at_most_the_limit(name, seed, max_norm):
    """The sensitivity that the accountant is told."""
    model = MODELS[name]
    w, X, cotangent = case(model, seed)

    def total(n):
        return model.linearize_rows(w, DenseFeatures(X[:n]))[1](cotangent[:n], max_norm)

    assert float((total(N) - total(N - 1)).norm()) <= max_norm * (1 + 1e-9)


def test_no_rows_sum_to_nothing():
    """A Poisson batch may be empty."""
    for model in MODELS.values():
        w, X, cotangent = case(model)
        scores, clipped = model.linearize_rows(w, DenseFeatures(X[:0]))
        assert scores.shape == (0, cotangent.shape[1])
        assert not clipped(cotangent[:0], 1.0).any()


def hooked():
    layer = nn.Linear(D, 1)
    layer.register_forward_hook(lambda module, inputs, output: 30 * output)
    return nn.Sequential(layer)


class Running(nn.Module):
    """Every row is moved by those before it."""

    def forward(self, X):
        return X.cumsum(dim=0)


class CentredInTraining(nn.Module):
    """Rows are moved by their mean, in training only."""

    def forward(self, X):
        return X - X.mean(dim=0) if self.training else X


TRACKED = nn.InstanceNorm1d(1, track_running_stats=True)


def zeroed(layer):
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([nn.Linear(D, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)], r"batch normalisation \(1.*Group"),
        ([nn.Linear(D, 3), CentredInTraining(), nn.Linear(3, 1)], "other rows are in its batch"),
        ([nn.Linear(D, 3), Running(), zeroed(nn.Linear(3, 1))], "other rows are in its batch"),
        ([nn.Unflatten(1, (1, D)), TRACKED, nn.Flatten(), nn.Linear(D, 1)], "keeps statistics"),
    ],
)
def test_networks_that_mix_rows_are_refused(layers, message):
    """Also in training only, behind scores that are zero at first, and by kept statistics."""
    with pytest.raises(ValueError, match=message):
        check_rows_independent(nn.Sequential(*layers), D)


class Louder(nn.Linear):
    """Does more than its weights say."""

    def forward(self, X):
        return 100 * super().forward(X)


class Tied(nn.Module):
    """The layer's weight is used once more, out of its hooks' sight."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, D)

    def forward(self, X):
        return nn.functional.linear(torch.tanh(self.layer(X)), self.layer.weight.T)[:, :1]


class TiedInTraining(Tied):
    """The weight is used once more, in training only."""

    def forward(self, X):
        return super().forward(X) if self.training else self.layer(X)[:, :1]


class TiedForFarRows(Tied):
    """The weight is used once more, for rows that no trial has."""

    def forward(self, X):
        far = (X.abs().amax(dim=1, keepdim=True) > 4).to(X)
        hidden = self.layer(X)
        again = nn.functional.linear(torch.tanh(hidden), self.layer.weight.T)
        return (hidden + far * again)[:, :1]


@pytest.mark.parametrize(
    "build",
    [
        TiedInTraining,
        TiedForFarRows,
        lambda: nn.Sequential(Louder(D, 3), nn.Tanh(), nn.Linear(3, 1)),
        lambda: nn.Sequential(*[nn.Linear(D, D)] * 2, nn.Linear(D, 1)),
        hooked,
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(D, 1))),
        lambda: nn.Sequential(nn.Linear(D, 4), nn.ReLU(inplace=True), nn.Linear(4, 1)),
    ],
    ids=["in training", "far rows", "subclass", "twice", "hooked", "weight norm", "in place"],
)
def test_every_row_is_clipped_to_the_limit_whatever_the_network(build):
    """The sum over one row is its clipped gradient: of norm at most 1, and 1 where it is cut."""
    model = module(build)
    rng = np.random.default_rng(0)
    for row in rng.normal(size=(8, 1, D)) * 3:
        _, clipped = model.linearize_rows(model.init(), DenseFeatures(tensor(row)))
        cotangent = tensor(rng.normal(size=(1, 1)) * 10)
        norm = clipped(cotangent, 1.0).norm()
        assert norm <= 1 + 1e-9
        loose = clipped(cotangent, 1e9).norm()
        torch.testing.assert_close(norm, loose.clamp_max(1.0))


@pytest.mark.parametrize("name", STEEP)
def test_a_row_without_a_finite_gradient_adds_at_most_the_limit(name):
    """And takes nothing from the sum over others: numbers that are not finite count as zero."""
    model = module(lambda: STEEP[name](D))
    rng = np.random.default_rng(0)
    X, cotangent = (tensor(rng.normal(size=(6, n))) for n in (D, 1))
    X[0] = 0.0
    _, clipped = model.linearize_rows(model.init(), DenseFeatures(X))
    _, others = model.linearize_rows(model.init(), DenseFeatures(X[1:]))
    assert (clipped(cotangent, 1.0) - others(cotangent[1:], 1.0)).norm() <= 1.0 + 1e-9


def test_branches_on_values_are_refused_before_any_step():
    class Branches(nn.Linear):
        def forward(self, X):
            return super().forward(X) * (2 if X.max() > 50 else 1)

    with pytest.raises(ValueError, match="cannot be differentiated row by row"):
        check_rows_independent(Branches(D, 1), D)


X = badly_scaled(n=30)
WEIGHT = tensor(np.random.default_rng(1).exponential(size=400) + 0.1)


def cotangent(n_rows, n_outputs):
    return tensor(np.random.default_rng(2).normal(size=(n_rows, n_outputs)))


def network(*sizes, seed=0):
    torch.manual_seed(seed)
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1]).double()


def some_parameters(model):
    start = model.init()
    return start + 0.3 * tensor(np.random.default_rng(4).normal(size=len(start)))


SMOOTH = [name for name in MODELS if name not in ("group normalisation", "bins")]


@pytest.mark.parametrize("name", SMOOTH)
def test_pullback_is_the_transposed_jacobian_of_the_scores_and_of_the_penalty(name):
    model = MODELS[name]
    w, X, seed = case(model)
    features = DenseFeatures(X)
    scores, pullback = model.linearize(w, features)
    torch.testing.assert_close(scores, model.scores(w, features))
    expected = numerical_jacobian(lambda v: (seed * model.scores(v, features)).sum(), w)[0]
    torch.testing.assert_close(pullback(seed), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(pullback(2.0 * seed), 2.0 * pullback(seed))  # may be called again
    # Of a quadratic, central differences are exact at any step.
    expected = numerical_jacobian(lambda v: model.penalty(v).value, w, step=1.0)[0]
    torch.testing.assert_close(model.penalty(w).gradient, expected, rtol=1e-7, atol=1e-7)


def hessian(model, features, weight, alpha):
    """Of the weighted log loss and the penalty, at zero."""
    y = torch.arange(features.shape[0]) % max(2, model.n_outputs)

    def gradient(w):
        scores, pullback = model.linearize(w, features)
        scores.requires_grad_()
        risk = weight @ log_loss(scores, y) / weight.sum()
        (on_scores,) = torch.autograd.grad(risk, scores)
        return pullback(on_scores) + alpha * model.penalty(w).gradient

    return numerical_jacobian(gradient, model.init(), step=1e-4)


def sparse(X):
    return SparseFeatures(sp.csr_array(X.numpy()))


@pytest.mark.parametrize(
    ("wrap", "fit_intercept", "alpha"),
    [(DenseFeatures, True, 1e-4), (DenseFeatures, False, 0.0), (sparse, True, 10.0)],
)
def test_hessian_is_near_the_identity_in_the_chosen_coordinates(wrap, fit_intercept, alpha):
    """On columns whose own Hessian has a condition number beyond 1e6."""
    features = wrap(badly_scaled())
    model = LinearModel.preconditioned(features, WEIGHT, 1, alpha, fit_intercept)
    found = hessian(model, features, WEIGHT, alpha)
    of_coef = found[: model.n_coef, : model.n_coef]
    torch.testing.assert_close(of_coef, torch.eye(5).double(), rtol=0, atol=5e-3)
    assert torch.linalg.eigvalsh(found)[0] > 0.2  # the intercept: curvature 1/4
    assert torch.linalg.cond(badly_scaled().T @ badly_scaled()) > 1e6


degenerate = {
    "constant": lambda X: torch.cat((X, torch.full_like(X[:, :1], 0.1)), dim=1),
    "zero": lambda X: torch.cat((X, torch.zeros_like(X[:, :1])), dim=1),
    "duplicate": lambda X: torch.cat((X, X, X[:, :2] * 3.0), dim=1),
    "fewer rows than columns": lambda X: X[:3],
    "one row": lambda X: X[:1],
}


@pytest.mark.parametrize(("wrap", "alpha"), [(DenseFeatures, 0.0), (sparse, 1e-4)])
@pytest.mark.parametrize("columns", degenerate.values(), ids=degenerate)
def test_degenerate_columns_get_harmless_coordinates(columns, wrap, alpha):
    """Finite, no direction steep, and no constant column blown up."""
    array = columns(badly_scaled())
    features, weight = wrap(array), WEIGHT[: len(array)]
    model = LinearModel.preconditioned(features, weight, 1, alpha, True)
    w = model.restore(model.attributes(some_parameters(model)))
    assert model.scores(w, features).isfinite().all()
    eigenvalues = torch.linalg.eigvalsh(hessian(model, features, weight, alpha))
    assert eigenvalues[-1] < 10 * array.shape[1]
    if alpha == 0 and array.shape[1] == 6:  # a constant column has no scale: about 1 is given
        assert 0.1 < model.transform[5].norm() < 1e4


def test_only_matrices_are_penalised():
    layers = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)).double()
    model = NetworkModel(layers)
    expected = 0.5 * sum((layers[i].weight ** 2).sum().item() for i in (0, 3))
    assert model.penalty(model.init()).value.item() == pytest.approx(expected)
    matrices = layers[0].weight.numel() + layers[3].weight.numel()
    assert (model.penalty(torch.ones(model.n_params).double()).gradient != 0).sum() == matrices


def test_frozen_and_shared_parameters_keep_their_roles():
    """Frozen ones stay as they came; a shared one counts, and is pulled back, once."""
    first, _, second = layers = network(5, 5, 5)
    second.weight = first.weight
    second.bias.requires_grad_(False)
    model, frozen = NetworkModel(layers), second.bias.clone()
    assert model.n_params == 25 + 5
    w, features, seed = some_parameters(model), DenseFeatures(X), cotangent(30, 5)
    expected = numerical_jacobian(lambda v: (seed * model.scores(v, features)).sum(), w)[0]
    _, pullback = model.linearize(w, features)
    torch.testing.assert_close(pullback(seed), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model.attributes(w)["module_"][2].bias, frozen)


@pytest.mark.parametrize(
    ("layers", "n_outputs", "message"),
    [
        (nn.Linear(5, 2), 1, r"scores of shape \(n, 1\); for 2 rows it gave \(2, 2\)"),
        (nn.Linear(5, 1), 3, r"scores of shape \(n, 3\); for 2 rows it gave \(2, 1\)"),
        (nn.Sequential(nn.Linear(5, 3), nn.Flatten(0)), 3, r"gave \(6,\)"),
        (nn.Linear(5, 1).requires_grad_(False), 1, "with parameters to train"),
    ],
)
def test_networks_of_the_wrong_shape_are_refused(layers, n_outputs, message):
    with pytest.raises(ValueError, match=message):
        Network(lambda d, k: layers).build(DenseFeatures(X), WEIGHT[:30], n_outputs, 1e-3)


def matrix(seed=0, n=40, d=6, density=0.6):
    rng = np.random.default_rng(seed)
    return rng.normal(loc=1.0, size=(n, d)) * (rng.random((n, d)) < density)


ROWS = matrix()
CENTRE = torch.as_tensor(np.random.default_rng(2).normal(size=ROWS.shape[1]))


DENSE = DenseFeatures(torch.as_tensor(ROWS))


@pytest.mark.parametrize("wrapped", [DENSE, SparseFeatures(sp.csr_array(ROWS))], ids=type)
@pytest.mark.parametrize("full", [False, True], ids=["diagonal", "triangular"])
def test_norms_that_are_known_are_those_of_the_rows_and_of_no_other_coordinates(wrapped, full):
    """Clips rest on them: rows pass them on, and other coordinates are worked out anew."""
    rng, size = np.random.default_rng(4), (len(CENTRE),) * (2 if full else 1)
    transforms = [torch.as_tensor(rng.normal(size=size)) for _ in range(2)]
    index = torch.tensor([5, 0, 5, 39])
    known = wrapped.with_norms(CENTRE, transforms[0])
    for transform in transforms:
        t = transform.numpy() if full else np.diag(transform.numpy())
        for chosen, rows in ((known, ROWS), (known.rows(index), ROWS[index]), (wrapped, ROWS)):
            expected = ((rows - CENTRE.numpy()) @ t) ** 2
            found = chosen.square_norms(CENTRE, transform).numpy()
            np.testing.assert_allclose(found, expected.sum(axis=1))
    centre = CENTRE + 1.0
    expected = wrapped.square_norms(centre, transforms[0])
    torch.testing.assert_close(known.square_norms(centre, transforms[0]), expected)


def test_a_constant_column_has_no_negative_variance():
    """Sparse moments subtract squares of means, which rounding could make negative."""
    ones = torch.ones(9, dtype=torch.float64)
    for value in (0.1, 0.3, 1e3 / 7):
        constant = SparseFeatures(sp.csr_array(np.full((9, 1), value)))
        variance = constant.variance(ones, constant.mean(ones)).item()
        assert 0 <= variance <= 1e-15 * value**2


def test_another_device_gets_dense_tensors_and_refuses_sparse_matrices():
    wrapped = as_features(matrix(density=0.1, n=400), "meta")
    assert isinstance(wrapped, DenseFeatures)
    assert wrapped.X.device.type == "meta"
    for container in (sp.csr_matrix, sp.csr_array):
        with pytest.raises(ValueError, match="device='cpu'; got device='meta'"):
            as_features(container(ROWS), "meta")


N_ROWS, N_COLUMNS = 30, 4


def perceptron(hidden, n_outputs, seed=0):
    torch.manual_seed(seed)
    X = DenseFeatures(torch.randn((N_ROWS, N_COLUMNS), dtype=torch.float64) * 3.0 + 1.0)
    return Network(hidden).build(X, torch.ones(N_ROWS).double(), n_outputs, 0.0), X


@pytest.mark.parametrize(("hidden", "n_outputs"), [((6,), 3), ((7, 3, 4), 1)])
def test_scores_and_gradients_are_those_of_autograd(hidden, n_outputs):
    model, X = perceptron(hidden, n_outputs)
    assert isinstance(model, PerceptronModel)
    reference = NetworkModel(model.network)
    w = model.init() + 0.3 * torch.randn(model.n_params).double()
    scores, pullback = model.linearize(w, X)
    expected, by_autograd = reference.linearize(w, X)
    torch.testing.assert_close(scores, expected)
    torch.testing.assert_close(scores, model.scores(w, X))
    for rows in (slice(0, N_ROWS), slice(0, 7), slice(11, 20), slice(N_ROWS - 1, N_ROWS)):
        cotangent = torch.zeros((N_ROWS, n_outputs), dtype=torch.float64)
        cotangent[rows] = torch.randn_like(cotangent[rows])
        gradient = pullback(cotangent)
        assert gradient.abs().max() > 0
        torch.testing.assert_close(gradient, by_autograd(cotangent))
        torch.testing.assert_close(pullback(cotangent), gradient)  # and again


LAYERS = [((6,), 3, 5), ((8, 6), 1, 64), ((7, 6, 9), 3, None)]


@pytest.mark.parametrize(("hidden", "n_outputs", "n_bins"), LAYERS)
def test_a_perceptron_contains_every_linear_model(hidden, n_outputs, n_bins):
    torch.manual_seed(0)
    X = DenseFeatures(torch.randn((N_ROWS, N_COLUMNS), dtype=torch.float64) * 3.0 + 1.0)
    X.X[:, 1], X.X[:, 2] = (X.X[:, 1] > 0).double(), 4.0  # a flag and a constant
    model = Network(hidden, n_bins=n_bins).build(X, torch.ones(N_ROWS).double(), n_outputs, 0.0)
    assert model.contains_linear
    coef, intercept = torch.randn((n_outputs, N_COLUMNS)).double(), torch.randn(n_outputs).double()
    scores = model.scores(model.from_linear(coef, intercept), X)
    torch.testing.assert_close(scores, X.X @ coef.T + intercept)


@pytest.mark.parametrize(("hidden", "n_outputs"), [((1,), 1), ((8, 5), 3)])
def test_without_two_units_for_each_output_it_does_not(hidden, n_outputs):
    assert not perceptron(hidden, n_outputs)[0].contains_linear


class Squared(nn.Linear):
    def forward(self, X):
        return super().forward(X) ** 2


def test_other_modules_stay_as_they_are():
    first = Standardize(torch.ones(N_COLUMNS), torch.full((N_COLUMNS,), 2.0))
    for last in (Squared(N_COLUMNS, 1), nn.Linear(N_COLUMNS, 1, bias=False)):
        module = nn.Sequential(first, last)
        assert auditable(module) is module
    alone = nn.Sequential(nn.Linear(N_COLUMNS, 1))
    assert auditable(alone) is alone


def encoded(X, n_bins=8, weight=None, rows=None):
    """The layer chosen by X, and its outputs for other rows, by default X."""
    X = np.asarray(X, dtype=float)
    weight = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=float)
    layer = PiecewiseLinear.of(DenseFeatures(torch.tensor(X)), torch.tensor(weight), n_bins)
    return layer, layer(torch.tensor(X if rows is None else np.asarray(rows, dtype=float))).numpy()


def mixed(n=300, seed=0):
    rng = np.random.default_rng(seed)
    rare = np.where(rng.random(n) < 0.1, rng.exponential(1000, n), 0.0)
    columns = (rng.normal(size=n), rare, rng.poisson(2, n), rng.random(n) < 0.3, np.full(n, 7.0))
    return np.column_stack(columns).astype(float)


@example(column=np.repeat([0.0, 1.0, 2.0], [30, 1, 1]), n_bins=2, x=[0.5])
@settings(max_examples=50, deadline=None)
@given(
    column=hnp.arrays(float, st.integers(3, 60), elements=st.integers(-50, 50).map(float)),
    n_bins=st.integers(1, 12),
    x=st.lists(st.floats(-100, 100), min_size=1, max_size=5),
)
def test_ramps_add_up_to_the_clipped_column(column, n_bins, x):
    """Half the width of each bin times its ramp: the column within its range, less the mean."""
    layer, found = encoded(column[:, None], n_bins, rows=np.array(x)[:, None])
    clipped = np.clip(x, column.min(), column.max()) - column.mean()
    distinct = len(np.unique(column))
    constant = distinct == 1
    assert len(layer.scale) == max(distinct - 1, 1) or distinct > n_bins + 1
    scale = np.zeros(1) if constant else layer.scale.numpy()
    np.testing.assert_allclose(found @ scale, clipped * (not constant), atol=1e-9)


def test_outputs_are_centred_and_bounded_wherever_x_is():
    X = mixed()
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    _, found = encoded(X, weight=weight)
    np.testing.assert_allclose(weight @ found, 0, atol=1e-9)
    layer, far = encoded(X, rows=np.tile([[-1e300], [1e300]], (1, 5)))
    assert np.isfinite(far).all()
    assert np.ptp(far, axis=0).max() <= 2 + 1e-12
    np.testing.assert_allclose(far[0, :-1], layer.low[:-1])
    np.testing.assert_allclose(far[1, :-1], layer.high[:-1])


def test_units_do_not_matter_and_sparse_rows_are_like_dense_ones():
    X = mixed()
    layer, found = encoded(X)
    _, scaled = encoded(X * 3.7 + 11.0)
    np.testing.assert_allclose(scaled, found, atol=1e-9)
    sparse = PiecewiseLinear.of(as_features(sp.csr_array(X)), torch.ones(len(X)).double(), 8)
    for name, values in layer.state_dict().items():
        torch.testing.assert_close(sparse.state_dict()[name], values)


RANGES = torch.tensor([[-3.0, 0.0, 0.0], [3.0, 40.0, 1.0]]).double()  # the last: an indicator


def in_ranges(n_bins=8):
    centre = RANGES[0] + torch.tensor([0.4, 0.1, 0.3]).double() * (RANGES[1] - RANGES[0])
    scale = torch.tensor([2.0, 5.0, 0.5]).double()
    return PiecewiseLinear.within(*RANGES, centre, scale, n_bins), centre, scale


@pytest.mark.parametrize("n_bins", [1, 64])
def test_within_public_ranges_ramps_add_up_to_the_column(n_bins):
    """Where ramps of equal length add up to it, a network contains the linear models."""
    layer, centre, scale = in_ranges(n_bins)
    fraction = torch.rand((50, 3), generator=torch.Generator().manual_seed(0)).double()
    X = RANGES[0] + fraction * (RANGES[1] - RANGES[0])
    out = layer(X)
    assert out.shape == (50, 2 * n_bins + 1)
    for j in (0, 1):
        half = 0.5 * (RANGES[1, j] - RANGES[0, j]) / n_bins**0.5
        sums = half * out[:, layer.index == j].sum(dim=1)
        torch.testing.assert_close(sums, X[:, j] - centre[j])
    torch.testing.assert_close(out[:, -1], (X[:, 2] - centre[2]) / scale[2])
    torch.testing.assert_close(layer(centre[None]), torch.zeros_like(out[:1]))


@given(hnp.arrays(float, (4, 3), elements=st.floats(-1e300, 1e300)))
def test_within_public_ranges_outputs_are_bounded_whatever_x_is(X):
    layer, _, scale = in_ranges()
    norms = torch.linalg.vector_norm(layer(torch.tensor(X))[:, :-1], dim=1)
    assert bool((norms <= 2 * 2**0.5 + 1e-12).all())  # two columns, each of a norm of 2 at most
    assert bool((layer(torch.tensor(X))[:, -1].abs() <= 1.0 / scale[2]).all())
