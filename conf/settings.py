"""Settings: what the TOML file and the environment may say, validated before anything starts.

Unknown keys, wrong types, impossible combinations and keys whose feature this version does not have are
errors that name the key, its value and the way out. Nothing is ignored.
"""

import socket
from collections import Counter
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from conf import wire

MAX_PARTITIONS: Final = 100_000
MAX_ID_CACHE_SIZE: Final = 2**31 - 1
"""Slots are numbered with 31 bits in the changelog's keys."""

TopicName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9._-]*[a-zA-Z0-9_-][a-zA-Z0-9._-]*$", max_length=200)]
"""Kafka's legal characters; ``.`` and ``..`` are no topics."""


class _Section(BaseModel):
    """Strict and closed: a string is no number, and a key that nobody reads is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class KafkaSettings(_Section):
    """How to reach the cluster."""

    bootstrap_servers: str = Field(default="127.0.0.1:9092", min_length=1)
    """Comma-separated ``host:port``."""

    @field_validator("bootstrap_servers")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        for server in value.split(","):
            host, _, port = server.strip().rpartition(":")
            if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65536:  # noqa: PLR2004
                raise ValueError(f"{server.strip()!r} is not host:port; write for example 127.0.0.1:9092")
        return value


class AppSettings(_Section):
    """Identity of the application and of this worker."""

    id: TopicName = "ringfence"
    """The consumer group; transactional IDs and internal topics derive from it."""
    data_dir: str = Field(default="data", min_length=1)
    """RocksDB lives in ``<data_dir>/<instance>/<address>-<p>``; relative to the working directory."""
    instance: Annotated[str, StringConstraints(pattern=r"^$|^[a-zA-Z0-9._-]*[a-zA-Z0-9_-][a-zA-Z0-9._-]*$", max_length=200)] = ""
    """Name of this worker's folder; empty = host name and web port."""
    web_host: str = Field(default="127.0.0.1", min_length=1)
    web_port: int = Field(default=6066, ge=0, le=65535)
    """0 = no web server."""
    resident_ids_max: int = Field(default=1_000_000, ge=0)
    """A lane with a larger id_cache_size keeps its index in RocksDB instead of in memory."""

    @property
    def instance_name(self) -> str:
        """The folder name in force. Stable over restarts, so that a worker finds its RocksDB again."""
        return self.instance or f"{socket.gethostname()}-{self.web_port}"


class AddressDefaults(_Section):
    """Keys that may stand in ``[address_defaults]`` and in each ``[[addresses]]``."""

    partitions: int = Field(default=4, ge=1, le=MAX_PARTITIONS)
    """For topics that Ringfence creates; an existing topic keeps its count."""
    replication_factor: int = Field(default=0, ge=0, le=32767)
    """0 = the smaller of 3 and the number of brokers."""
    id_cache_size: int = Field(default=20_000, ge=0, le=MAX_ID_CACHE_SIZE)
    """Duplicate IDs that each lane remembers; 0 = no detection (ActiveMQ Artemis: id-cache-size)."""
    duplicate_id_headers: tuple[str, ...] = ("_AMQ_DUPL_ID", "_HQ_DUPL_ID")
    """The first of these that is present with a value is the duplicate ID."""
    # What follows has one value in this version: the behaviour that it describes is in force.
    id_max_age: Literal[0] = 0
    persist_id_cache: Literal[True] = True
    duplicate_id_from: Literal["header"] = "header"
    group_header: Literal[""] = ""
    default_group: Literal["qpid.no-group"] = "qpid.no-group"
    partitioner: Literal["murmur2"] = "murmur2"
    duplicates: Literal["drop"] = "drop"

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

    @field_validator("name", mode="before")
    @classmethod
    def _no_pattern(cls, value: object) -> object:
        if isinstance(value, str) and set(value) & set("*?[]"):
            raise ValueError("this version does not have patterns: write one [[addresses]] entry a name")
        return value

    @property
    def input_topic(self) -> str:
        """Topic that producers publish to."""
        return wire.input_topic(self.name)

    @property
    def accepted_topic(self) -> str:
        """Topic that carries what was accepted."""
        return wire.accepted_topic(self.name)


class Settings(_Section):
    """All of it. Immutable: a worker runs from one state of the configuration."""

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    app: AppSettings = Field(default_factory=AppSettings)
    address_defaults: AddressDefaults = Field(default_factory=AddressDefaults)
    addresses: tuple[AddressSettings, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _defaults_reach_addresses(cls, data: object) -> object:
        """Put ``[address_defaults]`` under each address before validation, so that errors name the key once."""
        if not isinstance(data, dict):
            return data
        defaults, addresses = data.get("address_defaults", {}), data.get("addresses", ())
        if not isinstance(addresses, list | tuple):
            return data
        data = {**data, "addresses": tuple(addresses)}
        if not isinstance(defaults, dict):
            return data
        try:
            AddressDefaults.model_validate(defaults)
        except ValidationError:
            return data  # reported once, at address_defaults, and not again at each address
        merged = tuple({**defaults, **each} if isinstance(each, dict) else each for each in addresses)
        return {**data, "addresses": merged}

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        names = Counter(address.name for address in self.addresses)
        for name, count in names.items():
            if count > 1:
                raise ValueError(
                    f"addresses: {name!r} stands {count} times; keep one [[addresses]] entry of it"
                )
        owners: dict[str, str] = {}
        for address in self.addresses:
            topics = {
                "input topic": address.input_topic,
                "accepted topic": address.accepted_topic,
                "changelog": wire.changelog_topic(self.app.id, address.name),
            }
            for role, topic in topics.items():
                claim = f"the {role} of address {address.name!r}"
                if topic in owners:
                    raise ValueError(
                        f"addresses: topic {topic!r} would be both {owners[topic]} and {claim}; rename one address"
                    )
                owners[topic] = claim
        return self

    def address(self, name: str) -> AddressSettings | None:
        """The address of that name, or None."""
        return next((each for each in self.addresses if each.name == name), None)

    @property
    def state_dir(self) -> Path:
        """Folder of this worker's RocksDB stores."""
        return Path(self.app.data_dir) / self.app.instance_name
