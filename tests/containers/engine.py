"""The container engine: Docker where one answers, else podman with Debian's packages."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.containers import machine
from tests.containers.command import CommandError, attempt, run
from tests.support.checkout import ROOT

PROJECT: Final = "ringfence-trial"
"""Containers, volumes and the network carry this name, and nothing else does."""
BUILD_S: Final = 1_800
_PULL_S: Final = 600
_LIMIT_S: Final = 180
VENV: Final = ROOT / ".venv-containers"
_HELPERS: Final = (Path("/usr/lib/podman"), Path("/usr/libexec/podman"))
LOCK: Final = Path(__file__).with_name("requirements.lock")


@dataclass(frozen=True, slots=True)
class State:
    """A container, as the engine knows it."""

    running: bool
    exit_code: int


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A container engine with its compose program. Docker and podman take the same arguments, but for health and builds."""

    program: str
    compose: tuple[str, ...]
    version: str
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_podman(self) -> bool:
        return self.program == "podman"

    def __call__(self, *arguments: str, limit_s: float = _LIMIT_S, given: str | bytes = b"") -> str:
        return run([self.program, *arguments], limit_s=limit_s, given=given, environment=self.environment)

    def build(self, tag: str, context: Path, *arguments: str) -> None:
        # podman's own format has no health check, and its builds need no network of their own.
        own = ("--format", "docker", "--network", "host") if self.is_podman else ()
        self("build", *own, "--tag", tag, *arguments, str(context), limit_s=BUILD_S)

    def has(self, image: str) -> bool:
        return self._attempt("image", "inspect", image) == 0

    def pull(self, image: str) -> bool:
        try:
            return self.has(image) or self._attempt("pull", "--quiet", image, limit_s=_PULL_S) == 0
        except CommandError:  # it took too long
            return False

    def once(self, image: str, *arguments: str, options: Sequence[str] = ()) -> str:
        return self("run", "--rm", "--no-healthcheck", *options, image, *arguments)

    def container(self, service: str) -> str:
        found = self._listed(f"label=com.docker.compose.service={service}")
        if len(found) != 1:
            raise LookupError(f"{len(found)} containers of the service {service}")
        return found[0]

    def containers(self) -> list[str]:
        return self._listed()

    def remove(self, container: str) -> None:
        # podman waits for the program's own end, and a program without its broker gets no answers.
        own = ("--time", "0") if self.is_podman else ()
        self("rm", "--force", *own, "--volumes", container)

    def _listed(self, *filters: str) -> list[str]:
        wanted = (f"label=com.docker.compose.project={PROJECT}", *filters)
        options = [option for name in wanted for option in ("--filter", name)]
        return self("ps", "--all", "--quiet", "--no-trunc", *options).split()

    def state(self, service: str) -> State:
        [found] = json.loads(self("inspect", self.container(service)))
        return State(found["State"]["Running"], found["State"]["ExitCode"])

    def healthy(self, service: str) -> bool:
        """Whether the health check of a service succeeds. podman runs it now: without systemd nothing else does."""
        identity = self.container(service)
        if self.is_podman:
            return self._attempt("healthcheck", "run", identity) == 0
        [found] = json.loads(self("inspect", identity))
        health: dict[str, Any] = found["State"].get("Health", {})
        return health.get("Status") == "healthy"

    def log(self, service: str) -> str:
        command = [self.program, "logs", "--tail", "40", self.container(service)]
        return attempt(command, limit_s=_LIMIT_S, environment=self.environment).everything

    def _attempt(self, *arguments: str, limit_s: float = _LIMIT_S) -> int:
        return attempt([self.program, *arguments], limit_s=limit_s, environment=self.environment).code


def docker() -> Engine | None:
    """Return the Docker engine that answers; None = none does, or it has no compose."""
    if shutil.which("docker") is None:
        return None
    asked = attempt(["docker", "version", "--format", "{{.Server.Version}}"], limit_s=60)
    if asked.code != 0:
        return None
    for compose in (("docker", "compose"), ("docker-compose",)):
        if shutil.which(compose[0]) is not None and attempt([*compose, "version"], limit_s=60).code == 0:
            return Engine(program="docker", compose=compose, version=asked.output.strip())
    return None


def podman(folder: Path) -> Engine:
    """Return podman, set up for this trial alone by a configuration in ``folder``. The machine's own is left as it is."""
    lines = [
        "[containers]",
        # Its default is above the limit of an unprivileged process.
        f"default_ulimits = {json.dumps(machine.open_limits())}",
        'log_driver = "k8s-file"',
        "[engine]",
        # Neither needs systemd.
        'cgroup_manager = "cgroupfs"',
        'events_logger = "file"',
    ]
    if any((helper / "netavark").exists() for helper in _HELPERS):
        # Debian's podman defaults to an older kind of network, without names.
        lines.append('network_backend = "netavark"')
    if shutil.which("runc") is not None:
        # crun refuses control groups of versions 1 and 2 at the same time.
        lines.append('runtime = "runc"')
    configuration = folder / "containers.conf"
    configuration.write_text("\n".join([*lines, ""]), "utf-8")
    environment = {"CONTAINERS_CONF": str(configuration)}
    asked = run(["podman", "version", "--format", "{{.Client.Version}}"], limit_s=60, environment=environment)
    compose = (str(VENV / "bin" / "podman-compose"), "--in-pod", "false")
    return Engine(program="podman", compose=compose, version=asked.strip(), environment=environment)
