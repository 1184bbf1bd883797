from pathlib import Path
from typing import Any

import pytest

from ringfence_kafka.config import load
from ringfence_kafka.config.origins import Value, effective, line_numbers

FILE = """\
[kafka]
security_protocol = "PLAINTEXT"
properties = { "bootstrap.servers" = "kafka-1:9092" }

[address_defaults]
id_cache_size = 7

[[addresses]]
name = "orders-eu"
duplicate_id_headers = [
  "a",
  # [kafka]
  "b",
]

[[addresses]]
name = "orders-*"
id_cache_size = 8

[[bridges]]
name = "one"
source_topic = "x"
target_address = "y"

[[bridges]]
name = "two"
source_topic = "x"
target_address = "y"
[bridges.add_headers]
Authorization = "Basic c2VjcmV0"
from = "here"
[bridges.target]
bootstrap_servers = "paris:9092"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ringfence.toml"
    path.write_text(FILE)
    return path


def _values(path: Path, environ: dict[str, str], **options: Any) -> dict[str, Value]:
    document = load.read_document(path, environ, load.Connection(**options))
    found = list(effective(document, load.validate(document.data)))
    assert len({value.key for value in found}) == len(found)
    return {value.key: value for value in found}


@pytest.mark.parametrize(
    ("key", "value", "origin"),
    [
        ("kafka.bootstrap_servers", "kafka-1:9092", ":3"),
        ("kafka.sasl_mechanism", "", "default"),
        ("address_defaults.id_cache_size", 7, ":6"),
        ("addresses[orders-eu].duplicate_id_headers", ["a", "b"], ":10"),
        ("addresses[orders-eu].id_cache_size", 8, ":18 (orders-*)"),
        ("addresses[orders-eu].accepted_topic", "orders-eu.accepted", "from the name"),
        ("bridges[one].window", None, "default"),
        ("bridges[two].add_headers.from", "here", ":31"),
        ("bridges[two].target.bootstrap_servers", "paris:9092", ":33"),
        ("app.id", "rf", "RINGFENCE_APP__ID"),
    ],
)
def test_origins(file: Path, key: str, value: object, origin: str) -> None:
    found = _values(file, {"RINGFENCE_APP__ID": "rf"})[key]

    assert (found.value, found.origin.removeprefix(str(file))) == (value, origin)


def test_variables(file: Path) -> None:
    """A variable for defaults or for a table is the origin of all that comes from it."""
    defaults, table = "RINGFENCE_ADDRESS_DEFAULTS__PARTITIONS", "RINGFENCE_KAFKA__PROPERTIES"
    found = _values(file, {defaults: "3", table: '{ "retry.backoff.ms" = 5 }'})

    assert found["addresses[orders-eu].partitions"].origin == defaults
    assert found["kafka.properties.retry.backoff.ms"].origin == table


def test_options_and_java_properties(file: Path, tmp_path: Path) -> None:
    """Options of the command line override the file; a file of Java properties is the origin of what it says."""
    java = tmp_path / "client.properties"
    java.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=me\nsasl.password=geheim\n"
        "sasl.oauthbearer.assertion.private.key.passphrase=geheim\nretry.backoff.ms=5\n"
    )
    properties = {"fetch.max.wait.x": "9"}

    found = _values(file, {}, bootstrap_servers="k:1", command_config=str(java), properties=properties)

    assert found["kafka.bootstrap_servers"] == Value("kafka.bootstrap_servers", "k:1", "--bootstrap-server")
    assert found["kafka.sasl_username"] == Value("kafka.sasl_username", "me", str(java))
    assert found["kafka.security_protocol"].origin == str(java)
    assert found["kafka.properties.retry.backoff.ms"].origin == str(java)
    assert found["kafka.properties.fetch.max.wait.x"].origin == "-X"
    assert "geheim" not in str(found)


def test_secrets_are_hidden(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No header with a login is shown, nor a password in the place of its variable's name, nor the user of a URL."""
    for secret in ("hunter2", "Hunter-3"):
        monkeypatch.setenv(secret, "x")
    kafka = {
        "SECURITY_PROTOCOL": "SASL_SSL", "SASL_MECHANISM": "OAUTHBEARER", "SASL_OAUTH_TOKEN_URL": "https://me:geheim@idp/token",
        "SASL_OAUTH_CLIENT_ID": "id", "SASL_OAUTH_CLIENT_SECRET_ENV": "Hunter-3", "PROPERTIES": "{}",
    }  # fmt: skip
    environ = {f"RINGFENCE_KAFKA__{key}": value for key, value in kafka.items()}
    found = _values(file, environ | {"RINGFENCE_APP__WEB_TOKEN_ENV": '"hunter2"'})

    for key in (
        "bridges[two].add_headers.Authorization",
        "app.web_token_env",
        "kafka.sasl_oauth_client_secret_env",
    ):
        assert found[key].value == "(hidden)"
    assert found["kafka.sasl_oauth_token_url"].value == "https://(hidden)@idp/token"


def test_lines_of_unusual_files() -> None:
    """Texts over several lines, dotted keys, tables within tables of lists, and lines that end as on Windows."""
    text = (
        'a.b = 1\r\n\r\n[x."y.z"]\r\nk = """\r\n[no]\r\nn = 1\r\n"""\r\n[[m]]\r\n[[m.n]]\r\nk = 1\r\n[[m.n]]\r\n'
        "k = 2\r\n[m.n.o]\r\nk = 3\r\n[[m]]\r\nl = [ { k = 1 } ]"
    )
    found = line_numbers(text)

    assert found["a", "b"] == 1
    assert found["x", "y.z", "k"] == 4
    assert [found["m", 0, "n", number, "k"] for number in (0, 1)] == [10, 12]
    assert found["m", 0, "n", 1, "o", "k"] == 14
    assert found["m", 1, "l", 0, "k"] == 16
