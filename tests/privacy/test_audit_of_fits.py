"""A white-box audit of whole fits: every release of every private estimator, on neighbouring data.

A fit on one data set is repeated on a neighbouring one, and every release is answered with what the
first fit released. The sums behind the releases then differ by what one row adds to them at the
same history, and nothing else may differ:

* the distances, in units of the noise, add up (in squares: all releases are Gaussian and of all
  rows) to at most what the plan has priced;
* the fitted estimators are equal to the last bit: the fit is a function of its releases.
"""

import copy
import io
import pickle
import sys
import warnings
from functools import partial
from itertools import cycle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from torch import nn

import fairconstrained
from fairconstrained.constraints import PARTIAL_PRIVATE, DemographicParity
from fairconstrained.datasets import make_biased_classification
from fairconstrained.distributed import sharded_rows
from fairconstrained.estimators import base
from fairconstrained.fit import private
from fairconstrained.fit.rows import TrainingRows
from fairconstrained.model_selection import PrivateGridSearch, private_search
from fairconstrained.models import LinearModel, NetworkModel
from fairconstrained.models.features import dense_features
from fairconstrained.privacy import Budget, mechanisms
from fairconstrained.privacy.accounting import REPLACING, as_batch
from fairconstrained.privacy.mechanisms import Releases
from fairconstrained.problems.private import coordinates, moments
from fairconstrained.problems.private.erm import PrivateERM
from fairconstrained.solvers import DPFERMI, DPSGDA, NoisyTables
from tests.helpers.marks import slow_where
from tests.helpers.private_fits import DATA, PRIVATE, Keeps
from tests.helpers.processes import needs_gloo, run_on_workers
from tests.helpers.releases import answered_by, with_less_noise, without_clips, without_noise

N = 2000
FEATURES = DATA.data[:N].copy()
GROUPS = np.array(DATA.sensitive_features[:N])
NAMES = np.unique(GROUPS)
ALL_ROWS = {  # the same solvers on all rows, so that the canary is in every batch
    DPSGDA: DPSGDA(n_steps=4, sampling_rate=1.0),
    NoisyTables: NoisyTables(n_steps=4, batch_size=N),
    DPFERMI: DPFERMI(n_steps=4, batch_size=N),
}
FAR = np.array([1e308, 1e308, 1e308, -1e308, -1e308, -1e308])  # sums overflow, to nan in part
RECORDS = [name for name in PRIVATE if "groups" not in name]
OF_GROUPS = [name for name in PRIVATE if "groups" in name]
ON_SHARDS = [name for name in PRIVATE if "network" not in name and "frozen" not in name]


def with_canary(entries, group):
    """The last row is far out, with the given group: its gradient is clipped."""
    X, groups = FEATURES.copy(), GROUPS.copy()
    X[-1], groups[-1] = np.resize(entries, X.shape[1]), NAMES[group]
    return X, groups


def fit(name, unit, rows, part=slice(None), within=clone):
    """A fit, on all rows or on the part of one of several workers, and the text of its warnings."""
    clf = copy.deepcopy(PRIVATE[name])  # frozen models are not cloned
    solver = ALL_ROWS.get(type(clf.solver), clf.solver)
    clf.set_params(epsilon=Budget(1.0, 1e-5, unit), solver=solver)
    clf, (X, groups, *labels) = within(clf), rows
    y = labels[0] if labels else DATA.target[: X.shape[0]]
    with warnings.catch_warnings(record=True, action="always") as caught:
        # Files that other tests left open close whenever Python collects them.
        warnings.simplefilter("ignore", ResourceWarning)
        clf.fit(X[part], y[part], sensitive_features=groups[part])
    return clf, [str(w.message) for w in caught]


def told(clf):
    """All that a fitted estimator tells."""
    names = ["violation_", "feasible_", "n_iter_", "multipliers_", "constraints_", "residual_"]
    names += ["left_out_", "status_", "excess_", "excess_error_", "classes_", "groups_"]
    history = [clf.history_[name] for name in sorted(clf.history_)]
    attributes = [getattr(clf, name) for name in names]
    return [*attributes, *history, sorted(vars(clf)), clf.decision_function(FEATURES)]


