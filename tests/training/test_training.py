"""train: any module under any constraint, the same values as the estimators', mistakes named."""

import pickle
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from fairconstrained import RateConstrainedClassifier, solvers
from fairconstrained.constraints import (
    AUCParity,
    DemographicParity,
    EqualizedOdds,
    LossParity,
    PartialDemographicParity,
    PartialStatisticalParity,
)
from fairconstrained.metrics import (
    demographic_parity_difference,
    group_auc_gap,
    loss_gap,
    partial_demographic_parity,
)
from fairconstrained.training import Trained, train
from tests.helpers.modules import gap_at_most, log_loss, weights

ADAM = {"optimizer": torch.optim.Adam, "schedule": solvers.cosine, "step_size": 0.02}
SHORT = solvers.ALM(**ADAM, dual_step_size=0.3, batch_size=128, n_steps=300)


def made(n=600, dtype=torch.float32):
    """Features, labels and groups: the second group has fewer positives and noisier labels."""
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=n)
    X = rng.normal(size=(n, 4))
    y = (X[:, 0] + 0.7 - 1.2 * group + (0.3 + group) * rng.normal(size=n) > 0).astype(int)
    X[:, 1] += group
    return torch.as_tensor(X, dtype=dtype), torch.as_tensor(y), torch.as_tensor(group)


X, Y, GROUP = made()
DATA = (X, Y, GROUP)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def trained(constraints, module=None, data=DATA, loss=log_loss, **params):
    params = {"groups": GROUP, "solver": SHORT, "random_state": 0, **params}
    return train(network() if module is None else module, loss, constraints, data, **params)


def measured(result):
    with torch.no_grad():
        proba = torch.sigmoid(result.module(X)[:, 0]).double().numpy()
    return loss_gap(Y, proba, sensitive_features=GROUP.numpy())


@pytest.mark.slow
def test_a_function_holds_as_the_notion_of_the_package_does():
    """Both bound the same gap, which the public metric measures; without them it is far."""
    free, function, notion = (trained([]), trained(gap_at_most(0.05)), trained(LossParity(0.05)))
    assert measured(free) > 0.15
    for result in (function, notion):
        assert isinstance(result, Trained)
        assert measured(result) <= 0.06
        assert result.values.max() == pytest.approx(measured(result) - 0.05, abs=1e-5)
        assert result.multipliers.max() > 0.1
        assert result.history["objective"].shape == (30,)
        assert result.history["values"].shape == result.history["multipliers"].shape == (30, 2)
        assert (np.diff(result.history["time"]) > 0).all()
        assert not result.module.training
    assert free.multipliers.shape == (0,)
    assert free.feasible


class LastIterate(solvers.ALM):
    """Gives back where it ends, and not the iterate with the least error."""

    def select(self, iterates):
        return iterates[-1]


@pytest.mark.slow
def test_without_constraints_it_is_logistic_regression():
    solver = LastIterate(**{**ADAM, "step_size": 0.05}, batch_size=600, n_steps=1000)
    result = trained([], nn.Linear(4, 1), solver=solver, alpha=0.1)
    expected = LogisticRegression(C=1 / (0.1 * len(Y)), tol=1e-8).fit(X.numpy(), Y.numpy())
    np.testing.assert_allclose(result.module.weight.detach(), expected.coef_, atol=5e-3)


@pytest.mark.slow
def test_values_of_notions_are_those_of_predicted_labels():
    result = trained([DemographicParity(), gap_at_most(10.0)], slack=0.1)
    predicted = (result.module(X)[:, 0] > 0).numpy()
    gap = demographic_parity_difference(Y, predicted, sensitive_features=GROUP.numpy())
    assert result.values[2:].max() == pytest.approx(gap - 0.1, abs=1e-6)
    assert gap <= 0.1 + 0.02
    assert result.values.shape == (4,)


def test_values_of_rankings_are_those_of_the_metrics():
    """Of scores within a bin of each other, too, which a table of bins cannot tell apart."""

    class Close(nn.Linear):
        def forward(self, rows):
            return 0.01 * super().forward(rows)

    torch.manual_seed(0)
    notions = AUCParity(), AUCParity(surrogate="quadratic"), PartialDemographicParity((0.3, 0.5))
    solver = solvers.SGDA(n_steps=1, n_evaluations=1)
    result = trained(list(notions), Close(4, 1), slack=0.0, solver=solver)
    scores, groups = result.module(X)[:, 0].detach().numpy(), {"sensitive_features": GROUP}
    gap = group_auc_gap(Y, scores, **groups)
    inside = partial_demographic_parity(Y, scores, interval=(0.3, 0.5), **groups)
    assert min(gap, inside) > 0.1
    np.testing.assert_allclose(result.values.reshape(3, 2).max(axis=1), [gap, gap, inside], 1e-4)


