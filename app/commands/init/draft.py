"""Draft of a configuration: tables with comments, as TOML. Pure."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ringfence_kafka.config import schema
from ringfence_kafka.config.load import validate
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.escaping import printable

_OFFERED: Final = {
    "[kafka]": (
        "bootstrap_servers",
        "security_protocol",
        "sasl_mechanism",
        "sasl_username",
        "sasl_password_env",
        "ssl_cafile",
    ),
    "[app]": ("id", "data_dir", "web_host", "web_port"),
    "[address_defaults]": (
        "id_cache_size",
        "lanes",
        "persist_id_cache",
        "group_header",
        "partitioner",
        "duplicates",
        "mode",
        "partitions",
    ),
}
"""Keys that a new file shows. Unset ones are commented out with their defaults."""


@dataclass(slots=True, kw_only=True)
class Table:
    """Table of the file."""

    header: str
    """Header with brackets, such as ``[[addresses]]``."""
    values: Mapping[str, Any] = field(default_factory=dict)
    comments: Sequence[str] = ()
    inner: Sequence["Table"] = ()
    shown: Sequence[str] = ()
    """Lines in place of ``values``, which also have the keys that are not set."""
    fault: str = ""
    """Reason why the table is not valid, so that it is commented out in the file."""

    def lines(self) -> Iterator[str]:
        """Yield its lines in TOML."""
        mark = "# " if self.fault else ""
        faults = self.fault.splitlines()
        yield from (f"# {printable(text)}" for text in (*self.comments, *faults))
        yield f"{mark}{self.header}"
        set_keys = (f"{key} = {toml(value)}" for key, value in self.values.items())
        yield from (f"{mark}{line}" for line in self.shown or set_keys)
        for table in self.inner:
            yield from (f"{mark}{line}" for line in table.lines())


def section(header: str, values: Mapping[str, Any], comments: Sequence[str] = ()) -> Table:
    """Return a table with the keys that a beginner needs, each with its description."""
    known = schema.at((header.strip("[]"),))["properties"]
    shown: list[str] = []
    for key in dict.fromkeys((*_OFFERED[header], *values)):
        value = values.get(key, known[key]["default"])
        choices = ", ".join(filter(None, known[key].get("enum", ())))
        shown.append(f"# {known[key]['description']}{f' Choices: {choices}.' if choices else ''}")
        shown.append(f"{'' if key in values else '# '}{key} = {toml(value)}")
    return Table(header=header, values=values, comments=comments, shown=shown)


def toml(value: Any) -> str:
    """Return a string, number, boolean or list as TOML, which differs from JSON in one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def text_of(tables: Sequence[Table]) -> str:
    """Return the text of a file with these tables, separated by empty lines."""
    return "\n".join("\n".join(table.lines()) + "\n" for table in tables)


def check_tables(tables: Sequence[Table], sure: int) -> None:
    """Set ``fault`` of each table that does not pass validation with the tables before it.

    Raises:
        ConfigurationError: One of the first ``sure`` tables does not pass.
    """
    if not _fault(tables):
        return
    first = tables[:sure]
    validate(tomllib.loads(text_of(first)), "init")
    rest = [table for table in tables[sure:] if not table.fault]
    for table in rest:
        if table.header == "[[addresses]]":
            table.fault = _fault([*first, table])
    if not _fault(tables):
        return
    for number, table in enumerate(tables):
        if table in rest and not table.fault:
            table.fault = _fault(tables[: number + 1])


def _fault(tables: Sequence[Table]) -> str:
    try:
        validate(tomllib.loads(text_of(tables)), "not valid")
    except ConfigurationError as error:
        return str(error)
    return ""
