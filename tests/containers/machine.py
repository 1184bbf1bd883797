"""The machine of a trial: its packages, its mirrors and its certificates."""

import ast
import os
import re
import resource
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from ringfence_kafka.errors import PrerequisiteError
from tests.containers.command import CommandError, run

PODMAN_PACKAGES: Final = ("podman", "runc", "netavark", "aardvark-dns", "iptables")
"""Debian's: the engine, a runtime for every kind of control groups, networks with names, and ports of the host."""
SUITE: Final = "bookworm"
BUNDLE: Final = Path("etc/ssl/certs/ca-certificates.crt")
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_PIP_SETTINGS: Final = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout")
_LIMIT_MAX: Final = 32_768
_APT_S: Final = 900


def is_debian() -> bool:
    path = Path("/etc/os-release")
    release = path.read_text("utf-8") if path.exists() else ""
    return re.search(r'^ID="?debian"?$', release, re.MULTILINE) is not None


def require_root(what: str) -> None:
    """Refuse to continue as another user than root, which ``what`` needs."""
    if os.geteuid() != 0:
        raise PrerequisiteError(
            f"{what} needs root: run `make containers` as root, or start a Docker engine that this user may use"
        )


def require(programs: Iterable[str], packages: Sequence[str]) -> list[str]:
    """Return the packages to install so that all programs are there; refuse another system than Debian."""
    missing = [program for program in programs if shutil.which(program) is None]
    if not is_debian():
        if missing:
            raise PrerequisiteError(
                f"missing here: {', '.join(missing)}. Only on Debian they are installed for you: install them, or start a Docker "
                "engine with compose, and run again"
            )
        return []
    return [package for package in packages if not _installed(package)]


def install(packages: Sequence[str]) -> None:
    environment = {"DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update"], limit_s=_APT_S, environment=environment)
    run(
        ["apt-get", "install", "--yes", "--no-install-recommends", *packages],
        limit_s=_APT_S, environment=environment,
    )  # fmt: skip


def _installed(package: str) -> bool:
    try:
        said = run(["dpkg-query", "--show", "--showformat", "${db:Status-Status}", package], limit_s=60)
    except CommandError:
        return False
    return said == "installed"


def mirror() -> str:
    command = [
        "apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(LABEL) $(COMPONENT)", "Created-By: Packages",
    ]  # fmt: skip
    found = mirror_of(run(command, limit_s=60))
    if found is None:
        run(["apt-get", "update"], limit_s=_APT_S)
        found = mirror_of(run(command, limit_s=60))
    if found is None:
        raise PrerequisiteError(
            "apt has no mirror of Debian, so the base image cannot be made: add the component main of Debian to apt's sources, or "
            "let the engine pull the public image"
        )
    return found


def mirror_of(targets: str) -> str | None:
    """Return the first mirror of Debian's component main; ``targets``: a line an index, as :func:`mirror` asks for them."""
    for line in targets.splitlines():
        match line.split():
            case [uri, "Debian", "Debian", "main"]:
                return uri
    return None


def pip_settings(listed: str) -> str:
    """Return a pip.conf with the machine's settings, without its files; ``listed``: the output of ``pip config list``."""
    found: dict[str, str] = {}
    for line in listed.splitlines():
        key, equals, value = line.partition("=")
        name = key.rpartition(".")[2].removeprefix("default-")
        if equals and key.rpartition(".")[2] in _PIP_SETTINGS:
            found[name] = " ".join(str(ast.literal_eval(value)).split())
    return "\n".join(["[global]", *(f"{name} = {value}" for name, value in found.items()), ""])


def certificates_beyond(known: str, bundle: str) -> list[str]:
    there = set(_CERTIFICATE.findall(known))
    return [found for found in _CERTIFICATE.findall(bundle) if found not in there]


def bundle() -> str:
    """Return the certificates that programs of this machine trust; empty = it has no bundle."""
    path = Path(os.environ.get("SSL_CERT_FILE") or Path("/") / BUNDLE)
    return path.read_text("utf-8") if path.is_file() else ""


def open_limits() -> list[str]:
    """Return limits for containers that this process may give them: more than its own it may not."""

    def shown(name: str, kind: int) -> str:
        hard = resource.getrlimit(kind)[1]
        limit = _LIMIT_MAX if hard == resource.RLIM_INFINITY else min(hard, _LIMIT_MAX)
        return f"{name}={limit}:{limit}"

    return [shown("nofile", resource.RLIMIT_NOFILE), shown("nproc", resource.RLIMIT_NPROC)]
