"""Finders of anomalies: functions of frames that return :data:`reconcile.spark.schemas.ANOMALIES`."""
