"""``ringfence dlq``: their own consumer group handles dead letters again, once, and no other group sees them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from app.commands.consumers.forget import RedrivesPendingError, forget
from app.commands.repair.dead_letters import DeadLetterTopic
from app.commands.repair.records import RedriveOptions, Selection
from app.commands.repair.redrive_log import RedrivePartition
from ringfence_kafka.config.load import load
from ringfence_kafka.errors import RepairError
from ringfence_kafka.protocol import wire_names
from tests.support import kafka
from tests.support.consumers.processes import ConsumerProcess, consumers, latest_written, noted
from tests.support.kafka import Got, Sent
from tests.support.terminal import steps
from tests.support.worker import configure, run_verb, wait_for

EACH = 3


class Scene:
    """An address with the groups ``bad`` and ``fine``, one partition, one consumer group."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.name = kafka.unique("dlq")
        self.group = f"{self.name}-group"
        self.mended = folder / "mended"
        self.config = configure(folder, bootstrap, self.name, [{"name": self.name, "partitions": 1}])
        self.settings = load(self.config)
        self.topic = DeadLetterTopic(self.settings, self.name)
        self.accepted = f"{self.name}.accepted"
        for index in range(2 * EACH):
            source = ("_RF_SOURCE", f"{self.name}/0/{index}".encode())
            kafka.send(
                bootstrap,
                self.accepted,
                [Sent(None, (b"bad", b"fine")[index % 2], b"v%d" % index, (source,))],
            )

    def consumer(self, *options: str) -> ConsumerProcess:
        return ConsumerProcess(
            self.config, "c", self.name, self.group, "--lease-timeout", "3", "--lease-idle", "0.5", *options,
            handler="refuse_until_mended", environment={"MENDED": str(self.mended)},
        )  # fmt: skip

    def letters(self) -> list[Got]:
        topics = kafka.topics(self.bootstrap)
        return kafka.read_all(self.bootstrap, f"{self.name}.dlq", 1) if f"{self.name}.dlq" in topics else []

    def redrive(self, selection: Selection | None = None, **options: Any) -> int:
        return self.topic.redrive(selection or Selection(), RedriveOptions(**options))

    def drop(self, selection: Selection) -> int:
        return self.topic.drop(selection, dry_run=False, yes=True)

    def finished(self) -> int:
        """Position of the last record when nothing is owed; else -1."""
        written = latest_written(self.bootstrap, self.name, self.group, self.accepted).get(0)
        return -1 if written is None or written.progress.again else written.progress.next


def _handled(process: ConsumerProcess, what: str = "end") -> list[str]:
    return [line.split()[3] for line in noted(process.handled) if line.split()[1] == what]


def _groups(scene: Scene, verb: str, *arguments: str) -> str:
    where = ("--consumer-group", scene.group, "--config", str(scene.config))
    return run_verb("groups", verb, scene.name, *arguments, *where).stdout


