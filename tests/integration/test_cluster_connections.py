"""Cluster connections over three clusters: bridges between all of them, each with a process of its own, and a worker at each."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
from aiokafka.partitioner import murmur2

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
from tests.support.bridges.processes import BridgeProcess, messages, numbers, table
from tests.support.lanes import until
from tests.support.worker import LIMIT_S, WorkerProcess, run_verb, wait_for

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
        members: Mapping[str, Sequence[str]] | None = None,
        *,
        workers: bool = True,
        **keys: Any,
    ) -> None:
        """``members``: as each member's configuration lists them. Without ``workers`` the test sends the accepted records itself."""
        self.address = address
        self.servers = {name: cluster.bootstrap_servers for name, cluster in clusters.items()}
        self._folder = folder
        self._keys = keys
        shared = [f"{address}.shared"] if keys.get("load_balancing") == "strict" else []
        self._addresses = [address, *shared]
        self._configs = {name: self.configure(name, (members or {}).get(name, MEMBERS)) for name in MEMBERS}
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
            at_home = [item for item in sent if _home(item.key or b"") == partition]
            kafka.send(self.servers[member], topic or self.address, at_home, partition)

    def arrived(self, member: str, address: str) -> list[int]:
        """Values that bridges have brought into an address, except those that its lanes would drop."""
        return numbers(processes.passed(kafka.read_all(self.servers[member], address, PARTITIONS)))

    def accepted(self, member: str, address: str = "") -> list[int]:
        """Values, in order of their partitions."""
        topic = f"{address or self.address}.accepted"
        return numbers(kafka.read_all(self.servers[member], topic, PARTITIONS))

    def wait_accepted(self, member: str, count: int, address: str = "") -> None:
        wait_for(
            lambda: len(self.accepted(member, address)) >= count,
            lambda: f"{member}: {len(self.accepted(member, address))} of {count}\n{self._logs()}",
        )

    def idle(self, *names: str) -> None:
        """Wait until nothing is under way: no bridge of these members, or of any, has work, and no lane of any.

        The ends that were read first are unchanged when the last of them has no work: nothing came in between.
        """
        deadline = time.monotonic() + LIMIT_S
        while True:
            before = self._ends()
            self.judged()
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

    def judged(self) -> None:
        """Wait until the lanes of all members have no work; without running bridges nothing comes any more."""
        wait_for(
            lambda: all(
                kafka.consumed(server, self._app_id, topic, PARTITIONS) for server, topic in self._topics()
            ),
            lambda: f"{self._ends()} are not consumed",
        )

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


def _home(key: bytes) -> int:
    return int(murmur2(key) & 0x7FFFFFFF) % PARTITIONS


@pytest.mark.long
def test_all(clusters: dict[str, EmbeddedBroker], tmp_path: Path) -> None:
    """L1: each member has all messages, none twice, with no echo."""
    with Connected(clusters, tmp_path, kafka.unique("all")) as connected:
        connected.start()
        for number, name in enumerate(MEMBERS):
            connected.send(name, 100, first=number * 100)
        for name in MEMBERS:
            connected.wait_accepted(name, 300)
        connected.idle()

        for name in MEMBERS:
            assert sorted(connected.accepted(name)) == list(range(300)), name


@pytest.mark.long
def test_member_down(clusters: dict[str, EmbeddedBroker], tmp_path: Path) -> None:
    """L4: a member that is down misses nothing and holds up nobody."""
    with Connected(clusters, tmp_path, kafka.unique("down")) as connected:
        connected.start()
        connected.send("berlin", 300)
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


@pytest.mark.long
@pytest.mark.parametrize("max_hops", [1, 2])
def test_chain(clusters: dict[str, EmbeddedBroker], tmp_path: Path, max_hops: int) -> None:
    """L2: berlin knows only paris, which knows rome. With two hops rome gets berlin's messages, with one it does not."""
    chain = {"berlin": MEMBERS[:2], "rome": MEMBERS[1:]}
    with Connected(clusters, tmp_path, kafka.unique("hops"), chain, max_hops=max_hops) as connected:
        connected.start()
        connected.send("berlin", 60)
        connected.send("paris", 10, first=60)
        connected.wait_accepted("paris", 70)
        connected.wait_accepted("rome", 70 if max_hops > 1 else 10)
        connected.wait_accepted("berlin", 70)
        connected.idle()

        assert sorted(connected.accepted("berlin")) == list(range(70))
        assert sorted(connected.accepted("paris")) == list(range(70))
        assert sorted(connected.accepted("rome")) == list(range(70) if max_hops > 1 else range(60, 70))
        topic = f"{connected.address}.accepted"
        hops = Counter(
            dict(item.headers).get("_RF_HOPS")
            for item in kafka.read_all(connected.servers["rome"], topic, PARTITIONS)
        )
        assert hops == ({b"berlin,paris": 60, b"paris,+berlin": 10} if max_hops > 1 else {b"paris": 10})


