"""The reconciliation run and the audit, on Spark: they compare inputs with outputs, from Kafka alone.

They share settings, names and errors of :mod:`ringfence_kafka`, but no code that they judge. A checker must
not inherit the bugs of what it checks.
"""
