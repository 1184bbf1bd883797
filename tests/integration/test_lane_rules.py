"""Rules belong to the lane: a worker with an older file judges nothing by it, and limits change when all live workers state the same."""

import json
import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from agents.lane.lane import LaneState
from agents.rules.agreement import SETTLE_S, Agreement
from agents.rules.lane_rules import Limits
from agents.rules.member_statements import KEY, Statement, encode, own_statement
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.groups.static_members import Member
from tests.support import kafka
from tests.support.kafka import Sent, at_home
from tests.support.lanes import Group, bench, ids, until
from tests.support.terminal import steps
from tests.support.worker import WorkerProcess, one_address, run_verb, wait_for, worker

PARTITIONS = 2
HOME = [at_home(index, PARTITIONS) for index in range(PARTITIONS)]


def _file(config: Path, name: str, **address: object) -> Path:
    """Return the same configuration with other keys of its one address."""
    found = config.with_name(f"{name}.toml")
    lines = [f"{key} = {json.dumps(value)}" for key, value in address.items()]
    found.write_text("\n".join([config.read_text(), *lines]) + "\n")
    return found


def _send(bootstrap: str, topic: str, numbers: Iterable[int]) -> None:
    for lane in range(PARTITIONS):
        records = [Sent(b"%d-%d" % (lane, number), HOME[lane], b"same") for number in numbers]
        kafka.send(bootstrap, topic, records, lane)


def _states(process: WorkerProcess) -> dict[str, str]:
    return {name: item["state"] for name, item in process.health()[1].get("lanes", {}).items()}


def _status(config: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        run_verb("status", "--json", "--config", str(config), check=False).stdout
    )
    return found


def test_a_worker_with_an_older_rule_opens_no_lane(bootstrap: str, tmp_path: Path) -> None:
    """A worker with an older rule names both values and the remedy; the other lane continues, and no message is lost when it ends."""
    name, config = one_address(tmp_path, bootstrap, "older-rule", PARTITIONS)
    older = _file(config, "older", duplicate_id_from="value")
    with worker(config, "right") as right:
        _send(bootstrap, name, range(20))
        kafka.wait_count(bootstrap, f"{name}.accepted", 40, PARTITIONS)
        with WorkerProcess(older, "wrong") as wrong:
            wait_for(lambda: "refused" in _states(wrong).values(), lambda: f"{wrong.health()}\n{wrong.log()}")
            wait_for(lambda: set(_states(right).values()) == {"open"}, right.log)
            (lane,) = _states(wrong)
            _send(bootstrap, name, range(20, 40))
            kafka.wait_count(bootstrap, f"{name}.accepted", 60, PARTITIONS)
            reason = wrong.health()[1]["lanes"][lane]["reason"]
            metrics = wrong.page("/metrics")
            standing = [item for item in _status(config)["findings"] if item["stands"]]
            shown = run_verb("status", "--config", str(config), check=False)
            wrong.stop()
        accepted = kafka.wait_count(bootstrap, f"{name}.accepted", 80, PARTITIONS)
        counts = [
            value["duplicates"] for value in right.health()[1]["lanes"].values() if "duplicates" in value
        ]

    assert 'duplicate_id_from = "header" in the lane\'s record and "value" in this worker\'s file' in reason
    assert f"ringfence rings adopt {name}" in reason
    assert f'ringfence_lane_other_rules{{address="{name}",lane="{lane}"}} 1.0' in metrics
    assert [reason in item["what"] for item in standing] == [True]
    assert [item["command"] for item in standing] == [""]
    assert shown.returncode == 1
    assert reason in wrong.log()
    assert len({item.id for item in accepted}) == len(accepted) == 80
    assert sum(counts) == 0


