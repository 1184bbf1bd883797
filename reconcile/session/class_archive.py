"""Halves the next start of Spark's JVM: keeps paths of the Kafka connector, and an archive of its classes.

Both lie beside Ivy's files. If they are missing or stale, Spark starts as usual, and they are made again.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from reconcile.session.spark_errors import SPARK

_IVY: Final = "~/.ivy2.5.2"  # default folder of Spark's Ivy
_FOLDER: Final = "ringfence"
_LOCK: Final = "ringfence.lock"
ARCHIVES: Final = "RINGFENCE_CLASS_ARCHIVE"
"""Environment variable. With ``off``, archives are used but not made."""
_ARCHIVE: Final = ".jsa"
_OTHERS: Final = ("spark.jars", "spark.driver.extraClassPath", "spark.driver.extraJavaOptions")
"""Settings of this machine that prevent an archive, because someone set them for a reason."""
_MORE_CLASSES: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
"""Environment variables that Spark adds to its class path."""
_PLAIN: Final = re.compile(r"[\w./@+-]+", re.ASCII)
"""Path without characters that a shell or Java interprets."""
_ARTIFACT: Final = re.compile(r"(?:.*_)?(?P<name>[a-zA-Z][\w.-]*?)-\d[^/]*\.jar")
_HASHED: Final = 16


def ivy_folder(theirs: Mapping[str, str]) -> Path:
    """Return the folder in which Ivy keeps jars. ``theirs``: defaults of this machine's Spark."""
    return Path(theirs.get("spark.jars.ivy", _IVY)).expanduser()


@contextlib.contextmanager
def fetching_alone(folder: Path) -> Iterator[None]:
    """Lock Spark's start against other processes of this user until the connector is fetched.

    Ivy fails if two processes fill an empty cache at once. A folder that cannot be locked is used without a
    lock.
    """
    with contextlib.ExitStack() as lock:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            fcntl.flock(lock.enter_context((folder / _LOCK).open("a")), fcntl.LOCK_EX)
        yield


