"""Bridges in a circle: a message does not return to a cluster that it has passed, and holds up nothing else."""

import logging
from collections import Counter
from typing import Any

import pytest

from agents.bridge.batch_builder import BatchBuilder, CycleBatches, Target
from agents.bridge.flow import TELL_S, Flow
from agents.bridge.plan import Plan, plans
from agents.bridge.state import BridgeState
from agents.bridge.translation import TURNS_MAX, Passing, Refused
from agents.bridge.window import Cycle, Window
from ringfence_kafka import clock
from ringfence_kafka.config.load import validate
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.protocol import hop_trace
from tests.support.bridges.simulated import Builder
from tests.unit.agents.decision.test_decide import Given
from tests.unit.agents.decision.test_decide_envelopes import AT_HOME, BYTES_MAX, Lane, emitted

ACCEPTED = {"a": "a" * 22, "b": "b" * 22, "c": "c" * 22}
"""The accepted topic's ID at each cluster."""


ADDRESSES = [{"name": "transfers"}]


def _plans(source: str, **keys: Any) -> list[Plan]:
    own = {"kafka": {"bootstrap_servers": f"{source}:1"}, "app": {"id": source}, "addresses": ADDRESSES}
    return plans(validate(own | keys))


def _plan(source: str, target: str, **keys: Any) -> Plan:
    bridge = {
        "name": f"to-{target}", "source_topic": "transfers.accepted", "target_address": "transfers",
        "target": {"bootstrap_servers": f"{target}:1"},
    }  # fmt: skip
    return _plans(source, bridges=[bridge | keys])[0]


class Circle:
    """Clusters with a lane each, and bridges between them."""

    def __init__(self, *ways: str, sees: bool = True, **keys: Any) -> None:
        """Connect clusters by bridges, named as source and target; with ``sees`` the target reports the IDs of its topics."""
        self.lanes = {name: Lane() for name in ACCEPTED}
        self.accepted: Counter[str] = Counter()
        self.loads: list[CycleBatches] = []
        self._ends: Counter[str] = Counter()
        self._sees = sees
        self.ways = {way: _plan(*way, **{"returns": "drop", **keys}) for way in ways}

    def send(self, where: str, headers: list[tuple[str, bytes]]) -> None:
        todo = [(where, AT_HOME, b"v", headers)]
        while todo:
            where, key, value, given = todo.pop(0)
            for out in self._judge(where, key, value, given):
                self.accepted[where] += 1
                assert self.accepted[where] < 50
                for way, plan in self.ways.items():
                    if way[0] == where:
                        todo += [(way[1], *item) for item in self._over(plan, way, out)]

    def _judge(self, where: str, key: bytes, value: bytes, headers: Any) -> list[Any]:
        lane = self.lanes[where]
        self._ends[where] += 1
        out = lane.decide(Given(self._ends[where], key, list(headers)))
        lane.table.apply(out)
        return [item for item in emitted(lane, out) if item.topic == "transfers.accepted"]

    def _over(self, plan: Plan, way: str, out: Any) -> list[tuple[Any, ...]]:
        offset = self.accepted[way[0]]
        window = Window(plan.window)
        window.open(0, ACCEPTED[way[0]], offset)
        record = Given(offset, out.key, list(out.headers.items()))
        topics = frozenset({hop_trace.topic(ACCEPTED[way[1]])} if self._sees else ())
        loader = BatchBuilder(plan, Target(4, BYTES_MAX, False, BYTES_MAX, topics), Builder, {}, Refused())
        load = loader.load(window.start_cycle({0: offset + 1}), {window.places[0]: [record]}, {})
        self.loads.append(load)
        return [(r["key"], r["value"], r["headers"]) for batch in load.batches for r in batch.builder.records]

    @property
    def returned(self) -> int:
        return sum(sum(load.returned.values()) for load in self.loads)


@pytest.mark.parametrize("ways", [("ab", "ba"), ("ab", "bc", "ca"), ("ab", "ba", "bc", "cb")])
def test_not_back(ways: tuple[str, ...]) -> None:
    """A message without ID reaches each cluster once. The bridge that would bring it back withholds and counts it."""
    circle = Circle(*ways)
    circle.send("a", [])

    assert circle.accepted == Counter({name for way in ways for name in way})
    assert circle.returned == len(ways) // 2
    assert sum(sum(load.filtered.values()) for load in circle.loads) == circle.returned


