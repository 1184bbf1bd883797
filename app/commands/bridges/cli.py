"""``ringfence bridge``: options, and the function of each command."""

from typing import Any, Final

import click

from app.commands.options import JSON, settings_option
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.process.command_line import CONNECTION_OPTIONS, PORT, silence_clients
from ringfence_kafka.process.log_setup import log_options

_WITH_VALUE: Final = frozenset({"--config", "--web-port", "--log-level", "--log-format", *CONNECTION_OPTIONS})
_STATUS: Final = "status"


class _Bridge(click.Command):
    """Command that runs ``bridge status`` if ``status`` is among its arguments: no bridge has this name."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of ``bridge`` or ``bridge status``."""
        for number, arg in enumerate(args):
            if arg == _STATUS and (number == 0 or args[number - 1] not in _WITH_VALUE):
                rest = args[:number] + args[number + 1 :]
                return status.make_context(f"{info_name} {_STATUS}", rest, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(_STATUS)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@JSON
@settings_option
def status(settings: Settings, names: tuple[str, ...], as_json: bool) -> int:
    """Show each bridge by partition: lag, forwarded, sent again, problems, and the process that runs it.

    Exit code 1: there is a problem, or messages wait and no process runs the bridge.
    """
    silence_clients()
    from app.commands.bridges import status as bridges

    return bridges.show(settings, names, as_json)


@click.command(cls=_Bridge)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--web-port", type=PORT, help="0 = no web server; not given = any free port.")
@click.option("--drain", is_flag=True, help="Forward up to the present end, then stop exactly there.")
@log_options
@settings_option
def bridge(settings: Settings, names: tuple[str, ...], web_port: int | None, drain: bool) -> int:
    """Run all bridges of the configuration, or those of NAME; the name of a cluster connection means all its bridges.

    Run as many processes as you like; they share the partitions. GET /live says that the process runs, GET /health is
    200 when all its partitions are forwarded. SIGTERM drains and commits.

    `ringfence bridge status` shows their progress.
    """
    from app.bridge import run as bridge_module

    return bridge_module.run_bridges(settings, names, web_port, drain=drain)
