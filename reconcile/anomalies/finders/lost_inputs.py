"""Finds LOST inputs, TORN transactions and WRONG-VERDICT duplicates, or GAP if their evidence is deleted."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconcile.anomalies.names import Anomaly, rows, text
from reconcile.run.frames.evidence import FIRST, ONCE, PLACE, RECORD
from reconcile.spark.columns import constant
from reconcile.spark.hops import MALFORMED
from reconcile.spark.schemas import OBSERVED, PASSED, REPEATS

SHOWN_MAX: Final = 20  # part numbers that a row lists
# Conditions that select rows of the evidence for these finders; orphans come as an argument.
UNMATCHED: Final = "has_input and part_number = 0 and fate is null and not waiting"
SAID_TO_REPEAT: Final = f"{ONCE} and fate in {REPEATS}"


def unmatched(evidence: DataFrame) -> DataFrame:
    """Return inputs that have no output and do not wait for one."""
    return evidence.where(UNMATCHED)


def lost(missing: DataFrame, orphans: DataFrame, rules: DataFrame) -> DataFrame:
    """Return LOST for inputs without any verdict (``missing``); GAP if the evidence is deleted.

    Envelopes that were accepted in part are :func:`torn`.
    ``orphans`` are inputs with an ID but without an original.
    """
    rule = F.broadcast(rules)
    # With diverted duplicates, or IDs that are not checked, each message must have an output. If duplicates
    # pass, all but resent hops must.
    by_hop = F.col("resent")
    plain = missing.join(rule, on="address", how="inner").where(
        F.expr("divert or not detects") | (~by_hop & ((F.col("ids") == 0) | F.col("observes")))
    )
    others = (
        orphans.where("fate is null")
        .join(rule, on="address", how="inner")
        .where("not divert and not observes and detects")
    )
    found = plain.withColumn(
        "why", F.lit("neither accepted, in quarantine, nor known as a duplicate")
    ).unionByName(others.withColumn("why", text("not accepted, and ", _unknown())))
    # A diverted or observed duplicate has an output even if the original is not known, so a deleted ID
    # excuses nothing.
    return unknown_where_deleted(
        found, Anomaly.LOST, by_id=(F.col("ids") > 0) & ~F.col("divert") & ~F.col("observes")
    )


def let_pass(evidence: DataFrame, orphans: DataFrame, rules: DataFrame) -> DataFrame:
    """Return GAP for marked duplicates in the accepted topic of an address that enforces.

    Its workers ran in observe mode meanwhile, or a fault marked the messages. Orphans get another anomaly, so
    they are left out.
    """
    enforcing = F.broadcast(rules.where("enforces").select("address"))
    passed = evidence.where(f"{ONCE} and fate = {OBSERVED}").join(enforcing, on="address", how="inner")
    why = (
        'FORGOTTEN or not, a duplicate was accepted: _RF_VERDICT says that its lane only observed, and mode = "enforce" '
        "in this file"
    )
    return rows(
        passed.join(orphans.select(*PLACE), on=PLACE, how="left_anti"),
        Anomaly.GAP,
        F.lit(why),
        suspected=F.lit(Anomaly.FORGOTTEN.value),
    )


def _unknown() -> Column:
    """Return text: the lane's ring knew no other message with this ID."""
    ring = (
        F.when(
            F.col("value_changed") & F.col("fate").isNull(),
            "the duplicates topic does not have it, although its value is not that of an earlier message with its ID",
        )
        .when(F.col("ids") > 1, "the ring of its lane knew no earlier message with one of its IDs")
        .when(F.col("ids") > 0, "the ring of its lane knew no earlier message with its ID")
        .otherwise("it has no ID that is checked")
    )
    of_hop = F.when(F.col("hop_source") > MALFORMED, "its lane did not know its hop, and ").otherwise("")
    return text(of_hop, ring)


