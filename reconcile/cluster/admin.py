"""Questions to the cluster beside Spark's Kafka source: committed offsets, log starts and log ends."""

import contextlib
import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, Final, NamedTuple, TypeVar

import confluent_kafka as kafka_client
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, OffsetSpec

from reconcile.cluster import access, retriable_errors
from ringfence_kafka import errors
from ringfence_kafka.auth import access_errors
from ringfence_kafka.auth.tls import confluent_options
from ringfence_kafka.config.settings import KafkaSettings

Answer = TypeVar("Answer")

CONTACT_LIMIT_S: Final = 10.0  # for the first answer, while an operator waits
ANSWER_LIMIT_S: Final = 15.0
OPEN_LIMIT_S: Final = 120.0  # exceeds the time after which brokers abort transactions of a dead worker
DOWN_LIMIT_S: Final = 1.0  # for an answer after the client has reported that all brokers are down
LOOK_EVERY_S: Final = 0.1
HEAR_EVERY_S: Final = 0.02  # delay until an answer, a refusal or a signal is noticed
HEARD_MAX: Final = 100
TAIL_OFFSETS: Final = 64  # distance from the end at which a search for a partition's newest records begins
NO_TOPIC: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,  # no topic can have such a name
    }
)

_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]

Place = tuple[str, int]  # topic and partition


class OpenTransactionError(errors.RingfenceError):
    """A transaction stays open, and hides all records behind its beginning."""


class TopicFacts(NamedTuple):
    """Identity of a topic."""

    id: str  # Kafka's topic ID, which changes if the topic is created again
    partitions: int
    readable: bool = True  # whether this user may read it; True if the cluster does not tell


