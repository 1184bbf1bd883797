"""Composition: command line, worker, transport, topics, embedded broker, web."""
