"""What is wrong with the topics of an address: descriptions in, a line a fault out, with the way out. Pure.

`ringfence topics check`, a worker's start, its watch and each opening of a lane say the same of the same fault, by these functions.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final

from aiokafka.errors import TopicAuthorizationFailedError, TransactionalIdAuthorizationFailed

from ringfence_kafka.admin.topics import (
    LONG_MAX,
    RECORD_ROOM_BYTES,
    Described,
    TopicDescription,
    alter,
    lacking,
    missing,
    span,
    too_small,
    untold,
)
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.wording import counted
from tables.codec import Meta

RETENTION_MIN_MS: Final = 24 * 3600 * 1000
"""A day: an input that keeps messages for less loses some in an outage that nobody repairs at night."""
BEGIN_ANEW: Final = "begin anew under another app.id, which accepts all once more that is still in the input"
_RECORDS: Final = ("accepted topic", "quarantine topic", "duplicates topic")
"""Roles of topics whose records carry the timestamps of the input. What is forwarded carries the time of forwarding."""
_ALWAYS_FITS: Final = ("changelog", "quarantine topic")
_WHOLE: Final = {
    "forward topic": "messages that are not at home go to quarantine",
    "quarantine topic": "messages that go there are named by size and digest, and are nowhere else than in the input",
    "duplicates topic": "duplicates go to quarantine",
}
"""What becomes of messages that are larger than a topic takes which holds them as they came, transactions whole."""


def rights_on(role: str) -> frozenset[str]:
    """What a worker must be allowed on a topic, in Kafka's words."""
    if role == "input topic":
        return frozenset({"Read"})
    return frozenset({"Read", "Write"} if role in {"changelog", "forward topic"} else {"Write"})


def denied(app_id: str, address: AddressSettings, error: BaseException) -> str | None:
    """What is said of a right that was missing while a lane worked; None = the error is about something else."""
    if not isinstance(error, TopicAuthorizationFailedError | TransactionalIdAuthorizationFailed):
        return None
    named = error.args[0] if error.args else ()
    names = [named] if isinstance(named, str) else sorted(map(str, named))
    if isinstance(error, TransactionalIdAuthorizationFailed):
        return "; ".join(lacking("transactional ID", name, {"Write"}) for name in names)
    roles = {topic: role for role, topic in address.topics(app_id).items()}
    return "; ".join(lacking("topic", name, rights_on(roles.get(name, ""))) for name in names)


def missing_topics(app_id: str, address: AddressSettings, described: Described) -> list[str]:
    """Topics that do not exist, or that this user may not see."""
    return [
        _absent(described, role, address.name, name)
        for role, name in address.topics(app_id).items()
        if name not in described.topics
    ]


def _absent(described: Described, role: str, address: str, name: str) -> str:
    return (
        lacking("topic", name, rights_on(role)) if name in described.refused else missing(role, address, name)
    )


def missing_journal(app_id: str) -> str:
    """What is said where there is no journal, in which all lanes write down what their rings forget by order."""
    return missing("journal of rings", "all addresses", wire_names.journal_topic(app_id))


def journal_notes(journal: TopicDescription) -> list[str]:
    """What does not keep the journal's records. Nothing stops: without them the nightly job takes for a fault what was an order."""
    told = []
    if "compact" in journal.cleanup_policy:
        told.append(
            ("cleanup.policy", journal.policy_words, "delete", "keeps the last of each lane's records alone")
        )
    elif journal.retention_ms != math.inf:
        told.append(("retention.ms", str(journal.number("retention.ms", -1)), "-1", "deletes them one day"))
    return [
        f"{journal.name} has {setting}={found}, which {what}, and 'ringfence reconcile' would call FORGOTTEN what a ring forgot by "
        f"order: {alter(journal.name, setting, wanted)}"
        for setting, found, wanted, what in told
    ]


def topic_faults(
    app_id: str, address: AddressSettings, existing: Mapping[str, TopicDescription]
) -> list[str]:
    """What keeps lanes from working with the topics that there are."""
    return [
        *_counts(app_id, address, existing),
        *_policies(app_id, address, existing),
        *_timestamps(app_id, address, existing),
        *_sizes(app_id, address, existing),
    ]


def missing_targets(
    address: AddressSettings, targets: Iterable[AddressSettings], described: Described
) -> list[str]:
    """Accepted topics of other addresses that its transactions have parts for, and that do not exist or may not be seen."""
    return [
        of_target(address, target, _absent(described, "accepted topic", target.name, target.accepted_topic))
        for target in targets
        if target.accepted_topic not in described.topics
    ]


def target_faults(
    address: AddressSettings, targets: Iterable[AddressSettings], existing: Mapping[str, TopicDescription]
) -> list[str]:
    """What keeps parts of transactions from the accepted topics of other addresses that there are.

    Those addresses have the same faults; but a lane whose transactions go there must not begin one either.
    """
    source = existing.get(address.input_topic)
    return [
        of_target(address, target, fault)
        for target in targets
        if (topic := existing.get(target.accepted_topic)) is not None
        for fault in _target_faults(source, target, topic)
    ]


