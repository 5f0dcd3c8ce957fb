"""Whatever fails after a release says what was spent: faults are injected at every release."""

import warnings

import pytest
from sklearn.base import clone

from fairconstrained.exceptions import SmallGroupWarning
from fairconstrained.privacy import mechanisms
from tests.helpers.marks import slow_where
from tests.helpers.private_fits import DATA, PRIVATE, fitted

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
SLOW = ("partial parity", "penalty, groups", "rates of a network")


class InjectedError(Exception):
    pass


def releases_of(clf, monkeypatch, fails_after=None):
    """Fit, with an error right after so many releases; the number of releases that were made."""
    made, honest = [], mechanisms._added_on_grid

    def counted(value, noise, scale, spread, rng):
        released = honest(value, noise, scale, spread, rng)
        made.append(scale)
        if len(made) == fails_after:
            raise InjectedError
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
            releases_of(clf, monkeypatch, fails_after=k)
        assert 0 < caught.value.privacy.epsilon <= 1.0
        assert any("Another fit on the same rows adds its own" in n for n in caught.value.__notes__)


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
