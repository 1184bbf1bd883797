"""A night's results in its folder of the state, and in the one that was asked for."""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from reconcile import pages, summary
from reconcile.figures import Figures
from reconcile.files import Files
from reconcile.nights import results_folder
from reconcile.schemas import COUNTS
from reconcile.small import small


def keep(
    spark: SparkSession, state: Files, document: Mapping[str, Any], figures: Figures, out: Files | None
) -> None:
    """Beside the night, and in the folder that was asked for; both before the night counts."""
    rows = [
        (name, count, each[count]) for name, each in document["addresses"].items() for count in summary.COUNTS
    ] + [
        (name, anomaly, count)
        for name, each in document["addresses"].items()
        for anomaly, count in each["anomalies"].items()
    ]
    counts = small(spark, rows, COUNTS)
    folder = results_folder(document["night"])
    counts.write.mode("overwrite").parquet(state.at(folder, "counts"))
    texts = {"summary.json": json.dumps(document, indent=2) + "\n", "figures.json": figures.to_json()}
    page = pages.written(figures)
    for name, text in texts.items():
        state.write(f"{folder}/{name}", text)
    if page is not None:
        state.write(f"{folder}/{pages.PAGE}", page)
    if out is None:
        return
    anomalies = spark.read.parquet(state.at(folder, "anomalies"))
    anomalies.write.mode("overwrite").parquet(out.at("anomalies"))
    counts.write.mode("overwrite").parquet(out.at("counts"))
    for name, text in texts.items():
        out.write(name, text)
    pages.put(out, page)
