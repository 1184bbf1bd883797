"""Compares the resources that a run asks for with those that its Spark cluster has."""

import contextlib
import json
import socket
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JError
from pyspark import SparkContext

from ringfence_kafka.wording import counted

PAGE_PORT: Final = 8080
"""Port of a standalone master's page, if the master itself does not answer."""
ANSWER_LIMIT_S: Final = 2.0
WORKERS_SHOWN_MAX: Final = 8
_STANDALONE: Final = "spark://"
_PORTS_REQUEST: Final = "org.apache.spark.deploy.master.MasterMessages$BoundPortsRequest$"


class Demand(NamedTuple):
    """Size of one executor in Spark's settings."""

    cores: str  # number; empty = all cores of a worker
    memory: str


def offered(context: SparkContext, master: str, demand: Demand) -> str:
    """Return the demand, and the free resources of workers from the master's page."""
    if not master.startswith(_STANDALONE):
        return f"it asks {master} for {_asked(demand, None)}: look at the free resources of the cluster"
    pages = []
    for part in master.removeprefix(_STANDALONE).split(","):
        host, _, port = part.rpartition(":")
        page = f"http://{host}:{_page_port(context, host.strip('[]'), int(port))}"
        state = _state(page)
        if state is not None and state.get("status") == "ALIVE":
            return compared(state, context.applicationId, master, demand)
        pages.append(page)
    return (
        f"it asks {master} for {_asked(demand, None)}; the cluster's page does not answer ({', '.join(pages)}), so its workers are not "
        "known"
    )


def compared(state: Mapping[str, Any], application: str, master: str, demand: Demand) -> str:
    """Compare demand and offer by the JSON of a standalone master. ``application``: the run's ID there."""
    apps = [item for item in state.get("activeapps", ()) if item.get("id") == application]
    memory_mib = apps[0].get("memoryperexecutor") if apps else None
    workers = [item for item in state.get("workers", ()) if item.get("state") == "ALIVE"]
    return f"it asks {master} for {_asked(demand, memory_mib)}; {_workers(workers)}"


def _asked(demand: Demand, memory_mib: int | None) -> str:
    cores = f"{demand.cores} cores" if demand.cores else "all cores of a worker"
    memory = demand.memory if memory_mib is None else f"{memory_mib} MiB"
    return f"executors with {cores} and {memory} of memory each"


def _workers(workers: Sequence[Mapping[str, Any]]) -> str:
    if not workers:
        return "the cluster has no worker"
    shown = [
        f"{worker.get('host')}:{worker.get('port')} has {worker.get('coresfree')} of {worker.get('cores')} cores and {worker.get('memoryfree')} of "
        f"{worker.get('memory')} MiB free"
        for worker in workers[:WORKERS_SHOWN_MAX]
    ]
    more = len(workers) - len(shown)
    return f"the cluster has {counted(len(workers), 'worker')}: {', '.join(shown)}" + (
        f", and {more} more" if more else ""
    )


def _page_port(context: SparkContext, host: str, port: int) -> int:
    """Return the port of the page, which the master itself reports."""
    with contextlib.suppress(Py4JError, OSError):
        socket.create_connection(
            (host, port), ANSWER_LIMIT_S
        ).close()  # checked first, because Spark would try to connect for two minutes
        jvm: Any = context._jvm
        rpc = context._jsc.sc().env().rpcEnv()
        master = rpc.setupEndpointRef(jvm.org.apache.spark.rpc.RpcAddress(host, port), "Master")
        request = jvm.java.lang.Class.forName(_PORTS_REQUEST).getField("MODULE$").get(None)
        limit = jvm.scala.concurrent.duration.FiniteDuration.apply(
            int(ANSWER_LIMIT_S), jvm.java.util.concurrent.TimeUnit.SECONDS
        )
        timeout = jvm.org.apache.spark.rpc.RpcTimeout(limit, "reconcile.executor_timeout")
        return int(master.askSync(request, timeout, jvm.scala.reflect.ClassTag.Any()).webUIPort())
    return PAGE_PORT


def _state(page: str) -> dict[str, Any] | None:
    with contextlib.suppress(OSError, ValueError):
        with urllib.request.urlopen(f"{page}/json/", timeout=ANSWER_LIMIT_S) as answer:  # noqa: S310 - http
            found = json.load(answer)
        return found if isinstance(found, dict) else None
    return None
