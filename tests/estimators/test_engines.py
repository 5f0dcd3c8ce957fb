"""Tables of Ray and Spark: the model of the same rows in memory, and lazy predictions.

Promises that hold for the tables of any engine are tested with Dask's, in test_tables.py. Starting
an engine takes most of the time, as its workers import torch: each starts once.
"""

import shutil

import numpy as np
import pytest

from fairconstrained import LossParityClassifier
from fairconstrained.metrics import certify
from tests.helpers.pages import page
from tests.helpers.tables import assert_same, elsewhere, features, frame, in_memory

# Engines warn of versions of libraries, and leave sockets to the end of the process.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
PROGRAMS = page("large_data")[1]
SPARK = {
    "spark.ui.enabled": False,
    "spark.sql.shuffle.partitions": 1,
    "spark.python.daemon.module": "tests.helpers.spark_workers",
    # Compiling less takes half of the processor seconds of programs as short as ours.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


class OnRay:
    name = "Ray"

    def __init__(self):
        self.ray = pytest.importorskip("ray", reason="ray is in no extra but cluster")
        self.ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)

    def table(self, pieces):
        return self.ray.data.from_pandas(pieces)

    def predicted(self, table, clf):
        labels, shares = clf.predict(table).to_pandas(), clf.predict_proba(table).to_pandas()
        return labels["prediction"], shares

    def columns(self, table):
        return "label", "sex"

    def stop(self):
        self.ray.shutdown()


class OnSpark:
    name = "Spark"

    def __init__(self):
        sql = pytest.importorskip("pyspark.sql", reason="pyspark is in no extra but cluster")
        if shutil.which("java") is None:
            pytest.skip("Spark needs Java")
        builder = sql.SparkSession.builder.master("local[2]")
        self.spark = builder.config(map=SPARK).getOrCreate()

    def table(self, pieces):
        first, *others = (piece for piece in pieces if len(piece))
        whole = self.spark.createDataFrame(first).coalesce(1)
        for piece in others:
            whole = whole.union(self.spark.createDataFrame(piece).coalesce(1))
        return whole.union(whole.where("x0 > 1e9"))  # partitions without rows

    def predicted(self, table, clf):
        labels, shares = clf.predict(table), clf.predict_proba(table)
        columns = table.select(labels.alias("prediction"), shares.alias("shares"))
        found = columns.select("prediction", "shares.*").toPandas()
        return found["prediction"], found.drop(columns="prediction")

    def columns(self, table):
        return table["label"], table[["sex"]]

    def stop(self):
        self.spark.stop()


@pytest.fixture(scope="module", params=[OnRay, OnSpark])
def engine(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(request.config.rootpath))  # of the workers
        found = request.param()
        yield found
        found.stop()


@pytest.fixture(scope="module")
def rows():
    return frame().sort_values("sex", kind="stable", ignore_index=True)


@pytest.fixture(scope="module")
def table(engine, rows):
    return engine.table([rows[:250], rows[250:251], rows[251:], rows[:0]])


def test_the_model_and_its_predictions_are_those_of_the_rows_in_memory(engine, table, rows):
    whole = in_memory(LossParityClassifier(slack=0.05), rows)
    found = elsewhere(LossParityClassifier(slack=0.05), table, *engine.columns(table))
    assert_same(found, whole)
    labels, shares = engine.predicted(table, found)
    assert labels.tolist() == found.predict(features(rows)).tolist()
    np.testing.assert_allclose(shares.astype(float), found.predict_proba(features(rows)))
    assert list(shares.columns) == ["no", "yes"]


def test_a_certificate_is_that_of_the_rows_in_memory(table, rows):
    clf = in_memory(LossParityClassifier(slack=0.05), rows)
    told = {"constraint": "equalized_odds", "slack": 0.5}
    found = certify(clf, table, "label", sensitive_features="sex", **told)
    assert found == certify(clf, features(rows), rows.label, sensitive_features=rows.sex, **told)


def test_other_columns_are_refused_before_any_work(engine, table, rows):
    other = engine.columns(engine.table([rows.assign(label="no")]))[0]
    of_another = [] if isinstance(other, str) else [other]
    for label in ("outcome", ["label", "sex"], rows["label"], *of_another):
        with pytest.raises(ValueError, match=r"y must be "):
            elsewhere(LossParityClassifier(), table, label)


def test_the_program_of_the_guide_runs(engine):
    """To its last assertion, in the session that is there."""
    run(PROGRAMS[engine.name])


def test_the_program_of_the_guide_for_dask_runs():
    """On two workers of ``dask.distributed``, which fork from one process."""
    dask = pytest.importorskip("dask", reason="dask is in no extra but clients and cluster")
    pytest.importorskip("distributed", reason="it is in no extra but clients and cluster")
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        run(PROGRAMS["Dask"])


def run(program):
    exec(compile(program, "program.py", "exec"), {"__name__": "__main__"})
