"""ops/kubernetes: what the API server would refuse, and what it would take although it is wrong."""

import copy
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from agents.lane.lane import DRAIN_LIMIT_S
from ringfence_kafka.config.load import load
from tests.support import deployment
from tests.support.deployment import KUBERNETES, pods

MANIFESTS = deployment.manifests()
WITH_PODS = [name for name, manifest in MANIFESTS.items() if any(pods(manifest))]
SERVING = [name for name in WITH_PODS if not name.startswith("CronJob/")]
WORKER = "StatefulSet/ringfence-worker"
LEAVING_S = 20
"""Time that a process gets beyond its drain, to leave its group and close."""


def _pod(name: str) -> dict[str, Any]:
    [found] = pods(MANIFESTS[name])
    return found


def _container(name: str) -> dict[str, Any]:
    [found] = _pod(name)["containers"]
    assert isinstance(found, dict)
    return found


def _containers(name: str) -> list[dict[str, Any]]:
    return [*_pod(name).get("initContainers", []), *_pod(name)["containers"]]


def _environment(name: str) -> dict[str, Any]:
    return {item["name"]: item for item in _container(name).get("env", [])}


def test_what_there_is() -> None:
    """Workers keep their names; consumers and bridges have none to keep; the run has its time."""
    assert set(WITH_PODS) == {
        "StatefulSet/ringfence-worker",
        "Deployment/billing",
        "Deployment/ringfence-bridge",
        "CronJob/ringfence-reconcile",
    }
    assert MANIFESTS["StatefulSet/ringfence-worker"]["spec"]["podManagementPolicy"] == "Parallel"


@pytest.mark.parametrize("name", MANIFESTS)
def test_schema(name: str) -> None:
    """Kubernetes 1.31 or KEDA accepts every manifest, and no key is misspelt."""
    assert deployment.kubernetes_fault(MANIFESTS[name]) == ""


@pytest.mark.parametrize(
    ("name", "path", "key", "value"),
    [
        ("StatefulSet/ringfence-worker", ("spec", "template", "spec"), "terminationGracePeriod", 60),
        ("StatefulSet/ringfence-worker", ("spec",), "replicas", "two"),
        ("ScaledObject/billing", ("spec",), "maxReplicas", 4),
    ],
)
def test_the_schema_finds_faults(name: str, path: tuple[str, ...], key: str, value: object) -> None:
    """The schema finds a wrong key deep in a pod, a wrong type, and a wrong key of KEDA."""
    there = broken = copy.deepcopy(MANIFESTS[name])
    for part in path:
        there = there[part]
    there[key] = value

    fault = deployment.kubernetes_fault(broken)
    assert key in fault or str(value) in fault


def test_configuration() -> None:
    """The file is valid with what the pods' environment adds."""
    environment = {
        "RINGFENCE_APP__INSTANCE": "ringfence-worker-0",
        "RINGFENCE_WORKER_PORT": "tcp://10.1.2.3:6066",
    }
    settings = load(KUBERNETES / "ringfence.toml", environment | {"RINGFENCE_APP__WEB_HOST": "10.1.2.3"})

    assert settings.app.instance_name == "ringfence-worker-0"
    assert settings.app.web_port == 6066
    assert "orders" in {address.name for address in settings.addresses}


