"""Bytes and names from data, as a person reads them. Pure."""


def as_text(data: bytes) -> str:
    """What is no text, or would move a terminal's cursor, is escaped."""
    return shown(data.decode("utf-8", "backslashreplace"))


def shown(text: str) -> str:
    """Nothing in it but what can be seen."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
