"""Errors of Spark, and of Kafka within it, as one line with a remedy."""

import shutil
from collections.abc import Mapping
from typing import Final, TypeAlias

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from ringfence_kafka.errors import BrokerUnavailableError, PrerequisiteError, RingfenceError

SPARK: Final = (PySparkException, Py4JError, ConnectionError)
"""Spark's own errors, unconverted errors of its tasks, and the loss of the JVM."""
SparkError: TypeAlias = PySparkException | Py4JError | ConnectionError

ROOM_BYTES: Final = 2**30  # a disk with less free space counts as full
_SILENT: Final = (
    "kafka.common.errors.TimeoutException",
    "kafka.common.errors.DisconnectException",
    "Cannot fetch record for offset",
)
_TOO_FAR_OFF: Final = (
    "a record's timestamp is further than 9.2e15 ms from 1970 (nanoseconds, perhaps), and Spark cannot read it: find it with "
    r"kcat -C -e -t TOPIC -f '%T %p %o\n' | awk '$1 > 9.2e15 || $1 < -9.2e15', fix the sender, have the broker refuse such records "
    "(the topic's message.timestamp.after.max.ms and before.max.ms), and wait until retention or kafka-delete-records.sh has deleted it"
)


class SparkFailedError(RingfenceError):
    """A Spark job failed, or its JVM ended."""


class EvidenceGoneError(RingfenceError):
    """Retention deleted records while they were read."""

    exit_code = 3


def of_spark(error: BaseException) -> SparkError | None:
    """Return Spark's error, also behind a failed assertion of PySpark; None = not Spark's."""
    if isinstance(error, AssertionError) and error.__context__ is not None:
        return of_spark(error.__context__)
    return error if isinstance(error, SPARK) else None


def explained(error: SparkError, *, gone: str, less: str, disk: str, after: str) -> RingfenceError:
    """Return the error to raise instead, while the session exists.

    ``gone``: advice if retention deleted records; ``less``: advice besides more memory; ``disk``: which disk
    is full, and advice; ``after``: end of the line for other causes.
    """
    text = str(error)
    if _jvm_gone(error, text):
        return SparkFailedError(
            "Spark's JVM has ended, perhaps because the machine ran out of memory: give it more, or "
            f"{less}; {after}"
        )
    known: dict[tuple[str, ...], RingfenceError] = {
        _SILENT: BrokerUnavailableError(
            f"the brokers do not answer any more ({innermost(error)}): look at them; {after}"
        ),
        ("KAFKA_DATA_LOSS", "OffsetOutOfRange"): EvidenceGoneError(
            f"retention deleted records while they were read: {gone}"
        ),
        ("TopicAuthorization", "Not authorized to access topics"): PrerequisiteError(
            "this user may not read all of the topics: allow Read on them; see docs/security.md"
        ),
        ("OutOfMemoryError",): SparkFailedError(
            f"Spark ran out of memory: give it more (spark.driver.memory), or {less}"
        ),
        ("long overflow",): SparkFailedError(f"{_TOO_FAR_OFF}; {after}"),
        ("No space left on device",): SparkFailedError(f"the disk is full: {disk}"),
    }
    for marks, found in known.items():
        if any(mark in text for mark in marks):
            return found
    return SparkFailedError(f"Spark failed: {innermost(error)}: {after}")


def without_room(places: Mapping[str, str]) -> list[str]:
    """Return descriptions of the folders without free space.

    If all have space now, it returns all of them, because Spark may have deleted its files. ``places``:
    description → folder.
    """
    return [said for said, folder in places.items() if _free(folder) < ROOM_BYTES] or list(places)


def _free(folder: str) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return ROOM_BYTES


def _jvm_gone(error: SparkError, text: str) -> bool:
    """Return whether the connection is lost: if within a call, Py4J reports it without a trace."""
    if isinstance(error, Py4JNetworkError | ConnectionError):
        return True
    return isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError) and "Trace:" not in text


def innermost(error: SparkError) -> str:
    """Return the innermost cause of a Java trace."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    causes = [line.partition(": ")[2] for line in lines if line.startswith(("Caused by: ", ": "))]
    return causes[-1] if causes else lines[0]
