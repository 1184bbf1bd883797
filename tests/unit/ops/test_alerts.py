"""Alerts and dashboard: what they ask for exists, and each alert fires when it should and not before."""

import logging
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from agents.worker.lanes import Lanes
from app.bridge.quarantines import QuarantineMetrics
from app.bridge.web import BridgeMetrics
from app.worker.fetch.buffers import Buffers
from app.worker.fetch.fetch_interval import FetchInterval
from app.worker.metrics import BatchMetrics, LaneMetrics, RepairWatch
from ringfence_client import GroupConsumer
from ringfence_client.web.lag_monitor import LagMonitor
from ringfence_client.web.metrics import ConsumerMetrics
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.concurrency.broker_watch import BrokerWatch
from ringfence_kafka.config.load import validate
from ringfence_kafka.http.server import ProcessMetrics
from tests.support.deployment import RULES, exposed, expressions, filled, named

TESTS = RULES.with_name("ringfence.rules.test.yml")


def _promtool(*arguments: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool on this machine: install the package prometheus")
    done = subprocess.run(
        [promtool, *arguments], cwd=RULES.parent, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_names_a_way_out() -> None:
    """Each rule has a summary, a remedy and an urgency, and a case in which it fires."""
    alerts = {rule.split()[0]: rule for rule in RULES.read_text("utf-8").split("- alert: ")[1:]}
    fires = re.findall(r'__name__="ALERTS", alertname="(\w+)"', TESTS.read_text("utf-8"))

    assert len(alerts) > 20
    assert set(alerts) == set(fires)
    for rule in alerts.values():
        assert re.search(r"labels: \{severity: (critical|warning)\}", rule), rule
        assert "summary: " in rule, rule
        assert "description: " in rule, rule


def test_rules_and_queries(tmp_path: Path) -> None:
    """Prometheus accepts every query of the dashboard, with its variables filled in, and each alert fires in its case."""
    _promtool("check", "rules", RULES.name)
    _promtool("test", "rules", TESTS.name)
    queries = [expression for expression in expressions() if not expression.startswith("label_values(")]
    rules = "\n".join(
        f"      - record: panel:number:{number}\n        expr: {filled(query)!r}"
        for number, query in enumerate(queries)
    )
    file = tmp_path / "panels.yml"
    file.write_text(f"groups:\n  - name: panels\n    rules:\n{rules}\n", "utf-8")
    _promtool("check", "rules", str(file))

    assert len(queries) > 20


def test_metrics_are_exposed() -> None:
    """Workers, consumers and bridges expose every metric that the alerts use."""
    settings = validate({"addresses": [{"name": "orders"}]})
    cluster = Cluster(settings.kafka, settings.app.id)
    consumer = GroupConsumer(settings, settings.addresses[0], "billing", print)
    watch = BrokerWatch(cluster.connection.ping, logging.getLogger("ringfence.test"), "")
    lanes, buffers = Lanes(settings, cluster), Buffers(settings.app.buffer_bytes_max)
    repair = RepairWatch(settings, cluster, lambda: lanes.lanes)
    worker = ProcessMetrics(BatchMetrics(), LaneMetrics(lanes, watch, buffers, FetchInterval(0.025)), repair)
    found = (
        exposed(worker.text().decode())
        | exposed(ConsumerMetrics(consumer, LagMonitor(consumer)).text().decode())
        | exposed(ProcessMetrics(BridgeMetrics([]), QuarantineMetrics([])).text().decode())
    )

    assert named() - found == set()
    assert "ringfence_fenced" not in found
