"""The command line: errors and help come before anything is imported, read or written."""

import subprocess
import sys

import pytest

from fairconstrained import quickstart
from fairconstrained.datasets import list_datasets
from fairconstrained.quickstart.arguments import DATASETS

CSV = ["--csv", __file__, "--label", "y"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--dataset", "nothing"], "'adult'"),
        (["--label", "decision"], "go with --csv"),
        (CSV, "--csv needs --label COLUMN and --sensit"),
        ([*CSV, "--dataset", "adult"], "not allowed with"),
        ([*CSV, "--sensitive", "sex", "y"], "'y' is the label; it cannot be sensitive"),
        (["--csv", "no.csv", "--label", "y", "--sensitive", "sex"], "there is no file no.csv"),
        (["--cv", "1"], "--cv must be at least 2"),
        (["--slack", "-0.1"], "--slack, --max-violation and --reductions must be between 0 and 1"),
        (["--max-violation", "nan"], "must be between 0 and 1"),
        (["--reductions", "x"], "--reductions: invalid float value: 'x'"),
        (["--seed", "-1"], "--seed must be at least 0"),
        (["--output", __file__], "--output must be a folder"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(capsys, argv, message):
    with pytest.raises(SystemExit, match="2"):
        quickstart.main(argv)
    assert message in capsys.readouterr().err


IMPORTS = """
import sys
from fairconstrained.{command} import main
try:
    main(sys.argv[1:])
finally:
    print({{"jinja2", "numpy", "pandas", "sklearn", "torch"}} & set(sys.modules))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "argument", "code"), [("audit", "--help", 0), ("quickstart", "--slack=-1", 2)]
)
def test_help_and_errors_wait_for_no_import(command, argument, code):
    ran = [sys.executable, "-c", IMPORTS.format(command=command), argument]
    done = subprocess.run(ran, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("set()\n")
    assert done.returncode == code


def test_the_data_sets_that_are_written_out_are_those_that_load():
    assert sorted(DATASETS) == list_datasets()
