"""``ringfence send``: options, and which function runs."""

from pathlib import Path

import click

from ringfence_kafka.process.command_line import config_option, settings_with_addresses


@click.command()
@click.argument("address")
@click.argument("file", required=False, type=click.Path(allow_dash=True))
@config_option
def send(address: str, file: str | None, config: Path) -> int:
    """Send JSON lines from FILE, or from standard input, to ADDRESS.

    A line is {"id": ..., "group": ..., "value": ..., "headers": {...}}; all but the value may be left out. "value": null
    sends a null value.

    {"id": ..., "group": ..., "parts": [...]} is a transaction: all its parts are accepted, or none. A part is a line with
    "value", and may have an "address" of its own, one that ADDRESS lists in transaction_addresses. One "id" is enough. The
    "group" beside "parts" says where the transaction is judged.
    """
    settings = settings_with_addresses(config)
    from app.commands.send import send as send_module

    return send_module.run(settings, address, None if file == "-" else file)
