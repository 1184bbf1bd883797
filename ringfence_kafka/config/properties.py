"""Properties with Kafka's own names, for ``[kafka]``, for Ringfence and for clients. Pure except for reading a file.

They come from ``[kafka.properties]``, from ``-X key=value``, and from the file of ``--command-config``. Only such a file may contain
secrets: configurations are shared, and all users of a machine can read a command line.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

_ENTRY: Final = re.compile(r"(?P<key>(?:\\.|[^\\=:\s])+)[ \t\f]*(?:[=:][ \t\f]*)?(?P<value>.*)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

KEYS: Final = {
    "bootstrap.servers": "bootstrap_servers",
    "metadata.broker.list": "bootstrap_servers",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_username",
    "sasl.oauthbearer.client.credentials.client.id": "sasl_oauth_client_id",
    "sasl.oauthbearer.client.id": "sasl_oauth_client_id",
    "sasl.oauthbearer.scope": "sasl_oauth_scope",
    "sasl.oauthbearer.token.endpoint.url": "sasl_oauth_token_url",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
}
"""Properties that are keys of ``[kafka]``."""

_STORES: Final = {"truststore": ("ssl_cafile",), "keystore": ("ssl_certfile", "ssl_keyfile")}
"""Stores of Java, and the keys that one in PEM format replaces."""

_PASSWORD: Final = "sasl_password"
_SECRETS: Final = {
    "sasl.password": _PASSWORD,
    "sasl.oauthbearer.client.credentials.client.secret": "sasl_oauth_client_secret",
    "sasl.oauthbearer.client.secret": "sasl_oauth_client_secret",
    "ssl.key.password": "ssl_key_password",
}
_JAAS: Final = "sasl.jaas.config"
_FILE_ONLY: Final = frozenset(
    f"sasl.oauthbearer.assertion.private.key.{name}" for name in ("pem", "passphrase")
)
"""Secrets that are passed to the clients that know them."""
_WRITTEN_OUT: Final = {
    "ssl.ca.pem": "ssl_cafile",
    "ssl.certificate.pem": "ssl_certfile",
    "ssl.key.pem": "ssl_keyfile",
}
"""PEM texts that only librdkafka accepts; the other clients need files, and a private key is a secret."""
_LOGIN: Final = re.compile(r"\s*(?P<module>[\w.$]+)\s+\w+\s+(?P<options>.*?);\s*", re.DOTALL)
_OPTION: Final = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s"';]+))""")
_LOGIN_MODULES: Final = ("PlainLoginModule", "ScramLoginModule", "OAuthBearerLoginModule")
_TOKENS: Final = "OAuthBearerLoginModule"
_CALLBACK: Final = "sasl.login.callback.handler.class"
_KAFKAS_CALLBACK: Final = re.compile(
    r"org\.apache\.kafka\.common\.security\.oauthbearer\.(secured\.)?OAuthBearerLoginCallbackHandler"
)
"""Java's handler of client credentials. Any other class is foreign code."""

_VERIFIED: Final = {
    "ssl.endpoint.identification.algorithm": "https",
    "enable.ssl.certificate.verification": "true",
}
"""The only allowed values of these properties."""

_CODE: Final = "it is code of another language, or for a client's own output"