def neighbours(unit):
    """The canary, and what stands in its place: nothing for a null record."""
    if unit == "sensitive_features":
        return with_canary(15.0, 0), with_canary(15.0, 1)
    one = with_canary(FAR, 0)
    return one, [column[:-1] for column in one] if unit == "record" else with_canary(-FAR, 1)


def answered_alike(fits, patch):
    """Both fits, the second with the releases of the first, and what moved, in units of noise."""
    honest, answers, moved = mechanisms._added_on_grid, [], []

    def first(value, law, scale, spread, rng):
        released = honest(value, law, scale, spread, rng)
        answers.append((value, scale, released))
        return released

    def second(value, law, scale, spread, rng):
        before, same, released = answers.pop(0)
        assert scale == same  # noise is no secret
        moved.append(float((value - before).norm()) / scale if scale else 0.0)
        return released

    with patch.context() as p:
        p.setattr(TrainingRows, "n_rows", N)  # it is public, and a null record counts
        p.setattr(mechanisms, "_added_on_grid", first)
        one = fits[0]()
        p.setattr(mechanisms, "_added_on_grid", second)
        other = fits[1]()
    assert not answers
    return one, other, float(np.linalg.norm(moved))


def price_of(clf, unit):
    """The distance that was priced, in units of noise: all batches are of all rows."""
    batches = [as_batch(phase) for phase in clf.privacy_.phases]
    assert all(batch.rate == 1 and not batch.laplace for batch in batches)
    priced = sum(batch.n_steps * batch.gaussian**2 for batch in batches) ** 0.5
    return (2 if unit in REPLACING else 1) * priced


def audit(name, unit, patch, part=slice(None), pair=None):
    """(what the row moved, what was priced, whether nothing else differs)."""
    fits = [partial(fit, name, unit, rows, part) for rows in pair or neighbours(unit)]
    (one, said), (other, said_then), moved = answered_alike(fits, patch)
    equal = said == said_then
    for mine, its in zip(told(one), told(other), strict=True):
        equal = equal and np.array_equal(mine, its, equal_nan=np.asarray(mine).dtype.kind == "f")
    return moved, price_of(one, unit), equal


OF_RECORDS = {"record": 0.5, "record_replacement": 0.4}  # the least that the canary moves


@pytest.mark.parametrize("unit", OF_RECORDS)
@pytest.mark.parametrize("name", slow_where(RECORDS, "partial parity"))
def test_a_record_moves_no_fit_by_more_than_is_priced(name, unit, monkeypatch):
    """In place of a null record, and of another one."""
    moved, priced, equal = audit(name, unit, monkeypatch)
    assert equal
    assert OF_RECORDS[unit] * priced < moved <= priced


