from dataclasses import dataclass, field

import pytest

from agents.verdict import duplicate_id, identify
from tables.codec import encode_id

NAMES = ("_AMQ_DUPL_ID", "_HQ_DUPL_ID")
Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Given:
    """A consumed record."""

    headers: Headers
    offset: int = 0
    timestamp: int = 0
    key: bytes | None = None
    value: bytes | None = field(default=b"v")


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], None),
        ([("other", b"1")], None),
        ([("_amq_dupl_id", b"1")], None),
        ([("_AMQ_DUPL_ID", b"1")], b"1"),
        ([("_HQ_DUPL_ID", b"2")], b"2"),
        ([("x", b"0"), ("_AMQ_DUPL_ID", b"1"), ("y", b"3")], b"1"),
    ],
    ids=["none", "others only", "names have case", "first name", "second name", "among others"],
)
def test_present_or_absent(headers: Headers, expected: bytes | None) -> None:
    """The ID is the value of a configured header; without one there is no ID."""
    assert duplicate_id(headers, NAMES) == (None if expected is None else encode_id(expected))


@pytest.mark.parametrize("swapped", [False, True])
def test_order_of_names_counts(swapped: bool) -> None:
    """Of two names that are present the one that is configured first counts, wherever it stands in the message."""
    headers: Headers = [("_AMQ_DUPL_ID", b"1"), ("_HQ_DUPL_ID", b"2")]
    headers = headers[::-1] if swapped else headers

    assert duplicate_id(headers, NAMES) == encode_id(b"1")
    assert duplicate_id(headers, NAMES[::-1]) == encode_id(b"2")


def test_last_repeat_wins() -> None:
    """Of a repeated header the last counts, as in Kafka."""
    headers: Headers = [("_AMQ_DUPL_ID", b"1"), ("_HQ_DUPL_ID", b"x"), ("_AMQ_DUPL_ID", b"2")]

    assert duplicate_id(headers, NAMES) == encode_id(b"2")


def test_null_is_no_id() -> None:
    """A null value is no ID: the next name is asked."""
    assert duplicate_id([("_AMQ_DUPL_ID", None), ("_HQ_DUPL_ID", b"2")], NAMES) == encode_id(b"2")
    assert duplicate_id([("_AMQ_DUPL_ID", None)], NAMES) is None
    assert duplicate_id([("_AMQ_DUPL_ID", None), ("_HQ_DUPL_ID", None)], NAMES) is None


def test_null_as_the_last_repeat() -> None:
    """The last wins also when it is null: that header then has no value."""
    repeated: Headers = [("_AMQ_DUPL_ID", b"1"), ("_AMQ_DUPL_ID", None)]

    assert duplicate_id(repeated, NAMES) is None
    assert duplicate_id([*repeated, ("_HQ_DUPL_ID", b"2")], NAMES) == encode_id(b"2")


def test_empty_value_is_an_id() -> None:
    """An empty value is an ID, and the next name is not asked."""
    assert duplicate_id([("_AMQ_DUPL_ID", b""), ("_HQ_DUPL_ID", b"2")], NAMES) == encode_id(b"")


def test_long_id() -> None:
    """A long ID is given in its stored form."""
    assert duplicate_id([("_AMQ_DUPL_ID", b"x" * 300)], NAMES) == encode_id(b"x" * 300)


def test_bytes_are_compared_as_bytes() -> None:
    """No byte is trimmed, folded or decoded."""
    values = [b"a", b"A", b"a ", b" a", b"a\x00", b"\xff", "ä".encode(), "ä".encode("latin-1")]

    assert len({duplicate_id([("_AMQ_DUPL_ID", each)], NAMES) for each in values}) == len(values)


def test_identify() -> None:
    """One answer a record, in order; key and value are never taken for an ID."""
    records = [
        Given([("_AMQ_DUPL_ID", b"1")]),
        Given([], key=b"_AMQ_DUPL_ID", value=b"1"),
        Given([("_HQ_DUPL_ID", b"")]),
    ]

    assert identify(records, NAMES) == [encode_id(b"1"), None, encode_id(b"")]
    assert identify([], NAMES) == []
