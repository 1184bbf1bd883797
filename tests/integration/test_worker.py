"""The life of worker processes: start, share, restart, lose their disk, fail to write, stop."""

import functools
import json
import re
import shutil
import signal
import socket
from pathlib import Path

from confluent_kafka.admin import AdminClient

from app.embedded import ports
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.worker import WorkerProcess, configure, one_address, run_verb, wait_for, worker

STATIC = {"RINGFENCE_APP__STATIC_MEMBERSHIP": "true"}


def _records(first: int, last: int) -> list[Sent]:
    return [Sent(b"%d" % index, b"group") for index in range(first, last)]


def _settle(process: WorkerProcess, bootstrap: str, address: str, partitions: int = 1) -> None:
    """Wait until the worker's lanes have processed all that is in the input."""

    def lag() -> int:
        lanes = process.health()[1].get("lanes", {})
        ends = kafka.end_offsets(bootstrap, address, partitions)
        return sum(end - lanes.get(f"{address}-{p}", {}).get("next", -1) for p, end in enumerate(ends))

    wait_for(lambda: lag() == 0, lambda: f"lag {lag()}\n{process.log()}")


def _lag(bootstrap: str, group: str, topics: tuple[str, ...], partitions: int) -> list[int | None]:
    """Lag as kafka-consumer-groups.sh shows it: the end of the log, markers included, less the group's offset; None = it has none."""
    return [
        end - at if at >= 0 else None
        for topic in topics
        for at, end in zip(
            kafka.committed(bootstrap, group, topic, partitions),
            kafka.end_offsets(bootstrap, topic, partitions),
            strict=True,
        )
    ]


def test_no_lag_at_rest(bootstrap: str, tmp_path: Path) -> None:
    """A worker that has processed everything shows lag 0, with any markers in input and forward topic, and rests then."""
    name, config = one_address(tmp_path, bootstrap, "rest", 2)
    topics = (name, f"{name}-{name}-forward")
    group = kafka.at_home(1, 2)
    with worker(config, "w") as process:
        for partition in range(2):
            kafka.send_in_transaction(
                bootstrap, name, [Sent(b"a", group), Sent(b"b", group)], commit=True, partition=partition
            )
            kafka.send_in_transaction(bootstrap, name, [Sent(b"c", group)], commit=False, partition=partition)
        lags = functools.partial(_lag, bootstrap, name, topics, 2)
        # Nothing is at home in partition 0, so nothing was ever forwarded to it.
        wait_for(lambda: lags() == [0, 0, None, 0], lambda: f"{lags()}\n{process.log()}")
        changelog = kafka.end_offsets(bootstrap, f"{name}-{name}-changelog", 2)
        assert process.health()[1]["lanes"][f"{name}-0"]["batches"] == 1
        admin = AdminClient({"bootstrap.servers": bootstrap})  # kept: without it no answer comes
        described = admin.describe_consumer_groups([name])[name].result(30)
        (member,) = described.members
        assert process.stop() == 0

    assert lags() == [0, 0, None, 0]
    assert kafka.end_offsets(bootstrap, f"{name}-{name}-changelog", 2) == changelog
    assert member.client_id == f"{name}-w"
    assert [item.id for item in kafka.read_all(bootstrap, f"{name}.accepted", 2)] == [b"a", b"b"]


def test_restart_reuses_rocksdb(bootstrap: str, tmp_path: Path) -> None:
    """A restarted worker remembers, and restores only what its RocksDB has not seen."""
    name, config = one_address(tmp_path, bootstrap, "restart")
    with worker(config, "w") as process:
        kafka.send(bootstrap, name, _records(0, 500))
        _settle(process, bootstrap, name)
        assert process.stop() == 0
        kafka.send(bootstrap, name, _records(0, 600))
        process.start()
        process.wait_ready()
        _settle(process, bootstrap, name)
        opened = re.search(
            r"open: (\d+) changelog records restored in [\d.]+ s \(RocksDB (\w+)\)", process.log()
        )

    assert opened is not None
    assert opened.groups() == ("1", "reused")
    assert [item.id for item in kafka.read_all(bootstrap, f"{name}.accepted", 1)] == [
        record.id for record in _records(0, 600)
    ]