@pytest.mark.parametrize("name", ["rates", "penalty, records", "ranking"])
def test_no_entry_decides_how_all_rows_are_added_up(name, monkeypatch):
    """Where a range is far from zero, sums of squares of CSR rows are off by many rows.

    One more entry would make the table dense, if a quarter of its entries decided.
    """
    rng, low = np.random.default_rng(0), np.array([1e8, *[0.0] * 5])
    X = np.zeros((N, 6))
    X[:, 0] = low[0] + rng.uniform(size=N)
    X[: N // 2, 1] = 1.0  # 1.5 entries of 6 a row, less one
    other = X.copy()
    other[0, 1] = 0.0
    clf = clone(PRIVATE[name]).set_params(feature_range=(low, low + 1.0))
    monkeypatch.setitem(PRIVATE, name, clf)
    unit = "record_replacement"
    fits = [partial(fit, name, unit, (rows, GROUPS)) for rows in (X, other)]
    (one, _), _, moved = answered_alike(fits, monkeypatch)
    assert moved <= price_of(one, unit)


class Huge(nn.Module):
    """Has scores that are finite until a temperature multiplies them."""

    def __init__(self, n_features, n_outputs):
        super().__init__()
        self.layer = nn.Linear(n_features, n_outputs)

    def forward(self, X):
        return self.layer(X) * torch.exp(X[:, :1].clamp(max=700.0))


def test_a_row_without_finite_probabilities_moves_no_table_by_more_than_is_priced(monkeypatch):
    parity = DemographicParity(temperature=1000.0)
    clf = clone(PRIVATE["penalty, records"]).set_params(constraint=parity, model=Huge)
    monkeypatch.setitem(PRIVATE, "penalty, records", clf)
    pair = [(*with_canary(entry, 0), np.arange(N) % 3) for entry in (1.0, 800.0)]
    moved, priced, equal = audit("penalty, records", "record_replacement", monkeypatch, pair=pair)
    assert equal
    assert moved <= priced


def test_no_entry_decides_in_which_precision_rows_are_added_up():
    """Entries beyond a range are cut in the precision of the table."""
    X, ends = dense_features(np.float32([[0.0], [7.0]])), torch.tensor([[-1.0], [1.0]]).double()
    assert X.bounded(*ends).X.dtype == X.X.dtype


entries = st.sampled_from([0.0, 1.0, -300.0, 1e6, -1e6, 1e-308, 3e38, -3e38]) | st.floats(-5, 5)
records = arrays(float, 6, elements=entries)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "unit"), list(zip(RECORDS, cycle(OF_RECORDS))))
@given(
    pair=st.tuples(records, records), form=st.sampled_from([np.asarray, np.float32, sp.csr_array])
)
@settings(max_examples=10)
def test_no_pair_of_records_moves_a_fit_by_more_than_is_priced(name, unit, pair, form):
    """Whatever is in them, and however the table is stored."""
    one, other = FEATURES.copy(), FEATURES.copy()
    one[-1], other[-1] = pair
    n_rows = N - (unit == "record")
    rows = (form(one), GROUPS), (form(other[:n_rows]), GROUPS[:n_rows])
    fits = [partial(fit, name, unit, own) for own in rows]
    (fitted, _), _, moved = answered_alike(fits, pytest.MonkeyPatch())
    assert moved <= price_of(fitted, unit)


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_GROUPS)
def test_another_group_moves_no_fit_by_more_than_is_priced(name, monkeypatch):
    moved, priced, equal = audit(name, "sensitive_features", monkeypatch)
    assert equal
    assert 0.2 * priced < moved <= priced


