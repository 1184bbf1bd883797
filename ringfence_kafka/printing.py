"""Words that came from others, where a person reads them. Pure."""


def printable(text: str, keep: str = "") -> str:
    """Without what steers a terminal, or begins a line that looks like another; but with the characters of ``keep``."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode()
        for each in text
    )
