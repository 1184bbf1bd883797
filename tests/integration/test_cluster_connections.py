"""Cluster connections over three clusters: bridges between all of them, each with a process of its own, and a worker at each."""

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from agents.bridge.bridge import Bridge
from agents.bridge.member_admission import Permit
from agents.bridge.members import owner
from agents.bridge.offsets import Map
from agents.bridge.plan import plans
from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.config.load import load
from ringfence_kafka.protocol import wire_names
from tests.support import kafka
from tests.support.bridges import processes
from tests.support.bridges.processes import BridgeProcess, messages, numbers
from tests.support.lanes import until
from tests.support.worker import LIMIT_S, WorkerProcess, run_verb, table, wait_for

PARTITIONS = 2
MEMBERS = ("berlin", "paris", "rome")


@pytest.fixture(scope="module")
def clusters(
    broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, EmbeddedBroker]]:
    """Three clusters: the test run's broker is berlin; the others start at the same time."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor() as pool:
        others = {
            name: EmbeddedBroker(tmp_path_factory.mktemp(name), properties=processes.FOREVER)
            for name in MEMBERS[1:]
        }
        for other in others.values():
            stack.callback(other.stop)
        list(pool.map(EmbeddedBroker.start, others.values()))
        yield {"berlin": broker, **others}


class Connected:
    """Workers and bridges of one connection, one of each at each member."""

    def __init__(
        self,
        clusters: Mapping[str, EmbeddedBroker],
        folder: Path,
        address: str,
        *,
        workers: bool = True,
        **keys: Any,
    ) -> None:
        """Without ``workers`` the test sends the accepted records itself."""
        self.address = address
        self.servers = {name: cluster.bootstrap_servers for name, cluster in clusters.items()}
        self._folder = folder
        self._keys = keys
        self._addresses = [address, *([] if workers else [f"{address}.shared"])]
        self._configs = {name: self.configure(name, MEMBERS) for name in MEMBERS}
        self._workers = (
            {name: WorkerProcess(config, f"worker-{name}") for name, config in self._configs.items()}
            if workers
            else {}
        )
        self.bridges = {
            name: BridgeProcess(config, f"bridge-{name}") for name, config in self._configs.items()
        }
        self._stack = contextlib.ExitStack()

    def configure(self, this: str, members: Sequence[str]) -> Path:
        config = self._folder / f"{this}.toml"
        config.write_text(
            table("[kafka]", {"bootstrap_servers": self.servers[this]})
            + table("[app]", {"id": self._app_id, "data_dir": str(self._folder / f"data-{this}")})
            + "".join(
                table("[[addresses]]", {"name": name, "partitions": PARTITIONS}) for name in self._addresses
            )
            + table(
                "[[cluster_connections]]",
                {"name": "eu", "this": this, "addresses": [self.address], **self._keys},
            )
            + "".join(
                table(
                    "[[cluster_connections.members]]", {"name": name, "bootstrap_servers": self.servers[name]}
                )
                for name in members
            )
        )
        return config

    def start(self, *names: str) -> None:
        """Start the bridges of these members, or of all."""
        for name in names or self.bridges:
            self.bridges[name].start()
        for name in names or self.bridges:
            self.bridges[name].wait_ready()

    def send(self, member: str, count: int, first: int = 0, topic: str = "") -> None:
        """Send keyed messages to a member's input, or to another topic."""
        sent = messages(count, first=first)
        for partition in range(PARTITIONS):
            at_home = [item for item in sent if kafka.home(item.key or b"", PARTITIONS) == partition]
            kafka.send(self.servers[member], topic or self.address, at_home, partition)

    def arrived(self, member: str, address: str) -> list[int]:
        """Values that bridges have brought into an address, except those that its lanes would drop."""
        return numbers(processes.passed(kafka.read_all(self.servers[member], address, PARTITIONS)))

    def accepted(self, member: str) -> list[int]:
        """Values, in order of their partitions."""
        return numbers(kafka.read_all(self.servers[member], f"{self.address}.accepted", PARTITIONS))

    def wait_accepted(self, member: str, count: int) -> None:
        wait_for(
            lambda: len(self.accepted(member)) >= count,
            lambda: f"{member}: {len(self.accepted(member))} of {count}\n{self._logs()}",
        )

    def idle(self, *names: str) -> None:
        """Wait until nothing is under way: no bridge of these members, or of any, has work, and no lane of any.

        The ends that were read first are unchanged when the last of them has no work: nothing came in between.
        """
        deadline = time.monotonic() + LIMIT_S
        while True:
            before = self._ends()
            wait_for(
                lambda: all(
                    kafka.consumed(server, self._app_id, topic, PARTITIONS)
                    for server, topic in self._topics()
                ),
                lambda: f"{self._ends()} are not consumed",
            )
            for name in names or self.bridges:
                config = self._configs[name]
                wait_for(partial(_idle, config), lambda: "a bridge has lag\n" + self._logs())
            if self._ends() == before:
                return
            assert time.monotonic() < deadline, f"it does not come to rest: {self._ends()}"

    def _logs(self) -> str:
        return "\n".join(bridge.log() for bridge in self.bridges.values() if bridge.log_file.exists())

    def _topics(self) -> Iterator[tuple[str, str]]:
        """Topics that lanes read, each with its server."""
        for name in self._workers:
            for address in self._addresses:
                yield self.servers[name], address
                yield self.servers[name], wire_names.forward_topic(self._app_id, address)

    def _ends(self) -> list[list[int]]:
        return [kafka.end_offsets(server, topic, PARTITIONS) for server, topic in self._topics()]

    @property
    def _app_id(self) -> str:
        return f"app-{self.address}"

    def __enter__(self) -> Self:
        """Make topics and start workers; if anything fails on the way, nothing is left running."""
        with self._stack:
            for name, config in self._configs.items():
                run_verb("topics", "create", "--config", str(config))
                self._stack.callback(self.bridges[name].destroy)
            for worker in self._workers.values():
                self._stack.callback(worker.destroy)
                worker.start()
            for worker in self._workers.values():
                worker.wait_ready()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _idle(config: Path) -> bool:
    shown = processes.status(config)["bridges"].values()
    return all(row["lag"] == 0 for item in shown for row in item["partitions"])


