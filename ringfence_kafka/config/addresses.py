"""``[address_defaults]`` and ``[[addresses]]``: the logical destinations."""

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self, TypeGuard

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from ringfence_kafka.config.durations import Seconds, duration_text
from ringfence_kafka.config.section import TOPIC_NAME_MAX, Section, TopicName, unit
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.duplicate_id import Forms, checked_forms, header_name

MAX_PARTITIONS: Final = 100_000
MAX_ID_CACHE_SIZE: Final = 2**31 - 1
"""Maximum size of a ring: changelog keys have 31 bits for the slot number."""
MAX_ID_MIN_AGE: Final = 36_525 * 86_400
"""Maximum age of an ID in seconds, a hundred years: the native core has 64 bits for timestamps in milliseconds and their differences."""
DEFAULT_GROUP: Final = "qpid.no-group"
_NAME: Final = TypeAdapter(TopicName)
_WILDCARDS: Final = frozenset("*?[")
_POSSIBLE: Final = re.compile(r"([a-zA-Z0-9._*?-]|\[!?[a-zA-Z0-9._-]+\])+")
"""Pattern of topic names with wildcards: Kafka's legal characters, ``*``, ``?``, and closed sets."""


class AddressDefaults(Section):
    """Defaults of all addresses: each key can be set in ``[[addresses]]`` too."""

    partitions: int = Field(default=4, ge=1, le=MAX_PARTITIONS)
    """Partitions of topics that Ringfence creates; an existing topic keeps its count."""
    lanes: int = Field(default=0, ge=0, le=MAX_PARTITIONS)
    """Lanes with a ring each; partition p is in lane p modulo this; 0 = one per partition."""
    replication_factor: int = Field(default=0, ge=0, le=32767)
    """Replicas of topics that Ringfence creates; 0 = the smaller of 3 and the number of brokers."""
    id_cache_size: int = Field(default=20_000, ge=0, le=MAX_ID_CACHE_SIZE, json_schema_extra=unit("IDs"))
    """Duplicate IDs that each lane remembers, as ``id-cache-size`` of ActiveMQ Artemis; 0 = no detection."""
    duplicate_id_headers: tuple[str, ...] = ("_AMQ_DUPL_ID", "_HQ_DUPL_ID")
    """Headers that may hold the duplicate ID; the first one with a value counts."""
    id_max_age: Seconds = Field(default=0, ge=0, allow_inf_nan=False)
    """Age by the records' timestamps after which an ID no longer counts; 0 = no limit."""
    id_min_age: Seconds = Field(default=0, ge=0, le=MAX_ID_MIN_AGE, allow_inf_nan=False)
    """Age up to which a ring keeps each ID, within ``id_cache_size_max``; by record timestamps; 0 = off."""
    id_cache_size_max: int = Field(default=0, ge=0, le=MAX_ID_CACHE_SIZE, json_schema_extra=unit("IDs"))
    """Duplicate IDs that a lane remembers at most for ``id_min_age``; 0 = none, without ``id_min_age``."""
    persist_id_cache: bool = True
    """Whether a ring outlives its lane; false = IDs are forgotten at restarts, failures and moves."""
    duplicate_id_from: Annotated[Forms, BeforeValidator(checked_forms)] = "header"
    """Place of the ID: ``header``, ``key``, ``value``, ``header:NAME``, ``value:/json/pointer``, or a list of places that form it together."""
    duplicate_id_missing: Literal["unchecked", "quarantine"] = "unchecked"
    """Treatment of a message without an ID, or without a part of it."""
    group_header: str = ""
    """Header that names the group, as ``qpid.group_header_key`` of Qpid; empty = the record key does."""
    default_group: str = Field(default=DEFAULT_GROUP, min_length=1)
    """Group of messages whose group header is missing or empty."""
    partitioner: Literal["murmur2", "crc32"] = "murmur2"
    """Partitioner of the producers: ``murmur2`` of Java and aiokafka, or ``crc32``, the default of librdkafka."""
    duplicates: Literal["drop", "divert"] = "drop"
    """Whether duplicates are dropped, or diverted to the duplicates topic."""
    mode: Literal["enforce", "observe"] = "enforce"
    """``enforce`` drops or diverts duplicates; ``observe`` accepts every message and writes its verdict into a header."""
    on_conflict: Literal["duplicate", "divert", "accept"] = "duplicate"
    """Treatment of a message whose ID is known with another value."""

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

    @property
    def id_headers(self) -> tuple[str, ...]:
        """Headers one of which alone is the ID; empty = the ID has another form."""
        if self.duplicate_id_from == "header":
            return self.duplicate_id_headers
        name = header_name(self.duplicate_id_from)
        return (name,) if name else ()


