"""ops/kubernetes: what the API server would refuse, and what it would take although it is wrong."""

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


@pytest.mark.parametrize("name", MANIFESTS)
def test_schema(name: str) -> None:
    """Kubernetes 1.31 or KEDA accepts every manifest, and no key is misspelt."""
    assert deployment.kubernetes_fault(MANIFESTS[name]) == ""


def test_a_worker_finds_its_state_again() -> None:
    """A worker's folder has the pod's name, and lies in a volume that belongs to that name.

    It announces its name in the headless Service, from variables that precede it in its environment.
    """
    environment, spec = _environment(WORKER), MANIFESTS[WORKER]["spec"]
    order = list(environment)
    [claim] = spec["volumeClaimTemplates"]
    mounts = {item["name"]: item["mountPath"] for item in _container(WORKER)["volumeMounts"]}
    name = environment["RINGFENCE_APP__WEB_NAME"]["value"]

    for key, field in (("RINGFENCE_APP__INSTANCE", "metadata.name"), ("NAMESPACE", "metadata.namespace")):
        assert environment[key]["valueFrom"]["fieldRef"]["fieldPath"] == field
        assert order.index(key) < order.index("RINGFENCE_APP__WEB_NAME")
    assert mounts[claim["metadata"]["name"]] == "/ringfence/data"
    assert name == f"$(RINGFENCE_APP__INSTANCE).{spec['serviceName']}.$(NAMESPACE).svc"
    assert MANIFESTS["Service/ringfence-worker"]["spec"]["publishNotReadyAddresses"]
    assert spec["podManagementPolicy"] == "Parallel"


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
def test_pods(name: str) -> None:
    """The command line takes what each container is started with, and a pod gets enough time to drain before it is killed.

    It meets the namespace's security standard: no root, no privileges to gain, and a read-only root file system.
    """
    pod, arguments = _pod(name), _container(name)["args"]
    options = dict(item.removeprefix("--").split("=", 1) for item in arguments if item.startswith("--"))
    drain_s = max(DRAIN_LIMIT_S, float(options.get("drain-timeout", 0)))

    assert pod["terminationGracePeriodSeconds"] >= drain_s + LEAVING_S
    assert "consume" not in arguments or "drain-timeout" in options
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in _containers(name):
        assert deployment.understood(container["args"]) == ""
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
    """Every scaled workload exists, and is scaled by the lag of its own group. The file is valid with the pods' environment."""
    environment = {
        "RINGFENCE_APP__INSTANCE": "ringfence-worker-0",
        "RINGFENCE_WORKER_PORT": "tcp://10.1.2.3:6066",
    }
    app = load(KUBERNETES / "ringfence.toml", environment | {"RINGFENCE_APP__WEB_HOST": "10.1.2.3"}).app
    scaled = [manifest["spec"] for name, manifest in MANIFESTS.items() if name.startswith("ScaledObject/")]
    groups = {spec["triggers"][0]["metadata"]["consumerGroup"] for spec in scaled}
    targets = [spec["scaleTargetRef"] for spec in scaled]

    assert {f"{target.get('kind', 'Deployment')}/{target['name']}" for target in targets} <= set(MANIFESTS)
    assert groups == {"billing", app.id}
    assert "--consumer-group=billing" in _container("Deployment/billing")["args"]
    assert (app.instance_name, app.web_port) == ("ringfence-worker-0", 6066)


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
