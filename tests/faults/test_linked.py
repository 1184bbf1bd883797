"""Clients of a link stay on it, also over a restart of the broker."""

from tests.support import kafka
from tests.support.brokers.linked import LinkedBroker
from tests.support.kafka import Sent

SENT = Sent(None, b"key", b"x" * 10_000)


def test_clients_stay_on_their_link(linked: LinkedBroker) -> None:
    """What a client sends goes through its link and no other one, before and after the broker was killed."""
    name = kafka.unique("linked")
    kafka.create_topics(linked.bootstrap, {name: (1, {})})
    carried = []
    for restart in (False, True):
        if restart:
            linked.broker.kill()
            linked.broker.start()
        for link in linked.links:
            link.delay(0.001)
        before = [link.bytes_delayed for link in linked.links]
        kafka.send(linked.links[0].bootstrap, name, [SENT])
        carried.append(
            [link.bytes_delayed - so_far for link, so_far in zip(linked.links, before, strict=True)]
        )
        linked.heal()
    got = kafka.read_all(linked.links[1].bootstrap, name, 1)

    assert [item.value for item in got] == [SENT.value] * 2
    for first, second in carried:
        assert first > len(SENT.value or b"")
        assert second < 1_000  # a client of before that has not ended may ask for something
