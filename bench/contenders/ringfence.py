"""Ringfence itself: the worker as anyone would start it, on one address."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.embedded import ports
from bench.errors import BenchError
from bench.measure import ROOT, environment
from ringfence_kafka.protocol import wire_names

HOST: Final = "127.0.0.1"
TOPICS_LIMIT_S: Final = 120


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that is ready to be started; its topics exist."""

    command: tuple[str, ...]
    """To be run from the root of the project, after ``python``."""
    output: str
    forward: str
    """Topic by which records travel to their home; empty = there is none."""
    more_topics: tuple[str, ...]
    """Other topics that were created for it."""


def prepare(
    folder: Path,
    bootstrap: str,
    app_id: str,
    address: str,
    ring: int,
    partitioner: str = "murmur2",
    partitions: int = 4,
    lanes: int = 0,
) -> Worker:
    """Write the configuration, create the topics that are not there.

    Args:
        folder: For configuration and state.
        bootstrap: The broker.
        app_id: The app.
        address: Name of the address.
        ring: IDs that lanes of one partition remember. Lanes of several remember twice as many of each, as they do not read them in step.
        partitioner: ``murmur2`` is the traffic's own; with ``crc32`` most messages are not at home where they arrive.
        partitions: Of the input.
        lanes: Lanes of the address; 0 = one for each partition.

    Raises:
        BenchError: they could not be created.
    """
    folder.mkdir(parents=True)
    config = folder / "ringfence.toml"
    config.write_text(
        f"""\
[kafka]
bootstrap_servers = "{bootstrap}"
[app]
id = "{app_id}"
instance = "bench"
data_dir = "{folder / "data"}"
[address_defaults]
partitions = {partitions}
[[addresses]]
name = "{address}"
id_cache_size = {2 * ring * partitions // lanes if lanes else ring}
partitioner = "{partitioner}"
lanes = {lanes}
""",
        "utf-8",
    )
    create = [sys.executable, "-m", "app", "topics", "create", "--config", str(config)]
    done = subprocess.run(
        create,
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TOPICS_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise BenchError(f"topics create ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    forward = "" if lanes == 1 else wire_names.forward_topic(app_id, address)
    return Worker(
        ("-m", "app", "worker", "--config", str(config), "--web-port", str(ports.choose(HOST))),
        wire_names.accepted_topic(address),
        forward,
        (
            wire_names.changelog_topic(app_id, address),
            wire_names.quarantine_topic(address),
            *([forward] if forward else []),
        ),
    )
