"""The four requests of a transaction of version 2 (KIP-890), as bytes. Pure.

aiokafka does not know these versions.
"""

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from ringfence_kafka.protocol import flexible_requests
from ringfence_kafka.protocol.flexible_requests import INT16, INT32, NO_TAGS, Question, Reader

PRODUCE, TXN_OFFSET_COMMIT, END_TXN, API_VERSIONS = 0, 28, 26, 18
"""API keys of the requests."""
PRODUCE_VERSION: Final = 12
TXN_OFFSET_COMMIT_VERSION: Final = 5
END_TXN_VERSION: Final = 5
API_VERSIONS_VERSION: Final = 4
"""Version in Kafka 3.9. Version 3 leaves out features that a broker supports from level 0 (KAFKA-17011)."""
FEATURE: Final = "transaction.version"
SELF_ADDING: Final = 2
"""Level of the feature from which brokers add partitions themselves."""

Place = tuple[str, int]
"""Topic and partition."""

_SUPPORTED, _FINALIZED = 0, 2
"""Tags of features in the response to ApiVersions: the broker's, and the cluster's."""
_FEATURE_RANGE: Final = struct.Struct(">hh")
_ACKS_ALL: Final = -1
_PRODUCER: Final = struct.Struct(">qh")
_TRIED: Final = struct.Struct(">hi")
_PARTITION_OFFSET: Final = struct.Struct(">iqi")
_WRITTEN: Final = struct.Struct(">ihqqq")


class Producer(NamedTuple):
    """Identity of the writing producer."""

    id: int
    epoch: int


class Features(NamedTuple):
    """Levels of the cluster's features by name. A missing feature has level 0."""

    agreed: dict[str, int]
    """Feature levels that the cluster has finalized."""
    supported: dict[str, int]
    """Highest feature levels that the answering broker supports."""


class Ended(NamedTuple):
    """Response of the coordinator to the end of a transaction."""

    error_code: int
    producer: Producer
    """Producer ID and epoch of the next transaction."""


def api_versions(name: str, version: str) -> Question:
    """Return a query for the features of the cluster, answered with :class:`Features`."""
    body = flexible_requests.text(name) + flexible_requests.text(version) + NO_TAGS
    return Question(API_VERSIONS, API_VERSIONS_VERSION, body, _read_features, tagged=False)


def produce(transactional_id: str, timeout_ms: int, batches: Mapping[Place, bytes]) -> Question:
    """Return a request that writes a batch to each partition. The response has error code and base offset by partition."""
    topics: dict[str, list[tuple[int, bytes]]] = {}
    for (topic, partition), data in batches.items():
        topics.setdefault(topic, []).append((partition, data))
    pieces = [
        flexible_requests.text(transactional_id),
        _TRIED.pack(_ACKS_ALL, timeout_ms),
        flexible_requests.length(len(topics)),
    ]
    for topic, partitions in topics.items():
        pieces += (flexible_requests.text(topic), flexible_requests.length(len(partitions)))
        for partition, data in partitions:  # joined only once, because they are large
            pieces += (INT32.pack(partition), flexible_requests.length(len(data)), data, NO_TAGS)
        pieces.append(NO_TAGS)
    pieces.append(NO_TAGS)
    body = b"".join(pieces)
    return Question(PRODUCE, PRODUCE_VERSION, body, _read_written)


def commit_offsets(
    transactional_id: str, group_id: str, producer: Producer, offsets: Mapping[Place, int]
) -> Question:
    """Return a request that commits offsets of a group with the transaction. The response has error codes by partition."""
    topics: dict[str, list[bytes]] = {}
    for (topic, partition), offset in offsets.items():
        whole = _PARTITION_OFFSET.pack(partition, offset, -1) + flexible_requests.text("") + NO_TAGS
        topics.setdefault(topic, []).append(whole)
    body = b"".join(
        (
            flexible_requests.text(transactional_id),
            flexible_requests.text(group_id),
            _PRODUCER.pack(*producer),
            INT32.pack(-1),  # no generation, because the transactional ID is the fence
            flexible_requests.text(""),
            flexible_requests.text(None),
            flexible_requests.array(
                flexible_requests.text(topic) + flexible_requests.array(partitions) + NO_TAGS
                for topic, partitions in topics.items()
            ),
            NO_TAGS,
        )
    )
    return Question(TXN_OFFSET_COMMIT, TXN_OFFSET_COMMIT_VERSION, body, _read_committed)


def end(transactional_id: str, producer: Producer, *, commit: bool) -> Question:
    """Return a request that ends the transaction, answered with :class:`Ended`."""
    body = (
        flexible_requests.text(transactional_id)
        + _PRODUCER.pack(*producer)
        + (b"\1" if commit else b"\0")
        + NO_TAGS
    )
    return Question(END_TXN, END_TXN_VERSION, body, _read_ended)


def _read_features(reader: Reader) -> Features:
    features = Features({}, {})
    (error_code,) = reader.unpack(INT16)
    for _ in reader.array():
        reader.at += 3 * INT16.size
        reader.skip_tags()
    reader.unpack(INT32)
    if error_code:
        return features
    for _ in range(reader.number()):
        tag, end = reader.number(), reader.number()
        end += reader.at
        if tag in {_SUPPORTED, _FINALIZED}:
            for _ in reader.array():
                name = reader.text()
                # Finalized features have the highest level first, supported features the lowest.
                first, second = reader.unpack(_FEATURE_RANGE)
                if tag == _FINALIZED:
                    features.agreed[name] = first
                else:
                    features.supported[name] = second
                reader.skip_tags()
        reader.at = end
    return features


def _read_written(reader: Reader) -> dict[Place, tuple[int, int]]:
    answers: dict[Place, tuple[int, int]] = {}
    for _ in reader.array():
        topic = reader.text()
        for _ in reader.array():
            partition, error_code, base, _, _ = reader.unpack(_WRITTEN)
            answers[topic, partition] = error_code, base
            for _ in reader.array():
                reader.unpack(INT32)
                reader.text()
                reader.skip_tags()
            reader.text()
            reader.skip_tags()
        reader.skip_tags()
    return answers


def _read_committed(reader: Reader) -> dict[Place, int]:
    answers: dict[Place, int] = {}
    reader.unpack(INT32)
    for _ in reader.array():
        topic = reader.text()
        for _ in reader.array():
            (partition,), (error_code,) = reader.unpack(INT32), reader.unpack(INT16)
            answers[topic, partition] = error_code
            reader.skip_tags()
        reader.skip_tags()
    return answers


def _read_ended(reader: Reader) -> Ended:
    reader.unpack(INT32)
    (error_code,) = reader.unpack(INT16)
    return Ended(error_code, Producer(*reader.unpack(_PRODUCER)))
