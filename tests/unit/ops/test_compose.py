"""docker-compose.yml: what compose would refuse, and what it would take although it is wrong."""

from typing import Any

import pytest

from app.embedded.jars import KAFKA_VERSION
from ringfence_kafka.config.load import load
from tests.support import deployment
from tests.support.checkout import ROOT
from tests.support.deployment import RULES

[FILE] = deployment.documents(ROOT / "docker-compose.yml")
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("ringfence")]


@pytest.mark.parametrize("name", OURS)
def test_configuration(name: str) -> None:
    """The command line accepts each service's command, and each has the same file, valid with its environment.

    Services start after Kafka and, except the one that creates them, after the topics.
    """
    service = SERVICES[name]
    waits = {key: after["condition"] for key, after in service["depends_on"].items()}
    topics = {} if name == "topics" else {"topics": "service_completed_successfully"}
    mounted = {inside: source for source, inside in (volume.split(":")[:2] for volume in service["volumes"])}
    settings = load(ROOT / mounted["/ringfence/conf/ringfence.toml"], service["environment"])
    addresses = {address.name for address in settings.addresses}

    assert deployment.understood(service["command"]) == ""
    assert waits == {"kafka": "service_healthy", **topics}
    assert settings.kafka.bootstrap_servers == "kafka:19092"
    assert settings.app.web_host == "0.0.0.0"
    assert {bridge.target_address for bridge in settings.bridges} <= addresses


def test_services() -> None:
    """The trial has Kafka, the topics, two workers, a consumer, a bridge, the nightly run, and who looks at them.

    Only the run has a profile, and every published port stays on this machine. Kafka is of the version that the
    embedded broker has, and a misspelt topic does not come into being. Every mounted folder exists, because Docker
    would create an empty one. Each worker has its own instance and volume, and time to drain.
    """
    assert set(SERVICES) == {
        "kafka", "topics", "worker-1", "worker-2", "consumer", "bridge", "reconcile", "prometheus", "grafana"
    }  # fmt: skip
    published = [item for service in SERVICES.values() for item in service.get("ports", [])]
    assert [item for item in published if not item.startswith("127.0.0.1:")] == []
    assert [name for name, service in SERVICES.items() if "profiles" in service] == ["reconcile"]
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{KAFKA_VERSION}"
    assert SERVICES["kafka"]["environment"]["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    for name, service in SERVICES.items():
        for item in service.get("volumes", []):
            source = item.split(":")[0]
            assert (ROOT / source).exists() if source.startswith(".") else source in FILE["volumes"], name
    for name in ("worker-1", "worker-2"):
        assert SERVICES[name]["environment"]["RINGFENCE_APP__INSTANCE"] == name
        assert f"{name}:/ringfence/data" in SERVICES[name]["volumes"]
        assert deployment.seconds(SERVICES[name]["stop_grace_period"]) >= 30


def test_prometheus_asks_everyone_who_answers() -> None:
    """Prometheus asks every service with metrics, and reads the rules without their tests."""
    [read] = deployment.documents(ROOT / "ops" / "prometheus" / "prometheus.yml")
    groups = [group for job in read["scrape_configs"] for group in job["static_configs"]]
    serving = {our for our in OURS if SERVICES[our]["command"][0] in {"worker", "consume", "bridge"}}

    assert {item for group in groups for item in group["targets"]} == {f"{name}:6066" for name in serving}
    assert [path for pattern in read["rule_files"] for path in RULES.parent.glob(pattern)] == [RULES]
