"""The reconciliation command without Spark: locks, acknowledgement, and early errors."""

import contextlib
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import click
import pytest

from app.commands.reconcile import reconcile
from reconcile import job
from reconcile.cluster.survey import Survey
from reconcile.run.history import acknowledge
from reconcile.run.history.history import Run, RunHistory
from reconcile.spark.files import BusyError, LocalFiles, apart
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import BrokerUnavailableError, ConfigurationError, PrerequisiteError


class ReachedError(Exception):
    """The run came so far."""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    # No broker may answer: a failed run is written to the cluster, and the default address may be somebody's own.
    return validate(
        {
            "kafka": {"bootstrap_servers": "127.0.0.1:1"},
            "addresses": [{"name": "orders"}],
            "reconcile": {"state_dir": str(tmp_path / "state")},
        }
    )


def _reached(*_: object, **__: object) -> contextlib.AbstractContextManager[None]:
    raise ReachedError


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a run that wants a Spark session as one that has come far enough."""
    monkeypatch.setattr(job, "session", _reached)


def _kept(settings: Settings, verdict: str) -> RunHistory:
    runs = RunHistory(LocalFiles(settings.reconcile.state_dir))
    for number in (1, 2):
        runs.commit(Run(number, None, "2026-11-20", verdict, app=settings.app.id))
    return runs


def test_the_cluster_is_asked_when_nobody_else_is_at_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers from before the end of another run are too old."""
    monkeypatch.setattr(job, "surveyed", _reached)
    files = LocalFiles(settings.reconcile.state_dir)

    with files.locked(), pytest.raises(BusyError):
        job.run_job(settings, job.Options())
    with pytest.raises(ReachedError):
        job.run_job(settings, job.Options())


@pytest.mark.usefixtures("session")
def test_the_run_that_was_looked_at(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the last run is acknowledged, without results. A folder without runs is a mistake, and is not made.

    Under spark-submit a bare path may be the cluster's: where runs are is known when the session is there.
    """
    last = job.Options(acknowledge=acknowledge.LAST)
    with pytest.raises(PrerequisiteError, match="no run is kept in"):
        job.run_job(settings, last)
    assert not Path(settings.reconcile.state_dir).exists()
    LocalFiles(settings.reconcile.state_dir)
    with pytest.raises(PrerequisiteError, match="no run is kept in"):
        job.run_job(settings, last)

    runs = _kept(settings, "anomalies")
    for options in (replace(last, as_json=True), replace(last, out="out")):
        with pytest.raises(ConfigurationError, match="cannot be combined with --json"):
            job.run_job(settings, options)
    with pytest.raises(ConfigurationError, match=r"run 1 is not the last, that is 2 \(anomalies\)"):
        job.run_job(settings, job.Options(acknowledge=1))
    assert not (Path(settings.reconcile.state_dir) / "nights" / "000002.acknowledged").exists()
    assert job.run_job(settings, job.Options(acknowledge=2)) == 0
    assert job.run_job(settings, last) == 0
    said = capsys.readouterr().out.splitlines()
    beginnings = [name.partition(":")[0] for name in said]
    assert beginnings == ["acknowledged run 2 (anomalies)", "nothing to acknowledge"]
    assert RunHistory.load(runs.files).finished[2].acknowledged
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with pytest.raises(ReachedError):
        job.run_job(settings, last)


@pytest.mark.usefixtures("session")
def test_what_is_told_before_spark_is_started(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that refuses, another cluster, or an invalid master is reported before Spark starts, which takes ten seconds."""
    survey = Survey("this-cluster", {}, {}, {}, {}, {}, {}, {}, {})
    runs = _kept(settings, "clean")
    runs.commit(replace(runs.finished[2], number=3, cluster="another-cluster"))

    monkeypatch.setattr(job, "surveyed", lambda _: survey)
    monkeypatch.setattr(job.Ready, "records", lambda *_: 0)
    (tmp_path / "file").touch()

    with pytest.raises(ConfigurationError, match="the Kafka cluster another-cluster, and"):
        job.run_job(settings, job.Options())
    runs.files.delete("nights/000003.json")
    with pytest.raises(PrerequisiteError, match=r"file cannot be used \(File exists\)"):
        job.run_job(settings, job.Options(out=str(tmp_path / "file")))
    with pytest.raises(ConfigurationError, match=r"'foo'.*not a master of Spark"):
        job.run_job(settings, job.Options(master="foo"))
    with pytest.raises(ConfigurationError, match="--out '' names no folder"):
        job.run_job(settings, job.Options(out=""))
    with pytest.raises(ReachedError):
        job.run_job(settings, job.Options(out=str(tmp_path / "out")))


def test_folders_apart(settings: Settings) -> None:
    """A folder for results among the runs is refused first, because it would be removed or taken for a run's."""
    for out, state, within in (
        ("s3a://b/state/out", "s3a://b/state/", True), ("s3a://b/state-out", "s3a://b/state", False),
        ("file:///s/out", "/s", True), ("/s", "/s/state", False), ("out", "s3a://b/out", False),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError) if within else contextlib.nullcontext():
            apart(out, state)
        for name in ("", "/results/000002", "/../state/x"):
            with pytest.raises(
                ConfigurationError, match=r"is in reconcile\.state_dir .*: name another folder"
            ):
                job.run_job(settings, job.Options(out=f"{settings.reconcile.state_dir}{name}"))
        assert not Path(settings.reconcile.state_dir).exists()


def test_under_spark_submit_a_broker_that_is_away(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An absent broker is reported before the session starts also under spark-submit. The folder of the runs may be reached only afterwards."""
    monkeypatch.setattr(job, "session", lambda *_, **__: pytest.fail("a session"))
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")

    with pytest.raises(BrokerUnavailableError, match=r"no broker answers at .*127\.0\.0\.1:1"):
        job.run_job(settings, job.Options())


@pytest.mark.parametrize(
    ("arguments", "expected"), [([], None), (["--acknowledge"], acknowledge.LAST), (["--acknowledge=7"], 7)]
)
def test_the_option(
    tmp_path: Path, arguments: list[str], expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "ringfence.toml"
    config.write_text('[[addresses]]\nname = "orders"\n')
    run = Mock(return_value=0)
    monkeypatch.setattr(job, "run_job", run)
    monkeypatch.setattr("ringfence_kafka.auth.reachability.socket.create_connection", Mock())
    with contextlib.suppress(click.exceptions.Exit):
        reconcile.main([*arguments, "--config", str(config)], standalone_mode=False)
    job.main([*arguments, "--config", str(config)])

    assert [call.args[1].acknowledge for call in run.call_args_list] == [expected, expected]
