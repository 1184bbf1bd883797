"""``ringfence init``: assembles the new file, validates it, and writes it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

import conf
from app.commands.init import broker_xml
from app.commands.init.address_settings import AddressSettings
from app.commands.init.connections import Connections
from app.commands.init.draft import Table, check_tables, section, text_of
from app.commands.init.remarks import Remarks
from ringfence_kafka.config import schema
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.escaping import printable
from ringfence_kafka.process.command_line import suggest
from ringfence_kafka.wording import first_of

SCHEMA: Final = "ringfence.schema.json"
_NAMES_SHOWN: Final = 10
_READ: Final = frozenset(
    {
        "address-settings",
        "addresses",
        "bridges",
        "cluster-connections",
        "connectors",
        "id-cache-size",
        "name",
        "persist-id-cache",
        "queues",
    }
)
"""Imported elements of a broker's file."""


def create_file(
    topics: Sequence[str], bootstrap_servers: str | None, source: Path | None, output: Path
) -> int:
    """Write the file, or print it."""
    kafka = {"bootstrap_servers": bootstrap_servers} if bootstrap_servers else {}
    remarks = Remarks()
    if source:
        tables = _imported(source, topics, remarks)
    else:
        entries = [Table(header="[[addresses]]", values={"name": topic}) for topic in dict.fromkeys(topics)]
        tables = [section("[address_defaults]", {}), *entries]
    tables = [section("[kafka]", kafka), section("[app]", {}), *tables]
    check_tables(tables, sure=3 if source else len(tables))
    for table in tables:
        if table.fault:
            remarks.add(
                f"{table.header} {table.values.get('name')}",
                "it is in the file as a comment, with the reason",
            )
    lines = list(remarks.lines())
    body = text_of(tables)
    if lines:
        body += "\n# Without a counterpart:\n" + "".join(f"# - {printable(line)}\n" for line in lines)
    if str(output) == "-":
        click.echo(_head(source, (Path(*conf.__path__) / SCHEMA).resolve().as_uri()) + body, nl=False)
        return 0
    _write(output, _head(source, f"./{SCHEMA}") + body)
    _report(output, tables, lines)
    return 0


def _imported(source: Path, topics: Sequence[str], remarks: Remarks) -> list[Table]:
    broker = broker_xml.read_broker_xml(source)
    addresses = AddressSettings(broker, remarks)
    connections = Connections(broker, addresses, remarks)
    tables = [
        addresses.defaults(),
        *addresses.addresses([*topics, *connections.sources()]),
        *addresses.patterns(),
        *connections.bridges(),
        *connections.connections(),
    ]
    for element in broker.root:
        if element.tag not in _READ:
            remarks.add(element.tag, "")
    return tables


def _head(source: Path | None, place: str) -> str:
    origin = f", imported from {source.name}" if source else ""
    return (
        f"#:schema {place}\n# Configuration of Ringfence{printable(origin)}. A commented line shows a "
        "default. docs/configuration.md has all keys.\n\n"
    )


def _write(output: Path, text: str) -> None:
    """Write the file, and the schema beside it.

    Raises:
        ConfigurationError: A file exists already, or cannot be written.
    """
    beside = output.with_name(SCHEMA)
    try:
        known: Any = json.loads(beside.read_text("utf-8")) if beside.exists() else schema.document()
        if not isinstance(known, dict) or known.get("title") != schema.document()["title"]:
            raise ConfigurationError(
                f"{beside}: exists and is not Ringfence's: choose another folder with --output"
            )
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
        beside.write_text(f"{json.dumps(schema.document(), indent=2)}\n", "utf-8")
    except FileExistsError as error:
        raise ConfigurationError(
            f"{output}: exists and is not changed: name another file with --output, or remove it"
        ) from error
    except ValueError as error:
        raise ConfigurationError(f"{beside}: is not JSON: choose another folder with --output") from error
    except OSError as error:
        raise ConfigurationError(
            f"{error.filename or output}: {error.strerror or error}: name a place that can be written with --output"
        ) from error


def _report(output: Path, tables: Sequence[Table], remarks: Sequence[str]) -> None:
    names = [str(table.values["name"]) for table in tables if "name" in table.values and not table.fault]
    click.echo(
        f"written: {output} ({first_of(names, _NAMES_SHOWN) or 'without addresses'}) and {output.with_name(SCHEMA)}"
    )
    if remarks:
        click.echo("without a counterpart:")
    for line in remarks:
        click.echo(printable(f"  {line}"))
    suggest("config", "check", "--config", str(output))
