from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from agents.decision.ids_and_groups import IdReader, duplicate_ids
from ringfence_kafka.config.load import validate
from ringfence_kafka.protocol.stored_ids import digest_id, encode_id

NAMES = ("_AMQ_DUPL_ID", "_HQ_DUPL_ID")
Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Given:
    """A consumed record."""

    headers: Headers
    offset: int = 0
    timestamp: int = 0
    key: bytes | None = None
    value: bytes | None = b"v"


def duplicate_id(headers: Headers, names: Sequence[str]) -> bytes | None:
    ((found,), _, _) = duplicate_ids([Given(headers)], names)
    return found


def _reader(**keys: Any) -> IdReader:
    """As an address is configured by these keys."""
    return IdReader(validate({"addresses": [{"name": "orders", **keys}]}).addresses[0])


# -- the ID from a header -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], None),
        ([("_amq_dupl_id", b"1")], None),
        ([("_HQ_DUPL_ID", b"2")], b"2"),
        ([("x", b"0"), ("_AMQ_DUPL_ID", b"1"), ("y", b"3")], b"1"),
        ([("_HQ_DUPL_ID", b"2"), ("_AMQ_DUPL_ID", b"1")], b"1"),
        ([("_AMQ_DUPL_ID", b"1"), ("_HQ_DUPL_ID", b"x"), ("_AMQ_DUPL_ID", b"2")], b"2"),
        ([("_AMQ_DUPL_ID", None), ("_HQ_DUPL_ID", b"2")], b"2"),
        ([("_AMQ_DUPL_ID", b"1"), ("_AMQ_DUPL_ID", None)], None),
        ([("_AMQ_DUPL_ID", b"x" * 300)], b"x" * 300),
        ([("_AMQ_DUPL_ID", b" A\x00\xff")], b" A\x00\xff"),
    ],
    ids=[
        "none",
        "names have case",
        "second name",
        "among others",
        "first name first",
        "last repeat",
        "null",
        "null last",
        "long",
        "any bytes",
    ],
)
def test_id_from_a_header(headers: Headers, expected: bytes | None) -> None:
    """The ID is the last value of the first configured header that has one, byte by byte. Neither key nor value is one."""
    (found,) = _reader().ids([Given(headers, key=b"_AMQ_DUPL_ID", value=b"1")])[0]

    assert found == (None if expected is None else encode_id(expected))


def test_empty_value_is_no_id() -> None:
    """An empty value counts as none, so the next name is tried. A producer with an unset field loses no message."""
    assert duplicate_id([("_AMQ_DUPL_ID", b""), ("_HQ_DUPL_ID", b"2")], NAMES) == encode_id(b"2")
    assert duplicate_id([("_AMQ_DUPL_ID", b""), ("_HQ_DUPL_ID", b"")], NAMES) is None
    assert duplicate_id([("_AMQ_DUPL_ID", b"1"), ("_AMQ_DUPL_ID", b"")], NAMES) is None


def test_ids_from_configured_headers() -> None:
    """The names of the configuration count, in its order, and no others."""
    record = Given([("_AMQ_DUPL_ID", b"1"), ("b", b"2"), ("a", b"3")])

    assert _reader(duplicate_id_headers=["a", "b"]).ids([record])[0] == [encode_id(b"3")]
    assert _reader(duplicate_id_headers=["b", "a"]).ids([record])[0] == [encode_id(b"2")]
    assert _reader(duplicate_id_headers=["c"]).ids([record])[0] == [None]


# -- the ID from key or value ---------------------------------------------------------------------------------------


def test_ids_from_key() -> None:
    """The key is the ID, as bytes: null and empty are none, a long one is its digest; headers say nothing."""
    headers: Headers = [("_AMQ_DUPL_ID", b"other")]
    keys = [b"k", None, b"", b"x" * 257]

    ids = _reader(duplicate_id_from="key").ids([Given(headers, key=key) for key in keys])[0]

    assert ids == [encode_id(b"k"), None, None, digest_id(b"x" * 257)]


