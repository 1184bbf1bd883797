"""Start offsets of a bridge, and the metadata beside its offsets."""

from dataclasses import replace

import pytest

from agents.bridge import offsets
from agents.bridge.offsets import Map, Missing, OffsetMetadata, SourceLog, decode, encode, start_position
from agents.bridge.window import Place
from tests.support.bridges.plans import plan

LOG = SourceLog("T" * 22, 2, start=10, stable=90, end=100)
NOTE = OffsetMetadata(LOG.topic_id, 2, forwarded=7)


ANOTHER = "U" * 22
THEIRS = replace(NOTE, topic_id=ANOTHER)
FRESH = OffsetMetadata(LOG.topic_id, 2)


def _missing(offset: int, reached: int = 110, topic_id: str = LOG.topic_id) -> Missing:
    return Missing(Place(0, topic_id, 80, offset, reached), offset)


@pytest.mark.parametrize(
    ("offset", "note", "expected"),
    [
        pytest.param(50, NOTE, (50, NOTE, False, 0), id="resumes, with its counts"),
        pytest.param(20, None, (20, FRESH, False, 0), id="an operator has set the offset"),
        pytest.param(4, NOTE, (10, replace(NOTE, gap_records=6), False, 6), id="retention deleted the next messages"),
        pytest.param(
            50, replace(THEIRS, map=Map(1, ("a", "b"))), (10, replace(FRESH, map=Map(1, ("a", "b"))), True, 0),
            id="of another topic: from its begin, with empty counts",
        ),
    ],
)  # fmt: skip
def test_begin(offset: int, note: OffsetMetadata | None, expected: tuple[object, ...]) -> None:
    found = start_position(0, LOG, offset, note, [], "latest")

    assert (found.offset, found.note, found.recreated, found.gap) == expected
    assert not found.beyond


def test_first_start() -> None:
    """A first start begins at the first or the last committed record; a partition that is added later, at its beginning."""
    before = OffsetMetadata(LOG.topic_id, 1)

    assert start_position(0, LOG, None, None, [], "earliest").offset == 10
    assert start_position(0, LOG, None, None, [], "latest").offset == 90
    assert start_position(0, LOG, None, None, [], "latest").note == FRESH
    assert start_position(1, LOG, None, None, [before], "latest").offset == 10
    assert start_position(1, LOG, None, None, [NOTE], "latest").offset == 90
    assert start_position(1, LOG, None, None, [replace(before, topic_id=ANOTHER)], "latest").offset == 90


@pytest.mark.parametrize(
    ("offset", "note", "missing", "beyond"),
    [
        pytest.param(101, NOTE, None, True, id="beyond the end of the log"),
        pytest.param(100, NOTE, None, False, id="at its end"),
        pytest.param(50, NOTE, _missing(105), True, id="what was sent decides, and not the last commit"),
        pytest.param(90, replace(NOTE, sent=101), None, True, id="a predecessor sent it: maybe in flight"),
        pytest.param(90, replace(NOTE, sent=100), None, False, id="a predecessor sent all of it"),
        pytest.param(50, NOTE, _missing(95, 95), True, id="the log grew again, with other records there"),
    ],
)
def test_lost_end(offset: int, note: OffsetMetadata, missing: Missing | None, beyond: bool) -> None:
    """A log that lost records which the target may have is noticed: it would discard new ones with their offsets."""
    assert start_position(0, LOG, offset, note, [], "earliest", missing).beyond is beyond


def test_what_changed_under_it() -> None:
    """A lost end keeps the confirmed offset. Confirmed messages without a commit do not count as a gap. Another topic begins at its start."""
    lost = start_position(0, LOG, 50, NOTE, [], "earliest", _missing(105))
    short = start_position(0, replace(LOG, start=85), 50, NOTE, [], "earliest", _missing(82, 82))
    other = start_position(0, LOG, 50, THEIRS, [], "earliest", _missing(105, topic_id=ANOTHER))

    assert (lost.offset, lost.note.lost_end) == (80, 110)
    assert (short.beyond, short.offset, short.gap) == (False, 85, 5)
    assert (other.beyond, other.recreated, other.offset) == (False, True, 10)


def test_stands_until_somebody_acts() -> None:
    """A lost end stays, however the log grows, until somebody sets the offset, which leaves no metadata, or the topic is another one."""
    stands = replace(NOTE, lost_end=110, error="stopped: ...")
    grown = replace(LOG, end=500)

    assert start_position(0, grown, 80, stands, [], "earliest").beyond
    assert not start_position(0, grown, 80, None, [], "earliest").beyond
    assert not start_position(0, grown, 80, replace(stands, topic_id=ANOTHER), [], "earliest").beyond


def test_way_out_of_a_lost_end() -> None:
    """The error suggests ``--reset-offsets`` only if an operator may have set the offset."""
    assert "another name" in offsets.lost_end(plan(), 0, 100, 80, 110)
    assert "--reset-offsets" not in offsets.lost_end(plan(), 0, 100, 80, 110)
    assert "--reset-offsets" in offsets.lost_end(plan(), 0, 100, 120)
    assert len(offsets.lost_end(plan(), 0, 2**62, 2**62, 2**62)) < offsets.ERROR_CHARACTERS_MAX


def test_note_round_trip() -> None:
    """Commit metadata reads back as it was written. An error in it is cut, because Kafka refuses commits with too long a text."""
    counts = (5, 4, 3, 2, 1)
    note = OffsetMetadata(
        "T" * 22, 3, "host-1", "http://h:1", *counts, "target: away", 99, Map(2, ("a", "b")), 7, 8, "at rest"
    )

    assert decode(encode(note)) == note
    assert decode(encode(OffsetMetadata())) == OffsetMetadata()
    members = Map(1, tuple("m" * 50 + str(index) for index in range(40)))
    text = encode(OffsetMetadata("T" * 22, error="é\n" * 5_000, map=members))

    assert len(text.encode()) <= offsets.BYTES_MAX
    assert decode(text) is not None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"v":2}', '{"v":1,"map":{}}', '{"v":1,"forwarded":"x"}'])
def test_not_a_note(text: str) -> None:
    assert decode(text) is None
