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
LEAVING_S = 20
"""Time that a process gets beyond its drain, to leave its group and close."""


def _pod(name: str) -> dict[str, Any]:
    [found] = pods(MANIFESTS[name])
    return found


def _container(name: str) -> dict[str, Any]:
    [found] = _pod(name)["containers"]
    assert isinstance(found, dict)
    return found


def _environment(name: str) -> dict[str, Any]:
    return {item["name"]: item for item in _container(name).get("env", [])}


def test_what_there_is() -> None:
    """Workers keep their names; consumers and bridges have none to keep; the run has its time."""
    assert {
        manifest
        for manifest in MANIFESTS
        if manifest.split("/")[0] in {"StatefulSet", "Deployment", "CronJob"}
    } == {
        "StatefulSet/ringfence-worker",
        "Deployment/billing",
        "Deployment/ringfence-bridge",
        "CronJob/ringfence-reconcile",
    }


@pytest.mark.parametrize("name", MANIFESTS)
def test_schema(name: str) -> None:
    """Kubernetes 1.31 or KEDA accepts every manifest, and no key is misspelt."""
    assert deployment.kubernetes_fault(MANIFESTS[name]) == ""


def test_the_schema_finds_faults() -> None:
    """The schema finds a wrong key deep in a pod, a wrong type, and a wrong key of KEDA."""
    for name, path, key, value in (
        ("StatefulSet/ringfence-worker", ("spec", "template", "spec"), "terminationGracePeriod", 60),
        ("StatefulSet/ringfence-worker", ("spec",), "replicas", "two"),
        ("CronJob/ringfence-reconcile", ("spec", "jobTemplate", "spec"), "backofLimit", 1),
        ("ScaledObject/billing", ("spec",), "maxReplicas", 4),
    ):
        broken = copy.deepcopy(MANIFESTS[name])
        there = broken
        for part in path:
            there = there[part]
        there[key] = value

        assert key in deployment.kubernetes_fault(broken) or str(value) in deployment.kubernetes_fault(broken)


@pytest.mark.parametrize("name", SERVING)
def test_prometheus_finds_it(name: str) -> None:
    """Each pod that serves metrics gives their place."""
    annotations = MANIFESTS[name]["spec"]["template"]["metadata"]["annotations"]
    [port] = _container(name)["ports"]

    assert annotations == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(port["containerPort"]),
        "prometheus.io/path": "/metrics",
    }


@pytest.mark.parametrize("name", WITH_PODS)
def test_arguments(name: str) -> None:
    """The command line takes what each container is started with."""
    for container in [*_pod(name).get("initContainers", []), *_pod(name)["containers"]]:
        assert deployment.understood(container["args"]) == ""


def test_configuration() -> None:
    """The file is valid with what the pods' environment adds."""
    settings = load(
        KUBERNETES / "ringfence.toml",
        {"RINGFENCE_APP__INSTANCE": "ringfence-worker-0", "RINGFENCE_APP__WEB_HOST": "10.1.2.3",
         "RINGFENCE_WORKER_PORT": "tcp://10.1.2.3:6066"},
    )  # fmt: skip

    assert settings.app.instance_name == "ringfence-worker-0"
    assert settings.app.web_port == 6066
    assert "orders" in {address.name for address in settings.addresses}


