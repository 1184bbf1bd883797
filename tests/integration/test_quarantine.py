"""``ringfence quarantine``: refused records are shown, published again once, or dropped."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.commands.repair.quarantine import QuarantineTopic
from app.commands.repair.records import RedriveOptions, Selection
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import RepairError
from ringfence_kafka.process import failpoints
from ringfence_kafka.producer.transactional import TransactionalProducer
from ringfence_kafka.protocol import wire_names
from tests.support import kafka
from tests.support.kafka import Got, Sent
from tests.support.terminal import steps
from tests.support.worker import Running, configure, run_verb, wait_for, worker

REDRIVEN = wire_names.HEADER_REDRIVEN


class Scene:
    """An address whose quarantine is filled by hand."""

    def __init__(self, bootstrap: str, partitions: int = 2) -> None:
        self.bootstrap = bootstrap
        self.name = kafka.unique("quarantine")
        self.partitions = partitions
        self.settings: Settings = validate(
            {
                "kafka": {"bootstrap_servers": bootstrap},
                "app": {"id": f"{self.name}-app"},
                "addresses": [{"name": self.name}],
            }
        )
        self.topic = QuarantineTopic(self.settings, self.name, bridge=False)
        kafka.create_topics(
            bootstrap, {self.name: (partitions, {}), f"{self.name}.quarantine": (partitions, {})}
        )

    def refuse(self, *records: Sent, partition: int = 0, reason: bytes = b"why") -> None:
        ours = (("_RF_REASON", reason), ("_RF_SOURCE", b"%s/1/%d" % (self.name.encode(), 7)))
        kafka.send(
            self.bootstrap,
            f"{self.name}.quarantine",
            [record._replace(headers=(*record.headers, *ours)) for record in records],
            partition,
        )

    def redrive(self, selection: Selection | None = None, **options: Any) -> int:
        return self.topic.redrive(selection or Selection(), RedriveOptions(**options))

    def came(self) -> list[Got]:
        return kafka.read_all(self.bootstrap, self.name, self.partitions)

    def values(self) -> list[bytes | None]:
        return [item.value for item in self.came()]


def test_once_whatever_ends_it(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A redrive has no effect before its commit and its whole effect after it; in either case the next one continues from there."""
    scene = Scene(bootstrap)
    scene.refuse(*(Sent(None, b"g", b"%d" % index) for index in range(6)))

    async def die(_point: str, _lane: str) -> None:
        raise OSError("cut off")

    remove = failpoints.install("before-commit", f"repair/{scene.name}.quarantine/0", die)
    with pytest.raises(RepairError, match="run it again"):
        scene.redrive(limit=2)
    remove()
    nothing = scene.values()
    commit = TransactionalProducer.transact

    async def lose_the_answer(self: TransactionalProducer, *args: Any, **more: Any) -> Any:
        await commit(self, *args, **more)
        raise OSError("the answer is lost")

    with monkeypatch.context() as patched:
        patched.setattr(TransactionalProducer, "transact", lose_the_answer)
        with pytest.raises(RepairError):
            scene.redrive(limit=2)
    two = scene.values()
    capsys.readouterr()
    code = scene.redrive()
    progress = capsys.readouterr().err
    again = scene.redrive()

    assert nothing == []
    assert two == [b"0", b"1"]
    assert (code, again) == (0, 1)
    assert steps(progress) == [
        f"redriving records of {scene.name}.quarantine: 4 records read, 4 done, 0 left"
    ]
    assert scene.values() == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_two_at_once(bootstrap: str) -> None:
    """A redrive that begins while another runs takes over: nothing is published twice."""
    scene = Scene(bootstrap)
    scene.refuse(*(Sent(None, b"g", b"%d" % index) for index in range(4)))
    others: list[int] = []

    async def overtaken(_point: str, _lane: str) -> None:
        remove()
        others.append(await asyncio.to_thread(scene.redrive))

    remove = failpoints.install("before-send", f"repair/{scene.name}.quarantine/0", overtaken)
    with pytest.raises(RepairError, match="another redrive or drop has started"):
        scene.redrive()

    assert others == [0]
    assert scene.values() == [b"0", b"1", b"2", b"3"]