class AddressSettings(AddressDefaults):
    """An address: an input topic, an accepted topic, and a ring for each lane."""

    model_config = ConfigDict(json_schema_extra={"required": ["name"]})

    name: TopicName = Field(json_schema_extra={"pattern": f"^{_POSSIBLE.pattern}$"})
    """Name of the address; an entry with a wildcard, such as ``orders-*``, sets defaults for all names that match."""
    input_topic: TopicName
    """Topic that producers write, or the accepted topic of another address; unless set, the name of the address."""
    accepted_topic: TopicName
    """Topic of accepted messages; unless set, ``NAME.accepted``."""
    duplicates_topic: TopicName
    """Topic of duplicates that are diverted; unless set, ``NAME.duplicates``."""
    quarantine_topic: TopicName
    """Topic of messages that fit nowhere else; unless set, ``NAME.quarantine``."""
    transaction_addresses: tuple[str, ...] = ()
    """Other addresses that parts of its transactions may go to."""

    @field_validator("name")
    @classmethod
    def _no_hop_memory(cls, value: str) -> str:
        if value.startswith(wire_names.HOP_MEMORY):
            raise ValueError(
                f"begins with {wire_names.HOP_MEMORY}, which stands for the hop memory of an address: choose another name"
            )
        return value

    @model_validator(mode="before")
    @classmethod
    def _topics_follow_the_name(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        name = data.get("name")
        if not _is_name(name):
            name = "unnamed"  # the name itself is reported, and not once more for each topic that is named after it
        if "duplicates_topic" in data and "divert" not in (data.get("duplicates"), data.get("on_conflict")):
            raise ValueError(
                f"duplicates_topic = {data['duplicates_topic']!r} has no effect with duplicates = 'drop': "
                "remove it, or set duplicates or on_conflict to 'divert'"
            )
        forms = data.get("duplicate_id_from")
        if isinstance(forms, str) and header_name(forms) and "duplicate_id_headers" in data:
            raise ValueError(
                f"duplicate_id_headers = {data['duplicate_id_headers']!r} has no effect with duplicate_id_from = {forms!r}: "
                "remove it, or write duplicate_id_from = 'header', which looks for these headers"
            )
        of_value = "value" in (forms if isinstance(forms, list | tuple) else [forms])
        if data.get("on_conflict", "duplicate") != "duplicate" and of_value:
            raise ValueError(
                f"on_conflict = {data['on_conflict']!r} has no effect with duplicate_id_from = {forms!r}: "
                "equal IDs have equal values there; remove one of the two"
            )
        if data.get("default_group", DEFAULT_GROUP) != DEFAULT_GROUP and not data.get("group_header"):
            raise ValueError(
                f"default_group = {data['default_group']!r} has no effect without group_header: "
                "remove it, or name the header"
            )
        derived = {
            "input_topic": name,
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

    @model_validator(mode="after")
    def _promise_fits(self) -> Self:
        """Refuse a promise in time that cannot be kept."""
        size, most = self.id_cache_size, self.id_cache_size_max
        if not self.id_min_age:
            if most:
                raise ValueError(
                    f"id_cache_size_max = {most} has no effect without id_min_age: remove it, or set id_min_age"
                )
            return self
        promise = f"id_min_age = '{duration_text(self.id_min_age)}'"
        if not size:
            raise ValueError(
                f"{promise} has no effect with id_cache_size = 0, which switches detection off: raise it, or remove id_min_age"
            )
        if most <= size:
            raise ValueError(
                f"{promise} needs id_cache_size_max, the IDs that a lane may keep for it: set it above id_cache_size = {size}"
                + (f", it is {most}" if most else "")
            )
        if 0 < self.id_max_age < self.id_min_age:
            raise ValueError(
                f"{promise} is longer than id_max_age = '{duration_text(self.id_max_age)}', after which an ID no longer counts: raise "
                "id_max_age, or remove it"
            )
        if not self.persist_id_cache:
            raise ValueError(
                f"{promise} cannot be kept with persist_id_cache = false, as a ring in memory only forgets all IDs whenever its lane opens: "
                "remove one of them"
            )
        return self

    @property
    def ring_capacity(self) -> int:
        """Number of IDs that a ring has room for."""
        return self.id_cache_size_max or self.id_cache_size

    @property
    def observes(self) -> bool:
        """Whether duplicates are marked and accepted."""
        return self.mode == "observe"

    @property
    def forwards(self) -> bool:
        """Whether messages can have another home than the lane that they reach. With one lane they cannot."""
        return self.lanes != 1

    @property
    def diverts(self) -> bool:
        """Whether some messages go to the duplicates topic."""
        return "divert" in (self.duplicates, self.on_conflict)

    def topics(self, app_id: str) -> dict[str, str]:
        """Return all topics of the address by role."""
        roles = {
            "input topic": self.input_topic,
            "accepted topic": self.accepted_topic,
            "quarantine topic": self.quarantine_topic,
            "changelog": wire_names.changelog_topic(app_id, self.name),
        }
        if self.forwards:
            roles["forward topic"] = wire_names.forward_topic(app_id, self.name)
        return roles | ({"duplicates topic": self.duplicates_topic} if self.diverts else {})


def _is_name(name: object) -> TypeGuard[str]:
    try:
        _NAME.validate_python(name, strict=True)
    except ValidationError:
        return False
    return True


def claimed_topics(addresses: Iterable[AddressSettings], app_id: str) -> Iterator[tuple[str, str]]:
    """Yield each topic that belongs to this configuration, with its role."""
    yield wire_names.journal_topic(app_id), "the journal"
    yield wire_names.progress_topic(app_id), "the progress of consumer groups"
    for address in addresses:
        for role, topic in address.topics(app_id).items():
            yield topic, f"the {role} of address {address.name!r}"
        yield wire_names.dead_letter_topic(address.name), f"the dead-letter topic of address {address.name!r}"


# -- patterns set defaults for all names that match; the most specific one wins, for each key ------------------------


def resolve_patterns(defaults: Mapping[str, Any], entries: Sequence[Any]) -> tuple[Any, ...]:
    """Return the literal addresses, merged over the defaults and their patterns. Entries that are not tables stay unchanged."""
    patterns = sorted_patterns(entries)
    resolved = []
    for entry in entries:
        if is_pattern(entry):
            continue
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            resolved.append({**defaults, **entry} if isinstance(entry, dict) else entry)
            continue
        merged = dict(defaults)
        for number in patterns:
            if fnmatch.fnmatchcase(entry["name"], entries[number]["name"]):
                merged = _over(merged, entries[number])
        resolved.append(_over(merged, entry))
    return tuple(resolved)


def _over(base: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of both tables. A layer that names a single ID header does not inherit the list of headers."""
    forms = layer.get("duplicate_id_from")
    is_named = isinstance(forms, str) and bool(header_name(forms))
    inherited = {key: base[key] for key in base if not (is_named and key == "duplicate_id_headers")}
    return {**inherited, **layer}


def sorted_patterns(entries: Sequence[Any]) -> list[int]:
    """Return the indexes of the patterns among the entries, the most specific last."""
    places = [number for number, entry in enumerate(entries) if is_pattern(entry)]
    # A pattern is as specific as it has literal characters; a set in brackets does not count.
    return sorted(places, key=lambda number: len(re.sub(r"\[[^]]*\]|[*?]", "", entries[number]["name"])))


def is_pattern(entry: object) -> bool:
    """Return whether an entry's name has a wildcard: ``*``, ``?`` or ``[``."""
    name = entry.get("name") if isinstance(entry, dict) else None
    return isinstance(name, str) and has_wildcard(name)


def has_wildcard(name: str) -> bool:
    """Return whether a name is a pattern."""
    return not _WILDCARDS.isdisjoint(name)


def can_match(pattern: str) -> bool:
    """Return whether a pattern matches any valid topic name."""
    return _POSSIBLE.fullmatch(pattern) is not None
