"""Receipts: a sender learns the verdict on each of its messages."""
