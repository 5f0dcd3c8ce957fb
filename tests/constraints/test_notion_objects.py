"""Notions as objects: parameters, names, named parts, many groups, refusals."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

import fairconstrained as fc
from fairconstrained.constraints import (
    AUCS,
    CONSTRAINTS,
    LOSS_PARITIES,
    PARTIAL,
    PARTIAL_PRIVATE,
    AUCParity,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    Event,
    FalseNegativeRate,
    FalsePositiveRate,
    FalsePositiveRateParity,
    LossParity,
    Parity,
    PartialEqualOpportunity,
    PartialStatisticalParity,
    RateConstraint,
    RobustParity,
    SoftBins,
    Space,
)
from fairconstrained.constraints.partial_notions import PartialNotion
from fairconstrained.metrics import equal_opportunity_difference
from tests.helpers.fits import FORGIVEN, table
from tests.helpers.notions import hard_values, random_rows, soft_values

TABLES = [CONSTRAINTS, PARTIAL, PARTIAL_PRIVATE, AUCS, LOSS_PARITIES]
EVERY = [make for names in TABLES for make in names.values()]
SPACE = Space([0, 1], ["Female", "Male", "Other"])
TWO = [[0.9, 0.1], [0.2, 0.8]]


def robust(**changes):
    return RobustParity(**{"parity": DemographicParity(), "confusion": TWO, "bound": 0.1} | changes)


@pytest.mark.parametrize("make", EVERY, ids=repr)
def test_parameters_can_be_read_set_and_cloned(make):
    """What scikit-learn's searches need: `constraint__temperature` and the like."""
    notion = make()
    params = notion.get_params()
    assert eval(repr(notion), dict(vars(fc.constraints))).get_params() == params
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


NO_NUMBERS = [-0.1, np.nan, "0.1", True, np.True_, [0.1], np.array(0.1), 1j]
NOT_ALLOWED = {
    "slack": (NO_NUMBERS, "must be a number >= 0; got"),
    "max": (NO_NUMBERS, "must be a number >= 0; got"),
    "ratio": ([0, 1, 1.2, -0.1, np.nan, True, "0.8"], "must be a number between 0 and"),
    "temperature": ([0.0, np.inf, np.nan, None, True, "hot"], "must be a finite number > 0; got"),
    "reference": (["mean"], r"must be one of \['overall', "),
    "within": (["group"], r"must be one of \['all', 'labels', "),
    "loss": (["hinge"], r"must .*\['brier', 'log'\]; got 'hinge'"),
    "comparison": (["auc"], "must be one of"),
    "surrogate": (["cubic"], "must be one of"),
    "interval": ([(0.5, 0.1)], r"must be .* got \(0.5, 0.1\)"),
    "n_grid": ([0, 2.5, True, "ten"], "must be an integer >= [12]; got"),
    "threshold": ([None], "must be a finite number"),
    "leak": ([-1], "must be a number >= 0"),
}


@pytest.mark.parametrize("make", EVERY, ids=repr)
def test_parameters_that_cannot_be_are_named_with_what_is_allowed(make):
    space = Space([0, 1], ["a", "b"])
    notion = make(interval=(0.1, 0.5)) if "interval" in make().get_params() else make()
    notion.bind(space, 0.1)
    for name in notion.get_params().keys() & NOT_ALLOWED.keys():
        values, message = NOT_ALLOWED[name]
        for value in values:
            with pytest.raises(ValueError, match=rf"{name} {message}"):
                clone(notion).set_params(**{name: value}).bind(space, 0.1)


