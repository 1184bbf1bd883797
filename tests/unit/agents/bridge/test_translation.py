"""The translation of a source record into a target record."""

from collections.abc import Sequence
from functools import partial

import pytest

from agents.bridge.translation import Header, Translator
from tests.unit.agents.decision.test_decide import Given

Record = partial(Given, 7, timestamp=1_234)


def test_as_it_is() -> None:
    """Key, value, timestamp and users' headers stay, with repeats and order."""
    headers = (("b", b"1"), ("a", None), ("b", b"2"), ("_AMQ_DUPL_ID", b"id"))
    found = Translator().translate(Record(None, headers, None))

    assert found is not None
    assert (found.offset, found.key, found.value, found.timestamp) == (7, None, None, 1_234)
    assert list(found.headers) == list(headers)


def test_accepted_record() -> None:
    """An accepted record gets its input key back, a null one too, and loses the headers that the lane wrote."""
    ours: list[Header] = [("_RF_SOURCE", b"o/0/1"), ("a", b"1"), ("_RF_TX_PART", b"1/2"), ("_RF_SEQ", b"7")]
    keys: list[list[Header]] = [[("_RF_KEY", b"input key")], [("_RF_KEY", None)], []]
    found = [Translator().translate(Record(b"group", (*ours, *key))) for key in keys]

    assert [item and (item.key, list(item.headers)) for item in found] == [
        (key, [("a", b"1")]) for key in (b"input key", None, b"group")
    ]


def _connection(max_hops: int = 1, members: Sequence[str] = ()) -> Translator:
    return Translator(this="paris", member="rome", max_hops=max_hops, members=members)


HOPS = ("_RF_HOPS", b"berlin")


@pytest.mark.parametrize(
    ("translator", "headers", "kept"),
    [
        # An envelope stays one, without the headers of another bridge's hop.
        (Translator(), [("_RF_TX", b"json/1"), ("_RF_BRIDGE_DUPL_ID", b"x"), ("_RF_BRIDGE_CONFIRMED", b"0"), ("_RF_BRIDGE_IDS", b"ignore")],
         [("_RF_TX", b"json/1")]),
        # Only lanes and bridges may write a trace, which stays so that the message does not come back.
        (Translator(), [("_RF_SOURCE", b"x"), HOPS], [HOPS]),
        (Translator(), [("_RF_BRIDGE_DUPL_ID", b"x"), HOPS], [HOPS]),
        (Translator(), [HOPS, ("a", b"1")], [("a", b"1")]),
        (_connection(), [("_RF_HOPS", b"rome,berlin")], [("_RF_HOPS", b"paris")]),
        # An added header replaces those of its name.
        (Translator(add_headers={"by": "bridge"}), [("by", b"me"), ("a", b"1"), ("by", b"you")], [("a", b"1"), ("by", b"bridge")]),
    ],
)  # fmt: skip
def test_headers(translator: Translator, headers: list[Header], kept: list[Header]) -> None:
    found = translator.translate(Record(headers=(*headers,)))

    assert found is not None
    assert list(found.headers) == kept


def test_no_echo() -> None:
    """A message does not return to a member that it has passed, however many hops it may make."""
    record = Record(headers=(("_RF_SOURCE", b"x"), ("_RF_HOPS", b"rome,berlin")))

    assert _connection(9).translate(record) is None


ALL = ["berlin", "oslo", "rome"]


@pytest.mark.parametrize(
    ("max_hops", "members", "before", "after"),
    [
        (1, [], None, b"paris"),
        (2, [], b"berlin", b"berlin,paris"),
        (1, [], b"berlin", None),  # as many members as it may pass
        (1, [], b"*rome", b"*rome,paris"),  # topics, passed over other bridges, are no members
        (2, ALL, b"berlin", b"berlin,paris,+oslo"),  # so nobody else brings it there
        (2, ALL, b"berlin,+rome,+oslo", None),
        (1, ALL, None, b"paris"),  # it goes no further
    ],
)
def test_trace(max_hops: int, members: list[str], before: bytes | None, after: bytes | None) -> None:
    """The trace gets the forwarding member, and those that it serves if the message may go further."""
    trace = [] if before is None else [("_RF_HOPS", before)]
    found = _connection(max_hops, members).translate(Record(headers=(("_RF_SOURCE", b"x"), *trace)))

    assert (found and list(found.headers)) == (None if after is None else [("_RF_HOPS", after)])


def test_filter() -> None:
    """The last header of the name decides; a missing or null header has no value."""
    translator = Translator("land", ["fr", "é"])

    assert translator.translate(Record(headers=(("land", b"de"), ("land", b"fr")))) is not None
    assert translator.translate(Record(headers=(("land", "é".encode()),))) is not None
    for headers in ((), (("land", None),), (("land", b"fr"), ("land", b"de")), (("Land", b"fr"),)):
        assert translator.translate(Record(headers=headers)) is None
