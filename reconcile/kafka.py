"""Questions to the cluster that Spark's Kafka source does not ask: what is committed, and where logs begin and end."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, OffsetSpec

from conf.errors import BrokerUnavailableError, ConfigurationError, RingfenceError
from conf.settings import KafkaSettings

ANSWER_LIMIT_S: Final = 15.0
OPEN_LIMIT_S: Final = 120.0
"""Longer than the broker keeps a transaction of a worker that died open."""
LOOK_EVERY_S: Final = 0.1
NO_TOPIC: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,  # no topic can have such a name
    }
)

_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]

Place = tuple[str, int]
"""Topic and partition."""


class OpenTransactionError(RingfenceError):
    """A transaction does not end, and nobody may read what stands behind its beginning."""


class TopicFacts(NamedTuple):
    """What identifies a topic."""

    id: str
    """Kafka's own: a topic that was deleted and created again has another."""
    partitions: int


class Cluster:
    """One admin client, and one consumer that joins nothing."""

    def __init__(self, kafka: KafkaSettings, group: str) -> None:
        """``group`` is the workers'; it is asked, not joined.

        Raises:
            ConfigurationError: the clients refuse what ``[kafka]`` says.
        """
        self._servers = kafka.bootstrap_servers
        options = client_options(kafka)
        try:
            self._admin = AdminClient(options)
            # Under read_committed the answer would wait until no lane has a transaction under way.
            self._consumer = Consumer(
                options
                | {"group.id": group, "isolation.level": "read_uncommitted", "enable.auto.commit": False}
            )
        except KafkaException as error:
            raise ConfigurationError(f"[kafka] cannot be used: {error.args[0].str()}: mend that") from error

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()

    def describe(self, topics: Iterable[str]) -> dict[str, TopicFacts]:
        """Those of the topics that exist and that this user may see.

        Raises:
            BrokerUnavailableError: nobody answers.
        """
        try:
            futures = self._admin.describe_topics(
                TopicCollection(sorted(topics)), request_timeout=ANSWER_LIMIT_S
            )
        except KafkaException as error:
            raise self._unavailable(error) from error
        found = {}
        for name, future in futures.items():
            try:
                described = future.result()
            except KafkaException as error:
                if error.args[0].code() in NO_TOPIC:
                    continue
                raise self._unavailable(error) from error
            found[name] = TopicFacts(str(described.topic_id), len(described.partitions))
        return found

    def committed(self, places: Iterable[Place]) -> dict[Place, int | None]:
        """The group's offsets now; None = there is none."""
        try:
            answers = self._consumer.committed([TopicPartition(*each) for each in places], ANSWER_LIMIT_S)
        except KafkaException as error:
            raise self._unavailable(error) from error
        for each in answers:
            if each.error is not None:
                raise self._unavailable(KafkaException(each.error))
        return {(each.topic, each.partition): each.offset if each.offset >= 0 else None for each in answers}

    def log_starts(self, places: Iterable[Place]) -> dict[Place, int]:
        """The first offsets that are still there."""
        return self._offsets(places, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)

    def high_watermarks(self, places: Iterable[Place]) -> dict[Place, int]:
        """Where the logs end, undecided transactions included."""
        return self._offsets(places, _LATEST, IsolationLevel.READ_UNCOMMITTED)

    def stable_ends(self, places: Iterable[Place], at_least: Mapping[Place, int]) -> dict[Place, int]:
        """Where the last stable offsets are, once they have reached ``at_least``: all up to there is decided.

        The markers of a transaction are written after its offsets are committed, so what a commit covers may be
        readable only a moment later.

        Raises:
            OpenTransactionError: one stays open.
        """
        wanted = list(places)
        deadline = time.monotonic() + OPEN_LIMIT_S
        while True:
            ends = self._offsets(wanted, _LATEST, IsolationLevel.READ_COMMITTED)
            behind = [each for each in wanted if ends[each] < at_least[each]]
            if not behind:
                return ends
            if time.monotonic() > deadline:
                topic, partition = behind[0]
                raise OpenTransactionError(
                    f"{topic}/{partition}: a transaction at offset {ends[behind[0]]} stays open: see "
                    "kafka-transactions.sh find-hanging, end it, and run again"
                )
            time.sleep(LOOK_EVERY_S)

    def names(self) -> list[str]:
        """All topics that this user may see."""
        try:
            return sorted(self._admin.list_topics(timeout=ANSWER_LIMIT_S).topics)
        except KafkaException as error:
            raise self._unavailable(error) from error

    def readable(self, topic: str) -> bool:
        """Whether this user may read it, as far as the cluster tells."""
        try:
            described = self._admin.describe_topics(
                TopicCollection([topic]), include_authorized_operations=True, request_timeout=ANSWER_LIMIT_S
            )[topic].result()
        except KafkaException as error:
            raise self._unavailable(error) from error
        granted = described.authorized_operations
        return not granted or bool({AclOperation.READ, AclOperation.ALL} & set(granted))

    def cleanup_policy(self, topic: str) -> str | None:
        """``cleanup.policy`` of a topic; None = the cluster does not say, or this user may not know.

        Raises:
            BrokerUnavailableError: nobody answers.
        """
        wanted = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            found = self._admin.describe_configs([wanted], request_timeout=ANSWER_LIMIT_S)[wanted].result()
        except KafkaException as error:
            if refused(error.args[0]):
                return None
            raise self._unavailable(error) from error
        told = found.get("cleanup.policy")
        return None if told is None or told.value is None else str(told.value)

    def offsets_at(self, places: Iterable[Place], timestamp: int) -> dict[Place, int | None]:
        """The first offsets of records of that time (ms) or later; None = there is none."""
        found = self._offsets(places, OffsetSpec.for_timestamp(timestamp), IsolationLevel.READ_UNCOMMITTED)
        return {place: offset if offset >= 0 else None for place, offset in found.items()}

    def _offsets(self, places: Iterable[Place], spec: Any, level: IsolationLevel) -> dict[Place, int]:
        wanted = {TopicPartition(*each): spec for each in places}
        if not wanted:
            return {}
        try:
            futures = self._admin.list_offsets(wanted, isolation_level=level, request_timeout=ANSWER_LIMIT_S)
            return {(tp.topic, tp.partition): int(each.result().offset) for tp, each in futures.items()}
        except KafkaException as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: KafkaException) -> BrokerUnavailableError:
        return BrokerUnavailableError(
            f"no usable answer at kafka.bootstrap_servers = {self._servers!r} ({error.args[0].str()}): start the broker, "
            "mend the address, or grant what it names"
        )


def refused(error: KafkaError) -> bool:
    """Whether the cluster answered, and will not tell or does not know the question; False = nobody answered.

    What librdkafka says by itself has numbers below UNKNOWN's; among them that the broker does not know the request.
    """
    code = error.code()
    return code >= KafkaError.UNKNOWN or code == KafkaError._UNSUPPORTED_FEATURE  # noqa: SLF001


def client_options(kafka: KafkaSettings) -> dict[str, Any]:
    """How librdkafka's clients get in."""
    options: dict[str, Any] = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": kafka.security_protocol,
        "log_level": 0,
    }
    if kafka.uses_ssl:
        files = {
            "ssl.ca.location": kafka.ssl_cafile,
            "ssl.certificate.location": kafka.ssl_certfile,
            "ssl.key.location": kafka.ssl_keyfile,
        }
        options |= {key: value for key, value in files.items() if value}
    if kafka.uses_sasl:
        options |= {
            "sasl.mechanism": kafka.sasl_mechanism,
            "sasl.username": kafka.sasl_username,
            "sasl.password": kafka.sasl_password(),
        }
    return options
