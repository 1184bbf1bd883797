"""Folders of runs and results: locks, and the leftovers of an unfinished run."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from reconcile import show_all
from reconcile.page import pages
from reconcile.run.history.layout import results_folder
from reconcile.run.outcome import results
from reconcile.spark.columns import small
from reconcile.spark.files import BusyError, Files, LocalFiles
from reconcile.spark.hadoop_files import HadoopFiles
from reconcile.spark.schemas import COUNTS
from ringfence_kafka.errors import RingfenceError
from tests.support.reconcile.figures import nothing


@pytest.mark.parametrize("damage", ["missing", "no Parquet"])
def test_anomalies_that_cannot_be_read(spark: SparkSession, tmp_path: Path, damage: str) -> None:
    """The error names the folder and the remedy, instead of an assertion of PySpark's or rights that would not help."""
    files = LocalFiles(str(tmp_path))
    if damage == "no Parquet":
        files.write_text(f"{results_folder(1)}/anomalies/part.parquet", "no Parquet")

    with pytest.raises(RingfenceError) as raised:
        show_all.read_anomalies(spark, files, 1, "", 200)
    assert f"if {tmp_path}/results/000001/anomalies is damaged restore it from a backup" in str(raised.value)


def test_an_end_in_the_middle_of_writing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """summary.json exists only with all of its run: an earlier run's file does not stand beside new results."""
    state, out = LocalFiles(str(tmp_path / "state")), LocalFiles(str(tmp_path / "out"))
    small(spark, [], COUNTS).write.parquet(state.at(results_folder(1), "anomalies"))
    document = {"night": 1, "addresses": {}}
    results.keep(spark, state, document, nothing(), out)
    before = out.names("")

    def interrupted(_: Files, __: str | None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pages, "put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        results.keep(spark, state, document, nothing(), out)

    assert before == ["anomalies", "counts", "figures.json", "report.html", "summary.json"]
    assert "summary.json" not in out.names("")


def test_one_run_at_a_time_in_a_mounted_folder(spark: SparkSession, tmp_path: Path) -> None:
    """Runs on a cluster lock a folder of this machine, as runs in one process do."""
    named, bare = HadoopFiles(spark, f"file://{tmp_path}"), HadoopFiles(spark, str(tmp_path))
    with named.locked():
        for other in (bare, LocalFiles(str(tmp_path))):
            with pytest.raises(BusyError, match="another reconcile works in"), other.locked():
                pass
    with bare.locked():
        pass
