import re
import shutil
import subprocess
from pathlib import Path

import pytest

from app.embedded.jars import KAFKA_VERSION

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def services() -> dict[str, str]:
    """Each service's part of the file as Compose itself understands it, all anchors resolved."""
    for command in (["docker-compose"], ["docker", "compose"]):
        if shutil.which(command[0]) is None:
            continue
        version = subprocess.run([*command, "version"], capture_output=True, check=False)
        if version.returncode == 0:
            break
    else:
        pytest.skip("neither docker-compose nor docker's compose plugin is installed")
    done = subprocess.run(
        [*command, "--profile", "nightly", "-f", "docker-compose.yml", "config"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = re.search(r"^services:\n(.*?)(?=^\S|\Z)", done.stdout, re.MULTILINE | re.DOTALL)
    assert text is not None
    parts = re.split(r"^  (\S+):\n", text[1], flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_services(services: dict[str, str]) -> None:
    """The trial has Kafka, the topics, two workers, and the nightly job."""
    assert set(services) == {"kafka", "topics", "worker-1", "worker-2", "reconcile"}


def test_workers(services: dict[str, str]) -> None:
    """Each worker has an instance and a volume of its own, a health check, and starts after the topics are there."""
    for name in ("worker-1", "worker-2"):
        assert f"RINGFENCE_APP__INSTANCE: {name}\n" in services[name]
        assert f"{name}:/ringfence/data" in services[name] or f"source: {name}\n" in services[name]
        assert "/live" in services[name]
        assert "condition: service_completed_successfully" in services[name]
        assert "condition: service_healthy" in services[name]


def test_nightly_job_waits_to_be_asked(services: dict[str, str]) -> None:
    """Only the nightly job hides behind a profile."""
    assert [name for name, text in services.items() if "profiles:" in text] == ["reconcile"]


def test_kafka(services: dict[str, str]) -> None:
    """Kafka is of the version that the embedded broker has, and a misspelt topic does not come into being."""
    assert f"image: apache/kafka:{KAFKA_VERSION}\n" in services["kafka"]
    assert re.search(r"KAFKA_AUTO_CREATE_TOPICS_ENABLE: ['\"]?false", services["kafka"])
