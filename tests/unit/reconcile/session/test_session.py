"""Spark's settings for a cluster, and its errors as a person sees them; Spark is not started."""

import re
import shutil
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf
from pyspark.errors import PySparkException

from reconcile import job
from reconcile.job import _explained
from reconcile.session.jvm import JvmError
from reconcile.session.jvm_errors import not_started
from reconcile.session.session import CONNECTOR, DRIVER_MEMORY, configured
from reconcile.session.spark_errors import ROOM_BYTES, SPARK, of_spark
from reconcile.spark.source_options import kafka_options
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import ConfigurationError

KEY = ec.generate_private_key(ec.SECP256R1())


def _options(folder: Path, key: bytes) -> dict[str, str]:
    certificate, private = folder / "cert.pem", folder / "key.pem"
    private.write_bytes(key)
    certificate.write_text("certificate")
    return kafka_options(
        KafkaSettings(security_protocol="SSL", ssl_certfile=str(certificate), ssl_keyfile=str(private))
    )


def test_private_keys_are_given_as_java_reads_them(tmp_path: Path) -> None:
    """A file that is not a private key, or has a password, is named with the way out."""
    for kind in (PrivateFormat.TraditionalOpenSSL, PrivateFormat.PKCS8):
        given = KEY.private_bytes(Encoding.PEM, kind, serialization.NoEncryption())
        text = _options(tmp_path, given)["kafka.ssl.keystore.key"]
        key = serialization.load_pem_private_key(text.encode(), None)

        assert text.startswith("-----BEGIN PRIVATE KEY-----")
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert key.private_numbers() == KEY.private_numbers()
    locked = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    for wrong in (b"nonsense", locked):
        with pytest.raises(
            ConfigurationError, match=r"ssl_keyfile = .*key\.pem: not a private key.*openssl pkcs8"
        ):
            _options(tmp_path, wrong)


TRACE = """An error occurred while calling o55.parquet.
: org.apache.kafka.common.KafkaException: Failed to create new KafkaAdminClient
\tat org.apache.kafka.clients.admin.KafkaAdminClient.createInternal(KafkaAdminClient.java:551)
Caused by: org.apache.kafka.common.errors.InvalidConfigurationException: Invalid PEM keystore configs
\tat org.apache.kafka.common.security.ssl.DefaultSslEngineFactory.load(DefaultSslEngineFactory.java:1)
"""


def test_errors_of_spark() -> None:
    for text, said in (
        (TRACE, "InvalidConfigurationException: Invalid PEM keystore configs: nothing was kept"),
        ("one line", "Spark failed: one line: nothing was kept"),
        ("", "Spark failed: PySparkException: nothing was kept"),
        ("x\nCaused by: java.lang.OutOfMemoryError: Java heap space", "spark.driver.memory"),
        ("x\nCaused by: java.io.IOException: No space left on device", "the disk is full"),
        ("x\n: java.lang.ArithmeticException: long overflow", "message.timestamp.after.max.ms"),
        ("[KAFKA_DATA_LOSS] gone", "retention deleted records while they were read"),
        ("x\nCaused by: org.apache.kafka.common.errors.TimeoutException: Timed out", "the brokers do not answer any more (org.apache.kafka"),
        # An error from Py4J after the JVM was killed counts as Spark's, and not as a defect of the program.
        *((error, "Spark's JVM has ended, perhaps") for error in (
            Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "refused"),
            Py4JError("org.apache.spark.sql.functions.lit does not exist in the JVM"), Py4JError("An error occurred while calling o4275.isDefined"),
        )),
    ):  # fmt: skip
        error = PySparkException(text) if isinstance(text, str) else text
        message = str(_explained(error, "/state", None, "local"))

        assert isinstance(error, SPARK)
        assert said in message
        assert "\n" not in message


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the disk that is full, if it can be found out."""
    for full, said in (
        ("/spark", "Spark sorts below spark.local.dir (/spark): make room there"),
        ("/state", "results go to reconcile.state_dir (/state): make room there"),
        ("/out", "results go to --out (/out): make room there"),
        (None, "Spark sorts below spark.local.dir (/spark), and results go to reconcile.state_dir (/state), and results go to --out"),
    ):  # fmt: skip
        monkeypatch.setenv("SPARK_LOCAL_DIRS", "/spark,/other")
        free = defaultdict(lambda: SimpleNamespace(free=2 * ROOM_BYTES), {full: SimpleNamespace(free=0)})
        monkeypatch.setattr(shutil, "disk_usage", free.__getitem__)
        error = PySparkException("x\nCaused by: java.io.IOException: No space left on device")

        assert str(_explained(error, "/state", "/out", "local")).startswith(f"the disk is full: {said}")


def test_pyspark_stumbles_over_a_jvm_that_was_killed() -> None:
    """PySpark's own assertion about an error's reason is replaced by the lost connection; an assertion of ours stays."""
    lost = Py4JError("An error occurred while calling o2161.json")
    stumbled: BaseException | None = None
    try:
        try:
            raise lost
        except Py4JError:
            raise AssertionError("Undefined error message parameter for error class: CANNOT_PARSE_DATATYPE")  # noqa: B904
    except AssertionError as error:
        stumbled = error

    assert stumbled is not None
    assert of_spark(stumbled) is lost
    assert of_spark(AssertionError("ours")) is None


def test_the_job_as_a_program_ends_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job ends with exit code 2 after any failure, because 1 means that records do not agree."""
    config = tmp_path / "ringfence.toml"
    config.write_text('[[addresses]]\nname = "orders"\n')
    monkeypatch.setattr(job, "run_job", lambda *_: int("none"))

    assert job.main(["--config", str(config)]) == 2
    internal = "reconcile: internal error, please report it with the lines above: ValueError"
    assert internal in capsys.readouterr().err.splitlines()[-1]


