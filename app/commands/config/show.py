"""``ringfence config show`` and ``config check``."""

import json
from dataclasses import asdict
from typing import Final

import click

from ringfence_kafka.config.addresses import is_pattern
from ringfence_kafka.config.load import Document
from ringfence_kafka.config.origins import DEFAULT, DERIVED, effective
from ringfence_kafka.escaping import printable
from ringfence_kafka.process.command_line import suggest, validated

_WIDTH_MAX: Final = 60
"""Width of keys and values in columns. A longer line has its origin further right."""


def show(document: Document, *, changed: bool, as_json: bool) -> int:
    """Print the values in force."""
    values = [
        value
        for value in effective(document, validated(document))
        if not (changed and value.origin in {DEFAULT, DERIVED})
    ]
    if as_json:
        click.echo(json.dumps([asdict(value) for value in values], indent=2))
        return 0
    for value in values:
        text = "(not set)" if value.value is None else json.dumps(value.value, ensure_ascii=False)
        line = f"{value.key} = {text}"
        click.echo(printable(f"{line:{_WIDTH_MAX}}  # {value.origin}"))
    return 0


def check(document: Document) -> int:
    """Validate the configuration, and print its parts."""
    settings = validated(document)
    patterns = [entry["name"] for entry in document.data.get("addresses", ()) if is_pattern(entry)]
    lines = {
        "cluster": [f"{settings.kafka.bootstrap_servers} ({settings.kafka.security_protocol})"],
        "addresses": [address.name for address in settings.addresses],
        "patterns": patterns,
        "bridges": [bridge.name for bridge in settings.bridges],
        "cluster connections": [connection.name for connection in settings.cluster_connections],
    }
    click.echo(f"{document.origin}: ok")
    for name, found in lines.items():
        click.echo(f"  {name}: {', '.join(found) or 'none'}")
    if settings.addresses:
        suggest("topics", "check")
    else:
        click.echo(
            "next: add an [[addresses]] entry with the name of a topic: without one a worker has nothing to do"
        )
    return 0
