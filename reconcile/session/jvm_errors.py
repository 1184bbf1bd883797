"""Reasons why Spark does not start, with the remedy or the JVM's last lines."""

import os
import re
from typing import Final

from py4j.protocol import Py4JJavaError, Py4JNetworkError

from reconcile.session.spark_errors import innermost
from ringfence_kafka.errors import PrerequisiteError

_LINES_SHOWN: Final = 15
_FRAME: Final = re.compile(r"\s+(at |\.\.\. \d+ more)")

_KNOWN: Final = {
    "unresolved dependency|UNRESOLVED DEPENDENCIES": (
        "Spark's Kafka connector {connector} could not be fetched: check the network and proxy, or set RINGFENCE_IVY_SETTINGS to an "
        "Ivy settings file that names a mirror, and run again. Ivy's last lines:{last}"
    ),
    r"(\S+)/cache/resolved-org\.apache\.spark-\S+ \((.+?)\)": (
        "Spark's Kafka connector {connector} cannot be kept in {0} ({1}): make that folder writable, or name another one as "
        "spark.jars.ivy in Spark's spark-defaults.conf"
    ),
    # The message has the name twice: the machine's name, and the name without an address.
    r"java\.net\.UnknownHostException: (\S+): \1: ": (
        "Spark does not start: this machine is called {0} and knows no address of that name: add it to /etc/hosts, or set "
        "SPARK_LOCAL_HOSTNAME=localhost where Spark runs here alone"
    ),
    "getSubject is not supported": (
        "Spark does not start: the Java of {java} is too new for it (Hadoop calls what Java 24 took away): set JAVA_HOME to a Java "
        "17 or 21"
    ),
    "All masters are unresponsive": (
        "Spark does not start: the program that listens at {master!r} is not a Spark master: start one "
        "there, or correct reconcile.master, or --master (a master's port is 7077 by default; 8080 is "
        "that of its page)"
    ),
    "Cannot call methods on a stopped SparkContext": (
        "Spark does not start: the master at {master!r} removed the run, because its executors failed one after the other. The logs of the "
        "workers have the reason (often no Java, no SPARK_HOME, or another Spark than PySpark's). No message and no result was changed: correct "
        "the workers, then run it again"
    ),
    r"Failed to create a temp directory \(under (.+?)\)": (
        "Spark does not start: it cannot make a folder below {0}: make it writable, or name another one (SPARK_LOCAL_DIRS, or "
        "spark.local.dir in spark-defaults.conf; JAVA_TOOL_OPTIONS=-Djava.io.tmpdir=… instead of /tmp)"
    ),
    r'(?m)^(?:Exception in thread "main" (?:[\w.$]+: )?|Error: (?!Could not create the Java|A fatal))(.+)$': "Spark does not start: {0}",
}
"""Pattern in the JVM's output or error → advice. The first match is used."""


def not_started(error: Exception, master: str, connector: str, said: str) -> PrerequisiteError:
    """Return the error to raise if Spark did not start. ``said``: output of its JVM."""
    lines = [line for line in said.strip().splitlines() if not _FRAME.match(line)]
    last = "".join(f"\n  {line}" for line in lines[-_LINES_SHOWN:])
    text = f"{said}\n{error}"
    for pattern, advice in _KNOWN.items():
        if found := re.search(pattern, text):
            java = os.environ.get("JAVA_HOME") or "PATH"
            return PrerequisiteError(
                advice.format(*found.groups(), master=master, connector=connector, java=java, last=last)
            )
    if isinstance(error, FileNotFoundError):
        return PrerequisiteError(
            f"Spark does not start: {error.filename}: {error.strerror}: unset SPARK_HOME, as PySpark brings Spark along"
        )
    if isinstance(error, Py4JNetworkError | ConnectionError):
        return PrerequisiteError(
            "Spark's JVM ended while it started: fix the problem in its last lines; without one, the "
            f"machine may have run out of memory: give it more:{last}"
        )
    if isinstance(error, Py4JJavaError):
        return PrerequisiteError(f"Spark does not start: {innermost(error)}")
    return PrerequisiteError(
        f"Spark does not start ({error}): fix what its last lines name:{last or ' no output'}"
    )
