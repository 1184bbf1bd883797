"""TORN: transactions, of which all parts are accepted or none.

No lane parks parts: each is judged by its own ID, as any record is. So what is missing of a transaction is LOST unless it is a
duplicate, and TORN names in its place only what it shows.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from reconcile.anomalies.name import Anomaly, rows
from reconcile.night.evidence import ONCE
from reconcile.spark.schemas import ACCEPTED

_TORN = "seen = of and accepted > 0 and accepted < of"


def parts(evidence: DataFrame) -> DataFrame:
    """Inputs that are parts, and judged tonight: transaction, number, of, accepted, and where they stand."""
    split = F.split("part", "/")
    number, of = (F.try_element_at(split, F.lit(each)).try_cast("int") for each in (1, 2))
    return (
        evidence.where(f"{ONCE} and transaction is not null and not waiting")
        .withColumns(
            {
                "number": number,
                "of": of,
                "accepted": F.coalesce(F.col("fate") == ACCEPTED, F.lit(False)),
            }
        )
        .where("number is not null and of is not null")
    )


def transactions(parts: DataFrame) -> DataFrame:
    """A row a transaction, whatever addresses its parts travelled to."""
    return parts.groupBy("transaction").agg(
        F.max("of").alias("of"),
        F.count_distinct("number").alias("seen"),
        F.count_distinct(F.when(F.col("accepted"), F.col("number"))).alias("accepted"),
        F.min(F.struct("address", "partition", "offset", "id", "group")).alias("first"),
    )


def torn(transactions: DataFrame) -> DataFrame:
    """A transaction accepted in part, named by its first part. Of one that lies across the cut nobody knows it."""
    found = transactions.where(_TORN).select(
        "first.*",
        F.concat(
            F.lit("of transaction "), F.hex("transaction"), F.lit(" "), F.col("accepted").cast("string"),
            F.lit(" of "), F.col("of").cast("string"), F.lit(" parts were accepted"),
        ).alias("text"),
    )  # fmt: skip
    return rows(found, Anomaly.TORN, F.col("text"))


def excused(transactions: DataFrame) -> DataFrame:
    """Transactions whose missing parts are not named one by one: they are TORN."""
    return transactions.where(_TORN).select("transaction")
