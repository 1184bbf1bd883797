"""``groups show``, ``skip`` and ``purge``: beside a running consumer and without one."""

import json
from pathlib import Path
from typing import Any

from tests.support import kafka
from tests.support.consumers.processes import ConsumerProcess, consumers
from tests.support.kafka import Sent
from tests.support.worker import configure, run_verb, wait_for

EACH = 20
FINE = "hex:66696e65ff"
"""Group name that is not text, as verbs write it."""
GROUPS = (b"bad", b"held", b"fine\xff")


class Scene:
    """An address with three groups, one partition, and one consumer group."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.name = kafka.unique("groups")
        self.group = f"{self.name}-group"
        self.config = configure(folder, bootstrap, self.name, [{"name": self.name, "partitions": 1}])
        records = [Sent(b"%d" % index, GROUPS[index % 3], b"v %d 0" % index) for index in range(3 * EACH)]
        kafka.send(bootstrap, f"{self.name}.accepted", records)

    def consumer(self, *options: str) -> ConsumerProcess:
        where = (self.config, "c", self.name, self.group)
        return ConsumerProcess(*where, "--drain-timeout", "0.5", *options, handler="refuse_or_hold")

    def verb(self, verb: str, *arguments: str, fails: bool = False) -> str:
        where = ("--consumer-group", self.group, "--config", str(self.config))
        done = run_verb("groups", verb, self.name, *arguments, *where, check=False)
        assert (done.returncode != 0) is fails, f"{done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def overview(self, *options: str) -> str:
        return run_verb("groups", "show", self.name, *options, "--config", str(self.config)).stdout

    def show(self) -> dict[str, Any]:
        """Return groups by name; the only partition as ``partition``."""
        document, _ = json.JSONDecoder().raw_decode(self.verb("show", "--json"))  # remarks follow it
        return {item["group"]: item for item in document["groups"]} | {"partition": document["partitions"][0]}


def test_beside_a_consumer(bootstrap: str, tmp_path: Path) -> None:
    """Depth counts unfinished messages; skip drops a head that always fails, and purge drops messages that no handler has."""
    scene = Scene(bootstrap, tmp_path)
    process = scene.consumer("--max-attempts", "1000")
    with consumers(process):
        wait_for(
            lambda: process.handled.exists() and process.handled.read_text().count("end") == EACH, process.log
        )
        wait_for(lambda: "attempt 2 failed" in process.log(), process.log)
        wait_for(lambda: FINE not in scene.show(), process.log)
        shown = scene.show()
        skipped = scene.verb("skip", "bad")
        wait_for(lambda: scene.show()["bad"]["depth"] == EACH - 1, lambda: str(scene.show()))
        purged = scene.verb("purge", "hex:" + b"held".hex())
        after = scene.show()
        table = scene.verb("show")
        nothing = scene.verb("purge", "nobody", fails=True)
        empty = scene.verb("skip", "", fails=True)
        second = after["bad"]["head_offset"]
        buried = scene.verb("skip", "bad", "--to-dlq")
        rest = scene.verb("purge", "bad", "--to-dlq", "--yes")
        held = scene.verb("purge", "held", "--to-dlq", fails=True)
        wait_for(lambda: "bad" not in scene.show(), lambda: str(scene.show()))
        letters = kafka.read_all(bootstrap, f"{scene.name}.dlq", 1)

    assert f"1 message of bad to the dead letters: 1 offset: {second}" in buried
    assert f"{EACH - 2} messages of bad to the dead letters" in rest
    assert held.startswith("nothing to drop")
    assert "a handler runs its first message" in held
    assert len(letters) == EACH - 1
    assert {letter.key for letter in letters} == {b"bad"}
    assert {dict(letter.headers)["_RF_REASON"] for letter in letters} == {b"dropped by an operator"}
    assert "an operator drops 1 offset" in process.log()
    assert {name: item["depth"] for name, item in shown.items() if name != "partition"} == {
        "bad": EACH,
        "held": EACH,
    }
    assert shown["held"]["acquired"] == 1
    assert (shown["held"]["reason"], shown["held"]["attempts"]) == ("running", 1)
    assert shown["held"]["running_seconds"] > 0
    assert (shown["bad"]["reason"], shown["bad"]["running_seconds"]) == ("retry", None)
    assert shown["bad"]["attempts"] >= 2
    assert shown["held"]["owner"]
    assert shown["held"]["head_offset"] == 1
    assert shown["held"]["head_age_seconds"] > 0
    assert shown["partition"]["answered"] is True
    assert f"{scene.name}.accepted/0  1 message of bad" in skipped
    assert f"{EACH - 1} messages" in purged
    assert after["held"]["depth"] == 1
    assert after["bad"]["head_offset"] > shown["bad"]["head_offset"]
    assert "runs for" in table
    assert "nothing to drop" in nothing
    assert "the empty group (text:) has no message" in empty


def test_a_parked_message_has_one_dead_letter(bootstrap: str, tmp_path: Path) -> None:
    """A parked message that an operator sends to the dead letters is there already."""
    scene = Scene(bootstrap, tmp_path)
    process = scene.consumer("--max-attempts", "1", "--on-dead-letter", "park")
    with consumers(process):
        wait_for(lambda: len(kafka.read_all(bootstrap, f"{scene.name}.dlq", 1)) == 1, process.log)
        scene.verb("skip", "bad", "--to-dlq")
        scene.verb("purge", "bad", "--to-dlq", "--yes")
        wait_for(lambda: "bad" not in scene.show(), lambda: str(scene.show()))
        letters = kafka.read_all(bootstrap, f"{scene.name}.dlq", 1)

    assert len(letters) == EACH
    assert {letter.value for letter in letters} == {b"v %d 0" % index for index in range(0, 3 * EACH, 3)}


def test_parked_message_whose_dead_letter_is_gone(bootstrap: str, tmp_path: Path) -> None:
    """It stays parked while its letter is open. Without it, a release tries it again, and --to-dlq writes another letter."""
    scene = Scene(bootstrap, tmp_path)
    topic = f"{scene.name}.dlq"
    process = scene.consumer("--max-attempts", "1", "--on-dead-letter", "park")

    def values() -> list[bytes | None]:
        return [letter.value for letter in kafka.read_all(bootstrap, topic, 1)]

    with consumers(process):
        wait_for(lambda: values() == [b"v 0 0"], process.log)
        parked = scene.verb("release", "bad", fails=True)
        kafka.delete_before(bootstrap, topic, -1)
        released = scene.verb("release", "bad")
        wait_for(lambda: values() == [b"v 0 0"], process.log)
        kafka.delete_before(bootstrap, topic, -1)
        wait_for(lambda: scene.show()["bad"]["reason"] == "parked", lambda: str(scene.show()))
        scene.verb("skip", "bad", "--to-dlq")
        wait_for(lambda: values() == [b"v 0 0", b"v 3 0"], process.log)
        kafka.delete_before(bootstrap, topic, -1)
        assert process.stop() == 0
        alone = scene.verb("release", "bad")
        process.start()
        wait_for(lambda: values() == [b"v 3 0"], process.log)

    assert "is parked, and its dead letter is open: `ringfence dlq redrive" in parked
    assert "its dead letter is gone: it is tried again" in released
    assert "its dead letter is gone: it is tried again" in alone


def test_unknown_consumer_group(bootstrap: str, tmp_path: Path) -> None:
    """A misspelt name drops nothing, and gives exit code 2: otherwise a future group would begin without the messages.

    A group with an offset is known too: somebody has prepared it.
    """
    scene = Scene(bootstrap, tmp_path)
    arguments = ("held", "--consumer-group", scene.group, "--config", str(scene.config))
    refused = [run_verb("groups", verb, scene.name, *arguments, check=False) for verb in ("purge", "skip")]
    shown = scene.verb("show")
    told = scene.show()
    offsets = kafka.committed(bootstrap, scene.group, f"{scene.name}.accepted")
    kafka.commit(bootstrap, scene.group, f"{scene.name}.accepted", 0)
    purged = scene.verb("purge", "held")

    assert [completed_process.returncode for completed_process in refused] == [2, 2]
    assert all(
        f"{scene.group} has never consumed {scene.name}" in completed_process.stderr
        for completed_process in refused
    )
    assert f"not known  {scene.group} has never consumed {scene.name}" in shown
    assert told["held"]["depth"] == EACH
    assert (told["held"]["reason"], told["held"]["attempts"]) == ("lease", 0)
    assert offsets == [-1001]
    assert f"{EACH} messages of held" in purged


def test_without_a_consumer(bootstrap: str, tmp_path: Path) -> None:
    """Messages dropped while no consumer ran are never handed out; all others are."""
    scene = Scene(bootstrap, tmp_path)
    kafka.commit(bootstrap, scene.group, f"{scene.name}.accepted", 0)
    before = scene.show()
    scene.verb("skip", FINE)
    scene.verb("skip", FINE)
    scene.verb("purge", "held")
    scene.verb("purge", "bad")
    between = scene.show()
    process = scene.consumer()
    with consumers(process):
        wait_for(lambda: scene.show()["partition"]["unfinished"] == 0, process.log)
        assert process.stop() == 0
    handled = process.handled.read_text().splitlines()
    after = scene.show()

    assert before["partition"]["holder"] is None
    assert before[FINE]["depth"] == EACH
    assert before[FINE]["group_hex"] == GROUPS[2].hex()
    assert {name: item["depth"] for name, item in between.items() if name != "partition"} == {FINE: EACH - 2}
    assert len(handled) == EACH - 2
    assert "failed" not in process.log()
    assert after["partition"]["next"] == after["partition"]["end"]


def test_consumer_groups_and_next_messages(bootstrap: str, tmp_path: Path) -> None:
    """Without a consumer group its verb lists them, or says how to begin one; of a group it shows the next unfinished messages."""
    scene = Scene(bootstrap, tmp_path)
    nobody = scene.overview()
    kafka.commit(bootstrap, scene.group, f"{scene.name}.accepted", 0)
    scene.verb("skip", FINE)
    text = scene.verb("show", FINE, "--messages", "2")
    document = json.loads(scene.verb("show", FINE, "--messages", "2", "--json"))
    whole = json.loads(scene.verb("show", FINE, "--json"))
    nothing = scene.verb("show", "nobody", fails=True)
    listed = scene.overview()
    [row] = json.loads(scene.overview("--json"))["consumer_groups"]

    assert "ringfence consume" in nobody
    assert [(item["partition"], item["offset"]) for item in document["messages"]] == [(0, 5), (0, 8)]
    assert (document["messages"][0]["duplicate_id"], document["messages"][0]["value"]) == ("5", "v 5 0")
    assert document["messages"][0]["headers"] == [["_AMQ_DUPL_ID", "5"]]
    assert len(whole["messages"]) == 5
    assert text.startswith("0/5  ")
    assert "ID 5" in text
    assert "    _AMQ_DUPL_ID: 5\n    (5 bytes) v 5 0\n" in text
    assert "no message of nobody waits" in nothing
    assert f"ringfence groups show {scene.name} --consumer-group {scene.group}" in listed
    assert (row["consumer_group"], row["members"], row["failing"], row["parked"]) == (scene.group, [], 0, 0)
    assert row["lag"] >= 3 * EACH


def test_holder_out_of_reach(bootstrap: str, tmp_path: Path) -> None:
    """A held partition whose holder cannot be reached stays unchanged, and the error names the remedy."""
    scene = Scene(bootstrap, tmp_path)
    process = scene.consumer("--web-port", "0")
    with process:
        wait_for(lambda: "opened with token" in process.log(), process.log)
        refused = scene.verb("purge", "held", fails=True)
        shown = scene.show()

    assert "stop the group's consumers first" in refused
    assert shown["held"]["depth"] == EACH
    assert shown["partition"]["answered"] is False
    assert shown["partition"]["holder"]
