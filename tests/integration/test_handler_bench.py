"""The bench for tests of handlers and a consumer on a broker: the same handler, the same messages, the same outcome."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

from ringfence_client import ConsumerOptions, Message, PartNumber, Reject
from ringfence_client.testing import AsyncHandlerBench, message
from ringfence_client.testing.messages import accepted_record
from ringfence_kafka.protocol import wire_names
from tests.support import kafka
from tests.support.consumers.in_process import Recorder, consuming
from tests.support.kafka import Sent

PARTITIONS = 3
OPTIONS: dict[str, Any] = {
    "concurrency": 4, "max_attempts": 3, "retry_delay": 0.01, "retry_jitter": 0.0, "reject_on": (KeyError,),
}  # fmt: skip


def given() -> list[Message]:
    """Messages of three groups and of none, with everything that a message can have."""
    return [
        message("1", group="alice", duplicate_id="a-1"),
        message("fail once", group="alice"),
        message("2", group="alice", headers={"trace": "x"}, part=PartNumber(1, 2)),
        message("3", group="bob", key="order-7"),
        message("reject", group="bob"),
        message("not known", group="bob"),
        message("4", group="bob", source="elsewhere/2/99"),
        message("broken", group="carol"),
        message("delete", group="carol"),
        message("6"),
        message("large", group="alice"),
    ]


def by_group(records: Iterable[Any]) -> dict[bytes | None, list[tuple[Any, ...]]]:
    """Places and contents, in order; sends of this handler name their group in the key, or a header."""
    found: dict[bytes | None, list[tuple[Any, ...]]] = defaultdict(list)
    for item in records:
        headers = tuple((name, value) for name, value in item.headers)
        found[dict(headers).get("group")].append((item.partition, item.key, item.value, headers))
    return dict(found)


class Worker:
    """A handler that sends to an address and to a topic, keeps a state, and fails in every way."""

    def __init__(self, ledger: str, audit: str) -> None:
        self.ledger = ledger
        self.audit = audit
        self.attempts: dict[bytes | None, list[tuple[Any, ...]]] = defaultdict(list)
        """Arguments of the handler, by group."""

    async def work(self, item: Message) -> None:
        self.attempts[item.group].append(
            (item.offset, item.attempt, item.first_here, item.state, item.source, str(item.part), item.key, item.duplicate_id)
        )  # fmt: skip
        headers = {"group": item.group or b"none"}
        await item.send(self.ledger, item.value, key=item.group, headers=headers)
        await item.send(self.audit, item.value, headers=headers, duplicate_id=f"audit-{item.offset}")
        if item.group is not None:
            item.state = (item.state or b"") + b"+" + (item.value or b"")
        match item.value:
            case b"fail once" if item.attempt == 1:
                raise ConnectionError("try again")
            case b"reject":
                raise Reject("not wanted")
            case b"not known":
                raise KeyError("name")
            case b"broken":
                raise ValueError("broken")
            case b"delete":
                item.state = None
            case b"large":
                await item.send(self.ledger, bytes(2 * 2**20))


async def test_bench_and_consumer_agree(bootstrap: str) -> None:
    """Bench and consumer agree in the sends, their partitions, keys, headers and IDs; in states, dead letters and attempts."""
    ledger, audit = kafka.unique("ledger"), kafka.unique("audit")
    kafka.create_topics(bootstrap, {ledger: (PARTITIONS, {}), audit: (PARTITIONS, {})})
    worker, model = Worker(ledger, audit), Worker(ledger, audit)
    async with consuming(bootstrap, others=[{"name": ledger}]) as real:
        address = real.settings.addresses[0]
        records = [accepted_record(item, address, number) for number, item in enumerate(given())]
        real.send(*(Sent(None, item.key, item.value, item.headers, item.timestamp) for item in records))
        running = await real.start(Recorder(worker.work), **OPTIONS)
        await real.until_next(running, len(records))
        await running.stop()

        async with AsyncHandlerBench(
            Recorder(model.work),
            ConsumerOptions(**OPTIONS),
            settings=real.settings,
            address=address.name,
            consumer_group=real.group,
            topics={ledger: PARTITIONS, audit: PARTITIONS},
        ) as bench:
            await bench.deliver(*given())

        assert model.attempts == worker.attempts
        for topic in (ledger, audit):
            sent = by_group(await real.read(topic, PARTITIONS))
            assert by_group(item for item in bench.sent if item.topic == topic) == sent
            assert sum(map(len, sent.values())) == 7
        letters = {item.value: (item.key, sorted(item.headers, key=repr)) for item in await real.letters()}
        assert {
            item.value: (item.group, sorted(item.headers, key=repr)) for item in bench.dead_letters
        } == letters
        assert set(letters) == {b"reject", b"not known", b"broken", b"large"}
        state_topic = wire_names.state_topic(real.settings.app.id, real.group, real.accepted)
        states = {item.key or b"": item.value for item in await real.read(state_topic)}
        assert {group: bench.state(group) for group in states} == states
        assert states == {b"alice": b"+1+fail once+2", b"bob": b"+3+4", b"carol": None}


@pytest.mark.parametrize("batch", [3])
async def test_bench_and_consumer_cut_the_same_batches_of_one_group(bootstrap: str, batch: int) -> None:
    """Bench and consumer cut the same batches if all messages are there before the first call. A failed batch is tried one by one."""
    values = ["1", "2", "3", "4", "bad", "6", "7"]
    calls: dict[str, list[list[bytes | None]]] = defaultdict(list)

    def handler_of(name: str) -> Any:
        async def work(items: list[Message]) -> None:
            calls[name].append([item.value for item in items])
            if any(item.value == b"bad" for item in items):
                raise ValueError

        return work

    options: dict[str, Any] = {**OPTIONS, "batch": batch}
    async with consuming(bootstrap) as real:
        real.send(*(Sent(None, b"alice", value.encode()) for value in values))
        running = await real.start(handler_of("consumer"), **options)
        await real.until_next(running, len(values))
        await running.stop()
    async with AsyncHandlerBench(handler_of("bench"), ConsumerOptions(**options)) as bench:
        await bench.deliver(*(message(value, group="alice") for value in values))

    assert calls["bench"] == calls["consumer"]
