"""The data folder of a broker: its cluster ID, and the Kafka version that formatted it."""

import base64
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from app.embedded import jars, server_files
from app.embedded.broker_process import raise_if_refused, relevant_lines
from ringfence_kafka.errors import PrerequisiteError

_VERSION: Final = "kafka.version"
_TIMEOUT_S: Final = 60


def new_cluster_id() -> str:
    """Return a UUID in base64, as Kafka writes it."""
    # Kafka's command line takes a leading dash for an option. A leading letter keeps 122 of 128 bits.
    return "R" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]


def prepare(directory: Path, version: str, java_command: Sequence[str]) -> None:
    """Format the data folder if it is new, else check that this version of Kafka can read it.

    Raises:
        PrerequisiteError: A later version formatted it, or formatting failed.
    """
    if not (directory / server_files.DATA / "meta.properties").exists():  # Kafka writes it last
        format_new(directory, java_command, new_cluster_id())
        (directory / _VERSION).write_text(version + "\n", "utf-8")
        return
    try:
        formatted = (directory / _VERSION).read_text("utf-8").strip()
    except FileNotFoundError:  # the file was lost, or another program formatted the folder
        formatted = jars.KAFKA_VERSION
    if jars.order(version) < jars.order(formatted):
        raise PrerequisiteError(
            f"{directory} was formatted by Kafka {formatted}, whose metadata Kafka {version} cannot read: run {formatted} or a later "
            "version, or name another folder with --dir"
        )


def format_new(directory: Path, java_command: Sequence[str], cluster: str) -> None:
    """Format a data folder for this cluster. Raises as :func:`prepare` does."""
    arguments = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", "server.properties"]
    try:
        done = subprocess.run(  # noqa: S603 - arguments are our own
            [*java_command, *arguments],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PrerequisiteError(
            f"{directory / server_files.DATA} was not formatted within {_TIMEOUT_S} s: run it again when the machine is less busy"
        ) from error
    if done.returncode != 0:
        raise_if_refused(done.stdout)
        raise PrerequisiteError(
            f"{directory / server_files.DATA} could not be formatted: fix what Kafka names, or remove "
            f"the folder:\n{relevant_lines(done.stdout)}"
        )