def test_a_worker_finds_its_state_again() -> None:
    """A worker's folder has the pod's name, and lies in a volume that belongs to that name."""
    instance = _environment(WORKER)["RINGFENCE_APP__INSTANCE"]
    [claim] = MANIFESTS[WORKER]["spec"]["volumeClaimTemplates"]
    mounts = {item["name"]: item["mountPath"] for item in _container(WORKER)["volumeMounts"]}

    assert instance["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert mounts[claim["metadata"]["name"]] == "/ringfence/data"


def test_workers_see_one_another() -> None:
    """Each worker announces its name in the headless Service, from variables that precede it in its environment."""
    environment = _environment(WORKER)
    order = list(environment)
    name = environment["RINGFENCE_APP__WEB_NAME"]["value"]

    assert name == f"$(RINGFENCE_APP__INSTANCE).{MANIFESTS[WORKER]['spec']['serviceName']}.$(NAMESPACE).svc"
    assert environment["NAMESPACE"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.namespace"
    for earlier in ("RINGFENCE_APP__INSTANCE", "NAMESPACE"):
        assert order.index(earlier) < order.index("RINGFENCE_APP__WEB_NAME")
    assert MANIFESTS["Service/ringfence-worker"]["spec"]["publishNotReadyAddresses"]


@pytest.mark.parametrize("name", SERVING)
def test_what_serves(name: str) -> None:
    """/live decides about a restart, /health about readiness, and Prometheus asks for metrics, all on the port that is listened on.

    One pod at a time may be disrupted, and a pod that is not ready does not keep a node from being drained.
    """
    container, spec = _container(name), MANIFESTS[name]["spec"]
    [port] = container["ports"]
    for probe, path in (("startupProbe", "/live"), ("livenessProbe", "/live"), ("readinessProbe", "/health")):
        assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}
    assert port["containerPort"] == 6066
    assert container["args"] == ["worker"] or "--web-port=6066" in container["args"]
    # A server on the loopback is reached by no probe.
    host = _environment(name)["RINGFENCE_APP__WEB_HOST"]
    assert host.get("value") == "0.0.0.0" or host["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
    assert spec["template"]["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "6066",
        "prometheus.io/path": "/metrics",
    }
    budget = MANIFESTS[f"PodDisruptionBudget/{name.partition('/')[2]}"]["spec"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    assert budget["selector"] == spec["selector"]


@pytest.mark.parametrize("name", WITH_PODS)
def test_arguments(name: str) -> None:
    """The command line takes what each container is started with, and a pod gets enough time to drain before it is killed."""
    for container in _containers(name):
        assert deployment.understood(container["args"]) == ""
    arguments = _container(name)["args"]
    options = dict(item.removeprefix("--").split("=", 1) for item in arguments if item.startswith("--"))
    drain_s = max(DRAIN_LIMIT_S, float(options.get("drain-timeout", 0)))

    assert _pod(name)["terminationGracePeriodSeconds"] >= drain_s + LEAVING_S
    assert "consume" not in arguments or "drain-timeout" in options


@pytest.mark.parametrize("name", WITH_PODS)
def test_restricted(name: str) -> None:
    """Pods meet the namespace's security standard: no root, no privileges to gain, and a read-only root file system."""
    assert _pod(name)["securityContext"]["runAsNonRoot"] is True
    assert _pod(name)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in _containers(name):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_a_verdict_is_not_asked_for_again() -> None:
    """Anomalies and gone evidence end the job; what could not run is tried again; two never run at once."""
    job = MANIFESTS["CronJob/ringfence-reconcile"]["spec"]
    spec = job["jobTemplate"]["spec"]
    rule = spec["podFailurePolicy"]["rules"][0]

    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"]["values"] == [1, 3]
    assert rule["onExitCodes"]["containerName"] == _container("CronJob/ringfence-reconcile")["name"]
    assert spec["backoffLimit"] > 0
    assert job["concurrencyPolicy"] == "Forbid"


def test_scaling() -> None:
    """Every scaled workload exists, and is scaled by the lag of its own group."""
    scaled = [manifest["spec"] for name, manifest in MANIFESTS.items() if name.startswith("ScaledObject/")]
    groups = {spec["triggers"][0]["metadata"]["consumerGroup"] for spec in scaled}
    targets = [spec["scaleTargetRef"] for spec in scaled]

    assert {f"{target.get('kind', 'Deployment')}/{target['name']}" for target in targets} <= set(MANIFESTS)
    assert groups == {"billing", load(KUBERNETES / "ringfence.toml", {}).app.id}
    assert "--consumer-group=billing" in _container("Deployment/billing")["args"]


def test_kustomization() -> None:
    """Each file is named, if only as a comment, and each image has a source."""
    text = (KUBERNETES / "kustomization.yaml").read_text()
    read = yaml.safe_load(text)
    files = {path.name for path in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml"}
    images = {container["image"] for name in WITH_PODS for container in _containers(name)}

    assert {file for file in files if file not in text} == set()
    assert set(read["resources"]) <= files
    assert images == {item["name"] for item in read["images"]}


def test_what_kubectl_makes_of_it() -> None:
    """The output of kubectl has the configuration's digest in its name at each place, and still meets the schema."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    done = subprocess.run(
        ["kubectl", "kustomize", str(KUBERNETES)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    made = list(yaml.safe_load_all(done.stdout))

    assert [fault for item in made if (fault := deployment.kubernetes_fault(item))] == []
    [name] = [item["metadata"]["name"] for item in made if item["kind"] == "ConfigMap"]
    assert name != "ringfence"
    mounted = {
        volume["configMap"]["name"]
        for item in made
        for pod in pods(item)
        for volume in pod["volumes"]
        if "configMap" in volume
    }
    assert mounted == {name}
