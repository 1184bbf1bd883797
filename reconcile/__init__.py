"""The reconciliation run and the audit, on Spark: they compare inputs with outputs, from Kafka alone.

They share settings, names and errors of :mod:`ringfence_kafka`, and no code that they judge: a checker must
not inherit bugs.
"""
