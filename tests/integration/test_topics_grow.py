"""``topics grow`` on a running application: known IDs stay known, and groups stay in order."""

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support import kafka
from tests.support.kafka import Got, Sent
from tests.support.terminal import steps
from tests.support.worker import Running, configure, run_verb, worker

GROUPS = 40
BEFORE, AFTER = 2, 6


def _messages(first: int, count: int, partitions: int) -> dict[int, list[Sent]]:
    """Messages by the partition that a Java producer would send them to."""
    found: dict[int, list[Sent]] = defaultdict(list)
    for number in range(first, first + count):
        group = b"group-%d" % (number % GROUPS)
        found[kafka.home(group, partitions)].append(Sent(b"m-%d" % number, group, b"%d" % number))
    return found


def _send(bootstrap: str, topic: str, first: int, count: int, partitions: int) -> None:
    for partition, records in _messages(first, count, partitions).items():
        kafka.send(bootstrap, topic, records, partition)


def _require_each_once_in_order(accepted: list[Got], count: int) -> None:
    numbers = [int(item.value or b"") for item in accepted]
    assert sorted(numbers) == list(range(count))
    newest: dict[bytes | None, int] = {}
    for item in accepted:
        number = int(item.value or b"")
        assert number > newest.get(item.key, -1), f"{item.key!r}: {number} behind {newest[item.key]}"
        newest[item.key] = number


def test_grow(bootstrap: str, tmp_path: Path) -> None:
    """A growth is refused while workers run and while something is left; killed before its end and run again, it completes."""
    name = kafka.unique("grow")
    addresses = [{"name": name, "partitions": BEFORE, "id_cache_size": 1_000}]
    config = configure(tmp_path, bootstrap, name, addresses)

    progress: list[str] = []

    def grow(partitions: int, failpoints: str = "", *options: str) -> tuple[int, str]:
        done = run_verb(
            "topics", "grow", name, "--partitions", str(partitions), *options, "--config", str(config),
            check=False, failpoints=failpoints,
        )  # fmt: skip
        said = done.stderr.splitlines(keepends=True)
        progress[:] = [name for name in said if not name.startswith("ringfence:")]
        errors = [name for name in said if name not in progress]
        return done.returncode, done.stdout + "".join(errors)

    with worker(config, "w") as process:
        _send(bootstrap, name, 0, 200, BEFORE)
        Running(bootstrap, process, addresses, name).settled(name)
        code, said = grow(AFTER)
        assert (code, "workers of" in said) == (2, True), said
        code, said = grow(AFTER, "", "--dry-run")
        assert (code, f"obstacle    workers of {name} run" in said) == (1, True), said
        process.stop()

    code, said = grow(5)
    assert (code, "Choose 4, 6, 8" in said) == (2, True), said
    _send(bootstrap, name, 200, 10, BEFORE)
    code, said = grow(AFTER)
    assert (code, "would come after later ones" in said) == (2, True), said
    with worker(config, "w") as process:
        Running(bootstrap, process, addresses, name).settled(name)
        process.stop()

    for _ in range(2):  # the second finds what the first found: it has changed nothing
        code, said = grow(AFTER, "", "--dry-run")
        assert (code, said.splitlines()) == (0, [
            f"would give  {name}-{name}-changelog  {BEFORE} partitions, then {AFTER}",
            f"would give  {name}-{name}-forward  {BEFORE} partitions, then {AFTER}",
            f"would give  {name}  {BEFORE} partitions, then {AFTER}",
            f"would copy  IDs of {name}-0 to {name}-2, {name}-4",
            f"would copy  IDs of {name}-1 to {name}-3, {name}-5",
        ])  # fmt: skip

    # Where one heir knows all and another nothing; and where all do, but only one lane knows of its heirs.
    for point in (f"before-commit:{name}-5=kill", f"before-commit:{name}-1=kill"):
        code, said = grow(AFTER, point)
        assert code == -9, said
        checked = run_verb("topics", "check", "--config", str(config), check=False)
        assert f"topics grow {name} --partitions {AFTER}" in checked.stdout, checked.stdout
    code, said = grow(AFTER, "", "--dry-run", "--json")
    assert (code, json.loads(said)["lanes"]) == (
        0,
        [{"lane": f"{name}-1", "heirs": [f"{name}-3", f"{name}-5"]}],
    ), said
    assert not any(load["grows"] for load in json.loads(said)["topics"])
    code, said = grow(AFTER)
    assert (code, f"{name}-1  IDs copied to {name}-3, {name}-5" in said) == (0, True), said
    assert f"{name}-0  IDs" not in said  # that was done before
    _require_steps(progress, name)
    assert grow(AFTER) == (
        0,
        f"{name} has {AFTER} partitions, and its lanes have recorded it: nothing to do\n",
    )

    grown = [{**addresses[0], "partitions": AFTER}]
    with worker(config, "w") as process:
        # All of it again, where groups are at home now; then by a producer that has not heard of it, and what is new.
        _send(bootstrap, name, 0, 210, AFTER)
        _send(bootstrap, name, 100, 110, BEFORE)
        _send(bootstrap, name, 210, 90, AFTER)
        Running(bootstrap, process, grown, name).through(name)
        health = process.health()[1]
    accepted = kafka.read_all(bootstrap, f"{name}.accepted", BEFORE)
    _require_each_once_in_order(accepted, 300)
    assert len(health["lanes"]) == AFTER