def test_lost_state_directory(bootstrap: str, tmp_path: Path) -> None:
    """A worker whose disk is lost still knows all IDs, from the changelog."""
    name, config = one_address(tmp_path, bootstrap, "disk", id_cache_size=400)
    with worker(config, "w") as process:
        kafka.send(bootstrap, name, _records(0, 500))
        _settle(process, bootstrap, name)
        process.kill()
        shutil.rmtree(tmp_path / "data")
        # The ring holds 100 to 499 in any case; 0 is the oldest evicted one and is new again.
        kafka.send(bootstrap, name, [*_records(100, 500), *_records(0, 1)])
        process.start()
        process.wait_ready()
        _settle(process, bootstrap, name)
        log = process.log()

    assert "RocksDB new" in log
    assert [item.id for item in kafka.read_all(bootstrap, f"{name}.accepted", 1)] == [
        record.id for record in [*_records(0, 500), *_records(0, 1)]
    ]


def test_two_workers_share_the_lanes(bootstrap: str, tmp_path: Path) -> None:
    """Two workers of one configuration on one machine have half of the lanes each; one alone has all again.

    Lanes that stay remain open. Those that move are restored before, or are in memory still.
    """
    name, config = one_address(tmp_path, bootstrap, "two", 4)

    def send(first: int) -> None:
        for partition in range(4):
            begin = first + 100 * partition
            kafka.send(bootstrap, name, _records(begin, begin + 100), partition)

    with worker(config, "w1") as one:

        def await_all(messages: int) -> None:
            """Until they are accepted, most of them where they are at home."""
            ends = kafka.end_offsets(bootstrap, name, 4)
            wait_for(
                lambda: (
                    kafka.committed(bootstrap, name, name, 4) == ends
                    and len(kafka.read_all(bootstrap, f"{name}.accepted", 4)) == messages
                ),
                lambda: f"{kafka.committed(bootstrap, name, name, 4)}\n{one.log()}",
            )

        send(0)
        await_all(400)
        with worker(config, "w2") as two:

            def lanes() -> list[set[str]]:
                return [set(worker_process.health()[1].get("lanes", {})) for worker_process in (one, two)]

            wait_for(
                lambda: (
                    [len(lane) for lane in lanes()] == [2, 2] and {one.health()[0], two.health()[0]} == {200}
                ),
                lambda: f"{lanes()}\n{one.log()}\n{two.log()}",
            )
            stay, moved = lanes()
            assert stay.isdisjoint(moved)
            send(400)
            await_all(800)
            assert two.stop() == 0
            wait_for(
                lambda: len(lanes()[0]) == 4 and one.health()[0] == 200,
                lambda: f"{one.health()}\n{one.log()}",
            )
            said, joined = one.log(), two.log()

    assert {name: said.count(f"lane {name} open: ") for name in stay} == dict.fromkeys(stay, 1)
    assert all(said.count(f"lane {name} resumes at ") >= 2 for name in stay)
    assert (
        set(
            re.findall(r"restoring . lanes ahead of their assignment: (.*) \[RF-\d+\]", joined)[0].split(", ")
        )
        == moved
    )
    for log, kept in ((joined, moved), (said, moved)):
        assert set(re.findall(r"lane (\S+) open: .*\(RocksDB kept\)", log)) == kept, log
    got = kafka.read_all(bootstrap, f"{name}.accepted", 4)
    assert len(got) == 800
    assert len({item.source for item in got}) == 800


def test_health_tells_when_it_is_ready(bootstrap: str, tmp_path: Path) -> None:
    """``/live`` answers as soon as the process runs; ``/health`` is 503 until all lanes are open."""
    name, config = one_address(tmp_path, bootstrap, "health", 2)
    with WorkerProcess(config, "w") as process:
        seen: list[int] = []

        def ready() -> bool:
            seen.append(process.health()[0])
            return seen[-1] == 200

        wait_for(ready, lambda: f"{seen}\n{process.log()}")
        assert set(seen) <= {0, 503, 200}
        assert process.get("/live") == (200, {"live": True})
        assert process.get("/router")[0] == 404
        assert process.health()[1]["ready"] is True
        process.signal(signal.SIGUSR2)
        wait_for(lambda: "SIGUSR2 is ignored" in process.log(), process.log)
        assert process.health()[0] == 200
        process.signal(signal.SIGHUP)
        assert process.wait_end() == 0

    log = process.log()
    for line in (
        "worker w of",
        "assigned 2 lanes",
        f"lane {name}-0 open",
        "ready: 2 lanes open",
        f"lane {name}-1 closed",
        "stopped",
    ):
        assert log.count(line) == 1, f"{line!r} {log.count(line)} times in\n{log}"
    assert "Traceback" not in log


def test_same_instance_twice_is_refused(bootstrap: str, tmp_path: Path) -> None:
    """A second worker in the folder of a running one ends at once, and names the way to have two."""
    _, config = one_address(tmp_path, bootstrap, "twice")
    with worker(config, "same"):
        second = WorkerProcess(config, "same")
        second.log_file = tmp_path / "second.log"
        with second:
            assert second.wait_end() == 2

    assert "another worker runs in" in second.log()
    assert "app.instance" in second.log()


