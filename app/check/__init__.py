"""Judges a run from Kafka alone: a program that imports nothing of the rest of Ringfence.

A checker that shared code with the checked would share its mistakes. Therefore this one knows the wire only. A duplicate ID is in the
header ``_AMQ_DUPL_ID``. A record with ``_RF_TX`` is a transaction whose parts its JSON lists. Every accepted record names its input record
in ``_RF_SOURCE``, and a part its number in ``_RF_TX_PART``. It reads all of both sides with
``isolation.level=read_committed`` and compares.
"""