def _target_faults(
    source: TopicDescription | None, target: AddressSettings, topic: TopicDescription
) -> Iterable[str]:
    if topic.config is None:
        yield untold(topic.name)
        return
    if "compact" in topic.cleanup_policy:
        yield _compacted("accepted topic", target.name, topic)
    if source is not None:
        yield from _narrower("accepted topic", target.name, topic, source)


def of_target(address: AddressSettings, target: AddressSettings, said: str) -> str:
    """What is said of the topic of another address, and what this one has to do with it."""
    return f"transactions of {address.name} have parts for {target.name}: {said}"


def count_faults(
    address: AddressSettings,
    counts: Mapping[str, int],
    metas: Iterable[Meta],
    targets: Iterable[AddressSettings] = (),
) -> list[str]:
    """Partition counts that are not those with which lanes began, by their last meta records."""
    own = {address.input_topic, address.accepted_topic, *(target.accepted_topic for target in targets)}
    found = {
        (topic, before): counts[topic]
        for meta in metas
        for topic, before in meta.partition_counts.items()
        if topic in own and counts.get(topic, before) != before
    }
    grows = address.name
    return [
        _moved(grows if topic == address.input_topic else "", topic, now, before, "")
        for (topic, before), now in found.items()
    ]


def notes(
    app_id: str,
    address: AddressSettings,
    existing: Mapping[str, TopicDescription],
    targets: Iterable[AddressSettings] = (),
) -> list[str]:
    """What is worth knowing and stops nothing; ``targets`` are the other addresses that its transactions have parts for."""
    source = existing.get(address.input_topic)
    if source is None:
        return []
    told = list(_short_lived(address, source))
    if source.partitions != address.partitions:
        told.append(
            f"{source.name} has {source.partitions} partitions, the configuration says partitions = "
            f"{address.partitions}: an existing topic is used as it is"
        )
    if (accepted := existing.get(address.accepted_topic)) is not None:
        told += _less_than(source, address.name, accepted, "messages go to quarantine")
    for role, name in address.topics(app_id).items():
        if role in _WHOLE and name in existing:
            told += _smaller(source, role, address.name, existing[name], _WHOLE[role])
            if role != "forward topic" and existing[name].retention_ms < source.retention_ms:
                told.append(
                    f"{name} ({role} of {address.name}) keeps messages for {span(existing[name].retention_ms)}, {source.name} for "
                    f"{span(source.retention_ms)}: what went there is gone sooner than where it came from: "
                    f"{alter(name, 'retention.ms', source.number('retention.ms', -1))}"
                )
        if role in _RECORDS and name in existing:
            told += _refuses_late(role, address.name, existing[name], source)
    for target in targets:
        if (accepted := existing.get(target.accepted_topic)) is not None:
            whole = "parts go to quarantine, each with its whole transaction"
            told += [
                of_target(address, target, note) for note in _less_than(source, target.name, accepted, whole)
            ]
    return told


def _short_lived(address: AddressSettings, source: TopicDescription) -> Iterable[str]:
    """Yield a note if an input loses messages in a short outage."""
    if source.retention_ms < RETENTION_MIN_MS:
        yield (
            f"{source.name} (input topic of {address.name}) keeps messages for {span(source.retention_ms)}: what no worker has processed by then "
            f"is lost, also while workers restart: {alter(source.name, 'retention.ms', RETENTION_MIN_MS)}, or longer than your longest outage"
        )


def _refuses_late(role: str, owner: str, topic: TopicDescription, source: TopicDescription) -> Iterable[str]:
    """Where a topic takes what is as old as the input takes, but not what then waits in the input."""
    oldest, waits = source.timestamps.get(wire_names.TIMESTAMP_BEFORE), source.retention_ms
    taken = topic.timestamps.get(wire_names.TIMESTAMP_BEFORE)
    if oldest is not None and taken is not None and oldest <= taken < min(oldest + waits, LONG_MAX):
        yield (
            f"{topic.name} ({role} of {owner}) has {wire_names.TIMESTAMP_BEFORE}={taken}, from when a message is written there; {source.name} "
            f"has {oldest} and keeps messages for {span(waits)}: one that waits for so long would stop its lane: "
            f"{alter(topic.name, wire_names.TIMESTAMP_BEFORE, LONG_MAX)}"
        )


def _less_than(
    source: TopicDescription, owner: str, accepted: TopicDescription, too_large: str
) -> Iterable[str]:
    """In what an accepted topic is less than the input that its messages come from."""
    if accepted.retention_ms < source.retention_ms:
        yield (
            f"{accepted.name} (accepted topic of {owner}) keeps messages for {span(accepted.retention_ms)} from their "
            f"acceptance, {source.name} for {span(source.retention_ms)}: consumers that are away for longer lose some, and say GAP"
        )
    yield from _smaller(source, "accepted topic", owner, accepted, too_large)


def _smaller(
    source: TopicDescription, role: str, owner: str, topic: TopicDescription, too_large: str
) -> Iterable[str]:
    """Where a topic takes smaller messages than the input that they come from."""
    if topic.message_bytes_max < source.message_bytes_max:
        yield (
            f"{topic.name} ({role} of {owner}) has max.message.bytes={topic.message_bytes_max}, {source.name} "
            f"has {source.message_bytes_max}: larger {too_large}: "
            f"{alter(topic.name, 'max.message.bytes', source.message_bytes_max)}"
        )


