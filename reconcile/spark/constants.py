"""Constant lists as one expression."""

import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F


def constant(values: Sequence[Any], kind: str) -> Column:
    """Return a list, or a list of lists, that is the same in each row; ``kind``: Spark's name of its type, such as ``array<bigint>``.

    Spark looks at each item of ``array(…)`` again with each step that is added to a plan. A text is one item, and the optimizer
    replaces it by its value.
    """
    return F.from_json(F.lit(json.dumps(values)), kind, {"mode": "FAILFAST"})