def test_what_is_chosen(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A redrive follows filters, a dry run and a limit; skipped and dropped records stay away from a later one."""
    scene = Scene(bootstrap)
    scene.refuse(Sent(None, b"a", b"0"), Sent(None, b"b", b"1"), reason=b"5 bytes, T takes 4")
    scene.refuse(Sent(None, b"a", b"2"), partition=1, reason=b"the header name \\xff is not UTF-8")
    scene.refuse(Sent(None, b"a", b"3", ((REDRIVEN, b"3"),)), Sent(None, b"a", b"4"))
    chosen = Selection(reason="BYTES", group=b"a")
    dry = scene.redrive(chosen, dry_run=True)
    nothing = scene.values()
    told = capsys.readouterr().out
    code = scene.redrive(chosen)
    dropped = scene.topic.drop(Selection(at=[(0, 1)]), dry_run=False, yes=True)
    left = scene.redrive()
    after = capsys.readouterr().out
    listed = json.loads(_listed(scene, capsys, all_=False))
    everything = json.loads(_listed(scene, capsys, all_=True))
    forced = scene.redrive(force=True)

    assert (dry, code, dropped, left, forced) == (0, 0, 0, 1, 0)
    assert nothing == []
    assert "would redrive" in told
    assert "redriven 3 times already" in after
    assert "header names are not preserved here" in after
    assert [item["redriven"] for item in listed] == [0, 3]
    assert len(everything) == 5
    assert sum(item["settled"] for item in everything) == 3
    assert sorted(scene.values(), key=str) == [b"0", b"2", b"3", b"4"]
    assert {dict(item.headers)[REDRIVEN] for item in scene.came()} == {b"1", b"4"}


def _listed(scene: Scene, capsys: pytest.CaptureFixture[str], *, all_: bool) -> str:
    capsys.readouterr()
    scene.topic.list_records(Selection(), settled_too=all_, as_json=True)
    return capsys.readouterr().out


def test_bridges_of_one_name(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each source redrives, drops and lists only its own records in a quarantine that bridges of one name share.

    The verbs name the records of the other source. Here two branches have bridges of one name to one centre. A record goes to its home
    in the target, without its hop, at the present time.
    """
    scene = Scene(bootstrap)
    bridge = f"{scene.name}-bridge"
    bremen, kassel = (
        validate(
            {
                "kafka": {"bootstrap_servers": bootstrap},
                "app": {"id": f"{scene.name}-{branch}"},
                "bridges": [{"name": bridge, "source_topic": f"of-{branch}", "target_address": scene.name}],
            }
        )
        for branch in ("bremen", "kassel")
    )
    kafka.create_topics(bootstrap, {f"{bridge}.quarantine": (1, {})})
    home = kafka.at_home(1, scene.partitions)
    hop = (
        ("h", b"1"),
        ("_RF_REASON", b"why"),
        ("_RF_SOURCE", b"elsewhere/0/5"),
        ("_RF_BRIDGE_DUPL_ID", b"b/x/0/5"),
    )
    kafka.send(
        bootstrap,
        f"{bridge}.quarantine",
        [
            Sent(b"id", home, branch, (*hop, ("_RF_BRIDGE_APP", settings.app.id.encode())), 1_000)
            for branch, settings in [(b"bremen", bremen), (b"kassel", kassel), (b"kassel-2", kassel)]
        ],
    )

    bremens, kassels = (QuarantineTopic(settings, bridge, bridge=True) for settings in (bremen, kassel))

    def redrive(topic: QuarantineTopic) -> int:
        return topic.redrive(Selection(), RedriveOptions())

    assert redrive(bremens) == 0
    (came,) = scene.came()
    assert (came.partition, came.key, came.value) == (1, home, b"bremen")
    assert came.headers == [("h", b"1"), ("_AMQ_DUPL_ID", b"id"), (REDRIVEN, b"1")]
    assert came.timestamp > 1_700_000_000_000
    assert f"{kassel.app.id}: 2" in capsys.readouterr().err
    assert redrive(bremens) == 1
    at = Selection(at=[(0, 1)])
    assert bremens.drop(at, dry_run=False, yes=True) == 1
    assert bremens.show_record((0, 1), as_json=False) == 1
    assert f"{kassel.app.id}: 1" in capsys.readouterr().err
    assert bremens.list_records(Selection(), settled_too=True, as_json=True) == 0
    assert [load["place"] for load in json.loads(capsys.readouterr().out)] == ["0/0"]
    assert kassels.drop(at, dry_run=False, yes=True) == 0
    assert redrive(kassels) == 0
    assert scene.values() == [b"bremen", b"kassel-2"]


def test_too_large_then_accepted_once(bootstrap: str, tmp_path: Path) -> None:
    """A redriven record that a worker had refused for its size is accepted once, and its ID is known from then on.

    A redrive leaves it as long as the output does not take it, unless that is forced. Its value did not fit into quarantine either: the
    redrive reads it from the input.
    """
    name = kafka.unique("redriven")
    addresses = [{"name": name, "partitions": 1}]
    config = configure(tmp_path, bootstrap, name, addresses)
    accepted, kept = f"{name}.accepted", f"{name}.quarantine"
    for topic in (accepted, kept):
        kafka.alter_topic(bootstrap, topic, "max.message.bytes", "10000")
    large = Sent(b"large", b"g", b"v" * 20_000)
    with worker(config, "w") as process:
        running = Running(bootstrap, process, addresses, name)
        running.outcome(name, [large, Sent(b"small", b"g")])
        wait_for(lambda: len(kafka.read_all(bootstrap, kept, 1)) == 1, process.log)
        left = [
            run_verb("quarantine", "redrive", name, *more, "--config", str(config), check=False)
            for more in ((), ("--dry-run",))
        ]
        refused = run_verb("quarantine", "redrive", name, "--force", "--config", str(config))
        wait_for(lambda: len(kafka.read_all(bootstrap, kept, 1)) == 2, process.log)
        (first, second) = kafka.read_all(bootstrap, kept, 1)
        kafka.alter_topic(bootstrap, accepted, "max.message.bytes", "100000")
        wait_for(lambda: "max.message.bytes has changed" in process.log(), process.log)
        done = run_verb("quarantine", "redrive", name, "--config", str(config))
        wait_for(lambda: len(kafka.read_all(bootstrap, accepted, 1)) == 2, process.log)
        got = running.outcome(name, [large])
    again = run_verb("quarantine", "redrive", name, "--config", str(config), check=False)
    shown = json.loads(
        run_verb("quarantine", "show", name, f"0/{second.offset}", "--json", "--config", str(config)).stdout
    )

    assert (first.value or b"").startswith(b'{"bytes"')
    assert [completed_process.returncode for completed_process in left] == [1, 1]
    for completed_process in left:
        assert (
            f"{accepted} takes max.message.bytes = 10000: it would be refused again"
            in completed_process.stdout
        )
        assert f"redriven to {name}, 1 left" in completed_process.stdout
    assert "1 redriven" in refused.stdout
    assert dict(second.headers)[REDRIVEN] == b"1"
    assert "1 redriven" in done.stdout
    assert [(item.id, item.value) for item in got] == [(b"small", b"value"), (b"large", large.value)]
    assert REDRIVEN not in dict(got[1].headers)
    assert again.returncode == 1
    assert "nothing to do" in again.stdout
    assert shown["redriven"] == 1
    assert shown["settled"] is True
