"""Problems of the topics of an address, from their descriptions: one line with the remedy for each. Pure.

`ringfence topics check`, a worker and each opening of a lane use them. :mod:`ringfence_kafka.admin.topic_rules` checks topic settings.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from aiokafka.errors import TopicAuthorizationFailedError, TransactionalIdAuthorizationFailed

from agents.topic_checks.lanes import lane_faults, topic_count_faults
from ringfence_kafka.admin import topic_rules
from ringfence_kafka.admin.topics import Described, TopicDescription, lacking, missing
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.lane_layout import LaneLayout
from ringfence_kafka.wording import counted
from tables.codec import Meta

BEGIN_ANEW: Final = (
    "start again under another app.id, which accepts everything that is still in the input once more"
)


def rights_on(role: str) -> frozenset[str]:
    """Return the rights that a worker needs on a topic, in Kafka's terms."""
    if role == "input topic":
        return frozenset({"Read"})
    return frozenset({"Read", "Write"} if role in {"changelog", "forward topic"} else {"Write"})


def denied(app_id: str, address: AddressSettings, error: BaseException) -> str | None:
    """Return the report of a missing right that a lane met; None if the error has another cause."""
    if not isinstance(error, TopicAuthorizationFailedError | TransactionalIdAuthorizationFailed):
        return None
    named = error.args[0] if error.args else ()
    names = [named] if isinstance(named, str) else sorted(map(str, named))
    if isinstance(error, TransactionalIdAuthorizationFailed):
        return "; ".join(lacking("transactional ID", name, {"Write"}) for name in names)
    roles = {topic: role for role, topic in address.topics(app_id).items()}
    return "; ".join(lacking("topic", name, rights_on(roles.get(name, ""))) for name in names)


def missing_topics(
    app_id: str, address: AddressSettings, described: Described, targets: Iterable[AddressSettings] = ()
) -> list[str]:
    """Return topics that do not exist, or that this user may not see. ``targets``: its ``transaction_addresses``."""
    own = [
        _absent(described, role, address.name, name)
        for role, name in address.topics(app_id).items()
        if name not in described.topics
    ]
    return own + [
        of_target(address, target, _absent(described, "accepted topic", target.name, target.accepted_topic))
        for target in targets
        if target.accepted_topic not in described.topics
    ]


def _absent(described: Described, role: str, address: str, name: str) -> str:
    return (
        lacking("topic", name, rights_on(role)) if name in described.refused else missing(role, address, name)
    )


def missing_journal(app_id: str) -> str:
    """Return the report of a missing journal. All lanes record there what their rings forget."""
    return missing("journal of rings", "all addresses", wire_names.journal_topic(app_id))


def topic_faults(
    app_id: str,
    address: AddressSettings,
    existing: Mapping[str, TopicDescription],
    targets: Iterable[AddressSettings] = (),
) -> list[str]:
    """Return problems of the existing topics that stop lanes, or parts of transactions to ``targets``.

    The targets report the same problems. A lane with transactions to them must not start either.
    """
    source = existing.get(address.input_topic)
    own = [
        problem
        for role, name in address.topics(app_id).items()
        if name in existing
        for problem in topic_rules.problems(existing[name], role, address.name, source)
    ]
    theirs = [
        of_target(address, target, fault)
        for target in targets
        if (topic := existing.get(target.accepted_topic)) is not None
        for fault in topic_rules.problems(topic, "accepted topic", target.name, source)
    ]
    return [*_counts(app_id, address, existing), *own, *theirs]


def of_target(address: AddressSettings, target: AddressSettings, said: str) -> str:
    """Return a problem of another address's topic, with its relation to this address."""
    return f"transactions of {address.name} have parts for {target.name}: {said}"


def count_faults(
    address: AddressSettings,
    counts: Mapping[str, int],
    metas: Iterable[Meta],
    targets: Iterable[AddressSettings] = (),
) -> list[str]:
    """Return changes of partition or lane counts since the meta records of the lanes.

    The input of an address that sets ``lanes`` may grow, if each group and each ID keeps its home.
    """
    metas = tuple(metas)
    if faults := lane_faults(address, metas):
        return faults
    own = {address.input_topic, address.accepted_topic, *(target.accepted_topic for target in targets)}
    found = {
        (topic, before): counts[topic]
        for meta in metas
        for topic, before in meta.partition_counts.items()
        if topic in own and counts.get(topic, before) != before
    }
    return [
        _moved_input(address, now, before)
        if topic == address.input_topic
        else _moved("", topic, now, before, "")
        for (topic, before), now in found.items()
        if topic != address.input_topic or not _keeps_homes(address, now, before)
    ]


