"""Whatever fails after a release says what was spent: faults are injected at and after releases."""

import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from sklearn.base import clone

from fairconstrained import distributed
from fairconstrained.exceptions import SmallGroupWarning
from fairconstrained.model_selection import PrivateGridSearch
from fairconstrained.privacy import mechanisms
from tests.helpers.marks import slow_where
from tests.helpers.private_fits import DATA, PRIVATE, fitted

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
SLOW = ("partial parity", "penalty, groups", "rates of a network")


class InjectedError(Exception):
    pass


def fail():
    raise InjectedError


def releases_of(clf, monkeypatch, at=None, then=fail):
    """Fit, and call `then` right after so many releases; the number of releases that were made."""
    made, honest = [], mechanisms._added_on_grid

    def counted(value, law, scale, spread, rng):
        released = honest(value, law, scale, spread, rng)
        made.append(scale)
        if len(made) == at:
            then()
        return released

    with monkeypatch.context() as patch:
        patch.setattr(mechanisms, "_added_on_grid", counted)
        fitted(clone(clf))
    return len(made)


@pytest.mark.parametrize("name", slow_where(PRIVATE, *SLOW))
def test_an_error_after_any_release_carries_what_was_spent(name, monkeypatch):
    clf = PRIVATE[name]
    n_releases = releases_of(clf, monkeypatch)
    assert n_releases >= 3
    for k in range(1, n_releases + 1):
        with pytest.raises(InjectedError) as caught:
            releases_of(clf, monkeypatch, at=k)
        assert 0 < caught.value.privacy.epsilon <= 1.0
        assert any("Another fit on the same rows adds its own" in n for n in caught.value.__notes__)


def failing(hook):
    """A callback of scikit-learn's that fails in a hook, when the fit has ended."""
    hooks = ("setup", "teardown", "on_fit_task_begin", "on_fit_task_end")
    calls = dict.fromkeys(hooks, lambda estimator, context: None)
    calls[hook] = lambda estimator, context: fail() if context.task_name == "fit" else None
    return SimpleNamespace(**calls)


@pytest.mark.parametrize("hooks", [["on_fit_task_end"], ["teardown"], ["teardown", "teardown"]])
@pytest.mark.parametrize("name", slow_where(PRIVATE, *SLOW))
def test_a_callback_that_fails_after_all_releases_carries_what_was_spent(name, hooks):
    """Also where several fail, of which scikit-learn makes a group."""
    pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9")
    clf = clone(PRIVATE[name]).set_callbacks(*map(failing, hooks))
    with pytest.raises((InjectedError, ExceptionGroup)) as caught:
        fitted(clf)
    assert 0.5 < caught.value.privacy.epsilon <= 1.0
    assert not hasattr(clf, "classes_")


def lines_of_end(clf, monkeypatch, releases, interrupted_at=None):
    """Number of lines of the package that a fit runs after its releases; one is interrupted."""
    room, lines = str(Path(distributed.__file__).parent), []

    def trace(frame, event, _):
        if event == "line" and frame.f_code.co_filename.startswith(room):
            lines.append(frame.f_lineno)
            if len(lines) == interrupted_at:
                raise KeyboardInterrupt
        return trace

    def begin():
        frame = sys._getframe()
        while frame := frame.f_back:
            frame.f_trace = trace
        sys.settrace(trace)

    before, threads = sys.gettrace(), torch.get_num_threads()
    monkeypatch.setattr(distributed, "_shared", type(distributed._shared)())  # it may stay limited
    try:
        releases_of(clf, monkeypatch, releases, begin)
    finally:
        sys.settrace(before)
        torch.set_num_threads(threads)
    return len(lines)


@pytest.mark.parametrize("search", [False, True])
def test_an_interruption_of_any_line_after_all_releases_carries_what_was_spent(search, monkeypatch):
    """Of a fit; of a search, what all of its fits have spent, and its choice."""
    clf = PRIVATE["rates"]
    clf = PrivateGridSearch(clf, {"slack": [0.1, 0.2]}, random_state=0) if search else clf
    releases = releases_of(clf, monkeypatch)
    n_lines = lines_of_end(clf, monkeypatch, releases)
    for k in (0, 1, 3, 9, 27, 81):
        with pytest.raises(KeyboardInterrupt) as caught:
            lines_of_end(clf, monkeypatch, releases, interrupted_at=n_lines - k)
        assert 0.97 < caught.value.privacy.epsilon <= 1.0


@pytest.mark.parametrize("name", slow_where(PRIVATE, *SLOW))
def test_a_warning_about_released_numbers_as_an_error_carries_it_too(name):
    """With -W error a warning ends a fit; that a group is small is known from released counts."""
    n = 30
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", SmallGroupWarning)
        clf = clone(PRIVATE[name])
        with pytest.raises(SmallGroupWarning) as caught:
            fitted(clf, DATA.data[:n], DATA.target[:n], DATA.sensitive_features[:n])
    assert 0 < caught.value.privacy.epsilon <= 1.0