def test_ids_from_value() -> None:
    """The digest of the value is the ID, however short: null and empty are none; headers and key say nothing."""
    headers: Headers = [("_AMQ_DUPL_ID", b"other")]
    values = [b"v", None, b"", b"x" * 1_000]

    ids = _reader(duplicate_id_from="value").ids([Given(headers, key=b"k", value=value) for value in values])[
        0
    ]

    assert ids == [digest_id(b"v"), None, None, digest_id(b"x" * 1_000)]
    assert {len(id_) for id_ in ids if id_ is not None} == {33}


# -- groups ---------------------------------------------------------------------------------------------------------


def test_group_is_the_key() -> None:
    """The key is the group if no header is configured; a null key means no group, and an empty one is a group."""
    headers: Headers = [("g", b"header")]
    records = [Given(headers, key=name) for name in (b"k", None, b"", b"\xff\x00")]

    assert _reader().groups(records) == [b"k", None, b"", b"\xff\x00"]
    assert _reader().groups([]) == []


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("g", b"1")], b"1"),
        ([("g", b"1"), ("x", b"0"), ("g", b"2")], b"2"),
        ([], b"qpid.no-group"),
        ([("G", b"1")], b"qpid.no-group"),
        ([("g", None)], b"qpid.no-group"),
        ([("g", b"")], b"qpid.no-group"),
        ([("g", b"1"), ("g", None)], b"qpid.no-group"),
        ([("g", b"1"), ("g", b"")], b"qpid.no-group"),
    ],
    ids=["present", "last repeat", "none", "names have case", "null", "empty", "null last", "empty last"],
)
def test_group_header(headers: Headers, expected: bytes) -> None:
    """The named header is the group; missing, null or empty, the message is of the default group, whatever its key."""
    assert _reader(group_header="g").groups([Given(headers, key=b"k")]) == [expected]


# -- the ID from several parts --------------------------------------------------------------------------------------


def test_ids_from_parts() -> None:
    """Each record has one ID or none, in its stored form; a long one is its digest. Envelopes and hops are found too."""
    headers: Headers = [("a", b"1"), ("b", b"2")]
    records = [
        Given(headers),
        Given([("a", b"1")]),
        Given([]),
        Given([("a", b"1"), ("b", b"x" * 300), ("_RF_TX", b"json/1")]),
        Given([*headers, ("_RF_BRIDGE_DUPL_ID", b"")]),
    ]
    ids, envelopes, crossed = _reader(duplicate_id_from=["header:a", "header:b"]).ids(records)

    one = encode_id(b"\x00\x00\x00\x011\x00\x00\x00\x012")
    assert ids == [one, None, None, digest_id(b"\x00\x00\x00\x011\x00\x00\x01\x2c" + b"x" * 300), one]
    assert (envelopes, crossed) == ([3], [4])


@pytest.mark.parametrize("name", ["id", "ce_id"])
def test_ids_from_a_named_header(name: str) -> None:
    """One header by its name is the same as that header in ``duplicate_id_headers``."""
    records = [Given([(name, value)]) for value in (b"1", b"", None, b"x" * 300)] + [Given([("x", b"1")])]

    assert (
        _reader(duplicate_id_from=f"header:{name}").ids(records)
        == _reader(duplicate_id_headers=[name]).ids(records)
        == ([encode_id(b"1"), None, None, digest_id(b"x" * 300), None], [], [])
    )


def test_id_from_json() -> None:
    """An ID in a JSON value is stored as any other."""
    reader = _reader(duplicate_id_from="value:/id")

    assert reader.ids([Given([], value=b'{"id":"7"}'), Given([], value=b"7"), Given([], value=None)])[0] == [
        encode_id(b"7"),
        None,
        None,
    ]
