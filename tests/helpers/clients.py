"""Data and programs for the tests of other libraries beside this one."""

import os
import subprocess
import sys

import pandas as pd
import sklearn
from packaging.version import Version

from fairconstrained.datasets import make_biased_classification
from tests.helpers.repository import ROOT


def biased(n_samples=400):
    data = make_biased_classification(n_samples, bias=0.2, random_state=0)
    return data.data, data.target, data.sensitive_features


def rows(n_samples=400):
    """The same as what `fit` takes."""
    return dict(zip(("X", "y", "sensitive_features"), biased(n_samples), strict=True))


def frame(n_samples=400):
    """The same as a DataFrame that holds the groups in a column `sex`, and y."""
    X, y, groups = biased(n_samples)
    names = [f"x{i}" for i in range(X.shape[1])]
    return pd.DataFrame(X, columns=names).assign(sex=groups), y


def array_api():
    return Version(sklearn.__version__) >= Version("1.9")


def run_python(*arguments, cwd=None, **environment):
    options = {"capture_output": True, "text": True, "check": False, "cwd": cwd}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run([sys.executable, *arguments], env=environment, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout
