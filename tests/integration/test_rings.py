"""``rings show``, ``find`` and ``clear``: without a worker and beside one."""

import asyncio
import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from agents.worker.lanes import Lanes
from app.commands.rings import clear
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.load import load
from ringfence_kafka.producer.transactional import TransactionalProducer
from ringfence_kafka.protocol import wire_names
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.lanes import Group, planted
from tests.support.terminal import steps
from tests.support.worker import Running, configure, one_address, run_verb, worker


def test_rings_beside_a_worker_and_without(bootstrap: str, tmp_path: Path) -> None:
    """The verbs read a ring's content from the changelog, and show the same with and without a running worker."""
    name = kafka.unique("rings")
    addresses = [{"name": name, "partitions": 2, "id_cache_size": 3}]
    config = configure(tmp_path, bootstrap, name, addresses)
    raw = b"\xff\x00raw"
    long = b"l" * 400
    with worker(config, "w") as process:
        running = Running(bootstrap, process, addresses, name)
        start = 1_700_000_000_000
        records = [
            Sent(name, None, timestamp=start + number * 1_000)
            for number, name in enumerate([b"plain", raw, long])
        ]
        running.outcome(name, records)
        beside = _look(config, name, raw, long)
    without = _look(config, name, raw, long)
    told = run_verb("rings", "find", name, "plain", "--config", str(config)).stdout

    assert "  timestamp 2023-11-14 22:13:20.000 UTC" in told
    assert beside == without
    shown = beside["show"]["addresses"][name]
    assert [item["capacity"] for item in shown] == [3, 3]
    assert sum(item["size"] for item in shown) == 3
    assert {"plain", "hex:ff00726177"} & {
        item[side]["id"] for item in shown for side in ("oldest", "newest") if item[side]
    }
    for found in beside["found"]:
        assert found["known"] is True
        assert found["lanes"][0]["source"].startswith(f"{name}/0/")
    assert beside["unknown"] == {"known": False, "lanes": []}


def _look(config: Path, name: str, raw: bytes, long: bytes) -> dict[str, Any]:
    def find(identifier: str) -> object:
        done = run_verb("rings", "find", name, identifier, "--json", "--config", str(config), check=False)
        assert done.returncode in (0, 1), done.stderr
        document = json.loads(done.stdout)
        assert document["known"] is (done.returncode == 0)
        return document

    return {
        "show": json.loads(run_verb("rings", "show", name, "--json", "--config", str(config)).stdout),
        "found": [
            find("plain"),
            find("text:plain"),
            find(f"hex:{raw.hex()}"),
            find(f"base64:{base64.b64encode(raw).decode()}"),
            find(long.decode()),
        ],
        "unknown": find("nobody"),
    }


def test_clear_is_honoured_by_a_running_worker(bootstrap: str, tmp_path: Path) -> None:
    """Resends pass once each after ``clear``, from one point on; the worker logs the reason; a restart does not bring IDs back."""
    name = kafka.unique("clear")
    addresses = [{"name": name, "partitions": 1}]
    config = configure(tmp_path, bootstrap, name, addresses)
    with worker(config, "w") as process:
        running = Running(bootstrap, process, addresses, name)
        running.outcome(name, [Sent(b"a", b"g"), Sent(b"b", b"g")])
        done = run_verb("rings", "clear", name, "--config", str(config))
        cleared = done.stdout
        got = running.outcome(name, [Sent(b"a", b"g"), Sent(b"a", b"g")])
        log = process.log()
        process.kill()
        process.start()
        process.wait_ready()
        after = running.outcome(name, [Sent(b"a", b"g"), Sent(b"b", b"g"), Sent(b"b", b"g")])
    (told,) = [json.loads(item.value or b"") for item in kafka.read_all(bootstrap, f"{name}-journal", 1)]

    assert (told["event"], told["address"], told["lane"], told["next"][name]) == ("cleared", name, 0, 2)
    assert len(told["topic_ids"][name]) == 22
    assert "2 IDs forgotten" in cleared
    assert steps(done.stderr) == [f"clearing {name}: 1 of 1 lane, 2 IDs forgotten"]
    assert [item.id for item in got] == [b"a", b"b", b"a"]
    assert f"lane {name}-0 fenced" in log
    assert [item.id for item in after] == [b"a", b"b", b"a", b"b"]


