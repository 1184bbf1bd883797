"""Tables ``[[bridges]]`` and ``[[cluster_connections]]``: forwarding from one cluster to another."""

import fnmatch
from collections import Counter
from collections.abc import Collection
from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from ringfence_kafka.config.addresses import has_wildcard
from ringfence_kafka.config.kafka import KafkaSettings
from ringfence_kafka.config.section import MEMBER_PATTERN, NAME_PATTERN, Section, TopicName, unit
from ringfence_kafka.protocol import wire_names

NAME_CHARACTERS_MAX: Final = 200
"""Maximum length of a bridge name in :mod:`ringfence_kafka.protocol.hop`. Its group and its quarantine topic then fit Kafka's limits."""
NO_NAME: Final = "status"
"""Reserved names: ``ringfence bridge status`` is a command."""
STRICT_NAMES_MAX: Final = 2_000
"""Maximum total length of all members' names: they are in the metadata of each commit, which Kafka limits to 4,096 bytes."""
ADDRESS: Final = "{address}"
"""Placeholder for an address's name in ``target``."""

WINDOW: Final = 5_000
"""Default of unconfirmed offsets, if the target remembers at least this number."""

BridgeName = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=NAME_CHARACTERS_MAX)]
MemberName = Annotated[str, StringConstraints(pattern=MEMBER_PATTERN, max_length=60)]
"""Pattern of member names. They have no dots, because they are part of bridge names, and no commas, because headers list them."""
UserIds = Literal["check", "ignore"]
Offsets = Annotated[int, Field(ge=1, le=65_536, json_schema_extra=unit("offsets"))]


def _require_no_verb(value: str) -> str:
    if value == NO_NAME:
        raise ValueError(f"'ringfence bridge {NO_NAME}' is a verb: choose another name")
    return value


def window_of(window: int | None, id_cache_size: int) -> int:
    """Return the window of a bridge to an address with this ``id_cache_size``: the configured one, else at most that size.

    With more unconfirmed offsets than ``id_cache_size``, the target forgets some of them, and accepts them twice when they are sent
    again. An address with size 0 detects no duplicates with any window.
    """
    return window or min(WINDOW, id_cache_size or WINDOW)


