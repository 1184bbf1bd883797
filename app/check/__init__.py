"""Judges a run from Kafka alone: a program that imports nothing from the rest of Ringfence.

A checker that shared code with what it checks would share its bugs. Therefore this one knows only the wire
format. A duplicate ID is in the header ``_AMQ_DUPL_ID``. A record with ``_RF_TX`` is a transaction, and its
JSON lists the parts. Every accepted record names its input record in ``_RF_SOURCE``, and a part has its
number in ``_RF_TX_PART``. The program reads both sides completely with ``isolation.level=read_committed`` and
compares them.
"""
