"""What Spark is told of a cluster, and what of its errors a person is told: no Spark is started."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from conf.errors import ConfigurationError
from conf.settings import KafkaSettings
from reconcile import job
from reconcile.failures import SPARK, SparkError
from reconcile.job import _explained
from reconcile.kafka import Cluster
from reconcile.session import kafka_options

KEY = ec.generate_private_key(ec.SECP256R1())


def _options(folder: Path, key: bytes) -> dict[str, str]:
    (folder / "key.pem").write_bytes(key)
    (folder / "cert.pem").write_text("certificate")
    return kafka_options(
        KafkaSettings(
            security_protocol="SSL",
            ssl_certfile=str(folder / "cert.pem"),
            ssl_keyfile=str(folder / "key.pem"),
        )
    )


@pytest.mark.parametrize("kind", [PrivateFormat.TraditionalOpenSSL, PrivateFormat.PKCS8])
def test_private_keys_are_given_as_java_reads_them(tmp_path: Path, kind: PrivateFormat) -> None:
    """Whatever format of PEM the other clients take."""
    given = KEY.private_bytes(Encoding.PEM, kind, serialization.NoEncryption())
    text = _options(tmp_path, given)["kafka.ssl.keystore.key"]
    key = serialization.load_pem_private_key(text.encode(), None)

    assert text.startswith("-----BEGIN PRIVATE KEY-----")
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.private_numbers() == KEY.private_numbers()


@pytest.mark.parametrize(
    "given",
    [b"nonsense", KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))],
    ids=["nonsense", "locked"],
)
def test_no_private_key(tmp_path: Path, given: bytes) -> None:
    """What is none, or has a password, is named with the way out."""
    with pytest.raises(
        ConfigurationError, match=r"ssl_keyfile = .*key\.pem: not a private key.*openssl pkcs8"
    ):
        _options(tmp_path, given)


TRACE = """An error occurred while calling o55.parquet.
: org.apache.kafka.common.KafkaException: Failed to create new KafkaAdminClient
\tat org.apache.kafka.clients.admin.KafkaAdminClient.createInternal(KafkaAdminClient.java:551)
Caused by: org.apache.kafka.common.errors.InvalidConfigurationException: Invalid PEM keystore configs
\tat org.apache.kafka.common.security.ssl.DefaultSslEngineFactory.load(DefaultSslEngineFactory.java:1)
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TRACE, "InvalidConfigurationException: Invalid PEM keystore configs: nothing was kept"),
        ("one line", "Spark failed: one line: nothing was kept"),
        ("", "Spark failed: PySparkException: nothing was kept"),
        ("x\nCaused by: java.lang.OutOfMemoryError: Java heap space", "spark.driver.memory"),
        ("x\nCaused by: java.io.IOException: No space left on device", "the disk is full"),
        ("x\n: java.lang.ArithmeticException: long overflow", "message.timestamp.after.max.ms"),
        ("[KAFKA_DATA_LOSS] gone", "retention deleted records while they were read"),
    ],
)
def test_errors_of_spark(text: str, said: str) -> None:
    """One line, with the innermost cause and what to do."""
    message = str(_explained(PySparkException(text)))

    assert said in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "refused")]
)
def test_a_jvm_that_was_killed(error: SparkError) -> None:
    """What then comes from Py4J is Spark's error too, and no fault of the program."""
    assert isinstance(error, SPARK)
    assert "Spark's JVM has ended: killed, perhaps" in str(_explained(error))


def test_clients_refuse_the_settings(tmp_path: Path) -> None:
    """A certificate that is none is named before anything is asked."""
    file = tmp_path / "ca.pem"
    file.write_text("nonsense")

    with pytest.raises(ConfigurationError, match=r"\[kafka\] cannot be used: .*ssl\.ca\.location"):
        Cluster(KafkaSettings(security_protocol="SSL", ssl_cafile=str(file)), "group")


def test_the_job_as_a_program_ends_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever goes wrong: 1 would say that records do not agree."""
    config = tmp_path / "ringfence.toml"
    config.write_text('[[addresses]]\nname = "orders"\n')
    monkeypatch.setattr(job, "run", lambda *_: int("none"))

    assert job.main(["--config", str(config)]) == 2
    assert "reconcile: unforeseen: ValueError" in capsys.readouterr().err.splitlines()[-1]
