import base64
from hashlib import blake2b

import pytest

from app.commands.rings.find import IdFormatError, parse_id
from tables.stored_ids import digest_id, display_id, encode_id, foreign_id, of_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A-1", b"A-1"),
        ("", b""),
        ("größe 7", "größe 7".encode()),
        ("order:7", b"order:7"),
        (":7", b":7"),
        ("HEX:ff", b"HEX:ff"),
        ("hex", b"hex"),
        ("hex:ff00", b"\xff\x00"),
        ("hex:FF 00", b"\xff\x00"),
        ("hex:", b""),
        ("base64:/wA=", b"\xff\x00"),
        ("base64:", b""),
        ("text:A-1", b"A-1"),
        ("text:", b""),
        ("text:hex:ff", b"hex:ff"),
        ("text:digest:00", b"digest:00"),
        ("text:text:x", b"text:x"),
    ],
)
def test_forms(text: str, expected: bytes) -> None:
    """Text is the ID itself, unless it begins as one of the other forms; ``text:`` says that it does not."""
    assert parse_id(text) == encode_id(expected)


@pytest.mark.parametrize("form", ["text", "hex", "base64"])
def test_long_id(form: str) -> None:
    """A long ID may be given whole in any form; its digest is looked up."""
    value = b"x" * 257
    written = {
        "text": value.decode(),
        "hex": "hex:" + value.hex(),
        "base64": "base64:" + base64.b64encode(value).decode(),
    }

    assert parse_id(written[form]) == digest_id(value)


def test_digest() -> None:
    """An ID of which only the digest was kept is found by the digest."""
    digest = blake2b(b"some value", digest_size=32).hexdigest()

    assert parse_id(f"digest:{digest}") == digest_id(b"some value")
    assert parse_id(f"digest:{digest}") != parse_id(f"hex:{digest}")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("hex:f", "hex"),
        ("hex:xy", "hex"),
        ("base64:/wA", "base64"),
        ("base64:!!!!", "base64"),
        ("base64:ä", "base64"),
        ("digest:", "digest"),
        ("digest:ff", "digest"),
        ("digest:" + "0" * 66, "digest"),
        ("digest:xy", "digest"),
    ],
)
def test_malformed(text: str, kind: str) -> None:
    """A malformed ID is refused with an error that names it, and the suggested way out works."""
    with pytest.raises(IdFormatError) as raised:
        parse_id(text)

    message = str(raised.value)
    assert message.startswith(f"{text!r} is no {kind} (")
    assert message.endswith(f"): fix it, or write text:{text} if the ID itself begins so")
    assert parse_id(f"text:{text}") == encode_id(text.encode())
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    "encoded",
    [
        *map(encode_id, (b"A-1", b"", "größe 7".encode(), b"\xff\x00", b"a\nb", b"order:7", b"x" * 300)),
        *map(encode_id, (b"hex:ff", b"hex:xy", b"base64:AA==", b"digest:00", b"text:x")),
        digest_id(b"A-1"),
    ],
)
def test_what_is_shown_can_be_found(encoded: bytes) -> None:
    """An ID as ``rings show`` writes it is the one that ``rings find`` looks for."""
    assert parse_id(display_id(encoded)) == encoded


@pytest.mark.parametrize(
    "encoded", [*map(encode_id, (b"7", b"", b"\xff", b"hex:ff", b"x" * 300)), digest_id(b"7")]
)
def test_ids_of_other_addresses_are_shown_as_their_own(encoded: bytes) -> None:
    """The address of a foreign ID is shown apart from the ID, which can be looked up with ``--of``."""
    stored = foreign_id("payments", encoded)

    assert display_id(stored) == display_id(encoded)
    assert of_address(stored) == ("payments", parse_id(display_id(stored)))


def test_bytes_that_the_locale_cannot_read() -> None:
    """Bytes that Python passes on as surrogates are the bytes of the ID, and cause no error."""
    assert parse_id("\udcc3\udcbc") == encode_id("\u00fc".encode())
    assert parse_id("text:\udcff") == encode_id(b"\xff")
    for text in ("hex:\udcff", "base64:\udcff"):
        with pytest.raises(IdFormatError):
            parse_id(text)