PAIR, THREE = Space([0, 1], [0, 1]), Space("abc", [0, 1])
CROSSED = Space([0, 1], [(a, b) for a in "fm" for b in "xyz"])
TO_ALL = DemographicParity(reference="overall")
DIFFERENT = DemographicParity(slack=[0.1, -0.1], attributes="parallel")
NOT_THESE = [
    (DemographicParity(0.1, ratio=0.8), PAIR, r"takes slack or ratio; got both, 0\.1 and 0\.8"),
    (robust(parity=FalseNegativeRate(0.1)), PAIR, "must be a parity of crossed groups"),
    (robust(parity="demographic_parity"), PAIR, "must be a parity of crossed groups"),
    (robust(parity=DemographicParity(ratio=0.8)), PAIR, "without ratio"),
    (robust(parity=DemographicParity(reference="rest")), PAIR, "pair by pair"),
    (robust(confusion=[[0.9, 0.2], [0.1, 0.8]]), PAIR, "rows of probabilities"),
    (robust(bound=-0.1), PAIR, "bound must be a number >= 0"),
    (robust(bound="a"), PAIR, "bound must be a number >= 0"),
    (robust(bound=[0.1, 0.2, 0.3]), PAIR, "one for each entry"),
    (robust(bound=0.4), PAIR, "must have an inverse"),
    (robust(confusion=0.9 * np.eye(5) + 0.02, bound=0.01), Space([0, 1], range(5)), "corners"),
    *((each((0.1, 0.5)), THREE, f"{each.__name__} needs two classes") for each in PARTIAL.values()),
    (DemographicParity(attributes="each"), CROSSED, r"must be one of \['crossed', 'parallel'\]"),
    (DemographicParity([0.1], attributes="parallel"), CROSSED, "one for each of 2 columns"),
    (DemographicParity([0.1, 0.1]), CROSSED, "slack must be a number >= 0"),
    (DIFFERENT, CROSSED, "must be a number >= 0; got -0.1"),
    # Refused before any work, as they are too large.
    (DemographicParity(), Space([0, 1], range(2000)), "2,000 groups .* 3,998,000 en.*'overall'"),
    (EqualizedOdds(reference="rest"), Space([0, 1], range(1500)), "1,500 groups .* 4,500,000 en"),
    (TO_ALL, Space([0, 1], range(1_100_000)), "2,200,000 entries.*Use fewer groups"),
    (PartialStatisticalParity((0.0, 0.5)), Space([0, 1], range(2000)), "2,000 .*Use fewer groups"),
    (AUCParity("inter_group"), Space([0, 1], range(500)), "124,750 comp.*1,000 cells.*Use fewer"),
]


@pytest.mark.parametrize(("notion", "space", "message"), NOT_THESE)
def test_parameters_that_do_not_fit_each_other_or_the_data_are_refused(notion, space, message):
    with pytest.raises(ValueError, match=message):
        notion.bind(space, 0.1)


@pytest.mark.parametrize("params", [{"n_bins": 3}, {"reach": 0.0}, {"reach": np.inf}])
def test_too_few_bins_are_refused(params):
    with pytest.raises(ValueError, match="SoftBins needs four bins or more and a finite reach > 0"):
        SoftBins(**params)


def test_what_a_notion_lacks_comes_from_the_estimator_and_must_come_from_somewhere():
    own = PartialStatisticalParity((0.2, 0.4), 0.3).bind(SPACE, 0.1, (0.0, 1.0))
    assert (own.gap, own.lower[0, 0], own.upper[0, 0]) == (0.3, 0.2, 0.4)
    given_ = PartialStatisticalParity().bind(SPACE, 0.1, (0.0, 1.0))
    assert (given_.gap, given_.lower[0, 0], given_.upper[0, 0]) == (0.1, 0.0, 1.0)
    with pytest.raises(ValueError, match="interval must be"):
        PartialStatisticalParity().bind(SPACE, 0.1)
    with pytest.raises(ValueError, match=r"DemographicParity\.slack must be a number"):
        DemographicParity().bind(SPACE)


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
        ({"unions": [[1, 0]]}, r"RateConstraint\.unions must be lists of names"),
        ({"unions": None}, r"RateConstraint\.unions must be lists of names .* got \[None\]"),
        ({"unions": [[["others"]]]}, r"RateConstraint\.unions must be lists of names"),
        ({"part": [[0, 1]] * 2}, r"\.part must be a mapping from names of parts to their rows"),
        ({"weights": np.ones((2, 2))}, r"\.weights must .*\(m, 2, 2\).* got \(2, 2\)"),
        ({"weights": np.full((1, 2, 2), np.nan)}, r"\.weights must .*finite"),
        ({"weights": np.zeros((1, 2, 2))}, r"\.weights must .*not zero"),
        ({"weights": np.zeros((0, 2, 2))}, r"\.weights must .*\(m, 2, 2\)"),
        ({"weights": "equal"}, r"\.weights must .* of 'equal'"),
        ({"weights": 1.0}, r"\.weights must .* got \(\) of 1\.0"),
        ({"slack": [0.1, 0.1]}, r"\.slack must .*a number or of shape \(1,\)"),
        ({"slack": [np.nan]}, r"\.slack must .*a number >= -inf; got .*nan"),
        ({"slack": "0.1"}, r"\.slack must .*a number"),
    ],
)
def test_wrong_parts_unions_weights_and_slacks_are_named(changes, message):
    given_ = {"part": NAMED, "unions": [["women who repay"], ["others"]], "weights": WEIGHTS}
    with pytest.raises(ValueError, match=message):
        RateConstraint(**(given_ | changes)).bind(SPACE, 0.1)


