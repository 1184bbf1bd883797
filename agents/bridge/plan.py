"""Plans of bridges: one for each ``[[bridges]]`` table, and one for each member and address of a cluster connection."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from agents.bridge.translation import Translator
from agents.rules.lane_rules import rules_of
from ringfence_kafka.config.bridges import WINDOW, BridgeSettings, ConnectionSettings, window_of
from ringfence_kafka.config.settings import AddressSettings, KafkaSettings, Settings
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.protocol import wire_names

AGAIN_FIRST_S: Final = 0.1
AGAIN_MOST_S: Final = 5.0
"""Maximum delay between attempts after any failure, in seconds."""
LASTED_S: Final = 5.0
"""Time of work after which a failure counts as the first one, in seconds."""


@dataclass(frozen=True, slots=True)
class Share:
    """Part of a strict connection that one of its bridges forwards."""

    connection: str
    members: tuple[str, ...]
    member: str
    """Member whose groups the bridge forwards."""
    before: str
    after: str
    """Parts of the consumer group's name before and after the member's name."""

    def group(self, member: str) -> str:
        """Return the consumer group of a member's bridge. It may be a former member."""
        return f"{self.before}{member}{self.after}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Names, topics and settings of one bridge."""

    name: str
    group: str
    source: KafkaSettings
    source_topic: str
    target: KafkaSettings
    target_topic: str
    address: AddressSettings
    """Address at the target, with its rules."""
    translator: Translator
    replication_factor: int
    """Replication factor of the quarantine topic, if the bridge creates it."""
    app_id: str
    """App that owns the bridge. Other apps may have bridges of the same name to the target."""
    connection: str = ""
    """Cluster connection of the bridge; empty = none."""
    share: Share | None = None
    user_ids: Literal["check", "ignore"] = "check"
    detection: bool = True
    start: Literal["earliest", "latest"] = "earliest"
    window: int = WINDOW
    returns: Literal["drop", "forward"] | None = None
    """Treatment of messages that come back; None = the bridge does not trace messages."""

    @property
    def traces(self) -> bool:
        """Whether a header traces the topics that a message was read from. Cluster connections trace members instead."""
        return self.returns is not None

    @property
    def terms(self) -> dict[str, Any]:
        """Settings that must be equal in all processes of the bridge."""
        rules = {f"target address: {key}": value for key, value in rules_of(self.address).items()}
        return {
            "target_topic": self.target_topic,
            "user_ids": self.user_ids,
            "use_duplicate_detection": self.detection,
            "returns": self.returns,
            **self.translator.terms,
            **rules,
        }

    @property
    def quarantine_topic(self) -> str:
        """Topic at the target for messages that the target refuses permanently."""
        return wire_names.bridge_quarantine_topic(self.name)


def plans(settings: Settings, names: Sequence[str] = ()) -> list[Plan]:
    """Return all bridges of a configuration, or those of these names. Raises ConfigurationError if there are none, or a name is unknown."""
    known = [_of_bridge(settings, bridge) for bridge in settings.bridges]
    for connection in settings.cluster_connections:
        known += _of_connection(settings, connection)
    if not known:
        raise ConfigurationError(
            "no bridges: add a [[bridges]] or a [[cluster_connections]] table to the configuration"
        )
    there = {plan.name for plan in known} | {plan.connection for plan in known if plan.connection}
    if unknown := [name for name in names if name not in there]:
        raise ConfigurationError(
            f"unknown bridge {unknown[0]!r}: the configuration has {', '.join(sorted(there))}"
        )
    return [plan for plan in known if not names or {plan.name, plan.connection} & set(names)]


def _of_bridge(settings: Settings, bridge: BridgeSettings) -> Plan:
    address = settings.target(bridge.target_address)
    return Plan(
        name=bridge.name,
        group=wire_names.bridge_group(settings.app.id, bridge.name),
        source=bridge.source or settings.kafka,
        source_topic=bridge.source_topic,
        target=bridge.target or settings.kafka,
        target_topic=bridge.target_topic or address.input_topic,
        address=address,
        translator=Translator(bridge.filter_header, bridge.filter_values, bridge.add_headers),
        replication_factor=address.replication_factor,
        app_id=settings.app.id,
        user_ids=bridge.user_ids,
        detection=bridge.use_duplicate_detection,
        start=bridge.start,
        window=window_of(bridge.window, address.id_cache_size if bridge.use_duplicate_detection else 0),
        returns=bridge.returns,
    )


def _of_connection(settings: Settings, connection: ConnectionSettings) -> list[Plan]:
    strict = connection.load_balancing == "strict"
    members = tuple(sorted(member.name for member in connection.members))
    found = []
    for name in connection.names([address.name for address in settings.addresses]):
        here, there = settings.target(name), settings.target(connection.target_address(name))
        for member in connection.targets:
            bridge = connection.bridge_name(member, name)
            found.append(
                Plan(
                    name=bridge,
                    group=wire_names.bridge_group(settings.app.id, bridge),
                    source=connection.member(connection.this).kafka() or settings.kafka,
                    source_topic=here.accepted_topic,
                    target=connection.member(member).kafka() or settings.kafka,
                    target_topic=there.input_topic,
                    address=there,
                    translator=Translator()
                    if strict
                    else Translator(
                        this=connection.this,
                        member=member,
                        max_hops=connection.max_hops,
                        members=connection.targets,
                    ),
                    replication_factor=there.replication_factor,
                    app_id=settings.app.id,
                    connection=connection.name,
                    share=_share(settings, connection, members, member, name) if strict else None,
                    user_ids=connection.user_ids,
                    window=window_of(connection.window, there.id_cache_size),
                )
            )
    return found


def _share(
    settings: Settings, connection: ConnectionSettings, members: tuple[str, ...], member: str, address: str
) -> Share:
    group = wire_names.bridge_group(settings.app.id, connection.bridge_name("\0", address))
    before, after = group.split("\0")
    return Share(connection.name, members, member, before, after)


def with_members(plan: Plan, members: tuple[str, ...]) -> Plan:
    """Return the plan with other members of its connection."""
    return plan if plan.share is None else replace(plan, share=replace(plan.share, members=members))
