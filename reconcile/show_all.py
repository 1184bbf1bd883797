"""Reads all anomalies of a run with Spark."""

import contextlib
from collections.abc import Iterator

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reconcile.listing import Shown
from reconcile.page.report_data import FINDINGS_MAX
from reconcile.run.frames.distributions import PLACES
from reconcile.run.history.layout import results_folder
from reconcile.run.outcome.report_model import finding
from reconcile.session.session import local_dir, required, session
from reconcile.session.spark_errors import SPARK, explained, of_spark
from reconcile.session.stop_signals import stoppable
from reconcile.spark.files import Files
from ringfence_kafka.process.step_progress import BRIEF_S, steps
from ringfence_kafka.wording import counted


@contextlib.contextmanager
def started(master: str, executor_timeout_s: float) -> Iterator[SparkSession]:
    """Start Spark, and yield a session that signals can end."""
    required(master)
    with stoppable() as stop, session(master, stop, executor_timeout_s=executor_timeout_s) as spark:
        yield spark


def read_anomalies(spark: SparkSession, files: Files, number: int, anomaly: str, most: int) -> list[Shown]:
    """Read the first ``most`` anomalies with a name from a run; an empty name matches all."""
    try:
        with steps(brief_s=BRIEF_S) as progress:
            progress.start_step(f"reading the anomalies of run {number}")
            found = _found(spark, files, number, anomaly, most)
            progress.count(counted(len(found), "anomaly", "anomalies"))
        return found
    except (*SPARK, AssertionError) as error:
        if (failed := of_spark(error)) is None:
            raise
        folder = f"{files.root}/{results_folder(number)}/anomalies"
        raise explained(
            failed, gone="run it again", less=f"show less: --limit {FINDINGS_MAX}", disk=f"Spark sorts below spark.local.dir ({local_dir()}): make room",
            after=f"if {folder} is damaged restore it from a backup, or from the folder that --out named in that run; up to --limit "
            f"{FINDINGS_MAX} nothing else than figures.json is read in a local folder",
        ) from error  # fmt: skip


def _found(spark: SparkSession, files: Files, number: int, anomaly: str, most: int) -> list[Shown]:
    found = spark.read.parquet(files.at(results_folder(number), "anomalies"))
    if anomaly:
        found = found.where(F.col("anomaly") == anomaly)
    return [
        Shown(row["address"], finding(row))
        for row in found.orderBy("address", "anomaly", *PLACES).limit(most).collect()
    ]
