"""Histories and clusters for reconciliation runs."""
