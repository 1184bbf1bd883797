"""The translation of a source record into a target record."""

from typing import NamedTuple

import pytest

from agents.bridge.translation import Header, Translator


class Record(NamedTuple):
    """As a consumer reads it."""

    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: tuple[Header, ...] = ()
    offset: int = 7
    timestamp: int = 1_234


def _headers(translator: Translator, *headers: Header) -> list[Header]:
    found = translator.translate(Record(headers=headers))
    assert found is not None
    return list(found.headers)


def test_as_it_is() -> None:
    """Key, value, timestamp and users' headers stay, with repeats and order."""
    headers = (("b", b"1"), ("a", None), ("b", b"2"), ("_AMQ_DUPL_ID", b"id"))
    found = Translator().translate(Record(None, None, headers))

    assert found is not None
    assert (found.offset, found.key, found.value, found.timestamp) == (7, None, None, 1_234)
    assert list(found.headers) == list(headers)


def test_accepted_record() -> None:
    """An accepted record gets its input key back, and loses the headers that the lane wrote."""
    headers: tuple[Header, ...] = (
        ("_RF_SOURCE", b"orders/0/1"), ("_RF_KEY", b"input key"), ("a", b"1"), ("_RF_TX_PART", b"1/2"), ("_RF_SEQ", b"7"),
    )  # fmt: skip
    found = Translator().translate(Record(b"group", headers=headers))

    assert found is not None
    assert (found.key, list(found.headers)) == (b"input key", [("a", b"1")])


def test_accepted_record_without_a_key() -> None:
    """A null key that the group replaced is null again; without the header the key was the group."""
    found = Translator().translate(Record(b"group", headers=(("_RF_SOURCE", b"o/0/1"), ("_RF_KEY", None))))
    kept = Translator().translate(Record(b"group", headers=(("_RF_SOURCE", b"o/0/1"),)))

    assert found is not None
    assert kept is not None
    assert (found.key, kept.key) == (None, b"group")


def test_envelope_of_an_input() -> None:
    """An envelope keeps its envelope header, and loses the headers of another bridge's hop."""
    headers: tuple[Header, ...] = (
        ("_RF_TX", b"json/1"), ("_RF_BRIDGE_DUPL_ID", b"x"), ("_RF_BRIDGE_CONFIRMED", b"0"), ("_RF_BRIDGE_IDS", b"ignore"),
    )  # fmt: skip
    assert _headers(Translator(), *headers) == [("_RF_TX", b"json/1")]


@pytest.mark.parametrize("wrote", ["_RF_SOURCE", "_RF_BRIDGE_DUPL_ID"])
def test_hops_that_a_lane_or_a_bridge_wrote(wrote: str) -> None:
    """A hop trace that a lane or a bridge wrote stays, so that a forwarded message does not come back."""
    assert _headers(Translator(), (wrote, b"x"), ("_RF_HOPS", b"berlin")) == [("_RF_HOPS", b"berlin")]


def test_hops_of_a_client() -> None:
    """A client's own hop trace is removed, because only lanes and bridges may write one."""
    assert _headers(Translator(), ("_RF_HOPS", b"berlin"), ("a", b"1")) == [("a", b"1")]


def _connection(max_hops: int = 1) -> Translator:
    return Translator(this="paris", member="rome", max_hops=max_hops)


def test_connection_says_where_it_was() -> None:
    """The trace gets the forwarding member added."""
    assert _headers(_connection(), ("_RF_SOURCE", b"x")) == [("_RF_HOPS", b"paris")]
    assert _headers(_connection(2), ("_RF_SOURCE", b"x"), ("_RF_HOPS", b"berlin")) == [
        ("_RF_HOPS", b"berlin,paris")
    ]


def test_connection_counts_hops() -> None:
    """A message that has passed as many members as it may is not forwarded."""
    record = Record(headers=(("_RF_SOURCE", b"x"), ("_RF_HOPS", b"berlin")))

    assert _connection(1).translate(record) is None
    assert _connection(2).translate(record) is not None


def test_no_echo() -> None:
    """A message does not return to a member that it has passed, however many hops it may make."""
    record = Record(headers=(("_RF_SOURCE", b"x"), ("_RF_HOPS", b"rome,berlin")))

    assert _connection(9).translate(record) is None


def test_a_forged_hop_keeps_nothing_back() -> None:
    """A client's own list does not stop its message."""
    found = _headers(_connection(), ("_RF_HOPS", b"rome,berlin"))

    assert found == [("_RF_HOPS", b"paris")]


def test_connection_says_whom_it_reaches() -> None:
    """A message that may go further names the other members served from here, so nobody else brings it there.

    Members that it has passed are not named again.
    """
    to_rome = Translator(this="paris", member="rome", max_hops=2, members=["berlin", "oslo", "rome"])

    assert _headers(to_rome, ("_RF_SOURCE", b"x"), ("_RF_HOPS", b"berlin")) == [
        ("_RF_HOPS", b"berlin,paris,+oslo")
    ]
    reached = Record(headers=(("_RF_SOURCE", b"x"), ("_RF_HOPS", b"berlin,+rome,+oslo")))
    assert to_rome.translate(reached) is None
    once = Translator(this="paris", member="rome", max_hops=1, members=["berlin", "oslo", "rome"])
    assert _headers(once, ("_RF_SOURCE", b"x")) == [("_RF_HOPS", b"paris")]


def test_topics_are_no_members() -> None:
    """Topics passed over other bridges stay in the trace, and do not count as members."""
    record = Record(headers=(("_RF_SOURCE", b"x"), ("_RF_HOPS", b"*rome")))
    found = _connection(1).translate(record)

    assert found is not None
    assert list(found.headers) == [("_RF_HOPS", b"*rome,paris")]


def test_filter() -> None:
    """The last header of the name decides; a missing or null header has no value."""
    translator = Translator("land", ["fr", "é"])

    assert translator.translate(Record(headers=(("land", b"de"), ("land", b"fr")))) is not None
    assert translator.translate(Record(headers=(("land", "é".encode()),))) is not None
    for headers in ((), (("land", None),), (("land", b"fr"), ("land", b"de")), (("Land", b"fr"),)):
        assert translator.translate(Record(headers=headers)) is None


def test_added_headers() -> None:
    """An added header replaces those of its name."""
    translator = Translator(add_headers={"by": "bridge"})

    assert _headers(translator, ("by", b"me"), ("a", b"1"), ("by", b"you")) == [
        ("a", b"1"),
        ("by", b"bridge"),
    ]