def _counts(app_id: str, address: AddressSettings, existing: Mapping[str, TopicDescription]) -> Iterable[str]:
    """A partition of the changelog and of the forward topic for each of the input's.

    A changelog with more, beside a forward topic that fits, grew alone: no lane uses them. Whether the input shrank, the lanes' own
    records say (:func:`count_faults`).
    """
    source = existing.get(address.input_topic)
    changelog = existing.get(wire_names.changelog_topic(app_id, address.name))
    forward = existing.get(wire_names.forward_topic(app_id, address.name))
    if source is None:
        return
    fits = forward is not None and forward.partitions == source.partitions
    if changelog is not None and not (
        changelog.partitions == source.partitions or (fits and changelog.partitions > source.partitions)
    ):
        same = [
            item.name for item in (changelog, forward) if item and item.partitions == changelog.partitions
        ]
        yield _moved(address.name, source.name, source.partitions, changelog.partitions, " and ".join(same))
        if len(same) > 1:
            return
    if forward is not None and forward.partitions != source.partitions:
        yield (
            f"{forward.name} (forward topic of {address.name}) has {forward.partitions} partitions, {source.name} has "
            f"{source.partitions}: delete it once its lag is 0, and run 'ringfence topics create'"
        )


def _moved(grows: str, topic: str, now: int, before: int, witnesses: str) -> str:
    """A changed partition count moves groups to other lanes: their rings and their order would be lost.

    ``grows``: the address whose input it is, as lanes of a grown input can be given what they need; empty = it is another topic.
    """
    still = f", as {witnesses} still {'have' if ' ' in witnesses else 'has'}" if witnesses else ""
    unused = (
        f"; only if nothing was processed yet, delete {witnesses} and run 'ringfence topics create'"
        if witnesses
        else ""
    )
    said = (
        f"{topic} has {now} partitions, it had {before} when its lanes began{still}: groups and IDs have moved to other "
        "partitions. "
    )
    again = f"elete it and create it again with {counted(before, 'partition')}, or {BEGIN_ANEW}{unused}"
    if not grows:
        return f"{said}D{again}"
    count = max(before, -(-now // before) * before)
    what = "goes on with them" if now > before else f"finishes a growth to {before}, if one was begun"
    return f"{said}Stop the workers: 'ringfence topics grow {grows} --partitions {count}' {what}. Or d{again}"


def _policies(
    app_id: str, address: AddressSettings, existing: Mapping[str, TopicDescription]
) -> Iterable[str]:
    """Compaction keeps the rings, and deletes messages of a group; retention the other way round."""
    for role, name in address.topics(app_id).items():
        topic = existing.get(name)
        if topic is None:
            continue
        if topic.config is None:
            yield untold(name)
        elif role == "changelog" and topic.cleanup_policy != {"compact"}:
            yield (
                f"{name} (changelog of {address.name}) has cleanup.policy={topic.policy_words}, and retention would delete duplicate IDs: "
                f"{alter(name, 'cleanup.policy', 'compact')}"
            )
        elif role != "changelog" and "compact" in topic.cleanup_policy:
            yield _compacted(role, address.name, topic)


def _compacted(role: str, address: str, topic: TopicDescription) -> str:
    return (
        f"{topic.name} ({role} of {address}) has cleanup.policy={topic.policy_words}, and compaction deletes messages of a group: "
        f"name another {role}, or {alter(topic.name, 'cleanup.policy', 'delete')}"
    )


def _sizes(app_id: str, address: AddressSettings, existing: Mapping[str, TopicDescription]) -> Iterable[str]:
    """What fits no other output goes to quarantine, and each transaction to the changelog: nothing is behind them."""
    for role, name in address.topics(app_id).items():
        topic = existing.get(name)
        if (
            role in _ALWAYS_FITS
            and topic is not None
            and topic.config is not None
            and topic.message_bytes_max < RECORD_ROOM_BYTES
        ):
            yield too_small(role, address.name, name, topic.message_bytes_max)


def _timestamps(
    app_id: str, address: AddressSettings, existing: Mapping[str, TopicDescription]
) -> Iterable[str]:
    """Outputs take the timestamps that the input takes: a record that is refused stops its lane."""
    source = existing.get(address.input_topic)
    if source is None:
        return
    for role, name in address.topics(app_id).items():
        if role in _RECORDS and name in existing:
            yield from _narrower(role, address.name, existing[name], source)


def _narrower(role: str, address: str, topic: TopicDescription, source: TopicDescription) -> Iterable[str]:
    """Timestamps that an input takes, and an output does not."""
    for setting, taken in topic.timestamps.items():
        needed = source.timestamps.get(setting, 0)
        if taken < needed:
            yield (
                f"{topic.name} ({role} of {address}) has {setting}={taken}, {source.name} has {needed}, and a record "
                f"between the two would stop its lane: {alter(topic.name, setting, needed)}"
            )
