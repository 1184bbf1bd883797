"""Properties for the clients: the names that each client knows, and checks of unknown ones."""

import difflib
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ringfence_kafka.config.kafka import KafkaSettings
from ringfence_kafka.config.properties import KEYS, OWNED
from ringfence_kafka.errors import ConfigurationError

AIOKAFKA: Final = {
    "compression.type": "compression_type",
    "connections.max.idle.ms": "connections_max_idle_ms",
    "request.timeout.ms": "request_timeout_ms",
    "retry.backoff.ms": "retry_backoff_ms",
}
"""aiokafka's names of the properties that workers, consumers and bridges support."""
ALL: Final = ("connections.max.idle.ms", "request.timeout.ms", "retry.backoff.ms")
"""Properties that every aiokafka client supports."""
PRODUCERS: Final = ("compression.type",)
JAVA_NAMES: Final = frozenset(
    prefix + name
    for prefix, names in {
        "": (
            "allow.auto.create.topics auto.commit.interval.ms auto.offset.reset bootstrap.servers check.crcs "
            "client.dns.lookup client.id client.rack connections.max.idle.ms default.api.timeout.ms "
            "enable.auto.commit enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms "
            "fetch.min.bytes group.id group.instance.id group.protocol group.remote.assignor "
            "heartbeat.interval.ms interceptor.classes isolation.level key.deserializer "
            "max.partition.fetch.bytes max.poll.interval.ms max.poll.records metadata.max.age.ms "
            "metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters "
            "metrics.num.samples metrics.recording.level metrics.sample.window.ms "
            "partition.assignment.strategy receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms "
            "request.timeout.ms retry.backoff.max.ms retry.backoff.ms security.protocol security.providers "
            "send.buffer.bytes session.timeout.ms share.acknowledgement.mode "
            "socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms value.deserializer"
        ),
        "sasl.": (
            "client.callback.handler.class jaas.config kerberos.kinit.cmd kerberos.min.time.before.relogin "
            "kerberos.service.name kerberos.ticket.renew.jitter kerberos.ticket.renew.window.factor "
            "login.callback.handler.class login.class login.connect.timeout.ms login.read.timeout.ms "
            "login.refresh.buffer.seconds login.refresh.min.period.seconds login.refresh.window.factor "
            "login.refresh.window.jitter login.retry.backoff.max.ms login.retry.backoff.ms mechanism"
        ),
        "sasl.oauthbearer.": (
            "assertion.algorithm assertion.claim.aud assertion.claim.exp.seconds assertion.claim.iss "
            "assertion.claim.jti.include assertion.claim.nbf.seconds assertion.claim.sub assertion.file "
            "assertion.private.key.file assertion.private.key.passphrase assertion.template.file "
            "client.credentials.client.id client.credentials.client.secret clock.skew.seconds "
            "expected.audience expected.issuer header.urlencode jwks.endpoint.refresh.ms "
            "jwks.endpoint.retry.backoff.max.ms jwks.endpoint.retry.backoff.ms jwks.endpoint.url "
            "jwt.retriever.class jwt.validator.class scope scope.claim.name sub.claim.name token.endpoint.url"
        ),
        "ssl.": (
            "cipher.suites enabled.protocols endpoint.identification.algorithm engine.factory.class "
            "key.password keymanager.algorithm keystore.certificate.chain keystore.key keystore.location "
            "keystore.password keystore.type protocol provider secure.random.implementation "
            "trustmanager.algorithm truststore.certificates truststore.location truststore.password "
            "truststore.type"
        ),
    }.items()
    for name in names.split()
)
"""Properties of Java's consumer, and so of Spark's source: ``ConsumerConfig`` of kafka-clients 4.1 lists them when it runs as a program."""
_COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_UNKNOWN: Final = "No such configuration property"


def check(kafka: KafkaSettings) -> None:
    """Check that at least one client knows each property, and that these clients accept its value.

    Raises:
        ConfigurationError: one line for each problem.
    """
    if faults := [f"kafka.properties: {fault}" for fault in _faults(kafka.properties)]:
        raise ConfigurationError("\n".join(faults))


def for_aiokafka(kafka: KafkaSettings, names: Iterable[str] = ALL) -> dict[str, Any]:
    """Return the configured properties among these names, in aiokafka's form. Raises as :func:`check`."""
    check(kafka)
    given = {name: kafka.properties[name] for name in names if name in kafka.properties}
    return {
        AIOKAFKA[name]: int(value) if name.endswith(".ms") else None if value == "none" else value
        for name, value in given.items()
    }


def for_librdkafka(kafka: KafkaSettings) -> dict[str, str]:
    """Return the properties that librdkafka knows. Raises as :func:`check`."""
    check(kafka)
    return {name: value for name, value in kafka.properties.items() if not _librdkafka_says(name, value)}


def for_java(kafka: KafkaSettings) -> dict[str, str]:
    """Return the properties that Java's consumer knows. Raises as :func:`check`."""
    check(kafka)
    return {name: value for name, value in kafka.properties.items() if name in JAVA_NAMES}


def ignored_properties(kafka: KafkaSettings) -> list[str]:
    """Return the properties that the workers' client does not know."""
    return sorted(kafka.properties.keys() - AIOKAFKA.keys())


def _faults(passed: Mapping[str, str]) -> Iterator[str]:
    for name, value in passed.items():
        said = _librdkafka_says(name, value)
        if name == "compression.type" and value not in _COMPRESSIONS:
            yield f"{name} = {value!r}: write one of {', '.join(_COMPRESSIONS)}"
        elif name in ALL and not (value.isascii() and value.isdecimal()):
            yield f"{name} = {value!r}: write a number of milliseconds"
        elif said.startswith(_UNKNOWN):
            if name not in JAVA_NAMES and name not in AIOKAFKA:
                near = difflib.get_close_matches(
                    name, sorted({*JAVA_NAMES, *AIOKAFKA, *KEYS} - OWNED.keys()), n=1
                )
                yield f"{name}: no client knows it{f': did you mean {near[0]!r}?' if near else ': remove it'}"
        elif said:
            yield f"{name} = {value!r}: {said}: correct it"


@functools.cache
def _librdkafka_says(name: str, value: str) -> str:
    """Return librdkafka's error for a property; empty = it accepts it. A client without brokers makes no connection."""
    try:
        AdminClient({"bootstrap.servers": "", "log_level": 0, name: value})
    except KafkaException as error:
        return str(error.args[0].str())
    return ""
