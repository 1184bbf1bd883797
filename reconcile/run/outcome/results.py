"""Writes the results of a run into its state folder, and into the folder of ``--out``."""

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

from reconcile.page import PAGE, pages
from reconcile.page.report_data import Figures
from reconcile.run.history.layout import FIGURES, results_folder
from reconcile.run.verdict import summary
from reconcile.spark.columns import small
from reconcile.spark.files import Files
from reconcile.spark.schemas import COUNTS

SUMMARY: Final = "summary.json"


def keep(
    spark: SparkSession, state: Files, document: Mapping[str, Any], figures: Figures, out: Files | None
) -> None:
    """Write the results, before the run is committed."""
    rows = [
        (name, count, item[count]) for name, item in document["addresses"].items() for count in summary.COUNTS
    ] + [
        (name, anomaly, count)
        for name, item in document["addresses"].items()
        for anomaly, count in item["anomalies"].items()
    ]
    counts = small(spark, rows, COUNTS)
    folder = results_folder(document["night"])
    counts.write.mode("overwrite").parquet(state.at(folder, "counts"))
    texts = {SUMMARY: json.dumps(document, indent=2) + "\n", FIGURES: figures.to_json()}
    page = pages.written(figures)
    for name, text in (texts if page is None else texts | {PAGE: page}).items():
        state.write_text(f"{folder}/{name}", text)
    if out is None:
        return
    # Remove the summary first and write it last. If it exists, all files beside it belong to its run.
    out.remove(SUMMARY)
    anomalies = spark.read.parquet(state.at(folder, "anomalies"))
    anomalies.write.mode("overwrite").parquet(out.at("anomalies"))
    counts.write.mode("overwrite").parquet(out.at("counts"))
    out.write_text(FIGURES, texts[FIGURES])
    pages.put(out, page)
    out.write_text(SUMMARY, texts[SUMMARY])
