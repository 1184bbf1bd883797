"""Worker and other processes: started from the command line as a user would, and ended by their process IDs."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from app.embedded import ports
from tests.support import forks, kafka
from tests.support.checkout import ROOT
from tests.support.forks import Fork
from tests.support.kafka import Got, Sent

LIMIT_S = 180.0
POLL_S, POLL_MAX_S = 0.05, 0.5
NOT_LET_IN = ("denies access", "no broker answers")


class RingfenceProcess:
    """One verb that runs until it is stopped, or until its block ends. Its log is kept over restarts."""

    def __init__(
        self, config: Path, name: str, arguments: Sequence[str], environment: dict[str, str] | None = None
    ) -> None:
        self.name = name
        self.port = ports.choose("127.0.0.1")
        self.log_file = config.parent / f"{name}.log"
        self._config = config
        self._arguments = arguments
        self._environment = environment or {}
        self._process: Fork | subprocess.Popen[Any] | None = None
        self._log_begin = 0
        self.kills = 0
        self.tree = ROOT

    def start(self, **environment: str) -> None:
        self._log_begin = self.log_file.stat().st_size if self.log_file.exists() else 0
        arguments = ["--web-port", str(self.port), *self._arguments[1:], "--config", str(self._config)]
        with self.log_file.open("ab") as log, Path(os.devnull).open("rb") as nothing:
            self._process = forks.start(
                [self._arguments[0], *arguments],
                {**os.environ, **self._environment, **environment},
                [nothing.fileno(), log.fileno(), log.fileno()],
                self.tree,
            )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def wait_ready(self) -> None:
        wait_for(lambda: self.health()[0] == 200, lambda: f"{self.health()}\n{self.log()}")

    def health(self) -> tuple[int, dict[str, Any]]:
        return self.get("/health")

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            body = error.read()
            return error.code, json.loads(body) if body.startswith(b"{") else {}
        except (OSError, ValueError):
            return 0, {}

    def page(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def log(self) -> str:
        with self.log_file.open("rb") as log:
            log.seek(self._log_begin)
            return log.read().decode()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def frozen(self) -> bool:
        return self.running and psutil.Process(self.pid).status() == psutil.STATUS_STOPPED

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self.running:
            self.signal(signal.SIGKILL)
            self.wait_end()

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(LIMIT_S)

    @property
    def turned_away(self) -> bool:
        """Whether it has ended by itself because the broker refused it or did not answer: its supervisor starts it again."""
        code = None if self._process is None else self._process.poll()
        return code is not None and code > 0 and any(name in self.log() for name in NOT_LET_IN)

    def wait_end(self) -> int:
        assert self._process is not None
        code = self._process.wait(LIMIT_S)
        self.kills += code == -signal.SIGKILL
        return code

    def destroy(self) -> None:
        if self.running:
            self.signal(signal.SIGCONT)
            self.kill()


class WorkerProcess(RingfenceProcess):
    """One ``ringfence worker``."""

    def __init__(self, config: Path, name: str, environment: dict[str, str] | None = None) -> None:
        super().__init__(config, name, ["worker"], {"RINGFENCE_APP__INSTANCE": name, **(environment or {})})


def table(heading: str, keys: Mapping[str, Any]) -> str:
    return "\n".join([heading, *(f"{key} = {_value(value)}" for key, value in keys.items())]) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


def toml(
    kafka: Mapping[str, Any], app_id: str, folder: Path, addresses: Iterable[Mapping[str, Any]] = ()
) -> str:
    own = table("[kafka]", kafka) + table("[app]", {"id": app_id, "data_dir": str(folder / "data")})
    return own + "".join(table("[[addresses]]", address) for address in addresses)


def configure(
    folder: Path, bootstrap: str, app_id: str, addresses: list[dict[str, Any]], tree: Path = ROOT
) -> Path:
    """Write a configuration file and create the topics, with the code in ``tree``."""
    config = folder / f"{app_id}.toml"
    config.write_text(toml({"bootstrap_servers": bootstrap}, app_id, folder, addresses))
    run_verb("topics", "create", "--config", str(config), tree=tree)
    return config


def one_address(
    folder: Path, bootstrap: str, prefix: str, partitions: int = 1, **address: Any
) -> tuple[str, Path]:
    """Configure an address that has the name of its application; return the name and the file."""
    name = kafka.unique(prefix)
    return name, configure(folder, bootstrap, name, [{"name": name, "partitions": partitions, **address}])


def run_verb(
    *arguments: str,
    check: bool = True,
    stdin: str = "",
    limit_s: float = LIMIT_S,
    failpoints: str = "",
    environment: Mapping[str, str] | None = None,
    tree: Path = ROOT,
) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "RINGFENCE_FAILPOINTS": failpoints, **(environment or {})}
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        process = forks.start(
            arguments, variables, [buffered_random.fileno() for buffered_random in (given, out, err)], tree
        )
        try:
            code = process.wait(limit_s)
        finally:
            process.kill()
        said = []
        for buffered_random in (out, err):
            buffered_random.seek(0)
            said.append(buffered_random.read().decode())
    done = subprocess.CompletedProcess([sys.executable, "-m", "app", *arguments], code, *said)
    if check:
        done.check_returncode()
    return done


@contextlib.contextmanager
def worker(config: Path, name: str, **environment: str) -> Iterator[WorkerProcess]:
    with WorkerProcess(config, name, environment) as process:
        process.wait_ready()
        yield process


def wait_for(condition: Callable[[], bool], otherwise: Callable[[], str], limit_s: float = LIMIT_S) -> None:
    """Wait for a condition, which takes at most a fifth of the time; ``otherwise`` describes the present state."""
    deadline = time.monotonic() + limit_s
    while True:
        begun = time.monotonic()
        if condition():
            return
        if (now := time.monotonic()) > deadline:
            raise AssertionError(otherwise())
        time.sleep(min(max(POLL_S, 4 * (now - begun)), POLL_MAX_S))


@dataclass(frozen=True)
class Running:
    """A worker and its broker."""

    bootstrap: str
    worker: WorkerProcess
    addresses: list[dict[str, Any]]
    app_id: str

    def outcome(self, address: str, records: list[Sent], partition: int = 0) -> list[Got]:
        kafka.send(self.bootstrap, address, records, partition)
        return self.settled(address)

    def settled(self, address: str) -> list[Got]:
        self.through(address)
        return self.read(f"{address}.accepted", self.partitions(address))

    def through(self, address: str) -> None:
        lanes = int(self._item(address).get("lanes", 0))
        counts = {address: self.partitions(address)}
        if lanes != 1:  # one lane forwards nothing
            counts[f"{self.app_id}-{address}-forward"] = lanes or self.partitions(address)
        for topic, count in counts.items():
            wait_for(
                lambda topic=topic, count=count: kafka.consumed(self.bootstrap, self.app_id, topic, count),  # type: ignore[misc]
                lambda topic=topic: f"{topic}\n{self.worker.health()}\n{self.worker.log()}",  # type: ignore[misc]
            )

    def read(self, topic: str, partitions: int | None = None) -> list[Got]:
        return kafka.read_all(self.bootstrap, topic, partitions or 1)

    def partitions(self, address: str) -> int:
        return int(self._item(address)["partitions"])

    def _item(self, address: str) -> dict[str, Any]:
        return next(item for item in self.addresses if item["name"] == address)
