"""The Spark session, and how Spark's Kafka source gets into the cluster."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyspark
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from conf.errors import ConfigurationError, PrerequisiteError
from conf.settings import KafkaSettings
from reconcile.failures import SPARK

CONNECTOR: Final = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
"""Spark's own Kafka source, of the version of the installed PySpark."""
DRIVER_MEMORY: Final = "4g"
"""Where Spark runs in this process; a heap grows only as far as it is used."""
ROWS_A_TASK: Final = 100_000
FEW: Final = 200_000
"""Where a run may read fewer records, compiling takes longer than what is compiled: two records took 51 CPU seconds so, and 31
without."""
_FEW_SETTINGS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
_FEW_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
TASKS_MIN: Final = 2
TASKS_MAX: Final = 2_000
_LINES_SHOWN: Final = 15
_END_LIMIT_S: Final = 10.0
_POLL_RECORDS: Final = 20_000
"""Spark asks for the log's ends at each poll: with Kafka's 500 records most of the time goes there."""
_FETCH_BYTES: Final = 8 * 2**20
_FETCH_WAIT_MS: Final = 10


@contextlib.contextmanager
def session(
    master: str, environ: Mapping[str, str] = os.environ, *, records: int = FEW
) -> Iterator[SparkSession]:
    """A session: of ``spark-submit`` when it runs us, else one of our own, stopped at the end.

    What the JVM says goes to a file, which an error names: on the terminal it would bury the result. ``records`` is how many
    may be read at most.

    Raises:
        PrerequisiteError: Spark does not start; with its last lines.
    """
    ours = not submitted(environ)
    with _jvm_log(quiet=ours) as log:
        try:
            spark = builder(master, submitted=not ours, environ=environ, records=records).getOrCreate()
        except (PySparkException, OSError) as error:
            raise PrerequisiteError(_why_not(error, log)) from error
        try:
            spark.sparkContext.setLogLevel("ERROR")
            yield spark
        finally:
            # Where the JVM is gone already the error that told so is the one to raise; results are kept, or not, before.
            with contextlib.suppress(*SPARK, OSError):
                spark.stop()
            if ours:
                _end_jvm()


