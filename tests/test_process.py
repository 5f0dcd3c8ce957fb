"""Fits in threads end like fits alone and leave nothing changed; forked processes do not hang."""

import os
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info, threadpool_limits
from torch import nn

from fairconstrained import RateConstrainedClassifier
from fairconstrained.distributed import one_thread
from fairconstrained.solvers import DPSGDA, SGDA
from tests.helpers.fits import table

X, Y, GROUP = table()


def limits():
    blas = (library for library in threadpool_info() if library["user_api"] == "blas")
    return torch.get_num_threads(), [library["num_threads"] for library in blas]


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def network(n_features, n_outputs):
    layers = nn.Linear(n_features, 4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, n_outputs)
    return nn.Sequential(*layers)


def scores(_):
    solver = SGDA(n_steps=60)
    clf = RateConstrainedClassifier(model=network, solver=solver, slack=0.5, random_state=0)
    return clf.fit(X, Y, sensitive_features=GROUP).decision_function(X)


def test_networks_fitted_in_threads_are_those_of_a_lone_fit(two_threads):
    """Initial weights and dropout come from torch's global generator, of which there is one."""
    state, of_numpy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    alone, before = scores(None), limits()
    with ThreadPoolExecutor(4) as pool:
        for together in pool.map(scores, range(3)):
            np.testing.assert_array_equal(together, alone)
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], of_numpy)  # noqa: NPY002
    assert limits() == before
    assert before[0] == 2
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()


def test_a_private_fit_does_not_depend_on_the_number_of_threads(two_threads):
    """To the last bit: several threads add up a product with a wide matrix in another order."""
    rng = np.random.default_rng(0)
    rows, groups = rng.normal(size=(100, 3000)), rng.integers(2, size=100)
    clf = RateConstrainedClassifier(epsilon=5.0, solver=DPSGDA(n_steps=2), random_state=0)
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        with threadpool_limits(threads, "blas"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(clf.fit(rows, rows[:, 0] > 0, sensitive_features=groups).coef_)
    np.testing.assert_array_equal(*found)


def test_linear_fits_leave_the_global_generator_alone():
    state = torch.get_rng_state()
    drawn = []
    clf = RateConstrainedClassifier(callbacks=lambda iterate: drawn.append(torch.rand(1)))
    clf.fit(X, Y, sensitive_features=GROUP)
    torch.set_rng_state(state)
    assert drawn == [torch.rand(1) for _ in drawn]


class CountsThreads(LogisticRegression):
    seen: ClassVar[set] = set()

    def fit(self, *args):
        self.note()
        return super().fit(*args)

    def predict_proba(self, X):
        self.note()
        return super().predict_proba(X)

    def note(self):
        found = threadpool_info()
        self.seen.update(own["num_threads"] for own in found if own["user_api"] == "openmp")


@pytest.mark.parametrize(
    ("chosen", "more", "columns", "threads"),
    [
        (None, 0, 1, 1),
        (None, 0, 1000, None),  # the table is large
        ("4", 0, 1, None),
        (None, 1, 1, None),  # the user has set a limit
    ],
)
def test_small_tables_have_one_thread_of_openmp(monkeypatch, chosen, more, columns, threads):
    """Boosted trees on 1,000 rows took minutes where other programs had some of the cores."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if chosen:
        monkeypatch.setenv("OMP_NUM_THREADS", chosen)
    wide = np.tile(X, columns)
    CountsThreads.seen.clear()
    given = len(os.sched_getaffinity(0)) + more
    with threadpool_limits(given, "openmp"):
        clf = RateConstrainedClassifier(model=CountsThreads())
        clf.fit(wide, Y, sensitive_features=GROUP).predict(wide)
    assert CountsThreads.seen == {threads or given}


def test_limits_are_restored_when_the_last_thread_leaves(two_threads):
    """Two threads overlap: the first to come leaves first."""
    before, second_is_in, first_has_left = limits(), threading.Event(), threading.Event()
    found = {}

    def second():
        with one_thread():
            second_is_in.set()
            first_has_left.wait(10)
            found["inside"] = limits()
        found["after"] = limits()

    with one_thread():
        other = threading.Thread(target=second)
        other.start()
        assert second_is_in.wait(10)
    first_has_left.set()
    other.join()
    assert found["inside"] == (1, [1] * len(before[1]))
    assert found["after"] == before
    assert limits() == before


def test_limits_are_restored_after_nested_use_and_errors(two_threads):
    before = limits()

    def fails():
        with one_thread():
            with one_thread():
                pass
            assert torch.get_num_threads() == 1
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert limits() == before


FORK = """
import multiprocessing, threading
import numpy as np, torch
from fairconstrained import RateConstrainedClassifier
from fairconstrained.distributed import one_thread, seeded
from fairconstrained.solvers import DPSGDA, SGDA
torch.set_num_threads(2)
rng = np.random.default_rng(0)
X, groups = rng.normal(size=(4_000, 20)), rng.integers(0, 2, 4_000)
def fit(model, solver):
    clf = RateConstrainedClassifier(slack=1.0, model=model, solver=solver)
    return clf.fit(X, X[:, 0] > 0, sensitive_features=groups).predict(X).mean()
MODELS = [("linear", None), ((4,), SGDA(n_steps=30))]
for model in MODELS:
    fit(*model)
inside, done = threading.Event(), threading.Event()
def holding():  # what a forked process must not wait for
    with seeded(0), one_thread():
        inside.set()
        done.wait()
thread = threading.Thread(target=holding)
thread.start()
inside.wait()
for model in MODELS:
    child = multiprocessing.get_context("fork").Process(target=fit, args=model)
    child.start()
    child.join(60)
    print(child.exitcode)
    child.kill()
done.set()
print(torch.get_num_threads())
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_process_fits_after_its_parent_did():
    """OpenMP's threads are not in the child, and locks of other threads would never be released."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    options = {"capture_output": True, "text": True, "check": True, "timeout": 240}
    printed = subprocess.run([sys.executable, "-c", FORK], env=environment, **options).stdout
    assert printed.split() == ["0", "0", "2"]
