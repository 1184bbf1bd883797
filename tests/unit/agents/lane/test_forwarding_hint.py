import logging
from types import SimpleNamespace

import pytest

from agents.lane.forwarding_hint import AGAIN_AFTER_S, ForwardingHint
from ringfence_kafka.config.load import validate


def _hint(partitioner: str = "murmur2", *, chained: bool = False) -> ForwardingHint:
    settings = validate({"addresses": [{"name": "orders", "partitioner": partitioner}]})
    return ForwardingHint(settings.addresses[0], chained=chained)


def _said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "ringfence.lane"]


@pytest.mark.parametrize(
    ("partitioner", "remedy"),
    [
        ("murmur2", 'set partitioner = "crc32" for orders if its producers use that one (librdkafka'),
        ("crc32", 'set partitioner = "murmur2" for orders if its producers use that one (Java, aiokafka)'),
    ],
)
def test_remedy(partitioner: str, remedy: str, clock: object, caplog: pytest.LogCaptureFixture) -> None:
    """The line names the lane, the share, the other partitioner with its clients, and what no partitioner fixes."""
    _hint(partitioner).count("orders-3", 750, 250)

    (said,) = _said(caplog)
    assert said.startswith("lane orders-3: 75 % of the records are forwarded to their home: " + remedy)
    assert said.endswith("records without a key, or with a key other than the group, are always forwarded")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_share_of_all_since_the_last_look(clock: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    """The share covers all batches since the last check, in counts of a thousand records; the hint comes again after the interval."""
    watched = _hint()
    for _ in range(10):
        watched.count("orders-3", 9, 91)
    assert _said(caplog) == []

    clock.now += 2 * AGAIN_AFTER_S
    for forwarded in (20, 20, *[10] * 8):
        watched.count("orders-3", forwarded, 100 - forwarded)
    (said,) = _said(caplog)
    assert said.split(": ")[1] == "12 % of the records are forwarded to their home"

    clock.now += AGAIN_AFTER_S
    watched.count("orders-3", 5_000, 0)
    assert len(_said(caplog)) == 1
    clock.now += 0.1
    watched.count("orders-3", 10, 1_990)
    assert len(_said(caplog)) == 1
    watched.count("orders-3", 5_000, 0)
    assert len(_said(caplog)) == 2


@pytest.mark.parametrize(
    ("homes", "place", "former"),
    [({5}, (1, 8), 4), ({3, 5, 7}, (1, 8), 2), ({0}, (4, 8), 0), (set[int](), (1, 8), 0)],
)
def test_producers_that_do_not_know_new_partitions(
    homes: set[int],
    place: tuple[int, int],
    former: int,
    clock: SimpleNamespace,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The hint after a growth names the producers' old partitions instead of another partitioner."""
    _hint().count("orders-1", 500, 500, homes, place)

    (said,) = _said(caplog)
    assert (f"producers still choose among {former} of the 8 partitions of orders" in said) == bool(former)
    assert ("set partitioner" in said) != bool(former)


def test_a_chained_address(clock: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    """The hint for a chained address blames neither partitioner nor producers, because workers write its input."""
    _hint(chained=True).count("orders-0", 900, 100, {1}, (0, 2))

    (said,) = _said(caplog)
    assert said.endswith("so this is by design")
