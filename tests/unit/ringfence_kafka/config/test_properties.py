import subprocess
from pathlib import Path
from typing import Any

import pytest

from app.worker.faust_app import RingfenceApp
from app.worker.parts import WorkerParts
from reconcile.spark.source_options import kafka_options
from ringfence_kafka.auth import access_errors, client_properties
from ringfence_kafka.auth.client_options import client_options, producer_options
from ringfence_kafka.auth.client_properties import JAVA_NAMES
from ringfence_kafka.auth.tls import confluent_options
from ringfence_kafka.config.load import Connection, load, validate
from ringfence_kafka.config.properties import KEYS, OWNED, parse_java
from ringfence_kafka.config.settings import KafkaSettings, Settings
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.process import java

SECRET = 'hunter2 "and" more'
JAAS = (
    'org.apache.kafka.common.security.scram.ScramLoginModule required username="ringfence" '
    'password="hunter2 \\\\"and\\\\" more";'
)  # as it stands in a file of Java properties


def _kafka(**kafka: Any) -> KafkaSettings:
    return validate({"kafka": kafka}).kafka


def _fault(**kafka: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        client_properties.check(_kafka(**kafka))
    return str(caught.value).removeprefix("settings: ")


@pytest.fixture
def command_config(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={JAAS}\nclient.dns.lookup=use_all_dns_ips\n"
    )
    return path


def _load(tmp_path: Path, text: str, connection: Connection, **environ: str) -> Settings:
    path = tmp_path / "ringfence.toml"
    path.write_text(text)
    return load(path, environ, connection)


def test_each_client_gets_what_it_knows() -> None:
    """Each client gets the properties that it knows, under its own names, and none of the others."""
    properties = {
        "client.dns.lookup": "use_all_dns_ips", "compression.type": "lz4", "request.timeout.ms": 7000,
        "socket.keepalive.enable": True, "receive.buffer.bytes": "65536",
    }  # fmt: skip
    kafka = _kafka(properties=properties)

    assert client_options(kafka)["request_timeout_ms"] == 7000
    assert producer_options(kafka)["compression_type"] == "lz4"
    assert "compression_type" not in client_options(kafka)
    assert producer_options(_kafka(properties={"compression.type": "none"}))["compression_type"] is None
    told = confluent_options(kafka)
    assert (told["socket.keepalive.enable"], told["client.dns.lookup"]) == ("true", "use_all_dns_ips")
    assert "receive.buffer.bytes" not in told
    source = kafka_options(kafka)
    assert (source["kafka.receive.buffer.bytes"], source["kafka.request.timeout.ms"]) == ("65536", "7000")
    assert "kafka.socket.keepalive.enable" not in source
    of_others = {"client.dns.lookup", "receive.buffer.bytes", "socket.keepalive.enable"}
    assert set(client_properties.ignored_properties(kafka)) == of_others


def test_a_command_config_says_how_to_get_in(command_config: Path) -> None:
    """A command config in Java's notation gives login and password, and the password stays in the file."""
    kafka = _kafka(command_config=str(command_config))

    login = (kafka.security_protocol, kafka.sasl_mechanism, kafka.sasl_username)
    assert login == ("SASL_PLAINTEXT", "SCRAM-SHA-512", "ringfence")
    assert kafka.secret("sasl_password") == SECRET
    assert client_options(kafka)["sasl_plain_password"] == SECRET
    assert SECRET not in repr(kafka)
    assert kafka.properties == {"client.dns.lookup": "use_all_dns_ips"}
    assert kafka.secret_place("sasl_password") == str(command_config)


def test_pem_stores(tmp_path: Path) -> None:
    pem = tmp_path / "all.pem"
    pem.write_text("")
    path = tmp_path / "client.properties"
    path.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={pem}\nssl.keystore.type=PEM\n"
        f"ssl.keystore.location={pem}\nssl.endpoint.identification.algorithm=https\n"
    )

    kafka = _kafka(command_config=str(path))

    assert {kafka.ssl_cafile, kafka.ssl_certfile, kafka.ssl_keyfile} == {str(pem)}


