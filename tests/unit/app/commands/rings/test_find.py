import base64
from hashlib import blake2b
from unittest.mock import Mock

import pytest

from app.commands.rings import show
from app.commands.rings.find import IdFormatError, find, parse_id, slots_of
from ringfence_kafka.config.load import validate
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.protocol import stored_ids
from ringfence_kafka.protocol.duplicate_id import composed
from ringfence_kafka.protocol.stored_ids import digest_id, display_id, display_parts, encode_id, variant_of
from tables.codec import Origin, Slot


def test_forms() -> None:
    """Text is the ID itself, unless it begins as one of the other forms; ``text:`` says that it does not.

    Bytes that the locale cannot read are passed on as surrogates by Python, and are the bytes of the ID.
    """
    for text, expected in (
        ("A-1", b"A-1"), ("", b""), ("größe 7", "größe 7".encode()), ("order:7", b"order:7"), ("hex:FF 00", b"\xff\x00"),
        ("hex:", b""), ("base64:/wA=", b"\xff\x00"), ("text:A-1", b"A-1"), ("text:hex:ff", b"hex:ff"),
        ("\udcc3\udcbc", "\u00fc".encode()), ("text:\udcff", b"\xff"),
    ):  # fmt: skip
        assert parse_id([text]) == encode_id(expected)


def test_long_id_and_parts() -> None:
    """A long ID may be given whole in any form; its digest is looked up, and may be given itself.

    Several parts, in any form each, are one ID; a digest stands for the value that is a part.
    """
    value = b"x" * 257
    digest = blake2b(value, digest_size=32)
    base = base64.b64encode(value).decode()
    for text in (value.decode(), f"text:{value.decode()}", f"hex:{value.hex()}", f"base64:{base}", f"digest:{digest.hexdigest()}"):  # fmt: skip
        assert parse_id([text]) == digest_id(value)
    assert parse_id([f"hex:{digest.hexdigest()}"]) != digest_id(value)

    assert parse_id(["/shop", "42"]) == encode_id(composed([b"/shop", b"42"]))
    parts = composed([b"\xff", digest.digest()])
    assert parse_id(["hex:ff", f"digest:{digest.hexdigest()}"]) == encode_id(parts)
    assert parse_id(["x" * 200, "y" * 200]) == digest_id(composed([b"x" * 200, b"y" * 200]))


def test_malformed() -> None:
    """A malformed ID is refused with an error that names it, and the suggested way out works."""
    for text in (
        "hex:f",
        "base64:/wA",
        "base64:ä",
        "digest:" + "0" * 66,
        "digest:xy",
        "hex:\udcff",
        "base64:\udcff",
    ):
        with pytest.raises(IdFormatError) as raised:
            parse_id([text])

        message = str(raised.value)
        assert message.startswith(f"{text!r} is not {text.partition(':')[0]} (")
        assert message.endswith(f"): fix it, or write text:{text} if the ID itself begins with this prefix")
        assert parse_id([f"text:{text}"])
        assert raised.value.exit_code == 2
    assert parse_id(["text:hex:f"]) == encode_id(b"hex:f")


def test_what_is_shown_can_be_found() -> None:
    """An ID as ``rings show`` writes it is the one that ``rings find`` looks for."""
    for encoded in (
        *map(encode_id, (b"A-1", b"", "größe 7".encode(), b"\xff\x00", b"a\nb", b"order:7", b"x" * 300)),
        *map(encode_id, (b"hex:ff", b"hex:xy", b"base64:AA==", b"digest:00", b"text:x")),
        digest_id(b"A-1"),
    ):
        stored = stored_ids.foreign_id("payments", encoded)

        assert parse_id([display_id(encoded)]) == encoded
        assert display_id(stored) == display_id(encoded)
        assert stored_ids.of_address(stored) == ("payments", encoded)


def test_shown_parts_can_be_found() -> None:
    """The parts that ``rings show`` writes are those that ``rings find`` takes, and so is the whole in one argument."""
    for parts in ([b"/shop", b"42"], [b"hex:7", b"\xff", b" "], [b"\x00\x00\x00\x01", b"a"]):
        encoded = encode_id(composed(parts))
        shown = display_parts(encoded, len(parts))

        assert len(shown) == len(parts)
        assert parse_id(shown) == parse_id([display_id(encoded)]) == encoded
        assert display_parts(encoded, len(parts) + 1) == []
        for other in (encode_id(b"plain"), digest_id(b"x"), encode_id(b"\x00\x00\x00\x09ab")):
            assert display_parts(other, 2) == []


def test_what_no_id_is() -> None:
    """A text that cannot be an ID of the address is refused before any ring is read. "Not known" would mislead."""
    for forms, identifier, expected in (
        (["header:a", "key"], ["1", "2", "3"], "3 parts of an ID, and an ID of orders has 2 parts, header:a, key"),
        ("header", ["1", "2"], "2 parts of an ID, and an ID of orders has one part, header"),
        (["header:a", "key"], ["1", ""], "an empty ID is the same as none"),
        ("value", ["text"], "is not a digest, and an ID of this address has the digest of the value"),
        (["value", "key"], ["hex:00", "k"], "is not a digest, and an ID of this address has the digest of the value"),
    ):  # fmt: skip
        settings = validate({"addresses": [{"name": "orders", "duplicate_id_from": forms}]})
        with pytest.raises(RingfenceError, match=expected):
            find(settings, "orders", identifier, as_json=False)


def test_second_value_of_an_id() -> None:
    """The slot of an ID's second value shows as the ID, part by part, and is found by it."""
    for encoded in (encode_id(composed([b"a b", b"7"])), encode_id(b"7"), digest_id(b"7")):
        stored = variant_of(encoded, 2**63 + 5)

        assert stored_ids.without_value(stored) == stored_ids.without_value(encoded) == encoded
        assert display_parts(stored, 2) == display_parts(encoded, 2)
        assert parse_id(display_parts(stored, 2) or [display_id(stored)]) == encoded


def test_slots_of_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """All values of an ID are its slots, also when that of the first has left the ring; another ID's are not."""
    stored = [variant_of(encode_id(b"7"), 1), variant_of(encode_id(b"8"), 1), encode_id(b"7")]
    slots = [Slot(9, sequence, id_, Origin(0, sequence, 0)) for sequence, id_ in enumerate(stored)]
    for live, expected in ((slots, [0, 2]), (slots[:2], [0])):
        monkeypatch.setattr(show, "live_slots", lambda _, live=live: live)
        assert [slot.sequence for slot in slots_of(encode_id(b"7"), Mock())] == expected
