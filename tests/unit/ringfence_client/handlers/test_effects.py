"""The effects that a handler may request."""

from typing import Any

import pytest

from ringfence_client.handlers.effects import SENDS_BYTES_MAX, SENDS_MAX, STATE_BYTES_MAX, Effects, StateError
from ringfence_client.testing import message
from ringfence_kafka.protocol import wire_names


async def test_sends_are_buffered_in_order_and_numbered() -> None:
    """Sends are buffered in order. Their numbers, which are part of their IDs, count from 1 in each message."""
    first = message("5", group=b"g")
    await first.send("ledger", "äöü", key="k", headers={"a": "1"}, timestamp=7, partition=2, duplicate_id="x")
    await first.send("ledger", None, headers=[("b", None)])

    one, two = first.effects.sends
    assert (one.key, one.value, one.headers) == (b"k", "äöü".encode(), [("a", b"1")])
    assert (one.partition, one.timestamp, one.duplicate_id) == (2, 7, b"x")
    assert (two.key, two.value, two.headers) == (None, None, [("b", None)])
    assert [one.number, two.number] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"topic": ""}, ValueError, "topic is empty"),
        ({"topic": b"x"}, TypeError, "topic is of type bytes"),
        ({"topic": "a\ud800"}, ValueError, "cannot be the name of a topic"),
        ({"value": 5}, TypeError, "value is of type int"),
        ({"partition": 2**31}, ValueError, "partition = 2147483648: 0 to"),
        ({"timestamp": 1.5}, TypeError, "timestamp is of type float"),
        ({"duplicate_id": ""}, ValueError, "duplicate_id is empty"),
        ({"headers": ["ab"]}, TypeError, "headers hold 'ab'"),
        ({"headers": {"a\ud800": b"x"}}, ValueError, "cannot be written in UTF-8"),
        ({"headers": {wire_names.HEADER_SOURCE: b"x"}}, ValueError, "Ringfence itself writes"),
    ],
)
def test_what_cannot_be_sent(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    """A send that is not possible raises an error at the call, and nothing of it is buffered."""
    origin = message("5", group=b"g")
    given = {"topic": "ledger", "value": b"v", **arguments}

    with pytest.raises(error, match=text):
        origin.send(**given)
    assert not origin.effects.are_asked_for


def test_bounds_of_one_message() -> None:
    """The sends of one message are bounded, because they share one transaction."""
    origin = message("5", group=b"g")
    for _ in range(SENDS_MAX):
        origin.send("ledger", b"v")
    with pytest.raises(ValueError, match="send less for each message"):
        origin.send("ledger", b"v")
    with pytest.raises(ValueError, match="send less for each message"):
        message("5").send("ledger", b"v" * (SENDS_BYTES_MAX + 1))


def test_state_is_bytes_up_to_a_size() -> None:
    origin = message("5", group=b"g")
    assert origin.state is None
    origin.state = "12"
    assert origin.state == b"12"
    origin.state = b"x" * STATE_BYTES_MAX
    with pytest.raises(ValueError, match="at most 65536"):
        origin.state = b"x" * (STATE_BYTES_MAX + 1)
    with pytest.raises(TypeError, match="type int"):
        origin.state = 12  # type: ignore[assignment]
    origin.state = None
    assert origin.effects.changed

    with pytest.raises(ValueError, match="has no group"):
        message("5", group=None).state = b"1"


def test_nothing_is_taken_after_the_attempt() -> None:
    """Sends and states after the attempt would be lost, and a total over an unknown state would stay wrong: both are errors."""
    origin = message("5", group=b"g")
    origin.effects.end()
    with pytest.raises(RuntimeError, match="the attempt is over"):
        origin.send("ledger", b"v")
    with pytest.raises(RuntimeError, match="the attempt is over"):
        origin.state = b"1"
    unknown = message("5", group=b"g")
    unknown.effects = Effects(None, "this user may not describe the topic")
    with pytest.raises(StateError, match="may not describe"):
        _ = unknown.state
    with pytest.raises(StateError, match="may not describe"):
        unknown.state = b"1"