def test_back_to_what_may_not_be_seen() -> None:
    """A message returns for one round if the target does not report its topics' IDs."""
    circle = Circle("ab", "ba", sees=False)
    circle.send("a", [])

    assert circle.accepted == {"a": 2, "b": 1}
    assert circle.returned == 1


def test_ids_that_do_not_count() -> None:
    """Messages with ignored IDs may come as often as they are sent, so they return. The circle is reported, and it ends."""
    circle = Circle("ab", "ba", user_ids="ignore", returns="forward")
    circle.send("a", [("_AMQ_DUPL_ID", b"i")])

    assert circle.accepted == {"a": TURNS_MAX + 1, "b": TURNS_MAX}
    assert circle.returned == 2 * TURNS_MAX
    assert sum(sum(load.filtered.values()) for load in circle.loads) == 1


def test_other_ways_are_open() -> None:
    """Two routes to one cluster do not form a circle. A recreated topic has none of its predecessor's messages."""
    circle = Circle("ab", "ac", "bc")
    circle.send("a", [])

    assert circle.accepted == {"a": 1, "b": 1, "c": 2}
    again = Passing("b" * 22, {hop_trace.topic("d" * 22)}, forwards=False)
    assert again.beyond(hop_trace.topic("a" * 22), 7) == b"*%b,*%b" % (b"a" * 22, b"b" * 22)
    assert not again.returned


def _mesh(known: dict[str, str], max_hops: int) -> Circle:
    circle = Circle()
    for this, members in known.items():
        connection = {
            "name": "eu", "this": this, "addresses": ["transfers"], "max_hops": max_hops,
            "members": [{"name": member, "bootstrap_servers": f"{member}:1"} for member in members],
        }  # fmt: skip
        found = _plans(this, cluster_connections=[connection])
        circle.ways |= {f"{this}{plan.name.split('.')[2]}": plan for plan in found}
    return circle


ALL, CHAIN = dict.fromkeys("abc", "abc"), {"a": "ab", "b": "abc", "c": "bc"}


@pytest.mark.parametrize(("known", "max_hops"), [(ALL, 1), (ALL, 2), (ALL, 3), (CHAIN, 2)])
@pytest.mark.parametrize("sender", ["a", "b", "c"])
@pytest.mark.parametrize("headers", [[], [("_AMQ_DUPL_ID", b"i")]])
def test_each_member_gets_it_once(known: Any, max_hops: int, sender: str, headers: Any) -> None:
    """A message that one bridge brings to a member is not brought there by another, at any hop limit, and also comes along a chain."""
    circle = _mesh(known, max_hops)
    circle.send(sender, headers)

    assert circle.accepted == {"a": 1, "b": 1, "c": 1}


def test_where_it_was_is_bounded() -> None:
    """The trace keeps only the last topics, but all members."""
    value: bytes = b"berlin"
    for index in range(40):
        value = hop_trace.with_topic(hop_trace.entries(value), hop_trace.topic(str(index)))

    assert value == b"berlin," + b",".join(b"*%d" % index for index in range(24, 40))
    assert hop_trace.members(hop_trace.entries(value)) == [b"berlin"]


def test_what_leaves_no_trace() -> None:
    """A bridge without ``returns`` writes no trace; one without duplicate detection writes no headers, so it may not have ``returns``."""
    for way in (_plan("a", "b"), _plan("a", "b", use_duplicate_detection=False)):
        assert not way.traces
    with pytest.raises(ConfigurationError, match="returns = 'drop' has no effect"):
        _plan("a", "b", use_duplicate_detection=False, returns="drop")
    assert _plan("a", "b", returns="forward").traces


def test_told_once_a_minute(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A warning appears at most once a minute, with the number of messages, the circle and the remedy. Messages are counted at once."""
    now = 1_000.0
    monkeypatch.setattr(clock, "now", lambda: now)
    caplog.set_level(logging.WARNING, "ringfence.bridge")
    state = BridgeState("to-b")
    flow = Flow(_plan("a", "b", returns="drop"), state, None)

    def settle(count: int) -> None:
        flow._count(Cycle({}), CycleBatches(Cycle({}), returned={0: count}, returned_from=b"*aaa,*bbb"))

    settle(3)
    settle(4)
    settle(5)
    (line,) = caplog.messages
    assert line.startswith("bridge to-b: 3 messages of transfers.accepted were already a")
    assert "*aaa,*bbb" in caplog.text
    now += TELL_S
    settle(1)

    assert "bridge to-b: 10 messages of" in caplog.text
    assert state.totals[0]["returned"] == 13