def audits_on_shards(rank, size):
    """The canary is the last row of the last worker."""
    part = slice(rank * N // size, (rank + 1) * N // size)
    found = {}
    for name in ON_SHARDS:
        for unit in units_of(name):
            with sharded_rows():
                found[name, unit] = audit(name, unit, pytest.MonkeyPatch(), part)
    return found


@pytest.mark.slow
@needs_gloo
def test_on_shards_a_row_moves_no_fit_by_more_than_is_priced(tmp_path):
    """What two workers release together; of what is public, and of what both tell, nothing."""
    first, last = run_on_workers(audits_on_shards, tmp_path, 2, 2)
    assert first.keys() == last.keys() == {(c, unit) for c in ON_SHARDS for unit in units_of(c)}
    for case, (moved, priced, equal) in last.items():
        assert first[case] == (0.0, priced, True)
        assert equal
        assert 0.2 * priced < moved <= priced


def words_on_shards(rank, size):
    """A text that the first worker has, and the last one has in its last row, or not at all."""
    part, words = slice(rank * N // size, (rank + 1) * N // size), []
    for last in ("nan", "0"):
        groups = np.array(["nan", *GROUPS[1:-1].astype(str), last])
        with sharded_rows():
            words.append(fit("rates, groups", "sensitive_features", (FEATURES, groups), part)[1])
    return words


@pytest.mark.slow
@needs_gloo
def test_no_worker_warns_of_the_groups_of_its_rows(tmp_path):
    for said, said_then in run_on_workers(words_on_shards, tmp_path, 2, 2):
        assert said == said_then
        assert any("the text 'nan'" in words for words in said)


def test_sums_of_rare_columns_move_no_fit_by_more_than_is_priced(monkeypatch):
    """As above, with coefficients for the sums of runs of columns, of which few rows have none."""
    n = 10 * N
    data = make_biased_classification(n, 6, bias=0.6, random_state=0)
    rare = np.eye(40)[np.random.default_rng(0).integers(40, size=n)]
    many = {"N": n, "DATA": data, "GROUPS": data.sensitive_features}
    for name, value in {**many, "FEATURES": np.hstack((data.data, rare))}.items():
        monkeypatch.setitem(globals(), name, value)
    honest, n_runs = coordinates._runs, []

    def noted(variance, least):
        run = honest(variance, least)
        n_runs.append(int(run.max()) + 1)
        return run

    monkeypatch.setattr(coordinates, "_runs", noted)
    moved, priced, equal = audit("rates of raw columns", "record_replacement", monkeypatch)
    assert min(n_runs) >= 2
    assert equal
    assert 0.4 * priced < moved <= priced


class ByValue(pickle.Pickler):
    """Tensors by their values; torch's own pickles have addresses in memory."""

    def reducer_override(self, given):
        own = isinstance(given, torch.Tensor)
        return (torch.tensor, (given.detach().numpy(),)) if own else NotImplemented


KEEPS = clone(PRIVATE["rates of a network"]).set_params(model=Keeps)
SEARCHES = PRIVATE | {"module": KEEPS}
FIRST = np.arange(N) < N // 2
PLACES = {"training": (~FIRST, FIRST), "held out": (FIRST, ~FIRST)}  # of the last row


def audit_of_search(name, place, patch):
    """(what moved, what was priced, whether pickles and words are equal, what counts moved)."""
    unit, counts = units_of(name)[-1], []

    def first_wins(given, scale, rng):
        counts.append(np.array(given))
        return 0

    def within(clf):
        return PrivateGridSearch(clf, {"alpha": [1e-4, 1e-3]}, random_state=0)

    with patch.context() as p:
        p.setitem(PRIVATE, name, SEARCHES[name])
        split = [np.flatnonzero(part) for part in PLACES[place]]
        p.setattr(private_search, "holdout_split", lambda *_: split)
        p.setattr(mechanisms, "noisy_argmax", first_wins)
        fits = [partial(fit, name, unit, rows, within=within) for rows in neighbours(unit)]
        (one, said), (other, said_then), moved = answered_alike(fits, p)
    stored = [io.BytesIO() for _ in "12"]
    for search, file in zip((one, other), stored, strict=True):
        ByValue(file).dump(search)
    equal = said == said_then and stored[0].getvalue() == stored[1].getvalue()
    return moved, price_of(one, unit), equal, np.abs(counts[1] - counts[0]).max()


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("rates of frozen models", "training"),
        ("module", "held out"),
        pytest.param("rates, groups", "training", marks=pytest.mark.slow),
    ],
)
def test_no_search_is_moved_by_more_than_is_priced(name, place, monkeypatch):
    """All candidates together; their modules, and pickles of all, are equal to the last bit."""
    moved, priced, equal, counts = audit_of_search(name, place, monkeypatch)
    assert equal
    assert (0.2 * priced < moved <= priced) if place == "training" else moved == 0.0
    assert counts <= (place == "held out")


drawn = {"clip": st.floats(0.1, 3.0), "histogram_fraction": st.floats(0.05, 0.9)}
drawn = st.fixed_dictionaries({**drawn, "n_steps": st.integers(1, 5)})
CRITERIA = {  # of each estimator, as far as private fits take them
    "RateConstrainedClassifier": [
        "demographic_parity",
        "equalized_odds",
        "error_rate_parity",
        "false_negative_rate",
        ["demographic_parity", "equal_opportunity"],
    ],
    "PartialParityClassifier": list(PARTIAL_PRIVATE),
    "AUCFairClassifier": ["group_auc", "inter_group", "intra_group"],
    "DPFermiClassifier": ["demographic_parity", "equalized_odds", "equal_opportunity"],
}


