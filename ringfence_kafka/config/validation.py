"""Contradictions among ``[[addresses]]``, ``[[bridges]]`` and ``[[cluster_connections]]``. Pure."""

import fnmatch
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from pydantic import TypeAdapter, ValidationError

from ringfence_kafka.config.addresses import (
    AddressSettings,
    claimed_topics,
    has_wildcard,
)
from ringfence_kafka.config.bridges import (
    ADDRESS,
    NAME_CHARACTERS_MAX,
    BridgeSettings,
    ConnectionSettings,
)
from ringfence_kafka.config.chains import feeding_cycle, upstream
from ringfence_kafka.config.kafka import KafkaSettings
from ringfence_kafka.config.section import TopicName
from ringfence_kafka.protocol import wire_names

_TOPIC_NAME: Final = TypeAdapter(TopicName)
KAFKA_INTERNAL: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
"""Topics of the cluster itself."""


def topic_faults(addresses: Sequence[AddressSettings], app_id: str) -> Iterator[str]:
    """Yield problems of address and topic names, and of ``transaction_addresses``."""
    for name, count in Counter(address.name for address in addresses).items():
        if count > 1:
            yield f"addresses: {name!r} is listed {count} times; keep one [[addresses]] entry of it"
    yield from _chain_faults(addresses)
    yield from _claim_faults(addresses, app_id)
    modes = {address.name: address.mode for address in addresses}
    for address in addresses:
        for name in address.transaction_addresses:
            if name == address.name:
                yield (
                    f"addresses: transaction_addresses of {name!r} names itself: remove it, its own parts are always allowed"
                )
            elif name not in modes:
                yield (
                    f"addresses: transaction_addresses of {address.name!r} names {name!r}, which is not an "
                    "address here: add an [[addresses]] entry of it, or remove it; there are "
                    f"{', '.join(sorted(modes))}"
                )
            elif modes[name] != address.mode:
                yield (
                    f"addresses: {address.name!r} has mode = {address.mode!r} and {name!r} of its transaction_addresses {modes[name]!r}: a "
                    "transaction passes or is dropped as a whole; set the same mode for both"
                )


def _chain_faults(addresses: Sequence[AddressSettings]) -> Iterator[str]:
    if circle := feeding_cycle(addresses):
        yield (
            f"addresses: {' -> '.join(map(repr, circle))} is a cycle: each reads what the one before it "
            "accepts, and messages would circulate forever; give one of them another input_topic"
        )
    writers = {address.accepted_topic: address.name for address in addresses}
    for topic, count in Counter(address.input_topic for address in addresses).items():
        if count > 1 and topic in writers:
            readers = [repr(address.name) for address in addresses if address.input_topic == topic]
            yield (
                f"addresses: {' and '.join(readers)} have the input topic {topic!r}, the accepted topic of {writers[topic]!r}: it can be the input "
                "of one address; rename one input_topic, or chain them one after the other"
            )


def _claim_faults(addresses: Sequence[AddressSettings], app_id: str) -> Iterator[str]:
    """Yield topics with invalid names, or with two roles that do not form a chain."""
    claims = list(claimed_topics(addresses, app_id))
    chained = _chained_topics(addresses, app_id, claims)
    owners: dict[str, tuple[str, str]] = {}
    """Owner and topic by normalised name: Kafka does not allow topics that differ only in dots and underscores."""
    for topic, claim in claims:
        if topic in KAFKA_INTERNAL:
            yield f"addresses: {claim} would be {topic!r}, which is Kafka's own: choose another name"
        if len(topic) > wire_names.TOPIC_CHARACTERS_MAX:
            yield (
                f"addresses: {claim} would be topic {topic!r}, which has {len(topic)} characters: Kafka "
                f"allows {wire_names.TOPIC_CHARACTERS_MAX}; choose a shorter name, or a shorter app.id"
            )
        other, owner = owners.setdefault(topic.replace(".", "_"), (topic, claim))
        if other != topic:
            yield (
                f"addresses: {owner} would be topic {other!r} and {claim} {topic!r}: Kafka does not allow "
                "two topics that differ only in dots and underscores; rename one"
            )
        elif owner != claim and topic not in chained:
            yield f"addresses: topic {topic!r} would be both {owner} and {claim}; rename one"


