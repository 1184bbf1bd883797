"""The check of two clusters, on hand-written histories: it must see each kind of fault, and none where there is none."""

import pytest

from app.check.bridge import HOP_HEADER, Crossing, judge
from app.check.records import ID_HEADER, SOURCE_HEADER, CannotJudgeError, Headers, Record


def sent(offset: int, known: str, group: str = "g", **more: str) -> Record:
    """As a producer sends it."""
    headers: Headers = ((ID_HEADER, known.encode()), *((name, item.encode()) for name, item in more.items()))
    return Record(0, offset, group.encode(), known.encode(), headers, 1_000 + offset)


def bridged(offset: int, record: Record, hop: str | None = None) -> Record:
    """As the bridge writes it at the target."""
    mark = (HOP_HEADER, (hop or f"b/{record.offset}").encode())
    return record._replace(offset=offset, headers=(*record.headers, mark))


def accepted(offset: int, record: Record, partition: int = 0) -> Record:
    """As the target accepts an input record."""
    headers = tuple(header for header in record.headers if header[0] != HOP_HEADER)
    source = (SOURCE_HEADER, f"orders/{record.partition}/{record.offset}".encode())
    return record._replace(partition=partition, offset=offset, headers=(*headers, source))


ONE, TWO, THREE, AGAIN = sent(0, "1"), sent(1, "2"), sent(2, "3"), sent(3, "1")
ORIGIN = [ONE, TWO, THREE, AGAIN]
TARGET = [bridged(0, ONE), bridged(1, TWO), bridged(2, ONE), sent(3, "3"), bridged(4, THREE), sent(5, "4")]
ACCEPTED = [accepted(2 * number, TARGET[count]) for number, count in enumerate((0, 1, 3, 5))]


def faults(found: Crossing) -> tuple[int, int, int, int]:
    """Lost, doubled, out of order, changed."""
    return len(found.lost), len(found.doubled), len(found.out_of_order), len(found.changed)


def test_exact() -> None:
    """A message that came both ways counts once, and so does one that the bridge wrote again."""
    found = judge(ORIGIN, TARGET, ACCEPTED)

    assert found.exact
    assert (found.sent_to_origin, found.sent_to_target, found.distinct, found.accepted) == (4, 2, 4, 4)
    assert (found.over_the_bridge, found.bridged_again, found.failed_over) == (4, 1, 1)


@pytest.mark.parametrize("missing", range(4))
def test_lost(missing: int) -> None:
    """A message that is missing from the accepted topic is lost, whichever way it came."""
    assert faults(judge(ORIGIN, TARGET, [*ACCEPTED[:missing], *ACCEPTED[missing + 1 :]])) == (1, 0, 0, 0)


@pytest.mark.parametrize("place", [2, 4])
def test_doubled(place: int) -> None:
    """A message is doubled if it comes over the bridge again, or over the bridge and directly."""
    found = judge(ORIGIN, TARGET, [*ACCEPTED, accepted(20, TARGET[place])])

    assert len(found.doubled) == 1
    assert found.doubled[0].endswith("accepted 2 times")


def test_out_of_order() -> None:
    """Two messages of one group that came the same way must keep their order; on different ways they need not."""
    one, two, three, four = ACCEPTED

    assert faults(judge(ORIGIN, TARGET, [two, one, three, four])) == (0, 0, 1, 0)
    assert faults(judge(ORIGIN, TARGET, [one, two, four, three])) == (0, 0, 1, 0)
    assert faults(judge(ORIGIN, TARGET, [three, one, two, four])) == (0, 0, 0, 0)


def test_group_in_two_partitions() -> None:
    """A group in two partitions is out of order, because a reader of one partition would not see all of it."""
    assert faults(judge(ORIGIN, TARGET, [*ACCEPTED[:3], accepted(0, TARGET[5], partition=1)])) == (0, 0, 1, 0)


def test_changed() -> None:
    """A change of key, value, header or time is reported, and so is a message that nobody sent."""
    for change in ({"value": b"other"}, {"timestamp": 1}, {"headers": (*ACCEPTED[0].headers, ("more", b""))}):
        assert faults(judge(ORIGIN, TARGET, [ACCEPTED[0]._replace(**change), *ACCEPTED[1:]]))[3] == 1
    assert faults(judge(ORIGIN[:1], TARGET[:1], [ACCEPTED[0], accepted(9, sent(0, "x", "h"))])) == (
        0,
        0,
        0,
        1,
    )


def test_no_source() -> None:
    """An accepted record that names no existing input record is a phantom."""
    strange = ACCEPTED[0]._replace(headers=(*ACCEPTED[0].headers[:-1], (SOURCE_HEADER, b"orders/7/7")))

    assert faults(judge(ORIGIN, TARGET, [strange, *ACCEPTED[1:]]))[2] == 1


def test_no_id() -> None:
    """A message without an ID cannot be judged."""
    with pytest.raises(CannotJudgeError, match="0/0 has no _AMQ_DUPL_ID"):
        judge([ONE._replace(headers=())], [], [])
