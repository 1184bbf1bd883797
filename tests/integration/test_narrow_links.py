"""Bridges and consumers over a link that carries less in the time of a request than they would send, or ask for, at once."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.bridge.source import RESPONSE_BYTES_MAX
from tests.harness.checker.groups import judge, parse
from tests.harness.workloads.message_groups import Shape, accept, generate, sizes
from tests.support import kafka
from tests.support.bridges import processes
from tests.support.bridges.processes import Two, prepare
from tests.support.brokers.linked import LinkedBroker, linked_broker
from tests.support.consumers.processes import ConsumerProcess, consumers, noted
from tests.support.kafka import Sent
from tests.support.worker import configure, wait_for

SEED = 71
COUNT = 150
BYTES = 10_000
BATCH = 10
PARTITIONS = 6
SHAPE = Shape(messages=150, group_size=5, interleave=30)
REQUEST_MS = 1_000
NARROW = 300_000
"""Bytes a second: 1/5 of all in the time of a request."""


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedBroker]:
    """The other broker, at the far end of the link."""
    with linked_broker(tmp_path_factory.mktemp("far"), links=1, properties=processes.FOREVER) as far:
        yield far


@pytest.mark.parametrize("side", ["target", pytest.param("source", marks=pytest.mark.long)])
async def test_flows_over_a_narrow_link(
    broker: object,
    bootstrap: str,
    linked: LinkedBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    side: str,
) -> None:
    """What takes longer than a request may would be lost with each attempt: it is divided until it passes, and grows when that is well again."""
    monkeypatch.setattr("ringfence_kafka.auth.client_options.REQUEST_TIMEOUT_MS", REQUEST_MS)
    monkeypatch.setattr("agents.bridge.flow.REQUEST_TIMEOUT_MS", REQUEST_MS)
    monkeypatch.setattr("ringfence_kafka.producer.idempotent.ACKNOWLEDGED_WITHIN_S", 2 * REQUEST_MS / 1000)
    link, to_target = linked.links[0], side == "target"
    link.open()
    two = Two(bootstrap, linked.bootstrap) if to_target else Two(link.bootstrap, bootstrap)
    given = prepare(two, tmp_path, target=link.bootstrap if to_target else "")
    padding = random.Random(SEED).randbytes(BYTES * COUNT)
    for first in range(0, COUNT, BATCH):  # of a fetch one batch comes in any case
        given.send([
            Sent(key=b"%d" % (index % 7), value=b"%06d" % index + padding[index * BYTES : (index + 1) * BYTES])
            for index in range(first, first + BATCH)
        ])  # fmt: skip
    link.narrow(NARROW)
    async with processes.in_this_process(given.config) as (bridge,):
        await asyncio.to_thread(given.settled, [COUNT])
        portion = bridge._flow.portion if to_target else bridge._partitions.consumer.portion.portion
        narrowed = portion.bytes
    got = processes.passed(given.got())

    assert sorted(int((item.value or b"")[:6]) for item in got) == list(range(COUNT))
    assert narrowed < RESPONSE_BYTES_MAX / 8
    assert link.bytes_delayed > BYTES * COUNT


@pytest.mark.long
def test_consumer_over_a_narrow_link(linked: LinkedBroker, tmp_path: Path) -> None:
    """It asks for less until that comes in time: all is handled, in order."""
    link, name = linked.links[0], kafka.unique("narrow")
    link.open()
    config = configure(tmp_path, linked.bootstrap, name, [{"name": name, "partitions": PARTITIONS}])
    sent = generate(SHAPE, SEED, "narrow")
    for first in range(0, len(sent), BATCH):
        accept(linked.bootstrap, name, sent[first : first + BATCH], padding=2 * BYTES)
    options = ("--bootstrap-server", link.bootstrap, "-X", f"request.timeout.ms={REQUEST_MS}")
    process = ConsumerProcess(config, "far", name, f"{name}-group", *options)
    before = link.bytes_delayed
    link.narrow(NARROW)
    with consumers(process):
        wait_for(lambda: len(noted(process.handled)) == 2 * len(sent), process.log, 120)
        link.open()
    runs = parse(noted(process.handled))

    assert judge(runs, sizes(sent)) == []
    assert link.bytes_delayed - before > 2 * BYTES * len(sent)
