"""Records from ahead of the clock, and from long ago: outputs take what the input took."""

import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED

from agents.batch import FetchedBatch
from agents.lane import LaneState
from app.verbs import topics
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.records import TolerantRecords, kept
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.lanes import NOW, bench, until
from tests.support.old_formats import Old, old

DAY_MS = 24 * 3600 * 1000
AFTER = "message.timestamp.after.max.ms"
BEFORE = "message.timestamp.before.max.ms"
EVERYTHING = str(2**63 - 1)


def _settings(bootstrap: str, name: str, **keys: Any) -> Settings:
    return validate(
        {
            "kafka": {"bootstrap_servers": bootstrap},
            "app": {"id": f"{name}-app"},
            "addresses": [{"name": name, "duplicates": "divert", "partitions": 1, **keys}],
        }
    )


async def test_lane_says_the_way_out(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that the input took and the output does not: the lane names topic and setting, and goes on when it is set."""
    monkeypatch.setattr("agents.lane.REFUSED_AGAIN_S", 0.1)
    async with bench(bootstrap, tmp_path) as lanes:
        lane = await lanes.opened()
        kafka.alter_topic(bootstrap, lanes.accepted, AFTER, "3600000")  # the default since Kafka 4.0
        for topic in (lanes.name, f"{lanes.name}.quarantine"):
            kafka.alter_topic(bootstrap, topic, AFTER, EVERYTHING)
        tomorrow = int(time.time() * 1000) + DAY_MS
        lanes.send(Sent(b"0", b"g"), Sent(b"1", b"g", timestamp=tomorrow))
        await lane.offer(await lanes.fetch(0, 2))
        await until(lambda: lane.state is LaneState.REFUSED, lambda: f"{lane.state}: {lane.reason}")
        reason = lane.reason
        kafka.alter_topic(bootstrap, lanes.accepted, AFTER, EVERYTHING)
        await until(lambda: lane.next == 2, lambda: f"{lane.state}: {lane.reason}")
        got = lanes.output()

    assert f"{lanes.accepted} refuses a record for its timestamp: set {AFTER} and " in caplog.text
    assert reason.startswith(f"{lanes.accepted} (accepted topic of {lanes.name}) has {AFTER}=3600000, ")
    assert reason.endswith(f"--topic {lanes.accepted} --add-config {AFTER}={EVERYTHING}")
    assert caplog.text.count(f"lane {lanes.name}-0 stopped: ") == 1
    assert [(each.id, each.timestamp) for each in got][1:] == [(b"1", tomorrow)]
    assert len(got) == 2


async def test_messages_of_before_kafka_0_11(bootstrap: str, tmp_path: Path) -> None:
    """What such a log has without a timestamp is checked and accepted without one, the others with theirs; nothing stops the lane."""
    tp = TopicPartition("orders", 0)
    values = (b"a", b"b", b"a", b"b", b"c", b"d")
    now = int(time.time() * 1000)
    times = (-1, -1, -1, -1, now, -1)
    those = [
        Old(number, time, value=value) for number, (time, value) in enumerate(zip(times, values, strict=True))
    ]
    data = old(those[:3], 0) + old(those[3:], 1, 1)
    records = list(TolerantRecords(tp, kept(data), [], 0, None, None, True, READ_COMMITTED))
    async with bench(bootstrap, tmp_path, duplicate_id_from="value", id_max_age=3_600) as lanes:
        lane = await lanes.opened()
        lanes.send(
            *(Sent(key=b"group", value=each) for each in values)
        )  # what the lane would read if it failed
        await lane.offer(FetchedBatch(lanes.name, 0, 0, 6, records, NOW))
        await until(lambda: lane.next == 6, lambda: f"{lane.state}: {lane.reason}")
        got = lanes.output()

    assert [(each.value, each.timestamp) for each in got] == [(b"a", -1), (b"b", -1), (b"c", now), (b"d", -1)]


async def test_created_outputs_take_everything(bootstrap: str) -> None:
    """Whatever an existing input takes, the outputs that are made for it take too; check finds them well."""
    name = kafka.unique("timestamps")
    kafka.create_topics(bootstrap, {name: (1, {AFTER: EVERYTHING})})
    settings = _settings(bootstrap, name)

    await topics.ensure(settings)

    assert (await topics.examine(settings)).faults == []
    tomorrow = int(time.time() * 1000) + DAY_MS
    outputs = [f"{name}.{each}" for each in ("accepted", "quarantine", "duplicates")]
    for topic in (*outputs, f"{name}-app-{name}-forward"):
        kafka.send(bootstrap, topic, [Sent(b"1", b"g", timestamp=tomorrow), Sent(b"2", b"g", timestamp=1)])
        assert kafka.end_offsets(bootstrap, topic) == [2]


@pytest.mark.parametrize("setting", [AFTER, BEFORE])
async def test_check_compares(bootstrap: str, setting: str) -> None:
    """An output that takes less than its input is a fault with the command that fixes it, and it fixes it."""
    name = kafka.unique("narrow")
    kafka.create_topics(
        bootstrap,
        {
            name: (1, {AFTER: "7200000", BEFORE: "7200000"}),
            f"{name}.accepted": (1, {AFTER: "7200000", BEFORE: "7200000"}),
            f"{name}.quarantine": (1, {AFTER: EVERYTHING, BEFORE: EVERYTHING} | {setting: "7199999"}),
            f"{name}.duplicates": (1, {"message.timestamp.type": "LogAppendTime", AFTER: "1", BEFORE: "1"}),
        },
    )
    settings = _settings(bootstrap, name)
    await topics.ensure(settings)

    (fault,) = (await topics.examine(settings)).faults
    kafka.alter_topic(bootstrap, f"{name}.quarantine", setting, "7200000")
    fixed = (await topics.examine(settings)).faults

    assert fault.startswith(
        f"{name}.quarantine (quarantine topic of {name}) has {setting}=7199999, {name} has 7200000"
    )
    assert fault.endswith(
        f"kafka-configs.sh --bootstrap-server … --alter --topic {name}.quarantine --add-config {setting}=7200000"
    )
    assert fixed == []