def _chained_topics(
    addresses: Sequence[AddressSettings], app_id: str, claims: Sequence[tuple[str, str]]
) -> set[str]:
    """Return the topics between two chained addresses that are not named like an address."""
    roles = Counter((topic, role) for address in addresses for role, topic in address.topics(app_id).items())
    names = {address.name for address in addresses}
    return {
        topic
        for topic, count in Counter(topic for topic, _ in claims).items()
        if count == 2
        and topic not in names
        and roles[topic, "accepted topic"] == roles[topic, "input topic"] == 1
    }


def same_cluster(one: KafkaSettings, other: KafkaSettings) -> bool:
    """Return whether both list a common bootstrap server."""
    ours, theirs = ({part.strip() for part in kafka.bootstrap_servers.split(",")} for kafka in (one, other))
    return not ours.isdisjoint(theirs)


def bridge_faults(
    bridges: Sequence[BridgeSettings],
    connections: Sequence[ConnectionSettings],
    addresses: Mapping[str, AddressSettings],
    topics: Mapping[str, str],
    kafka: KafkaSettings,
) -> Iterator[str]:
    """Yield contradictions among tables, one line with the remedy for each. Pure.

    ``topics``: role of each topic of addresses or the application; ``kafka``: cluster of tables that name none.
    """
    names = [(bridge.name, f"bridges: {bridge.name!r}") for bridge in bridges]
    for bridge in bridges:
        yield from _topic_faults(bridge, addresses, kafka)
    for name, count in Counter(connection.name for connection in connections).items():
        if count > 1:
            yield f"cluster_connections: {name!r} is listed {count} times; keep one entry of it"
    for connection in connections:
        yield from _connection_faults(connection, addresses, kafka)
        yield from _unfit_addresses(connection, addresses)
        names += [
            (connection.bridge_name(member, address), f"cluster_connections: {connection.name!r}")
            for member in connection.targets
            for address in connection.names(addresses)
        ]
        if connection.name in {bridge.name for bridge in bridges}:
            yield f"cluster_connections: {connection.name!r} is also a bridge's name: rename one, 'ringfence bridge NAME' must tell them apart"
    yield from _name_faults(names)
    reached = {bridge.target_address for bridge in bridges}
    for connection in connections:
        reached |= set(map(connection.target_address, connection.names(addresses)))
    own = {
        wire_names.quarantine_topic(address): f"the quarantine topic of address {address!r}"
        for address in reached - set(addresses)
    }
    yield from _quarantine_faults(names, {**own, **topics})


def window_faults(
    bridges: Sequence[BridgeSettings],
    connections: Sequence[ConnectionSettings],
    addresses: Collection[str],
    size: Callable[[str], int | None],
) -> Iterator[str]:
    """Yield windows that exceed the target's memory, one line with the remedy for each.

    ``size`` returns ``id_cache_size`` of an address in this configuration; None = not configured.
    """
    wide = [
        (f"bridges: {bridge.name!r}", bridge.window, bridge.target_address)
        for bridge in bridges
        if bridge.use_duplicate_detection
    ]
    wide += [
        (f"cluster_connections: {connection.name!r}", connection.window, connection.target_address(name))
        for connection in connections
        for name in connection.names(addresses)
    ]
    for place, window, address in wide:
        told_apart = size(address) if window else None
        if window and told_apart and window > told_apart:
            yield (
                f"{place}: window = {window} is more than id_cache_size = {told_apart} of its target "
                f"address {address!r}, which would forget messages under way, and accept them twice when "
                f"they are sent again: set window = {told_apart} or less, or raise id_cache_size, there and "
                "here"
            )


