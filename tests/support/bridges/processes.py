"""Bridges between embedded brokers, as their operator runs them, and the records of their target."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.bridge.bridge import Bridge
from agents.bridge.plan import plans
from ringfence_kafka.config.load import load
from ringfence_kafka.protocol import hop
from tests.support import kafka
from tests.support.kafka import Got, Sent
from tests.support.worker import LIMIT_S, RingfenceProcess, run_verb, table, toml, wait_for

HOP = "_RF_BRIDGE_DUPL_ID"
CONFIRMED = "_RF_BRIDGE_CONFIRMED"

PARTITIONS = 3
FOREVER = {"log.retention.ms": "-1"}
"""Settings of a broker: messages here carry timestamps of long ago."""


@dataclass(frozen=True)
class Two:
    """A source and a target cluster."""

    source: str
    target: str


@dataclass(frozen=True)
class Set:
    """A bridge's topics and configuration."""

    two: Two
    config: Path
    name: str
    topic: str
    address: str

    @property
    def group(self) -> str:
        return f"{self.name}-app-bridge-{self.name}"

    def send(self, records: Sequence[Sent], partition: int = 0) -> None:
        kafka.send(self.two.source, self.topic, records, partition)

    def got(self) -> list[Got]:
        return kafka.read_all(self.two.target, self.address, PARTITIONS)

    def ends(self) -> list[int]:
        return kafka.end_offsets(self.two.target, self.address, PARTITIONS)

    def settled(self, ends: list[int], limit_s: float = 60.0) -> list[Got]:
        confirmed_at(self.two.source, self.group, self.topic, ends, limit_s)
        return self.got()


def prepare(
    two: Two,
    folder: Path,
    source_partitions: int = 1,
    target: str = "",
    settings: Mapping[str, str] | None = None,
    **keys: Any,
) -> Set:
    """Create topics and a configuration; ``target``: other bootstrap servers by which the bridge reaches its target."""
    name = kafka.unique("bridge")
    topic, address = f"{name}-source", f"{name}-address"
    kafka.create_topics(two.source, {topic: (source_partitions, {})})
    kafka.create_topics(two.target, {address: (PARTITIONS, dict(settings or {}))})
    config = configure(
        folder, two.source, target or two.target,
        app_id=f"{name}-app", name=name, source_topic=topic, address=address, **keys,
    )  # fmt: skip
    return Set(two, config, name, topic, address)


def numbers(got: Iterable[Got]) -> list[int]:
    return [int(item.value or b"") for item in got]


def configure(
    folder: Path,
    source: str,
    target: str,
    *,
    app_id: str,
    name: str,
    source_topic: str,
    address: str,
    **keys: Any,
) -> Path:
    own = {"name": name, "source_topic": source_topic, "target_address": address, **keys}
    config = folder / f"{name}.toml"
    config.write_text(
        toml({"bootstrap_servers": source}, app_id, folder)
        + table("[[bridges]]", own)
        + table("[bridges.target]", {"bootstrap_servers": target})
    )
    return config


class BridgeProcess(RingfenceProcess):
    """One ``ringfence bridge``."""

    def __init__(
        self, config: Path, name: str, *arguments: str, environment: dict[str, str] | None = None
    ) -> None:
        super().__init__(config, name, ["bridge", *arguments], environment)


@contextlib.contextmanager
def bridge(config: Path, name: str, *arguments: str, **environment: str) -> Iterator[BridgeProcess]:
    """Run a process of bridges until the block ends; it is ready at first, and ends in order if it has not ended yet."""
    process = BridgeProcess(config, name, *arguments, environment=environment)
    try:
        process.start()
        process.wait_ready()
        yield process
        if process.running:
            assert process.stop() == 0, process.log()
    except AssertionError as error:
        error.add_note(f"{process.health()}\n{process.log()[-5_000:]}")
        raise
    finally:
        process.destroy()


@contextlib.asynccontextmanager
async def in_this_process(*configs: Path) -> AsyncIterator[list[Bridge]]:
    """Run the bridges of these configurations in the test's process, where it can act at their fail points; they end in order."""
    found = [
        Bridge(plan, f"instance-{number}")
        for number, config in enumerate(configs)
        for plan in plans(load(config))
    ]
    tasks = [asyncio.create_task(bridge.run()) for bridge in found]
    try:
        yield found
    finally:
        for bridge in found:
            bridge.stop()
        await asyncio.gather(*tasks)


@contextlib.contextmanager
def quick(config: Path) -> Iterator[list[Bridge]]:
    ready, over = threading.Event(), threading.Event()
    found: list[Bridge] = []

    async def run() -> None:
        async with in_this_process(config) as those:
            found[:] = those
            while not over.is_set():
                if all(bridge.state.ready for bridge in those):
                    ready.set()
                await asyncio.sleep(0.02)

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(asyncio.run, run())
        try:
            wait_for(
                lambda: ready.is_set() or ended.done(),
                lambda: str([bridge.state.reasons for bridge in found]),
            )
            if ready.is_set():
                yield found
        finally:
            over.set()
            ended.result(LIMIT_S)


def messages(count: int, groups: int = 10, first: int = 0) -> list[Sent]:
    return [
        Sent(
            id=b"id-%d" % index,
            key=b"g%d" % (index % groups),
            value=b"%d" % index,
            timestamp=1_700_000_000_000 + index,
        )
        for index in range(first, first + count)
    ]


def status(config: Path, code: int | None = None) -> dict[str, Any]:
    done = run_verb("bridge", "status", "--json", "--config", str(config), check=False)
    assert code is None or done.returncode == code, (done.returncode, done.stdout, done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def wait_values(bootstrap: str, topic: str, values: int, partitions: int) -> list[Got]:
    got: list[Got] = []

    def enough() -> bool:
        got[:] = kafka.read_all(bootstrap, topic, partitions)
        return len({item.value for item in got}) >= values

    wait_for(enough, lambda: f"{len({item.value for item in got})} of {values} in {topic}", 60)
    return got


def confirmed_at(bootstrap: str, group: str, topic: str, ends: list[int], limit_s: float = 60.0) -> None:
    wait_for(
        lambda: kafka.committed(bootstrap, group, topic, len(ends)) == ends,
        lambda: f"{kafka.committed(bootstrap, group, topic, len(ends))} is not {ends}",
        limit_s,
    )


def hop_of(record: Got) -> hop.Hop:
    found = hop.decode(dict(record.headers)[HOP])
    assert found is not None, record
    return found


def passed(got: list[Got]) -> list[Got]:
    """Return the records of an input that a lane's hop memory lets pass, in order, by the rule alone."""
    known: set[tuple[int, hop.Hop]] = set()
    floors: dict[tuple[int, hop.Source], int] = {}
    found = []
    for item in sorted(got, key=lambda record: (record.partition, record.offset)):
        step = hop_of(item)
        confirmed = hop.decode_offset(dict(item.headers)[CONFIRMED])
        assert confirmed is not None, item
        way = (item.partition, step.source)
        if step.offset >= floors.get(way, 0) and (item.partition, step) not in known:
            found.append(item)
        known.add((item.partition, step))
        floors[way] = max(floors.get(way, 0), confirmed)
    return found
