import json
from hashlib import blake2b

import pytest

from ringfence_kafka.protocol import stored_ids
from tables import codec
from tables.codec import FormatError, Meta, Origin

META = Meta(
    capacity=20_000,
    head=31,
    floor=5,
    next_offsets={"orders": 77},
    partition_counts={"orders": 4, "orders.accepted": 8},
    incarnation="00ff00ff00ff00ff",
    older=[[500, 12, 0], [70, 9, 33]],
    persistent=False,
    topic_ids={"orders": "Zm9yZ2V0bWVub3Q"},
    app="ringfence",
    address="orders",
)
OPTIONAL = ("rules", "promise")
"""Fields that a meta record may lack."""


# -- the layout: these bytes are on disks and in topics. A change that breaks these tests needs a new version ---------


def test_meta_layout() -> None:
    """A meta record has the key 00 and is JSON that any Kafka tool shows, its format first."""
    assert codec.META_KEY.hex() == "00"
    assert codec.encode_meta(META) == (
        b'{"format":1,"capacity":20000,"head":31,"floor":5,"next_offsets":{"orders":77},'
        b'"partition_counts":{"orders":4,"orders.accepted":8},"incarnation":"00ff00ff00ff00ff",'
        b'"older":[[500,12,0],[70,9,33]],"persistent":false,"topic_ids":{"orders":"Zm9yZ2V0bWVub3Q"},'
        b'"app":"ringfence","address":"orders","max_age_ms":0}'
    )


def test_id_layout() -> None:
    """A raw ID has the kind 00 before it; the digest of a long one has the kind 01."""
    assert stored_ids.encode_id(b"A-1").hex() == "00412d31"
    assert stored_ids.encode_id(b"x" * 257).hex() == (
        "0199da5101f1f947c80e6ecbf89498bea9946f231eb226e0ded7c80ec4cd723f57"
    )


# -- IDs ---------------------------------------------------------------------------------------------------------


def test_long_id_is_kept_as_digest() -> None:
    """An ID of 257 bytes or more is kept as its BLAKE2b-256 digest; one bit makes another ID."""
    one, other = b"x" * 257, b"x" * 256 + b"y"

    assert stored_ids.encode_id(one) == b"\x01" + blake2b(one, digest_size=32).digest()
    assert stored_ids.encode_id(one) != stored_ids.encode_id(other)
    assert len(stored_ids.encode_id(b"x" * 1_000_000)) == 33


@pytest.mark.parametrize("value", [b"", b"A-1", b"x" * 256, b"x" * 257])
def test_digest_id(value: bytes) -> None:
    """An ID that is a digest by choice has the digest's form at any length, apart from the raw ID up to 256 bytes."""
    assert stored_ids.digest_id(value) == b"\x01" + blake2b(value, digest_size=32).digest()
    assert (stored_ids.digest_id(value) == stored_ids.encode_id(value)) == (len(value) > 256)


def test_stored_digest() -> None:
    """An ID given only by its digest has the same stored form as the ID itself."""
    assert stored_ids.stored_digest(blake2b(b"value", digest_size=32).digest()) == stored_ids.digest_id(
        b"value"
    )


@pytest.mark.parametrize("length", [0, 1, 31, 33, 64])
def test_stored_digest_of_another_length(length: int) -> None:
    """A digest has exactly 32 bytes; the error gives the actual length."""
    with pytest.raises(ValueError, match=f"a digest has 32 bytes, this has {length}"):
        stored_ids.stored_digest(b"x" * length)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"A-1", "A-1"),
        ("größe 7".encode(), "größe 7"),
        (b"", ""),
        (b"order:7", "order:7"),
        (b"hex:ff00", "text:hex:ff00"),
        (b"base64:", "text:base64:"),
        (b"digest:99", "text:digest:99"),
        (b"text:", "text:text:"),
        (b"\xff\x00", "hex:ff00"),
        (b"a\nb", "hex:610a62"),
        (b"x" * 257, "digest:99da5101f1f947c80e6ecbf89498bea9946f231eb226e0ded7c80ec4cd723f57"),
    ],
)
def test_display_id(value: bytes, shown: str) -> None:
    """A person reads text where the ID is printable text, else hex, else the digest; and cannot mistake one for another."""
    assert stored_ids.display_id(stored_ids.encode_id(value)) == shown


def test_display_of_a_digest_by_choice() -> None:
    """A short value's digest is shown as a digest, not as the value, which nobody kept."""
    shown = "digest:" + blake2b(b"A-1", digest_size=32).hexdigest()

    assert stored_ids.display_id(stored_ids.digest_id(b"A-1")) == shown


