"""``ringfence consume``, as a user runs it: several processes and real traffic; the notes of handlers are judged."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.embedded import ports
from tests.harness.checker.groups import Run, judge, parse
from tests.harness.workloads.message_groups import (
    Flow,
    GroupMessage,
    Shape,
    accept,
    accept_in_transactions,
    generate,
    sizes,
)
from tests.support import kafka
from tests.support.checkout import ROOT
from tests.support.consumers.processes import (
    ConsumerProcess,
    consumers,
    latest_written,
    noted,
    progress_written,
    wait_shared,
)
from tests.support.kafka import Sent
from tests.support.worker import LIMIT_S, configure, one_address, run_verb, wait_for, worker

SEED = 4_099
PARTITIONS = 4


def runs_in(file: Path, label: str = "") -> list[Run]:
    """Return runs of groups whose names have this prefix."""
    return [run for run in parse(noted(file)) if run.label.startswith(label)]


def wait_handled(file: Path, label: str, count: int, *processes: ConsumerProcess) -> None:
    """Wait until this many messages have ended."""
    wait_for(
        lambda: sum(run.end is not None for run in runs_in(file, label)) >= count,
        lambda: (
            f"{len(runs_in(file, label))} of {count}\n"
            + "\n".join(process.log()[-3_000:] for process in processes)
        ),
        90,
    )


def wait_no_lag(bootstrap: str, group: str, topic: str) -> None:
    """Wait until the group's offset is at the end of the log, markers of transactions included."""

    def left() -> list[int]:
        done = [max(0, number) for number in kafka.committed(bootstrap, group, topic, PARTITIONS)]
        ends = kafka.end_offsets(bootstrap, topic, PARTITIONS)
        return [end - number for number, end in zip(done, ends, strict=True)]

    wait_for(lambda: not any(left()), lambda: str(left()))


# -- two consumer groups on one address, any traffic ----------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """Two consumer groups: one of two processes with coroutines, one of a process with a plain function."""

    bootstrap: str
    address: str
    processes: list[ConsumerProcess]
    handled: Mapping[str, Path]
    """Files of handled messages, by consumer group."""

    def wait_handled(self, label: str, count: int) -> None:
        for file in self.handled.values():
            wait_handled(file, label, count, *self.processes)


