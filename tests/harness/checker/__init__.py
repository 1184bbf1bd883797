"""Checks of inputs against outputs, by named anomalies."""
