"""One module an anomaly, or a few that are seen in the same place; each a function of frames to a frame.

All give :data:`reconcile.spark.schemas.ANOMALIES`, a row an anomaly.
"""
