"""The count of fairlearn's tests that our metrics pass is a count of tests that ran with ours."""

import fairlearn.metrics
import pytest

from benchmarks.fairlearn_tests import FILES, names, run
from fairconstrained import metrics

TESTS = '''
from fairlearn import metrics

GIVEN = {"y_true": [0, 1, 0, 1], "y_pred": [0, 1, 1, 1], "sensitive_features": list("aabb")}


def test_ours():
    """Theirs give a float of numpy."""
    assert type(metrics.demographic_parity_difference(**GIVEN)) is float


def test_method_does_nothing_for_the_least_of_the_groups():
    assert metrics.accuracy_score_group_min(**GIVEN, method=None) == 0.5


def test_wrong():
    assert metrics.demographic_parity_difference(**GIVEN) == 7
'''


def test_the_names_are_metrics_of_groups_that_both_packages_have():
    assert {"equalized_odds_ratio", "f1_score_group_min", "selection_rate_ratio"} <= set(names())
    assert "false_positive_rate" not in names()  # of all rows together


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestConfigWarning")
def test_ours_are_run_and_theirs_are_back_afterwards(tmp_path, capfd):
    theirs = fairlearn.metrics.demographic_parity_difference
    folder = tmp_path / "test" / "unit" / "metrics"
    folder.mkdir(parents=True)
    for file in FILES:
        (folder / file).write_text(TESTS, encoding="utf-8")
    count = run(tmp_path)
    assert len(count.passed) == 2 * len(FILES)
    assert [report.nodeid.rpartition("::")[2] for report in count.failed] == ["test_wrong"] * 2
    assert (
        fairlearn.metrics.demographic_parity_difference
        is theirs
        is not (metrics.demographic_parity_difference)
    )
