"""``ringfence audit``: the command for a first trial on any topic."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
from pydantic import ValidationError

from app.commands.spark_check import require_spark
from ringfence_kafka.auth.reachability import require_listener
from ringfence_kafka.config.settings import AddressDefaults
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.process.command_line import (
    NumberRange,
    config_option,
    print_next,
    settings_if_any,
    silence_clients,
)

_OPTIONS: Final = {
    "duplicate_id_headers": "--id-header",
    "duplicate_id_from": "--id-from",
    "group_header": "--group-header",
}


@click.command()
@click.argument("topic")
@click.option("--since", metavar="DURATION", help="Only records of the last 30m, 24h, 7d.")
@click.option(
    "--last",
    type=click.IntRange(min=1),
    help="Only the last N offsets, divided among the partitions by size.",
)
@click.option(
    "--id-header",
    "id_headers",
    metavar="NAME",
    multiple=True,
    help="Header that holds the ID; repeat it for several names.",
)
@click.option(
    "--id-from",
    metavar="FORM",
    multiple=True,
    help="Place of the ID: header, key, value, header:NAME or value:/json/pointer; repeat it for the "
    "parts of one ID.",
)
@click.option(
    "--group-header", metavar="NAME", help="Header that names the group; without it the record key does."
)
@click.option(
    "--confidence",
    type=NumberRange(0, 1, min_open=True),
    default=0.999,
    show_default=True,
    help="Share of resends that the recommended ring catches, before headroom.",
)
@click.option("--out", metavar="DIR", help="Folder or URI for audit.json, figures.json and report.html.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document for programs.")
@click.option("--master", help="Spark's master; overrides reconcile.master.")
@config_option
def audit(
    topic: str,
    since: str | None,
    last: int | None,
    id_headers: tuple[str, ...],
    id_from: tuple[str, ...],
    group_header: str | None,
    confidence: float,
    out: str | None,
    as_json: bool,
    master: str | None,
    config: Path,
) -> int:
    """Measure the resends in any TOPIC: their number, their distance, and the ring that catches them.

    It only reads: it joins no consumer group, and writes nothing to Kafka. Describe and Read on the topic are enough.
    Exit code 0: measured; 3: retention deleted records while they were read.
    """
    if since and last:
        raise click.UsageError("--since and --last: choose one")
    if id_headers and id_from not in {(), ("header",)}:
        raise click.UsageError(
            f"--id-header has no effect with --id-from {' --id-from '.join(id_from)}: choose one"
        )
    settings = settings_if_any(config)
    silence_clients()
    require_spark()
    from reconcile.audit.topic import seconds_of

    try:
        seconds_of(since or "1h")
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--since") from error
    if id_headers and not id_from:
        id_from = ("header",)
    given = {
        "duplicate_id_headers": id_headers,
        "duplicate_id_from": id_from[0] if len(id_from) == 1 else id_from,
        "group_header": group_header,
    }
    address = next((address for address in settings.addresses if address.input_topic == topic), None)
    found = _validated(address or settings.address_defaults, given)
    require_listener(settings.kafka)  # fails fast, before Spark's libraries are loaded
    from reconcile.audit import job
    from reconcile.audit.resend_counts import confidence_of
    from reconcile.audit.topic import Wanted

    request = job.Request(
        Wanted(topic, since or "", last),
        settings.kafka,
        found,
        address.name if address else "",
        confidence_of(confidence),
        master or settings.reconcile.master,
        out,
        as_json,
        {
            address_settings.name: address_settings
            for address_settings in settings.addresses
            if address_settings is not address
        },
        settings.reconcile.executor_timeout,
    )
    code = job.run_audit(request)
    if not (code or as_json or address):
        print_next("ringfence", "init", topic, "--bootstrap-servers", settings.kafka.bootstrap_servers)
    return code


def _validated(base: AddressDefaults, given: Mapping[str, Any]) -> AddressDefaults:
    kept = base.model_dump(include=set(AddressDefaults.model_fields))
    try:
        return AddressDefaults.model_validate(kept | {key: value for key, value in given.items() if value})
    except ValidationError as error:
        faults = []
        for item in error.errors():
            name = str(item["loc"][0]) if item["loc"] else "the configuration"
            faults.append(f"{_OPTIONS.get(name, name)}: {item['msg'].removeprefix('Value error, ')}")
        raise ConfigurationError("\n".join(faults)) from error
