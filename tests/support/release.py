"""What a release leaves behind: a cluster, and the folders of its processes, as bytes, for every later version to go on from.

``python -m tests.support.release 0.1.0`` makes ``tests/fixtures/releases/0.1.0``, once, with the code of that release:

- ``cluster.tar.xz``: the data of a broker, with all topics and committed offsets;
- ``state.tar.xz``: ``app.data_dir``: RocksDB, and what the reconciliation run keeps;
- ``records.jsonl``: the records of the internal topics, and what stands beside committed offsets, for tests without a broker.
"""

import base64
import json
import lzma
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from aiokafka.partitioner import murmur2
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from app.embedded.broker import EmbeddedBroker
from tests.support import envelopes, kafka
from tests.support.consumers import ConsumerProcess
from tests.support.kafka import Sent
from tests.support.worker import RingfenceProcess, WorkerProcess, configure, run_verb, wait_for

RELEASES: Final = Path(__file__).resolve().parents[1] / "fixtures" / "releases"
APP: Final = "first"
GROUP: Final = "billing"
PARTITIONS: Final = 2
STUCK: Final = b"g3"
"""The group whose handler has failed up to now."""
CACHE: Final = 40
"""``id_cache_size``: each ring has gone round."""
ADDRESSES: Final[list[dict[str, Any]]] = [
    {
        "name": "orders",
        "partitions": PARTITIONS,
        "id_cache_size": CACHE,
        "duplicates": "divert",
        "transaction_addresses": ["archive"],
    },
    {"name": "archive", "partitions": PARTITIONS, "id_cache_size": CACHE},
]
BRIDGE: Final = """
[[bridges]]
name = "to-archive"
source_topic = "orders.accepted"
target_address = "archive"
"""
FOR_EVER: Final = {
    "log.retention.ms": "-1",
    "offsets.retention.minutes": "2147483647",
    "transactional.id.expiration.ms": "2147483647",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""Of a broker that goes on with it, however long ago it was recorded."""
INTERNAL: Final = {
    f"{APP}-orders-changelog": PARTITIONS,
    f"{APP}-archive-changelog": PARTITIONS,
    f"{APP}-journal": 1,
    f"{APP}-progress": 8,
}
COUNT: Final = 100


class Recorded(NamedTuple):
    """A record of an internal topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def messages() -> list[Sent]:
    """What producers sent; more than a ring holds, and IDs of each kind."""
    plain = [Sent(b"m%d" % number, b"g%d" % (number % 7), b"%d" % number) for number in range(COUNT)]
    whole = envelopes.envelope(
        envelopes.part(key="g0", value="part", ID="t1"),
        envelopes.part("archive", key="a", value="for the archive", ID="t2"),
        key=b"g0",
    )
    return [*plain, Sent(b"l" * 300, b"g1", b"long"), Sent(b"\x00\xff", b"g2", b"binary"), whole]


def send(bootstrap: str, records: Sequence[Sent]) -> None:
    """Each to the home of its key, in order."""
    for partition in range(PARTITIONS):
        here = [each for each in records if (murmur2(each.key or b"") & 0x7FFFFFFF) % PARTITIONS == partition]
        kafka.send(bootstrap, "orders", here, partition)


def configured(folder: Path, bootstrap: str) -> Path:
    """The configuration of all its processes; topics that are missing are created."""
    config = configure(folder, bootstrap, APP, ADDRESSES)
    config.write_text(config.read_text() + BRIDGE)
    run_verb("topics", "create", "--config", str(config))
    return config


def bridge(config: Path) -> RingfenceProcess:
    """Of ``orders.accepted`` to ``archive``."""
    return RingfenceProcess(config, "bridge", ["bridge"])


def consumer(config: Path, handled: Path, *, stuck: bool) -> ConsumerProcess:
    """Its handler writes down what it did; messages of :data:`STUCK` fail as long as it is stuck."""
    return ConsumerProcess(
        config, "billing", "orders", GROUP, "--retry-time", "86400",
        handler="tests.support.release_handler:handle",
        environment={"HANDLED": str(handled), "STUCK": STUCK.decode() if stuck else ""},
    )  # fmt: skip


def settled(config: Path, bootstrap: str) -> bool:
    """Whether workers and bridge are through."""
    if not kafka.consumed(bootstrap, APP, "orders", PARTITIONS):
        return False
    status = run_verb("bridge", "status", "--config", str(config), "--json", check=False)
    shown = json.loads(status.stdout)
    partitions = [each for each_bridge in shown["bridges"].values() for each in each_bridge["partitions"]]
    return all(each["lag"] == 0 for each in partitions) and kafka.consumed(
        bootstrap, APP, "archive", PARTITIONS
    )


def records(release: str) -> Iterator[Recorded]:
    """Those of the internal topics."""
    for line in (RELEASES / release / "records.jsonl").read_text("utf-8").splitlines():
        each = json.loads(line)
        if "topic" in each:
            key, value = (
                None if each[name] is None else base64.b64decode(each[name]) for name in ("key", "value")
            )
            yield Recorded(each["topic"], each["partition"], each["offset"], key, value)


def notes(release: str) -> list[str]:
    """What a bridge had written beside its committed offsets."""
    lines = (RELEASES / release / "records.jsonl").read_text("utf-8").splitlines()
    return [each["note"] for line in lines if "note" in (each := json.loads(line))]


def unpacked(release: str, folder: Path) -> None:
    """The broker's data into ``broker/data``, and ``app.data_dir`` into ``data``."""
    for name in ("cluster", "state"):
        with tarfile.open(RELEASES / release / f"{name}.tar.xz") as archive:
            archive.extractall(folder, filter="data")


def _dumped(bootstrap: str) -> Iterator[dict[str, Any]]:
    for topic, partitions in INTERNAL.items():
        for each in kafka.read_all(bootstrap, topic, partitions):
            key, value = (
                None if part is None else base64.b64encode(part).decode() for part in (each.key, each.value)
            )
            yield {
                "topic": topic,
                "partition": each.partition,
                "offset": each.offset,
                "key": key,
                "value": value,
            }
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for group in admin.list_consumer_groups().result().valid or []:
        wanted = ConsumerGroupTopicPartitions(group.group_id)
        found = admin.list_consumer_group_offsets([wanted])[group.group_id].result().topic_partitions
        yield from ({"note": each.metadata} for each in found if each.metadata)


def _run(config: Path, bootstrap: str) -> None:
    """All processes, until everything is handled that can be."""
    handled = config.parent / "handled"
    stuck = sum(each.key == STUCK for each in messages())
    processes = [WorkerProcess(config, "worker"), bridge(config), consumer(config, handled, stuck=True)]
    try:
        for each in processes:
            each.start()
        processes[0].wait_ready()
        send(bootstrap, messages())
        wait_for(lambda: settled(config, bootstrap), processes[0].log)
        done = len(kafka.read_all(bootstrap, "orders.accepted", PARTITIONS)) - stuck
        wait_for(lambda: handled.exists() and len(handled.read_text().splitlines()) == done, processes[2].log)
        ended = [each.stop() for each in reversed(processes)]
        assert ended == [0, 0, 0], [each.log() for each in processes]
    finally:
        for each in processes:
            each.destroy()


def _main(release: str) -> None:
    target = RELEASES / release
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with EmbeddedBroker(folder / "broker", properties=FOR_EVER) as broker:
            config = configured(folder, broker.bootstrap_servers)
            _run(config, broker.bootstrap_servers)
            night = run_verb("reconcile", "--config", str(config), check=False, limit_s=500)
            assert night.returncode == 0, night.stdout + night.stderr
            lines = [json.dumps(each, sort_keys=True) for each in _dumped(broker.bootstrap_servers)]
        (target / "records.jsonl").write_text("\n".join(lines) + "\n")
        for archive, what in (("cluster", "broker/data"), ("state", "data")):
            with (
                lzma.open(target / f"{archive}.tar.xz", "wb") as file,
                tarfile.open(fileobj=file, mode="w") as packed,
            ):
                packed.add(folder / what, what)
        print(*(f"{each.name}: {each.stat().st_size} bytes" for each in sorted(target.iterdir())), sep="\n")


if __name__ == "__main__":
    _main(sys.argv[1])
