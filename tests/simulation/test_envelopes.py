"""Worlds with transactions and hops: they have the expected outcome, and a check names each torn transaction."""

from typing import Any

import pytest

from agents.output.build import Emitter
from ringfence_kafka.protocol import wire_names
from tests.simulator.lanes.envelopes import envelope_schedule
from tests.simulator.lanes.world import LaneWorld
from tests.simulator.names import ACCEPTED, ADDRESS, DUPLICATES, OTHERS_ACCEPTED, QUARANTINE
from tests.simulator.runner import Runner
from tests.simulator.schedules import Schedule
from tests.simulator.shrink import kind_of

WORLDS_MAX = 100


def test_both_addresses_get_their_parts(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both addresses get their parts, a record that a bridge repeats is a duplicate, and nothing is malformed."""
    worlds: list[LaneWorld] = []
    made = LaneWorld.__init__

    def kept(self: LaneWorld, plan: Schedule) -> None:
        made(self, plan)
        worlds.append(self)

    monkeypatch.setattr(LaneWorld, "__init__", kept)
    monkeypatch.setattr(LaneWorld, "close", lambda _: None)
    plans = [plan for plan in map(envelope_schedule, range(40)) if plan.divert]
    assert [runner.run(plan).faults for plan in plans] == [[] for _ in plans]
    found = {
        topic: [
            dict(item.headers)
            for world in worlds
            for log in world.cluster.topics[topic].logs
            for item in log.committed()
        ]
        for topic in (ADDRESS, ACCEPTED, OTHERS_ACCEPTED, DUPLICATES, QUARANTINE)
    }

    assert all(wire_names.HEADER_PART in item for item in found[OTHERS_ACCEPTED])
    for topic in (ACCEPTED, OTHERS_ACCEPTED):
        assert any((item.get(wire_names.HEADER_PART) or b"").endswith(b"/2") for item in found[topic])
    assert any(wire_names.HEADER_HOP in item for item in found[DUPLICATES])
    assert found[QUARANTINE] == []


def test_what_is_torn_is_named(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    emit = Emitter.emit

    def torn(self: Any, *args: Any, **options: Any) -> Any:
        batches = emit(self, *args, **options)
        return [batch for batch in batches if batch.topic != OTHERS_ACCEPTED]

    monkeypatch.setattr(Emitter, "emit", torn)
    found = (kind_of(runner.run(envelope_schedule(seed))) for seed in range(WORLDS_MAX))

    assert next(filter(None, found), "") in {"TORN", "LOST"}
