"""Bytes and names from data, as a person reads them. Pure."""

from ringfence_kafka.escaping import printable


def as_text(data: bytes) -> str:
    """What is no text, or would move a terminal's cursor, is escaped."""
    return printable(data.decode("utf-8", "backslashreplace"))
