"""Bins that double, computed in Spark."""

from pyspark.sql import Column
from pyspark.sql import functions as F


def power_of_two(number: Column) -> Column:
    """The smallest one that is not below it; 1 for what is smaller. By digits: logarithms are not exact."""
    above = F.call_function("shiftleft", F.lit(1).cast("bigint"), F.length(F.bin(number - 1)))
    return F.when(number <= 1, F.lit(1).cast("bigint")).otherwise(above)
