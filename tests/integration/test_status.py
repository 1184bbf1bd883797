"""Status for operators: workers and consumers that run or are gone, and waiting messages."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.bridge.quarantines import QuarantineMetrics
from app.bridge.web import BridgeMetrics
from app.commands.status.findings import findings
from app.commands.status.model import Consumers, Finding, Status
from app.commands.status.read import read_status
from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.http.server import ProcessMetrics
from tests.support import kafka
from tests.support.consumers.in_process import Bench, Recorder, consuming, numbered
from tests.support.consumers.processes import ConsumerProcess
from tests.support.deployment import exposed, named
from tests.support.kafka import Sent
from tests.support.worker import WorkerProcess, configure, run_verb, wait_for, worker

PARTITIONS = 2


class Scene:
    """An address of two partitions with a worker, and a consumer whose handler fails for ever at the group ``bad``."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.name = kafka.unique("status")
        self.group = f"{self.name}-group"
        self.config = configure(
            folder,
            bootstrap,
            self.name,
            [{"name": self.name, "partitions": PARTITIONS, "id_cache_size": 100}],
        )
        self.worker = WorkerProcess(self.config, "w")
        self.consumer = ConsumerProcess(self.config, "c", self.name, self.group, handler="refuse_or_hold")

    def send(self) -> None:
        """Send 60 messages, a third of them twice, and one that fails."""
        fine = [Sent(b"%d" % index, b"g%d" % (index % 7)) for index in range(60)]
        kafka.send(self.bootstrap, self.name, [*fine, *fine[:20], Sent(b"b", b"bad")])

    def status(self, *arguments: str, code: int | None = None) -> dict[str, Any]:
        done = run_verb("status", "--json", *arguments, "--config", str(self.config), check=False)
        assert code is None or done.returncode == code, f"{done.returncode}\n{done.stdout}{done.stderr}"
        return dict(json.loads(done.stdout))

    def judged(self) -> int:
        """Count the messages that the lanes have decided on."""
        lanes = self.worker.health()[1].get("lanes", {}).values()
        return sum(lane.get("accepted", 0) + lane.get("duplicates", 0) for lane in lanes)

    def rates(self) -> list[float | None]:
        """Messages that came into each lane, a second; None = the worker has not measured twice."""
        return [value.get("rate") for value in self.worker.health()[1].get("lanes", {}).values()]

    def settled(self) -> bool:
        """Whether all sent messages are judged, and all but one handled."""
        counts = self.consumer.health()[1].get("counts", {})
        return bool(counts.get("finished") == 60 and counts.get("failed", 0) > 1)


