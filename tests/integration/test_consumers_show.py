"""``consumers show``: beside consumers that hold, drain, wait and are dead; and what cannot be read."""

import json
from pathlib import Path
from typing import Any

from tests.support import kafka
from tests.support.consumers.processes import ConsumerProcess
from tests.support.kafka import Sent
from tests.support.worker import configure, run_verb, wait_for

PARTITIONS = 2
SESSION_S = "6"


class Scene:
    """An address of two partitions, and in each a message that no handler ever finishes."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.name = kafka.unique("leases")
        self.group = f"{self.name}-group"
        self.config = configure(folder, bootstrap, self.name, [{"name": self.name, "partitions": PARTITIONS}])
        for partition in range(PARTITIONS):
            kafka.send(
                bootstrap, f"{self.name}.accepted", [Sent(None, b"fine", b"x"), Sent(None, b"held", b"x")], partition
            )  # fmt: skip

    def consumer(self, name: str) -> ConsumerProcess:
        """It drains for as long as the test lasts, and its lease lasts as long."""
        return ConsumerProcess(
            self.config, name, self.name, self.group, "--drain-timeout", "90", "--lease-timeout", "90",
            "--session-timeout", SESSION_S, handler="refuse_or_hold",
        )  # fmt: skip

    def verb(self, *arguments: str, code: int = 0) -> str:
        done = run_verb("consumers", "show", *arguments, "--config", str(self.config), check=False)
        assert done.returncode == code, f"{done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + (done.stderr if code else "")

    def rows(self, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
        done = run_verb("consumers", "show", *arguments, "--json", "--config", str(self.config), check=False)
        assert done.returncode == code, f"{done.returncode}\n{done.stdout}{done.stderr}"
        return list(json.loads(done.stdout)["partitions"])


def test_held_draining_waiting_gone(bootstrap: str, tmp_path: Path) -> None:
    """A row a partition says who holds it, how far, who waits for it, and whether its holder is still a member."""
    scene = Scene(bootstrap, tmp_path)
    first, second = scene.consumer("first"), scene.consumer("second")
    try:
        first.start()
        wait_for(lambda: len(scene.rows(scene.name)) == PARTITIONS and _all(scene, running=1), first.log)
        held = scene.rows(scene.name)
        second.start()
        wait_for(lambda: any(row["waits"] for row in scene.rows()), second.log)
        wait_for(lambda: "draining" in {row["state"] for row in scene.rows()}, first.log)
        contested = scene.rows("--consumer-group", scene.group)
        table = scene.verb(scene.name)
        first.kill()
        wait_for(lambda: _all(scene, holder_is_member=False), second.log)
        orphaned = scene.verb()
    finally:
        first.destroy()
        second.destroy()
    waited = next(item for item in contested if item["waits"])

    assert {(item["state"], item["holder_is_member"], item["waits"]) for item in held} == {
        ("held", True, None)
    }
    assert {(item["delivered"], item["acknowledged"], item["running"], item["lag"]) for item in held} == {
        (2, 1, 1, 1)
    }
    assert {item["token"] for item in held} == {1}
    assert {item["address"] for item in held} == {scene.name}
    assert waited["state"] == "draining"
    assert waited["holder_is_member"] is True
    assert f"-{first.pid}-" in waited["holder"]
    assert f"-{second.pid}-" in waited["waits"]
    assert [item["waits"] for item in contested].count(None) == 1
    assert "draining" in table
    assert "2 members" in table
    assert f"{waited['waits']} waits" in table
    assert f"{waited['holder']} (gone)" in orphaned


def _all(scene: Scene, **wanted: object) -> bool:
    return all(wanted.items() <= row.items() for row in scene.rows())


def test_released_and_unknown(bootstrap: str, tmp_path: Path) -> None:
    """After a stop in order a partition is released and nobody's; a group that never was is exit code 1, with the way out."""
    scene = Scene(bootstrap, tmp_path)
    nothing = scene.verb()
    unknown = scene.verb(scene.name, "--consumer-group", "nobody", code=1)
    elsewhere = scene.verb("no-such-address", code=2)
    process = ConsumerProcess(scene.config, "c", scene.name, scene.group)
    try:
        process.start()
        process.wait_ready()
        wait_for(lambda: _all(scene, acknowledged=2), process.log)
        assert process.stop() == 0
    finally:
        process.destroy()
    rows = scene.rows(scene.name, "--consumer-group", scene.group)

    assert "no consumer has held a partition yet" in nothing
    assert "without --consumer-group all that is known is shown" in unknown
    assert f"the configuration has {scene.name}" in elsewhere
    assert [(row["state"], row["holder_is_member"], row["waits"], row["lag"]) for row in rows] == [
        ("released", None, None, 0)
    ] * PARTITIONS


def test_unreadable_record(bootstrap: str, tmp_path: Path) -> None:
    """A record of another version is a row that says so, beside the others; exit code 1."""
    scene = Scene(bootstrap, tmp_path)
    key = json.dumps([scene.group, f"{scene.name}.accepted", 1], separators=(",", ":")).encode()
    kafka.create_topics(bootstrap, {f"{scene.name}-progress": (1, {"cleanup.policy": "compact"})})
    kafka.send(bootstrap, f"{scene.name}-progress", [Sent(None, key, b'{"format": 1, "next": 5}')], 0)
    rows = scene.rows(code=1)
    text = scene.verb(code=1)

    assert [row["state"] for row in rows] == ["none", "unreadable"]
    assert "run the version that wrote it" in rows[1]["fault"]
    assert f"{scene.name}.accepted/1" in text
