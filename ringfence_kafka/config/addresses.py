"""``[address_defaults]`` and ``[[addresses]]``: the logical destinations."""

from typing import Final, Literal, TypeGuard

from pydantic import Field, TypeAdapter, ValidationError, field_validator, model_validator

from ringfence_kafka.config.section import TOPIC_NAME_MAX, Section, TopicName, listed
from ringfence_kafka.protocol import wire_names

MAX_PARTITIONS: Final = 100_000
MAX_ID_CACHE_SIZE: Final = 2**31 - 1
"""Slots are numbered with 31 bits in the changelog's keys."""
DEFAULT_GROUP: Final = "qpid.no-group"
_NAME: Final = TypeAdapter(TopicName)


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
    """False = the ring is in memory only: forgotten whenever a lane opens: restart, failure, move to another worker."""
    duplicate_id_from: Literal["header", "key", "value"] = "header"
    """``value``: the digest of the record's value is its ID, for producers that nobody can change."""
    group_header: str = ""
    """The header that names the group (Qpid: qpid.group_header_key); empty = the record key does."""
    default_group: str = Field(default=DEFAULT_GROUP, min_length=1)
    """Group of messages whose group header is missing or empty (Qpid: qpid.no-group)."""
    partitioner: Literal["murmur2", "crc32"] = "murmur2"
    """How producers choose partitions: ``murmur2`` (Java, aiokafka) or ``crc32`` (librdkafka's default)."""
    duplicates: Literal["drop", "divert"] = "drop"

    _list_of_names = listed("duplicate_id_headers")

    @field_validator("duplicate_id_headers")
    @classmethod
    def _usable_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("needs at least one header name; to switch detection off set id_cache_size = 0")
        for name in value:
            if not name:
                raise ValueError("an empty header name can match nothing; remove it")
            if name.startswith(wire_names.RESERVED_PREFIX):
                raise ValueError(
                    f"{name!r} begins with {wire_names.RESERVED_PREFIX}, which Ringfence itself writes"
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

    _list_of_addresses = listed("transaction_addresses")

    @model_validator(mode="before")
    @classmethod
    def _topics_follow_the_name(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        name = data.get("name")
        if not _is_name(name):
            name = "unnamed"  # the name itself is reported, and not once more for each topic that is named after it
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
        derived = {
            "input_topic": wire_names.input_topic(name),
            "accepted_topic": wire_names.accepted_topic(name),
            "duplicates_topic": wire_names.duplicates_topic(name),
            "quarantine_topic": wire_names.quarantine_topic(name),
        }
        if long := [key for key in derived.keys() - data.keys() if len(derived[key]) > TOPIC_NAME_MAX]:
            raise ValueError(
                f"name = {name!r} is too long for the topics that are named after it: choose one of at most "
                f"{len(name) + TOPIC_NAME_MAX - max(len(derived[name]) for name in long)} characters, or set {' and '.join(sorted(long))}"
            )
        return {**derived, **data}

    def topics(self, app_id: str) -> dict[str, str]:
        """All topics of the address by their role."""
        roles = {
            "input topic": self.input_topic,
            "accepted topic": self.accepted_topic,
            "quarantine topic": self.quarantine_topic,
            "changelog": wire_names.changelog_topic(app_id, self.name),
            "forward topic": wire_names.forward_topic(app_id, self.name),
        }
        return roles | ({"duplicates topic": self.duplicates_topic} if self.duplicates == "divert" else {})


def _is_name(name: object) -> TypeGuard[str]:
    try:
        _NAME.validate_python(name, strict=True)
    except ValidationError:
        return False
    return True
