"""Consumer groups and addresses that do not come back, and groups that begin at the end."""

import asyncio
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from app.cli import cli
from app.commands import confirmation
from app.commands.confirmation import DeclinedError
from app.commands.consumers.forget import GroupInUseError, forget
from app.commands.topics import topics
from app.commands.topics.removed_addresses import removed_addresses
from ringfence_kafka.config.load import load
from ringfence_kafka.errors import ConfigurationError
from tests.integration.test_dlq import Scene
from tests.support import kafka
from tests.support.consumers.in_process import Recorder, consuming, numbered
from tests.support.consumers.processes import consumers
from tests.support.kafka import Sent, at_home
from tests.support.worker import configure, run_verb, wait_for, worker


async def test_a_consumer_group_is_forgotten(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A group with members cannot be forgotten. Later, status and `consumers show` do not know it, and the name begins again."""
    async with consuming(bootstrap, 2) as bench:
        for partition in range(2):
            bench.send(*numbered(b"g", 3), partition=partition)
        running = await bench.start(Recorder())
        for partition in range(2):
            await bench.until_next(running, 3, partition)
        with pytest.raises(GroupInUseError, match="stop its consumers first"):
            await asyncio.to_thread(forget, bench.settings, bench.group, yes=True)
        await running.stop()

        assert await asyncio.to_thread(forget, bench.settings, bench.group, yes=True) == 0
        assert await bench.progress() is None
        assert await bench.committed() < 0
        assert await asyncio.to_thread(forget, bench.settings, bench.group, yes=True) == 1
        with pytest.raises(ConfigurationError, match="belongs to the workers"):
            await asyncio.to_thread(forget, bench.settings, bench.settings.app.id, yes=True)
        again = await bench.start(Recorder())
        for partition in range(2):
            await bench.until_next(again, 3, partition)

        assert sorted(again.handler.done) == [(index, offset) for index in range(2) for offset in range(3)]
    assert "2 progress records and its offsets" in capsys.readouterr().out


async def test_a_new_group_begins_at_the_end(bootstrap: str) -> None:
    """A new group begins at the end of all partitions at the same moment; later starts of the group continue at its position."""
    async with consuming(bootstrap, 2) as bench:
        for partition in range(2):
            bench.send(*numbered(b"g", 5), partition=partition)
        first = await bench.start(Recorder(), start="latest")
        bench.send(*numbered(b"g", 2), partition=0)
        await bench.until_next(first, 7, 0)
        await first.stop()
        bench.send(*numbered(b"g", 1), partition=1)
        second = await bench.start(Recorder(), start="latest")
        await bench.until_next(second, 6, 1)

        assert first.handler.done == [(0, 5), (0, 6)]
        assert second.handler.done == [(1, 5)]


def test_an_address_that_was_removed_is_named(bootstrap: str, tmp_path: Path) -> None:
    """Status names a removed address with its topics and its messages, or its new name."""
    app = kafka.unique("removed")
    kept, gone = f"{app}-kept", f"{app}-gone"
    addresses = [{"name": kept, "partitions": 1}, {"name": gone, "partitions": 1}]
    config = configure(tmp_path, bootstrap, app, addresses)
    with worker(config, app):
        kafka.send(bootstrap, gone, [Sent(b"1", at_home(0, 1), b"x")], 0)
        wait_for(lambda: kafka.consumed(bootstrap, app, gone, 1), lambda: "not consumed")
    kafka.send(bootstrap, gone, [Sent(b"%d" % index, at_home(0, 1), b"x") for index in range(3)], 0)
    text = config.read_text()
    config.write_text(text[: text.rindex("[[addresses]]")])
    settings = load(config)

    (found,) = asyncio.run(removed_addresses(settings))
    assert (found.address, found.inputs) == (gone, {gone: 3})
    assert found.topics == [f"{app}-{gone}-changelog", f"{app}-{gone}-forward"]
    done = CliRunner().invoke(cli, ["topics", "check", "--config", str(config)])
    assert f"note   address {gone} is not in the configuration" in done.stdout
    assert f"3 messages in {gone} are not processed" in done.stdout
    with config.open("a") as file:
        file.write(f'[[addresses]]\nname = "{app}-new"\ninput_topic = "{gone}"\n')
    (found,) = asyncio.run(removed_addresses(load(config)))
    assert f"address {gone} is named {app}-new now" in found.note
    assert topics.check(settings) == 0


def test_offsets_of_another_program_stay(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name without progress of this application may be that of any Kafka consumer, or of another ``app.id``."""
    topic, group = kafka.unique("plain"), kafka.unique("plain-group")
    kafka.create_topics(bootstrap, {topic: (1, {})})
    kafka.send(bootstrap, topic, [Sent(), Sent()])
    kafka.commit(bootstrap, group, topic, 1)

    settings = load(configure(tmp_path, bootstrap, f"{topic}-app", [{"name": topic, "partitions": 1}]))
    assert forget(settings, group, yes=True) == 1

    assert f"nothing is kept of consumer group {group} with app.id = {topic}-app" in capsys.readouterr().out
    assert kafka.committed(bootstrap, group, topic) == [1]


UNFINISHED = "a lag of 6 offsets, 1 open dead letter, 1 parked group (bad)"


def test_forget_names_what_is_unfinished(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question, and the line of a script, name lag, open dead letters and parked groups."""
    scene = Scene(bootstrap, tmp_path)
    process = scene.consumer("--on-dead-letter", "park")
    with consumers(process):
        wait_for(lambda: len(scene.letters()) == 1, process.log)
        wait_for(lambda: process.health()[1]["counts"]["finished"] == 3, process.log)
        assert process.stop() == 0
    asked: list[str] = []

    def refuse(question: str, **_: object) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr(confirmation, "can_ask", lambda: True)
    monkeypatch.setattr(click, "confirm", refuse)
    with pytest.raises(DeclinedError):
        forget(scene.settings, scene.group, yes=False)
    done = run_verb("consumers", "forget", scene.group, "--config", str(scene.config))

    assert f"It has {UNFINISHED}. The dead letters stay" in asked[0]
    assert done.stdout == (
        f"forgot consumer group {scene.group}: 1 progress records and its offsets; it had {UNFINISHED}\n"
    )
    assert len(scene.letters()) == 1
