"""Contenders in Java: compiled once, against the jars that they run with."""

import functools
import subprocess
import tempfile
from typing import Final

from app.embedded import jars
from app.embedded.jars import KAFKA_VERSION, LOGGING, Bundle
from bench.errors import BenchError
from bench.measure import ROOT
from ringfence_kafka.process import java

STREAMS: Final = Bundle(
    f"Kafka Streams {KAFKA_VERSION}",
    f"kafka-streams-{KAFKA_VERSION}",
    (("org.apache.kafka", "kafka-streams", KAFKA_VERSION), LOGGING),
    95,
)
HEAP: Final = ("-Xmx1G",)
_SOURCES: Final = ROOT / "bench" / "contenders"
_LIMIT_S: Final = 120
_LINES_SHOWN: Final = 10


def program() -> str:
    """Return the Java that runs them.

    Raises:
        PrerequisiteError: there is none.
    """
    return str(java.find())


def command(bundle: Bundle, main: str, *arguments: str) -> tuple[str, ...]:
    """Return the arguments behind the program. The first time, it is compiled.

    Raises:
        BenchError: it does not compile, or the compiler is missing.
        PrerequisiteError: no Java, or jars that could not be fetched.
    """
    classes = _compiled(bundle, main)
    return (*HEAP, "-cp", f"{classes.name}:{jars.class_path(bundle=bundle)}", main, *arguments)


@functools.cache
def _compiled(bundle: Bundle, main: str) -> tempfile.TemporaryDirectory[str]:
    """Return a folder with its classes, which goes with this process. Not from the source when it is run: the compiler would stay in its memory."""
    folder = tempfile.TemporaryDirectory(prefix="ringfence-bench-java-")
    libraries = ":".join(str(path) for path in sorted(jars.resolve(bundle=bundle).glob("*.jar")))
    done = subprocess.run(
        [program(), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-d", folder.name, "-cp", libraries,
         "-sourcepath", str(_SOURCES), str(_SOURCES / f"{main}.java")],
        capture_output=True, text=True, timeout=_LIMIT_S, check=False,
    )  # fmt: skip
    if done.returncode == 0:
        return folder
    said = done.stderr.strip() or done.stdout.strip()
    if "jdk.compiler" in said:
        raise BenchError(
            "this Java has no compiler: install a JDK (Debian, Ubuntu: openjdk-17-jdk-headless), or set JAVA_HOME to one"
        )
    raise BenchError(f"{main}.java does not compile:\n" + "\n".join(said.splitlines()[:_LINES_SHOWN]))
