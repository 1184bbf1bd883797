"""Metrics and probes of a consumer, with partitions in every state."""

import math
import shutil
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ringfence_client.handlers.handler import RunTimes
from ringfence_client.web.lag_monitor import LagMonitor
from ringfence_client.web.metrics import ConsumerMetrics
from ringfence_client.web.web import Pages
from tests.support.consumers.unconnected import unconnected


def _samples(metrics: ConsumerMetrics) -> dict[tuple[str, ...], float]:
    """By name, then the values of all labels but the consumer's own."""
    own = {"consumer_group", "address"}
    return {
        (
            sample.name,
            *(value for label, value in sorted(sample.labels.items()) if label not in own),
        ): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
        if sample.labels.get("consumer_group") == "billing" and sample.labels["address"] == "orders"
    }


def test_metrics() -> None:
    """Lag of what is held and what is waited for, age of the oldest head, leases by state, attempts by outcome."""
    consumer = unconnected()
    measuring = LagMonitor(consumer)
    metrics = ConsumerMetrics(consumer, measuring)
    measuring.lags = {0: 4, 2: None}
    consumer.memory.set_fetched(1_000)
    consumer.dispatcher.runs.times.record(0.02)
    found = _samples(metrics)

    assert found["ringfence_consumer_lag_records", "0"] == 4
    assert math.isnan(found["ringfence_consumer_lag_records", "2"])
    assert found["ringfence_consumer_head_age_seconds", "0"] == pytest.approx(90, abs=5)
    assert found["ringfence_consumer_head_age_seconds", "1"] == 0
    assert found["ringfence_consumer_failing_messages", "0"] == 1
    assert found["ringfence_consumer_unfinished_messages", "0"] == 2
    assert [key[1:] for key in found if key[0] == "ringfence_consumer_lease_state"] == [
        ("0", "held"), ("1", "draining"), ("2", "waiting"),
    ]  # fmt: skip
    assert found["ringfence_consumer_attempts_total", "finished"] == 7
    assert found["ringfence_consumer_attempts_total", "failed"] == 2
    assert found["ringfence_consumer_dead_letters_total",] == 1
    assert found["ringfence_consumer_gap_records_total",] == 3
    assert found["ringfence_consumer_handlers",] == 10
    assert found["ringfence_consumer_buffered_bytes",] == consumer.memory.used + 1_000
    assert found["ringfence_consumer_buffer_limit_bytes",] == 512 * 2**20
    assert found["ringfence_consumer_handler_seconds_count",] == 1
    assert found["ringfence_brokers_up",] == 1
    assert metrics.text().count(b"# TYPE process_") == 6
    assert found["ringfence_consumer_ready",] == 0


def test_broker_away() -> None:
    """A consumer that has all its partitions is not ready while brokers do not answer; health and metrics say so."""
    consumer = unconnected()
    consumer.held_partitions.assigned = {0}
    measuring = LagMonitor(consumer)
    pages = Pages(consumer, measuring.watch)

    def told() -> tuple[bool, str]:
        report = pages.health()
        return report["ready"], report["broker"]

    assert told() == (True, "answers")
    measuring.watch._away_since = 0.0
    assert told() == (False, "away")
    exposition = ConsumerMetrics(consumer, measuring).text()
    assert b'ringfence_brokers_up{address="orders",consumer_group="billing"} 0.0' in exposition


def test_buckets_of_run_times() -> None:
    """A bucket has the runs up to its bound, the bound included, as Prometheus has it."""
    times = RunTimes()
    for seconds in (0.0005, 0.001, 0.0011, 300.0, 301.0):
        times.record(seconds)

    assert times.counts[:2] == [2, 1]
    assert times.counts[-2:] == [1, 1]


def test_prometheus_conventions() -> None:
    """Names, units and help are as promtool wants them."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool on this machine: install the package prometheus")
    consumer = unconnected()
    done = subprocess.run(
        [promtool, "check", "metrics"], input=ConsumerMetrics(consumer, LagMonitor(consumer)).text(), capture_output=True, check=False
    )  # fmt: skip

    assert (done.returncode, done.stdout + done.stderr) == (0, b"")