class BridgeSettings(Section):
    """A bridge: one source topic, one target address."""

    name: BridgeName
    """Name in each hop's ID and in the consumer group; another name is another bridge."""
    source_topic: TopicName
    """Topic that the bridge reads."""
    target_address: TopicName
    """Address that the bridge forwards to."""
    target_topic: TopicName | None = None
    """Topic that the bridge writes; unless set, the input topic of the target address."""
    user_ids: UserIds = "check"
    """Whether the target checks the messages' own IDs too."""
    use_duplicate_detection: bool = True
    """Whether messages carry hop headers, as in HornetQ; false = retries may arrive twice."""
    start: Literal["earliest", "latest"] = "earliest"
    """End of the source topic at which a new bridge begins."""
    window: Offsets | None = None
    """Offsets of a source partition under way; unset = 5,000, or the target's smaller ``id_cache_size``."""
    returns: Literal["drop", "forward"] | None = None
    """Treatment of messages that were at the target, or came to the source, before; unless set, no header records their path."""
    filter_header: str = ""
    """Header that is compared with ``filter_values``; empty = the bridge forwards all messages."""
    filter_values: tuple[str, ...] = ()
    """Values of ``filter_header``; the bridge forwards only messages with one of them."""
    add_headers: dict[str, str] = Field(default_factory=dict)
    """Headers that the bridge puts on each message, in place of those of the same name."""
    source: KafkaSettings | None = None
    """Cluster that the bridge reads, with the keys of ``[kafka]``; unless set, the cluster of ``[kafka]``."""
    target: KafkaSettings | None = None
    """Cluster that the bridge writes, with the keys of ``[kafka]``; unless set, the cluster of ``[kafka]``."""

    _no_verb = field_validator("name")(_require_no_verb)

    @field_validator("add_headers")
    @classmethod
    def _names_of_users(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not name:
                raise ValueError("a header without a name: give it one, or remove it")
            if name.startswith(wire_names.RESERVED_PREFIX):
                raise ValueError(
                    f"{name!r} begins with {wire_names.RESERVED_PREFIX}, which Ringfence itself writes: rename it"
                )
        return value

    @field_validator("source", "target")
    @classmethod
    def _says_where(cls, value: KafkaSettings | None) -> KafkaSettings | None:
        if value is not None and "bootstrap_servers" not in value.model_fields_set:
            raise ValueError("needs bootstrap_servers: add it, or remove the table, which means [kafka]")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.filter_values and not self.filter_header:
            raise ValueError(
                f"filter_values = {list(self.filter_values)} has no effect without filter_header: name the header, or remove it"
            )
        if self.filter_header and not self.filter_values:
            raise ValueError(
                f"filter_header = {self.filter_header!r} needs filter_values: without any nothing would be forwarded"
            )
        if self.user_ids == "ignore" and not self.use_duplicate_detection:
            raise ValueError(
                "user_ids = 'ignore' has no effect with use_duplicate_detection = false: a header of the "
                "hop states it; remove one of them"
            )
        if self.returns is not None and not self.use_duplicate_detection:
            raise ValueError(
                f"returns = {self.returns!r} has no effect with use_duplicate_detection = false: a header "
                "records where a message has been; remove one of them"
            )
        return self


class MemberSettings(KafkaSettings):
    """A cluster of a connection, with the keys of ``[kafka]`` beside its name."""

    name: MemberName
    """Name of the member, in the names of bridges and in the path of a message."""

    def kafka(self) -> KafkaSettings | None:
        """Return the access to the member; None = as in ``[kafka]``."""
        if self.model_fields_set <= {"name"}:
            return None
        made = KafkaSettings.model_construct(
            self.model_fields_set - {"name"},
            **{key: getattr(self, key) for key in KafkaSettings.model_fields},
        )
        return made.named(self._application, self._instance)


class ConnectionSettings(Section):
    """A set of bridges from this cluster's accepted topics to other clusters, as a cluster-connection of HornetQ."""

    name: MemberName
    """Name of the connection, in the names of its bridges."""
    this: MemberName
    """Member whose topics are forwarded, which is this cluster."""
    addresses: tuple[str, ...]
    """Addresses that are forwarded: names, or patterns of names that are configured."""
    load_balancing: Literal["all", "strict"] = "all"
    """``all`` forwards to every other member; ``strict`` brings each group to exactly one member, this one included."""
    target: str = ""
    """Address at the members, with ``{address}`` for the name here; empty = ``{address}``, with strict ``{address}.shared``."""
    max_hops: int = Field(default=1, ge=1, le=100, json_schema_extra=unit("hops"))
    """Members that a message may pass, with ``load_balancing = "all"``."""
    user_ids: UserIds = "ignore"
    """Whether members check the messages' own IDs too."""
    window: Offsets | None = None
    """Offsets under way of each of its bridges, as ``window`` of a bridge."""
    members: tuple[MemberSettings, ...]
    """Clusters of the connection, this one included."""

    _no_verb = field_validator("name")(_require_no_verb)

    @field_validator("addresses")
    @classmethod
    def _some(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("needs at least one address, or a pattern such as 'orders-*'")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        names = [member.name for member in self.members]
        for name, count in Counter(names).items():
            if count > 1:
                raise ValueError(
                    f"members: {name!r} is listed {count} times; keep one [[…members]] entry of it"
                )
        if self.this not in names:
            raise ValueError(
                f"this = {self.this!r} is not a member: add a [[cluster_connections.members]] entry of it, "
                f"or name one of {', '.join(names)}"
            )
        if len(names) == 1:
            raise ValueError(f"members: {self.this!r} is the only one: add the other members")
        for member in self.members:
            if member.name != self.this and "bootstrap_servers" not in member.model_fields_set:
                raise ValueError(f"members: {member.name!r} needs bootstrap_servers: add it")
        if self.load_balancing == "strict" and "max_hops" in self.model_fields_set:
            raise ValueError(
                "max_hops has no effect with load_balancing = 'strict', which allows one hop: remove it"
            )
        if self.load_balancing == "strict" and (length := sum(map(len, names))) > STRICT_NAMES_MAX:
            raise ValueError(
                f"members: their names have {length} characters: with load_balancing = 'strict' at most {STRICT_NAMES_MAX} fit beside "
                "an offset; choose shorter ones"
            )
        target = self.target_address("")
        if "{" in target or "}" in target:
            raise ValueError(f"target = {self.target!r}: only {ADDRESS} is replaced: write no other braces")
        return self

    @property
    def target_template(self) -> str:
        """Value of ``target``, or its default."""
        return self.target or (ADDRESS if self.load_balancing == "all" else f"{ADDRESS}.shared")

    def target_address(self, address: str) -> str:
        """Return the address at the members that a local address goes to."""
        return self.target_template.replace(ADDRESS, address)

    def bridge_name(self, member: str, address: str) -> str:
        """Return the name of the bridge for an address and a member."""
        return f"{self.name}.{self.this}.{member}.{address}"

    def member(self, name: str) -> MemberSettings:
        """Return an existing member by name."""
        return next(member for member in self.members if member.name == name)

    @property
    def targets(self) -> list[str]:
        """Members that it forwards to."""
        own = self.load_balancing == "strict"
        return [member.name for member in self.members if own or member.name != self.this]

    def names(self, configured: Collection[str]) -> list[str]:
        """Return its addresses in order: named ones, and matching ones that this connection does not itself bring here."""
        named: dict[str, bool] = {}
        for address in self.addresses:
            if has_wildcard(address):
                for name in configured:
                    if fnmatch.fnmatchcase(name, address):
                        named.setdefault(name, False)
            else:
                named[address] = True
        brought = {target for name in named if (target := self.target_address(name)) != name}
        return [name for name, plainly in named.items() if plainly or name not in brought]
