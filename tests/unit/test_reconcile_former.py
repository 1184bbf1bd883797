"""Nights that an earlier version kept in the working directory: they are not left behind without a word."""

import shlex
import shutil
from pathlib import Path

import pytest

from reconcile import job
from reconcile.cluster.admin import TopicFacts
from reconcile.cluster.survey import Survey
from reconcile.night import acknowledging, former
from reconcile.night.cut import Position
from reconcile.night.nights import Night, Nights
from reconcile.spark.files import LocalFiles
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import ConfigurationError, PrerequisiteError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _settings(here: Path, **of_reconcile: str) -> Settings:
    return validate(
        {
            "app": {"id": "rf", "data_dir": str(here / "my data")},
            "reconcile": of_reconcile,
            "addresses": [{"name": "orders"}],
        }
    )


def _survey(topic_id: str) -> Survey:
    return Survey("cluster", {}, {"orders": TopicFacts(topic_id, 1)}, {}, {}, {}, {}, {}, {})


def _kept(app: str = "rf") -> None:
    positions = {"orders": Position("this-topic", (0,), (10,))}
    night = Night(1, None, "2026-11-20", "clean", positions, {}, {}, {}, {}, app=app)
    Nights(LocalFiles(str(former.FORMER))).commit(night)


def _begin(settings: Settings, topic_id: str = "this-topic") -> None:
    former.refuse_unless_moved(settings, _survey(topic_id), Nights.load(LocalFiles(settings.nights_dir)))


def test_they_are_to_be_moved(here: Path) -> None:
    """No first night is begun beside them; the command that the error names moves them."""
    settings = _settings(here)
    _kept()

    with pytest.raises(ConfigurationError, match="the runs up to now are in data/reconcile") as raised:
        _begin(settings)
    source, target = shlex.split(str(raised.value).partition("(mv ")[2].partition(")")[0])
    for each in here.glob(source):
        shutil.move(each, target)
    _begin(settings)
    assert Nights.load(LocalFiles(settings.nights_dir)).last is not None


def test_they_are_looked_for_before_spark_is_started(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the job itself."""
    _kept()
    monkeypatch.setattr(job, "surveyed", lambda _: _survey("this-topic"))
    monkeypatch.setattr(job, "session", lambda *_, **__: pytest.fail("a session"))

    with pytest.raises(ConfigurationError, match="the runs up to now are in data/reconcile"):
        job.run(_settings(here), job.Options())


def test_they_may_stay(here: Path) -> None:
    """Or begin anew: whoever names the folder has decided."""
    _kept()

    _begin(_settings(here, state_dir="data/reconcile"))
    _begin(_settings(here, state_dir=str(here / "my data" / "reconcile")))


@pytest.mark.parametrize(("app", "topic"), [("other", "this-topic"), ("rf", "another-cluster-s")])
def test_they_are_of_others(here: Path, app: str, topic: str) -> None:
    """Who stands in somebody else's folder has nothing to move: no two clusters have a topic's ID in common."""
    _kept(app)

    _begin(_settings(here), topic)


def test_none_are_there(here: Path) -> None:
    """A first night, and nothing is made in the working directory."""
    _begin(_settings(here))

    assert not (here / "data").exists()


def test_acknowledged_where_they_are_not(here: Path) -> None:
    """The error says where to look."""
    _kept()

    with pytest.raises(
        PrerequisiteError, match=r"my data/reconcile: .*earlier versions kept them in data/reconcile"
    ):
        job.run(_settings(here), job.Options(acknowledge=acknowledging.LAST))


def test_acknowledged_by_others(here: Path) -> None:
    """The nights of another application are not its own to acknowledge."""
    _kept("other")

    with pytest.raises(ConfigurationError, match=r"has the runs of app\.id = 'other', and this is 'rf'"):
        job.run(_settings(here, state_dir="data/reconcile"), job.Options(acknowledge=acknowledging.LAST))
