"""The cluster from which bridges bring an address's messages: its broker, the bridge's processes, and their links."""

import contextlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ringfence_kafka.protocol import hop, wire_names
from tests.harness.checker.findings import Anomaly, Finding
from tests.harness.history import ID_HEADER, History, Place, Record, records
from tests.support import kafka
from tests.support.bridges import processes
from tests.support.bridges.processes import BridgeProcess
from tests.support.brokers.link import TcpProxy
from tests.support.brokers.linked import LinkedBroker, linked_broker
from tests.support.worker import wait_for

APP_ID: Final = "origin"
BRIDGE: Final = "across"
PROCESSES: Final = 2
DRAIN_LIMIT_S: Final = 240.0


class Origin:
    """The source cluster; its topic has the address's name. Each process has a link of its own to either cluster."""

    def __init__(
        self,
        folder: Path,
        address: str,
        partitions: int,
        user_ids: str,
        target_links: Sequence[TcpProxy],
        stack: contextlib.ExitStack,
    ) -> None:
        self.address = address
        self.partitions = partitions
        self.user_ids = user_ids
        self.target_links = target_links
        self.broker: Final[LinkedBroker] = stack.enter_context(
            linked_broker(folder / "broker", links=len(target_links))
        )
        kafka.create_topics(self.bootstrap, {address: (partitions, {})})
        self.processes: list[BridgeProcess] = []
        for number, (here, there) in enumerate(zip(self.broker.links, target_links, strict=True)):
            own = folder / f"b{number}"
            own.mkdir()
            config = processes.configure(
                own, here.bootstrap, there.bootstrap,
                app_id=APP_ID, name=BRIDGE, source_topic=address, address=address, user_ids=user_ids,
            )  # fmt: skip
            process = BridgeProcess(config, f"b{number}")
            stack.callback(process.destroy)
            self.processes.append(process)

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def start(self) -> None:
        for process in self.processes:
            process.start()
        for process in self.processes:
            process.wait_ready()

    def some_process(self, rng: random.Random) -> BridgeProcess:
        process = rng.choice(
            [process for process in self.processes if process.running and not process.frozen]
            or self.processes
        )
        if not process.running:
            process.start()
        return process

    def heal(self) -> None:
        self.broker.heal()
        for link in self.target_links:
            link.open()
        for process in self.processes:
            if not process.running:
                process.start()

    def drain(self) -> list[Record]:
        group = wire_names.bridge_group(APP_ID, BRIDGE)

        def stands() -> list[int]:
            return kafka.committed(self.bootstrap, group, self.address, self.partitions)

        ends = kafka.end_offsets(self.bootstrap, self.address, self.partitions)
        wait_for(
            lambda: [max(0, stand) for stand in stands()] == ends,
            lambda: f"the bridge stands at {stands()} of {ends}\n{self.report()}",
            DRAIN_LIMIT_S,
        )
        return records(self.address, kafka.read_all(self.bootstrap, self.address, self.partitions))

    def report(self) -> str:
        return "\n".join(
            f"{process.name}: {process.health()}\n{process.log()[-3_000:]}" for process in self.processes
        )

    @property
    def kills(self) -> int:
        return sum(process.kills for process in self.processes)


def crossed(source: Sequence[Record], history: History, *, ids_ignored: bool) -> list[Finding]:
    """Return losses between two clusters, changed content, changed order, and records that were accepted twice. Rings are ample."""
    there = {(item.partition, item.offset): item for item in source}
    findings: list[Finding] = []
    origins: dict[Place, Record] = {}
    for input_ in history.inputs:
        step = hop.decode(input_.header(wire_names.HEADER_HOP))
        origin = None if step is None else there.get((step.source.partition, step.offset))
        if origin is None:
            text = f"{input_.place} names no record of the source"
            findings.append(Finding(Anomaly.PHANTOM, (input_.place,), text))
            continue
        origins[input_.place] = origin
        if _content(input_) != _content(origin):
            text = f"{input_.place} is not as the source's {origin.place}"
            findings.append(Finding(Anomaly.CORRUPTED, (input_.place,), text))
    arrived = {origin.place for origin in origins.values()}
    findings += [
        Finding(Anomaly.LOST, (item.place,), f"the source's {item.place} never arrived")
        for item in source
        if item.place not in arrived
    ]
    wanted: dict[bytes, Place] = {}
    for item in source:
        wanted.setdefault(_message(item, ids_ignored=ids_ignored), item.place)
    accepted, refused = (
        Counter(_message(record, ids_ignored=ids_ignored) for record in several)
        for several in (history.accepted, history.quarantined)
    )
    for message, place in wanted.items():
        if accepted[message] > 1 or not accepted[message] + refused[message]:
            kind = Anomaly.DOUBLED if accepted[message] else Anomaly.LOST
            text = f"the source's {place} was accepted {accepted[message]} times"
            findings.append(Finding(kind, (place,), text))
    return findings + _out_of_order(history.accepted, origins)


def _out_of_order(accepted: Sequence[Record], origins: Mapping[Place, Record]) -> list[Finding]:
    findings = []
    newest: dict[tuple[bytes, int], int] = {}
    for item in sorted(accepted, key=lambda record: (record.partition, record.offset)):
        origin = None if item.source is None else origins.get(item.source)
        if origin is None or origin.key is None:
            continue
        group = (origin.key, origin.partition)
        if origin.offset <= newest.get(group, -1):
            text = f"{item.place}, of the source's {origin.place}, stands behind a later one"
            findings.append(Finding(Anomaly.REORDERED, (item.place,), text))
        newest[group] = max(origin.offset, newest.get(group, -1))
    return findings


def _content(record: Record) -> tuple[object, ...]:
    headers = tuple(
        header for header in record.headers if not header[0].startswith(wire_names.RESERVED_PREFIX)
    )
    return record.key, record.value, headers, record.timestamp


def _message(record: Record, *, ids_ignored: bool) -> bytes:
    known = None if ids_ignored else record.header(ID_HEADER)
    return b"ID " + known if known is not None else b"token " + (record.token or b"")
