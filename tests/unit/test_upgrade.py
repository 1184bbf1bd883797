"""What earlier releases wrote, as bytes, is what this version goes on from: rings, RocksDB, hops, leases, notes of bridges."""

import base64
import json
import lzma
import tarfile
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from agents.bridge import note
from reconcile import show
from reconcile.night.nights import Nights
from reconcile.spark.files import LocalFiles
from ringfence_client import record
from ringfence_kafka.config.load import load
from ringfence_kafka.config.settings import KafkaSettings
from tables import codec
from tables.restore import ChangelogBounds
from tables.ring import Verdict
from tables.table import LaneTable, Restored, TableOptions
from tests.support import release_nights
from tests.support.deployment import ROOT
from tests.support.releases import FOLDER, VERSIONS
from tests.support.served_log import serve

PARTITIONS: Final = 4
CAPACITY: Final = 20_000
IDS: Final = [codec.encode_id(b"m%d" % number) for number in range(1_500)]
YEARS_S: Final = 1e10
"""For which RocksDB is believed here, however long ago it was recorded."""

pytestmark = pytest.mark.parametrize("version", VERSIONS)


class Recorded(NamedTuple):
    """A record of an internal topic, as a consumer gives it."""

    offset: int
    key: bytes | None
    value: bytes | None


class Kept:
    """What a release wrote to the cluster."""

    def __init__(self, version: str) -> None:
        text = lzma.decompress((FOLDER / version / "records.jsonl.xz").read_bytes()).decode()
        self._lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]

    def records(self, topic: str, partition: int) -> list[Recorded]:
        """Of one partition."""
        return [
            Recorded(each["offset"], *(None if part is None else base64.b64decode(part) for part in parts))
            for each in self._lines
            if each["topic"] == topic and each["partition"] == partition and "group" not in each
            for parts in [(each["key"], each["value"])]
        ]

    def committed(self, group: str) -> dict[int, tuple[int, str]]:
        """Offset and note, by partition of the one topic that the group has."""
        return {
            each["partition"]: (each["offset"], each["note"])
            for each in self._lines
            if each.get("group") == group
        }


@pytest.fixture
def kept(version: str) -> Kept:
    """Of the release."""
    return Kept(version)


def _opening(
    kept: Kept, address: str, partition: int, monkeypatch: pytest.MonkeyPatch
) -> Callable[[LaneTable], Awaitable[Restored]]:
    records = kept.records(f"ringfence-{address}-changelog", partition)
    end = records[-1].offset + 2  # and the marker

    async def opened(table: LaneTable) -> Restored:
        _, restored = await table.open(
            KafkaSettings(), "changelog", partition, ChangelogBounds(0, end, YEARS_S)
        )
        return restored

    serve(monkeypatch, lambda: records)
    return opened


def _options(address: str) -> TableOptions:
    return TableOptions(CAPACITY, CAPACITY, app="ringfence", address=address)