OWNED: Final = {
    name: reason
    for reason, names in {
        "workers, consumers and bridges read from the leaders of partitions alone": "client.rack",
        "each client is named after app.id and app.instance": "client.id",
        "app.id is the workers' group and --consumer-group that of consumers, and Ringfence runs their membership itself": (
            "group.id group.instance.id group.protocol group.protocol.type group.remote.assignor heartbeat.interval.ms "
            "max.poll.interval.ms partition.assignment.strategy rebalance.timeout.ms session.timeout.ms"
        ),
        "exactly-once depends on it, so Ringfence sets it itself": (
            "acks auto.commit.interval.ms auto.offset.reset delivery.timeout.ms enable.auto.commit enable.auto.offset.store "
            "enable.gapless.guarantee enable.idempotence isolation.level max.in.flight max.in.flight.requests.per.connection "
            "message.send.max.retries message.timeout.ms request.required.acks retries transaction.timeout.ms "
            "transaction.two.phase.commit.enable transactional.id"
        ),
        "Ringfence sizes batches and fetches itself": (
            "batch.num.messages batch.size buffer.memory fetch.error.backoff.ms fetch.max.bytes fetch.max.wait.ms "
            "fetch.message.max.bytes fetch.min.bytes fetch.wait.max.ms linger.ms max.partition.fetch.bytes max.poll.records "
            "max.request.size message.max.bytes queue.buffering.max.kbytes queue.buffering.max.messages queue.buffering.max.ms "
            "queued.max.messages.kbytes queued.min.messages receive.message.max.bytes"
        ),
        "records are passed on byte for byte, and an address's partitioner says where they belong": (
            "interceptor.classes key.deserializer key.serializer partitioner partitioner.class partitioner.ignore.keys "
            "value.deserializer value.serializer"
        ),
        "Ringfence itself sees to it that changed topics are noticed in time": "allow.auto.create.topics metadata.max.age.ms topic.metadata.refresh.interval.ms",
        _CODE: (
            "builtin.features debug enable.random.seed log_level metric.reporters opaque plugin.library.paths "
            "sasl.client.callback.handler.class sasl.login.class security.providers "
            "ssl.engine.factory.class"
        ),
    }.items()
    for name in names.split()
}  # fmt: skip
"""Properties that Ringfence sets itself, with the reasons."""


class Translated(NamedTuple):
    """Properties by their use."""

    keys: dict[str, str]
    """Keys of ``[kafka]``, without secrets."""
    passed: dict[str, str]
    """Properties for the clients, with Kafka's names."""
    secrets: dict[str, str]
    """Secrets by key."""


NOTHING: Final = Translated({}, {}, {})


