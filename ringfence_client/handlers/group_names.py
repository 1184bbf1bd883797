"""Readable names of message groups. Pure."""

from typing import Final

from ringfence_kafka.errors import RingfenceError

NAME_SHOWN_MAX: Final = 100
"""Longest name in a table, in characters. ``--json`` shows whole names."""


class GroupNameError(RingfenceError):
    """A name is malformed."""


def parse(text: str) -> bytes:
    """Parse a group's name: text, ``hex:…`` for other bytes, ``text:…`` for a text that begins so.

    A command line's bytes outside the locale arrive as surrogates, and stand for the name's own bytes.

    Raises:
        GroupNameError: The text after ``hex:`` is not hexadecimal.
    """
    if text.startswith("hex:"):
        try:
            return bytes.fromhex(text[4:])
        except ValueError as error:
            raise GroupNameError(
                f"{text!r} is not hex ({error}): fix it, or write text:{text} if the name itself begins "
                "with hex:"
            ) from error
    return text.removeprefix("text:").encode(errors="surrogateescape")


def shown(name: bytes) -> str:
    """Return a group for :func:`parse`: printable text that parses to itself, or ``hex:…``.

    A name that a shell may change, such as an empty one or one that begins like an option, becomes ``text:…``.
    """
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return f"hex:{name.hex()}"
    if not text.isprintable():  # it may control a terminal
        return f"hex:{name.hex()}"
    return f"text:{text}" if not text or text.startswith(("hex:", "text:", "-")) else text


def in_sentence(name: bytes) -> str:
    """Return a group's name for a sentence, where ``text:`` alone looks like a mistake."""
    return shown(name) if name else f"the empty group ({shown(name)})"


def in_table(name: bytes | None) -> str:
    """Return a group's name for a table. A cut name shows its length."""
    if name is None:
        return "(none)"
    text = shown(name)
    return text if len(text) <= NAME_SHOWN_MAX else f"{text[:NAME_SHOWN_MAX]}… ({len(name):,} bytes)"


def shown_or_none(group: bytes | None) -> str:
    """Return a group's name for commands; ``none`` for a message without a group."""
    return "none" if group is None else shown(group)
