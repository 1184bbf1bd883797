"""Where a bridge goes on, and what stands beside its offsets."""

from dataclasses import replace

import pytest

from agents.bridge.begin import SourceLog, begin
from agents.bridge.note import BYTES_MAX, Map, Note, decode, encode

LOG = SourceLog("T" * 22, 2, start=10, stable=90, end=100)
NOTE = Note(LOG.topic_id, 2, forwarded=7)


def test_goes_on() -> None:
    """Where it stood, with what was counted."""
    found = begin(0, LOG, 50, NOTE, [], "latest")

    assert (found.offset, found.note, found.recreated, found.gap, found.beyond) == (50, NOTE, False, 0, False)


@pytest.mark.parametrize(("start", "expected"), [("earliest", 10), ("latest", 90)])
def test_first_start(start: str, expected: int) -> None:
    """At the first record, or at what committed readers see last."""
    found = begin(0, LOG, None, None, [], "latest" if start == "latest" else "earliest")

    assert (found.offset, found.note) == (expected, Note(LOG.topic_id, 2))


def test_partition_added() -> None:
    """One that was not there when the bridge began is forwarded from its beginning."""
    before = Note(LOG.topic_id, 1)

    assert begin(1, LOG, None, None, [before], "latest").offset == 10
    assert begin(1, LOG, None, None, [NOTE], "latest").offset == 90
    assert begin(1, LOG, None, None, [replace(before, topic_id="U" * 22)], "latest").offset == 90


def test_recreated() -> None:
    """The offset is of another topic: from the start, and nothing was counted yet."""
    found = begin(0, LOG, 50, replace(NOTE, topic_id="U" * 22, map=Map(1, ("a", "b"))), [], "latest")

    assert (found.offset, found.recreated) == (10, True)
    assert found.note == Note(LOG.topic_id, 2, map=Map(1, ("a", "b")))


def test_gap() -> None:
    """Retention took what comes next."""
    found = begin(0, LOG, 4, NOTE, [], "earliest")

    assert (found.offset, found.gap, found.note.gap_records) == (10, 6, 6)


def test_beyond_the_end() -> None:
    """It stays where it is; the end itself is not beyond."""
    assert begin(0, LOG, 101, NOTE, [], "earliest").beyond
    assert not begin(0, LOG, 100, NOTE, [], "earliest").beyond


def test_operator_commit() -> None:
    """An offset without a note is an offset all the same."""
    found = begin(0, LOG, 20, None, [], "earliest")

    assert (found.offset, found.note) == (20, Note(LOG.topic_id, 2))


def test_note_round_trip() -> None:
    """What is written is what is read."""
    note = Note("T" * 22, 3, "host-1", "http://h:1", 5, 4, 3, 2, 1, "target: away", 99, Map(2, ("a", "b")))

    assert decode(encode(note)) == note
    assert decode(encode(Note())) == Note()


def test_note_fits() -> None:
    """Kafka refuses commits whose text is too long: an error is cut, whatever it holds."""
    text = encode(
        Note("T" * 22, error="é\n" * 5_000, map=Map(1, tuple("m" * 50 + str(each) for each in range(40))))
    )

    assert len(text.encode()) <= BYTES_MAX
    assert decode(text) is not None


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "{}", '{"v":2}', '{"v":1,"map":{}}', '{"v":1,"forwarded":"x"}', "null"]
)
def test_not_a_note(text: str) -> None:
    """Anybody may write there."""
    assert decode(text) is None
