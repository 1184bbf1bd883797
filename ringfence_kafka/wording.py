"""Numbers and lists in sentences. Pure."""

from collections.abc import Sequence


def counted(number: int, noun: str, several: str = "") -> str:
    """Return ``1 message``, ``300,000 messages``. ``several``: plural that does not end with only an s."""
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"


def first_of(names: Sequence[str], shown_max: int) -> str:
    """Return ``a, b``; of more than ``shown_max`` names the first ones and a number: ``a, b and 5 more``."""
    more = len(names) - shown_max
    return f"{', '.join(names[:shown_max])}{f' and {more:,} more' if more > 0 else ''}"
