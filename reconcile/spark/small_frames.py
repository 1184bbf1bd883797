"""Small frames from rows of the driver."""

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType


def small(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: StructType) -> DataFrame:
    """Return a frame with a few rows of texts, numbers, flags and bytes.

    The rows travel as text within the plan. ``createDataFrame`` would start Python on the executors, which
    may not have it, and would take longer than the work on the rows.
    """
    text = json.dumps([dict(zip(schema.names, map(_json, row), strict=True)) for row in rows])
    parsed = F.from_json(F.lit(text), ArrayType(schema), {"mode": "FAILFAST"})
    return spark.range(1, numPartitions=1).select(F.inline(parsed))


def _json(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
