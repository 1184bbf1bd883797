"""``ringfence quarantine`` and ``ringfence dlq``: options, and the function of each command."""

import functools
from typing import TYPE_CHECKING, Any, Final

import click

from app.commands.options import (
    DRY_RUN,
    JSON,
    YES,
    Quantity,
    Verb,
    addresses_option,
    grouped,
    settings_option,
)
from app.commands.repair.records import RedriveOptions, Selection, parse_place
from app.commands.verb_group import VerbGroup
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.process.command_line import CONSUMER_GROUP, NumberRange, silence_clients

if TYPE_CHECKING:
    from app.commands.repair.verbs import RepairTopic

MAX_REDRIVES: Final = 3
RATE_MAX: Final = 1_000_000


def _parse_group(text: str) -> bytes:
    from ringfence_client.handlers import group_names

    return group_names.parse(text)


_FILTERS: Final = (
    click.option("--reason", default="", metavar="TEXT", help="Records whose reason contains TEXT, in upper or lower case."),
    click.option("--group", type=_parse_group, metavar="GROUP", help="Records of this message group; hex:... for bytes."),
    click.option("--older-than", "older_s", type=Quantity("TIME"), help="Records at least this old, by their timestamps: 90s, 10m, 2h, 7d."),
    click.option("--newer-than", "newer_s", type=Quantity("TIME"), help="Records at most this old."),
    click.option("--at", type=parse_place, multiple=True, metavar="PARTITION/OFFSET", help="The record at this place; repeat it for more."),
)  # fmt: skip
_CONSUMER_GROUP: Final = click.option(
    "--consumer-group", type=CONSUMER_GROUP, help="Dead letters of this consumer group."
)
_filters = grouped("selection", Selection, *_FILTERS)
_letter_filters = grouped("selection", Selection, _CONSUMER_GROUP, *_FILTERS)
_redriving = grouped(
    "options",
    RedriveOptions,
    DRY_RUN,
    click.option("--rate", type=NumberRange(0, RATE_MAX, min_open=True), help="Maximum number of records a second."),
    click.option("--limit", type=click.IntRange(1), help="Maximum number of records."),
    click.option(
        "--max-redrives", "redrives_max", type=click.IntRange(1), default=MAX_REDRIVES, show_default=True,
        help="Skip records that were redriven this many times.",
    ),
    click.option("--force", is_flag=True, help="Redrive also records that are otherwise skipped."),
)  # fmt: skip
_all = click.option("--all", "settled_too", is_flag=True, help="Also settled records: redriven or dropped.")
_bridge = click.option(
    "--bridge", is_flag=True, help="NAME is a bridge; only needed if an address has the same name."
)
_place = click.argument("place", type=parse_place, metavar="PARTITION/OFFSET")


def _quarantined(verb: Verb) -> Verb:
    """Pass the quarantine of NAME as the parameter ``topic``."""

    @functools.wraps(verb)
    def call(*, settings: Settings, name: str, bridge: bool, **given: Any) -> int:
        from app.commands.repair.quarantine import QuarantineTopic

        return verb(topic=QuarantineTopic(settings, name, bridge=bridge), **given)

    return settings_option(call)


def _dead_letters(verb: Verb) -> Verb:
    """Pass the dead letters of ADDRESS as the parameter ``topic``."""

    @functools.wraps(verb)
    def call(*, settings: Settings, address: str, **given: Any) -> int:
        from app.commands.repair.dead_letters import DeadLetterTopic

        return verb(topic=DeadLetterTopic(settings, address), **given)

    return addresses_option(call)


@click.group(cls=VerbGroup)
def quarantine() -> None:
    """Look at what was refused for good, publish it again, or drop it."""
    silence_clients()


@quarantine.command("list")
@click.argument("name")
@_filters
@_bridge
@_all
@JSON
@_quarantined
def quarantine_list(topic: "RepairTopic", selection: Selection, *, settled_too: bool, as_json: bool) -> int:
    """List open quarantined records of NAME, an address or a bridge: place, age, group, redrives, reason."""
    return topic.list_records(selection, settled_too=settled_too, as_json=as_json)


@quarantine.command("show", next_step="quarantine redrive {name} --at={place} {bridge}")
@click.argument("name")
@_place
@_bridge
@JSON
@_quarantined
def quarantine_show(topic: "RepairTopic", place: tuple[int, int], *, as_json: bool) -> int:
    """Show one quarantined record: key, headers, value, and why it was refused."""
    return topic.show_record(place, as_json=as_json)


@quarantine.command("redrive", next_step="quarantine list {name} {bridge}")
@click.argument("name")
@_filters
@_redriving
@_bridge
@_quarantined
def quarantine_redrive(topic: "RepairTopic", selection: Selection, options: RedriveOptions) -> int:
    """Publish open quarantined records of NAME, an address or a bridge, again: each once, even if this is interrupted.

    It goes into the input that it came from, and is judged again. Records that are quarantined meanwhile are skipped. Exit code 1 if
    records were skipped, with the reason.
    """
    return topic.redrive(selection, options)


@quarantine.command("drop", next_step="quarantine list {name} {bridge}")
@click.argument("name")
@_filters
@DRY_RUN
@YES
@_bridge
@_quarantined
def quarantine_drop(topic: "RepairTopic", selection: Selection, *, dry_run: bool, yes: bool) -> int:
    """Settle quarantined records without publishing them again. They stay in the topic until its retention deletes them."""
    return topic.drop(selection, dry_run=dry_run, yes=yes)


@click.group(cls=VerbGroup)
def dlq() -> None:
    """List the messages that handlers could not do, redrive them, or drop them."""
    silence_clients()


@dlq.command("list")
@click.argument("address")
@_letter_filters
@_all
@JSON
@_dead_letters
def dlq_list(topic: "RepairTopic", selection: Selection, *, settled_too: bool, as_json: bool) -> int:
    """List open dead letters of ADDRESS: place, age, consumer group, attempts, redrives, group, reason."""
    return topic.list_records(selection, settled_too=settled_too, as_json=as_json)


@dlq.command("show", next_step="dlq redrive {address} --at={place}")
@click.argument("address")
@_place
@JSON
@_dead_letters
def dlq_show(topic: "RepairTopic", place: tuple[int, int], *, as_json: bool) -> int:
    """Show one dead letter: key, headers, value, and the reason of the failure."""
    return topic.show_record(place, as_json=as_json)


@dlq.command("redrive", next_step="dlq list {address}")
@click.argument("address")
@_letter_filters
@_redriving
@_dead_letters
def dlq_redrive(topic: "RepairTopic", selection: Selection, options: RedriveOptions) -> int:
    """Hand dead letters to the consumer group again whose handler failed; other consumer groups do not see them.

    Each message is the next one of its group. It works with running consumers, and without any. Messages
    that become dead letters meanwhile are left. Exit code 1 if something was left, with the reason.
    """
    return topic.redrive(selection, options)


@dlq.command("drop", next_step="dlq list {address}")
@click.argument("address")
@_letter_filters
@DRY_RUN
@YES
@_dead_letters
def dlq_drop(topic: "RepairTopic", selection: Selection, *, dry_run: bool, yes: bool) -> int:
    """Settle dead letters without handling them again; a group that waits behind one continues."""
    return topic.drop(selection, dry_run=dry_run, yes=yes)
