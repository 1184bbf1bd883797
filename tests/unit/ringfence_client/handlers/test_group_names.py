"""Message groups, whatever bytes their names are."""

import pytest

from ringfence_client.handlers import group_names


@pytest.mark.parametrize(
    ("key", "shown"),
    [(b"g-1", "g-1"), ("g\u00fc".encode(), "g\u00fc"), (b"\xff", "hex:ff"), (b"\x1b[2J", "hex:1b5b324a"),
     (b"hex:ff", "text:hex:ff"), (b"text:a", "text:text:a"), (b"base64:AA==", "base64:AA=="), (b"a\nb", "hex:610a62"), (b"", "text:"), (b"-x", "text:-x")],
)  # fmt: skip
def test_as_the_verbs_take_them(key: bytes, shown: str) -> None:
    """The displayed name of a group is accepted by `groups skip` and `dlq redrive --group`."""
    assert group_names.shown(key) == shown
    assert group_names.parse(shown) == key


def test_in_a_table() -> None:
    """A name without end leaves room for the rest, and cannot be taken for a whole one."""
    assert group_names.in_table(None) == "(none)"
    assert group_names.in_table(b"x" * 100) == "x" * 100
    assert group_names.in_table(b"x" * 5_000) == "x" * 100 + "\u2026 (5,000 bytes)"


def test_in_a_sentence() -> None:
    """The empty group is named, not only quoted as commands take it."""
    assert group_names.in_sentence(b"g-1") == "g-1"
    assert group_names.in_sentence(b"") == "the empty group (text:)"


def test_bytes_that_the_locale_cannot_read() -> None:
    """Surrogates of Python are the bytes of the name. A malformed hex name is refused with the way out."""
    assert group_names.parse("g-\udcc3\udcbc") == "g-\u00fc".encode()
    assert group_names.parse("text:\udcff") == b"\xff"
    for text in ("hex:0", "hex:zz", "hex:\udcff"):
        with pytest.raises(group_names.GroupNameError, match=f"or write text:{text} if"):
            group_names.parse(text)
