"""The user's script that CI checks with ``mypy --strict`` does what it says."""

import runpy
from pathlib import Path

import matplotlib as mpl


def test_the_script_runs():
    mpl.use("agg")
    script = Path(__file__).parent / "user_script.py"
    assert runpy.run_path(str(script))["main"]() > 0