@pytest.fixture(scope="module")
def pair(broker: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Consumer groups for tests that only take messages; each test sends groups of its own."""
    bootstrap = broker.bootstrap_servers  # type: ignore[attr-defined]
    folder, name = tmp_path_factory.mktemp("consume"), kafka.unique("consumed")
    config = configure(folder, bootstrap, name, [{"name": name, "partitions": PARTITIONS}])
    together = {"HANDLED_FILE": str(folder / "billing.handled")}
    billing = [
        ConsumerProcess(config, item, name, f"{name}-billing", environment=together) for item in ("b1", "b2")
    ]
    shipping = ConsumerProcess(config, "s1", name, f"{name}-shipping", handler="record_in_thread")
    handled = {f"{name}-billing": folder / "billing.handled", f"{name}-shipping": shipping.handled}
    with consumers(*billing, shipping):
        wait_shared(*billing, partitions=PARTITIONS)
        yield Pair(bootstrap, name, [*billing, shipping], handled)


SHAPES = {
    "one-group": Shape(messages=307, group_size=307, interleave=1),
    "zipf": Shape(messages=2_003, group_size=401, interleave=499, zipf=1.1),
    "beside-ungrouped": Shape(messages=2_003, group_size=13, interleave=11, ungrouped=0.3),
}


@pytest.mark.parametrize(
    "kind",
    ["beside-ungrouped", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("one-group", "zipf"))],
)
def test_each_consumer_group_gets_everything_in_order(pair: Pair, kind: str) -> None:
    """Each consumer group handles every message once, and each group in order, whatever the groups look like."""
    messages = generate(SHAPES[kind], SEED, kind)

    accept(pair.bootstrap, pair.address, messages)
    pair.wait_handled(kind, len(messages))

    for file in pair.handled.values():
        runs = runs_in(file, kind)
        assert judge(runs, sizes(messages)) == []
        assert {run.attempt for run in runs} == {1}


def test_lag_is_zero_behind_transactions(pair: Pair) -> None:
    """Committed offsets pass control records and reach the end of the log. Aborted messages are never handled.

    Each consumer group has progress records of its own, for every partition.
    """
    messages = generate(Shape(messages=503), SEED, "transacted")

    accept_in_transactions(pair.bootstrap, pair.address, messages)
    pair.wait_handled("transacted", len(messages))

    for group, file in pair.handled.items():
        assert judge(runs_in(file, "transacted"), sizes(messages)) == []
        assert runs_in(file, "aborted") == []
        wait_no_lag(pair.bootstrap, group, f"{pair.address}.accepted")
        written = progress_written(pair.bootstrap, pair.address, group, f"{pair.address}.accepted")
        assert {item.partition for item in written} == set(range(PARTITIONS))


# -- from a producer to a handler ---------------------------------------------------------------------------------


def test_handler_gets_what_a_producer_sent(bootstrap: str, tmp_path: Path) -> None:
    """A coroutine or a plain function gets the message as it was published: sent, accepted once and handled."""
    name, config = one_address(tmp_path, bootstrap, "published")
    lines = [
        {"id": "o-1", "group": "customer-7", "value": "one", "headers": {"colour": "red"}},
        {"id": "o-1", "group": "customer-7", "value": "one again"},
        {"value": "two"},
        {
            "id": "t-1",
            "parts": [
                {"group": "customer-7", "value": "three"},
                {"id": "o-2", "group": "g", "value": "four"},
            ],
        },
    ]
    processes = [
        ConsumerProcess(config, handler, name, f"{name}-{handler}", handler=handler)
        for handler in ("describe", "describe_in_thread")
    ]
    with worker(config, "w"), consumers(*processes):
        run_verb("send", name, "--config", str(config), stdin="\n".join(map(json.dumps, lines)))
        kafka.wait_count(bootstrap, f"{name}.accepted", 4)
        forged = (("_RF_SOURCE", b"foreign"), ("_RF_TX_PART", b"2/1"))
        kafka.send(bootstrap, f"{name}.accepted", [Sent(None, None, b"five", forged)])
        for process in processes:
            wait_for(lambda: len(_described(process)) >= 5, process.log)  # noqa: B023
        codes = [process.stop() for process in processes]

    common = {
        "address": name, "topic": f"{name}.accepted", "partition": 0, "attempt": 1, "fence": 1, "fenced": False,
        "group": None, "key": None, "duplicate_id": None, "headers": [], "part": None, "redriven": 0,
        "sequence": None, "state": None, "first_here": True, "verdict": None,
    }  # fmt: skip
    of_customer = common | {"group": "customer-7", "key": "customer-7"}
    expected = [
        of_customer | {
            "value": "one", "duplicate_id": "o-1", "headers": [["colour", "red"], ["_AMQ_DUPL_ID", "o-1"]],
            "source": f"{name}/0/0",
        },
        common | {"value": "two", "source": f"{name}/0/2"},
        of_customer | {"value": "three", "source": f"{name}/0/3", "part": "1/2", "first_here": False},
        common | {
            "group": "g", "key": "g", "value": "four", "duplicate_id": "o-2", "headers": [["_AMQ_DUPL_ID", "o-2"]],
            "source": f"{name}/0/3", "part": "2/2",
        },
        common | {"value": "five", "source": "foreign"},
    ]  # fmt: skip
    assert codes == [0, 0]
    for process in processes:
        got = _described(process)
        assert all(message.pop("timestamp") > 0 for message in got)
        assert len({message.pop("offset") for message in got}) == len(got)
        assert got == expected


def _described(process: ConsumerProcess) -> list[dict[str, Any]]:
    """Return the messages that its handler was given, in the order of their offsets."""
    return sorted(map(json.loads, noted(process.handled)), key=lambda item: int(item["offset"]))


# -- consumers come and go ------------------------------------------------------------------------------------------


def test_nothing_is_repeated_when_consumers_come_and_go(bootstrap: str, tmp_path: Path) -> None:
    """Started and stopped in the middle of traffic, three processes handle each message once, each group in order."""
    name, config = one_address(tmp_path, bootstrap, "come-and-go", PARTITIONS)
    handled = tmp_path / "handled"
    shape = Shape(messages=20_011, group_size=31, interleave=43, randomized=True, ungrouped=0.05)
    messages = generate(shape, SEED)
    environment = {"HANDLED_FILE": str(handled), "HANDLING_SECONDS": "0.05"}
    first, second, third = processes = [
        ConsumerProcess(config, item, name, f"{name}-group", "--concurrency", "7", environment=environment)
        for item in ("c1", "c2", "c3")
    ]
    flow = Flow(bootstrap, name, messages, 100)
    codes = []

    def wait_working(*those: ConsumerProcess) -> None:
        """Wait until they share all partitions, and each has done something."""
        wait_shared(*those, partitions=PARTITIONS)
        wait_for(
            lambda: {item.pid for item in those} <= {run.pid for run in runs_in(handled)},
            lambda: "\n".join(item.log()[-3_000:] for item in those),
        )

    with consumers(first, later=processes):
        try:
            flow.start()
            second.start()
            wait_working(first, second)
            third.start()
            wait_working(*processes)
            for leaving, staying in ((first, [second, third]), (third, [second])):
                codes.append(leaving.stop())
                wait_working(*staying)
            first.start()
            wait_working(first, second)
            sent = flow.finish()
            wait_handled(handled, "", sum(sent.values()), *processes)
            wait_no_lag(bootstrap, f"{name}-group", f"{name}.accepted")
            codes += [consumer_process.stop() for consumer_process in (first, second)]
        finally:
            flow.stop()

    runs = runs_in(handled)
    assert codes == [0] * 4
    assert judge(runs, sent) == []
    assert len({run.pid for run in runs}) == 4
    assert all(run.attempt == 1 for run in runs)
    last = latest_written(bootstrap, name, f"{name}-group", f"{name}.accepted")
    assert {partition: item.progress.released for partition, item in last.items()} == dict.fromkeys(
        range(PARTITIONS), True
    )


def test_interrupted_beside_a_handler_that_nobody_can_end(bootstrap: str, tmp_path: Path) -> None:
    """Ctrl-C ends a consumer as SIGTERM does, here without its handler, a thread."""
    name, config = one_address(tmp_path, bootstrap, "ends")
    process = ConsumerProcess(
        config, "c", name, f"{name}-group", "--drain-timeout", "0.1", handler="never_ends"
    )
    with consumers(process):
        accept(bootstrap, name, [GroupMessage("g", 0, last=True)])
        wait_for(lambda: len(runs_in(process.handled)) == 1, process.log)

        process.signal(signal.SIGINT)

        assert process.wait_end() == 0
        assert "1 handlers still run" in process.log()


# -- what cannot work says so -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            ("--handler", "tests.support.consumers.broken_handlers:record"),
            r"needs something_that_nobody_has, which is missing",
        ),
        ((), r"no broker answers at kafka\.bootstrap_servers = '127\.0\.0\.1:\d+': .*"),
        (
            ("--consumer-group", "orders"),
            r"consumer group 'orders' belongs to the workers \(app\.id\): choose another name",
        ),
        (
            ("--consumer-group", "orders-bridge-west"),
            r"'orders-bridge-west' belongs to a bridge: choose another name",
        ),
    ],
    ids=["handler", "broker", "workers", "bridge"],
)
def test_what_cannot_work(tmp_path: Path, options: tuple[str, ...], complaint: str) -> None:
    """A handler that cannot be loaded, an absent broker or a group of Ringfence gives one line with the reason."""
    code, said = _consume(_offline(tmp_path), "orders", *options)

    assert code == 2
    assert re.search(complaint, said), said


def test_unknown_address(tmp_path: Path) -> None:
    """The error names the known addresses. The verb is started from nothing here: it becomes the other program."""
    options = ("--handler", "a:b", "--consumer-group", "g", "--config", str(_offline(tmp_path)))
    ended = subprocess.run(
        [sys.executable, "-m", "app", "consume", "ordres", *options],
        cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip

    assert ended.returncode == 2
    assert ended.stderr == "ringfence: unknown address 'ordres': the configuration has orders\n"


def test_what_brokers_do_not_have_or_take(bootstrap: str, tmp_path: Path) -> None:
    """A missing topic is not made by chance: the error names the remedy. That for a session time-out names the bounds."""
    name = kafka.unique("topicless")
    config = _config(tmp_path, bootstrap, name)
    missing = _consume(config, name)
    run_verb("topics", "create", "--config", str(config))
    refused = _consume(config, name, "--session-timeout", "1801")

    assert [code for code, _ in (missing, refused)] == [2, 2]
    assert missing[1] == (
        f"ringfence: {name}.accepted (accepted topic of {name}) does not exist, or this user may not see it: "
        "run 'ringfence topics create'"
    )
    assert refused[1] == (
        "ringfence: the brokers do not allow a session time-out of 1801 s: choose one from their "
        "group.min.session.timeout.ms (6 s by default) to their group.max.session.timeout.ms (30 min by "
        "default)"
    )


def test_web_port_taken(tmp_path: Path) -> None:
    """A taken port gives an error that names the remedy."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = _consume(_offline(tmp_path), "orders", "--web-port", str(port))

    assert code == 2
    assert said.startswith(
        f"ringfence: --web-port {port}: cannot listen on 127.0.0.1 (Address already in use"
    )
    assert said.endswith("): choose another, or 0 for none")


def _consume(config: Path, address: str, *options: str) -> tuple[int, str]:
    """Return the exit code and the last line of the output."""
    ended = run_verb(
        "consume", address, "--handler", "tests.support.handlers:record", "--consumer-group", "g", *options,
        "--config", str(config), check=False,
    )  # fmt: skip
    return ended.returncode, (ended.stderr.splitlines() or [""])[-1]


def _offline(folder: Path) -> Path:
    return _config(folder, f"127.0.0.1:{ports.choose('127.0.0.1')}", "orders")


def _config(folder: Path, bootstrap: str, name: str) -> Path:
    config = folder / "ringfence.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{bootstrap}"\n[app]\nid = "{name}"\n[[addresses]]\nname = "{name}"\n'
    )
    return config