@pytest.mark.parametrize("name", OWNED)
def test_what_ringfence_owns(name: str) -> None:
    """A property that Ringfence sets itself is refused with the reason, whatever its value."""
    assert f"properties: {name}: {OWNED[name]}: remove it" in _fault(properties={name: "1"})


def test_nothing_is_both() -> None:
    assert not KEYS.keys() & OWNED.keys()
    assert not client_properties.AIOKAFKA.keys() & (KEYS.keys() | OWNED.keys())


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"reqest.timeout.ms": "1"}, "no client knows it: did you mean 'request.timeout.ms'?"),
        ({"fetch.mx.bytes": "1"}, "fetch.mx.bytes: no client knows it: remove it"),  # near to a refused one
        ({"request.timeout.ms": "soon"}, "request.timeout.ms = 'soon': write a number of milliseconds"),
        ({"compression.type": "rar"}, "compression.type = 'rar': write one of none, gzip, snappy, lz4, zstd"),
        ({"socket.keepalive.enable": "maybe"}, "socket.keepalive.enable = 'maybe': Expected bool value"),
        ({"ssl.truststore.location": "a.jks"}, "a truststore of type JKS is Java's own: export it as PEM"),
        ({"ssl.endpoint.identification.algorithm": ""}, "are always verified: remove it"),
        ({"sasl.password": SECRET}, "secrets are not allowed in a configuration or on a command line"),
        ({"ssl.key.pem": SECRET}, "ssl.key.pem: write it into a file, and name that as ssl_keyfile"),
        ({"a": [1]}, "is not text"),
        ({"bootstrap.servers": "k:1"}, "it says bootstrap_servers = 'k:1', and the table 'table:1': remove one"),
    ],
)  # fmt: skip
def test_refused(properties: dict[str, Any], complaint: str) -> None:
    said = _fault(bootstrap_servers="table:1", properties=properties)

    assert complaint in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("group.id=mine", "group.id: app.id is the workers' group"),
        ("a=1\n\n=x", "line 3 is not a property"),
        ("ssl.truststore.location=a.jks\nssl.truststore.password=b", "truststore of type JKS is Java's"),
        ("sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required;", "no login that Ringfence knows"),
        ("sasl.jaas.config=a.PlainLoginModule required username=x;", "needs username and password"),
        ('sasl.jaas.config=a.PlainLoginModule required username="x" password="y"', "its end is missing: write ; after the last option"),
    ],
)  # fmt: skip
def test_refused_files(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(text)

    said = _fault(command_config=str(path))

    assert str(path) in said
    assert complaint in said
    assert "nowhere.properties: No such file or directory" in _fault(command_config="nowhere.properties")


@pytest.mark.parametrize(
    ("protocol", "mechanism", "told"),
    [("SASL_PLAINTEXT", "PLAIN", 1), ("SASL_SSL", "PLAIN", 0), ("SASL_PLAINTEXT", "SCRAM-SHA-512", 0)],
)
def test_secrets_that_anybody_can_read(
    protocol: str, mechanism: str, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password over an unencrypted connection causes a note, unless it does not travel."""
    monkeypatch.setenv("PASSWORD", SECRET)
    login = {"sasl_mechanism": mechanism, "sasl_username": "u", "sasl_password_env": "PASSWORD"}
    kafka = _kafka(security_protocol=protocol, **login)

    assert len(access_errors.readable(kafka)) == told


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}), ("# a comment\n! another\n\n  \t\n", {}), ("a = b c ", {"a": "b c "}), ("a b", {"a": "b"}), ("a", {"a": ""}),
        ("a=b=c:d", {"a": "b=c:d"}), ("a\\=b=c", {"a=b": "c"}), ("a=\\u00e9\\t\\#", {"a": "é\t#"}),
        ("a=one \\\n   two\nb=3", {"a": "one two", "b": "3"}),
        ("a=ends with one\\\\\nb=3", {"a": "ends with one\\", "b": "3"}),
        ("a=b\r\nc=#no comment\r\n", {"a": "b", "c": "#no comment"}),
    ],
)  # fmt: skip
def test_files_of_java(text: str, expected: dict[str, str]) -> None:
    """A properties file may have comments, separators, escapes and continued lines."""
    assert parse_java(text) == expected


def test_the_command_line_comes_first(tmp_path: Path) -> None:
    text = '[kafka]\nbootstrap_servers = "file:1"\n[kafka.properties]\n"request.timeout.ms" = "8"\n"bootstrap.servers" = "file:1"\n'
    over = Connection("flag:1", None, {"bootstrap.servers": "x:1", "retry.backoff.ms": "9"})

    kafka = _load(tmp_path, text, over, RINGFENCE_KAFKA__BOOTSTRAP_SERVERS="environment:1").kafka

    assert kafka.bootstrap_servers == "flag:1"
    assert kafka.properties == {"request.timeout.ms": "8", "retry.backoff.ms": "9"}


def test_a_command_config_of_the_command_line_is_alone(
    tmp_path: Path, command_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command config on the command line replaces the login of [kafka], and its servers only if it names others."""
    monkeypatch.setenv("OTHER", "x")
    text = (
        '[kafka]\nbootstrap_servers = "file:1"\nsecurity_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\nsasl_username = "other"\n'
        'sasl_password_env = "OTHER"\n'
    )
    option = Connection(command_config=str(command_config))
    kafka = _load(tmp_path, text, option).kafka

    login = (kafka.security_protocol, kafka.sasl_username, kafka.secret("sasl_password"))
    assert login == ("SASL_PLAINTEXT", "ringfence", SECRET)
    assert kafka.bootstrap_servers == "file:1"
    command_config.write_text("bootstrap.servers=theirs:1\n")
    assert _load(tmp_path, text, option).kafka.bootstrap_servers == "theirs:1"


def test_without_a_file(tmp_path: Path) -> None:
    environ = {"RINGFENCE_KAFKA__BOOTSTRAP_SERVERS": "environment:1"}

    assert load(tmp_path / "no.toml", environ, optional=True).kafka.bootstrap_servers == "environment:1"


def test_clients_are_named() -> None:
    """Each client's name consists of application and instance, or is the one it was given."""
    source = {"bootstrap_servers": "s:1"}
    bridge = {"name": "b", "source_topic": "t", "target_address": "a", "source": source}
    settings = validate({"app": {"id": "shop", "instance": "w1"}, "bridges": [bridge]})

    for kafka in (settings.kafka, settings.bridges[0].source):
        assert kafka is not None
        assert client_options(kafka)["client_id"] == "shop-w1"
        assert confluent_options(kafka)["client.id"] == "shop-w1"
        assert kafka_options(kafka)["kafka.client.id"] == "shop-w1"
        assert kafka.client_id_of("host-1-ab") == "shop-host-1-ab"
        assert kafka.instance_of("shop-host-1-ab") == "host-1-ab"
    assert RingfenceApp(WorkerParts(settings)).conf.broker_client_id == "shop-w1"
    assert validate({"app": {"id": "shop"}}).with_web_port(7).kafka.client_id.endswith("-7")


def test_java_names() -> None:
    """The names for Java are those of the consumer that comes with the embedded broker."""
    jars = sorted((Path.home() / ".cache" / "ringfence").glob("kafka-*/kafka-clients-*.jar"))
    if not jars:
        pytest.skip("the embedded broker has not been fetched yet")
    path = f"{jars[-1].parent}/*"
    main = "org.apache.kafka.clients.consumer.ConsumerConfig"
    page = subprocess.run([java.find(), "-cp", path, main], capture_output=True, text=True, check=True).stdout

    assert {part.split('"', 1)[0] for part in page.split('<h4><a id="')[1:]} == JAVA_NAMES