def test_strict_shares(clusters: dict[str, EmbeddedBroker], tmp_path: Path) -> None:
    """L3: each group comes to one member, in one copy. L5: a change of members is refused, in a line that names the remedy."""
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
        asyncio.run(_with_old_members(connected.configure("berlin", MEMBERS), f"eu.berlin.paris.{address}"))


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


@pytest.mark.long
def test_strict(clusters: dict[str, EmbeddedBroker], tmp_path: Path) -> None:
    """L3, L5: each group comes to one member, in one copy; a change of members is refused until all is drained, and then exact."""
    address = kafka.unique("strict")
    shared = f"{address}.shared"
    with Connected(clusters, tmp_path, address, load_balancing="strict") as connected:
        config = connected.configure("berlin", MEMBERS[:2])
        process = connected.bridges["berlin"]
        connected.send("berlin", 200)
        connected.start("berlin")
        _wait_shares(connected, shared, 200)
        connected.idle("berlin")
        _require_shares(connected, shared, MEMBERS[:2], range(200))
        assert process.stop() == 0
        clusters["paris"].stop()
        before = len(connected.accepted("berlin", shared))
        connected.send("berlin", 100, first=200)
        process.start()
        wait_for(lambda: len(connected.accepted("berlin", shared)) > before, process.log)
        assert process.stop() == 0
        connected.configure("berlin", MEMBERS)
        done = run_verb("bridge", "--config", str(config), check=False)
        assert done.returncode == 2
        assert "run 'ringfence bridge eu --drain'" in done.stderr
        clusters["paris"].start()
        done = run_verb("bridge", "eu", "--drain", "--config", str(config), check=False)
        assert done.returncode == 0, done.stderr
        _wait_shares(connected, shared, 300)
        connected.judged()
        _require_shares(connected, shared, MEMBERS[:2], range(300))
        process.start()
        process.wait_ready()
        connected.send("berlin", 100, first=300)
        _wait_shares(connected, shared, 400)
        connected.idle("berlin")
        for name in MEMBERS:
            new = [number for number in connected.accepted(name, shared) if number >= 300]
            assert all(owner(MEMBERS, b"g%d" % (number % 10)) == name for number in new)
        everything = [number for name in MEMBERS for number in connected.accepted(name, shared)]
        assert sorted(everything) == list(range(400))


@pytest.mark.long
def test_strict_member_lost(clusters: dict[str, EmbeddedBroker], tmp_path: Path) -> None:
    """L5: another cluster replaces a lost member's and gets its waiting messages once; then the members may change."""
    address = kafka.unique("lost")
    shared, topic = f"{address}.shared", f"{address}.accepted"
    with Connected(clusters, tmp_path, address, workers=False, load_balancing="strict") as connected:
        process = connected.bridges["berlin"]
        owners = {index: owner(MEMBERS, b"g%d" % (index % 10)) for index in range(300)}
        connected.send("berlin", 100, topic=topic)
        connected.start("berlin")
        connected.idle("berlin")
        before = connected.arrived("rome", shared)
        clusters["rome"].stop()
        try:
            connected.send("berlin", 100, first=100, topic=topic)
            for name in MEMBERS[:2]:
                wanted = [number for number, whose in owners.items() if number < 200 and whose == name]
                wait_for(lambda: sorted(connected.arrived(name, shared)) == wanted, process.log)  # noqa: B023 - called here
            assert process.stop() == 0
            config = connected.configure("berlin", MEMBERS[:2])
            done = run_verb("bridge", "--config", str(config), check=False)
            assert done.returncode == 2
            assert "A member that is lost for good" in done.stderr
            connected.servers["rome"] = connected.servers["paris"]
            connected.configure("berlin", MEMBERS)
            process.start()
            process.wait_ready()
            connected.idle("berlin")
            assert process.stop() == 0
            assert run_verb("bridge", "eu", "--drain", "--config", str(config), check=False).returncode == 0
            connected.configure("berlin", MEMBERS[:2])
            connected.send("berlin", 100, first=200, topic=topic)
            process.start()
            process.wait_ready()
            connected.idle("berlin")
        finally:
            clusters["rome"].start()
        found = {name: connected.arrived(name, shared) for name in MEMBERS[:2]}

        assert sorted([*before, *found["berlin"], *found["paris"]]) == list(range(300))
        assert {index for index in range(100, 200) if owners[index] == "rome"} <= set(found["paris"])


def _wait_shares(connected: Connected, shared: str, count: int) -> None:
    wait_for(
        lambda: sum(len(connected.accepted(name, shared)) for name in MEMBERS) >= count,
        lambda: str({name: len(connected.accepted(name, shared)) for name in MEMBERS}),
    )


def _require_shares(connected: Connected, shared: str, members: Sequence[str], expected: range) -> None:
    found = {name: connected.accepted(name, shared) for name in members}
    assert sorted(number for value in found.values() for number in value) == list(expected)
    for name, items in found.items():
        assert all(owner(members, b"g%d" % (number % 10)) == name for number in items)
