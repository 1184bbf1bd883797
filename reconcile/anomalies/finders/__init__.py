"""One module for an anomaly, or for a few that are seen in the same place. Each is a function of frames to a frame.

All return :data:`reconcile.spark.schemas.ANOMALIES`, one row for an anomaly.
"""
