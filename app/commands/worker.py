"""``ringfence worker``: runs lanes until it is stopped."""

from pathlib import Path

import click

from ringfence_kafka.process.command_line import PORT, config_option, settings_with_addresses
from ringfence_kafka.process.log_options import log_options


@click.command()
@click.option("--web-port", type=PORT, help="Overrides app.web_port; 0 = no web server.")
@log_options
@config_option
def worker(web_port: int | None, config: Path) -> int:
    """Run lanes: detect duplicates, keep groups together, write what is accepted.

    Run as many workers as you like; they share the lanes. GET /live says that the process runs, GET /health is
    200 when all assigned lanes are open. SIGTERM drains and commits.
    """
    settings = settings_with_addresses(config)
    from app.worker import run as worker_module

    return worker_module.run(settings, web_port)
