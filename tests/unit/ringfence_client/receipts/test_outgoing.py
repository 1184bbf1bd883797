"""The record of an outbox: its ID and its home are those that a lane finds."""

from typing import Any

import pytest

from agents.decision.ids_and_groups import IdReader
from agents.decision.partitioner import Partitioner
from ringfence_client import Part, envelope
from ringfence_client.receipts.outgoing import Composer, OutgoingMessage
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import AddressSettings

PARTITIONS = 7


def address(**keys: Any) -> AddressSettings:
    return validate({"addresses": [{"name": "orders", **keys}]}).addresses[0]


def compose(keys: dict[str, Any], **given: Any) -> OutgoingMessage:
    arguments = {"value": "v", "duplicate_id": None, "key": None, "headers": ()} | given
    return Composer(address(**keys), "shop").compose(**arguments)


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
@pytest.mark.parametrize(
    ("keys", "given"),
    [
        ({}, {"duplicate_id": "a", "key": "k"}),
        ({}, {"headers": [("_HQ_DUPL_ID", "a")]}),
        ({}, {"duplicate_id": "", "key": "k"}),
        ({"duplicate_id_from": "key"}, {"key": "k"}),
        ({"duplicate_id_from": "header:id"}, {"duplicate_id": "a"}),
        ({"duplicate_id_from": ["header:a", "value:/id"]}, {"headers": [("a", "1")], "value": '{"id":7}'}),
        ({"duplicate_id_from": "value"}, {"key": "k"}),
        ({"group_header": "g"}, {"duplicate_id": "a", "key": "k", "headers": [("g", "1")]}),
        ({"group_header": "g"}, {"duplicate_id": "a", "key": "k"}),
    ],
)
def test_as_a_lane_reads_it(keys: dict[str, Any], given: dict[str, Any], partitioner: str) -> None:
    keys = keys | {"partitioner": partitioner}
    message = compose(keys, **given)
    reader = IdReader(address(**keys))
    ((found,), _, _), (group,) = reader.ids([message]), reader.groups([message])

    assert message.id == found
    assert message.group == group
    home = group if group is not None else found and found[1:]
    assert message.home == home
    assert home is not None
    lane = Partitioner(PARTITIONS, partitioner)[home]
    assert Composer(address(**keys), "").partition(home, PARTITIONS) == lane


def test_headers() -> None:
    """The producer's own, then the ID and the name of the sender. Neither group nor ID is needed."""
    message = compose({}, duplicate_id="a", headers=[("h", "1"), ("h", b"2")])

    assert message.headers == [("h", b"1"), ("h", b"2"), ("_AMQ_DUPL_ID", b"a"), ("_RF_SENDER", b"shop")]
    assert Composer(address(), "").compose("v", None, None, ()).headers == []
    assert compose({}, headers={"ab": "1"}).headers[0] == ("ab", b"1")
    bare = compose({})
    assert (bare.id, bare.group, bare.home) == (None, None, None)


def test_transaction() -> None:
    """Its home is that of its key, or else of its ID; its parts have groups of their own."""
    value, headers = envelope([Part("v", "g")], "t1")
    message = compose({"group_header": "g"}, value=value, headers=headers, key="k")

    assert (message.id, message.group, message.home) == (b"\0t1", None, b"k")
    assert message.transaction
    assert compose({}, value=value, headers=headers).home == b"t1"


@pytest.mark.parametrize(
    ("keys", "given", "fault"),
    [
        ({"duplicate_id_from": ["header:a", "key"]}, {"duplicate_id": "a"}, "the header:a, key of a mess"),
        ({}, {"value": None, "duplicate_id": "a"}, "neither a value nor a key"),
        ({}, {"headers": [("_RF_SOURCE", "a")]}, "which Ringfence itself writes: choose another name"),
        ({}, {"duplicate_id": 1}, "duplicate_id is of type int: give bytes or str"),
        ({}, dict(zip(("value", "headers"), envelope([Part("v")]), strict=True)), "no ID of its own"),
    ],
)
def test_refused(keys: dict[str, Any], given: dict[str, Any], fault: str) -> None:
    with pytest.raises((TypeError, ValueError), match=fault):
        compose(keys, **given)
