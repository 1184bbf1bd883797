"""Two applications whose names give the same topics and transactional IDs: the second reports it, and disturbs nobody."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from agents.lane.lane import Lane, LaneState
from agents.lane.open import Opening
from app.commands.rings import clear, find, show
from app.commands.topics import topics
from reconcile.cluster.admin import Admin
from reconcile.cluster.survey import Survey
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import ForeignChangelogError
from ringfence_kafka.protocol import wire_names
from tests.support.lanes import Bench, Group, bench, ids, shared_parts, until
from tests.support.worker import run_verb


@pytest.fixture(autouse=True)
def told_now() -> Iterator[None]:
    """Collect a fenced producer's leftovers after its test: Python 3.11 may stumble over them while pytest ends."""
    yield
    gc.collect()


def _other(lanes: Bench, folder: Path) -> Settings:
    """Return settings of a second application with the same topic names.

    Its name is this one's with the first part of the address, and its address is the rest.
    """
    first, _, rest = lanes.name.partition("-")
    return validate(
        {
            "kafka": {"bootstrap_servers": lanes.bootstrap},
            "app": {"id": f"{lanes.app_id}-{first}", "data_dir": str(folder), "instance": "other"},
            "addresses": [{"name": rest, "input_topic": f"{lanes.name}-other", "partitions": 1}],
        }
    )


@contextlib.asynccontextmanager
async def _refused(settings: Settings, *, doubtful: bool) -> AsyncIterator[str]:
    """Open a lane that stays closed and asks several times whether it may open now; give its reason."""
    async with Cluster(settings.kafka, settings.app.id) as cluster:
        lane = Lane(Opening(shared_parts(settings, cluster), settings.addresses[0], 0, doubtful=doubtful))
        group = Group()
        lane.start(group)
        try:
            await until(lambda: group.asked > 3, lambda: f"{lane.state}: {lane.reason}")
            await until(lambda: lane.state is LaneState.REFUSED, lambda: f"{lane.state}: {lane.reason}")
            yield lane.reason
        finally:
            await lane.dispose()


async def test_names_that_meet(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second application is refused every operation, and its worker does not start. It fences nobody if it knows first."""
    monkeypatch.setattr("agents.lane.lane.REFUSED_AGAIN_S", 0.05)
    async with bench(bootstrap, tmp_path) as lanes:
        other = _other(lanes, tmp_path)
        await topics.ensure(other)
        nothing_yet = (await topics.examine(other)).faults
        lanes.send(*ids(0, 6))
        first = await lanes.opened()
        await lanes.feed(first, 0, 3)
        mine = await asyncio.to_thread(_surveyed, lanes.settings)
        reasons = (await topics.examine(other)).faults
        reasons += await asyncio.to_thread(_refused_verbs, other, tmp_path)
        async with _refused(other, doubtful=True) as second:
            await lanes.feed(first, 3, 4)
        fenced_by_second = first.counts["fenced"]
        async with _refused(other, doubtful=False) as third:
            await lanes.feed(first, 4, 6)
        reasons += [second, third]

        assert wire_names.changelog_topic(other.app.id, other.addresses[0].name) == lanes.changelog
        assert mine.topics.keys() >= {lanes.name, lanes.accepted}
        assert nothing_yet == []
        assert [_is_told(reason, lanes, other) for reason in reasons] == [True] * 8
        assert (fenced_by_second, first.counts["fenced"]) == (0, 1)
        assert lanes.accepted_ids() == [id_.id for id_ in ids(0, 6)]


def _refused_verbs(other: Settings, folder: Path) -> list[str]:
    """Return the errors of the verbs for rings, and of a worker that does not start."""
    name = other.addresses[0].name
    verbs: list[Callable[[], object]] = [
        lambda: _surveyed(other),
        lambda: show.show(other, name, as_json=True),
        lambda: find.find(other, name, ["1"], as_json=False),
        lambda: clear.clear(other, name),
    ]
    said = []
    for verb in verbs:
        with pytest.raises(ForeignChangelogError) as caught:
            verb()
        said.append(str(caught.value))
    config = folder / "other.toml"
    address = f'name = "{name}"\ninput_topic = "{other.addresses[0].input_topic}"\npartitions = 1\n'
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{other.kafka.bootstrap_servers}"\n[app]\nid = "{other.app.id}"\n[[addresses]]\n{address}'
    )
    started = run_verb("worker", "--config", str(config), "--web-port", "0", check=False)
    assert started.returncode == 1
    return [*said, started.stderr.removeprefix("ringfence: ").strip()]


def _is_told(text: str, lanes: Bench, other: Settings) -> bool:
    return text.startswith(
        f"{lanes.changelog}/0 holds the rings of address {lanes.name!r} of app.id {lanes.app_id!r}, not those of "
        f"{other.addresses[0].name!r} of {other.app.id!r}: "
    ) and text.endswith("Give one of the two another app.id, or its address another name")


def _surveyed(settings: Settings) -> Survey:
    return Survey.read(settings, Admin(settings.kafka, settings.app.id))
