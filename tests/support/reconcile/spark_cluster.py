"""A standalone cluster of the installed PySpark: a master and workers, processes of this machine on free ports."""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyspark.find_spark_home import _find_spark_home

from tests.support.worker import wait_for

LIMIT_S: Final = 120.0
_BOUND: Final = re.compile(r"Successfully started service '(\w+)' on port (\d+)")
_HOST: Final = "127.0.0.1"


class Daemon:
    """A JVM of the cluster, with all that it starts in a session of its own."""

    def __init__(self, log: Path, *arguments: str) -> None:
        home: str = _find_spark_home()  # type: ignore[no-untyped-call]
        self._log = log
        with log.open("wb") as written:
            self.process = subprocess.Popen(
                [f"{home}/bin/spark-class", *arguments],
                cwd=log.parent,
                env={**os.environ, "SPARK_LOCAL_IP": _HOST, "SPARK_DAEMON_MEMORY": "256m"},
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def says(self, text: str) -> bool:
        return text in self._log.read_text()

    def port(self, service: str) -> int:
        ports: dict[str, str] = {}

        def bound() -> bool:
            assert self.process.poll() is None, self._log.read_text()
            ports.update(_BOUND.findall(self._log.read_text()))
            return service in ports

        wait_for(bound, lambda: f"no {service}: {self._log.read_text()}", LIMIT_S)
        return int(ports[service])

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Standalone:
    """A standalone Spark cluster."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._daemons: list[Daemon] = []
        self._master = self._started("master", "master.Master")

    @property
    def master(self) -> str:
        return f"spark://{_HOST}:{self._master.port('sparkMaster')}"

    def add_worker(self, memory: str) -> None:
        size = ("--cores", "2", "--memory", memory, "--work-dir", str(self._folder / "work"))
        worker = self._started("worker", "worker.Worker", *size, self.master)
        wait_for(
            lambda: worker.says("Successfully registered with master"), lambda: "not registered", LIMIT_S
        )

    def _started(self, name: str, program: str, *arguments: str) -> Daemon:
        ports = ("--host", _HOST, "--port", "0", "--webui-port", "0")
        daemon = Daemon(
            self._folder / f"{name}.log", f"org.apache.spark.deploy.{program}", *ports, *arguments
        )
        self._daemons.append(daemon)
        return daemon

    def end(self) -> None:
        for daemon in self._daemons:
            daemon.kill()


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    cluster = Standalone(folder)
    try:
        yield cluster
    finally:
        cluster.end()