@dataclass
class ClassArchive:
    """Archive for one set of packages, Spark and Java."""

    ivy: Path  # Ivy's folder
    packages: str
    java: Path
    home: Path  # Spark's folder
    environ: Mapping[str, str]

    def __post_init__(self) -> None:
        self._folder = self.ivy / _FOLDER
        self._archives = self.environ.get(ARCHIVES) != "off"
        self._jars = self._known()

    @classmethod
    def for_packages(
        cls, theirs: Mapping[str, str], packages: str, java: Path | None, environ: Mapping[str, str]
    ) -> "ClassArchive | None":
        """Return the archive, None if not possible here. ``theirs``: defaults of this machine's Spark."""
        folder = ivy_folder(theirs)
        plain = _PLAIN.fullmatch(str(folder)) and folder.is_absolute()
        if java is None or not plain or any(other in theirs for other in _OTHERS):
            return None
        home: str = _find_spark_home()  # type: ignore[no-untyped-call]
        return cls(folder, packages, java, Path(home), environ)

    @property
    def class_path(self) -> str | None:
        """Jars of the connector; None = Ivy must find them."""
        return None if self._jars is None else os.pathsep.join(map(str, self._jars))

    @property
    def options(self) -> str:
        """JVM options for the archive."""
        if self._jars is None or not self._only_jars():
            return ""
        archive = self._archive()
        if not archive.exists():
            return "-XX:+RecordDynamicDumpInfo" if self._archives else ""
        return f"-XX:SharedArchiveFile={archive}" if archive.stat().st_size else ""

    def keep(self, spark: SparkSession, stopped: Callable[[], bool]) -> None:
        """Keep paths and archive at the end of the session, when all classes are loaded.

        ``stopped``: whether a signal has ended the JVM.
        """
        with contextlib.suppress(OSError, *SPARK):
            if not self.ivy.is_dir():
                return
            if self._jars is None:
                self._keep_jars(spark)
            elif self._archives and self._only_jars() and not self._archive().exists():
                self._keep_archive(spark, stopped)

    def _only_jars(self) -> bool:
        """Return whether the class path has only jars: Java makes no archive of a folder with files."""
        if any(self.environ.get(class_) for class_ in _MORE_CLASSES):
            return False
        settings = Path(self.environ.get("SPARK_CONF_DIR") or self.home / "conf")
        return not settings.is_dir() or not any(settings.iterdir())

    def _known(self) -> list[Path] | None:
        try:
            kept = json.loads((self._folder / "connector.json").read_text("utf-8"))
            jars = [(Path(name), size) for name, size in kept["jars"]]
            there = kept["packages"] == self.packages and all(
                path.stat().st_size == size for path, size in jars
            )
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return [path for path, _ in jars] if there and jars else None

    def _keep_jars(self, spark: SparkSession) -> None:
        """Keep the jars that Ivy found and Spark does not have."""
        found = spark.sparkContext.getConf().get("spark.jars") or ""
        jars = [Path(part.removeprefix("file:")) for part in found.split(",") if part]
        own = {_name(path) for path in (self.home / "jars").glob("*.jar")}
        needed = [jar for jar in jars if _name(jar) not in own]
        if needed and all(_PLAIN.fullmatch(str(path)) for path in needed):
            sizes = [(str(path), path.stat().st_size) for path in needed]
            self._write("connector.json", json.dumps({"packages": self.packages, "jars": sizes}))

    def _write(self, name: str, text: str) -> None:
        self._folder.mkdir(exist_ok=True)
        made = self._folder / f"{name}.{os.getpid()}"
        made.write_text(text, "utf-8")
        made.replace(self._folder / name)

    def _archive(self) -> Path:
        """Return the archive's path, whose name changes with the jars. Java itself checks the jars."""
        looked_at = [self.java.resolve(), *sorted((self.home / "jars").glob("*.jar")), *(self._jars or ())]
        digest = hashlib.sha256()
        for item in looked_at:
            stat = item.stat()
            digest.update(f"{item} {stat.st_size} {stat.st_mtime_ns}\n".encode())
        return self._folder / f"{digest.hexdigest()[:_HASHED]}{_ARCHIVE}"

    def _keep_archive(self, spark: SparkSession, stopped: Callable[[], bool]) -> None:
        archive = self._archive()
        for path in self._folder.glob(f"*{_ARCHIVE}"):
            path.unlink(missing_ok=True)
        # An empty file means that this Java cannot make an archive, and stops further tries. The attempt may
        # end the JVM.
        archive.touch()
        made = archive.with_suffix(f".{os.getpid()}")
        try:
            _dump(spark, made)
            made.replace(archive)
        finally:
            made.unlink(missing_ok=True)
            if stopped():
                archive.unlink(missing_ok=True)


def _name(jar: Path) -> str:
    """Return the jar's name without version and Ivy's prefix."""
    found = _ARTIFACT.fullmatch(jar.name)
    return found["name"] if found else jar.name


def _dump(spark: SparkSession, to: Path) -> None:
    """Do the same as ``jcmd PID VM.cds dynamic_dump FILE``; a Java runtime has no jcmd."""
    gateway: Any = spark.sparkContext._gateway
    jvm = gateway.jvm

    def array(kind: Any, *values: Any) -> Any:
        made = gateway.new_array(kind, len(values))
        for at, value in enumerate(values):
            made[at] = value
        return made

    anything, text, kind = jvm.java.lang.Object, jvm.java.lang.String, jvm.java.lang.Class
    bean = jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")
    texts = "[Ljava.lang.String;"
    takes = ("javax.management.ObjectName", "java.lang.String", "[Ljava.lang.Object;", texts)
    # call through the interface, because the server's own class is not accessible
    invoke = kind.forName("javax.management.MBeanServer").getMethod(
        "invoke", array(kind, *(kind.forName(take) for take in takes))
    )
    command = array(anything, array(text, "dynamic_dump", str(to)))
    server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
    invoke.invoke(server, array(anything, bean, "vmCds", command, array(text, texts)))
