"""Settings: what the TOML file and the environment may say, validated before anything starts.

Unknown keys, wrong types, impossible combinations and keys whose feature this version does not have are
errors that name the key, its value and the way out. Nothing is ignored.
"""

import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import (
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from ringfence_kafka import wire
from ringfence_kafka.config import patterns
from ringfence_kafka.config.bridges import Addressed, BridgeSettings, ConnectionSettings, bridge_faults
from ringfence_kafka.config.kafka import KafkaSettings
from ringfence_kafka.config.section import Section, TopicName
from ringfence_kafka.errors import ConfigurationError

MAX_PARTITIONS: Final = 100_000
MAX_ID_CACHE_SIZE: Final = 2**31 - 1
"""Slots are numbered with 31 bits in the changelog's keys."""

TOPIC_CHARACTERS_MAX: Final = 249
"""Kafka's limit."""

KAFKA_INTERNAL: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
"""Topics of the cluster itself."""

DEFAULT_GROUP: Final = "qpid.no-group"
NIGHTS_FOLDER: Final = "reconcile"
"""Below ``app.data_dir``, beside the folders of workers."""

__all__ = [
    "AddressDefaults",
    "AddressSettings",
    "AppSettings",
    "KafkaSettings",
    "ReconcileSettings",
    "Settings",
]


class AppSettings(Section):
    """Identity of the application and of this worker."""

    id: TopicName = "ringfence"
    """The consumer group; transactional IDs and internal topics derive from it."""
    data_dir: str = Field(default="data", min_length=1)
    """RocksDB lives in ``<data_dir>/<instance>/<address>-<p>``; relative to the working directory."""
    instance: Annotated[
        str, StringConstraints(pattern=r"^$|^[a-zA-Z0-9._-]*[a-zA-Z0-9_-][a-zA-Z0-9._-]*$", max_length=200)
    ] = ""
    """Name of this worker's folder; empty = host name and web port."""
    web_host: str = Field(default="127.0.0.1", min_length=1)
    web_port: int = Field(default=6066, ge=0, le=65535)
    """0 = no web server."""
    resident_ids_max: int = Field(default=1_000_000, ge=0)
    """A lane with a larger id_cache_size keeps its index in RocksDB instead of in memory."""

    @field_validator("instance")
    @classmethod
    def _not_the_nights(cls, value: str) -> str:
        if value == NIGHTS_FOLDER:
            raise ValueError("that folder of data_dir is the nightly job's: choose another name")
        return value

    @property
    def instance_name(self) -> str:
        """The folder name in force. Stable over restarts, so that a worker finds its RocksDB again."""
        return self.instance or f"{socket.gethostname()}-{self.web_port}"


class AddressDefaults(Section):
    """Keys that may stand in ``[address_defaults]`` and in each ``[[addresses]]``."""

    partitions: int = Field(default=4, ge=1, le=MAX_PARTITIONS)
    """For topics that Ringfence creates; an existing topic keeps its count."""
    replication_factor: int = Field(default=0, ge=0, le=32767)
    """0 = the smaller of 3 and the number of brokers."""
    id_cache_size: int = Field(default=20_000, ge=0, le=MAX_ID_CACHE_SIZE)
    """Duplicate IDs that each lane remembers; 0 = no detection (ActiveMQ Artemis: id-cache-size)."""
    duplicate_id_headers: tuple[str, ...] = ("_AMQ_DUPL_ID", "_HQ_DUPL_ID")
    """The first of these that is present with a value is the duplicate ID."""
    id_max_age: float = Field(default=0, ge=0, allow_inf_nan=False)
    """Seconds, by the records' timestamps; an older ID no longer counts; 0 = no limit."""
    persist_id_cache: bool = True
    """False = the ring is in memory only: forgotten at restart and at every assignment."""
    duplicate_id_from: Literal["header", "key", "value"] = "header"
    """``value``: the digest of the record's value is its ID, for producers that nobody can change."""
    group_header: str = ""
    """The header that names the group (Qpid: qpid.group_header_key); empty = the record key does."""
    default_group: str = Field(default=DEFAULT_GROUP, min_length=1)
    """Group of messages whose group header is missing or empty (Qpid: qpid.no-group)."""
    partitioner: Literal["murmur2", "crc32"] = "murmur2"
    """How producers choose partitions: ``murmur2`` (Java, aiokafka) or ``crc32`` (librdkafka's default)."""
    duplicates: Literal["drop", "divert"] = "drop"

    @field_validator("duplicate_id_headers", mode="before")
    @classmethod
    def _list_of_names(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("duplicate_id_headers")
    @classmethod
    def _usable_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("needs at least one header name; to switch detection off set id_cache_size = 0")
        for name in value:
            if not name:
                raise ValueError("an empty header name can match nothing; remove it")
            if name.startswith(wire.RESERVED_PREFIX):
                raise ValueError(
                    f"{name!r} begins with {wire.RESERVED_PREFIX}, which Ringfence itself writes"
                )
        return value


class AddressSettings(AddressDefaults):
    """One logical destination: an input topic, an accepted topic, a ring a lane."""

    name: TopicName
    input_topic: TopicName
    accepted_topic: TopicName
    duplicates_topic: TopicName
    quarantine_topic: TopicName
    transaction_addresses: tuple[str, ...] = ()
    """Other addresses that parts of its transactions may go to."""

    @field_validator("transaction_addresses", mode="before")
    @classmethod
    def _list_of_addresses(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="before")
    @classmethod
    def _topics_follow_the_name(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        name = data.get("name")
        if not isinstance(name, str):
            name = "unnamed"  # the name itself is reported
        if "duplicates_topic" in data and data.get("duplicates", "drop") == "drop":
            raise ValueError(
                f"duplicates_topic = {data['duplicates_topic']!r} has no effect with duplicates = 'drop': "
                "remove it, or set 'divert'"
            )
        if data.get("default_group", DEFAULT_GROUP) != DEFAULT_GROUP and not data.get("group_header"):
            raise ValueError(
                f"default_group = {data['default_group']!r} has no effect without group_header: "
                "remove it, or name the header"
            )
        return {
            "input_topic": wire.input_topic(name),
            "accepted_topic": wire.accepted_topic(name),
            "duplicates_topic": wire.duplicates_topic(name),
            "quarantine_topic": wire.quarantine_topic(name),
            **data,
        }

    def topics(self, app_id: str) -> dict[str, str]:
        """All topics of the address by their role."""
        roles = {
            "input topic": self.input_topic,
            "accepted topic": self.accepted_topic,
            "quarantine topic": self.quarantine_topic,
            "changelog": wire.changelog_topic(app_id, self.name),
            "forward topic": wire.forward_topic(app_id, self.name),
        }
        return roles | ({"duplicates topic": self.duplicates_topic} if self.duplicates == "divert" else {})


class ReconcileSettings(Section):
    """The nightly job."""

    state_dir: str = ""
    """Where it keeps cuts, results and accepted IDs: a folder, or a URI that Spark's driver and executors all reach. Empty =
    ``reconcile`` below ``app.data_dir``."""
    keep_days: int = Field(default=7, ge=1)
    """How long accepted IDs are kept; longer while a ring may still know them."""
    ring_confidence: float = Field(default=0.999, gt=0, le=1)
    """Share of the resends seen over ``keep_days`` that the recommended ``id_cache_size`` would have caught."""
    master: str = Field(default="local[*]", min_length=1)
    """Spark's master."""


class Settings(Section):
    """All of it. Immutable: a worker runs from one state of the configuration."""

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    app: AppSettings = Field(default_factory=AppSettings)
    address_defaults: AddressDefaults = Field(default_factory=AddressDefaults)
    addresses: tuple[AddressSettings, ...] = ()
    bridges: tuple[BridgeSettings, ...] = ()
    cluster_connections: tuple[ConnectionSettings, ...] = ()
    reconcile: ReconcileSettings = Field(default_factory=ReconcileSettings)

    @field_validator("bridges", "cluster_connections", mode="before")
    @classmethod
    def _lists(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="before")
    @classmethod
    def _defaults_reach_addresses(cls, data: object) -> object:
        """Put ``[address_defaults]`` and matching patterns under each address before validation."""
        if not isinstance(data, dict):
            return data
        defaults, addresses = data.get("address_defaults", {}), data.get("addresses", ())
        if not isinstance(addresses, list | tuple):
            return data
        try:
            AddressDefaults.model_validate(defaults)
        except ValidationError:
            defaults = {}  # reported once, at address_defaults, and not again at each address
        return {**data, "addresses": patterns.resolve(defaults, addresses)}

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        names = Counter(address.name for address in self.addresses)
        for name, count in names.items():
            if count > 1:
                raise ValueError(
                    f"addresses: {name!r} stands {count} times; keep one [[addresses]] entry of it"
                )
        owners: dict[str, tuple[str, str]] = {}
        """Kafka takes no two topics that differ only in where they have dots and underscores."""
        for topic, claim in self._topics():
            if topic in KAFKA_INTERNAL:
                raise ValueError(
                    f"addresses: {claim} would be {topic!r}, which is Kafka's own: choose another name"
                )
            if len(topic) > TOPIC_CHARACTERS_MAX:
                raise ValueError(
                    f"addresses: {claim} would be topic {topic!r}, which has {len(topic)} characters: Kafka takes "
                    f"{TOPIC_CHARACTERS_MAX}; choose a shorter name, or a shorter app.id"
                )
            other, owner = owners.setdefault(topic.replace(".", "_"), (topic, claim))
            if owner == claim:
                continue
            if other == topic:
                raise ValueError(f"addresses: topic {topic!r} would be both {owner} and {claim}; rename one")
            raise ValueError(
                f"addresses: {owner} would be topic {other!r} and {claim} {topic!r}: Kafka takes no two topics that differ in "
                "dots and underscores alone; rename one"
            )
        return self

    def _topics(self) -> Iterator[tuple[str, str]]:
        """All topics that belong to this configuration, each with what it is."""
        yield wire.journal_topic(self.app.id), "the journal"
        yield wire.progress_topic(self.app.id), "the progress of consumer groups"
        for address in self.addresses:
            for role, topic in address.topics(self.app.id).items():
                yield topic, f"the {role} of address {address.name!r}"
            yield wire.dead_letter_topic(address.name), f"the dead-letter topic of address {address.name!r}"

    @model_validator(mode="after")
    def _transactions_go_to_addresses(self) -> Self:
        names = {each.name for each in self.addresses}
        for address in self.addresses:
            for each in address.transaction_addresses:
                if each == address.name:
                    raise ValueError(
                        f"addresses: transaction_addresses of {each!r} names itself: remove it, its own parts are always allowed"
                    )
                if each not in names:
                    raise ValueError(
                        f"addresses: transaction_addresses of {address.name!r} names {each!r}, which is no address here: add an "
                        f"[[addresses]] entry of it, or remove it; there are {', '.join(sorted(names))}"
                    )
        return self

    @model_validator(mode="after")
    def _bridges_lead_somewhere(self) -> Self:
        addressed = {
            each.name: Addressed(
                each.input_topic, each.accepted_topic, each.quarantine_topic, each.duplicate_id_headers
            )
            for each in self.addresses
        }
        for fault in bridge_faults(self.bridges, self.cluster_connections, addressed, self.kafka):
            raise ValueError(fault)
        return self

    def target(self, name: str) -> AddressSettings:
        """An address of another cluster: as the one of that name is configured here, else by the defaults."""
        found = self.address(name)
        defaults = {key: getattr(self.address_defaults, key) for key in AddressDefaults.model_fields}
        return found or AddressSettings.model_validate({"name": name, **defaults})

    def transaction_targets(self, address: AddressSettings) -> tuple[AddressSettings, ...]:
        """The other addresses that parts of its transactions may go to."""
        return tuple(each for each in self.addresses if each.name in address.transaction_addresses)

    def address(self, name: str) -> AddressSettings | None:
        """The address of that name, or None."""
        return next((each for each in self.addresses if each.name == name), None)

    def configured(self, name: str) -> AddressSettings:
        """The address of that name.

        Raises:
            ConfigurationError: there is none; the known ones are listed.
        """
        found = self.address(name)
        if found is None:
            known = ", ".join(each.name for each in self.addresses) or "none; add an [[addresses]] entry"
            raise ConfigurationError(f"unknown address {name!r}: the configuration has {known}")
        return found

    @property
    def nights_dir(self) -> str:
        """Where the nightly job keeps what it must know of earlier nights: a folder, or a URI."""
        return self.reconcile.state_dir or str(Path(self.app.data_dir) / NIGHTS_FOLDER)

    @property
    def state_dir(self) -> Path:
        """Folder of this worker's RocksDB stores."""
        return Path(self.app.data_dir) / self.app.instance_name
