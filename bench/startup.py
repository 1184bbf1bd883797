"""How each contender is started: its topics made, its configuration written, its program compiled."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import native
from app.embedded import jars
from bench import jvm, topics
from bench.contenders import ringfence
from bench.errors import BenchError
from bench.job import Job
from bench.measure import ROOT
from bench.traffic import PARTS, Plan

RINGFENCE: Final = "ringfence"
FORWARDED: Final = "forwarded"
COPY: Final = "bare copy"
TRANSACTIONS: Final = "transactions"
PYTHON: Final = "in Python"
JAVA: Final = "Java copy"
JAVA_RING: Final = "Java ring"
STREAMS: Final = "Kafka Streams"
LIBRDKAFKA: Final = "librdkafka ring"
QUIX: Final = "Quix Streams"
PLAIN: Final = "plain Faust"
COPIES: Final = (COPY, JAVA)
"""They let resends pass."""
QUIX_PYTHON: Final = ROOT / ".venv-bench" / "bin" / "python"
"""Python of an environment of its own: `make bench` makes it if the registry has the packages of bench/requirements.lock."""
CONTENDERS_FOLDER: Final = ROOT / "bench" / "contenders"


@dataclass(frozen=True, slots=True)
class Place:
    """Topics and files of a run."""

    bootstrap: str
    folder: Path
    """Is made."""
    name: str
    """Name of its group, and prefix of its own topics."""
    input: str
    plan: Plan

    @property
    def output(self) -> str:
        """Output topic of contenders that get its name."""
        return f"{self.name}-accepted"


@dataclass(frozen=True, slots=True)
class Ready:
    """A contender that can be started."""

    job: Job
    internal: tuple[str, ...] = ()
    """Topics that it has beside input and output."""


def prepare(contender: str, place: Place) -> Ready:
    """Make its topics and all that it needs.

    Raises:
        BenchError: it cannot be run here.
        PrerequisiteError: no Java, or jars that could not be fetched.
    """
    return PREPARES[contender](place)


def missing(contender: str) -> str:
    """Why it cannot be run here; empty = it can."""
    if contender == QUIX and not QUIX_PYTHON.is_file():
        return "not installed: `make bench` installs it where the registry has it (bench/requirements.lock)"
    return ""


def _worker(
    contender: str,
    place: Place,
    ring: int,
    partitioner: str = "murmur2",
    parts: int = 1,
    environ: tuple[tuple[str, str], ...] = (),
) -> Ready:
    plan = place.plan
    worker = ringfence.prepare(
        place.folder, place.bootstrap, place.name, place.input, ring, partitioner, plan.partitions
    )
    job = Job(
        contender, worker.command, place.name, place.input, worker.output, plan.partitions, plan.messages // parts,
        worker.forward, parts=parts, environ=environ,
    )  # fmt: skip
    return Ready(job, worker.more_topics)


def _ringfence(place: Place) -> Ready:
    return _worker(RINGFENCE, place, place.plan.ring)


def _in_python(place: Place) -> Ready:
    """Measure the same worker without the native core."""
    return _worker(PYTHON, place, place.plan.ring, environ=((native.VARIABLE, "off"),))


def _transactions(place: Place) -> Ready:
    """As many messages, as parts of transactions."""
    return _worker(TRANSACTIONS, place, place.plan.ring, parts=PARTS)


def _forwarded(place: Place) -> Ready:
    """Prepare a worker for the same traffic, with another partitioner in its configuration than its producer's."""
    return _worker(FORWARDED, place, place.plan.forwarded_ring, "crc32")


def _program(
    contender: str,
    place: Place,
    command: tuple[str, ...],
    program: str = sys.executable,
    internal: tuple[str, ...] = (),
    *,
    reports: bool = False,
) -> Ready:
    place.folder.mkdir(parents=True)
    topics.create(place.bootstrap, place.output, place.plan.partitions)
    plan = place.plan
    job = Job(
        contender, command, place.name, place.input, place.output, plan.partitions, plan.messages,
        reports=reports, program=program,
    )  # fmt: skip
    return Ready(job, internal)


def _options(place: Place) -> tuple[str, ...]:
    return (
        "--bootstrap",
        place.bootstrap,
        "--group",
        place.name,
        "--input",
        place.input,
        "--output",
        place.output,
    )


def _module(name: str, place: Place, *more: str) -> tuple[str, ...]:
    return ("-m", f"bench.contenders.{name}", *_options(place), *more)


def _copy(place: Place) -> Ready:
    return _program(COPY, place, _module("bare_copy", place, "--partitions", str(place.plan.partitions)))


def _plain(place: Place) -> Ready:
    command = _module(
        "plain_faust", place, "--partitions", str(place.plan.partitions), "--data", str(place.folder / "data")
    )
    return _program(PLAIN, place, command, internal=(f"{place.name}-seen-changelog",), reports=True)


def _librdkafka(place: Place) -> Ready:
    changelog = _changelog(place)
    command = _module("rdkafka_ring", place, "--changelog", changelog, "--ring", str(place.plan.ring))
    return _program(LIBRDKAFKA, place, command, internal=(changelog,))


def _quix(place: Place) -> Ready:
    if reason := missing(QUIX):
        raise BenchError(f"{QUIX}: {reason}")
    script = CONTENDERS_FOLDER / "quix_streams.py"
    command = (str(script), *_options(place), "--data", str(place.folder / "data"))
    internal = (f"changelog__{place.name}--{place.input}--default",)
    return _program(QUIX, place, command, str(QUIX_PYTHON), internal)


def _changelog(place: Place) -> str:
    name = f"{place.name}-ring"
    topics.create(place.bootstrap, name, place.plan.partitions, {"cleanup.policy": "compact"})
    return name


def _java(place: Place) -> Ready:
    command = jvm.command(
        jars.kafka(jars.chosen_version()), "PlainCopy", place.bootstrap, place.name, place.input, place.output
    )
    return _program(JAVA, place, command, jvm.program())


def _java_ring(place: Place) -> Ready:
    changelog = _changelog(place)
    command = jvm.command(
        jars.kafka(jars.chosen_version()), "RingCopy", place.bootstrap, place.name, place.input, place.output, changelog,
        str(place.plan.ring),
    )  # fmt: skip
    return _program(JAVA_RING, place, command, jvm.program(), (changelog,))


def _streams(place: Place) -> Ready:
    threads = min(os.cpu_count() or 1, place.plan.partitions)
    command = jvm.command(
        jvm.STREAMS, "RingStreams", place.bootstrap, place.name, place.input, place.output,
        str(place.folder / "data"), str(place.plan.ring), str(threads),
    )  # fmt: skip
    return _program(STREAMS, place, command, jvm.program(), (f"{place.name}-ring-changelog",))


PREPARES: Final[Mapping[str, Callable[[Place], Ready]]] = MappingProxyType(
    {
        RINGFENCE: _ringfence,
        PYTHON: _in_python,
        TRANSACTIONS: _transactions,
        FORWARDED: _forwarded,
        COPY: _copy,
        JAVA: _java,
        JAVA_RING: _java_ring,
        STREAMS: _streams,
        LIBRDKAFKA: _librdkafka,
        QUIX: _quix,
        PLAIN: _plain,
    }
)
