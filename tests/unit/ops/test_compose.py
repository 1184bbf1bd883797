"""docker-compose.yml: what compose would refuse, and what it would take although it is wrong."""

import shutil
import subprocess
from typing import Any

import pytest
import yaml

from app.embedded.jars import KAFKA_VERSION
from ringfence_kafka.config.load import load
from tests.support import deployment
from tests.support.checkout import ROOT
from tests.support.deployment import RULES

[FILE] = deployment.documents(ROOT / "docker-compose.yml")
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("ringfence")]


def test_services() -> None:
    """The trial has Kafka, the topics, two workers, a consumer, a bridge, the nightly run, and who looks at them."""
    assert set(SERVICES) == {
        "kafka", "topics", "worker-1", "worker-2", "consumer", "bridge", "reconcile", "prometheus", "grafana"
    }  # fmt: skip


def test_what_compose_makes_of_it() -> None:
    """Compose accepts the file and finds all services, if it is installed."""
    for command in (["docker-compose"], ["docker", "compose"]):
        if shutil.which(command[0]) is None:
            continue
        if subprocess.run([*command, "version"], capture_output=True, check=False).returncode == 0:
            break
    else:
        pytest.skip("neither docker-compose nor docker's compose plugin is installed")
    done = subprocess.run(
        [*command, "--profile", "nightly", "-f", "docker-compose.yml", "config"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert set(yaml.safe_load(done.stdout)["services"]) == set(SERVICES)


@pytest.mark.parametrize("name", OURS)
def test_command(name: str) -> None:
    """The command line accepts each service's command.

    Services start after Kafka and, except the one that creates them, after the topics.
    """
    assert deployment.understood(SERVICES[name]["command"]) == ""
    waits = {key: service["condition"] for key, service in SERVICES[name]["depends_on"].items()}
    topics = {} if name == "topics" else {"topics": "service_completed_successfully"}
    assert waits == {"kafka": "service_healthy", **topics}


@pytest.mark.parametrize("name", OURS)
def test_configuration(name: str) -> None:
    """Each service has the same file, which is valid with its environment."""
    mounts = dict(service.split(":")[:2] for service in SERVICES[name]["volumes"])
    inside = {value: key for key, value in mounts.items()}

    settings = load(ROOT / inside["/ringfence/conf/ringfence.toml"], SERVICES[name]["environment"])

    assert settings.kafka.bootstrap_servers == "kafka:19092"
    assert settings.app.web_host == "0.0.0.0"
    assert {bridge.target_address for bridge in settings.bridges} <= {
        address.name for address in settings.addresses
    }


def test_what_is_mounted_is_there() -> None:
    """Every mounted folder exists, because Docker would create an empty one. Named volumes are declared."""
    for name, service in SERVICES.items():
        for item in service.get("volumes", []):
            source = item.split(":")[0]
            assert (ROOT / source).exists() if source.startswith(".") else source in FILE["volumes"], name


def test_workers() -> None:
    """Each worker has its own instance and volume, and time to drain."""
    for name in ("worker-1", "worker-2"):
        assert SERVICES[name]["environment"]["RINGFENCE_APP__INSTANCE"] == name
        assert f"{name}:/ringfence/data" in SERVICES[name]["volumes"]
        assert deployment.seconds(SERVICES[name]["stop_grace_period"]) >= 30


def test_ports_stay_on_this_machine() -> None:
    """Every published port stays on this machine."""
    published = [item for service in SERVICES.values() for item in service.get("ports", [])]

    assert [item for item in published if not item.startswith("127.0.0.1:")] == []


def test_nightly_job_waits_to_be_asked() -> None:
    """Only the reconciliation run has a profile."""
    assert [name for name, service in SERVICES.items() if "profiles" in service] == ["reconcile"]


def test_kafka() -> None:
    """Kafka is of the version that the embedded broker has, and a misspelt topic does not come into being."""
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{KAFKA_VERSION}"
    assert SERVICES["kafka"]["environment"]["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"


def test_prometheus_asks_everyone_who_answers() -> None:
    """Prometheus asks every service with metrics, and reads the rules without their tests."""
    [read] = deployment.documents(ROOT / "ops" / "prometheus" / "prometheus.yml")
    targets = {
        item for job in read["scrape_configs"] for group in job["static_configs"] for item in group["targets"]
    }

    serving = {our for our in OURS if SERVICES[our]["command"][0] in {"worker", "consume", "bridge"}}
    assert targets == {f"{name}:6066" for name in serving}
    assert [path for pattern in read["rule_files"] for path in RULES.parent.glob(pattern)] == [RULES]
    if shutil.which("promtool") is not None:
        checked = subprocess.run(
            ["promtool", "check", "config", "prometheus.yml"], cwd=ROOT / "ops" / "prometheus",
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert checked.returncode == 0, checked.stdout + checked.stderr