def test_a_worker_finds_its_state_again() -> None:
    """A worker's folder has the pod's name, and lies in a volume that belongs to that name."""
    instance = _environment("StatefulSet/ringfence-worker")["RINGFENCE_APP__INSTANCE"]
    [claim] = MANIFESTS["StatefulSet/ringfence-worker"]["spec"]["volumeClaimTemplates"]
    mounts = {
        item["name"]: item["mountPath"] for item in _container("StatefulSet/ringfence-worker")["volumeMounts"]
    }

    assert instance["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert mounts[claim["metadata"]["name"]] == "/ringfence/data"


def test_workers_see_one_another() -> None:
    """Each worker announces its name in the headless Service, from variables that precede it in its environment."""
    name = "StatefulSet/ringfence-worker"
    environment = _environment(name)
    order = [item["name"] for item in _container(name)["env"]]
    own, *rest = environment["RINGFENCE_APP__WEB_NAME"]["value"].split(".")

    assert own == "$(RINGFENCE_APP__INSTANCE)"
    assert rest == [MANIFESTS[name]["spec"]["serviceName"], "$(NAMESPACE)", "svc"]
    assert environment["NAMESPACE"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.namespace"
    assert max(order.index("RINGFENCE_APP__INSTANCE"), order.index("NAMESPACE")) < order.index(
        "RINGFENCE_APP__WEB_NAME"
    )
    assert MANIFESTS["Service/ringfence-worker"]["spec"]["publishNotReadyAddresses"]


def test_a_rollout_is_not_stuck_behind_what_it_repairs() -> None:
    """Ordered, it waits for a pod that is not ready, although the new version would make it so."""
    assert MANIFESTS["StatefulSet/ringfence-worker"]["spec"]["podManagementPolicy"] == "Parallel"


@pytest.mark.parametrize("name", SERVING)
def test_probes(name: str) -> None:
    """/live decides about a restart, /health about readiness, both on the port that the process listens on."""
    container = _container(name)
    ports = {item["name"]: item["containerPort"] for item in container["ports"]}

    assert {
        probe: (
            container[probe]["httpGet"]["path"],
            ports.get(container[probe]["httpGet"]["port"]),
        )
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    } == {
        "startupProbe": ("/live", 6066),
        "livenessProbe": ("/live", 6066),
        "readinessProbe": ("/health", 6066),
    }
    # A server on the loopback is reached by no probe.
    host = _environment(name)["RINGFENCE_APP__WEB_HOST"]
    assert host.get("value") == "0.0.0.0" or host["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
    assert container["args"] == ["worker"] or "--web-port=6066" in container["args"]


@pytest.mark.parametrize("name", WITH_PODS)
def test_grace(name: str) -> None:
    """A pod gets enough time to drain before it is killed."""
    options = dict(
        item.removeprefix("--").split("=", 1) for item in _container(name)["args"] if item.startswith("--")
    )
    drain_s = max(DRAIN_LIMIT_S, float(options.get("drain-timeout", 0)))

    assert _pod(name)["terminationGracePeriodSeconds"] >= drain_s + LEAVING_S
    assert "consume" not in _container(name)["args"] or "drain-timeout" in options


@pytest.mark.parametrize("name", SERVING)
def test_disruptions(name: str) -> None:
    """One pod at a time may be disrupted, and a pod that is not ready does not keep a node from being drained."""
    budget = MANIFESTS[f"PodDisruptionBudget/{name.partition('/')[2]}"]["spec"]

    assert budget["maxUnavailable"] == 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert budget["selector"] == MANIFESTS[name]["spec"]["selector"]


@pytest.mark.parametrize("name", WITH_PODS)
def test_restricted(name: str) -> None:
    """Pods meet the namespace's security standard: no root, no privileges to gain, and a read-only root file system."""
    assert _pod(name)["securityContext"]["runAsNonRoot"] is True
    assert _pod(name)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in [*_pod(name).get("initContainers", []), *_pod(name)["containers"]]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_a_verdict_is_not_asked_for_again() -> None:
    """Anomalies and gone evidence end the job; what could not run is tried again; two never run at once."""
    job = MANIFESTS["CronJob/ringfence-reconcile"]["spec"]
    rule = job["jobTemplate"]["spec"]["podFailurePolicy"]["rules"][0]

    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"]["values"] == [1, 3]
    assert rule["onExitCodes"]["containerName"] == _container("CronJob/ringfence-reconcile")["name"]
    assert job["jobTemplate"]["spec"]["backoffLimit"] > 0
    assert job["concurrencyPolicy"] == "Forbid"


def test_scaling() -> None:
    """Every scaled workload exists, and is scaled by the lag of its own group."""
    scaled = {
        name: manifest["spec"] for name, manifest in MANIFESTS.items() if name.startswith("ScaledObject/")
    }
    groups = {value["triggers"][0]["metadata"]["consumerGroup"] for value in scaled.values()}

    assert {
        f"{value['scaleTargetRef'].get('kind', 'Deployment')}/{value['scaleTargetRef']['name']}"
        for value in scaled.values()
    } <= set(MANIFESTS)
    assert groups == {"billing", load(KUBERNETES / "ringfence.toml", {}).app.id}
    assert "--consumer-group=billing" in _container("Deployment/billing")["args"]


def test_kustomization() -> None:
    """Each file is named, if only as a comment, and each image has a source."""
    text = (KUBERNETES / "kustomization.yaml").read_text()
    read = yaml.safe_load(text)
    files = {path.name for path in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml"}
    images = {
        item["image"]
        for name in WITH_PODS
        for item in [*_pod(name).get("initContainers", []), *_pod(name)["containers"]]
    }

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
