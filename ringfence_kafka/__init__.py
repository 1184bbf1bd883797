"""Shared parts of Ringfence's programs: connections to Kafka, queries, names on the wire, configuration, errors.

It imports no other package of Ringfence. It is installed with :mod:`ringfence_client`, also in users' own environments.
"""
