"""Whatever fails after a release says what was spent: faults are injected at and after releases."""

import warnings
from types import SimpleNamespace

import pytest
from sklearn.base import clone

from fairconstrained.exceptions import SmallGroupWarning
from tests.helpers.marks import slow_where
from tests.helpers.private_fits import DATA, PRIVATE, fitted
from tests.helpers.releases import answered_by

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
SLOW = ("partial parity", "penalty, groups", "rates of a network")


class InjectedError(Exception):
    pass


def fail():
    raise InjectedError


def releases_of(clf, monkeypatch, at=None):
    """Fit, and fail right after so many releases; the number of releases that were made."""
    made = []

    def counted(add_noise, total, deviation, rng):
        made.append(add_noise(total, deviation, rng))
        return fail() if len(made) == at else made[-1]

    with monkeypatch.context() as patch:
        answered_by(patch, counted)
        fitted(clone(clf))
    return len(made)


@pytest.mark.parametrize("name", slow_where(PRIVATE, *SLOW))
def test_an_error_after_any_release_carries_what_was_spent(name, monkeypatch):
    clf = PRIVATE[name]
    n_releases = releases_of(clf, monkeypatch)
    assert n_releases >= 3
    for k in (1, n_releases // 2, n_releases):
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


@pytest.mark.parametrize(
    ("name", "hooks"),
    [
        ("rates", ["on_fit_task_end"]),
        ("ranking", ["teardown"]),
        ("penalty, records", ["teardown", "teardown"]),
    ],
)
def test_a_callback_that_fails_after_all_releases_carries_what_was_spent(name, hooks):
    """Also where several fail, of which scikit-learn makes a group."""
    pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9")
    clf = clone(PRIVATE[name]).set_callbacks(*map(failing, hooks))
    with pytest.raises((InjectedError, ExceptionGroup)) as caught:
        fitted(clf)
    assert 0.5 < caught.value.privacy.epsilon <= 1.0
    assert not hasattr(clf, "classes_")


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