def _require_steps(progress: list[str], name: str) -> None:
    """Require a line for each step. One lane did not know of the growth yet."""
    *before, handed, given, recorded = steps("".join(progress))
    assert before == [
        f"looking at the lanes of {name}: {BEFORE} lanes",
        "looking for workers and for messages that are left: 0 obstacles",
        f"giving topics of {name} {AFTER} partitions",
    ]
    # At least the 105 IDs that the lane has.
    assert re.fullmatch(r"copying what lanes know: 1 of 1 lane, [1-9]\d\d records", handed)
    assert given == f"giving {name}-{name}-forward and {name} {AFTER} partitions"
    assert recorded == "recording the new partition count: 1 of 1 lane"


@pytest.mark.long
def test_given_by_somebody(bootstrap: str, tmp_path: Path) -> None:
    """``topics check`` names the command that brings lanes along after somebody else has grown the input.

    Remaining messages are judged after the command. Reconciliation runs agree.
    """
    name = kafka.unique("grown")
    addresses = [{"name": name, "partitions": BEFORE, "id_cache_size": 1_000}]
    config = configure(tmp_path, bootstrap, name, addresses)
    with worker(config, "w") as process:
        _send(bootstrap, name, 0, 100, BEFORE)
        Running(bootstrap, process, addresses, name).settled(name)
        process.stop()
    _require_clean(config)
    _send(bootstrap, name, 100, 20, BEFORE)
    kafka.grow_topic(bootstrap, name, 3)
    _send(bootstrap, name, 120, 20, 3)

    checked = run_verb("topics", "check", "--config", str(config), check=False)
    assert f"topics grow {name} --partitions 4" in checked.stdout, checked.stdout
    order = ("topics", "grow", name, "--partitions", "4", "--config", str(config))
    refused = run_verb(*order, check=False)
    assert "--despite-backlog" in refused.stderr, refused.stderr
    run_verb(*order, "--despite-backlog")
    with worker(config, "w") as process:
        _send(bootstrap, name, 0, 140, 4)
        Running(bootstrap, process, [{**addresses[0], "partitions": 4}], name).through(name)
    numbers = [int(item.value or b"") for item in kafka.read_all(bootstrap, f"{name}.accepted", BEFORE)]
    assert sorted(numbers) == list(range(140))
    _require_clean(config)


def _require_clean(config: Path) -> None:
    done = run_verb("reconcile", "--config", str(config), check=False, limit_s=240)
    assert done.returncode == 0, done.stdout + done.stderr
