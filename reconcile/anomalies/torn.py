"""TORN: transactions, of which all parts are accepted or none."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from reconcile.anomalies.name import Anomaly, rows
from reconcile.schemas import ACCEPTED


def parts(evidence: DataFrame) -> DataFrame:
    """Inputs that are parts: transaction, number, of, accepted, and where they stand."""
    split = F.split("part", "/")
    number, of = (F.try_element_at(split, F.lit(each)).try_cast("int") for each in (1, 2))
    return (
        evidence.where("has_input and transaction is not null and (nth is null or nth = 1)")
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
    """A transaction accepted in part, named by its first part."""
    found = transactions.where("accepted > 0 and accepted < of").select(
        "first.*",
        F.concat(
            F.lit("of transaction "), F.hex("transaction"), F.lit(" "), F.col("accepted").cast("string"),
            F.lit(" of "), F.col("of").cast("string"), F.lit(" parts were accepted"),
        ).alias("text"),
    )  # fmt: skip
    return rows(found, Anomaly.TORN, F.col("text"))


def excused(parts: DataFrame, transactions: DataFrame, orphans: DataFrame) -> DataFrame:
    """Transactions whose parts were rightly dropped: one ID was known, a part never came; or they are TORN.

    A part of which another copy was accepted is a resend of it.

    Args:
        parts: All parts.
        transactions: Of them.
        orphans: What is not accepted and has an ID, and is a duplicate of nothing.
    """
    known = (
        parts.where("not accepted and id is not null")
        .join(
            orphans.select("address", "partition", "offset"),
            on=["address", "partition", "offset"],
            how="left_anti",
        )
        .select("transaction")
    )
    return transactions.where("accepted > 0 or seen < of").select("transaction").union(known).distinct()
