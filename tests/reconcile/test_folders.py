"""The folder of the runs, where Hadoop's file systems reach it."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from reconcile.spark.files import BusyError, LocalFiles
from reconcile.spark.hadoop_files import HadoopFiles


def test_one_run_at_a_time_in_a_mounted_folder(spark: SparkSession, tmp_path: Path) -> None:
    """Runs on a cluster lock a folder of this machine, as runs in one process do."""
    named, bare = HadoopFiles(spark, f"file://{tmp_path}"), HadoopFiles(spark, str(tmp_path))
    with named.locked():
        for other in (bare, LocalFiles(str(tmp_path))):
            with pytest.raises(BusyError, match="another reconcile works in"), other.locked():
                pass
    with bare.locked():
        pass
