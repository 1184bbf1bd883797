"""Messages for tests: one argument is enough, and the consumer makes the same message of their records."""

import inspect
from dataclasses import fields

import pytest

from ringfence_client.handlers.message import Fence, Message, MessageFactory, PartNumber
from ringfence_client.testing import message
from ringfence_client.testing.messages import accepted_record
from ringfence_kafka.config.settings import Settings

SETTINGS = Settings.model_validate({"addresses": [{"name": "test"}]})
COMPARED = (
    "address", "group", "key", "value", "headers", "duplicate_id", "timestamp", "source", "topic", "partition", "offset", "part",
    "sequence", "verdict",
)  # fmt: skip


def test_every_field_can_be_given() -> None:
    """A field that a message gets one day gets an argument too."""
    given = set(inspect.signature(message).parameters) - {"state", "fence"}
    own = {"topic", "held", "effects", "sent"}

    assert given == {item.name for item in fields(Message)} - own


@pytest.mark.parametrize(
    "made",
    [
        message(b"5"),
        message(b"5", group=b"alice"),
        message(b"5", group=b"alice", key=b"order-1", headers={"a": "b"}, duplicate_id="id-1"),
        message(None, key="k", part=PartNumber(2, 3), sequence=7, source="orders/3/17", timestamp=5),
        message(b"5", headers=[("_HQ_DUPL_ID", b"x")], duplicate_id=b"x", verdict="DUPLICATE orders/0/1"),
    ],
)
def test_its_record_is_the_same_message(made: Message) -> None:
    """The consumer makes the given message of the record that a bench writes."""
    record = accepted_record(made, SETTINGS.addresses[0], 0)
    read = MessageFactory(SETTINGS.addresses[0]).make(record, 1, Fence(1))

    assert [getattr(read, name) for name in COMPARED] == [getattr(made, name) for name in COMPARED]