def test_a_rule_changes_on_purpose(bootstrap: str, tmp_path: Path) -> None:
    """The new file opens the lanes, and the old one no more, after all workers are stopped and ``rings adopt`` has run.

    No new message is a duplicate.
    """
    name, config = one_address(tmp_path, bootstrap, "adopt", PARTITIONS)
    other = _file(config, "other", duplicate_id_from="key")
    with worker(config, "before") as before:
        kafka.send(bootstrap, name, [Sent(HOME[0], HOME[0])])
        kafka.send(bootstrap, name, [Sent(HOME[1], HOME[1])], 1)
        kafka.wait_count(bootstrap, f"{name}.accepted", 2, PARTITIONS)
        running = run_verb("rings", "adopt", name, "--config", str(other), check=False)
        assert before.stop() == 0
    adopted = run_verb("rings", "adopt", name, "--config", str(other))
    again = run_verb("rings", "adopt", name, "--config", str(other))
    with worker(other, "after"):
        # By the old rule these two had the IDs of other messages.
        kafka.send(bootstrap, name, [Sent(None, HOME[0]), Sent(None, HOME[0])])
        kafka.send(bootstrap, name, [Sent(None, HOME[1])], 1)
        accepted = kafka.wait_count(bootstrap, f"{name}.accepted", 4, PARTITIONS)
        wait_for(
            lambda: kafka.consumed(bootstrap, name, name, PARTITIONS),
            lambda: str(kafka.committed(bootstrap, name, name, 2)),
        )
        with WorkerProcess(config, "late") as late:
            wait_for(lambda: "refused" in _states(late).values(), lambda: f"{late.health()}\n{late.log()}")
    events = [
        json.loads(item.value or b"")["event"] for item in kafka.read_all(bootstrap, f"{name}-journal", 1)
    ]

    assert (running.returncode, adopted.returncode) == (2, 0)
    assert "stop all of them by SIGTERM" in running.stderr
    assert adopted.stdout.count("1 IDs forgotten") == 2
    assert again.stdout.count("kept") == 2
    read, changed = steps(adopted.stderr)
    assert re.fullmatch(rf"reading the rings of {name}: [1-9]\d* records", read)
    assert changed == f"changing the rules of {name}: {PARTITIONS} of {PARTITIONS} lanes"
    assert len(accepted) == 4
    assert len(kafka.read_all(bootstrap, f"{name}.accepted", PARTITIONS)) == 4
    assert events == ["cleared", "cleared"]


async def test_a_ring_keeps_size_age_and_persistence(bootstrap: str, tmp_path: Path) -> None:
    """Verdicts follow the recorded limits, also after a failure; the journal has the size for the reconciliation run.

    Then all limits change at once.
    """
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 8), *ids(0, 8), *ids(0, 8))
        one = await lanes.opened("one")
        await lanes.feed(one, 0, 8)
        await one.close()
        others = [Member("other", None, _Metadata(lanes.settings))]
        own: dict[str, Any] = {"id_cache_size": 2, "id_max_age": 60.0, "persist_id_cache": False}
        two = lanes.lane("two", **own)
        agreement = Agreement(lanes.settings, _answer(others), lambda: now)
        two.opening._state._agreement = two.opening._checks._agreement = agreement
        # Its own statement is that of another file.
        agreement._own = _stated(lanes.settings, **own)
        now = 0.0
        two.start(Group())
        await lanes.feed(two, 8, 12)
        two.refuse(["a failure"])
        await until(lambda: two.state is LaneState.REFUSED, lambda: f"{two.state}: {two.reason}")
        await until(lambda: two.state is LaneState.OPEN, lambda: f"{two.state}: {two.reason}")
        await lanes.feed(two, 12, 16)
        kept = two.opening.limits
        assert kept == Limits(20_000, 0, True)
        assert two.counts["duplicates"] == 8
        told = [json.loads(item.value or b"") for item in kafka.read_all(bootstrap, lanes.journal, 1)]
        others.clear()
        now = SETTLE_S
        two.apply_agreement()
        await until(lambda: two.opening.limits != kept, lambda: f"{two.state}: {two.reason}")
        await lanes.feed(two, 16, 24)
        agreed, meta = two.opening.limits, two.opening.table.meta

    assert {(item["event"], item["before"], item["after"]) for item in told} == {("resized", 20_000, 20_000)}
    assert agreed == Limits(2, 60, False)
    assert meta is not None
    assert (meta.capacity, meta.max_age_ms, meta.persistent) == (2, 60_000, False)
    assert two.counts["duplicates"] == 8


class _Metadata:
    """Metadata that a worker of these settings states when it joins."""

    def __init__(self, settings: Settings) -> None:
        self.user_data = json.dumps({KEY: encode(_stated(settings, worker="other"))}).encode()


def _stated(settings: Settings, worker: str = "own", **limits: Any) -> Statement:
    statement = own_statement(settings)
    assert statement.addresses is not None
    said = {
        name: address._replace(limits=address.limits._replace(**limits))
        for name, address in statement.addresses.items()
    }
    return Statement(worker, said)


def _answer(members: list[Member]) -> Callable[[], Awaitable[list[Member]]]:
    async def ask() -> list[Member]:
        return list(members)

    return ask
