"""Finders of anomalies: functions on data frames that return :data:`reconcile.spark.schemas.ANOMALIES`."""