@pytest.mark.parametrize(
    "events",
    [
        None,
        [],
        [3],
        [Event(np.ones(2), np.array([0, 1]))],
        [Event(np.ones(3), np.eye(2))],
        [Event(np.array([1, 0]), np.array([[0, 1], [0, 1]]))],  # hits where nothing is possible
    ],
)
def test_events_that_do_not_fit_the_labels_are_refused(events):
    class Custom(Parity):
        def events(self, classes):
            return events

    for notion in (Custom(), robust(parity=Custom(), confusion=np.eye(3), bound=0.0)):
        with pytest.raises(ValueError, match=r"Custom\.events must return a list of Event"):
            notion.bind(SPACE, 0.1)


NOTIONS = [
    EqualOpportunity(),
    FalsePositiveRateParity(),
    FalseNegativeRate(per_group=True),
    FalsePositiveRate(per_group=True),
    LossParity(within="positive"),
]
GROUPS = ["a", "b", "c"]
X, Y, GROUP = table()
LABELS = np.array(["bad", "good"])[Y]
by_name = pytest.mark.parametrize("notion", NOTIONS, ids=lambda notion: notion.name)


def naming(notion, label):
    return clone(notion).set_params(pos_label=label)


@by_name
def test_the_first_label_as_the_positive_one_is_the_second_one_of_mirrored_rows(notion):
    rows = random_rows(0)
    mirrored = rows._replace(scores=-rows.scores, y=1 - rows.y)
    words, codes = Space(["bad", "good"], GROUPS), Space([0, 1], GROUPS)
    given, expected = naming(notion, "bad").bind(words, 0.1), notion.bind(codes, 0.1)
    for values in (soft_values, hard_values):
        torch.testing.assert_close(values(given, rows), values(expected, mirrored))
    second = naming(notion, "good").bind(words, 0.1)
    assert torch.equal(soft_values(expected, rows), soft_values(second, rows))
    with pytest.raises(ValueError, match=r"\.pos_label must say which of the labels \['bad', 'g"):
        notion.bind(words, 0.1)


@by_name
def test_of_several_labels_the_named_one_counts_alone(notion):
    rows = random_rows(0, n_classes=3)
    space = Space(["bad", "fair", "good"], GROUPS)
    every = notion.bind(space, 0.1)
    named = [naming(notion, label).bind(space, 0.1) for label in ("fair", "good")]
    values = torch.cat([soft_values(one, rows) for one in named])
    torch.testing.assert_close(values, soft_values(every, rows)[-len(values) :])


@pytest.mark.parametrize("label", ["bad", "good"])
def test_the_rates_of_the_named_class_are_kept(label):
    clf = fc.RateConstrainedClassifier(EqualOpportunity(), slack=0.03)
    clf.set_params(constraint__pos_label=label).fit(X, LABELS, sensitive_features=GROUP)
    given = {"sensitive_features": GROUP, "pos_label": label}
    gap = equal_opportunity_difference(LABELS, clf.predict(X), **given)
    assert clf.violation_ == pytest.approx(gap)
    assert gap <= 0.03 + FORGIVEN
    assert all(f"label {label}" in words for words in clf.constraints_)


@pytest.mark.parametrize(
    ("kind", "notion"),
    [
        (fc.RateConstrainedClassifier, FalsePositiveRateParity()),
        (fc.LossParityClassifier, LossParity()),
        (fc.DPFermiClassifier, EqualOpportunity()),
        (fc.PartialParityClassifier, PartialEqualOpportunity((0.1, 0.4))),
    ],
)
def test_labels_that_do_not_occur_are_refused_before_any_work(kind, notion):
    def works(iterate):
        raise AssertionError("work has begun")

    clf = kind(naming(notion, "ugly"), callbacks=works)
    message = r"\.pos_label must be one of the labels \['bad', 'good'\]; got 'ugly'"
    with pytest.raises(ValueError, match=message) as refused:
        clf.fit(X, LABELS, sensitive_features=GROUP)
    assert "epsilon" not in "".join(refused.value.__notes__)  # nothing was released