class Admin:
    """Admin client. It joins no group. Each question raises BrokerUnavailableError if no broker answers."""

    def __init__(self, kafka: KafkaSettings, group: str) -> None:
        """Create the client. ``group`` is the workers' group, which is queried but not joined.

        Raises:
            ConfigurationError: The client refuses a setting of ``[kafka]``.
        """
        self._kafka = kafka
        self._group = group
        self._heard: deque[KafkaError] = deque(maxlen=HEARD_MAX)
        self._down = False
        options = confluent_options(kafka)
        self._options = options | {"group.id": group, "enable.auto.commit": False}
        try:
            self._admin = self._client()
        except KafkaException as error:
            raise errors.ConfigurationError(
                f"[kafka] cannot be used: {error.args[0].str()}: fix that"
            ) from error

    def _client(self) -> AdminClient:
        return AdminClient(confluent_options(self._kafka) | {"error_cb": self._hear})

    def connect(self) -> str:
        """Check that a broker grants access, and return the cluster's ID, or an empty string.

        Raises:
            BrokerUnavailableError: No broker answers, or all deny access.
        """
        try:
            described = self._awaited(self._admin.describe_cluster(request_timeout=CONTACT_LIMIT_S))
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TIMED_OUT:
                raise self._unavailable(error) from error
            if self._heard:
                raise access.unreachable(self._kafka, self._heard) from error
            raise access_errors.nobody(self._kafka, f" within {CONTACT_LIMIT_S:g} s") from error
        return str(described.cluster_id or "")

    def describe(self, topics: Iterable[str]) -> dict[str, TopicFacts]:
        """Return the topics that exist and that this user may see."""
        found = {}
        with self._answers():
            futures = self._admin.describe_topics(
                kafka_client.TopicCollection(sorted(topics)),
                include_authorized_operations=True,
                request_timeout=ANSWER_LIMIT_S,
            )
            for name, future in futures.items():
                try:
                    described = self._awaited(future)
                except KafkaException as error:
                    if error.args[0].code() in NO_TOPIC:
                        continue
                    raise
                granted = set(described.authorized_operations or ())
                readable = not granted or bool({AclOperation.READ, AclOperation.ALL} & granted)
                found[name] = TopicFacts(str(described.topic_id), len(described.partitions), readable)
        return found

    def committed(self, places: Iterable[Place]) -> dict[Place, int | None]:
        """Return the group's committed offsets; None = no offset.

        Offsets in undecided transactions do not count.

        Raises:
            PrerequisiteError: This user may not see the group.
        """
        wanted = kafka_client.ConsumerGroupTopicPartitions(
            self._group, [TopicPartition(*place) for place in places]
        )

        def ask() -> Sequence[TopicPartition]:
            # A client keeps asking a coordinator that it knows. If that broker restarted, the client never
            # gets an answer, and then aborts the process.
            client = self._client()
            answer = client.list_consumer_group_offsets([wanted], request_timeout=ANSWER_LIMIT_S)[self._group]
            found = self._awaited(answer, client).topic_partitions or ()
            if problem := next((item.error for item in found if item.error is not None), None):
                raise KafkaException(problem)
            return found

        with self._answers():
            try:
                answers = retriable_errors.asked(self._admin, ask)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                    raise
                raise errors.PrerequisiteError(
                    f"group {self._group}: this user may not see it: allow Describe on it; see docs/security.md"
                ) from error
        return {(at.topic, at.partition): at.offset if at.offset >= 0 else None for at in answers}

    def log_starts(self, places: Iterable[Place]) -> dict[Place, int]:
        """Return the first offsets that still exist."""
        return self._offsets(places, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)

    def high_watermarks(self, places: Iterable[Place]) -> dict[Place, int]:
        """Return the ends of the logs, including undecided transactions."""
        return self._offsets(places, _LATEST, IsolationLevel.READ_UNCOMMITTED)

    def stable_ends(self, places: Iterable[Place], at_least: Mapping[Place, int]) -> dict[Place, int]:
        """Wait until the last stable offsets reach ``at_least``, and return them.

        Kafka writes the markers of a transaction after it commits its offsets, so committed inputs may become
        readable a moment later.

        Raises:
            OpenTransactionError: A transaction stays open.
        """
        wanted = list(places)
        deadline = time.monotonic() + OPEN_LIMIT_S
        while True:
            ends = self._offsets(wanted, _LATEST, IsolationLevel.READ_COMMITTED)
            behind = [item for item in wanted if ends[item] < at_least[item]]
            if not behind:
                return ends
            if time.monotonic() > deadline:
                topic, partition = behind[0]
                raise OpenTransactionError(
                    f"{topic}/{partition}: a transaction at offset {ends[behind[0]]} stays open: see "
                    "kafka-transactions.sh find-hanging, end it, and run again"
                )
            time.sleep(LOOK_EVERY_S)

    def newest(self, places: Iterable[Place], key: bytes) -> dict[Place, bytes]:
        """Return the last committed value of a key in each partition, if it is among the newest records.

        Partitions that this user may not read, or that do not answer in time, are absent.
        """
        wanted = list(places)
        starts = self.log_starts(wanted)
        ends = self._offsets(wanted, _LATEST, IsolationLevel.READ_COMMITTED)
        left = {place for place in wanted if starts[place] < ends[place]}
        consumer = kafka_client.Consumer(
            self._options | {"isolation.level": "read_committed", "enable.partition.eof": True}
        )
        found: dict[Place, bytes] = {}
        deadline = time.monotonic() + ANSWER_LIMIT_S
        try:
            consumer.assign(
                [TopicPartition(*place, max(starts[place], ends[place] - TAIL_OFFSETS)) for place in left]
            )
            while left and time.monotonic() < deadline:
                for message in consumer.consume(1_000, LOOK_EVERY_S):
                    place = (str(message.topic()), message.partition() or 0)
                    if message.error() or (message.offset() or 0) >= ends[place]:
                        left.discard(place)  # end of the partition, or a refusal
                    elif message.key() == key and message.value() is not None:
                        found[place] = bytes(message.value() or b"")
        finally:
            consumer.close()
        return found

    def names(self) -> list[str]:
        """Return all topics that this user may see."""
        with self._answers():
            # This call ignores signals while it waits, but a broker has just answered.
            return sorted(self._admin.list_topics(timeout=ANSWER_LIMIT_S).topics)

    def cleanup_policy(self, topic: str) -> str | None:
        """Return ``cleanup.policy`` of a topic; None = unknown, or denied to this user."""
        wanted = ConfigResource(ConfigResource.Type.TOPIC, topic)
        with self._answers():
            try:
                answer = self._admin.describe_configs([wanted], request_timeout=ANSWER_LIMIT_S)[wanted]
                policy = self._awaited(answer).get("cleanup.policy")
            except KafkaException as error:
                if refused(error.args[0]):
                    return None
                raise
        return None if policy is None or policy.value is None else str(policy.value)

    def offsets_at(self, places: Iterable[Place], timestamp: int) -> dict[Place, int | None]:
        """Return the first offset at or after a timestamp (ms) in each partition; None = no such record."""
        found = self._offsets(places, OffsetSpec.for_timestamp(timestamp), IsolationLevel.READ_UNCOMMITTED)
        return {place: offset if offset >= 0 else None for place, offset in found.items()}

    def _offsets(self, places: Iterable[Place], spec: Any, level: IsolationLevel) -> dict[Place, int]:
        wanted = {TopicPartition(*place): spec for place in places}
        if not wanted:
            return {}

        def ask() -> dict[Place, int]:
            futures = self._admin.list_offsets(wanted, isolation_level=level, request_timeout=ANSWER_LIMIT_S)
            return {
                (tp.topic, tp.partition): int(self._awaited(future).offset) for tp, future in futures.items()
            }

        with self._answers():
            return retriable_errors.asked(self._admin, ask)

    def _hear(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._down = True
        else:
            self._heard.append(error)

    def _awaited(self, future: "Future[Answer]", admin: AdminClient | None = None) -> Answer:
        """Return the answer to ``admin``'s request (None: the own client's); early if all brokers are down.

        Raises:
            BrokerUnavailableError: All brokers are away, or deny access.
            KafkaException: The cluster answered with an error, or did not answer in time.
        """
        asked = admin or self._admin
        self._heard.clear()
        self._down = False
        patience = math.inf
        while not wait([future], HEAR_EVERY_S).done:
            asked.poll(0)
            if self._down:
                # The event may be left from an earlier restart. Then the answer still arrives.
                self._down, patience = False, min(patience, time.monotonic() + DOWN_LIMIT_S)
            if time.monotonic() > patience:
                raise access.unreachable(self._kafka, self._heard)
        asked.poll(0)  # consume remaining events, so that they do not count for a later question
        return future.result()

    @contextlib.contextmanager
    def _answers(self) -> Iterator[None]:
        """Raise BrokerUnavailableError if an answer is an error."""
        try:
            yield
        except KafkaException as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: KafkaException) -> errors.BrokerUnavailableError:
        return errors.BrokerUnavailableError(
            f"no usable answer at kafka.bootstrap_servers = {self._kafka.bootstrap_servers!r} ({error.args[0].str()}): start the "
            "broker, fix the address, or grant what it names"
        )


def refused(error: KafkaError) -> bool:
    """Return whether the cluster refused the question or does not support it; False = no answer.

    Librdkafka's own errors have numbers below UNKNOWN. One of them means that the broker does not support the
    request.
    """
    code = error.code()
    return code >= KafkaError.UNKNOWN or code == KafkaError._UNSUPPORTED_FEATURE
