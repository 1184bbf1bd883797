"""The reconciliation run and the audit, on Spark: compares what came in with what went out, from Kafka alone.

It shares settings, names and errors of :mod:`ringfence_kafka` with the rest, and no code that it judges: a checker must not inherit its bugs.
"""
