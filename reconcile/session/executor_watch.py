"""Ends a run if it gets no executors.

Spark waits forever if no worker is large enough, or if all executors are lost, and reports this only in its
own log.
"""

import contextlib
import json
import re
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from reconcile.session.spark_errors import SPARK
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.wording import counted, first_of

NOTICE_S: Final = 30.0  # time after which a waiting run reports its demand
TIMEOUT_S: Final = 120.0
_LOOK_EVERY_S: Final = 0.5
_JOIN_LIMIT_S: Final = 1.0
_IN_PROCESS: Final = re.compile(r"local(\[[^]]*\])?")
_WAY_OUT: Final = (
    "start a worker that is large enough, ask for less (spark.executor.memory and spark.executor.cores in Spark's spark-defaults.conf), or wait longer "
    "(reconcile.executor_timeout)"
)
PAGE_PORT: Final = 8080
"""Port of a standalone master's page, if the master itself does not answer."""
ANSWER_LIMIT_S: Final = 2.0
WORKERS_SHOWN_MAX: Final = 8
_STANDALONE: Final = "spark://"
_PORTS_REQUEST: Final = "org.apache.spark.deploy.master.MasterMessages$BoundPortsRequest$"


class NoExecutorsError(RingfenceError):
    """No executor served the run in time."""


class SparkCluster:
    """Spark session of a run. Its methods are thread-safe."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._master = self._context.master or ""

    def executors(self) -> int:
        """Return the number of registered executors, without the driver, which Spark counts too."""
        return len(self._context._jsc.sc().statusTracker().getExecutorInfos()) - 1

    def waits(self) -> bool:
        """Return whether a stage is active."""
        return bool(self._context.statusTracker().getActiveStageIds())

    def offer(self) -> str:
        """Return the demand of the run, and the offer of the cluster."""
        return offered(self._context, self._master)

    def cancel(self) -> None:
        """Cancel all jobs. Their callers get an error."""
        self._context.cancelAllJobs()


class Watch:
    """Ends a run whose tasks wait too long without an executor."""

    def __init__(
        self,
        cluster: SparkCluster,
        timeout_s: float,
        say: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch ``cluster``: ``timeout_s`` ends the run, ``say`` prints a line, ``clock`` is monotonic (s)."""
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._say = say
        self._clock = clock
        self._since: float | None = None
        self._noticed = False
        self._served = False
        self.fault = ""  # reason why the run was ended; empty = it was not

    def check(self) -> None:
        """Check the executors once. The caller repeats this at short intervals."""
        if self.fault:
            self._cluster.cancel()  # a job may have started since
            return
        if self._cluster.executors():
            self._served, self._since, self._noticed = True, None, False
            return
        if not self._cluster.waits():
            self._since, self._noticed = None, False
            return
        now = self._clock()
        self._since = now if self._since is None else self._since
        waited = now - self._since
        if waited >= self._timeout_s:
            self.fault = (
                f"{self._what} for {self._timeout_s:g} s, so the run was ended: {self._cluster.offer()}. No message and no result was "
                f"changed: {_WAY_OUT}"
            )
            self._cluster.cancel()
        elif waited >= NOTICE_S and not self._noticed:
            self._noticed = True
            self._say(
                f"{self._what} for {NOTICE_S:g} s: {self._cluster.offer()}. The run ends after {self._timeout_s:g} s "
                "(reconcile.executor_timeout)"
            )

    @property
    def _what(self) -> str:
        return (
            "all executors of Spark are lost, and none has come"
            if self._served
            else "tasks wait, and no executor of Spark has come"
        )


@contextlib.contextmanager
def served(spark: SparkSession, timeout_s: float) -> Iterator[None]:
    """End the run if it gets no executors. Spark in local mode is not watched.

    Raises:
        NoExecutorsError: Tasks waited for ``timeout_s`` seconds without an executor.
    """
    if _IN_PROCESS.fullmatch(spark.sparkContext.master or ""):
        yield
        return
    watch = Watch(SparkCluster(spark), timeout_s, _say)
    ended = threading.Event()

    def look() -> None:
        # if the JVM has died, the main thread reports it
        with contextlib.suppress(*SPARK, OSError):
            while not ended.wait(_LOOK_EVERY_S):
                watch.check()

    looking = threading.Thread(target=look, name="executors", daemon=True)
    looking.start()
    try:
        yield
    except (RingfenceError, AssertionError, *SPARK) as error:
        if watch.fault:
            raise NoExecutorsError(watch.fault) from error
        raise
    finally:
        ended.set()
        looking.join(_JOIN_LIMIT_S)


def _say(line: str) -> None:
    sys.stderr.write(f"ringfence: {line}\n")
    sys.stderr.flush()


def offered(context: SparkContext, master: str) -> str:
    """Return the demand, and the free resources of workers from the master's page."""
    conf = context.getConf()
    cores, memory = conf.get("spark.executor.cores"), conf.get("spark.executor.memory", "1g")
    size = f"{cores} cores" if cores else "all cores of a worker"
    asked = f"it asks {master} for executors with {size} and {memory} of memory each"
    if not master.startswith(_STANDALONE):
        return f"{asked}: look at the free resources of the cluster"
    pages = []
    for part in master.removeprefix(_STANDALONE).split(","):
        host, _, port = part.rpartition(":")
        page = f"http://{host}:{_page_port(context, host.strip('[]'), int(port))}"
        state = _state(page)
        if state is not None and state.get("status") == "ALIVE":
            return f"{asked}; {workers_of(state)}"
        pages.append(page)
    return f"{asked}; the cluster's page does not answer ({', '.join(pages)}), so its workers are not known"


def workers_of(state: Mapping[str, Any]) -> str:
    """Return the free resources of live workers, by the JSON of a standalone master."""
    workers = [item for item in state.get("workers", ()) if item.get("state") == "ALIVE"]
    if not workers:
        return "the cluster has no worker"
    shown = [
        f"{worker.get('host')}:{worker.get('port')} has {worker.get('coresfree')} of {worker.get('cores')} cores and {worker.get('memoryfree')} of "
        f"{worker.get('memory')} MiB free"
        for worker in workers
    ]
    return f"the cluster has {counted(len(workers), 'worker')}: {first_of(shown, WORKERS_SHOWN_MAX)}"


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
