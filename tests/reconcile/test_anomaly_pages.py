"""Pages of anomalies beyond the first ones, which Spark reads from the results."""

import contextlib
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from reconcile import show, show_all
from reconcile.page.report_data import FINDINGS_MAX
from reconcile.run.frames.distributions import first_of
from reconcile.run.history.history import Run, RunHistory
from reconcile.run.history.layout import FIGURES, results_folder
from reconcile.run.outcome.report_model import finding
from reconcile.spark.columns import small
from reconcile.spark.files import LocalFiles
from reconcile.spark.schemas import ANOMALIES
from ringfence_kafka.config.settings import Settings
from tests.support.reconcile import figures

PARTS: Final = 3
RECORDS: Final = 2 * FINDINGS_MAX // PARTS
PAGE: Final = 70
SCHEMA: Final = StructType(
    [StructField("address", StringType()), StructField("topic", StringType())]
    + [field for field in ANOMALIES.fields if field.name not in {"address", "fate", "out_address"}]
)
"""Anomalies as a run keeps them."""


def _rows() -> list[dict[str, Any]]:
    """Parts of envelopes: those of one have the same place, and differ in their number alone."""
    empty: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    return [
        empty | {"address": "orders", "topic": "orders", "anomaly": anomaly, "partition": 0, "offset": offset,
                 "part_number": part, "id": b"%d-%d" % (offset, part), "detail": "missing", "timestamp": 1}
        for anomaly in ("LOST", "TORN")
        for offset in range(RECORDS)
        for part in range(1, PARTS + 1)
    ]  # fmt: skip


def test_each_anomaly_is_on_one_page(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pages have all anomalies in order, also where Spark continues the ones of ``figures.json``, and reads other files first."""
    settings = Settings.model_validate(
        {"app": {"id": "shop", "data_dir": str(tmp_path)}, "addresses": [{"name": "orders"}]}
    )
    files = LocalFiles(settings.runs_dir)
    RunHistory(files).commit(Run(1, None, "2026-11-21", "anomalies", app="shop"))
    rows, chance = _rows(), random.Random(1)
    known = figures.run(1)

    def write(seed_rows: list[dict[str, Any]]) -> None:
        frame = small(spark, [tuple(row[name] for name in SCHEMA.names) for row in seed_rows], SCHEMA)
        frame.repartition(2).write.mode("overwrite").parquet(files.at(results_folder(1), "anomalies"))

    @contextlib.contextmanager
    def started(*_: object) -> Iterator[SparkSession]:
        write(chance.sample(rows, len(rows)))  # a file may be read before another, each time
        yield spark

    write(chance.sample(rows, len(rows)))
    stored = spark.read.parquet(files.at(results_folder(1), "anomalies"))
    findings = [finding(row) for row in first_of(stored, FINDINGS_MAX).collect()]
    counted = {"LOST": RECORDS * PARTS, "TORN": RECORDS * PARTS}
    address = replace(known.addresses[0], name="orders", anomalies=counted, findings=findings)
    text = replace(known, addresses=[address]).to_json()
    files.write_text(f"{results_folder(1)}/{FIGURES}", text)
    monkeypatch.setattr(show_all, "started", started)

    wanted = partial(show.Wanted, as_json=True, limit=PAGE)
    shown = []
    for page in range(1, -(-len(rows) // PAGE) + 1):
        assert show.print_anomalies(settings, wanted(page=page)) == 0
        shown += json.loads(capsys.readouterr().out)["anomalies"]

    assert [item["id"].encode() for item in shown] == [row["id"] for row in rows]
