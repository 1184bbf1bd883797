import json
from hashlib import blake2b

import pytest

from ringfence_kafka.protocol import stored_ids
from tables import codec
from tables.codec import FormatError, Meta, Origin

META = Meta(
    20_000, 31, 5, {"orders": 77}, {"orders": 4, "orders.accepted": 8}, "00ff00ff00ff00ff", [[500, 12, 0], [70, 9, 33]], False,
    {"orders": "Zm9yZ2V0bWVub3Q"}, "ringfence", "orders",
)  # fmt: skip


def test_id_layout() -> None:
    """A raw ID has the kind 00 before it; the BLAKE2b-256 digest of a long one has the kind 01. These bytes are on disks."""
    assert stored_ids.encode_id(b"A-1").hex() == "00412d31"
    assert stored_ids.encode_id(b"x" * 257).hex() == (
        "0199da5101f1f947c80e6ecbf89498bea9946f231eb226e0ded7c80ec4cd723f57"
    )


@pytest.mark.parametrize("value", [b"", b"A-1", b"x" * 256, b"x" * 257])
def test_digest_id(value: bytes) -> None:
    """An ID that is a digest by choice has the digest's form at any length, apart from the raw ID up to 256 bytes."""
    digest = blake2b(value, digest_size=32)

    assert (
        stored_ids.digest_id(value) == stored_ids.stored_digest(digest.digest()) == b"\x01" + digest.digest()
    )
    assert (stored_ids.digest_id(value) == stored_ids.encode_id(value)) == (len(value) > 256)
    assert stored_ids.display_id(stored_ids.digest_id(value)) == "digest:" + digest.hexdigest()
    with pytest.raises(ValueError, match="a digest has 32 bytes, this has 31"):
        stored_ids.stored_digest(digest.digest()[:-1])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("größe 7".encode(), "größe 7"),
        (b"", ""),
        (b"order:7", "order:7"),
        (b"hex:ff00", "text:hex:ff00"),
        (b"base64:", "text:base64:"),
        (b"digest:99", "text:digest:99"),
        (b"text:", "text:text:"),
        (b"\xff\x00", "hex:ff00"),
        (b"a\nb", "hex:610a62"),
    ],
)
def test_display_id(value: bytes, shown: str) -> None:
    """A person reads text where the ID is printable text, else hex; and cannot mistake one for another."""
    assert stored_ids.display_id(stored_ids.encode_id(value)) == shown


KEY, VALUE = codec.ring_key(10, 3), codec.ring_value(3, b"\x00a", Origin(0, 0, 0))


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (KEY[:-1], VALUE, f"ring record with key {KEY[:-1].hex()} is damaged"),
        (KEY, VALUE[:-3], f"ring record with key {KEY.hex()} is damaged"),
        (KEY, b"", f"ring record with key {KEY.hex()} is damaged"),
        (KEY, b"\x03" + VALUE[1:], "ring record of format 3; this version reads formats 1 and 2"),
    ],
)
def test_damaged_ring_record(key: bytes, value: bytes, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        codec.decode_ring(key, value)


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
    """A meta record reads back as it was written, at the extremes too."""
    assert codec.decode_meta(codec.encode_meta(meta)) == meta


def _json(number: int, **more: object) -> bytes:
    """Return a meta record of this format, without what only later formats have."""
    fields = {name: value for name, value in META._asdict().items() if name not in {"bridged", "lanes"}}
    return json.dumps({"format": number, **fields, **more}).encode()


def test_meta_of_a_lane_that_noted_hops() -> None:
    """A meta record of a lane with hops has a format of its own, so that older versions refuse it, and no other field."""
    plain, bridged = (json.loads(codec.encode_meta(META._replace(bridged=item))) for item in (False, True))

    assert bridged == plain | {"format": 2}
    assert plain["format"] == 1
    assert codec.decode_meta(_json(2)) == META._replace(bridged=True)


def test_meta_of_a_lane_of_several_partitions() -> None:
    """Format 3 has the number of lanes, says itself whether hops were noted, and has offsets by partition."""
    meta = META._replace(lanes=2, next_offsets={"orders/0": 77, "orders/2": 5}, bridged=True)
    value = codec.encode_meta(meta)

    assert json.loads(value)["format"] == 3
    assert codec.decode_meta(value) == meta
    assert (meta.next_of("orders", 2), meta.next_of("orders", 1)) == (5, None)
    assert (META.next_of("orders", 3), META.next_of("other", 3)) == (77, None)


def test_meta_of_another_release() -> None:
    """Fields that a later version adds under the same format are ignored, and rules may be missing: no worker has run yet."""
    lacking = json.loads(_json(1))
    del lacking["rules"]

    assert codec.decode_meta(_json(1, more=[1])) == META
    assert codec.decode_meta(json.dumps(lacking).encode()) == META._replace(rules={})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        *((value, "damaged: ") for value in (b"", b"\xff\xfe", b"{", b"null", b"[]", b'"text"', b"7", b"{}")),
        (_json(3), "lacks bridged, lanes"),
        (_json(4), "of format 4; this version reads formats 1 to 3"),
    ],
)
def test_damaged_meta_record(value: bytes, why: str) -> None:
    with pytest.raises(FormatError, match=f"meta record .*{why}"):
        codec.decode_meta(value)
