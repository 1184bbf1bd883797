"""The effective configuration: each value with its origin, which is a line of the file, a variable, an option or the default."""

import fnmatch
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ringfence_kafka.config import properties
from ringfence_kafka.config.addresses import AddressSettings, is_pattern, sorted_patterns
from ringfence_kafka.config.explanations import HIDDEN, is_secret, place
from ringfence_kafka.config.kafka import KafkaSettings
from ringfence_kafka.config.load import Document, Location
from ringfence_kafka.config.section import Section
from ringfence_kafka.config.settings import Settings

DEFAULT: Final = "default"
DERIVED: Final = "from the name"
_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]*")
_LOGIN: Final = re.compile(r"(?<=//)[^/@]*@")
"""User and password in a URL."""


@dataclass(frozen=True, slots=True)
class Value:
    """Effective value of a key; secrets are hidden already."""

    key: str
    value: Any
    origin: str


def line_numbers(text: str) -> dict[Location, int]:
    """Return the line of each key of a valid TOML file. ``tomllib`` parses it statement by statement."""
    found: dict[Location, int] = {}
    table: Location = ()
    entries: Counter[Location] = Counter()
    statement = ""
    for number, line in enumerate(text.split("\n"), 1):
        # A statement ends with the first line that makes it valid: no incomplete list or long text is valid.
        statement += f"{line}\n"
        try:
            given = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        if statement.lstrip().startswith("["):
            table = _entered(given, entries)
        else:
            _note(given, table, number - statement.count("\n") + 1, found)
        statement = ""
    return found


def _entered(header: Any, entries: Counter[Location]) -> Location:
    """Return the place of the table that a header opens. ``entries``: counts of the ``[[several]]`` tables so far."""
    location: Location = ()
    while header:
        ((name, header),) = header.items()
        location += (name,)
        if isinstance(header, list):
            entries[location] += 1
            (header,) = header
        if location in entries:
            location += (entries[location] - 1,)
    return location


def _note(given: Any, location: Location, line: int, found: dict[Location, int]) -> None:
    found[location] = line
    items = given.items() if isinstance(given, dict) else enumerate(given) if isinstance(given, list) else ()
    for name, value in items:
        _note(value, (*location, name), line, found)


class _Origins:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._lines = line_numbers(document.text)

    def origin(self, location: Location) -> str:
        """Return the origin of a key that is set; empty = it is not set."""
        for end in range(len(location), 1, -1):  # a variable may set a whole table, such as kafka.properties
            if override := self._document.overrides.get(location[:end]):
                return override
        there: Any = self._document.data
        for part in location:
            try:
                there = there[part]
            except (KeyError, IndexError, TypeError):
                return ""
        return f"{self._document.path}:{self._lines[location]}" if location in self._lines else ""

    def value(self, location: Location, value: Any, origin: str = "") -> Value:
        """Return a value with its key. ``origin``: origin if the key is not set at this place."""
        name = str(location[-1])
        return Value(
            place(location, self._document.data),
            _shown(name, value),
            self.origin(location) or origin or DEFAULT,
        )


def effective(document: Document, settings: Settings) -> Iterator[Value]:
    """Yield all effective values. ``settings``: settings of the document."""
    origins = _Origins(document)
    yield from _kafka(origins, document, ("kafka",), settings.kafka)
    for name in ("app", "address_defaults", "reconcile"):
        yield from _section(origins, (name,), getattr(settings, name))
    entries = document.data.get("addresses", ())
    literal = [number for number, entry in enumerate(entries) if not is_pattern(entry)]
    for number, address in zip(literal, settings.addresses, strict=True):
        yield from _address(origins, entries, number, address)
    for number, bridge in enumerate(settings.bridges):
        location: Location = ("bridges", number)
        yield from _section(origins, location, bridge, without=("source", "target"))
        for name, kafka in (("source", bridge.source), ("target", bridge.target)):
            if kafka is not None:
                yield from _kafka(origins, document, (*location, name), kafka)
    for number, connection in enumerate(settings.cluster_connections):
        location = ("cluster_connections", number)
        yield from _section(origins, location, connection, without=("members",))
        for part, member in enumerate(connection.members):
            yield origins.value((*location, "members", part, "name"), member.name)
            if (own := member.kafka()) is not None:
                yield from _kafka(origins, document, (*location, "members", part), own)


def _section(
    origins: _Origins, location: Location, section: Section, without: tuple[str, ...] = ()
) -> Iterator[Value]:
    for field in type(section).model_fields:
        if field not in without:
            yield from _value(origins, (*location, field), getattr(section, field))


def _value(origins: _Origins, location: Location, value: Any, origin: str = "") -> Iterator[Value]:
    """Yield one value, or one for each key of a table."""
    if not isinstance(value, dict):
        yield origins.value(location, value, origin)
        return
    for name, item in value.items():
        yield origins.value((*location, name), item, origin)


def _kafka(
    origins: _Origins, document: Document, location: Location, kafka: KafkaSettings
) -> Iterator[Value]:
    """Yield the access to a cluster. A key may come from a Kafka property here or in a file of Java properties."""
    table: Any = document.data
    for part in location:
        table = table.get(part, {}) if isinstance(table, dict) else table[part]
    named = {
        properties.KEYS[name]: origins.origin((*location, "properties", name))
        for name in table.get("properties", ())
        if name in properties.KEYS
    }
    file = kafka.command_config
    named = dict.fromkeys(properties.read_properties(file).keys if file else (), file) | named
    for field in KafkaSettings.model_fields:
        elsewhere = file if field == "properties" else named.get(field, "")
        yield from _value(origins, (*location, field), getattr(kafka, field), elsewhere)


def _address(
    origins: _Origins, entries: Sequence[Any], number: int, address: AddressSettings
) -> Iterator[Value]:
    """Yield the keys of an address: from its own entry, else from the most specific pattern, else from the defaults."""
    patterns = [
        (part, entries[part])
        for part in sorted_patterns(entries)
        if fnmatch.fnmatchcase(address.name, entries[part]["name"])
    ]
    for field in AddressSettings.model_fields:
        if field == "duplicates_topic" and not address.diverts:
            continue
        origin = origins.origin(("address_defaults", field))
        for part, pattern in patterns:
            if field in pattern:
                origin = f"{origins.origin(('addresses', part, field))} ({pattern['name']})"
        if field.endswith("_topic"):
            origin = DERIVED
        yield origins.value(("addresses", number, field), getattr(address, field), origin)


def _shown(name: str, value: Any) -> Any:
    """Return a value without possible secrets, including a secret in place of a variable's name."""
    if not isinstance(value, str) or not value:
        return list(value) if isinstance(value, tuple) else value
    if is_secret(name) or (name.endswith("_env") and not _VARIABLE.fullmatch(value)):
        return HIDDEN
    return _LOGIN.sub(f"{HIDDEN}@", value)