def set_up_anew(patch, name, steps, alpha, unknown, criterion):
    """Other solvers of all rows, penalty and criterion, and perhaps rows of unknown group."""
    others = (kind(batch_size=N, **steps) for kind in (NoisyTables, DPFERMI))
    solvers = DPSGDA(sampling_rate=1.0, **steps), *others
    patch.setattr(sys.modules[__name__], "ALL_ROWS", {type(own): own for own in solvers})
    criteria = CRITERIA[type(SEARCHES[name]).__name__]
    chosen = {"alpha": alpha, "constraint": criteria[criterion % len(criteria)]}
    other = copy.deepcopy(SEARCHES[name]).set_params(**chosen)
    patch.setitem(PRIVATE, name, other)
    patch.setitem(SEARCHES, name, other)
    groups = GROUPS.astype(object)
    groups[: N // 10 if unknown else 0] = None
    patch.setattr(sys.modules[__name__], "GROUPS", groups)


SET_UPS = {
    "steps": drawn,
    "alpha": st.floats(0.0, 0.1),
    "unknown": st.booleans(),
    "criterion": st.integers(0, 100),
}


@pytest.mark.slow
@given(data=st.data(), **SET_UPS)
@settings(max_examples=15)
def test_no_fit_that_is_set_up_at_random_is_moved_by_more_than_is_priced(data, **set_up):
    """And nothing else differs; public heads included."""
    name = data.draw(st.sampled_from(list(PRIVATE)))
    unit = data.draw(st.sampled_from(units_of(name)))
    with pytest.MonkeyPatch.context() as patch:
        set_up_anew(patch, name, **set_up)
        moved, priced, equal = audit(name, unit, patch)
    assert equal
    assert moved <= priced


@pytest.mark.slow
@given(data=st.data(), **SET_UPS)
@settings(max_examples=8)
def test_no_search_that_is_set_up_at_random_is_moved_by_more_than_is_priced(data, **set_up):
    name = data.draw(st.sampled_from([name for name in SEARCHES if "penalty" not in name]))
    place = data.draw(st.sampled_from(list(PLACES)))
    with pytest.MonkeyPatch.context() as patch:
        set_up_anew(patch, name, **set_up)
        moved, priced, equal, counts = audit_of_search(name, place, patch)
    assert equal
    assert moved <= (priced if place == "training" else 0.0)
    assert counts <= (place == "held out")


RARE = 7  # a group


def with_the_only_one(what, crossed, is_there):
    """Rows of declared values, of which the last one alone has a group, a label or no group."""
    values, y = NAMES[np.arange(N) % 2].astype(object), np.zeros(N, dtype=int)
    if is_there and what == "label":
        y[-1] = 1
    elif is_there:
        values[-1] = None if what == "no group" else RARE
    names = [*NAMES.tolist(), *[RARE] * (what == "group")]
    groups = pd.Categorical(values, categories=names)
    if crossed:
        groups = pd.DataFrame({"one": groups, "other": pd.Categorical([0, 1] * (N // 2))})
    return FEATURES, groups, pd.Categorical(y, categories=[0, 1])


@pytest.mark.slow
@given(
    data=st.data(),
    what=st.sampled_from(["group", "label", "no group"]),
    crossed=st.booleans(),
    **SET_UPS,
)
@settings(max_examples=20)
def test_nothing_tells_whether_a_declared_value_occurs(data, what, crossed, **set_up):
    """A row alone has a group, a label or no group, and another one, or a null record, has not."""
    names = OF_GROUPS if what != "label" else []
    name = data.draw(st.sampled_from([own for own in RECORDS + names if "frozen" not in own]))
    unit = data.draw(st.sampled_from(units_of(name)))
    one, other = (with_the_only_one(what, crossed, is_there) for is_there in (True, False))
    if unit == "record":
        other = [column[:-1] for column in one]
    with pytest.MonkeyPatch.context() as patch:
        set_up_anew(patch, name, **set_up)
        moved, priced, equal = audit(name, unit, patch, pair=(one, other))
    assert equal
    assert moved <= priced


def test_the_audit_sees_held_out_rows_that_a_model_keeps(monkeypatch):
    """As if no copy computed predictions."""
    monkeypatch.setattr(base, "copy", SimpleNamespace(deepcopy=lambda model: model))
    assert not audit_of_search("module", "held out", monkeypatch)[2]


def test_the_fifth_estimator_promises_nothing():
    assert "epsilon" not in fairconstrained.LossParityClassifier().get_params()
    private = {type(clf).__name__ for clf in PRIVATE.values()}
    assert private | {"LossParityClassifier"} == {
        name for name in fairconstrained.__all__ if name.endswith("Classifier")
    }


def too_little_noise(patch):
    answered_by(patch, with_less_noise(0.01))


def unpriced_releases(patch):
    honest = PrivateERM.release_table

    def many(self, x, rng):
        for _ in range(200):
            self.releases._left["final table"] += 1
            honest(self, x, rng)
        return honest(self, x, rng)

    patch.setattr(PrivateERM, "release_table", many)


def rows_are_not_clipped(patch, room):
    patch.setattr(room, "clip_factors", lambda norms, _: 1.0 + 0.0 * norms)


MOVES_MORE = {
    "noise of rates": ("rates", too_little_noise),
    "noise of moments": ("ranking", too_little_noise),
    "noise of released moments": ("penalty, groups", too_little_noise),
    "gradients": ("rates", partial(without_clips, model=LinearModel)),
    "gradients of a network": ("rates of a network", partial(without_clips, model=NetworkModel)),
    "rows": ("ranking", partial(rows_are_not_clipped, room=moments)),
    "coordinates": ("rates of raw columns", partial(rows_are_not_clipped, room=coordinates)),
    "releases without a price": ("rates", unpriced_releases),
}


def units_of(name):
    return ("sensitive_features",) if name in OF_GROUPS else tuple(OF_RECORDS)


@pytest.mark.parametrize("case", slow_where(MOVES_MORE, "noise of released moments"))
def test_the_audit_sees_what_moves_more(case, monkeypatch):
    """For every unit of privacy of the estimator."""
    name, broken = MOVES_MORE[case]
    broken(monkeypatch)
    for unit in units_of(name):
        moved, priced, _ = audit(name, unit, monkeypatch)
        assert moved > priced


def exact_final_table(patch):
    honest = Releases.noisy

    def exact(self, name, total, bound, rng):
        return total if name == "final table" else honest(self, name, total, bound, rng)

    patch.setattr(Releases, "noisy", exact)


def exact_groups_in_a_warning(patch):
    def told(task, rows, plan):
        warnings.warn(f"{(rows.group == 0).sum()} rows", UserWarning, stacklevel=2)

    patch.setattr(private, "warn_of_plan", told)


LEAKS = {
    "exact releases of a penalty": ("penalty, records", partial(answered_by, answer=without_noise)),
    "an exact violation": ("partial parity", exact_final_table),
    "an exact number in a warning": ("ranking", exact_groups_in_a_warning),
}


@pytest.mark.parametrize("case", slow_where(LEAKS, "an exact violation"))
def test_the_audit_sees_what_leaves_without_noise(case, monkeypatch):
    """For every unit of privacy of the estimator."""
    name, broken = LEAKS[case]
    broken(monkeypatch)
    monkeypatch.setitem(globals(), "FAR", 15.0)  # entries of both signs may cancel in a score
    for unit in units_of(name):
        _, _, equal = audit(name, unit, monkeypatch)
        assert not equal
