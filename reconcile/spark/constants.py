"""Constant lists as one expression."""

import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F


def constant(values: Sequence[Any], kind: str) -> Column:
    """Return a constant list, or a list of lists. ``kind``: Spark's type name, such as ``array<bigint>``.

    Spark visits each item of ``array(…)`` again for each step added to a plan. A text is a single item, and
    the optimizer replaces it by its value.
    """
    return F.from_json(F.lit(json.dumps(values)), kind, {"mode": "FAILFAST"})
