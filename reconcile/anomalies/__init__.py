"""Anomalies: their names, and one finder for each kind of evidence."""
