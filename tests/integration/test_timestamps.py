"""Records from ahead of the clock, and from long ago: outputs take what the input took."""

import time
from pathlib import Path

import pytest

from agents.lane.lane import LaneState
from app.commands.topics import topics
from ringfence_kafka.config.load import validate
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.lanes import bench, until

DAY_MS = 24 * 3600 * 1000
AFTER = "message.timestamp.after.max.ms"
EVERYTHING = str(2**63 - 1)


async def test_lane_says_the_way_out(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane whose output refuses a record of its input names topic and setting, and continues when it is set."""
    monkeypatch.setattr("agents.lane.lane.REFUSED_AGAIN_S", 0.1)
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
    assert [(item.id, item.timestamp) for item in got][1:] == [(b"1", tomorrow)]
    assert len(got) == 2


async def test_created_outputs_take_everything(bootstrap: str) -> None:
    """Outputs that are made for an existing input take all that it takes, and the check finds no fault."""
    name = kafka.unique("timestamps")
    kafka.create_topics(bootstrap, {name: (1, {AFTER: EVERYTHING})})
    settings = validate(
        {
            "kafka": {"bootstrap_servers": bootstrap},
            "app": {"id": f"{name}-app"},
            "addresses": [{"name": name, "duplicates": "divert", "partitions": 1}],
        }
    )

    await topics.ensure(settings)

    assert (await topics.examine(settings)).faults == []
    tomorrow = int(time.time() * 1000) + DAY_MS
    outputs = [f"{name}.{item}" for item in ("accepted", "quarantine", "duplicates")]
    for topic in (*outputs, f"{name}-app-{name}-forward"):
        kafka.send(bootstrap, topic, [Sent(b"1", b"g", timestamp=tomorrow), Sent(b"2", b"g", timestamp=1)])
        assert kafka.end_offsets(bootstrap, topic) == [2]
