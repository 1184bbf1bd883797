from typing import Any

import pytest

from agents.decision.ids_and_groups import IdReader
from ringfence_kafka.config.load import validate
from ringfence_kafka.protocol.stored_ids import digest_id, encode_id
from tests.unit.agents.decision.test_decide import Given, Headers

AMQ, HQ = "_AMQ_DUPL_ID", "_HQ_DUPL_ID"


def _reader(**keys: Any) -> IdReader:
    return IdReader(validate({"addresses": [{"name": "orders", **keys}]}).addresses[0])


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param([], None, id="none"),
        pytest.param([("_amq_dupl_id", b"1")], None, id="names have case"),
        pytest.param([("x", b"0"), (HQ, b"2"), ("y", b"3")], b"2", id="second name"),
        pytest.param([(HQ, b"2"), (AMQ, b"1")], b"1", id="first name first"),
        pytest.param([(AMQ, b"1"), (HQ, b"x"), (AMQ, b"2")], b"2", id="last repeat"),
        pytest.param([(AMQ, None), (HQ, b"2")], b"2", id="null"),
        pytest.param([(AMQ, b"1"), (AMQ, None)], None, id="null last"),
        pytest.param([(AMQ, b"x" * 300)], b"x" * 300, id="long"),
        pytest.param([(AMQ, b" A\x00\xff")], b" A\x00\xff", id="any bytes"),
    ],
)
def test_id_from_a_header(headers: Headers, expected: bytes | None) -> None:
    """The ID is the last value of the first configured header that has one, byte by byte. Neither key nor value is one."""
    (found,) = _reader().ids([Given(0, b"_AMQ_DUPL_ID", headers, b"1")])[0]

    assert found == (None if expected is None else encode_id(expected))


@pytest.mark.parametrize(
    ("headers", "expected"),
    [([(AMQ, b""), (HQ, b"2")], b"2"), ([(AMQ, b""), (HQ, b"")], None), ([(AMQ, b"1"), (AMQ, b"")], None)],
)
def test_empty_value_is_no_id(headers: Headers, expected: bytes | None) -> None:
    """An empty value counts as none, so the next name is tried. A producer with an unset field loses no message."""
    assert _reader().ids([Given(0, None, headers)])[0] == [expected and encode_id(expected)]


LONG = b"x" * 300


@pytest.mark.parametrize(
    ("keys", "data", "expected"),
    [
        ({"duplicate_id_headers": ["a", "b"]}, b"k", encode_id(b"1")),
        ({"duplicate_id_headers": ["c"]}, b"k", None),
        ({"duplicate_id_from": "header:b"}, b"k", encode_id(b"2")),
        ({"duplicate_id_from": "key"}, b"k", encode_id(b"k")),
        ({"duplicate_id_from": "key"}, LONG, digest_id(LONG)),
        ({"duplicate_id_from": "key"}, b"", None),
        ({"duplicate_id_from": "value"}, b"v", digest_id(b"v")),
        ({"duplicate_id_from": "value"}, b"", None),
        ({"duplicate_id_from": "value:/id"}, b'{"id":"7"}', encode_id(b"7")),
        ({"duplicate_id_from": "value:/id"}, b"7", None),
    ],
)
def test_id_by_configuration(keys: dict[str, Any], data: bytes | None, expected: bytes | None) -> None:
    """The configured place of the ID counts, and no other one. A long ID and any value are their digest."""
    record = Given(0, data, [(AMQ, b"9"), ("b", b"2"), ("a", b"1")], data)

    assert _reader(**keys).ids([record]) == ([expected], [], [])


def test_ids_from_parts() -> None:
    """Each record has one ID or none, in its stored form; a long one is its digest. Envelopes and hops are found too."""
    headers: Headers = [("a", b"1"), ("b", b"2")]
    records = [
        Given(0, None, headers),
        Given(0, None, [("a", b"1")]),
        Given(0, None, []),
        Given(0, None, [("a", b"1"), ("b", LONG), ("_RF_TX", b"json/1")]),
        Given(0, None, [*headers, ("_RF_BRIDGE_DUPL_ID", b"")]),
    ]
    ids, envelopes, crossed = _reader(duplicate_id_from=["header:a", "header:b"]).ids(records)

    one = encode_id(b"\x00\x00\x00\x011\x00\x00\x00\x012")
    assert ids == [one, None, None, digest_id(b"\x00\x00\x00\x011\x00\x00\x01\x2c" + LONG), one]
    assert (envelopes, crossed) == ([3], [4])


DEFAULT = b"qpid.no-group"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [([("g", b"1"), ("g", b"2")], b"2"), ([("G", b"1")], DEFAULT), ([("g", b"1"), ("g", b"")], DEFAULT)],
)
def test_group(headers: Headers, expected: bytes) -> None:
    """The last header of the configured name is the group, whatever the key, or else the default one. Without a name the key is it."""
    records = [Given(0, key, headers) for key in (b"k", None, b"")]

    assert _reader(group_header="g").groups(records) == [expected] * 3
    assert _reader().groups(records) == [b"k", None, b""]
