"""``python -m tests.containers``: build both images, run the compose file, and judge what becomes of messages."""

import contextlib
import fcntl
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from app.embedded.jars import cache_directory
from ringfence_kafka.errors import PrerequisiteError
from tests.containers import engine as engines
from tests.containers import images, machine, trial
from tests.containers.command import CommandError, run
from tests.containers.engine import Engine
from tests.containers.images import Public
from tests.containers.stack import Stack, require_free_ports
from tests.containers.steps import step
from tests.support.checkout import ROOT

EXIT_NOT_WELL: Final = 1
EXIT_COULD_NOT_RUN: Final = 2
EXIT_TERMINATED: Final = 143


@click.command()
@click.option("--stand-ins", is_flag=True, help="Ask for no public image: build a stand-in for each.")
@click.option("--keep", is_flag=True, help="Leave containers and volumes of the trial for a look.")
def main(stand_ins: bool, keep: bool) -> None:
    """Build both images, run the compose file, kill a worker, run the nightly profile. Exit codes: 0 right, 1 wrong, 2 the machine lacks something."""
    began = time.monotonic()
    try:
        folder = cache_directory() / "containers"
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder):
            engine = _engine(folder)
            public = images.fetch(engine, stand_ins=stand_ins)
            if not public.base:
                _install("the stand-in for the base image", machine.require(["debootstrap"], ["debootstrap"]))
            _try(engine, public, folder, keep=keep)
    except PrerequisiteError as error:
        click.echo(f"containers: {error}", err=True)
        sys.exit(EXIT_COULD_NOT_RUN)
    except (AssertionError, CommandError) as error:
        click.echo(f"containers: {error}", err=True)
        sys.exit(EXIT_NOT_WELL)
    click.echo(f"{time.monotonic() - began:7.1f} s  all is well")


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the lock of trials: a second one would remove the containers of the first."""
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise PrerequisiteError("another trial runs on this machine: wait until it has ended") from error
        yield


def _try(engine: Engine, public: Public, folder: Path, *, keep: bool) -> None:
    replaced = images.build(engine, public, folder)
    override = folder / "override.yml"
    images.override(replaced, override)
    stack = Stack(engine, override, set(replaced) | set(public.services))
    stack.down()  # left by an earlier trial with --keep
    require_free_ports()
    trial.check_monitoring(engine, replaced.get("prometheus", ""))
    try:
        trial.start(stack)
        trial.take_over(stack)
        trial.judge_outputs(stack)
        trial.run_nights(stack)
        trial.stop(stack)
    finally:
        if keep:
            click.echo(
                f"         left: the containers and volumes of {engines.PROJECT}; the next trial removes them"
            )
        else:
            with step("compose down"):
                stack.down()


def _engine(folder: Path) -> Engine:
    found = engines.docker()
    if found is None:
        machine.require_root("podman")
        _install("podman", machine.require(["podman"], machine.PODMAN_PACKAGES))
        _install_compose()
        found = engines.podman(folder)
    click.echo(f"         {found.program} {found.version}, {' '.join(found.compose)}")
    return found


def _install(purpose: str, packages: list[str]) -> None:
    if packages:
        machine.require_root(f"Installing {' '.join(packages)}")
        click.echo(f"         for {purpose} these Debian packages are installed: {' '.join(packages)}")
        with step("apt-get install"):
            machine.install(packages)


def _install_compose() -> None:
    done = engines.VENV / ".setup-done"
    if done.exists() and done.stat().st_mtime > engines.LOCK.stat().st_mtime:
        return
    click.echo(
        f"         podman-compose is installed into {engines.VENV.relative_to(ROOT)}, from {engines.LOCK.name}"
    )
    with step("pip install"):
        run([sys.executable, "-m", "venv", "--clear", str(engines.VENV)], limit_s=120)
        pip = [
            str(engines.VENV / "bin" / "python"), "-m", "pip", "install", "--quiet",
            "--disable-pip-version-check",
        ]  # fmt: skip
        run([*pip, "--require-hashes", "--requirement", str(engines.LOCK)], limit_s=600)
        done.touch()


def _terminated(*_: object) -> None:
    sys.exit(EXIT_TERMINATED)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    main()
