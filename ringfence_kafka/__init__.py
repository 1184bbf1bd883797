"""Kafka as Ringfence's programs use it, and what they share: connections, questions, the wire vocabulary, configuration, errors.

Imports nothing of the rest. It is installed with :mod:`ringfence_client`, in other people's environments too.
"""