@pytest.fixture(scope="module")
def scene(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Yield a running scene that has come to rest."""
    scene = Scene(broker.bootstrap_servers, tmp_path_factory.mktemp("status"))
    with scene.worker, scene.consumer:
        scene.worker.wait_ready()
        scene.consumer.wait_ready()
        scene.send()
        wait_for(scene.settled, lambda: f"{scene.consumer.health()}\n{scene.consumer.log()}")
        yield scene


def test_at_a_glance(scene: Scene) -> None:
    """Status shows each lane with its worker, the dropped messages, the consumers, and each failure with the command that helps."""
    wait_for(lambda: None not in scene.rates(), lambda: str(scene.worker.health()))
    kafka.send(scene.bootstrap, scene.name, [Sent(b"0", b"g0")])
    wait_for(lambda: scene.judged() == 82, lambda: str(scene.worker.health()))
    wait_for(lambda: any(scene.rates()), lambda: str(scene.worker.health()))
    told = scene.status()
    (worker,) = told["workers"]
    (address,) = told["addresses"]
    (consumers,) = told["consumers"]
    lanes = address["lanes"]
    failing = [item for item in told["findings"] if "group bad waits" in item["what"]]

    assert (worker["name"], worker["lanes"], worker["ready"]) == ("w", PARTITIONS, True)
    assert worker["web"].endswith(f":{scene.worker.port}")
    assert [(lane["state"], lane["worker"], lane["lag"]) for lane in lanes] == [("open", "w", 0)] * 2
    assert sum(lane["accepted"] for lane in lanes) == 61
    assert sum(lane["duplicates"] for lane in lanes) == 21
    assert sum(lane["ring_size"] for lane in lanes) == 61
    assert 0 < sum(lane["rate"] for lane in lanes) < 82
    assert (consumers["consumer_group"], consumers["address"]) == (scene.group, scene.name)
    assert len(consumers["members"]) == 1
    assert [consumer["head_group"] for consumer in consumers["partitions"] if consumer["lag"]] == ["bad"]
    assert all(consumer["run_seconds"] is not None for consumer in consumers["partitions"])
    (finding,) = failing
    assert finding["command"] == (f"ringfence groups skip {scene.name} bad --consumer-group {scene.group}")


def test_what_dashboards_ask_for(scene: Scene) -> None:
    """Each metric that the alerts and the dashboard name is exposed by a worker, a consumer or a bridge."""
    found = (
        exposed(scene.worker.page("/metrics"))
        | exposed(scene.consumer.page("/metrics"))
        | exposed(ProcessMetrics(BridgeMetrics([]), QuarantineMetrics([])).text().decode())
    )

    assert named() - found == set()


def test_nobody_runs(scene: Scene) -> None:
    """A missing worker and a missing consumer are findings with the start command; status still shows the changelog's content.

    It is the last test of the scene: nothing runs after it.
    """
    assert (scene.worker.stop(), scene.consumer.stop()) == (0, 0)
    kafka.send(scene.bootstrap, scene.name, [Sent(b"new", b"g")])
    told = scene.status(code=1)
    without = scene.status("--ignore-group", scene.group, code=1)
    standing = [item["command"].split(" --")[0] for item in told["findings"] if item["stands"]]

    assert standing == ["ringfence worker", f"ringfence consume {scene.name}"]
    lanes = told["addresses"][0]["lanes"]
    assert {lane["state"] for lane in lanes} == {"nobody"}
    assert sum(lane["lag"] for lane in lanes) == 1
    assert sum(lane["ring_size"] for lane in lanes) == 61
    assert without["consumers"] == []


async def _status(bench: Bench) -> tuple[Status, Consumers, list[Finding]]:
    status = await read_status(bench.settings)
    (consumers,) = status.consumers
    return status, consumers, [finding for finding in findings(status) if bench.group in finding.where]


async def test_markers_do_not_wait(bootstrap: str) -> None:
    """An aborted transaction behind the last message is a lag of offsets, and nothing waits. One message behind it does."""
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"g", 3))
        await bench.handle(Recorder(), 3)
        kafka.send_in_transaction(bootstrap, bench.accepted, numbered(b"g", 2), commit=False)
        _, consumers, found = await _status(bench)
        assert (consumers.lag, consumers.waiting, found) == (3, 0, [])

        bench.send(*numbered(b"g", 1))
        _, consumers, (finding,) = await _status(bench)

    assert consumers.lag == 4
    assert finding.what.startswith("no consumer runs, and up to 4 messages wait")


def test_a_constant_id(bootstrap: str, tmp_path: Path) -> None:
    """A producer that sends one ID with all its messages is a note, on both paths, in the log and in the metrics."""
    name = kafka.unique("constant")
    names = {name: "drop", f"{name}-python": "divert"}  # the core leaves diverted duplicates to Python
    addresses = [{"name": item, "partitions": 1, "duplicates": how} for item, how in names.items()]
    config = configure(tmp_path, bootstrap, name, addresses)
    worker = WorkerProcess(config, "w")

    def duplicates() -> int:
        return sum(lane.get("duplicates", 0) for lane in worker.health()[1].get("lanes", {}).values())

    with worker:
        worker.wait_ready()
        for item in names:
            kafka.send(bootstrap, item, [Sent(b"same", b"g%d" % index) for index in range(30)])
        wait_for(lambda: duplicates() == 58, lambda: str(worker.health()))
        told = json.loads(run_verb("status", "--json", "--config", str(config)).stdout)
        log, metrics = worker.log(), worker.page("/metrics")
        commands = [shlex.split(item["command"]) for item in told["findings"]]
        originals = [run_verb(*command[1:], "--config", str(config)).stdout for command in commands]
    lanes = [lane for address in told["addresses"] for lane in address["lanes"]]
    means = [
        "A producer that sends one ID with all its messages loses all but the first",
        f"All but the first message of a producer that sends one ID go to {name}-python.duplicates",
    ]

    assert [lane["frequent_id"] for lane in lanes] == [
        {"id": "same", "count": 29, "duplicates": 29, "parts": [], "means": text} for text in means
    ]
    assert commands == [["ringfence", "rings", "find", item, "same"] for item in names]
    assert all(f"{item}/0/0" in found for item, found in zip(names, originals, strict=True))
    assert [item["stands"] for item in told["findings"]] == [False, False]
    assert [log.count(f"have the ID same. {text}") for text in means] == [1, 1]
    for item in names:
        assert f'ringfence_frequent_id_share{{address="{item}",lane="{item}-0"}} 1.0' in metrics


def test_workers_of_another_app(bootstrap: str, tmp_path: Path) -> None:
    """Workers of another ``app.id`` that accept the same messages are a problem until they stop."""
    name = kafka.unique("apps")
    first, second = (
        configure(tmp_path, bootstrap, app, [{"name": name, "partitions": 1}]) for app in (name, f"{name}-2")
    )
    with worker(first, "w1"), worker(second, "w2") as other:
        told = [
            run_verb("status", "--json", "--config", str(config), check=False) for config in (first, second)
        ]
        assert other.stop() == 0
        after = run_verb("status", "--json", "--config", str(first), check=False)
    found = [json.loads(done.stdout)["findings"] for done in (*told, after)]

    assert [done.returncode for done in (*told, after)] == [1, 1, 0]
    for findings_, app in zip(found, (f"{name}-2", name), strict=False):
        assert f"workers of app.id {app} accept its messages too" in findings_[0]["what"]
    assert not any("app.id" in finding["what"] for finding in found[2])
