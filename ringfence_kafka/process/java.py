"""Finds a Java that can run Kafka and Spark."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ringfence_kafka.errors import PrerequisiteError

MINIMUM: Final = 17
"""Minimum Java version of Kafka 4 brokers and of Spark 4."""

_TIMEOUT_S: Final = 30
_WAY_OUT: Final = (
    f"install Java {MINIMUM} or newer (Debian, Ubuntu: openjdk-17-jre-headless; Fedora: java-17-openjdk-headless; "
    "macOS: brew install openjdk@17) or set JAVA_HOME to one"
)
_VERSION: Final = re.compile(r'^\S+ version "(?:1\.)?(?P<feature>\d+)[^"]*"', re.MULTILINE)


def find(environ: Mapping[str, str] = os.environ, *, of: str = "Kafka", home_only: bool = False) -> Path:
    """Return the path of ``java``: in ``JAVA_HOME`` if there is one, else the first on ``PATH``.

    Args:
        environ: The environment.
        of: Program that needs Java, for errors.
        home_only: Whether that program uses ``PATH`` only if ``JAVA_HOME`` is not set, as Spark does.

    Raises:
        PrerequisiteError: there is none, or it is too old; the text says what to install.
    """
    java, home = candidate(environ), environ.get("JAVA_HOME")
    if home and home_only and (java is None or java.parent.parent != Path(home)):
        raise PrerequisiteError(
            f"JAVA_HOME={home} has no bin/java that can be run, and {of} looks for no other: set it to the folder of a Java "
            f"{MINIMUM} or newer, or unset it"
        )
    if java is None:
        looked = (
            f"JAVA_HOME={home} has no bin/java and PATH has none" if home else "not on PATH, no JAVA_HOME set"
        )
        raise PrerequisiteError(f"no java found ({looked}): {_WAY_OUT}")
    text = _describe(java)
    version = feature_version(text)
    if version is None:
        lines = text.strip().splitlines()
        raise PrerequisiteError(
            f"{java} did not report its version ({lines[0] if lines else 'no output'}): {_WAY_OUT}"
        )
    if version < MINIMUM:
        raise PrerequisiteError(f"{java} is Java {version}, {of} needs {MINIMUM} or newer: {_WAY_OUT}")
    return java


def feature_version(text: str) -> int | None:
    """Return the feature number in the output of ``java -version``: 17 for "17.0.15", 8 for "1.8.0_392"; None without one."""
    match = _VERSION.search(text)
    return int(match["feature"]) if match else None


def candidate(environ: Mapping[str, str]) -> Path | None:
    """Return the path that :func:`find` would check; None = there is none."""
    home = environ.get("JAVA_HOME")
    if home and os.access(Path(home) / "bin" / "java", os.X_OK):
        return Path(home) / "bin" / "java"
    # An empty PATH means that it has no programs; shutil.which would use its own default instead.
    found = shutil.which("java", path=environ["PATH"]) if environ.get("PATH") else None
    return Path(found) if found else None


def _describe(java: Path) -> str:
    """Return the output of ``java -version``, which is on stderr after a line for each JAVA_TOOL_OPTIONS."""
    try:
        done = subprocess.run(  # noqa: S603 - the user's own java
            [java, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr + done.stdout
