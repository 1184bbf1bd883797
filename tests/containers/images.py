"""The images of a trial: both of the Dockerfile, and stand-ins for public ones that cannot be fetched."""

import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from app.embedded import jars
from tests.containers import machine
from tests.containers.command import run
from tests.containers.engine import PROJECT, Engine
from tests.containers.steps import CheckError, expect, step
from tests.support import deployment
from tests.support.checkout import ROOT

STAND_INS: Final = Path(__file__).with_name("stand_ins")
COMPOSE_FILE: Final = ROOT / "docker-compose.yml"
BASE: Final = f"localhost/{PROJECT}-base"
WORKER: Final = f"localhost/{PROJECT}-worker"
RECONCILE: Final = f"localhost/{PROJECT}-reconcile"
KAFKA: Final = f"localhost/{PROJECT}-kafka"
PROMETHEUS: Final = f"localhost/{PROJECT}-prometheus"
_PACKAGES: Final = "python3,python3-venv,python3-pip,python3-dev,ca-certificates"
_DEBOOTSTRAP_S: Final = 1_200


def services() -> dict[str, dict[str, Any]]:
    [document] = deployment.documents(COMPOSE_FILE)
    found: dict[str, dict[str, Any]] = document["services"]
    return found


def base_name() -> str:
    found = re.search(r"^ARG BASE=(\S+)$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise CheckError("the Dockerfile names no BASE")
    return found[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Public:
    """The public images that can be used as they are."""

    base: bool
    services: frozenset[str]


def fetch(engine: Engine, *, stand_ins: bool) -> Public:
    base = base_name()
    wanted = {
        name: service["image"]
        for name, service in services().items()
        if not service["image"].startswith("ringfence")
    }
    if stand_ins:
        return Public(base=False, services=frozenset())
    with step("fetch public images") as done:
        public = Public(
            base=engine.pull(base),
            services=frozenset(name for name, image in wanted.items() if engine.pull(image)),
        )
        there = [base] * public.base + [wanted[service] for service in sorted(public.services)]
        away = [item for item in (base, *wanted.values()) if item not in there]
        done.note = f"{', '.join(there) or 'none'}; stand-ins for {', '.join(away) or 'none'}"
    return public


def build(engine: Engine, public: Public, folder: Path) -> dict[str, str]:
    """Build all images that the trial needs; return those that replace images of the compose file, by service."""
    _base(engine, folder, public=public.base)
    for target, image in (("ringfence", WORKER), ("ringfence-reconcile", RECONCILE)):
        with step(f"image {target}") as done:
            engine.build(image, ROOT, "--target", target, "--build-arg", f"BASE={BASE}")
            done.note = _inspected(engine, image)
    replaced = {
        name: WORKER if service["image"] == "ringfence:local" else RECONCILE
        for name, service in services().items()
        if service["image"].startswith("ringfence")
    }
    if "kafka" not in public.services:
        _kafka(engine)
        replaced["kafka"] = KAFKA
    if "prometheus" not in public.services:
        with step("stand-in for Prometheus") as done:
            engine.build(PROMETHEUS, STAND_INS / "prometheus", "--build-arg", f"BASE={BASE}")
            done.note = engine.once(PROMETHEUS, "--version").split(" (")[0]
        replaced["prometheus"] = PROMETHEUS
    return replaced


def override(replaced: dict[str, str], path: Path) -> None:
    path.write_text(
        yaml.safe_dump({"services": {name: {"image": image} for name, image in replaced.items()}}), "utf-8"
    )


def _base(engine: Engine, folder: Path, *, public: bool) -> None:
    """Build what all images begin with: the public one, or Debian from the machine's mirror, and the machine's settings."""
    begin = base_name() if public else f"{BASE}:debian"
    if not public and not engine.has(begin):
        with step(f"stand-in for {base_name()}") as done, tempfile.TemporaryDirectory(dir=folder) as root:
            mirror = machine.mirror()
            run(
                ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", machine.SUITE, root, mirror],
                limit_s=_DEBOOTSTRAP_S,
            )
            piped = 'tar --directory "$1" --create . | "$2" import - "$3"'
            run(
                ["bash", "-o", "pipefail", "-c", piped, "import", root, engine.program, begin],
                limit_s=_DEBOOTSTRAP_S, environment=engine.environment,
            )  # fmt: skip
            done.note = f"Debian {machine.SUITE} with its own Python"
    with step("base image") as done, tempfile.TemporaryDirectory(dir=folder) as name:
        context = Path(name)
        shutil.copytree(STAND_INS / "base", context, dirs_exist_ok=True)
        (context / "certificates").mkdir()
        known = engine.once(begin, f"/{machine.BUNDLE}", options=["--entrypoint", "cat"])
        extra = machine.certificates_beyond(known, machine.bundle())
        for number, item in enumerate(extra):
            (context / "certificates" / f"machine-{number}.crt").write_text(item + "\n", "utf-8")
        listed = run([sys.executable, "-m", "pip", "config", "list"], limit_s=60)
        (context / "pip.conf").write_text(machine.pip_settings(listed), "utf-8")
        engine.build(BASE, context, "--build-arg", f"BASE={begin}")
        done.note = f"from {begin}, with {len(extra)} more certificates"


def _inspected(engine: Engine, image: str) -> str:
    user = engine.once(image, "-u", options=["--entrypoint", "id"]).strip()
    expect(user == "10001", f"{image} runs as user {user}")
    said = engine.once(image, "--version").strip()
    expect("path: native core" in said, f"{image} has no native core: {said}")
    return said


def _kafka(engine: Engine) -> None:
    """Build a Kafka of the jars that the embedded broker has, configured by the class of the public image."""
    with step("stand-in for Kafka") as done, tempfile.TemporaryDirectory(prefix="ringfence-kafka-") as name:
        context = Path(name)
        shutil.copytree(STAND_INS / "kafka", context, dirs_exist_ok=True)
        shutil.copytree(jars.resolve(), context / "libs")
        engine.build(KAFKA, context, "--build-arg", f"BASE={RECONCILE}")
        done.note = f"Kafka {jars.KAFKA_VERSION}"
