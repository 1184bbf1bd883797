"""Checks of what went in against what came out, by named anomalies."""
