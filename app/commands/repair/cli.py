"""``ringfence quarantine`` and ``ringfence dlq``: options, and which function runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from ringfence_kafka.process.command_line import (
    CONSUMER_GROUP,
    NumberRange,
    config_option,
    settings_of,
    settings_with_addresses,
    silence_clients,
)

MAX_REDRIVES: Final = 3
RATE_MAX: Final = 1_000_000


class Chosen(NamedTuple):
    """The filters, as they were given."""

    reason: str
    group: str | None
    older_than: str | None
    newer_than: str | None
    at: tuple[str, ...]

    def selection(self, consumer_group: str = "") -> Any:
        """The same, read.

        Raises:
            RingfenceError: one cannot be.
        """
        from app.commands.repair import selection
        from ringfence_client.handlers import group_names

        return selection.Selection(
            reason=self.reason,
            group=None if self.group is None else group_names.parse(self.group),
            older_s=None if self.older_than is None else selection.span(self.older_than),
            newer_s=None if self.newer_than is None else selection.span(self.newer_than),
            at=tuple(map(selection.place, self.at)),
            consumer_group=consumer_group,
        )


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that choose records; all that are given must hold."""
    options = (
        click.option(
            "--reason", default="", metavar="TEXT", help="TEXT stands in the reason, in whatever case."
        ),
        click.option(
            "--group", "group_name", metavar="GROUP", help="Of this message group; hex:... for bytes."
        ),
        click.option(
            "--older-than", metavar="TIME", help="So old or older, by their timestamps: 90s, 10m, 2h, 7d."
        ),
        click.option("--newer-than", metavar="TIME", help="No older than that."),
        click.option("--at", multiple=True, metavar="PARTITION/OFFSET", help="This one; repeat it for more."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _redriving(command: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing."),
        click.option(
            "--rate", type=NumberRange(0, RATE_MAX, min_open=True), help="So many records a second at most."
        ),
        click.option("--limit", type=click.IntRange(1), help="So many records, and no more."),
        click.option(
            "--max-redrives",
            "most",
            type=click.IntRange(1),
            default=MAX_REDRIVES,
            show_default=True,
            help="Leave what was redriven so often.",
        ),
        click.option("--force", is_flag=True, help="Also what would be left for such a reason."),
    )
    for option in reversed(options):
        command = option(command)
    return command


_json = click.option("--json", "as_json", is_flag=True, help="One JSON document for programs.")
_all = click.option("--all", "all_", is_flag=True, help="Also what is settled: redriven, or dropped.")
_yes = click.option("--yes", is_flag=True, help="Do not ask.")
_dry = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
_bridge = click.option(
    "--bridge", is_flag=True, help="NAME is a bridge's; only needed if an address has it too."
)


@click.group()
def quarantine() -> None:
    """Look at what was refused for good, publish it again, or drop it."""
    silence_clients()


@quarantine.command("list")
@click.argument("name")
@_filters
@_bridge
@_all
@_json
@config_option
def quarantine_list(
    name: str, reason: str, group_name: str | None, older_than: str | None, newer_than: str | None, at: tuple[str, ...],
    bridge: bool, all_: bool, as_json: bool, config: Path,
) -> int:  # fmt: skip
    """What stands open in the quarantine of NAME, an address or a bridge: place, age, group, how often redriven, reason."""
    settings = settings_of(config)
    from app.commands.repair import quarantine as quarantine_verbs

    chosen = Chosen(reason, group_name, older_than, newer_than, at).selection()
    return quarantine_verbs.list_(settings, name, chosen, bridge=bridge, all_=all_, as_json=as_json)


@quarantine.command("show")
@click.argument("name")
@click.argument("place", metavar="PARTITION/OFFSET")
@_bridge
@_json
@config_option
def quarantine_show(name: str, place: str, bridge: bool, as_json: bool, config: Path) -> int:
    """All of one quarantined record: key, headers, value, and why it was refused."""
    settings = settings_of(config)
    from app.commands.repair import quarantine as quarantine_verbs
    from app.commands.repair import selection

    return quarantine_verbs.show(settings, name, selection.place(place), bridge=bridge, as_json=as_json)


@quarantine.command("redrive")
@click.argument("name")
@_filters
@_redriving
@_bridge
@config_option
def quarantine_redrive(
    name: str, reason: str, group_name: str | None, older_than: str | None, newer_than: str | None, at: tuple[str, ...],
    dry_run: bool, rate: float | None, limit: int | None, most: int, force: bool, bridge: bool, config: Path,
) -> int:  # fmt: skip
    """Publish again what is open in the quarantine of NAME, an address or a bridge: each record once, whatever ends this.

    It goes into the input that it came from, and is judged anew. What comes into quarantine meanwhile is left. Exit code 1 if something
    was left, with the reason.
    """
    settings = settings_of(config)
    from app.commands.repair import quarantine as quarantine_verbs

    chosen = Chosen(reason, group_name, older_than, newer_than, at).selection()
    return quarantine_verbs.redrive(
        settings, name, chosen, bridge=bridge, dry_run=dry_run, rate=rate, limit=limit, most=most, force=force
    )


@quarantine.command("drop")
@click.argument("name")
@_filters
@_dry
@_yes
@_bridge
@config_option
def quarantine_drop(
    name: str, reason: str, group_name: str | None, older_than: str | None, newer_than: str | None, at: tuple[str, ...],
    dry_run: bool, yes: bool, bridge: bool, config: Path,
) -> int:  # fmt: skip
    """Have records count as settled without being published again. They stay in the topic for as long as it keeps them."""
    settings = settings_of(config)
    from app.commands.repair import quarantine as quarantine_verbs

    chosen = Chosen(reason, group_name, older_than, newer_than, at).selection()
    return quarantine_verbs.drop(settings, name, chosen, bridge=bridge, dry_run=dry_run, yes=yes)


_consumer_group = click.option(
    "--consumer-group", "consumer_group", type=CONSUMER_GROUP, help="Those of this consumer group's handlers."
)


@click.group()
def dlq() -> None:
    """Look at what handlers could not do, have it done once more, or drop it."""
    silence_clients()


@dlq.command("list")
@click.argument("address")
@_consumer_group
@_filters
@_all
@_json
@config_option
def dlq_list(
    address: str, consumer_group: str | None, reason: str, group_name: str | None, older_than: str | None,
    newer_than: str | None, at: tuple[str, ...], all_: bool, as_json: bool, config: Path,
) -> int:  # fmt: skip
    """Open dead letters of ADDRESS: place, age, consumer group, how often tried and redriven, group, reason."""
    settings = settings_with_addresses(config)
    from app.commands.repair import dlq as dlq_verbs

    chosen = Chosen(reason, group_name, older_than, newer_than, at).selection(consumer_group or "")
    return dlq_verbs.list_(settings, address, chosen, all_=all_, as_json=as_json)


@dlq.command("show")
@click.argument("address")
@click.argument("place", metavar="PARTITION/OFFSET")
@_json
@config_option
def dlq_show(address: str, place: str, as_json: bool, config: Path) -> int:
    """All of one dead letter: key, headers, value, and why its handler could not do it."""
    settings = settings_with_addresses(config)
    from app.commands.repair import dlq as dlq_verbs
    from app.commands.repair import selection

    return dlq_verbs.show(settings, address, selection.place(place), as_json=as_json)


@dlq.command("redrive")
@click.argument("address")
@_consumer_group
@_filters
@_redriving
@config_option
def dlq_redrive(
    address: str, consumer_group: str | None, reason: str, group_name: str | None, older_than: str | None,
    newer_than: str | None, at: tuple[str, ...], dry_run: bool, rate: float | None, limit: int | None, most: int,
    force: bool, config: Path,
) -> int:  # fmt: skip
    """Have the consumer group whose handler could not do it do it once more; other consumer groups see nothing of it.

    Each message takes its place in its group, before all that nobody has begun. Works beside running consumers and without any. What
    becomes a dead letter meanwhile is left. Exit code 1 if something was left, with the reason.
    """
    settings = settings_with_addresses(config)
    from app.commands.repair import dlq as dlq_verbs

    chosen = Chosen(reason, group_name, older_than, newer_than, at).selection(consumer_group or "")
    return dlq_verbs.redrive(
        settings, address, chosen, dry_run=dry_run, rate=rate, limit=limit, most=most, force=force
    )


@dlq.command("drop")
@click.argument("address")
@_consumer_group
@_filters
@_dry
@_yes
@config_option
def dlq_drop(
    address: str, consumer_group: str | None, reason: str, group_name: str | None, older_than: str | None,
    newer_than: str | None, at: tuple[str, ...], dry_run: bool, yes: bool, config: Path,
) -> int:  # fmt: skip
    """Have dead letters count as settled without being done again; a group that waits behind one goes on."""
    settings = settings_with_addresses(config)
    from app.commands.repair import dlq as dlq_verbs

    chosen = Chosen(reason, group_name, older_than, newer_than, at).selection(consumer_group or "")
    return dlq_verbs.drop(settings, address, chosen, dry_run=dry_run, yes=yes)