def test_static_member_comes_back(bootstrap: str, tmp_path: Path) -> None:
    """A static member that returns within the session time-out has its lanes again, and the other worker sees no rebalance.

    It was stopped or killed, and may listen at another port.
    """
    name, config = one_address(tmp_path, bootstrap, "static", 4)
    # However long a start takes here: nobody waits for the session to end.
    patient = {**STATIC, "RINGFENCE_APP__SESSION_TIMEOUT": "60"}
    with worker(config, "one", **patient) as one, worker(config, "two", **patient) as two:

        def lanes(process: WorkerProcess) -> set[str]:
            return set(process.health()[1].get("lanes", {}))

        wait_for(
            lambda: len(lanes(one)) == len(lanes(two)) == 2 and one.health()[0] == two.health()[0] == 200,
            lambda: f"{one.log()}\n{two.log()}",
        )
        had, seen = lanes(two), one.log().count("rebalance: ")
        for again, end in enumerate((two.stop, two.kill), 1):
            end()
            for partition in range(4):
                kafka.send(
                    bootstrap, name, _records(100 * partition, 100 * partition + 50 * again), partition
                )
            two.port = ports.choose("127.0.0.1")
            two.start()
            two.wait_ready()
            assert lanes(two) == had
            wait_for(
                lambda: len(kafka.read_all(bootstrap, f"{name}.accepted", 4)) >= 200 * again,  # noqa: B023 - called at once
                lambda: f"{kafka.committed(bootstrap, name, name, 4)}\n{one.log()}\n{two.log()}",
            )
        said = one.log()
        status = json.loads(run_verb("status", "--json", "--config", str(config), check=False).stdout)

    assert [(item["web"], item["ready"]) for item in status["workers"]] == [
        (f"http://127.0.0.1:{worker_process.port}", True) for worker_process in (one, two)
    ]
    assert said.count("rebalance: ") == seen
    got = [item.id for item in kafka.read_all(bootstrap, f"{name}.accepted", 4)]
    assert (len(got), set(got)) == (400, {b"%d" % index for index in range(400)})


def test_static_member_of_a_name_in_use(bootstrap: str, tmp_path: Path) -> None:
    """The newer of two workers of one name has the lanes; the older ends, reports why, and does not interfere."""
    name, config = one_address(tmp_path, bootstrap, "namesake")
    elsewhere = {"RINGFENCE_APP__DATA_DIR": str(tmp_path / "elsewhere"), **STATIC}
    newer = WorkerProcess(config, "same", elsewhere)
    newer.log_file = tmp_path / "newer.log"
    with worker(config, "same", **STATIC) as older:
        kafka.send(bootstrap, name, _records(0, 100))
        _settle(older, bootstrap, name)
        with newer:
            assert older.wait_end() == 2
            newer.wait_ready()
            kafka.send(bootstrap, name, _records(50, 200))
            _settle(newer, bootstrap, name)
            assert newer.running
        said = older.log()

    assert f"another worker has joined the group {name} as app.instance = same" in said
    assert "give each its own app.instance" in said
    assert "Traceback" not in said
    assert [item.id for item in kafka.read_all(bootstrap, f"{name}.accepted", 1)] == [
        record.id for record in _records(0, 200)
    ]


def test_static_member_with_other_addresses(bootstrap: str, tmp_path: Path) -> None:
    """The group assigns again when a static member returns with one more address, or one fewer: nobody has unread lanes."""
    name = kafka.unique("more")
    one, two = [{"name": item, "partitions": 1} for item in (name, f"{name}-added")]
    both = configure(tmp_path, bootstrap, name, [one, two])
    (tmp_path / "first").mkdir()
    config = configure(tmp_path / "first", bootstrap, name, [one])
    found = []
    for path in (config, both, config):
        with worker(path, "w", RINGFENCE_APP__DATA_DIR=str(tmp_path / "data"), **STATIC) as process:
            found.append(set(process.health()[1]["lanes"]))
            assert process.stop() == 0

    assert found == [{f"{name}-0"}, {f"{name}-0", f"{name}-added-0"}, {f"{name}-0"}]


def test_web_port_in_use_is_named(bootstrap: str, tmp_path: Path) -> None:
    """A port in use ends the start with an error that names the remedy."""
    _, config = one_address(tmp_path, bootstrap, "port")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_verb("worker", "--config", str(config), "--web-port", str(port), check=False)

    assert done.returncode == 2
    assert f"app.web_port = {port}" in done.stderr
    assert "--web-port" in done.stderr
