"""Counts what came over bridges, and what they sent again. Bounded, whatever the data."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from reconcile.audit.frames import kept
from reconcile.audit.result import Bridges
from reconcile.spark.hops import MALFORMED

BRIDGES_SHOWN: Final = 20


def counted(records: DataFrame) -> Bridges:
    """Of :data:`reconcile.spark.schemas.AUDITED`.

    A hop that stands there several times was sent again; of the first nobody asks which it was. What a bridge says is confirmed is not
    looked at: an audit may begin in the middle.
    """
    came = records.where("hop_source is not null")
    sound = F.col("hop_source") > MALFORMED
    hops = came.where(sound).groupBy("hop_source", "hop_offset").agg(F.count(F.lit(1)).alias("times"))
    by_bridge = hops.groupBy(F.substring_index("hop_source", "/", 1).alias("bridge")).agg(
        F.sum("times").alias("records"), F.sum(F.col("times") - 1).alias("resends")
    )
    [row] = came.agg(
        F.count_if(sound).alias("records"),
        F.count_if(~sound).alias("malformed"),
        F.count_if(sound & F.col("ids_ignored")).alias("ids_ignored"),
    ).collect()
    with kept(by_bridge) as bridges:
        listed = bridges.orderBy(F.desc("records"), "bridge").limit(BRIDGES_SHOWN).collect()
        resends = bridges.agg(F.coalesce(F.sum("resends"), F.lit(0)).alias("resends")).collect()[0]["resends"]
    return Bridges(**row.asDict(), resends=resends, bridges={row["bridge"]: row["records"] for row in listed})