@pytest.mark.long
def test_member_down(clusters: dict[str, EmbeddedBroker], tmp_path: Path) -> None:
    """L1, L4: each member has all messages, none twice; a member that is down misses nothing and holds up nobody."""
    with Connected(clusters, tmp_path, kafka.unique("down")) as connected:
        connected.start()
        for number, name in enumerate(MEMBERS):
            connected.send(name, 100, first=number * 100)
        for name in MEMBERS:
            connected.wait_accepted(name, 300)
        clusters["rome"].stop()
        connected.send("berlin", 50, first=300)
        connected.wait_accepted("paris", 350)
        wait_for(lambda: connected.bridges["berlin"].health()[0] == 503, connected.bridges["berlin"].log)
        clusters["rome"].start()
        connected.wait_accepted("rome", 350)
        connected.idle()

        for name in MEMBERS:
            assert sorted(connected.accepted(name)) == list(range(350)), name


def test_strict_shares(clusters: dict[str, EmbeddedBroker], tmp_path: Path) -> None:
    """L3: each group comes to one member, in one copy. L5: a change of members is refused until all is drained, and then exact."""
    address = kafka.unique("shares")
    shared = f"{address}.shared"
    with Connected(clusters, tmp_path, address, workers=False, load_balancing="strict") as connected:
        connected.send("berlin", 200, topic=f"{address}.accepted")
        connected.start("berlin")

        def there() -> dict[str, list[int]]:
            return {name: connected.arrived(name, shared) for name in MEMBERS}

        wait_for(lambda: sum(map(len, there().values())) >= 200, lambda: str(there()))
        connected.idle("berlin")
        found = there()
        assert connected.bridges["berlin"].stop() == 0
        behind = f"app-{address}-bridge-eu.berlin.rome.{address}"
        kafka.commit(connected.servers["berlin"], behind, f"{address}.accepted", 5)
        done = run_verb("bridge", "--config", str(connected.configure("berlin", MEMBERS[:2])), check=False)

        assert sorted(number for value in found.values() for number in value) == list(range(200))
        for name, items in found.items():
            assert items
            assert all(owner(MEMBERS, b"g%d" % (number % 10)) == name for number in items)
        assert done.returncode == 2
        assert "run 'ringfence bridge eu --drain'" in done.stderr
        config = connected.configure("berlin", MEMBERS)
        asyncio.run(_with_old_members(config, f"eu.berlin.paris.{address}"))
        run_verb("bridge", "eu", "--drain", "--config", str(config))
        two = connected.configure("berlin", MEMBERS[:2])
        connected.send("berlin", 100, first=200, topic=f"{address}.accepted")
        with processes.quick(two):
            wait_for(lambda: sum(map(len, there().values())) >= 300, lambda: str(there()))
        found = there()
        assert sorted(number for items in found.values() for number in items) == list(range(300))
        for name, items in found.items():
            new = [number for number in items if number >= 200]
            assert all(owner(MEMBERS[:2], b"g%d" % (number % 10)) == name for number in new)


async def _with_old_members(config: Path, name: str) -> None:
    """Check that a bridge that slept during a change of members asks for them, at the first partition, and when it wakes."""
    (plan,) = plans(load(config), [name])
    old, permit = Map(1, MEMBERS[:2]), Permit(plan, drain=False)
    bridge = Bridge(plan, "woken", permit=permit)
    permit._map = old
    running = asyncio.create_task(bridge.run())
    try:
        await until(lambda: bridge.state.ready, lambda: str(bridge.state.reasons))
        assert {partition.note.map for partition in bridge.state.partitions.values()} == {Map(1, MEMBERS)}
        permit._map = old
        bridge.state.seen_awake -= 60
        await until(lambda: permit._map == Map(1, MEMBERS), lambda: str(bridge.state.reasons))
    finally:
        bridge.stop()
        await running
