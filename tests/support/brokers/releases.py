"""Releases: their code out of the history, and the bytes of a cluster that each has worked on."""

import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from app.embedded.broker import EmbeddedBroker
from tests.support import kafka
from tests.support.checkout import ROOT
from tests.support.consumers.processes import ConsumerProcess
from tests.support.kafka import Sent
from tests.support.records import envelopes
from tests.support.worker import RingfenceProcess, WorkerProcess, run_verb, wait_for

FOLDER: Final = ROOT / "tests" / "fixtures" / "releases"
VERSIONS: Final = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


def commit(version: str) -> str:
    return (FOLDER / version / "commit").read_text().strip()


def code(version: str, folder: Path) -> Path:
    """Unpack the code of a release into a new folder. Skip the test if the history does not reach back to it, as in a shallow clone."""
    done = subprocess.run(["git", "archive", commit(version)], cwd=ROOT, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"the code of {version} is not in this history: git fetch --unshallow")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


ARCHIVE: Final = "cluster.tar.xz"
APP: Final = "first"
PARTITIONS: Final = 2
IDS: Final = 60
RESENT: Final = 20
GROUP: Final = "counting"
PHANTOM: Final = b"nobody sent it"
FOR_EVER: Final = {
    "log.retention.ms": "-1",
    "log.cleaner.enable": "false",
    "offsets.retention.minutes": "2147483647",
    "transactional.id.expiration.ms": "2147483647",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    # An index is preallocated in full.
    "log.index.size.max.bytes": "65536",
}
"""Settings of a broker that continues with the cluster, however long ago it was recorded."""
_TEN_YEARS_MS: Final = "315360000000"
_CONFIGURATION: Final = """
[kafka]
bootstrap_servers = "{bootstrap}"
[app]
id = "first"
data_dir = "{folder}/data"
[reconcile]
keep_days = 36500
master = "local[2]"
[[addresses]]
name = "orders"
partitions = 2
id_cache_size = 1000
transaction_addresses = ["archive"]
[[addresses]]
name = "archive"
partitions = 2
id_cache_size = 1000
[[bridges]]
name = "to-archive"
source_topic = "orders.accepted"
target_address = "archive"
"""


def configured(folder: Path, bootstrap: str) -> Path:
    config = folder / "release.toml"
    config.write_text(_CONFIGURATION.format(bootstrap=bootstrap, folder=folder))
    return config


def message(number: int) -> Sent:
    """Return the n-th message that is sent; it never changes."""
    return Sent(b"m%d" % number, b"g%d" % (number % 7), b"%d" % number)


def home(record: Sent) -> int:
    return kafka.home(record.key or b"", PARTITIONS)


def send(bootstrap: str, records: Sequence[Sent]) -> None:
    for partition in range(PARTITIONS):
        kafka.send(
            bootstrap, "orders", [record for record in records if home(record) == partition], partition
        )


def unpacked(version: str, folder: Path) -> None:
    with tarfile.open(FOLDER / version / ARCHIVE) as archive:
        archive.extractall(folder, filter="data")


def settled(config: Path, bootstrap: str, tree: Path = ROOT) -> bool:
    status = run_verb("bridge", "status", "--config", str(config), "--json", check=False, tree=tree)
    bridges: dict[str, Any] = json.loads(status.stdout)["bridges"]
    lags = [item["lag"] for bridge in bridges.values() for item in bridge["partitions"]]
    topics = [(APP, "orders"), (APP, "archive"), (GROUP, "orders.accepted")]
    return all(lag == 0 for lag in lags) and all(
        kafka.consumed(bootstrap, group, topic, PARTITIONS) for group, topic in topics
    )


def processes(config: Path, tree: Path = ROOT) -> list[RingfenceProcess]:
    """Return what works there, with the code in ``tree``: a worker, a bridge, a consumer."""
    found = [
        WorkerProcess(config, "worker"),
        RingfenceProcess(config, "bridge", ["bridge"]),
        ConsumerProcess(config, "consumer", "orders", GROUP),
    ]
    for ringfence_process in found:
        ringfence_process.tree = tree
    return found


def _work(config: Path, bootstrap: str, tree: Path) -> None:
    running = processes(config, tree)
    try:
        for ringfence_process in running:
            ringfence_process.start()
        for ringfence_process in running:
            ringfence_process.wait_ready()
        whole = envelopes.envelope(
            envelopes.part(key="g0", value="part", ID="t1"),
            envelopes.part("archive", key="a", value="for the archive", ID="t2"),
            key=b"g0",
        )
        numbers = [*range(IDS), *range(RESENT)]
        send(bootstrap, [*map(message, numbers), Sent(None, b"g3", b"without an ID"), whole])
        misplaced = Sent(b"misplaced", b"g1", b"forwarded")
        kafka.send(bootstrap, "orders", [misplaced], 1 - home(misplaced))
        wait_for(lambda: settled(config, bootstrap, tree), running[0].log)
        assert [ringfence_process.stop() for ringfence_process in reversed(running)] == [0, 0, 0], [
            ringfence_process.log() for ringfence_process in running
        ]
    finally:
        for ringfence_process in running:
            ringfence_process.destroy()


def _run(config: Path, tree: Path) -> int:
    done = run_verb("reconcile", "--config", str(config), check=False, limit_s=400, tree=tree)
    print(done.stdout, done.stderr)
    return done.returncode


def _main(version: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tree = code(version, folder / "release")
        with EmbeddedBroker(folder / "broker", properties=FOR_EVER) as broker:
            config = configured(folder, broker.bootstrap_servers)
            run_verb("topics", "create", "--config", str(config), tree=tree)
            for address in ("orders", "archive"):  # else RocksDB is not reused half a day later
                kafka.alter_topic(
                    broker.bootstrap_servers,
                    f"{APP}-{address}-changelog",
                    "delete.retention.ms",
                    _TEN_YEARS_MS,
                )
            _work(config, broker.bootstrap_servers, tree)
            assert _run(config, tree) == 0
            headers = (("_RF_SOURCE", b"orders/0/9999"),)
            kafka.send(broker.bootstrap_servers, "orders.accepted", [Sent(None, b"g1", PHANTOM, headers)])
            assert _run(config, tree) == 1
        target = FOLDER / version / ARCHIVE
        with tarfile.open(target, mode="w:xz") as packed:
            for item in ("broker/data", "data"):
                packed.add(folder / item, item)
        print(f"{target.name}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    _main(sys.argv[1])