# -- ring records ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (codec.ring_key(10, 3)[:-1], codec.ring_value(3, b"\x00a", Origin(0, 0, 0))),
        (codec.ring_key(10, 3) + b"x", codec.ring_value(3, b"\x00a", Origin(0, 0, 0))),
        (codec.ring_key(10, 3), codec.ring_value(3, b"", Origin(0, 0, 0))[:-1]),
        (codec.ring_key(10, 3), b""),
    ],
    ids=["short key", "long key", "short value", "empty value"],
)
def test_damaged_ring_record(key: bytes, value: bytes) -> None:
    """A record of the wrong length is refused, and its key is named."""
    with pytest.raises(FormatError, match=f"ring record with key {key.hex()} is damaged"):
        codec.decode_ring(key, value)


# -- meta records ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "meta",
    [
        META,
        Meta(0, 0, 0, {}, {}, ""),
        Meta(2**31 - 1, 2**64 - 1, 2**64 - 1, {"a": 2**63 - 1, "ä.b": 0}, {"a": 1}, "ü"),
        Meta(9, 1, 0, {}, {}, "", [[2**31 - 1, 2**64 - 1, 2**31 - 1]] * 20, True, {"ä": "ö", "": ""}),
    ],
)
def test_meta_round_trip(meta: Meta) -> None:
    """A meta record reads back as it was written, at the extremes too, and encodes to the same bytes again."""
    value = codec.encode_meta(meta)

    assert codec.decode_meta(value) == meta
    assert codec.encode_meta(codec.decode_meta(value)) == value


def test_ring_record_of_another_version() -> None:
    """A record of a later version is refused instead of guessed; the text names both versions."""
    value = b"\x03" + codec.ring_value(3, b"\x00a", Origin(0, 0, 0))[1:]

    with pytest.raises(FormatError, match="ring record of format 3; this version reads formats 1 and 2"):
        codec.decode_ring(codec.ring_key(10, 3), value)


def test_meta_of_another_version() -> None:
    """A later version's record is refused; the text names both versions."""
    value = json.dumps({"format": 4, **META._asdict()}).encode()

    with pytest.raises(FormatError, match="meta record of format 4; this version reads formats 1 to 3"):
        codec.decode_meta(value)


def test_meta_of_a_lane_that_noted_hops() -> None:
    """A meta record of a lane with hops has its own format, so that older versions refuse it.

    Otherwise it equals any other.
    """
    plain, bridged = (json.loads(codec.encode_meta(META._replace(bridged=item))) for item in (False, True))

    assert (plain.pop("format"), bridged.pop("format")) == (1, 2)
    assert plain == bridged
    assert "bridged" not in plain
    assert codec.decode_meta(json.dumps({"format": 2, **plain}).encode()) == META._replace(bridged=True)


FIELDS = tuple(field for field in Meta._fields if field not in {"bridged", "lanes"})


def test_meta_of_a_lane_of_several_partitions() -> None:
    """Format 3 has the number of lanes, says itself whether hops were noted, and has offsets by partition."""
    meta = META._replace(lanes=2, next_offsets={"orders/0": 77, "orders/2": 5}, bridged=True)
    value = codec.encode_meta(meta)

    assert json.loads(value)["format"] == 3
    assert codec.decode_meta(value) == meta
    assert (meta.next_of("orders", 2), meta.next_of("orders", 1)) == (5, None)
    assert (META.next_of("orders", 3), META.next_of("other", 3)) == (77, None)
    with pytest.raises(FormatError, match="lacks bridged, lanes"):
        codec.decode_meta(json.dumps({"format": 3, **json.loads(_without("rules"))} | {"format": 3}).encode())


def _without(key: str) -> bytes:
    data = {"format": 1} | {name: value for name, value in META._asdict().items() if name in FIELDS}
    del data[key]
    return json.dumps(data).encode()


def test_meta_with_more_than_is_known() -> None:
    """Fields that a later version adds under the same format are ignored."""
    assert codec.decode_meta(json.dumps({"format": 1, **META._asdict(), "more": [1]}).encode()) == META


def test_meta_without_rules() -> None:
    """A meta record without rules belongs to a lane that no worker has run yet."""
    assert codec.decode_meta(_without("rules")) == META._replace(rules={})


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff\xfe",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"7",
        b"{}",
        *(_without(key) for key in ("format", *FIELDS) if key not in OPTIONAL),
    ],
)
def test_damaged_meta_record(value: bytes) -> None:
    """A meta record with any deviation is refused."""
    with pytest.raises(FormatError, match="meta record is damaged: "):
        codec.decode_meta(value)
