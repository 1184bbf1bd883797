"""Constant lists as one expression."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F


def constant(values: Sequence[Any], kind: str) -> Column:
    """Return a constant list, or a list of lists. ``kind``: Spark's type name, such as ``array<bigint>``.

    Spark visits each item of ``array(…)`` again for each step added to a plan. A text is a single item, and
    the optimizer replaces it by its value.
    """
    return F.from_json(F.lit(json.dumps(values)), kind, {"mode": "FAILFAST"})


def value_of(values: Mapping[str, Any], kind: str, key: Column) -> Column:
    """Return the value of a key; null = it has none. ``kind``: Spark's name of the type of a value.

    Spark compiles this, and not a look into a map. A comparison for each key would travel with each task, key by key.
    """
    place = F.array_position(constant([*values], "array<string>"), key).cast("int") - 1
    return F.get(constant([*values.values()], f"array<{kind}>"), place)