@pytest.mark.parametrize("kind", ["AugmentedLagrangian", "SequentialQuadratic", "LBFGS"])
def test_deterministic_solvers_train_modules_of_single_precision(kind):
    bounds = [] if kind == "LBFGS" else gap_at_most(0.1)
    data = tuple(column[:200] for column in DATA)
    result = trained(bounds, nn.Linear(4, 1), data, solver=getattr(solvers, kind)(), groups=None)
    assert result.feasible
    assert result.module.weight.dtype == torch.float32


@pytest.mark.slow
def test_the_given_module_is_left_alone_and_seeds_decide():
    module = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.3), nn.Linear(6, 1))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    results = [trained(gap_at_most(0.1), module, random_state=seed) for seed in (0, 0, 1)]
    first, again, other = (result.module(X) for result in results)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


@pytest.mark.slow
def test_buffers_dropout_and_batch_normalisation():
    """Batch statistics are those of the data at the end; outputs keep their shape (n,)."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)
            self.register_buffer("factor", torch.tensor(2.0))
            self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1))
            self.last = nn.Linear(8, 1)

        def forward(self, X):
            return self.last(self.layers(self.norm(self.factor * X)))[:, 0]

    seen = set()

    def loss(outputs, batch):
        seen.add(outputs.ndim)
        scores, y = outputs.reshape(-1), batch[1].to(outputs)
        return F.binary_cross_entropy_with_logits(scores, y, reduction="none")

    data = made(dtype=torch.float64)
    result = trained(LossParity(0.1), Net().double(), data, loss)
    assert seen == {1}
    torch.testing.assert_close(result.module.norm.running_mean, 2 * data[0].mean(dim=0))
    assert result.module.last.weight.dtype == torch.float64
    assert result.values.max() <= 0.02


class Lazy(Dataset):
    def __init__(self, data=DATA):
        self.data = data

    def __len__(self):
        return len(self.data[0])

    def __getitem__(self, i):
        return tuple(column[i] for column in self.data)


def gap_of_feature(outputs, batch):
    high = batch[0][:, 1] > 0.5
    return (outputs[high].mean() - outputs[~high].mean() - 0.1)[None]


@pytest.mark.parametrize("constraint", [gap_at_most(0.1), gap_of_feature])
def test_functions_are_measured_on_all_rows_at_once(constraint):
    """Gaps of means over all rows, though chunks of 1,024 rows have one group, or other numbers."""
    rows = made(2500)
    ordered = tuple(column[torch.argsort(rows[2])] for column in rows)
    solver = solvers.ALM(n_steps=1, batch_size=64)
    for data, groups, source in (
        (ordered, ordered[2], Lazy(ordered)),
        (rows, None, DataLoader(Lazy(rows), batch_size=700)),
    ):
        result = trained(constraint, data=source, groups=groups, solver=solver)
        expected = constraint(result.module(data[0]), data).detach()
        np.testing.assert_allclose(result.values, expected, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_tensors_data_sets_and_loaders():
    short = solvers.ALM(**ADAM, batch_size=128, n_steps=60)
    tensors = trained(gap_at_most(0.1), data=TensorDataset(*DATA), solver=short)
    lazy = trained(gap_at_most(0.1), data=Lazy(), solver=short)
    torch.testing.assert_close(weights(tensors), weights(lazy))  # the same rows were drawn
    loader = DataLoader(Lazy(), batch_size=150, shuffle=True)
    streamed = trained(gap_at_most(0.1), data=loader, groups=None)
    assert measured(streamed) <= 0.15
    same = [trained(LossParity(0.1), data=data, solver=short) for data in (DATA, Lazy())]
    torch.testing.assert_close(same[0].values, same[1].values, rtol=0, atol=1e-5)


def test_constraint_batches_have_as_many_rows_of_each_group():
    sizes = []

    def looks(outputs, batch):
        if torch.is_grad_enabled() and len(batch[0]) != len(X):
            sizes.append((batch[2] == 0).sum().item() - (batch[2] == 1).sum().item())
        return outputs.mean() - 100.0

    trained(looks, solver=solvers.ALM(n_steps=30, batch_size=20))
    assert len(sizes) == 60
    assert set(sizes) == {0}


def of_outputs(outputs, batch):
    p = torch.sigmoid(outputs[:, 0])
    return p[batch[2] == 1].mean() - p[batch[2] == 0].mean() - 0.1


@pytest.mark.parametrize("constraint", [of_outputs, EqualizedOdds()])
def test_one_row_in_so_many_of_each_group_is_held_out_and_of_each_label_of_a_notion(constraint):
    n, seen = 120, set()

    def loss(outputs, batch):
        if torch.is_grad_enabled():
            seen.update(batch[3].tolist())
        return log_loss(outputs, batch)

    solver = solvers.EarlyStoppedSGDA(n_steps=100, n_evaluations=2, batch_size=40, held_out=5)
    y, group = Y[:n], GROUP[:n]
    data = X[:n], y, group, torch.arange(n)
    trained(constraint, data=data, loss=loss, groups=group, solver=solver)
    held = np.setdiff1d(np.arange(n), list(seen))
    cell = group if constraint is of_outputs else 2 * group + y
    assert torch.bincount(cell[held]).tolist() == (torch.bincount(cell) // 5).tolist()


def test_loaders_hold_no_row_out():
    seen = []

    def callback(iterate):
        seen.append(iterate)
        return len(seen) == 3

    loader = DataLoader(TensorDataset(*DATA), batch_size=40)
    result = trained(of_outputs, data=loader, groups=None, solver=None, callbacks=[callback])
    chosen = solvers.EarlyStoppedSGDA().select(seen)
    expected = float(log_loss(result.module(X), DATA).detach())
    assert float(chosen.soft[0]) == pytest.approx(expected, rel=1e-5)


class OnDisk(Lazy):
    """Makes its items when asked, and counts those that are alive at once."""

    largest = alive = 0

    def __getitem__(self, i):
        row, *others = super().__getitem__(i)
        row = row.clone()
        weakref.finalize(row, self.gone)
        self.alive += 1
        self.largest = max(self.largest, self.alive)
        return row, *others

    def gone(self):
        self.alive -= 1


def test_memory_is_bounded_by_the_batch_and_not_by_the_data():
    """No more rows pass the module, or have left the data set, at a time than a chunk: 1024."""
    passed, rows = [], made(2000)
    data = OnDisk(rows)

    class Watching(nn.Linear):
        def forward(self, X):
            passed.append(len(X))
            return super().forward(X)

    solver = solvers.ALM(n_steps=4, batch_size=64)
    trained(LossParity(0.1), Watching(4, 1), data, groups=rows[2], solver=solver)
    assert max(passed) <= 1024
    assert 500 < data.largest <= 1024
    assert data.alive == 0
    assert sum(passed) > 4 * 2000


def few_positives(outputs, batch):
    return torch.sigmoid(outputs).mean() - 0.9


def shortly(module, data=DATA):
    return trained(few_positives, module, data, solver=solvers.ALM(n_steps=60, batch_size=64))


def test_arrays_of_numpy_train_as_tensors_of_the_modules_type_do():
    arrays = tuple(column.double().numpy() for column in DATA)
    for array in arrays:
        array.flags.writeable = False
    assert torch.equal(weights(shortly(network(), arrays)), weights(shortly(network())))


def test_lazy_layers_take_their_shape_from_the_data():
    lazy = nn.Sequential(nn.LazyLinear(3), nn.Tanh(), nn.LazyLinear(1))
    result = shortly(lazy)
    assert result.module[0].weight.shape == (3, X.shape[1])
    assert torch.equal(weights(result), weights(shortly(lazy)))  # the seed is of both
    assert isinstance(lazy[0].weight, nn.UninitializedParameter)


def fitted(model):
    solver = solvers.SGDA(n_steps=60)
    clf = RateConstrainedClassifier(model=model, solver=solver, slack=0.5, random_state=0)
    return clf.fit(X.numpy(), Y.numpy(), sensitive_features=GROUP.numpy())


def lazy(n_features, n_outputs):
    return nn.LazyLinear(n_outputs)


def test_lazy_layers_of_estimators_can_be_pickled():
    clf = fitted(lazy)
    read = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(read.decision_function(X), clf.decision_function(X))


def test_estimators_compute_in_double_precision_whatever_the_factory_gives():
    clf = fitted(lambda d, k: nn.Linear(d, k).bfloat16())
    assert {p.dtype for p in clf.module_.parameters()} == {torch.float64}


def refused(message, constraints=(), **params):
    with pytest.raises(ValueError, match=message):
        trained(list(constraints), **params)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda o, b: o, r"constraint mine must return one value or a vector .* shape is \(\d+, 1"),
        (lambda o, b: 0.3, "constraint mine must return a tensor; it returned float"),
        (lambda o, b: o.mean() * np.nan, "mine must return finite values; it returned .nan"),
        (lambda o, b: o[b[2] == 7].mean(), "A mean over no rows is nan: give `groups`"),
        (lambda o, b: (o > 0).float().mean(), "these have no gradient"),
        (lambda o, b: o[: 1 + len(o) % 7, 0], r"must return \d values as before; it returned \d"),
    ],
)
def test_values_of_constraints_that_cannot_be(value, message):
    def mine(outputs, batch):
        return value(outputs, batch)

    refused(message, [mine])


def test_losses_that_cannot_be():
    refused(r"loss must return one value.*got \(600, 600\)", loss=lambda o, b: o - b[1])
    refused("loss must return one value.*got float", loss=lambda o, b: 0.3)
    refused("loss must return numbers; of finite outputs", loss=lambda o, b: o.mean() * np.nan)
    refused("loss must be a function of outputs and batch; got None", loss=None)
    refused("loss must return values that depend", loss=lambda o, b: o.detach().mean())


@pytest.mark.parametrize(
    ("name", "value"),
    [("alpha", -1.0), ("slack", "low"), ("random_state", 2**70), ("callbacks", 3)],
)
def test_options_that_cannot_be(name, value):
    refused(f"{name} must be .*; got {value!r}", **{name: value})


@pytest.mark.parametrize("outputs", [lambda z: (z, z), lambda z: {"z": z}, torch.mean])
def test_outputs_that_cannot_be(outputs):
    class Other(nn.Linear):
        def forward(self, rows):
            return outputs(super().forward(rows))

    refused("module must return one tensor with an entry for each row", module=Other(4, 1))


def test_data_that_cannot_be():
    refused("data must be a tuple of tensors", data=X)
    refused("data must be a tuple of tensors", data={"X": X})
    refused(r"tensors of one length, not zero; got \[600, 599\]", data=(X, Y[1:]))
    refused(r"not zero; got \[0, 0\]", data=(X[:0], Y[:0]))
    refused("must hold numbers; got an array of dtype <U3", data=(X, np.array(["no", "yes"])[Y]))
    words = DataLoader(["a", "b"], batch_size=2, collate_fn=list)
    refused("batches that are tuples of tensors", data=words, groups=None)
    refused("data ran dry", data=iter([DATA]), groups=None)
    refused("data ran dry", data=DataLoader(TensorDataset(X[:0])), groups=None)


def test_groups_that_cannot_be():
    refused("groups has 599 rows, but data has 600", groups=GROUP[1:])
    refused("missing values", groups=[None] * 600)
    refused("cannot be used with a loader", data=DataLoader(Lazy(), 100))
    refused("needs groups, .* got groups=None", [LossParity()], groups=None)
    refused("thresholds that are trained", [PartialStatisticalParity((0, 1))])
    refused("needs groups, .* got a loader", [LossParity()], groups=None, data=DataLoader(Lazy()))
    data = X, GROUP, GROUP  # labels are groups
    refused(r"needs rows of .*group 0, label 1 \(0 r", [LossParity(within="labels")], data=data)
    named = np.array(["f", "m"])[GROUP.numpy()]
    by_label = [LossParity(within="labels")]
    refused(r"needs rows of .*group f, label 1 \(0 r", by_label, data=data, groups=named)


@pytest.mark.parametrize("change", [lambda y: y / 2, lambda y: y - 1, lambda y: y[:, None]])
def test_labels_that_are_no_class_indices_are_refused(change):
    """A half was taken for zero, which is another label."""
    data = X, change(Y)
    refused("data must have the class indices 0, 1, ... of the rows", [LossParity()], data=data)
    words = "module must return a score for each of the 3 class indices in data"
    refused(words, [LossParity()], data=(X, Y + 1))


def test_attributes_are_compared_side_by_side():
    """Not crossed, where each pair of all combinations would be compared."""
    people = {"sex": np.arange(600) % 2, "age": np.arange(600) % 3}
    notion = DemographicParity(slack=1.0, attributes="parallel")
    found = trained(notion, groups=people, callbacks=[lambda _: True])
    assert len(found.values) == 2 + 6


def test_modules_solvers_and_constraints_that_cannot_be():
    refused("module must be an nn.Module with parameters", module=nn.ReLU())
    refused("or float64; got torch.float16, in which small steps", module=network().half())
    refused("solver must be an object of fairconstrained.solvers", solver=solvers.ALM)
    refused("StochasticGhost.p0 must be .* below 1", solver=solvers.StochasticGhost(p0=1.0))
    refused("constraints must be functions", ["loss_parity"])
    refused("constraints must be functions", [LossParity])
