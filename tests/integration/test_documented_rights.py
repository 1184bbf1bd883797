"""Verbs of operators do their work with the rights that the table of docs/security.md lists for them, and no others."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from ringfence_client import GroupConsumer, Message
from ringfence_kafka.config.load import load
from ringfence_kafka.protocol import wire_names
from tests.support import kafka
from tests.support.brokers.acls import Right
from tests.support.brokers.secured import Access, SecuredBroker
from tests.support.checkout import ROOT
from tests.support.consumers.in_process import Running
from tests.support.kafka import Sent
from tests.support.lanes import until
from tests.support.worker import WorkerProcess, run_verb, wait_for

GROUP: Final = "billing"
KINDS: Final = {"": ResourceType.TOPIC, "group ": ResourceType.GROUP, "ID ": ResourceType.TRANSACTIONAL_ID}
OPERATIONS: Final = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
    "Alter": AclOperation.ALTER,
    "Delete": AclOperation.DELETE,
}
WITHOUT: Final = "`groups skip`, `purge` without consumers"
VERBS: Final[list[tuple[str, str, str]]] = [
    ("`status`, the page of a worker", "status --json", "late"),
    ("`rings show`, `find`", "rings show", "20,000"),
    ("`rings show`, `find`", "rings find ADDRESS 1", "known"),
    ("`verdict`", "verdict ADDRESS 1", "ACCEPTED"),
    ("`topics check`", "topics check", "ok "),
    ("`consumers show`", "consumers show ADDRESS", "released"),
    (
        "`groups show`; `skip`, `purge` with running consumers",
        f"groups show ADDRESS --consumer-group {GROUP}",
        "late",
    ),
    ("`quarantine list`, `show`", "quarantine list ADDRESS", "0/0"),
    ("`quarantine redrive`, `drop`", "quarantine redrive ADDRESS", "1 redriven"),
    ("`dlq list`, `show`", "dlq list ADDRESS", "not today"),
    ("`dlq redrive`, `drop`", "dlq redrive ADDRESS --limit 1", "1 to be done again"),
    ("`dlq redrive`, `drop`", "dlq drop ADDRESS --yes", "dropped"),
    (WITHOUT, f"groups skip ADDRESS late --consumer-group {GROUP} --yes", "dropped"),
    (WITHOUT, f"groups purge ADDRESS late --consumer-group {GROUP} --yes", "dropped"),
    ("`consumers forget`", f"consumers forget {GROUP} --discard-redriven --yes", "forgot"),
    ("`rings clear`", "rings clear ADDRESS --yes", "cleared"),
    ("`rings adopt`", "rings adopt ADDRESS --yes", "adopted"),
    ("`topics grow`", "topics grow ADDRESS --partitions 2 --despite-backlog --yes", "now 2"),
    ("`rings regroup`", "rings regroup ADDRESS --lanes 1 --yes", ""),
]
"""First cell of a row, command, and a text of its output; a verb is not in the way of later ones."""


class Scene:
    """An address and a consumer group that have done some work, and users that may do one thing each."""

    def __init__(self, secured: SecuredBroker, folder: Path) -> None:
        self.secured, self.folder = secured, folder
        self.name = kafka.unique("granted")
        self.app_id = f"{self.name}-app"
        self.state = wire_names.state_topic(self.app_id, GROUP, f"{self.name}.accepted")

    def configure(self, access: Access, user: str, options: Mapping[str, Any]) -> Path:
        folder = self.folder / user
        folder.mkdir()
        return access.configure(folder, self.app_id, [{"name": self.name, "partitions": 1, **options}])

    def rights(self, program: str) -> Iterator[Right]:
        """Yield what the row of a program lists, with the names of this scene."""
        page = (ROOT / "docs" / "security.md").read_text("utf-8")
        (cell,) = re.findall(rf"^\| {re.escape(program)} \| (.*) \|$", page, re.MULTILINE)
        for item in cell.split("<br>"):
            names, _, granted = item.partition(": ")
            for kind, name in re.findall(r"(group |ID )?`([^`]+)`", names):
                pattern = ResourcePatternType.PREFIXED if "*" in name else ResourcePatternType.LITERAL
                for word in re.findall(r"\b[A-Z]\w+", granted.partition(".")[0]):
                    yield KINDS[kind], self.renamed(name.removesuffix("*")), pattern, OPERATIONS[word]

    def renamed(self, name: str) -> str:
        if name.endswith("-state"):
            return self.state
        return re.sub("ringfence(?=$|-)", self.app_id, name).replace("orders", self.name)


def _run(config: Path, name: str, command: str) -> subprocess.CompletedProcess[str]:
    words = command.replace("ADDRESS", name).split()
    return run_verb(*words, "--config", str(config), check=False)


async def _work(scene: Scene, owner: Path, environment: Mapping[str, str]) -> None:
    """Have a state, two dead letters, a quarantined record, and a group that waits."""
    plaintext, name = scene.secured.plaintext, scene.name
    malformed = Sent(b"4", b"g", b"z", ((wire_names.HEADER_TRANSACTION, b"unknown"),))
    kafka.send(plaintext, name, [Sent(b"1", b"g"), Sent(b"2", b"bad"), Sent(b"3", b"bad"), malformed])
    with WorkerProcess(owner, "w", dict(environment)) as process:
        process.wait_ready()
        wait_for(lambda: kafka.committed(plaintext, scene.app_id, name, 1) == [4], process.log)
        assert process.stop() == 0
    settings = load(owner)
    handled: list[bytes | None] = []

    async def handle(message: Message) -> None:
        handled.append(message.group)
        if message.group == b"bad":
            message.reject("not today")
        message.state = b"1"

    running = Running(GroupConsumer(settings, settings.addresses[0], GROUP, handle), handle)
    try:
        await running.ready()
        await until(lambda: len(handled) == 3, lambda: f"handled {handled}")
        await running.stop()
    finally:
        await running.end()
    kafka.send(plaintext, f"{name}.accepted", [Sent(None, b"late"), Sent(None, b"late")])


@pytest.mark.long
async def test_verbs_need_no_more_rights(
    secured: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each verb reports what there is, or does its work."""
    for variable, value in secured.scram.environment.items():
        monkeypatch.setenv(variable, value)
    scene = Scene(secured, tmp_path)
    name = scene.name
    owner = scene.configure(secured.scram, "owner", {})
    assert _run(owner, name, "topics create").returncode == 0
    await _work(scene, owner, secured.scram.environment)
    failed = []
    for number, (program, command, expected) in enumerate(VERBS):
        user = f"{name}-{number}"
        secured.add_user(user, dict.fromkeys(scene.rights(program)))
        options = {"group_header": "customer"} if "adopt" in command else {}
        config = scene.configure(secured.scram.with_user(user), user, options)
        done = _run(config, name, command)
        if done.returncode > 1 or expected not in done.stdout:
            failed.append((command, done.returncode, done.stdout, done.stderr))

    assert failed == []
