"""``ringfence quarantine`` and ``ringfence dlq``: what was refused or given up is looked at, done again, dropped (ADR 24)."""
