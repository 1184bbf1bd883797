"""REORDERED: the order within groups."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from reconcile.anomalies.name import Anomaly, rows
from reconcile.schemas import ACCEPTED


def reordered(evidence: DataFrame) -> DataFrame:
    """Each place where the order of a group from one input partition breaks, a row a place.

    Order is seen in one partition of the output: a group that is in several has none, and that is one row more. Of an
    input that was accepted twice the first counts. A large group is one task's; its rows are sorted and looked at one
    after the other, on disk where memory ends.
    """
    accepted = evidence.where(
        (F.col("fate") == ACCEPTED) & (F.col("nth") == 1) & F.col("has_input") & F.col("group").isNotNull()
    ).select("address", "group", "partition", "offset", "out_partition", "out_offset", "id")
    lines = Window.partitionBy("address", "group", "partition").orderBy("out_partition", "out_offset")
    seen = accepted.withColumns(
        {
            "other_offset": F.lag("offset").over(lines),
            "before_partition": F.lag("out_partition").over(lines),
        }
    ).where("other_offset is not null and (out_partition != before_partition or offset < other_offset)")
    scattered = F.col("out_partition") != F.col("before_partition")
    return rows(
        seen,
        Anomaly.REORDERED,
        F.when(
            scattered,
            F.concat(
                F.lit("its group is also in accepted partition "), F.col("before_partition").cast("string")
            ),
        ).otherwise(
            F.concat(
                F.lit("accepted after offset "), F.col("other_offset").cast("string"), F.lit(" of its group")
            )
        ),
        other_partition=F.col("partition"),
    )
