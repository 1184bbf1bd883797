"""``ringfence reconcile``: the command of the reconciliation run."""

from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from app.commands.options import JSON, addresses_option
from app.commands.spark_check import require_spark
from app.commands.verb_group import VerbGroup
from ringfence_kafka.auth.reachability import require_listener
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.process.command_line import (
    config_option,
    given_options,
    settings_with_addresses,
    silence_clients,
)

ANOMALIES: Final = (
    "LOST", "DOUBLED", "PHANTOM", "REORDERED", "FORGOTTEN", "OVERRUN", "CROSS-LANE", "WRONG-VERDICT", "CORRUPTED", "TORN",
    "GAP",
)  # fmt: skip


@click.group(cls=VerbGroup, invoke_without_command=True)
@click.option(
    "--out",
    metavar="DIR",
    help="Folder or URI for report.html, summary.json and Parquet files (anomalies, counts).",
)
@JSON
@click.option(
    "--acknowledge",
    metavar="[N]",
    type=int,
    is_flag=False,
    flag_value=0,
    help="Mark the last run as seen: the next one begins where it ended. N: only if it is run N.",
)
@click.option("--master", help="Spark's master; overrides reconcile.master.")
@config_option
@click.pass_context
def reconcile(
    context: click.Context,
    out: str | None,
    as_json: bool,
    acknowledge: int | None,
    master: str | None,
    config: Path,
) -> int:
    """Prove from Kafka alone that inputs and outputs agree, or name each record that does not.

    Run it daily, beside running workers. Exit code 0: clean; 1: anomalies; 3: unknown, because evidence was deleted.
    """
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return 0
    settings = settings_with_addresses(config)
    silence_clients()
    require_spark()
    # Fails fast, before Spark's libraries are loaded. An acknowledgement of results on a cluster does not
    # need Kafka.
    if acknowledge is None:
        require_listener(settings.kafka)
    from reconcile import job

    again = [*given_options(), *(("--master", master) if master else ())]
    return job.run_job(settings, job.Options(out, as_json, acknowledge, master, tuple(again)))


def _refuse_options(context: click.Context) -> None:
    """Refuse options before a sub-command, because they would have no effect."""
    for param in context.command.params:
        if (
            param.expose_value
            and context.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        ):
            raise click.UsageError(f"write {param.opts[0]} after '{context.invoked_subcommand}'")


@reconcile.command("show")
@click.option(
    "--anomaly", type=click.Choice(ANOMALIES, case_sensitive=False), help="Only anomalies of this name."
)
@click.option(
    "--rows", is_flag=True, help="Print anomalies one by one, not grouped by partition, reason and time."
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    help="Maximum number; not given = 20 with --rows and --json, all with --csv, else those that need "
    "no Spark.",
)
@click.option(
    "--page",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Page to show, with --rows, --json or --limit.",
)
@click.option("--run", type=click.IntRange(1), help="Number of the run; not given = the last.")
@JSON
@click.option(
    "--csv",
    type=click.File("w", "utf-8", lazy=True),
    help="CSV file with a line for each anomaly; - = standard output.",
)
@click.option("--master", help="Spark's master, where it is needed; overrides reconcile.master.")
@addresses_option
def reconcile_show(settings: Settings, anomaly: str | None, **options: Any) -> int:
    """Print the anomalies of a run: places, times, meaning, and what to do.

    The first 100 of each anomaly of an address need neither Spark nor the cluster.
    """
    if sum(map(bool, (options["rows"], options["as_json"], options["csv"]))) > 1:
        raise click.UsageError("--rows, --json and --csv exclude each other: leave out all but one")
    if options["page"] > 1 and not (options["rows"] or options["as_json"] or options["limit"]):
        raise click.UsageError("--page needs --rows, --json or --limit")
    from reconcile import show

    return show.print_anomalies(settings, show.Wanted(anomaly=anomaly or "", **options))
