"""``ringfence worker``: runs lanes until it is stopped."""

import click

from app.commands.options import addresses_option
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.process.command_line import PORT
from ringfence_kafka.process.log_setup import log_options


@click.command()
@click.option("--web-port", type=PORT, help="Overrides app.web_port; 0 = no web server.")
@log_options
@addresses_option
def worker(settings: Settings, web_port: int | None) -> int:
    """Run lanes: detect duplicates, keep groups together, write accepted messages.

    Run as many workers as you like; they share the lanes. GET /live says that the process runs, GET /health is
    200 when all assigned lanes are open. SIGTERM drains and commits.
    """
    from app.worker import run as worker_module

    return worker_module.run_worker(settings, web_port)
