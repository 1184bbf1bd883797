"""LOST, WRONG-VERDICT, and GAP in their place: inputs that are not accepted, and duplicates of nothing."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from reconcile.anomalies.name import Anomaly, rows
from reconcile.spark.schemas import DIVERTED


def unmatched(evidence: DataFrame) -> DataFrame:
    """Inputs of which no output tells, and which are not on their way."""
    return evidence.where("has_input and fate is null and not waiting")


def lost(missing: DataFrame, orphans: DataFrame, rules: DataFrame, excused: DataFrame | None) -> DataFrame:
    """Inputs that are neither accepted, nor in quarantine, nor a duplicate; GAP where evidence on that is gone.

    Args:
        missing: :func:`unmatched` inputs.
        orphans: Of the unmatched with an ID, :func:`reconcile.anomalies.originals.orphans`.
        rules: address, divert, detects, outputs_gone, ids_gone.
        excused: transaction: these are TORN.
    """
    rule = F.broadcast(rules)
    # Where duplicates are diverted, and where IDs are not looked at, whatever is missing is missing.
    plain = missing.join(rule, on="address", how="inner").where("divert or not detects or id is null")
    others = (
        orphans.where("fate is null").join(rule, on="address", how="inner").where("not divert and detects")
    )
    found = plain.withColumn(
        "why", F.lit("neither accepted, in quarantine, nor known as a duplicate")
    ).unionByName(
        others.withColumn("why", F.lit("not accepted, and the ring of its lane knew no other of its ID"))
    )
    return _unknown_where_gone(unexcused(found, excused), Anomaly.LOST)


def unexcused(found: DataFrame, excused: DataFrame | None) -> DataFrame:
    """Without the parts of transactions that are ``excused``; None = there are none."""
    return found if excused is None else found.join(excused, on="transaction", how="left_anti")


def wrong_verdict(orphans: DataFrame, rules: DataFrame, excused: DataFrame | None) -> DataFrame:
    """Diverted duplicates of nothing: the trap of one that is called a duplicate of itself."""
    found = orphans.where(F.col("fate") == DIVERTED).join(F.broadcast(rules), on="address", how="inner")
    found = unexcused(found, excused)
    why = F.when(F.col("original").isNull(), F.lit("the ring of its lane knew no other of its ID"))
    return _unknown_where_gone(
        found.withColumn(
            "why",
            why.otherwise(
                F.concat(
                    F.lit("its original is said to be "),
                    F.col("original"),
                    F.lit(", and is not, or was forgotten"),
                )
            ),
        ),
        Anomaly.WRONG_VERDICT,
    )


def _unknown_where_gone(found: DataFrame, anomaly: Anomaly) -> DataFrame:
    """The anomaly, or GAP where the evidence that would tell is deleted."""
    gone = F.col("outputs_gone") | (F.col("ids_gone") & F.col("id").isNotNull())
    return rows(
        found,
        anomaly,
        F.when(
            gone, F.concat(F.lit(f"{anomaly.value} or not, the evidence is deleted: "), F.col("why"))
        ).otherwise(F.col("why")),
        anomaly=F.when(gone, F.lit(Anomaly.GAP.value)).otherwise(F.lit(anomaly.value)),
        suspected=F.when(gone, F.lit(anomaly.value)),
    )