IVY = """:::: ERRORS
\tServer access error at url http://127.0.0.1:1/maven2 (java.net.ConnectException: Connection refused)
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: org.apache.spark#x;4.0.0: not found]
\tat org.apache.spark.deploy.SparkSubmitUtils$.resolveMavenCoordinates(SparkSubmitUtils.scala:1)
"""
MAIN = 'Exception in thread "main" '


def test_spark_does_not_start() -> None:
    """The JVM's output is searched for the cause. The error adds the remedy and leaves out the trace."""
    for said, told in (
        ("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.", "removed the run, because its executors failed"),
        (IVY, "connector mvn:x could not be fetched: .*RINGFENCE_IVY_SETTINGS.*127.0.0.1:1/maven2"),
        (
            MAIN + "java.io.FileNotFoundException: /home/rf/.ivy2.5.2/cache/resolved-org.apache.spark-spark-submit-parent"
            "-1-1.0.xml (Permission denied)",
            r"connector mvn:x cannot be kept in /home/rf/.ivy2.5.2 \(Permission denied\): .*spark.jars.ivy",
        ),
        (
            f"{MAIN}java.lang.ExceptionInInitializerError\nCaused by: java.net.UnknownHostException: pod-7: pod-7: Temporary failure",
            "this machine is called pod-7 and knows no address of that name: .*SPARK_LOCAL_HOSTNAME=localhost",
        ),
        ("java.lang.UnsupportedOperationException: getSubject is not supported", "the Java of .* is too new for it"),
        (
            "ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All masters are unresponsive! Giving up.",
            "the program that listens at 'spark://h:1' is not a Spark master",
        ),
        ("Failed to create a temp directory (under /full) after 10 attempts!", "cannot make a folder below /full"),
        (MAIN + "org.apache.spark.SparkException: set HADOOP_CONF_DIR", "start: set HADOOP_CONF_DIR$"),
        ("Error: Unrecognized option: --x\nUsage: spark-submit", "start: Unrecognized option: --x$"),
        ("Invalid maximum heap size: -Xmx4x\nError: Could not create the Java Virtual Machine.", "heap size: -Xmx4x"),
        ("", "its JVM ended with 1.*no output"),
    ):  # fmt: skip
        message = str(not_started(JvmError("its JVM ended with 1"), "spark://h:1", "mvn:x", said))

        assert re.search(told, message, re.DOTALL), message
        assert "\tat " not in message
        killed = not_started(Py4JNetworkError("empty"), "local[*]", "mvn:x", "ERROR SparkUI: Failed to bind")
        assert re.search("JVM ended while it started.*Failed to bind", str(killed), re.DOTALL)


def test_what_the_machine_s_settings_say(tmp_path: Path) -> None:
    """spark-defaults.conf counts, as docs/reconcile.md says: what is on the command line would come before it."""
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.ui.enabled true\nspark.driver.memory  8g\nspark.driver.host=10.0.0.1\nspark.sql.adaptive.enabled:true\n"
        "spark.jars.packages\torg.apache.hadoop:hadoop-aws:3.4.1\n"
    )
    none = str(tmp_path / "none")

    def told(folder: str, **environ: str) -> SparkConf:
        environ["SPARK_CONF_DIR"] = folder
        return configured("local[*]", submitted=False, environ=environ, records=0)

    theirs, ours = told(str(tmp_path)), told(none)
    assert {key: value for key, value in ours.getAll() if theirs.get(key) is None} == {
        "spark.driver.memory": DRIVER_MEMORY, "spark.driver.host": "127.0.0.1", "spark.sql.adaptive.enabled": "false",
    }  # fmt: skip
    assert theirs.get("spark.ui.enabled") == "false"
    assert theirs.get("spark.jars.packages") == f"{CONNECTOR},org.apache.hadoop:hadoop-aws:3.4.1"
    assert ours.get("spark.jars.packages") == CONNECTOR
    assert told(none, SPARK_DRIVER_MEMORY="2g").get("spark.driver.memory") is None
