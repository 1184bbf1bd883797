"""``ringfence send``: options, and its function."""

import click

from app.commands.options import addresses_option
from app.commands.verb_group import Verb
from ringfence_kafka.config.settings import Settings


@click.command(cls=Verb, next_step="status")
@click.argument("address")
@click.argument("file", required=False, type=click.Path(allow_dash=True))
@addresses_option
def send(settings: Settings, address: str, file: str | None) -> int:
    """Send JSON lines from FILE, or from standard input, to ADDRESS.

    A line is {"id": ..., "group": ..., "value": ..., "headers": {...}}; all but the value may be left out. "value": null
    sends a null value.

    {"id": ..., "group": ..., "parts": [...]} is a transaction: all its parts are accepted, or none. A part is a line with
    "value", and may have an "address" of its own, one that ADDRESS lists in transaction_addresses. One "id" is enough. The
    "group" beside "parts" says where the transaction is judged.
    """
    from app.commands.send import send as send_module

    return send_module.send_lines(settings, address, None if file == "-" else file)
