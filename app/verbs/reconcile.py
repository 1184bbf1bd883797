"""``ringfence reconcile``: the verb of the nightly job."""

from pathlib import Path

import click

from app.verbs.spark import require_spark
from ringfence_kafka.program import config_option, settings_with_addresses, silence_clients


@click.command()
@click.option(
    "--out",
    metavar="DIR",
    help="report.html, summary.json and Parquet (anomalies, counts) go there; a folder or a URI.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document for programs.")
@click.option(
    "--acknowledge",
    metavar="[N]",
    type=int,
    is_flag=False,
    flag_value=0,
    help="The last run has been looked at: the next one begins where it ended. N: only if that is run N.",
)
@click.option("--master", help="Spark's master; overrides reconcile.master.")
@config_option
def reconcile(
    out: str | None, as_json: bool, acknowledge: int | None, master: str | None, config: Path
) -> int:
    """Prove from Kafka alone that what came in and what went out agree, or name each record that does not.

    Run it each night, beside running workers. Exit code 0: clean; 1: anomalies; 3: evidence is gone, so nobody knows.
    """
    settings = settings_with_addresses(config)
    silence_clients()
    require_spark()
    from reconcile import job  # noqa: PLC0415

    return job.run(settings, job.Options(out, as_json, acknowledge, master))
