"""Standard metrics of a process, as workers, consumers and bridges expose them."""

import os
import resource
import sys
import time
from collections.abc import Callable

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.bridge.web import BridgeMetrics
from ringfence_client.web.lag_monitor import LagMonitor
from ringfence_client.web.metrics import ConsumerMetrics
from ringfence_kafka.http.server import ProcessMetrics
from tests.support.consumers.unconnected import unconnected


def _of_a_consumer() -> Callable[[], bytes]:
    consumer = unconnected()
    return ConsumerMetrics(consumer, LagMonitor(consumer)).text


def _of_a_bridge() -> Callable[[], bytes]:
    return ProcessMetrics(BridgeMetrics([])).text


def _open_files() -> int:
    # The folder that they are counted in is open meanwhile.
    return len(os.listdir("/proc/self/fd")) - 1  # noqa: PTH208


def _samples(text: str) -> dict[str, tuple[float, dict[str, str]]]:
    return {
        sample.name: (sample.value, sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("process_")
    }


@pytest.mark.skipif(sys.platform != "linux", reason="they are read from /proc")
@pytest.mark.parametrize("exposition", [_of_a_consumer, _of_a_bridge])
def test_process(exposition: Callable[[], Callable[[], bytes]]) -> None:
    """A process has the six metrics once, without labels, with the kernel's values."""
    read = exposition()
    process = psutil.Process()
    # Threads of earlier tests open and close files: the reading that counts has as many before it as behind it.
    for _ in range(100):
        cpu_s, before = process.cpu_times(), _open_files()
        text = read().decode()
        if before == _open_files():
            break
    samples = _samples(text)
    values = {name: value for name, (value, _) in samples.items()}

    assert text.count("# TYPE process_") == 6
    assert [labels for _, labels in samples.values()] == [{}] * 6
    assert cpu_s.user + cpu_s.system - 0.1 <= values["process_cpu_seconds_total"] < time.process_time() + 0.1
    assert values["process_resident_memory_bytes"] == pytest.approx(process.memory_info().rss, rel=0.2)
    assert values["process_virtual_memory_bytes"] >= values["process_resident_memory_bytes"]
    assert abs(values["process_open_fds"] - before) <= 1
    assert values["process_max_fds"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert values["process_start_time_seconds"] == pytest.approx(process.create_time(), abs=2)
