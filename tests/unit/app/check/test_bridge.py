import pytest

from app.check.bridge import Crossing, judge
from app.check.records import HOP_HEADER, ID_HEADER, SOURCE_HEADER, CannotJudgeError, Record


def sent(offset: int, known: str, group: str = "g") -> Record:
    return Record(0, offset, group.encode(), known.encode(), ((ID_HEADER, known.encode()),), 1_000 + offset)


def bridged(offset: int, record: Record) -> Record:
    return record._replace(offset=offset, headers=(*record.headers, (HOP_HEADER, b"b/%d" % record.offset)))


def accepted(offset: int, record: Record, partition: int = 0) -> Record:
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


def test_lost_or_doubled() -> None:
    """A message that is missing from the accepted topic is lost, whichever way it came, and one that comes twice is doubled."""
    for missing in ACCEPTED:
        rest = [record for record in ACCEPTED if record is not missing]
        assert faults(judge(ORIGIN, TARGET, rest)) == (1, 0, 0, 0)
    for place in (2, 4):
        [doubled] = judge(ORIGIN, TARGET, [*ACCEPTED, accepted(20, TARGET[place])]).doubled
        assert doubled.endswith("accepted 2 times")


def test_out_of_order() -> None:
    """Two messages of one group that came the same way must keep their order; on different ways they need not."""
    one, two, three, four = ACCEPTED
    elsewhere = accepted(0, TARGET[5], partition=1)

    for records in ([two, one, three, four], [one, two, four, three], [one, two, three, elsewhere]):
        assert faults(judge(ORIGIN, TARGET, records)) == (0, 0, 1, 0)
    assert faults(judge(ORIGIN, TARGET, [three, one, two, four])) == (0, 0, 0, 0)


def test_changed() -> None:
    """A change of key, value, header or time is reported, and so is a message that nobody sent.

    An accepted record that names no existing input record is a phantom. A message without an ID cannot be judged.
    """
    first, *rest = ACCEPTED
    for change in ({"value": b"other"}, {"timestamp": 1}, {"headers": (*first.headers, ("more", b""))}):
        assert faults(judge(ORIGIN, TARGET, [first._replace(**change), *rest]))[3] == 1
    nobodys = accepted(9, sent(0, "x", "h"))
    assert faults(judge(ORIGIN[:1], TARGET[:1], [first, nobodys])) == (0, 0, 0, 1)
    strange = first._replace(headers=(*first.headers[:-1], (SOURCE_HEADER, b"orders/7/7")))
    assert faults(judge(ORIGIN, TARGET, [strange, *rest]))[2] == 1
    with pytest.raises(CannotJudgeError, match="0/0 has no _AMQ_DUPL_ID"):
        judge([ONE._replace(headers=())], [], [])
