"""A reconciliation run over what a test wrote."""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from reconcile import job
from reconcile.run.history.history import RunHistory
from reconcile.spark.files import LocalFiles
from ringfence_kafka.config.settings import Settings


def judged_night(spark: SparkSession, settings: Settings, out: Path) -> tuple[dict[str, Any], DataFrame]:
    """The document of one run that keeps its results in ``out``, and the anomalies there."""
    nights = RunHistory.load(LocalFiles(settings.reconcile.state_dir))
    document = job.judge(spark, settings, nights, job.surveyed(settings), LocalFiles(str(out)))
    return document, spark.read.parquet(str(out / "anomalies"))