def test_clear_of_a_busy_lane(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clear that is fenced before it writes the floor tries again; when it fails, it names the lane and the cleared lanes."""
    name = kafka.unique("clear-busy")
    addresses = [{"name": name, "partitions": 2}]
    config = configure(tmp_path, bootstrap, name, addresses)
    with worker(config, "w") as process:
        running = Running(bootstrap, process, addresses, name)
        running.outcome(name, [Sent(name, None) for name in (b"a", b"b", b"c", b"d")])
        process.stop()
    settings = load(config)
    fences = 0

    async def fence_back(point: str, lane: str) -> None:
        nonlocal fences
        if fences < limit:
            fences += 1
            worker_lane = TransactionalProducer(
                settings.kafka, wire_names.transactional_id(name, name, 1), lane
            )
            await worker_lane.fence()
            await worker_lane.discard()

    monkeypatch.setattr(clear, "TRIES", 4)
    with planted("before-commit", f"{name}-1", fence_back):
        limit = 4
        with pytest.raises(
            clear.ContestedError, match=f"{name}-1 is not cleared: .* 4 times.*stop the workers"
        ):
            clear.clear(settings, name)
        first = capsys.readouterr().out
        fences, limit = 0, 3
        clear.clear(settings, name)
    second = capsys.readouterr().out
    counts = [int(found) for found in re.findall(r"(\d+) IDs forgotten", first + second)]

    assert f"{name}-0" in first
    assert f"{name}-1" not in first
    assert len(counts) == 3
    assert (counts[0] + counts[2], counts[1]) == (4, 0)


def test_unknown_address_and_unreadable_id(bootstrap: str, tmp_path: Path) -> None:
    """The error for an unknown address or an ID that cannot be read names it and the remedy."""
    name, config = one_address(tmp_path, bootstrap, "rings-errors")
    for verb in (["find", "nobody", "x"], ["clear", "nobody"], ["show", "nobody"]):
        done = run_verb("rings", *verb, "--config", str(config), check=False)
        assert done.returncode == 2
        assert f"unknown address 'nobody': the configuration has {name}" in done.stderr
    done = run_verb("rings", "find", name, "hex:zz", "--config", str(config), check=False)
    assert done.returncode == 2
    assert "write text:hex:zz" in done.stderr
    done = run_verb("rings", "clear", name, "--config", str(config), check=False)
    assert (done.returncode, done.stdout) == (0, f"cleared  {name}-0  0 IDs forgotten\n")
    kafka.delete_topics(bootstrap, [f"{name}-journal"])
    done = run_verb("rings", "clear", name, "--config", str(config), check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{name}-journal (journal of rings of all addresses) does not exist" in done.stderr
    elsewhere = tmp_path / "elsewhere.toml"
    elsewhere.write_text(config.read_text().replace(f'id = "{name}"', f'id = "{name}-other"'))
    done = run_verb("rings", "find", name, "x", "--config", str(elsewhere), check=False)
    assert done.returncode == 2
    assert f"topic {name}-other-{name}-changelog does not exist: use the workers' app.id" in done.stderr


def test_half_a_lane_is_not_opened(bootstrap: str, tmp_path: Path) -> None:
    """A worker that gets one half of a lane leaves it closed, reports why, and is not ready."""
    name, config = one_address(tmp_path, bootstrap, "half", 2)

    async def assign() -> tuple[bool, dict[tuple[str, int], str], list[str]]:
        settings = load(config, {})
        async with Cluster(settings.kafka, name) as cluster:
            lanes = Lanes(settings, cluster)
            forward = f"{name}-{name}-forward"
            await lanes.assigned({(name, 0), (forward, 0), (name, 1)}, Group())
            try:
                return lanes.health.ready, lanes.health.halves, [lane.name for lane in lanes.lanes]
            finally:
                await lanes.stop()

    ready, halves, opened = asyncio.run(assign())

    assert not ready
    assert opened == [f"{name}-0"]
    assert halves == {
        (
            name,
            1,
        ): f"its partition of {name}-{name}-forward was not assigned to this worker too: run all "
        f"workers of {name} with the same addresses"
    }