def read_properties(file: str) -> Translated:
    """Read and translate a file of Java properties.

    Raises:
        ValueError: the file cannot be read, or properties are not valid; the text has each one, and the remedy.
    """
    try:
        properties = parse_java(Path(file).read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not UTF-8: name a text file of key=value lines") from error
    except OSError as error:
        raise ValueError(
            f"{file}: {error.strerror or error}: name a readable file of Java properties"
        ) from error
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    return translate(properties, file, from_file=True)


def translate(properties: Mapping[str, object], origin: str, *, from_file: bool = False) -> Translated:
    """Sort properties by their use. ``origin``: where they come from, for errors.

    Raises:
        ValueError: properties are not valid; the text has each one, and the remedy.
    """
    found, faults = Translated({}, {}, {}), []
    for name, value in properties.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if not isinstance(value, str | int | float):
            faults.append(f"{origin}: {name} = {value!r} is not text, a number, true or false: write one")
            continue
        try:
            _sort_out(name, text, properties, found, from_file=from_file)
        except ValueError as error:
            faults.append(f"{origin}: {name}: {error}")
    if faults:
        raise ValueError("; ".join(faults))
    return found


def _sort_out(
    name: str, value: str, properties: Mapping[str, object], found: Translated, *, from_file: bool
) -> None:
    _refuse_misplaced(name, from_file=from_file)
    if name == _JAAS:
        _log_in(value, found)
    elif name in _SECRETS:
        found.secrets[_SECRETS[name]] = value
    elif name in KEYS:
        found.keys[KEYS[name]] = value
    elif parts := re.fullmatch(r"ssl\.(truststore|keystore)\.(\w+|certificate\.chain)", name):
        _open_store(parts[1], parts[2], value, properties, found)
    elif name in _VERIFIED:
        if value.lower() != _VERIFIED[name]:
            raise ValueError("certificates and host names of brokers are always verified: remove it")
    elif (name == _CALLBACK and _KAFKAS_CALLBACK.fullmatch(value)) or (
        name == "sasl.oauthbearer.method" and value in {"oidc", "default"}
    ):
        pass
    elif name == _CALLBACK:
        raise ValueError(f"{_CODE}: name a function of Python's as sasl_oauth_callback")
    elif name in OWNED:
        raise ValueError(f"{OWNED[name]}: remove it")
    else:
        found.passed[name] = value


def _refuse_misplaced(name: str, *, from_file: bool) -> None:
    if name in _WRITTEN_OUT:
        raise ValueError(f"write it into a file, and name that as {_WRITTEN_OUT[name]}")
    if not from_file and (name in _SECRETS or name == _JAAS or name in _FILE_ONLY):
        raise ValueError(
            "secrets are not allowed in a configuration or on a command line: use sasl_username and "
            "sasl_password_env, or a file with --command-config"
        )


def _log_in(jaas: str, found: Translated) -> None:
    login = _LOGIN.fullmatch(jaas)
    module = login["module"].rpartition(".")[2] if login else ""
    if login is None and _LOGIN.fullmatch(f"{jaas};"):
        raise ValueError("its end is missing: write ; after the last option, as Java requires")
    if login is None or module not in _LOGIN_MODULES:
        raise ValueError(
            f'no login that Ringfence knows: write {" or ".join(_LOGIN_MODULES)} required username="…" password="…";'
        )
    options = {
        found[1]: re.sub(r"\\(.)", r"\1", found[2] or found[3] or found[4] or "")
        for found in _OPTION.finditer(login["options"])
    }
    if module == _TOKENS:
        for option, key in (("clientId", "sasl_oauth_client_id"), ("scope", "sasl_oauth_scope")):
            if options.get(option):
                found.keys[key] = options[option]
        if options.get("clientSecret"):
            found.secrets["sasl_oauth_client_secret"] = options["clientSecret"]
        return
    if not options.get("username") or not options.get("password"):
        raise ValueError("needs username and password: add them")
    found.keys["sasl_username"], found.secrets[_PASSWORD] = options["username"], options["password"]


def _open_store(
    store: str, part: str, value: str, properties: Mapping[str, object], found: Translated
) -> None:
    kind = str(properties.get(f"ssl.{store}.type", "JKS")).upper()
    keys = " and ".join(_STORES[store])
    if kind != "PEM" and part != "location" and f"ssl.{store}.location" in properties:
        return  # the location reports the problem
    if kind != "PEM":
        raise ValueError(
            f"a {store} of type {kind} is Java's own: export it as PEM (keytool -importkeystore … -deststoretype PKCS12, then openssl "
            f"pkcs12 -in … -out ….pem) and name it as {keys}, or with ssl.{store}.type=PEM"
        )
    if part == "location":
        found.keys.update(dict.fromkeys(_STORES[store], value))
    elif part not in {"type", "password"}:
        raise ValueError(f"write it into a file, and name that as {keys}")


def parse_java(text: str) -> dict[str, str]:
    """Return values by key. The last value of a repeated key counts.

    Raises:
        ValueError: a line is not valid; the text has its number.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            raise ValueError(f"line {number} is not a property: write key=value")
        found[_plain(entry["key"])] = _plain(entry["value"])
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return lines with their numbers, without comments and empty lines. A line that ends with a backslash continues on the next."""
    lines: list[tuple[int, str]] = []
    continued = False
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.lstrip(" \t\f")
        if continued:
            lines[-1] = (lines[-1][0], lines[-1][1] + line)
        elif not line or line[0] in "#!":
            continue
        else:
            lines.append((number, line))
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if continued:
            lines[-1] = (lines[-1][0], lines[-1][1][:-1])
    return lines


def _plain(text: str) -> str:
    return _ESCAPED.sub(
        lambda found: chr(int(found[1][1:], 16)) if len(found[1]) > 1 else _LETTERS.get(found[1], found[1]),
        text,
    )