def _name_faults(names: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, count in Counter(name for name, _ in names).items():
        if count > 1:
            yield f"bridges: {name!r} is listed {count} times; keep one [[bridges]] entry of it"
    for name, place in names:
        if len(name) > NAME_CHARACTERS_MAX:
            yield (
                f"{place} would have the bridge {name!r} of {len(name)} characters: {NAME_CHARACTERS_MAX} are possible; choose shorter names"
            )


def _quarantine_faults(names: Iterable[tuple[str, str]], topics: Mapping[str, str]) -> Iterator[str]:
    """Yield bridges whose quarantine topic has another role: Kafka treats dots and underscores as equal."""
    owners = {topic.replace(".", "_"): f"{topic} is {owner}" for topic, owner in topics.items()}
    for name, place in names:
        quarantine = wire_names.bridge_quarantine_topic(name)
        if owner := owners.get(quarantine.replace(".", "_")):
            yield f"{place} would write what is refused to {quarantine}, but {owner}: choose another name"


def _unfit_addresses(
    connection: ConnectionSettings, addresses: Mapping[str, AddressSettings]
) -> Iterator[str]:
    place = f"cluster_connections: {connection.name!r}"
    for name in connection.names(addresses):
        if fault := _unfit(name):
            yield f"{place}: addresses: {name!r} cannot be an address: {fault}"
        elif fault := _unfit(target := connection.target_address(name)):
            yield f"{place}: target = {connection.target!r}: {target!r} cannot be an address: {fault}"


def _unfit(name: str) -> str:
    """Return why a name is not valid for an address, with the remedy; empty = it is valid."""
    try:
        _TOPIC_NAME.validate_python(name)
    except ValidationError as error:
        if error.errors()[0]["type"] == "string_too_long":
            return f"it has {len(name)} characters: choose a shorter one"
        return "use letters, digits, dots, underscores and hyphens"
    return ""


def _topic_faults(
    bridge: BridgeSettings, addresses: Mapping[str, AddressSettings], kafka: KafkaSettings
) -> Iterator[str]:
    place = f"bridges: {bridge.name!r}"
    address = addresses.get(bridge.target_address)
    target = bridge.target_topic or (address.input_topic if address else bridge.target_address)
    here = same_cluster(bridge.source or kafka, bridge.target or kafka)
    if here and target == bridge.source_topic:
        yield f"{place} would forward {target} to itself: name another source_topic, target_address or [bridges.target]"
    fed_by = upstream(bridge.target_address, addresses.values()) if address else ()
    if address and fed_by and not bridge.target_topic:
        way_out = f"bridge to {fed_by[-1]!r}, or give it a target_topic of its own"
        yield _into_chain(place, address, fed_by[0], way_out)
    accepted = address.accepted_topic if address else wire_names.accepted_topic(bridge.target_address)
    makers = {accepted: bridge.target_address} | {
        item.accepted_topic: name
        for name, item in addresses.items()
        if bridge.target_address in upstream(name, addresses.values())
    }
    if here and bridge.source_topic in makers:
        yield (
            f"{place} would forward {bridge.source_topic} to {target}, from which {makers[bridge.source_topic]} "
            "makes it, forever: name another source_topic, target_address or [bridges.target]"
        )
    quarantine = wire_names.bridge_quarantine_topic(bridge.name)
    if quarantine in {wire_names.quarantine_topic(bridge.target_address), target} or (
        here and quarantine == bridge.source_topic
    ):
        yield f"{place} would write what is refused to {quarantine}, which is used for something else: choose another name"
    for name in bridge.add_headers:
        if address and name in address.id_headers:
            yield (
                f"{place}: add_headers = {{{name!r}: …}} would give all messages one duplicate ID, and the target would accept one of them: "
                "remove it"
            )


def _into_chain(place: str, address: AddressSettings, feeder: str, way_out: str) -> str:
    """Return the problem of a bridge into a chained address, whose input only workers may write."""
    return (
        f"{place}: the input topic of {address.name!r} is {address.input_topic}, the accepted topic of "
        f"{feeder!r}, and only workers write there: {way_out}"
    )


def _connection_faults(
    connection: ConnectionSettings, addresses: Mapping[str, AddressSettings], kafka: KafkaSettings
) -> Iterator[str]:
    place = f"cluster_connections: {connection.name!r}"
    for pattern in connection.addresses:
        if has_wildcard(pattern) and not fnmatch.filter(addresses, pattern):
            known = ", ".join(sorted(addresses)) or "none"
            yield f"{place}: addresses: {pattern!r} matches no [[addresses]] entry (there are {known}): fix it, or add one"
    here = connection.member(connection.this).kafka() or kafka
    # With strict, one cluster may replace a lost member: each group still goes to one member.
    for member in connection.members if connection.load_balancing == "all" else ():
        if member.name != connection.this and same_cluster(here, member.kafka() or kafka):
            yield (
                f"{place}: members {connection.this!r} and {member.name!r} have the same bootstrap_servers: each member is a cluster of its "
                "own; fix one"
            )
    for name in connection.names(addresses):
        target = connection.target_address(name)
        if (there := addresses.get(target)) and (fed_by := upstream(target, addresses.values())):
            yield _into_chain(place, there, fed_by[0], f"leave {name!r} out of its addresses")
        if connection.load_balancing == "strict" and target == name:
            yield (
                f"{place}: target = {connection.target!r} is the same address, and with load_balancing = 'strict' a copy would stay at "
                f"{connection.this}: name another, such as '{ADDRESS}.shared', or leave it out"
            )
