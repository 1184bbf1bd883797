from functools import partial
from typing import Any

import pytest

from ringfence_client import Message, PartNumber, Reject, Release, Retry
from ringfence_client.handlers.message import Fence, MessageFactory
from ringfence_kafka.config.settings import AddressSettings
from tests.support.consumers.windows import Fetched

Headers = tuple[tuple[str, bytes | None], ...]


fetched = partial(Fetched, 77, timestamp=1_700_000_000_000, partition=2)


def _made(record: Fetched, attempt: int = 1, **address: Any) -> Message:
    return MessageFactory(AddressSettings(name="orders", **address)).make(record, attempt, Fence(9))


def test_as_published() -> None:
    """A message is what its producer sent, and our headers are its attributes, or else its key and its place."""
    headers: Headers = (("a", b"1"), ("_RF_SOURCE", b"orders/0/5"), ("a", None), ("_RF_KEY", b"key"))
    message = _made(fetched(headers=headers), attempt=3)

    assert (message.address, message.group) == ("orders", b"group")
    assert (message.key, message.value) == (b"key", b"value")
    assert message.headers == [("a", b"1"), ("a", None)]
    assert (message.source, message.timestamp, message.attempt) == ("orders/0/5", 1_700_000_000_000, 3)
    assert (message.topic, message.partition, message.offset) == ("orders.accepted", 2, 77)

    plain = _made(fetched(headers=(("a", b"1"),)))
    assert (plain.group, plain.key, plain.source) == (b"group", b"group", "orders.accepted/2/77")


@pytest.mark.parametrize(
    ("header", "name", "value"),
    [
        (("_RF_VERDICT", b"DUPLICATE orders/0/5"), "verdict", "DUPLICATE orders/0/5"),
        (("_RF_SEQ", b"123456789012345678"), "sequence", 123456789012345678),
        (("_RF_SEQ", None), "sequence", None),
        (("_RF_SEQ", b"-1"), "sequence", None),
        (("_RF_SEQ", b"9" * 21), "sequence", None),
        (("_RF_TX_PART", b"2/11"), "part", PartNumber(2, 11)),
    ],
)
def test_attributes(header: tuple[str, bytes | None], name: str, value: object) -> None:
    """Verdict, number and part are attributes, and not headers that a handler would send on."""
    message = _made(fetched(headers=(("a", b"1"), header)))

    assert (getattr(message, name), message.headers) == (value, [("a", b"1")])
    assert getattr(_made(fetched()), name) is None


def test_null_key() -> None:
    """A producer's null key is kept apart from an absent one: a group without a key, and no group at all."""
    grouped = _made(fetched(key=b"from a header", headers=(("_RF_KEY", None),)))
    ungrouped = _made(fetched(key=None))

    assert (grouped.group, grouped.key) == (b"from a header", None)
    assert (ungrouped.group, ungrouped.key) == (None, None)


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ((), None),
        ((("_HQ_DUPL_ID", b"2"), ("_AMQ_DUPL_ID", b"1")), b"1"),
        ((("_HQ_DUPL_ID", b"2"), ("_AMQ_DUPL_ID", None)), b"2"),
        ((("_AMQ_DUPL_ID", b"1"), ("_AMQ_DUPL_ID", b"2")), b"2"),
        ((("_AMQ_DUPL_ID", b""),), None),
    ],
)
def test_id_of_headers(headers: Headers, found: bytes | None) -> None:
    """The duplicate ID is the one that was judged: the first name that has a value, of repeats the last."""
    assert _made(fetched(headers=headers)).duplicate_id == found


def test_id_of_several_parts() -> None:
    """The ID of several parts is all of them, as it was judged; without one of them there is none."""
    record = fetched(headers=(("a", b"1"), ("_RF_KEY", b"key")), value=b'{"id":"7"}')
    forms = ["header:a", "key", "value:/id"]

    assert _made(record, duplicate_id_from=forms).duplicate_id == b"\0\0\0\x011\0\0\0\x03key\0\0\0\x017"
    assert _made(fetched(value=b'{"id":"7"}'), duplicate_id_from=forms).duplicate_id is None


def test_decisions_by_calling() -> None:
    message = _made(fetched())

    with pytest.raises(Reject) as rejected:
        message.reject("why")
    with pytest.raises(Release):
        message.release()
    with pytest.raises(Retry) as retried:
        message.retry("later", 2.5)

    assert rejected.value.reason == "why"
    assert (retried.value.reason, retried.value.delay) == ("later", 2.5)
    assert Retry().delay is None


# -- what handlers give as reasons and delays ------------------------------------------------------------------------


class MuteError(Exception):
    """Cannot say what is wrong with it."""

    def __str__(self) -> str:
        raise LookupError


@pytest.mark.parametrize(
    ("given", "reason"),
    [("late", "late"), (ValueError("late"), "ValueError: late"), (MuteError(), "MuteError"), (None, "")],
)
def test_reasons_of_any_class(given: Any, reason: str) -> None:
    """Handlers give the exception that they caught: its name and text are the reason."""
    assert [Reject(given).reason, Retry(given).reason] == [reason, reason]


def test_delays() -> None:
    """A delay in the past means at once. An impossible one is refused, and the error names a valid value."""
    assert [Retry(delay=given).delay for given in (2, -3.5, None)] == [2, 0, None]
    for given in (float("nan"), float("inf"), "10"):
        with pytest.raises(ValueError, match="give a number of seconds"):
            Retry("later", given)  # type: ignore[arg-type]


# -- parts of transactions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [None, b"1", b"1/", b"0/2", b"3/2", b"1/2/3", b"1/2\n", b"+1/2", b"\xff\xfe", b"1/" + b"9" * 5_000],
)
def test_part_that_is_none(header: bytes | None) -> None:
    """A message with a foreign part header counts as sent alone, and stops nobody."""
    message = _made(fetched(headers=(("_RF_TX_PART", header), ("a", b"1"))))

    assert message.part is None
    assert message.headers == [("a", b"1")]