def test_done_once_more(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each dead letter is handled again once, beside a consumer or without one, however the redrive ends.

    One that fails again is a new dead letter.
    """
    scene = Scene(bootstrap, tmp_path)
    process = scene.consumer()
    with consumers(process):
        wait_for(lambda: len(scene.letters()) == EACH, process.log)
        dry = scene.redrive(dry_run=True)
        first = scene.redrive(limit=1)
        wait_for(lambda: len(scene.letters()) == EACH + 1, process.log)
        letters = scene.letters()
        scene.mended.touch()

        async def die(*_: Any) -> None:
            raise RepairError("cut off")

        with monkeypatch.context() as patched:
            patched.setattr(RedrivePartition, "settle", die)
            with pytest.raises(RepairError):  # the consumer has it, and nobody wrote that it is settled
                scene.redrive(Selection(at=[(0, letters[1].offset)]))
        wait_for(lambda: len(_handled(process)) == EACH + 1, process.log)
        told = scene.redrive(Selection(at=[(0, letters[1].offset)]))
        assert process.stop() == 0
    capsys.readouterr()
    alone = scene.redrive(Selection(consumer_group=scene.group))
    progress = capsys.readouterr().err
    owed = scene.finished()
    shown = json.loads(_groups(scene, "show", "--json"))["groups"]
    nothing = scene.redrive()
    capsys.readouterr()
    scene.topic.list_records(Selection(), settled_too=True, as_json=True)
    listed = json.loads(capsys.readouterr().out)
    with consumers(process):
        wait_for(lambda: len(_handled(process)) == 2 * EACH, process.log)
        wait_for(lambda: scene.finished() == 2 * EACH, process.log)
        assert process.stop() == 0

    assert [(item["group"], item["depth"], item["redriven"]) for item in shown] == [("bad", 2, [0, 4])]
    assert (dry, first, told, alone, nothing) == (0, 0, 0, 0, 1)
    (step,) = steps(progress)
    assert re.fullmatch(rf"redriving records of {scene.name}\.dlq: \d+ records read, 2 done, 0 left", step)
    assert owed == -1
    assert sorted(_handled(process)) == sorted(f"v{index}" for index in range(2 * EACH))
    redriven = [dict(letter.headers).get(wire_names.HEADER_REDRIVEN) for letter in letters]
    assert redriven == [None, None, None, b"1"]
    names = ("topic", "partition", "offset", "group", "delivery.count", "message")
    assert [dict(letters[0].headers)[f"__dlq.errors.{name}"] for name in names] == [
        scene.accepted.encode(), b"0", b"0", scene.group.encode(), b"1", b"not mended",
    ]  # fmt: skip
    assert [item["settled"] for item in listed] == [True] * (EACH + 1)
    assert len(kafka.read_all(bootstrap, scene.accepted, 1)) == 2 * EACH


def test_parked_group(bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A group waits behind its dead letter, also over a killed consumer, until it is redriven or dropped; then it continues in order."""
    scene = Scene(bootstrap, tmp_path)
    process = scene.consumer("--on-dead-letter", "park")
    with consumers(process):
        wait_for(lambda: len(_handled(process)) == EACH and len(scene.letters()) == 1, process.log)
        process.kill()
        process.start()
        wait_for(lambda: process.health()[0] == 200, process.log)
        wait_for(lambda: "bad" in {group["group"] for group in process.groups()}, process.log)
        scene.topic.list_records(Selection(), settled_too=False, as_json=True)
        listed = json.loads(capsys.readouterr().out)
        assert [(item["group"], item["group_waits"]) for item in listed] == [("bad", True)]
        redriven = scene.redrive()  # nothing is mended
        wait_for(lambda: len(scene.letters()) == 2, process.log)
        dropped = scene.drop(Selection())
        wait_for(lambda: len(scene.letters()) == 3, process.log)
        between = scene.letters()
        scene.mended.touch()
        last = scene.redrive()
        wait_for(lambda: len(_handled(process)) == 2 * EACH - 1, process.log)
        wait_for(lambda: scene.finished() == 2 * EACH, process.log)
        assert process.stop() == 0
    done = capsys.readouterr().out

    assert (redriven, dropped, last) == (0, 0, 0)
    assert [item.value for item in between] == [b"v0", b"v0", b"v2"]
    assert "its group continues without it" in done
    assert [name for name in _handled(process) if name in {"v0", "v2", "v4"}] == ["v2", "v4"]
    begun = [name for name in _handled(process, "begin") if name in {"v0", "v2", "v4"}]
    assert begun == ["v0", "v0", "v2", "v2", "v4"]  # once, and once for each redrive


@pytest.mark.long
def test_forgotten_group_keeps_its_dead_letters(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A group with pending redrives is not forgotten. A forgotten group gets no redrives until it consumes again."""
    scene = Scene(bootstrap, tmp_path)
    process = scene.consumer()
    with consumers(process):
        wait_for(lambda: len(scene.letters()) == EACH, process.log)
        assert process.stop() == 0
    assert scene.redrive(limit=1) == 0
    with pytest.raises(RedrivesPendingError, match=f"1 in {scene.accepted}/0.*--discard-redriven"):
        forget(scene.settings, scene.group, yes=True)
    assert scene.finished() == -1  # nothing was deleted
    assert forget(scene.settings, scene.group, yes=True, discard_redriven=True) == 0
    assert "1 redriven messages were discarded" in capsys.readouterr().out

    dry, left = scene.redrive(dry_run=True), scene.redrive()
    told = capsys.readouterr().out
    assert (dry, left) == (1, 1)
    assert told.count(f"{scene.group} has no progress there") == 2  # one line of each
    assert scene.finished() == -1
    scene.mended.touch()
    with consumers(scene.consumer("--start", "latest")):
        wait_for(lambda: scene.finished() == 2 * EACH, process.log)
        assert scene.redrive() == 0
        wait_for(lambda: len(_handled(process)) == EACH + EACH - 1, process.log)
    assert sorted(_handled(process)) == sorted(["v1", "v3", "v5", "v2", "v4"])


def test_what_is_left(bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A redrive leaves a dead letter without a place, one whose place has another message or none, and one that goes round."""
    scene = Scene(bootstrap, tmp_path)
    accepted = kafka.read_all(bootstrap, scene.accepted, 1)

    def letter(offset: int, value: bytes | None = None, *more: tuple[str, bytes], where: bool = True) -> Sent:
        there = accepted[offset] if offset < len(accepted) else accepted[0]
        place = {"topic": scene.accepted.encode(), "partition": b"0", "offset": b"%d" % offset}
        named = [(f"__dlq.errors.{name}", found) for name, found in place.items()] if where else []
        ours = [("_RF_CONSUMER_GROUP", scene.group.encode()), ("_RF_REASON", b"why"), *named, *more]
        return Sent(None, there.key, value or there.value, (*there.headers, *ours))

    kafka.create_topics(bootstrap, {f"{scene.name}.dlq": (1, {})})
    kafka.commit(bootstrap, scene.group, scene.accepted, 0)
    kafka.send(
        bootstrap,
        f"{scene.name}.dlq",
        [letter(0, b"another"), letter(99), letter(1, where=False), letter(2, None, ("_RF_REDRIVEN", b"3"))],
    )
    code = scene.redrive(dry_run=True)
    told = capsys.readouterr().out
    dropped = scene.drop(Selection(at=[(0, 0), (0, 1), (0, 2)]))
    forced = scene.redrive(dry_run=True, force=True)

    assert (code, dropped, forced) == (1, 0, 0)
    assert "another message is at its offset" in told
    assert "its message is gone from the accepted topic" in told
    assert "does not name the place of its message" in told
    assert "redriven 3 times already" in told
    assert "0 would be done again, 4 left" in told
