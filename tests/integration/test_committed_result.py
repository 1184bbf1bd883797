"""The result of the last run, committed by the run and read anywhere."""

import asyncio
import datetime as dt
import urllib.request
from dataclasses import replace
from email.message import Message
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from app.embedded.broker import EmbeddedBroker
from reconcile.run.history.history import Run, RunHistory
from reconcile.run.outcome import committed_result
from reconcile.spark.files import LocalFiles
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.last_run import last_run
from ringfence_kafka.config.load import load, validate
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.run_result import RunResult
from tests.support import kafka
from tests.support.brokers.acls import Right
from tests.support.brokers.secured import SecuredBroker
from tests.support.worker import configure, worker

BEGAN = "2026-11-20T02:00:00+00:00"
ANOMALIES = {"LOST": 1, "OVERRUN": 0}
ADDRESS = {"input": 10, "duplicates": 3, "anomalies": ANOMALIES}
DOCUMENT = {"verdict": "anomalies", "night": 2, "began": "2026-11-21T02:00:00+00:00", "from_night": 1,
            "addresses": {"a": ADDRESS, "b": ADDRESS}}  # fmt: skip


def _settings(bootstrap: str, app: str) -> Settings:
    kafka.create_topics(bootstrap, {wire_names.journal_topic(app): (1, {})})
    return validate(
        {"app": {"id": app}, "kafka": {"bootstrap_servers": bootstrap}, "addresses": [{"name": app}]}
    )


def _read(settings: Settings) -> RunResult | None:
    async def ask() -> RunResult | None:
        async with Cluster(settings.kafka, settings.app.id) as cluster:
            await cluster.groups.await_coordinator()
            return await last_run(cluster.connection, settings.app.id)

    return asyncio.run(ask())


def test_the_last_result_counts(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Another process reads verdict, range, counts and the place of the page; an acknowledgement changes the last run alone."""
    settings = _settings(broker.bootstrap_servers, kafka.unique("results"))
    runs = RunHistory(LocalFiles(str(tmp_path)))
    runs.finished[1] = Run(1, None, "2026-11-20", "clean", summary={"began": BEGAN})
    runs.files.write_text("results/000002/report.html", "<html>")
    before = _read(settings)
    result = committed_result.finished(DOCUMENT, runs, None)
    committed_result.commit(settings, committed_result.failed(dt.datetime.now(dt.UTC), OSError("no disk")))
    failed = _read(settings)
    committed_result.commit(settings, result)
    committed_result.acknowledge(settings, Run(1, None, "", "gap", acknowledged=True))
    committed_result.acknowledge(settings, Run(2, 1, "", "anomalies"))
    unseen = _read(settings)
    committed_result.acknowledge(settings, Run(2, 1, "", "anomalies", acknowledged=True))

    assert before is None
    assert failed is not None
    assert (failed.verdict, failed.error, failed.ok) == ("failed", "OSError: no disk", False)
    assert unseen == result
    assert (result.messages, result.duplicates, result.anomalies) == (20, 6, {"LOST": 2})
    assert result.began_ms - (result.since_ms or 0) == 24 * 3_600_000
    assert result.report == f"{tmp_path}/results/000002/report.html"
    assert _read(settings) == replace(result, acknowledged=True)
    assert committed_result.finished(DOCUMENT, runs, "s3a://b/out/").report == "s3a://b/out/report.html"
    published = committed_result.finished(DOCUMENT, runs, "out", "https://runs.example/rf/")
    assert published.report == "https://runs.example/rf/000002/report.html"


def test_the_page_links_the_report(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """The worker's page shows the last run, and leads to its report: with its own look, and without a script."""
    app = kafka.unique("results")
    config = configure(tmp_path, broker.bootstrap_servers, app, [{"name": app}])
    settings = load(config)
    runs = RunHistory(LocalFiles(settings.runs_dir))
    runs.files.write_text("results/000002/report.html", "<!DOCTYPE html><p>report")
    now = dt.datetime.now(dt.UTC).isoformat()
    result = committed_result.finished({**DOCUMENT, "began": now, "from_night": None}, runs, None)
    committed_result.commit(settings, result)
    with worker(config, app) as process:
        (page, _), (report, headers), (missing, _) = (
            _get(process.port, path) for path in ("/", "/report/2", "/report/3")
        )

    assert "RECONCILIATION  anomalies" in page
    assert '<a id="report" href="/report/2">' in page
    assert report == "<!DOCTYPE html><p>report"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; img-src data:")
    assert "<p>report" not in missing


def _get(port: int, path: str) -> tuple[str, Message]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return answer.read().decode(), answer.headers


def test_a_user_without_the_right(
    secured: SecuredBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The warning names the group and the right, and no error follows; with the right the result is there."""
    app = kafka.unique("results")
    journal, group = wire_names.journal_topic(app), wire_names.run_group(app)
    reader = _settings(secured.plaintext, app)
    for variable, value in secured.scram.environment.items():
        monkeypatch.setenv(variable, value)
    exactly = ResourcePatternType.LITERAL
    right: Right = (ResourceType.GROUP, group, exactly, AclOperation.READ)
    users: dict[str, list[Right]] = {f"{app}-less": [], f"{app}-more": [right]}
    result, settings = RunResult(verdict="clean", number=1, began_ms=1, ended_ms=2), {}
    for user, more in users.items():
        secured.add_user(user, [(ResourceType.TOPIC, journal, exactly, AclOperation.READ), *more])
        access = secured.scram.with_user(user)
        settings[user] = load(access.configure(tmp_path, app, [{"name": app}]))
    committed_result.commit(settings[f"{app}-less"], result)
    refused = capsys.readouterr().err
    committed_result.commit(settings[f"{app}-more"], result)

    assert f"the result was not committed to group {group}" in refused
    assert f"allow Read on group {group}" in refused
    assert capsys.readouterr().err == ""
    assert _read(reader) == result
