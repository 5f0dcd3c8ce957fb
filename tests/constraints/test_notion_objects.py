"""Notions as objects: parameters, names, named parts, many groups, refusals."""

import re

import numpy as np
import pytest
import torch
from sklearn.base import clone

from fairconstrained import constraints
from fairconstrained.constraints import (
    AUCS,
    CONSTRAINTS,
    LOSS_PARITIES,
    PARTIAL,
    PARTIAL_PRIVATE,
    AUCParity,
    DemographicParity,
    EqualizedOdds,
    FalseNegativeRate,
    PartialStatisticalParity,
    RateConstraint,
    Space,
)
from fairconstrained.constraints.notions import as_notion
from fairconstrained.constraints.partial_notions import PartialNotion
from tests.helpers.notions import random_rows, soft_values

TABLES = [CONSTRAINTS, PARTIAL, PARTIAL_PRIVATE, AUCS, LOSS_PARITIES]
EVERY = [make for names in TABLES for make in names.values()]
SPACE = Space([0, 1], ["Female", "Male", "Other"])


@pytest.mark.parametrize("make", EVERY, ids=repr)
def test_parameters_can_be_read_set_and_cloned(make):
    """What scikit-learn's searches need: `constraint__temperature` and the like."""
    notion = make()
    params = notion.get_params()
    assert eval(repr(notion), dict(vars(constraints))).get_params() == params
    assert "slack" in params or "max" in params
    assert clone(notion).get_params() == params
    for name, value in params.items():
        assert getattr(notion.set_params(**{name: value}), name) is value
    if "temperature" in params:
        changed = clone(notion.set_params(temperature=3.5))
        assert changed.temperature == 3.5
        interval = {"interval": (0.1, 0.5)} if isinstance(notion, PartialNotion) else {}
        bound = changed.bind(SPACE, 0.1, **interval)
        assert bound.statistic.temperature == 3.5


@pytest.mark.parametrize("value", [0.0, np.inf, np.nan, None, True, "hot"])
@pytest.mark.parametrize(
    "notion", [DemographicParity(), FalseNegativeRate(), PartialStatisticalParity((0.1, 0.5))]
)
def test_bad_temperatures_are_named(notion, value):
    name = type(notion).__name__
    with pytest.raises(ValueError, match=rf"{name}\.temperature must be a finite number > 0; got"):
        clone(notion).set_params(temperature=value).bind(SPACE, 0.1)


def test_what_a_notion_lacks_comes_from_the_estimator_and_must_come_from_somewhere():
    own = PartialStatisticalParity((0.2, 0.4), 0.3).bind(SPACE, 0.1, (0.0, 1.0))
    assert (own.gap, own.lower[0, 0], own.upper[0, 0]) == (0.3, 0.2, 0.4)
    given_ = PartialStatisticalParity().bind(SPACE, 0.1, (0.0, 1.0))
    assert (given_.gap, given_.lower[0, 0], given_.upper[0, 0]) == (0.1, 0.0, 1.0)
    with pytest.raises(ValueError, match="interval must be"):
        PartialStatisticalParity().bind(SPACE, 0.1)
    with pytest.raises(ValueError, match=r"DemographicParity\.slack must be a number"):
        DemographicParity().bind(SPACE)


@pytest.mark.parametrize("names", [CONSTRAINTS, AUCS])
def test_every_name_gives_an_object_and_objects_are_kept(names):
    for name in names:
        notion = as_notion(name, names)
        assert notion.name == name
        assert as_notion(notion, names) is notion


@pytest.mark.parametrize("given_", ["parity", None, DemographicParity, EqualizedOdds()])
def test_anything_else_is_refused_with_what_is_allowed(given_):
    message = f"C.constraint must be one of {sorted(AUCS)}, or an object"
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        as_notion(given_, AUCS, AUCParity, "C.constraint")
    assert str(error.value).endswith(f"such as AUCParity(); got {given_!r}.")


NAMED = {
    "women who repay": {"group": "Female", "label": 1},
    "women who default": {"group": "Female", "label": 0},
    "others": {"group": ["Male", "Other"]},
}
WEIGHTS = [[[0, 1], [0, -1]]]


def test_parts_in_unions_are_one_part():
    named = RateConstraint(NAMED, [["women who repay", "women who default"], ["others"]], WEIGHTS)
    part = {"women": {"group": "Female"}, "others": {"group": ["Male", "Other"]}}
    joined = RateConstraint(part, [["women"], ["others"]], WEIGHTS)
    values = [soft_values(n.bind(SPACE, 0.1), random_rows(3)) for n in (named, joined)]
    torch.testing.assert_close(*values)


def test_crossed_groups_are_named_by_their_tuple_or_by_their_text():
    space = Space([0, 1], [("f", "old"), ("f", "young"), ("m", "old")])
    for old in ([("f", "old"), ("m", "old")], ["f & old", "m & old"]):
        part = {"old": {"group": old}, "young": {"group": ("f", "young")}}
        bound = RateConstraint(part, [["old"], ["young"]], WEIGHTS).bind(space, 0.1)
        assert bound.describe(0).endswith("group old against group f & young")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"part": {"a": "Male"}}, r"part\['a'\] must say which rows it has"),
        ({"part": {"a": {"sex": "Male"}}}, r"part\['a'\] must say which rows it has"),
        ({"part": {"a": {}}}, r"part\['a'\] must say which rows it has"),
        ({"part": {"a": {"group": "Male"}, "b": {"label": 1}}}, "'a' and 'b' have rows in c"),
        ({"part": {"a": {"group": ["male", "Male"]}}}, r"do not have: \['male'\]; they have \['F"),
        ({"part": {"a": {"label": "maybe"}}}, r"names labels that the data do not have"),
        ({"unions": [["women who repay"], ["others", "men"]]}, "must be lists of names out of"),
        ({"unions": ["others"]}, "must be lists of names out of"),
    ],
)
def test_wrong_parts_and_unions_are_named(changes, message):
    given_ = {"part": NAMED, "unions": [["women who repay"], ["others"]], "weights": WEIGHTS}
    with pytest.raises(ValueError, match=message):
        RateConstraint(**(given_ | changes)).bind(SPACE, 0.1)


@pytest.mark.parametrize(
    ("notion", "n_groups", "message"),
    [
        (DemographicParity(), 2000, r"2,000 groups would have 3,998,000 entries.*'overall'"),
        (EqualizedOdds(reference="rest"), 1500, r"1,500 groups would have 4,500,000 entries"),
        (DemographicParity(reference="overall"), 1_100_000, "2,200,000 entries.*Use fewer groups"),
        (PartialStatisticalParity((0.0, 0.5)), 2000, "2,000 groups would have.*Use fewer groups"),
        (AUCParity("inter_group"), 500, r"124,750 comparisons of 1,000 cells.*Use fewer groups"),
    ],
)
def test_what_is_too_large_is_refused_before_any_work(notion, n_groups, message):
    with pytest.raises(ValueError, match=message):
        notion.bind(Space([0, 1], range(n_groups)), 0.1)


def test_long_lists_of_groups_are_cut_in_words():
    space = Space([0, 1], list(range(40)))
    constraint = DemographicParity(0.1, reference="rest").bind(space)
    assert constraint.describe(0) == (
        "demographic_parity: group 0 against group 1 or 2 or 3 or 4 or 5 or 6 or 7 or 8 or 9 or "
        "30 more"
    )
