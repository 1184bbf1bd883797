"""``ringfence quarantine`` and ``ringfence dlq``: list, show, redrive and drop."""
