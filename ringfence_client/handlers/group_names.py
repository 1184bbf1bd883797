"""The names of message groups, as a person writes and reads them. Pure."""

from typing import Final

from ringfence_kafka.errors import RingfenceError

NAME_SHOWN_MAX: Final = 100
"""In a table, of which nothing else could be seen beside a name without end; ``--json`` has all."""


class GroupNameError(RingfenceError):
    """A name that cannot be read as what it says it is."""


def parse(text: str) -> bytes:
    """Read a group's name as a person writes it: text, ``hex:…`` for other bytes, ``text:…`` for a text that begins so.

    Bytes of a command line that the locale cannot read come as surrogates: they are the name's own bytes.

    Raises:
        GroupNameError: what follows ``hex:`` is not that.
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
    """Return a group as :func:`parse` takes it: text where it can be printed and is read as itself, else ``hex:…``.

    A name that no shell hands on as it is, such as none at all or one that begins like an option, is shown as ``text:…``.
    """
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return f"hex:{name.hex()}"
    if not text.isprintable():  # it may steer a terminal
        return f"hex:{name.hex()}"
    return f"text:{text}" if not text or text.startswith(("hex:", "text:", "-")) else text


def in_table(name: bytes | None) -> str:
    """Return a group's name for a table. A cut name has an end that shows the cut."""
    if name is None:
        return "(none)"
    text = shown(name)
    return text if len(text) <= NAME_SHOWN_MAX else f"{text[:NAME_SHOWN_MAX]}… ({len(name):,} bytes)"


def shown_or_none(group: bytes | None) -> str:
    """Return a group as verbs take it; ``none`` for a message without a group."""
    return "none" if group is None else shown(group)
