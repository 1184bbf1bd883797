"""What the benchmark sees of topics in which transactions leave markers."""

from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from bench import topics
from bench.topics import Committed, Counted
from tests.support import kafka
from tests.support.kafka import Sent


def test_data_end_is_behind_the_last_committed_record(broker: Any) -> None:
    """Not behind the markers, nor behind what was aborted, however much of it; an empty partition ends at 0."""
    bootstrap, topic = broker.bootstrap_servers, kafka.unique("bench-ends")
    kafka.create_topics(bootstrap, {topic: (4, {})})
    kafka.send_in_transaction(bootstrap, topic, [Sent()] * 3, commit=True)
    kafka.send_in_transaction(bootstrap, topic, [Sent()] * 3, commit=True, partition=1)
    kafka.send_in_transaction(bootstrap, topic, [Sent()] * 300, commit=False, partition=1)
    kafka.send_in_transaction(bootstrap, topic, [Sent()], commit=False, partition=2)

    assert topics.data_ends(bootstrap, topic, 4) == [3, 3, 0, 0]
    assert kafka.end_offsets(bootstrap, topic, 4) == [4, 305, 2, 0]


def test_progress_tells_input_from_forward_topic(broker: Any) -> None:
    """The input's partitions are summed up, the forward topic's are not; without a commit both are at 0."""
    bootstrap, topic, forward = broker.bootstrap_servers, kafka.unique("bench-in"), kafka.unique("bench-fwd")
    kafka.create_topics(bootstrap, {topic: (2, {}), forward: (2, {})})
    group = kafka.unique("bench-group")
    with topics.Progress(bootstrap, group, topic, 2, forward) as progress:
        before = progress.committed()
        _commit(bootstrap, group, [(topic, 0, 5), (topic, 1, 6), (forward, 1, 7)])
        after = progress.committed()

    assert before == Committed(0, (0, 0))
    assert after == Committed(11, (0, 7))
    assert after.position == 18


@pytest.mark.parametrize(
    ("offsets", "out_of_order"), [([1, 2, 9], 0), ([1, 9, 2], 1), ([9, 1, 2], 1), ([9, 2, 1], 2)]
)
def test_count_sees_the_order_in_a_group(broker: Any, offsets: list[int], out_of_order: int) -> None:
    """Order is that of one group in one input partition: other groups and partitions between them do not matter."""
    bootstrap, topic = broker.bootstrap_servers, kafka.unique("bench-count")
    kafka.create_topics(bootstrap, {topic: (1, {})})
    records = []
    for number, offset in enumerate(offsets):
        records.append(_accepted(number, b"a", b"in/0/%d" % offset))
        records.append(_accepted(number, b"a", b"in/1/%d" % number))
        records.append(_accepted(number, b"b", b"in/0/%d" % number))
    kafka.send(bootstrap, topic, records)

    assert topics.count(bootstrap, topic, 1) == Counted(9, 3, out_of_order)


def test_count_sees_the_order_by_hops(broker: Any) -> None:
    """What came over a bridge names its source in its hop."""
    bootstrap, topic = broker.bootstrap_servers, kafka.unique("bench-hops")
    kafka.create_topics(bootstrap, {topic: (1, {})})
    hops = [b"b/%b/0/%d" % (b"A" * 22, offset) for offset in (1, 3, 2)]
    records = [
        Sent(b"%d" % number, b"a", headers=(("_RF_BRIDGE_DUPL_ID", hop),)) for number, hop in enumerate(hops)
    ]
    kafka.send(bootstrap, topic, records)

    assert topics.count(bootstrap, topic, 1) == Counted(3, 3, 1)
    with topics.Written(bootstrap, topic, 1) as written:
        assert written.committed() == Committed(3)


def _commit(bootstrap: str, group: str, offsets: list[tuple[str, int, int]]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        consumer.commit(offsets=[TopicPartition(*offset) for offset in offsets], asynchronous=False)
    finally:
        consumer.close()


def _accepted(number: int, group: bytes, source: bytes) -> Sent:
    return Sent(b"%d" % number, group, headers=(("_RF_SOURCE", source),))
