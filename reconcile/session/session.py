"""The Spark session: configuration, start, and complete shutdown."""

import contextlib
import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyspark
from py4j.java_gateway import JavaMember
from py4j.protocol import STATIC_PREFIX
from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from reconcile.session.class_archive import ClassArchive, fetching_alone, ivy_folder
from reconcile.session.executor_watch import TIMEOUT_S, served
from reconcile.session.jvm import Jvm, JvmError
from reconcile.session.jvm_errors import not_started
from reconcile.session.master import check
from reconcile.session.spark_errors import SPARK
from reconcile.session.stop_signals import Stop
from reconcile.session.temp_dir import own_folder
from ringfence_kafka.process import java
from ringfence_kafka.process.step_progress import BRIEF_S, steps

CONNECTOR: Final = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
"""Spark's own Kafka source, in the version of the installed PySpark."""
DRIVER_MEMORY: Final = "4g"  # for Spark in this process; the heap grows only as needed
ROWS_A_TASK: Final = 100_000
FEW: Final = 200_000  # below this number of records, compiling queries takes longer than running them
_FEW_SETTINGS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
_PLANNING: Final = {
    # do not render texts of plans for a UI that is off
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "1000",
    # deriving constraints for hundreds of columns repeatedly saves nothing here
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    # PySpark would send Java the Python line behind each column, in a dozen calls
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
MANY: Final = 3_000_000
"""Records below which Java's second compiler does not pay: for two million, 38 CPU seconds to save 23."""
_SOON: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=192m"
"""The first compiler alone. A run over 40 addresses fills its default cache of 48 MB, and Java compiles code again."""
_LATER: Final = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Ten times Java's thresholds: else it also compiles code of the many plans that run for a second."""
TASKS_MIN: Final = 2
TASKS_MAX: Final = 2_000
_SETTING: Final = re.compile(r"(spark\.[^\s=:]+)\s*[=:]?\s*(.*)")
_FETCH_LOOK_S: Final = 3.0
_FUNCTIONS: Final = "org.apache.spark.sql.functions"


@contextlib.contextmanager
def session(
    master: str,
    stop: Stop,
    environ: Mapping[str, str] = os.environ,
    *,
    records: int = FEW,
    executor_timeout_s: float = TIMEOUT_S,
) -> Iterator[SparkSession]:
    """Yield the session of ``spark-submit``, or an own session that is stopped with its JVM.

    From now on the signals of ``stop`` end the JVM too. ``records``: upper bound of the records to read;
    ``executor_timeout_s``: time that tasks may wait without an executor.

    Raises:
        PrerequisiteError: Spark does not start. The message has its last lines.
        NoExecutorsError: No executor came in time.
    """
    if submitted(environ):
        try:
            conf = configured(master, submitted=True, environ=environ, records=records)
            spark = SparkSession.builder.config(conf=conf).getOrCreate()
        except (*SPARK, OSError) as error:
            raise not_started(error, master, CONNECTOR, "") from error
        stop.install()
        try:
            with served(spark, executor_timeout_s):
                yield _quiet(spark)
        finally:
            with contextlib.suppress(*SPARK, OSError):
                spark.stop()
        return
    # Py4J logs a trace at each call to a dead JVM. Without a handler, logging would print it to stderr.
    logging.getLogger().addHandler(logging.NullHandler())
    quick = _quick(master, environ)
    conf = configured(master, submitted=False, environ=environ, records=records, quick=quick)
    with own_folder() as folder, _alone(quick, environ) as alone, _jvm(conf, folder, stop) as jvm:
        try:
            with steps() as progress:
                progress.say(f"Spark starts, with master {master}")
                progress.start_step("starting Spark")
                SparkContext(conf=conf, gateway=jvm.connect(_Fetching(jvm)))
                alone.close()
                stop.install()
                spark = _quiet(SparkSession.builder.getOrCreate())
        except (*SPARK, OSError, JvmError) as error:
            raise not_started(error, master, CONNECTOR, jvm.said()) from error
        try:
            with served(spark, executor_timeout_s):
                yield spark
            if quick is not None and stop.number is None:
                with steps(brief_s=BRIEF_S) as progress:
                    progress.start_step("saving files that let the next run start sooner")
                    quick.keep(spark, lambda: stop.number is not None)
        finally:
            if stop.number is None:
                # If the JVM has died, an error that reports it is already raised. Stopping again adds
                # nothing.
                with contextlib.suppress(*SPARK, OSError), warnings.catch_warnings(action="ignore"):
                    spark.stop()


@contextlib.contextmanager
def _alone(quick: ClassArchive | None, environ: Mapping[str, str]) -> Iterator[contextlib.ExitStack]:
    """Hold the lock for a start that may fetch the connector. The caller releases it by closing the stack."""
    with contextlib.ExitStack() as alone:
        if quick is None or quick.class_path is None:
            alone.enter_context(fetching_alone(ivy_folder(_defaults(environ))))
        yield alone


def _quiet(spark: SparkSession) -> SparkSession:
    spark.sparkContext.setLogLevel("ERROR")
    find_functions(spark)
    return spark


def find_functions(spark: SparkSession) -> None:
    """Look up the Java functions behind columns once, and keep them where PySpark looks for them.

    PySpark asks Java for class and method at each call of a function: a third of all calls to Java in a run.
    These places are private, so a test counts the calls.
    """
    java: Any = spark.sparkContext._jvm
    for name in (_FUNCTIONS, "PythonUtils"):
        found = getattr(java, name)
        for method in dir(found):
            if not hasattr(type(found), method):
                member = JavaMember(method, None, STATIC_PREFIX + found._fqn, found._gateway_client)
                vars(found)[method] = member
        setattr(java, name, found)
    java.functions = getattr(java, _FUNCTIONS)  # PySpark's short name of the same class


def required(master: str, environ: Mapping[str, str] = os.environ) -> None:
    """Check that Spark can start; under ``spark-submit`` it has started.

    Raises:
        ConfigurationError: Spark does not support the master's URL.
        PrerequisiteError: Java is missing or not usable, or the master's address does not answer.
    """
    if not submitted(environ):
        check(master)
        java.find(environ, of="Spark", home_only=True)


@contextlib.contextmanager
def _jvm(conf: SparkConf, folder: Path, stop: Stop) -> Iterator[Jvm]:
    """Yield a JVM and end it after the block. Raises PrerequisiteError if it cannot be started."""
    started: list[Jvm] = []
    try:
        with stop.held():  # a signal between start and registration would leave the JVM running
            try:
                started.append(Jvm(conf, folder))
            except OSError as error:
                raise not_started(error, conf.get("spark.master") or "", CONNECTOR, "") from error
            stop.ends(started[0].terminate, started[0].kill)
        yield started[0]
    finally:
        for jvm in started:
            if stop.number is None:
                jvm.end()
            else:
                jvm.end_now()
        SparkContext._gateway = SparkContext._jvm = None


class _Fetching:
    """Prints a line once if Ivy downloads the connector."""

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm
        self._look_at = time.monotonic() + _FETCH_LOOK_S

    def __call__(self) -> None:
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _FETCH_LOOK_S
        if "downloading " in self._jvm.said():
            sys.stderr.write(f"fetching Spark's Kafka connector {CONNECTOR}, once ...\n")
            self._look_at = float("inf")


def submitted(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether ``spark-submit`` runs this process."""
    return "PYSPARK_GATEWAY_PORT" in environ


def configured(
    master: str,
    *,
    submitted: bool,
    environ: Mapping[str, str],
    records: int,
    quick: ClassArchive | None = None,
) -> SparkConf:
    """Return Spark's configuration. Under ``spark-submit``, process and jars exist already."""
    conf = SparkConf(loadDefaults=False)
    conf.setAppName("ringfence reconcile")
    conf.set("spark.sql.session.timeZone", "UTC")
    conf.set("spark.redaction.regex", "(?i)secret|password|passphrase|token|access[.]?key|jaas|keystore")
    conf.set("spark.sql.redaction.options.regex", "(?i)secret|password|token|jaas|keystore")
    if not submitted:
        conf.setMaster(master)
        theirs = _defaults(environ)
        if quick is None or quick.class_path is None:
            conf.set("spark.jars.packages", _packages(theirs))
        else:
            conf.set("spark.driver.extraClassPath", quick.class_path)
        ours = {"spark.ui.enabled": "false", **_PLANNING}
        conf.set("spark.ui.showConsoleProgress", "false")
        if settings := environ.get("RINGFENCE_IVY_SETTINGS"):
            conf.set("spark.jars.ivySettings", str(Path(settings).absolute()))
        if master.startswith("local"):
            ours["spark.driver.memory"] = DRIVER_MEMORY
            options = [
                quick.options if quick else "",
                _SOON if records < MANY else _LATER,
                "-XX:+UseSerialGC" if records < FEW else "-XX:+UseParallelGC",
            ]
            ours["spark.driver.extraJavaOptions"] = " ".join(filter(None, options))
            if records < FEW:
                ours |= _FEW_SETTINGS
            # only this machine must reach the driver, whatever its name resolves to
            ours |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        for key, value in ours.items():
            if key not in theirs:
                conf.set(key, value)
    return conf


def local_dir(environ: Mapping[str, str] = os.environ) -> str:
    """Return the first folder in which Spark stores data that does not fit into memory."""
    folders = environ.get("SPARK_LOCAL_DIRS") or _defaults(environ).get("spark.local.dir") or "/tmp"  # noqa: S108
    return folders.partition(",")[0]


def _packages(theirs: Mapping[str, str]) -> str:
    return ",".join(filter(None, (CONNECTOR, theirs.get("spark.jars.packages"))))


def _quick(master: str, environ: Mapping[str, str]) -> ClassArchive | None:
    """Return the class archive if Spark runs in a single JVM here, else None."""
    if not re.fullmatch(r"local(\[[^]]*\])?", master):
        return None
    theirs = _defaults(environ)
    return ClassArchive.for_packages(theirs, _packages(theirs), java.candidate(environ), environ)


def _defaults(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the Spark defaults of this machine, which options of a command line would override."""
    home: str = _find_spark_home()  # type: ignore[no-untyped-call]
    folder = environ.get("SPARK_CONF_DIR") or Path(home) / "conf"
    try:
        lines = (Path(folder) / "spark-defaults.conf").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    matches = (_SETTING.fullmatch(line.strip()) for line in lines)
    found = {match[1]: match[2] for match in matches if match is not None}
    if memory := environ.get("SPARK_DRIVER_MEMORY"):
        found["spark.driver.memory"] = memory
    return found


def fit_to(spark: SparkSession, records: int) -> None:
    """Set the number of tasks by the number of records, unless it is configured."""
    if spark.sparkContext.getConf().contains("spark.sql.shuffle.partitions"):
        return
    tasks = records // ROWS_A_TASK
    tasks = max(TASKS_MIN, spark.sparkContext.defaultParallelism, tasks) if records >= FEW else 1
    spark.conf.set("spark.sql.shuffle.partitions", str(min(tasks, TASKS_MAX)))
