"""``ringfence status``: prints the state once or repeatedly."""

import asyncio
import json
import shlex
import time
from collections.abc import Collection
from dataclasses import asdict, replace
from typing import Any, Final

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from app.commands.status.findings import findings
from app.commands.status.model import Finding, Status
from app.commands.status.read import Counts, read_histories, read_status
from app.commands.status.show import document, show
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import RingfenceError, said
from ringfence_kafka.process.command_line import given_options
from ringfence_kafka.process.step_progress import reading

EVERY_S: Final = 2.0
NOT_OK: Final = 1


def as_document(status: Status, found: Collection[Finding]) -> dict[str, Any]:
    """Return the document for programs and for the worker's page."""
    return {
        "ok": not _needs_action(found),
        "findings": [asdict(finding) for finding in found],
        **asdict(status),
    }


def _needs_action(found: Collection[Finding]) -> bool:
    return any(finding.stands for finding in found)


def _with_options(found: Collection[Finding]) -> list[Finding]:
    """Add the configuration and connection options of this command line to commands, so that a person can copy them."""
    options = "".join(f" {shlex.quote(part)}" for part in given_options())
    return [
        replace(item, command=item.command + options) if item.command.startswith("ringfence ") else item
        for item in found
    ]


def print_status(settings: Settings, *, as_json: bool, watch: bool, ignored: Collection[str]) -> int:
    """Print the state of all parts; return 0, or 1 if a finding needs action."""
    if watch:
        return _watch(settings, ignored, as_json=as_json)
    with reading("the state of all parts"):
        status = asyncio.run(read_status(settings, ignored))
    found = findings(status)
    if as_json:
        click.echo(json.dumps(as_document(status, found), indent=2))
    else:
        show(status, _with_options(found))
    return NOT_OK if _needs_action(found) else 0


def _watch(settings: Settings, ignored: Collection[str], *, as_json: bool) -> int:
    """Print repeatedly until Ctrl-C: in place, or one JSON line each time. Brokers may come and go."""
    code = 0
    console, counts = Console(), Counts(settings)
    try:
        with Live(console=console, screen=console.is_terminal and not as_json, auto_refresh=False) as live:
            while True:
                try:
                    status = asyncio.run(read_status(settings, ignored, counts))
                    found = findings(status)
                    code = NOT_OK if _needs_action(found) else 0
                    if as_json:
                        click.echo(json.dumps(as_document(status, found)))
                    else:
                        past = asyncio.run(read_histories(settings, status, "glance"))
                        shown = _with_options(found)
                        if console.is_terminal:
                            live.update(document(status, shown, past), refresh=True)
                        else:
                            show(status, shown, past)
                except RingfenceError as error:
                    code = error.exit_code
                    if as_json:
                        click.echo(json.dumps({"ok": False, "error": said(error)}))
                    elif not console.is_terminal:
                        click.echo(f"ringfence: {error}", err=True)
                    else:
                        live.update(Text(f"ringfence: {error}", style="bold red"), refresh=True)
                time.sleep(EVERY_S)
    except KeyboardInterrupt:
        return code