def submitted(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether ``spark-submit`` runs us."""
    return "PYSPARK_GATEWAY_PORT" in environ


def _end_jvm() -> None:
    """Wait for the JVM: it would end by itself, somewhat after us."""
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - PySpark has no other way to end what it has started
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    process: Any = gateway.proc
    with contextlib.suppress(*SPARK, OSError):
        gateway.shutdown()
        process.stdin.close()
    try:
        process.wait(_END_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()


def builder(
    master: str, *, submitted: bool, environ: Mapping[str, str], records: int
) -> SparkSession.Builder:
    """What a session is made from; under ``spark-submit`` the process is there, and so are its jars."""
    conf = SparkConf()
    conf.setAppName("ringfence reconcile")
    conf.set("spark.sql.session.timeZone", "UTC")
    conf.set("spark.redaction.regex", "(?i)secret|password|passphrase|token|access[.]?key|jaas|keystore")
    conf.set("spark.sql.redaction.options.regex", "(?i)secret|password|token|jaas|keystore")
    if not submitted:
        conf.setMaster(master)
        conf.set("spark.jars.packages", CONNECTOR)
        conf.setIfMissing("spark.ui.enabled", "false")
        conf.set("spark.ui.showConsoleProgress", "false")
        if settings := environ.get("RINGFENCE_IVY_SETTINGS"):
            conf.set("spark.jars.ivySettings", settings)
        if master.startswith("local"):
            conf.setIfMissing("spark.driver.memory", DRIVER_MEMORY)
            if records < FEW:
                conf.setIfMissing("spark.driver.extraJavaOptions", _FEW_JVM)
                for key, value in _FEW_SETTINGS.items():
                    conf.setIfMissing(key, value)
            # Nobody but this machine has to reach it, whatever its name resolves to.
            conf.setIfMissing("spark.driver.host", "127.0.0.1")
            conf.setIfMissing("spark.driver.bindAddress", "127.0.0.1")
    return SparkSession.builder.config(conf=conf)


def fit_to(spark: SparkSession, records: int) -> None:
    """As many tasks as there is work, unless somebody has set it: few records would wait for empty tasks."""
    if spark.sparkContext.getConf().contains("spark.sql.shuffle.partitions"):
        return
    tasks = max(TASKS_MIN, spark.sparkContext.defaultParallelism, records // ROWS_A_TASK)
    spark.conf.set("spark.sql.shuffle.partitions", str(min(tasks, TASKS_MAX)))


def kafka_options(kafka: KafkaSettings) -> dict[str, str]:
    """Options of the Kafka source. PEM texts travel in them, since executors have no files of ours.

    Raises:
        OSError: a PEM file cannot be read.
        ConfigurationError: a private key is none.
    """
    options = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": kafka.security_protocol,
        "isolation.level": "read_committed",
        "max.poll.records": str(_POLL_RECORDS),
        "max.partition.fetch.bytes": str(_FETCH_BYTES),
        # At the end of a log the broker would hold a fetch back for half a second, and what Spark asks behind it.
        "fetch.max.wait.ms": str(_FETCH_WAIT_MS),
    }
    if kafka.uses_ssl and kafka.ssl_cafile:
        options["ssl.truststore.type"] = "PEM"
        options["ssl.truststore.certificates"] = Path(kafka.ssl_cafile).read_text("utf-8")
    if kafka.uses_ssl and kafka.ssl_certfile:
        options["ssl.keystore.type"] = "PEM"
        options["ssl.keystore.certificate.chain"] = Path(kafka.ssl_certfile).read_text("utf-8")
        options["ssl.keystore.key"] = _pkcs8(Path(kafka.ssl_keyfile))
    if kafka.uses_sasl:
        plain = kafka.sasl_mechanism == "PLAIN"
        module = "plain.PlainLoginModule" if plain else "scram.ScramLoginModule"
        options["sasl.mechanism"] = kafka.sasl_mechanism
        options["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module} required "
            f"username={_quoted(kafka.sasl_username)} password={_quoted(kafka.sasl_password())};"
        )
    return {f"kafka.{name}": value for name, value in options.items()}


def _pkcs8(file: Path) -> str:
    """A private key as Java reads it; OpenSSL and Python read older formats too.

    Raises:
        ConfigurationError: it is none, or locked.
    """
    text = file.read_text("utf-8")
    if "-----BEGIN PRIVATE KEY-----" in text:
        return text
    try:
        key = serialization.load_pem_private_key(text.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigurationError(
            f"kafka.ssl_keyfile = {file}: not a private key that can be read without a password ({error}): "
            f"`openssl pkcs8 -topk8 -nocrypt -in {file}` makes one"
        ) from error
    kind, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, kind, plain).decode()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@contextlib.contextmanager
def _jvm_log(*, quiet: bool) -> Iterator[Path | None]:
    """Have child processes write their standard error to a file. Ours goes on where it went, as does Python's."""
    if not quiet:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="ringfence-reconcile-") as folder:
        path = Path(folder) / "spark.log"
        ours = os.dup(2)
        stderr, sys.stderr = sys.stderr, os.fdopen(ours, "w", buffering=1, closefd=False)
        with path.open("wb") as file:
            os.dup2(file.fileno(), 2)
        try:
            yield path
        finally:
            sys.stderr.flush()
            sys.stderr = stderr
            os.dup2(ours, 2)
            os.close(ours)


def _why_not(error: Exception, log: Path | None) -> str:
    text = log.read_text("utf-8", "replace") if log else ""
    last = "\n".join(f"  {line}" for line in text.strip().splitlines()[-_LINES_SHOWN:])
    if isinstance(error, FileNotFoundError) or "JAVA_HOME is not set" in text or "java: not found" in text:
        return (
            "Spark does not start, as there is no Java: install Java 17 or newer (Debian, Ubuntu: "
            "openjdk-17-jre-headless) or set JAVA_HOME"
        )
    if "unresolved dependency" in text or "UNRESOLVED DEPENDENCIES" in text:
        return (
            f"Spark's Kafka connector {CONNECTOR} could not be fetched: check the network and proxy, or set "
            f"RINGFENCE_IVY_SETTINGS to an Ivy settings file that names a mirror, and run again. Ivy's last lines:\n{last}"
        )
    return f"Spark does not start ({error}): mend what its last lines name\n{last}"
