"""Start offsets of a bridge, and the metadata beside its offsets."""

from dataclasses import replace

import pytest

from agents.bridge.offsets import (
    BYTES_MAX,
    ERROR_CHARACTERS_MAX,
    Map,
    Missing,
    OffsetMetadata,
    SourceLog,
    begin,
    decode,
    encode,
    lost_end,
)
from agents.bridge.plan import plans
from agents.bridge.window import Place
from ringfence_kafka.config.load import validate

LOG = SourceLog("T" * 22, 2, start=10, stable=90, end=100)
NOTE = OffsetMetadata(LOG.topic_id, 2, forwarded=7)


def test_goes_on() -> None:
    """A bridge resumes at its committed offset, with the counts from its metadata."""
    found = begin(0, LOG, 50, NOTE, [], "latest")

    assert (found.offset, found.note, found.recreated, found.gap, found.beyond) == (50, NOTE, False, 0, False)


@pytest.mark.parametrize(("start", "expected"), [("earliest", 10), ("latest", 90)])
def test_first_start(start: str, expected: int) -> None:
    """A first start begins at the first record, or at the last one that committed readers see."""
    found = begin(0, LOG, None, None, [], "latest" if start == "latest" else "earliest")

    assert (found.offset, found.note) == (expected, OffsetMetadata(LOG.topic_id, 2))


def test_partition_added() -> None:
    """A partition added after the bridge began is forwarded from its beginning."""
    before = OffsetMetadata(LOG.topic_id, 1)

    assert begin(1, LOG, None, None, [before], "latest").offset == 10
    assert begin(1, LOG, None, None, [NOTE], "latest").offset == 90
    assert begin(1, LOG, None, None, [replace(before, topic_id="U" * 22)], "latest").offset == 90


def test_recreated() -> None:
    """The offset of another topic does not count: the bridge starts at the begin, with empty counts."""
    found = begin(0, LOG, 50, replace(NOTE, topic_id="U" * 22, map=Map(1, ("a", "b"))), [], "latest")

    assert (found.offset, found.recreated) == (10, True)
    assert found.note == OffsetMetadata(LOG.topic_id, 2, map=Map(1, ("a", "b")))


def test_gap() -> None:
    """A gap is reported if retention deleted the next messages."""
    found = begin(0, LOG, 4, NOTE, [], "earliest")

    assert (found.offset, found.gap, found.note.gap_records) == (10, 6, 6)


def test_beyond_the_end() -> None:
    """An offset beyond the end of the log is reported; the end itself is not beyond."""
    assert begin(0, LOG, 101, NOTE, [], "earliest").beyond
    assert not begin(0, LOG, 100, NOTE, [], "earliest").beyond


def _missing(offset: int, confirmed: int = 80, reached: int = 110, topic_id: str = LOG.topic_id) -> Missing:
    return Missing(Place(0, topic_id, confirmed, offset, reached), offset)


def test_lost_end_under_it() -> None:
    """The offset that was sent decides, not the last commit. New messages below it have offsets that the target knows."""
    found = begin(0, LOG, 50, NOTE, [], "earliest", _missing(105))

    assert (found.beyond, found.offset, found.note.lost_end) == (True, 80, 110)


def test_lost_end_of_what_a_predecessor_sent() -> None:
    """An offset sent by a predecessor counts, since the target may have its messages in flight."""
    assert begin(0, LOG, 90, replace(NOTE, sent=101), [], "earliest").beyond
    assert not begin(0, LOG, 90, replace(NOTE, sent=100), [], "earliest").beyond


def test_lost_end_and_grown() -> None:
    """A log that lost its end and grew again has other records at the old offsets.

    The target may have received more than the log has.
    """
    assert begin(0, LOG, 50, NOTE, [], "earliest", _missing(95, reached=95)).beyond


def test_retention_under_it() -> None:
    """Messages that were confirmed but not yet committed do not count as a gap."""
    found = begin(0, replace(LOG, start=85), 50, NOTE, [], "earliest", _missing(82, reached=82))

    assert (found.beyond, found.offset, found.gap) == (False, 85, 5)


def test_recreated_under_it() -> None:
    """The state of the former topic does not apply to a recreated one."""
    found = begin(
        0, LOG, 50, replace(NOTE, topic_id="U" * 22), [], "earliest", _missing(105, topic_id="U" * 22)
    )

    assert (found.beyond, found.recreated, found.offset) == (False, True, 10)


def test_stands_until_somebody_acts() -> None:
    """A lost end stays, even if the log grows beyond it.

    It ends when somebody sets the offset, which leaves no metadata, or when the topic is another one.
    """
    stands = replace(NOTE, lost_end=110, error="stopped: ...")
    grown = replace(LOG, end=500)

    assert begin(0, grown, 80, stands, [], "earliest").beyond
    assert not begin(0, grown, 80, None, [], "earliest").beyond
    assert not begin(0, grown, 80, replace(stands, topic_id="U" * 22), [], "earliest").beyond


def test_way_out_of_a_lost_end() -> None:
    """The error suggests ``--reset-offsets`` only if an operator may have set the offset.

    After the end of a forwarded log was lost, the target would discard new messages at these offsets.
    """
    (plan,) = plans(
        validate(
            {
                "bridges": [
                    {
                        "name": "b",
                        "source_topic": "s",
                        "target_address": "t",
                        "target": {"bootstrap_servers": "x:1"},
                    }
                ]
            }
        )
    )

    assert "another name" in lost_end(plan, 0, 100, 80, 110)
    assert "--reset-offsets" not in lost_end(plan, 0, 100, 80, 110)
    assert "--reset-offsets" in lost_end(plan, 0, 100, 120)
    assert len(lost_end(plan, 0, 2**62, 2**62, 2**62)) < ERROR_CHARACTERS_MAX


def test_operator_commit() -> None:
    """An offset without metadata counts as well."""
    found = begin(0, LOG, 20, None, [], "earliest")

    assert (found.offset, found.note) == (20, OffsetMetadata(LOG.topic_id, 2))


def test_note_round_trip() -> None:
    """Commit metadata reads back as it was written."""
    note = OffsetMetadata(
        "T" * 22,
        3,
        "host-1",
        "http://h:1",
        5,
        4,
        3,
        2,
        1,
        "target: away",
        99,
        Map(2, ("a", "b")),
        7,
        8,
        "at rest",
    )

    assert decode(encode(note)) == note
    assert decode(encode(OffsetMetadata())) == OffsetMetadata()


def test_note_fits() -> None:
    """An error in the metadata is cut, because Kafka refuses commits with too long a text."""
    text = encode(
        OffsetMetadata(
            "T" * 22, error="é\n" * 5_000, map=Map(1, tuple("m" * 50 + str(index) for index in range(40)))
        )
    )

    assert len(text.encode()) <= BYTES_MAX
    assert decode(text) is not None


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "{}", '{"v":2}', '{"v":1,"map":{}}', '{"v":1,"forwarded":"x"}', "null"]
)
def test_not_a_note(text: str) -> None:
    """Metadata that a bridge did not write is ignored."""
    assert decode(text) is None