@pytest.mark.parametrize("disk", ["worker-1", "worker-2", "lost"])
async def test_known_ids_stay_known(
    version: str, kept: Kept, disk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opens the lanes, with the RocksDB of that release or without: each ID that was accepted is a duplicate, and no other."""
    with tarfile.open(FOLDER / version / "state.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    known, heads = set(), 0
    for partition in range(PARTITIONS):
        table = LaneTable(tmp_path / disk / f"orders-{partition}", _options("orders"))
        was_there = (tmp_path / disk / f"orders-{partition}").exists()
        restored = await _opening(kept, "orders", partition, monkeypatch)(table)
        try:
            asked = [*IDS, codec.encode_id(b"new")]
            verdicts = table.check(asked, [0] * len(asked)).verdicts
            assert table.meta is not None
            slots = table.find(range(table.meta.head))
        finally:
            table.close()
        known |= {each for each, verdict in zip(IDS, verdicts, strict=False) if verdict is Verdict.DUPLICATE}
        heads += table.meta.head
        assert verdicts[-1] is Verdict.ACCEPTED
        origins = [each.origin for each in slots if each is not None]
        assert len(origins) == table.meta.head
        assert {each.partition for each in origins} == {partition}
        assert sorted({each.offset for each in origins}) == [each.offset for each in origins]
        assert len({each.timestamp // 60_000 for each in origins}) == 1  # all were sent within a minute
        assert restored.reused is was_there
        assert table.meta.next_offsets["orders"] == _next(kept, "orders", partition)

    assert known == set(IDS)
    assert (
        heads == 1_830
    )  # one ID may be accepted in several lanes, where its messages were of several groups


def _next(kept: Kept, address: str, partition: int) -> int:
    """What the last meta record says, read as JSON: by no code of this version."""
    [*_, last] = (
        each.value or b""
        for each in kept.records(f"ringfence-{address}-changelog", partition)
        if each.key == b"\x00"
    )
    found: int = json.loads(last)["next_offsets"][address]
    return found


async def test_what_came_over_a_bridge_stays_known(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the changelog: each offset that the bridge has confirmed is below the floor, or remembered."""
    confirmed = {
        partition: (note.decode(text), offset)
        for partition, (offset, text) in kept.committed("ringfence-bridge-to-archive").items()
    }
    found: dict[int, int] = {}
    for partition in range(PARTITIONS):
        table = LaneTable(tmp_path / f"archive-{partition}", _options("archive"))
        await _opening(kept, "archive", partition, monkeypatch)(table)
        table.close()
        for way, held in table.hops.ways.items():
            assert (way.source.bridge, way.arrived) == ("to-archive", partition)
            last = max([held.floor - 1, *held.above])
            found[way.source.partition] = max(last, found.get(way.source.partition, -1))

    assert set(confirmed) == set(found) == set(range(PARTITIONS))
    for partition, (said, offset) in confirmed.items():
        assert said is not None
        assert said.still == note.AT_REST
        # Its last message, before the marker that the bridge has passed over.
        assert found[partition] == offset - 2
    assert sum(said.forwarded for said, _ in confirmed.values() if said is not None) == 1_830


def test_leases(kept: Kept) -> None:
    """The last record of each partition is released, where the group's offset is; the next holder's token is greater."""
    latest = {}
    for partition in range(8):
        for found in kept.records("ringfence-progress", partition):
            group, topic, number = record.decode_key(found.key or b"")
            assert (group, topic) == ("counting", "orders.accepted")
            latest[number] = record.decode(found.value or b"")

    assert set(latest) == set(range(PARTITIONS))
    for number, each in latest.items():
        assert (each.released, each.token, each.finished, each.attempts) == (True, 1, [], {})
        assert each.next == kept.committed("counting")[number][0] == each.delivered + 1
        assert each.topic_id


def test_runs_of_the_reconciliation(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the last one ended, what it knew of IDs, what it found; a test with Spark goes on from it."""
    release_nights.unpacked(version, tmp_path)
    settings = load(release_nights.configured(tmp_path, "127.0.0.1:1"))
    nights = Nights.load(LocalFiles(settings.nights_dir))
    first, last = nights.finished.values()
    code = show.run(settings, show.Wanted())

    assert (first.number, first.verdict, first.settled) == (1, "clean", True)
    assert (last.number, last.verdict, last.settled, last.base) == (2, "anomalies", False, 1)
    assert nights.settled_base() is first
    assert (first.positions["orders"].ends, sum(first.accepted["orders"].values())) == ((35, 47), 62)
    assert (last.positions["orders.accepted"].ends, sum(last.known["orders"].values())) == ((29, 36), 62)
    assert last.cluster
    assert (code, "PHANTOM" in capsys.readouterr().out) == (0, True)


def test_versions_agree(version: str) -> None:
    """Both distributions have one, the changelog begins with it, and each release in it has its bytes here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    client = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())["project"]
    headings = [
        line.removeprefix("## ")
        for line in (ROOT / "CHANGELOG.md").read_text().splitlines()
        if line.startswith("## ")
    ]
    released = [each for each in headings if each != "Unreleased"]

    assert project["version"] == client["version"]
    assert f"ringfence-client=={client['version']}" in project["dependencies"]
    assert version in released
    assert set(released) == set(VERSIONS)
    assert released[0] == project["version"]