def wrong_verdict(orphans: DataFrame, evidence: DataFrame, rules: DataFrame) -> DataFrame:
    """Return WRONG-VERDICT for diverted or observed duplicates that repeat nothing.

    The arguments are those of :func:`lost`. An input without an ID can only repeat a hop. If the address does
    not check IDs, it does not check hops either.
    """
    rule = F.broadcast(rules)
    by_hop = F.col("resent")
    others = evidence.where(SAID_TO_REPEAT).join(rule, on="address", how="inner")
    others = others.where((~by_hop & (F.col("ids") == 0)) | (by_hop & ~F.col("detects")))
    said = orphans.where(F.col("fate").isin(*REPEATS)).join(rule, on="address", how="inner")
    found = said.unionByName(others)
    named = text("its original is given as ", F.col("original"), ", which is wrong, or was forgotten")
    why = F.when(F.col("original").isNull(), _unknown()).otherwise(named)
    return unknown_where_deleted(found.withColumn("why", why), Anomaly.WRONG_VERDICT)


def unknown_where_deleted(found: DataFrame, anomaly: Anomaly, *, by_id: Column | None = None) -> DataFrame:
    """Return rows of the anomaly, or of GAP if its evidence is deleted.

    A bridge keeps the order of its source. If its route accepted a lower hop in this run, the hop itself had
    not come before.

    Args:
        found: Rows with the reason in ``why``.
        anomaly: Anomaly to report.
        by_id: Whether a deleted ID could explain the row; None = if the row has IDs.
    """
    by_id = F.col("ids") > 0 if by_id is None else by_id
    by_hop = (F.col("hop_source") > MALFORMED) & ~F.col("after_new")
    whole = F.coalesce(F.array_contains("lanes_whole", F.col("lane")), F.lit(False))
    gone = (
        F.col("outputs_gone")
        | (F.col("evidence_deleted") & ((by_id & ~whole) | by_hop))
        | (F.col("targets_gone") & F.coalesce(F.col("parts") > 0, F.lit(False)))
    )
    return rows(
        found,
        anomaly,
        text(F.when(gone, f"{anomaly.value} or not, the evidence is deleted: ").otherwise(""), F.col("why")),
        anomaly=F.when(gone, Anomaly.GAP.value).otherwise(anomaly.value),
        suspected=F.when(gone, anomaly.value),
    )


def torn(evidence: DataFrame, rules: DataFrame, accepted_topics: Sequence[str]) -> DataFrame:
    """Return a row for each transaction accepted in part; GAP if evidence may be deleted.

    Its missing parts are not reported as LOST too.
    """
    parts = evidence.where(f"{FIRST} and part_number > 0 and came > 0 and came < parts")
    there = F.coalesce(F.col("fate").isin(*PASSED), F.lit(False))
    topics = constant(accepted_topics, "array<string>")
    by_record = parts.groupBy(*RECORD).agg(
        F.sort_array(F.collect_list(F.when(there, F.col("part_number")))).alias("found"),
        F.sort_array(F.collect_list(F.when(~there, F.col("part_number")))).alias("missing"),
        F.sort_array(F.collect_set(F.when(there, F.get(topics, F.col("out_address"))))).alias("found_in"),
        F.sort_array(F.collect_set(F.when(~there, F.get(topics, F.col("part_address"))))).alias("missing_in"),
    )
    envelopes = evidence.where(f"{FIRST} and part_number = 0 and came > 0 and came < parts")
    found = envelopes.join(by_record, on=RECORD, how="inner").join(
        F.broadcast(rules), on="address", how="inner"
    )
    why = text(
        _numbers("found"), " of ", F.col("parts"), " accepted, in ", F.array_join("found_in", ", "),
        "; missing: ", _numbers("missing"), ", for ", F.array_join("missing_in", ", "),
    )  # fmt: skip
    return unknown_where_deleted(found.withColumn("why", why), Anomaly.TORN)


def _numbers(name: str) -> Column:
    """Return text such as ``parts 1, 3``, with at most SHOWN_MAX numbers."""
    some = F.array_join(F.slice(name, 1, SHOWN_MAX).cast("array<string>"), ", ")
    more = F.size(name) - SHOWN_MAX
    several = F.when(F.size(name) == 1, "part ").otherwise("parts ")
    return text(several, some, F.when(more > 0, text(" and ", more, " more")).otherwise(""))