def _keeps_homes(address: AddressSettings, now: int, before: int) -> bool:
    """Return whether a growth moves no group and no ID. An input that shrank was created again."""
    lanes = address.lanes
    return now > before and lanes > 0 and LaneLayout(now, lanes).keeps_homes(LaneLayout(before, lanes))


def _moved_input(address: AddressSettings, now: int, before: int) -> str:
    if not address.lanes:
        return _moved(address.name, address.input_topic, now, before, "")
    count = next_count(now, before, address.lanes)
    grow = f"'ringfence topics grow {address.name} --partitions {count}' gives it {count}. " if count else ""
    return (
        f"{address.input_topic} has {counted(now, 'partition')}, it had {before} when its lanes began: with lanes = {address.lanes} groups and IDs "
        f"have moved to other lanes. {grow}{_again(before, alone=not count)}"
    )


def _again(partitions: int, *, alone: bool) -> str:
    """Return the way out by a new topic. ``alone``: the text names no other one."""
    count, once = counted(partitions, "partition"), "Once" if alone else "Or once"
    return f"{once} nothing in it is unread, because that is lost, delete it and create it again with {count}, or {BEGIN_ANEW}"


def next_count(now: int, before: int, lanes: int) -> int:
    """Return the smallest partition count, at least ``now``, that keeps the homes of ``before``; 0 = none."""
    if now <= before:
        return before
    return 0 if before % lanes else -(-now // lanes) * lanes


def notes(
    app_id: str,
    address: AddressSettings,
    existing: Mapping[str, TopicDescription],
    targets: Iterable[AddressSettings] = (),
) -> list[str]:
    """Return remarks that stop nothing. ``targets``: other addresses that its transactions have parts for."""
    source = existing.get(address.input_topic)
    if source is None:
        return []
    found = []
    if source.partitions != address.partitions:
        found.append(
            f"{source.name} has {counted(source.partitions, 'partition')}, the configuration says partitions = "
            f"{address.partitions}: an existing topic is used as it is"
        )
    for role, name in address.topics(app_id).items():
        if name in existing:
            found += topic_rules.notes(existing[name], role, address.name, source)
    for target in targets:
        if (accepted := existing.get(target.accepted_topic)) is not None:
            told = topic_rules.notes(accepted, topic_rules.TARGET, target.name, source)
            found += [of_target(address, target, note) for note in told]
    return found


def _counts(app_id: str, address: AddressSettings, existing: Mapping[str, TopicDescription]) -> Iterable[str]:
    """Compare the partition counts of changelog and forward topic with the number of lanes.

    If the forward topic fits and the changelog has more partitions, only the changelog grew, and no lane uses the extra ones. The lanes'
    meta records show whether the input shrank (:func:`count_faults`).
    """
    source = existing.get(address.input_topic)
    changelog = existing.get(wire_names.changelog_topic(app_id, address.name))
    forward = existing.get(wire_names.forward_topic(app_id, address.name))
    if source is None:
        return
    if address.lanes:
        owned = {"changelog": changelog, "forward topic": forward}
        yield from topic_count_faults(
            address,
            (source.name, source.partitions),
            {role: (item.name, item.partitions) for role, item in owned.items() if item is not None},
        )
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
            f"{forward.name} (forward topic of {address.name}) has {counted(forward.partitions, 'partition')}, {source.name} has "
            f"{source.partitions}: delete it once its lag is 0, and run 'ringfence topics create'"
        )


def _moved(grows: str, topic: str, now: int, before: int, witnesses: str) -> str:
    """Describe a changed partition count. It moves groups to other lanes, so their rings and their order would be lost.

    ``grows``: address of a changed input, whose lanes a growth can adapt; empty = the topic is not an input.
    """
    still = f", as {witnesses} still {'have' if ' ' in witnesses else 'has'}" if witnesses else ""
    unused = (
        f"; only if nothing was processed yet, delete {witnesses} and run 'ringfence topics create'"
        if witnesses
        else ""
    )
    said = (
        f"{topic} has {counted(now, 'partition')}, it had {before} when its lanes began{still}: groups and IDs have moved to other "
        "partitions. "
    )
    again = f"{_again(before, alone=not grows)}{unused}"
    if not grows:
        return f"{said}{again}"
    if witnesses:
        again += f". If lanes was set before, run 'ringfence rings regroup {grows} --lanes 0'"
    count = max(before, -(-now // before) * before)
    what = "continues with them" if now > before else f"finishes a growth to {before}, if one was begun"
    return f"{said}Stop the workers: 'ringfence topics grow {grows} --partitions {count}' {what}. {again}"
