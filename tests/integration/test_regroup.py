"""``rings regroup`` on a broker, between workers that ran before and run afterwards."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.commands.rings.adopt import _adopt_lane
from app.commands.rings.clear import _clear_lane, _Ids
from app.commands.rings.regroup import regroup
from app.commands.rings.regroup_plan import RegroupError
from app.commands.rings.show import OtherLanesError, lane_views
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.load import load
from tests.support import kafka
from tests.support.kafka import Got, Sent
from tests.support.worker import Running, WorkerProcess, configure, run_verb, wait_for, worker

PARTITIONS = 4
COUNT = 40


def _config(folder: Path, bootstrap: str, name: str, lanes: int) -> Path:
    folder.mkdir(exist_ok=True)
    address: dict[str, Any] = {"name": name, "partitions": PARTITIONS, "id_cache_size": 1_000}
    return configure(folder, bootstrap, name, [address | ({"lanes": lanes} if lanes else {})])


def _send(bootstrap: str, topic: str, *, shift: int = 0) -> None:
    """Send all IDs; with ``shift`` each under the group of another partition."""
    for partition in range(PARTITIONS):
        group = kafka.at_home(partition, PARTITIONS)
        numbers = [number for number in range(COUNT) if (number + shift) % PARTITIONS == partition]
        kafka.send(bootstrap, topic, [Sent(b"m-%d" % number, group) for number in numbers], partition)


def _regroup(config: Path, name: str, lanes: int, *options: str, failpoints: str = "") -> tuple[int, str]:
    done = run_verb(
        "rings", "regroup", name, "--lanes", str(lanes), *options, "--config", str(config),
        check=False, failpoints=failpoints,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def _shown(config: Path, name: str) -> list[tuple[int, list[int], int]]:
    done = run_verb("rings", "show", name, "--json", "--config", str(config))
    lanes = json.loads(done.stdout)["addresses"][name]
    return [(lane["lane"], lane["partitions"], lane["size"]) for lane in lanes]


def _through(bootstrap: str, process: WorkerProcess, addresses: list[dict[str, Any]], name: str) -> list[Got]:
    """Wait until all input is judged, and return the accepted records."""
    wait_for(
        lambda: kafka.consumed(bootstrap, name, name, PARTITIONS),
        lambda: f"{process.health()}\n{process.log()}",
    )
    return Running(bootstrap, process, addresses, name).read(f"{name}.accepted", PARTITIONS)


def test_regroup(bootstrap: str, tmp_path: Path) -> None:
    """No ID is forgotten when lanes change from one for each partition to a single one and back.

    The verb is killed before each commit and run again.
    """
    name = kafka.unique("regroup")
    addresses = [{"name": name, "partitions": PARTITIONS, "id_cache_size": 1_000}]
    apart = _config(tmp_path / "apart", bootstrap, name, 0)
    together = _config(tmp_path / "together", bootstrap, name, 1)
    with worker(apart, "w") as process:
        _send(bootstrap, name)
        away = kafka.at_home(1, PARTITIONS)
        kafka.send(bootstrap, name, [Sent(b"forwarded", away)], 0)
        assert len(Running(bootstrap, process, addresses, name).settled(name)) == COUNT + 1
        code, said = _regroup(together, name, 1)
        assert (code, f"workers of {name} run" in said) == (2, True), said
        process.stop()
    checked = run_verb("topics", "check", "--config", str(together), check=False)
    assert f"'ringfence rings regroup {name} --lanes 1', or set lanes = 0" in checked.stdout, checked.stdout

    code, said = _regroup(together, name, 1, "--dry-run")
    assert (code, said.splitlines()[0]) == (
        0,
        f"would write  lane {name}-0  partitions 0, 1, 2, 3  with the IDs of {name}-0, {name}-1, {name}-2, {name}-3",
    )
    # Each but the last closes one lane more; the last is killed with all rings written.
    for lane in (1, 2, 3, 0):
        code, said = _regroup(together, name, 1, failpoints=f"before-commit:{name}-{lane}=kill")
        assert code == -9, said
    for config in (apart, together):
        checked = run_verb("topics", "check", "--config", str(config), check=False)
        assert f"a regrouping of the lanes of {name} is unfinished" in checked.stdout, checked.stdout
        refused = run_verb("worker", "--config", str(config), check=False)
        assert (refused.returncode, "no lane opens until it ends" in refused.stderr) == (1, True), (
            refused.stderr
        )
    code, said = _regroup(together, name, 1, "--json")
    assert code == 0, said
    (lane,) = json.loads(said[said.index("{") : said.rindex("}") + 1])["lanes"]
    assert lane == {"lane": 0, "partitions": [0, 1, 2, 3], "from": [0, 1, 2, 3], "size": COUNT + 1}
    assert _shown(together, name) == [(0, [0, 1, 2, 3], COUNT + 1)]
    assert run_verb("topics", "check", "--config", str(together)).stdout.splitlines()[-1].startswith("ok")
    code, said = _regroup(together, name, 1)
    assert (code, said.splitlines()[0]) == (0, f"{name} has lanes = 1, and its rings fit: nothing to do")

    with worker(together, "w") as process:
        _send(bootstrap, name, shift=1)
        kafka.send(bootstrap, name, [Sent(b"one", kafka.at_home(3, PARTITIONS))], 3)
        assert len(_through(bootstrap, process, addresses, name)) == COUNT + 2
        process.stop()

    code, said = _regroup(apart, name, 0)
    assert code == 0, said
    assert _shown(apart, name) == [(lane, [lane], COUNT + 2) for lane in range(PARTITIONS)]
    with worker(apart, "w") as process:
        _send(bootstrap, name, shift=2)
        kafka.send(bootstrap, name, [Sent(b"new", kafka.at_home(2, PARTITIONS))], 2)
        accepted = Running(bootstrap, process, addresses, name).settled(name)
    assert len(accepted) == COUNT + 3


@pytest.mark.long
def test_what_is_forwarded_is_judged_before(bootstrap: str, tmp_path: Path) -> None:
    """The former lanes judge the forwarded records first: they open again, even if all of them were closed already."""
    name = kafka.unique("forwarded")
    addresses = [{"name": name, "partitions": PARTITIONS, "id_cache_size": 1_000}]
    apart = _config(tmp_path / "apart", bootstrap, name, 0)
    with worker(apart, "w") as process:
        _send(bootstrap, name)
        Running(bootstrap, process, addresses, name).settled(name)
        process.stop()
    assert _regroup(apart, name, 2, failpoints=f"before-commit:{name}-0=kill@2")[0] == -9
    checked = run_verb("topics", "check", "--config", str(apart), check=False)
    assert "is unfinished" in checked.stdout, checked.stdout

    kafka.send(bootstrap, f"{name}-{name}-forward", [Sent(b"late", kafka.at_home(1, PARTITIONS))], 1)
    code, said = _regroup(apart, name, 2)
    assert (code, f"lane {name}-1 has judged {name}-{name}-forward/1 up to" in said) == (2, True), said
    assert "Let workers with lanes = 0 (a lane for each partition) run until" in said
    with worker(apart, "w") as process:
        Running(bootstrap, process, addresses, name).settled(name)
        process.stop()
    code, said = _regroup(apart, name, 2)
    assert code == 0, said
    assert [(lane, partitions) for lane, partitions, _ in _shown(apart, name)] == [(0, [0, 2]), (1, [1, 3])]


@pytest.mark.long
async def test_verbs_that_looked_before(bootstrap: str, tmp_path: Path) -> None:
    """Verbs that looked at the lanes before a regroup leave alone what was written since."""
    name = kafka.unique("twice")
    config = _config(tmp_path, bootstrap, name, 0)
    settings = load(config)
    address = settings.configured(name)
    with worker(config, "w") as process:
        _send(bootstrap, name)
        addresses = [{"name": name, "partitions": PARTITIONS, "id_cache_size": 1_000}]
        Running(bootstrap, process, addresses, name).settled(name)
        process.stop()

    async with Cluster(settings.kafka, settings.app.id) as cluster:
        views = await lane_views(settings, address, cluster, to_write=True)
        assert (await asyncio.to_thread(_regroup, config, name, 2))[0] == 0
        with pytest.raises(OtherLanesError, match="its lanes began with lanes = 2"):
            await _clear_lane(settings, address, views[1], _Ids(name))
        with pytest.raises(OtherLanesError, match="its lanes began with lanes = 2"):
            await _adopt_lane(settings, address, cluster, views[1], {})
    shown = await asyncio.to_thread(_shown, _config(tmp_path, bootstrap, name, 2), name)
    assert shown == [(0, [0, 2], COUNT // 2), (1, [1, 3], COUNT // 2)]


def test_grow_beside_a_worker(bootstrap: str, tmp_path: Path) -> None:
    """The input of an address of two lanes grows while all processes run; other counts are refused with those that work."""
    name = kafka.unique("fixed")
    config = _config(tmp_path, bootstrap, name, 2)

    def grow(count: int) -> tuple[int, str]:
        done = run_verb(
            "topics", "grow", name, "--partitions", str(count), "--config", str(config), check=False
        )
        return done.returncode, done.stdout + done.stderr

    with worker(config, "w") as process:
        _send(bootstrap, name)
        addresses = [{"name": name, "partitions": PARTITIONS}]
        _through(bootstrap, process, addresses, name)
        code, said = grow(5)
        assert (code, "Choose 6, 8, 10, …" in said) == (2, True), said
        code, said = grow(6)
        assert f"looking at the lanes of {name}: 2 lanes, " in said, said
        assert (code, f"{name}  4 partitions, now 6" in said, "workers may run: " in said) == (
            0,
            True,
            True,
        ), said
        kafka.send(
            bootstrap, name, [Sent(b"m-%d" % number, kafka.at_home(5, 6)) for number in range(1, COUNT, 2)], 5
        )
        kafka.send(bootstrap, name, [Sent(b"more", kafka.at_home(4, 6))], 4)
        wait_for(
            lambda: kafka.consumed(bootstrap, name, name, 6), lambda: f"{process.health()}\n{process.log()}"
        )
        status = json.loads(run_verb("status", "--json", "--config", str(config), check=False).stdout)
        (address,) = status["addresses"]
        assert [(lane["number"], lane["partitions"], lane["state"]) for lane in address["lanes"]] == [
            (0, [0, 2, 4], "open"),
            (1, [1, 3, 5], "open"),
        ], status
        assert status["workers"][0]["lanes"] == 2
        assert process.stop() == 0
    checked = run_verb("topics", "check", "--config", str(config), check=False)
    assert checked.returncode == 0, checked.stdout
    # Each of the odd IDs was known to the lane of partition 5; lane 0 knew none of them.
    assert len(kafka.read_all(bootstrap, f"{name}.accepted", PARTITIONS)) == COUNT + 1
    assert [(lane, partitions) for lane, partitions, _ in _shown(config, name)] == [
        (0, [0, 2, 4]),
        (1, [1, 3, 5]),
    ]
    code, said = grow(6)
    assert (code, "nothing to do" in said) == (0, True), said


@pytest.mark.long
def test_input_grows_at_the_question(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written by an outdated plan when the input grows during the operator's answer, and lanes open."""
    name = kafka.unique("slow")
    config = _config(tmp_path, bootstrap, name, 2)
    addresses = [{"name": name, "partitions": PARTITIONS, "id_cache_size": 1_000}]
    with worker(config, "w") as process:
        _send(bootstrap, name)
        _through(bootstrap, process, addresses, name)
        process.stop()

    def grown(*_: object, **__: object) -> None:
        run_verb("topics", "grow", name, "--partitions", "6", "--config", str(config))

    with monkeypatch.context() as patched:
        patched.setattr("app.commands.rings.regroup.confirmed", grown)
        with pytest.raises(RegroupError, match=f"{name} has 6 partitions now"):
            regroup(load(config), name, 0, dry_run=False, as_json=False, yes=False)

    checked = run_verb("topics", "check", "--config", str(config), check=False)
    assert checked.returncode == 0, checked.stdout
    sizes = [size for _, _, size in _shown(config, name)]
    assert sum(sizes) == COUNT
    code, said = _regroup(config, name, 0)
    assert code == 0, said
    assert [(lane, size) for lane, _, size in _shown(_config(tmp_path, bootstrap, name, 0), name)] == [
        (lane, sizes[lane % 2]) for lane in range(6)
    ]
