"""Fetches Kafka's jars once into the user's cache, with PySpark's Ivy: the embedded broker needs only Java."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from app.embedded import digests
from ringfence_kafka.errors import PrerequisiteError
from ringfence_kafka.process import java

KAFKA_VERSION: Final = "4.1.0"
"""Default version."""
VERSION_VARIABLE: Final = "RINGFENCE_KAFKA_VERSION"
"""Environment variable for the version of all embedded brokers, also in tests."""
SCALA_VERSION: Final = "2.13"

LOGGING: Final = ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3")
"""Binding of slf4j 1.7, which Kafka logs through but leaves to others; this one fits its log4j-core."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Jars that belong together, with their dependencies."""

    title: str
    folder: str
    """Name of the folder in the cache."""
    dependencies: tuple[tuple[str, str, str], ...]
    """Organisation, name and revision. The jar of the first dependency must exist after a fetch."""
    megabytes: int
    digests: Mapping[str, str] | None = field(default=None, hash=False)
    """File name → SHA-256 of every allowed jar; None = Ivy's own checksum comparison suffices."""


_IVY_TIMEOUT_S: Final = 900
_LINES_SHOWN: Final = 15


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for files that can be fetched again: ``RINGFENCE_CACHE``, or the XDG cache folder."""
    if own := environ.get("RINGFENCE_CACHE"):
        return Path(own).absolute()
    if xdg := environ.get("XDG_CACHE_HOME"):
        return Path(xdg).absolute() / "ringfence"
    return Path.home() / ".cache" / "ringfence"


def known_versions() -> list[str]:
    """Return the Kafka versions whose jars have known digests, the oldest first."""
    prefix, suffix = f"kafka_{SCALA_VERSION}-", ".jar"
    found = [
        name.removeprefix(prefix).removesuffix(suffix) for name in digests.known() if name.startswith(prefix)
    ]
    return sorted(found, key=order)


def order(version: str) -> tuple[int, ...]:
    """Return the sort key of a version."""
    return tuple(map(int, version.split(".")))


def chosen_version(version: str | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """Return ``version``, else the version from the environment, else the default.

    Raises:
        PrerequisiteError: The digests of its jars are unknown.
    """
    chosen = (environ.get(VERSION_VARIABLE) or KAFKA_VERSION) if version is None else version
    if chosen not in (known := known_versions()):
        source = VERSION_VARIABLE if version is None else "--kafka-version"
        raise PrerequisiteError(
            f"{source}: Kafka {chosen} is not among the versions whose jars are known by their digests, so nothing is fetched: "
            f"name one of {', '.join(known)}"
        )
    return chosen


def kafka(version: str) -> Bundle:
    """Return the bundle of the broker in a known version."""
    return Bundle(
        f"Kafka {version}",
        f"kafka-{version}",
        (("org.apache.kafka", f"kafka_{SCALA_VERSION}", version), LOGGING),
        45,
        digests.known(),
    )


def resolve(environ: Mapping[str, str] = os.environ, bundle: Bundle | None = None) -> Path:
    """Return the folder with the jars, and fetch them the first time.

    Default: the broker in the chosen version.

    A rename makes the folder appear when it is complete. If two processes come at once, one fetches and the
    other waits.

    Raises:
        PrerequisiteError: Java or Ivy is missing, the cache is not writable, or fetching failed or gave
            unknown jars.
    """
    bundle = bundle or kafka(chosen_version(environ=environ))
    cache = cache_directory(environ)
    target = cache / bundle.folder
    if target.is_dir():
        return target
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f".{target.name}.lock"):
            if not target.is_dir():
                _fetch(bundle, target, cache / f"ivy-{bundle.folder}", environ)
    except OSError as error:
        raise PrerequisiteError(
            f"{error.filename or cache}: {error.strerror or error}: make {cache} writable, "
            "or name another folder with RINGFENCE_CACHE"
        ) from error
    return target


def class_path(environ: Mapping[str, str] = os.environ, bundle: Bundle | None = None) -> str:
    """Return the class path of a bundle, by default broker and tools. Raises as :func:`resolve` does."""
    # Java itself expands the star. 45 paths would fill the process list.
    return str(resolve(environ, bundle) / "*")


def _fetch(bundle: Bundle, target: Path, ivy_cache: Path, environ: Mapping[str, str]) -> None:
    program, ivy = java.find(environ), _ivy_jar()
    for abandoned in target.parent.glob(f".{target.name}-*"):  # of a killed process: this one has the lock
        shutil.rmtree(abandoned, ignore_errors=True)
    click.echo(f"Fetching {bundle.title} ({bundle.megabytes} MB, once) into {target} ...", err=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
        jars = Path(scratch) / "jars"
        jars.mkdir()
        description = Path(scratch) / "ivy.xml"
        description.write_text(_ivy_description(bundle), "utf-8")
        command = [
            str(program), "-cp", str(ivy), "org.apache.ivy.Main", "-ivy", str(description), "-confs", "default",
            "-cache", str(ivy_cache), "-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]",
        ]  # fmt: skip
        if settings := environ.get("RINGFENCE_IVY_SETTINGS"):
            command += ["-settings", settings]
        _run_ivy(bundle, command)
        _, name, revision = bundle.dependencies[0]
        if not (jars / f"{name}-{revision}.jar").is_file():
            raise PrerequisiteError(
                f"Ivy reported success, yet {name}-{revision}.jar is not in {jars}: remove {ivy_cache}, retry"
            )
        if bundle.digests is not None:
            digests.require(jars, bundle.digests, bundle.title, ivy_cache)
        jars.rename(target)
    # It is kept on failure, so that the next try continues. After a success its jars exist twice.
    shutil.rmtree(ivy_cache, ignore_errors=True)


def _run_ivy(bundle: Bundle, command: list[str]) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - arguments are our own
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_IVY_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PrerequisiteError(
            f"The jars of {bundle.title} could not be fetched within {_IVY_TIMEOUT_S} s: check the network "
            "and run again; it continues where it stopped; for a mirror set RINGFENCE_IVY_SETTINGS to an "
            "Ivy settings file"
        ) from error
    if done.returncode != 0:
        last = "\n".join(f"  {line}" for line in done.stdout.strip().splitlines()[-_LINES_SHOWN:])
        raise PrerequisiteError(
            f"The jars of {bundle.title} could not be fetched (Ivy ended with {done.returncode}): check the network and proxy "
            "(JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=...), or name a mirror in an Ivy settings file "
            f"(RINGFENCE_IVY_SETTINGS), and run again. Ivy's last lines:\n{last}"
        )


def _ivy_description(bundle: Bundle) -> str:
    dependencies = "\n".join(
        f'    <dependency org="{org}" name="{name}" rev="{revision}" conf="default->default"/>'
        for org, name, revision in bundle.dependencies
    )
    return (
        '<ivy-module version="2.0">\n'
        '  <info organisation="ringfence" module="jars"/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{dependencies}\n  </dependencies>\n"
        "</ivy-module>\n"
    )


def _ivy_jar() -> Path:
    """Return the Ivy jar of the installed PySpark, without importing PySpark."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PrerequisiteError(
            "Kafka is fetched by the Ivy that PySpark brings along, and PySpark is not installed: pip install "
            "'ringfence[reconcile]', or use the image ringfence-reconcile"
        )
    found = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise PrerequisiteError(
            f"no ivy-*.jar in {Path(spec.origin).parent / 'jars'}: reinstall with 'make setup'"
        )
    return found[-1]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock that the system releases at any end of the process."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
