"""The services of the compose file, started, watched and ended."""

import json
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

from ringfence_kafka.errors import PrerequisiteError
from tests.containers.command import Ended, attempt, run
from tests.containers.engine import PROJECT, Engine
from tests.containers.images import COMPOSE_FILE, services
from tests.containers.steps import expect
from tests.support.worker import wait_for

WEB: Final = {"worker-1": 6066, "worker-2": 6067}
PROMETHEUS: Final = "http://127.0.0.1:9090"
LIMIT_S: Final = 120.0
RECONCILE_S: Final = 900.0
_STOP_S: Final = 180.0


def get(url: str) -> Any:
    """Return the JSON document of a page, also of one that answers 503; None = no answer."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - URLs are our own
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)
    except OSError:
        return None


class Stack:
    """The compose project of a trial, with the images of the file ``override``, and the services ``chosen``."""

    def __init__(self, engine: Engine, override: Path, chosen: set[str]) -> None:
        self.engine: Final = engine
        self._override = override
        self._chosen: Final = [name for name in services() if name in chosen]

    def up(self) -> None:
        """Start all services but the nightly one. podman before 4.6 cannot wait for a healthy service, so each stage is awaited here."""
        rest = [name for name in self._chosen if name not in {"kafka", "topics"}]
        if self.engine.is_podman:
            self._start("--no-deps", "kafka")
            self.await_healthy("kafka")
            self._start("--no-deps", "topics")
            self._await_topics()
            self._start("--no-deps", *rest)
        else:
            self._start(*self._chosen)
            self._await_topics()

    def await_healthy(self, service: str) -> None:
        wait_for(
            lambda: self.engine.healthy(service),
            lambda: f"{service} is not healthy:\n{self.engine.log(service)}",
        )

    def _start(self, *arguments: str) -> None:
        self._compose("up", "--detach", "--no-build", *arguments)

    def _await_topics(self) -> None:
        wait_for(lambda: not self.engine.state("topics").running, lambda: "topics create still runs")
        code = self.engine.state("topics").exit_code
        expect(code == 0, f"topics create ended with {code}:\n{self.engine.log('topics')}")

    def send(self, lines: str) -> None:
        """Publish messages to ``orders`` through the second worker's container, as the first lines of the compose file show."""
        self._compose("exec", "-T", "worker-2", "ringfence", "send", "orders", given=lines)

    def inside(self, service: str, *command: str) -> str:
        return self.engine("exec", self.engine.container(service), *command)

    def health(self, worker: str) -> dict[str, Any]:
        return get(f"http://127.0.0.1:{WEB[worker]}/health") or {}

    def lanes(self, worker: str) -> set[str]:
        found = self.health(worker)
        if not found.get("ready"):
            return set()
        return {name for name, item in found["lanes"].items() if item["state"] == "open"}

    def nightly(self) -> Ended:
        return attempt(
            self._command("--profile", "nightly", "run", "--rm", "-T", "reconcile"),
            limit_s=RECONCILE_S, environment=self.engine.environment,
        )  # fmt: skip

    def summary(self, image: str) -> dict[str, Any]:
        """Return the document that the last nightly run has written into its volume; ``image``: any that has ``cat``."""
        volume = f"{PROJECT}_reconcile:/report:ro"
        options = ["--entrypoint", "cat", "--volume", volume]
        found: dict[str, Any] = json.loads(
            self.engine.once(image, "/report/report/summary.json", options=options)
        )
        return found

    def stop(self, *names: str) -> dict[str, int]:
        self._compose("stop", *names, limit_s=_STOP_S)
        return {name: self.engine.state(name).exit_code for name in names}

    def down(self) -> None:
        """Remove everything with the project's name: containers, also of a nightly run that was interrupted, volumes and network."""
        for container in self.engine.containers():
            self.engine.remove(container)
        self._compose("down", "--volumes", limit_s=_STOP_S)

    def _compose(self, *arguments: str, given: str = "", limit_s: float = 300) -> str:
        return run(
            self._command(*arguments), limit_s=limit_s, given=given, environment=self.engine.environment
        )

    def _command(self, *arguments: str) -> list[str]:
        files = ("--file", str(COMPOSE_FILE), "--file", str(self._override))
        return [*self.engine.compose, "--project-name", PROJECT, *files, *arguments]


def require_free_ports() -> None:
    """Refuse to start beside a program that listens where the compose file publishes."""
    for name, service in services().items():
        for published in service.get("ports", []):
            host, port, _ = published.split(":")
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((host, int(port)))
                except OSError as error:
                    raise PrerequisiteError(
                        f"{host}:{port} is in use, and the compose file publishes its service {name} there: stop the program that "
                        "listens there, and run again"
                    ) from error
