"""The command ``plan``: resources for a load (:mod:`app.commands.plan.capacity`), without a broker."""

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from app.commands.plan.capacity import STALE_S, Demand, Plan, limits
from app.commands.plan.capacity import plan as plan_of
from app.commands.repair.records import span
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.page.formats import age
from ringfence_kafka.process.command_line import (
    NumberRange,
    config_option,
    refuse_connection,
    settings_if_any,
)
from ringfence_kafka.wording import counted

DOES_NOT_FIT: Final = 1
ROUGH: Final = 100
"""Value from which numbers are printed without decimals."""
_NUMBER: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)")
_UNITS: Final = {
    "NUMBER": {"": 1, "k": 10**3, "M": 10**6, "G": 10**9},
    "SIZE": {
        "": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
        "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
    },
}  # fmt: skip
_EXAMPLES: Final = {
    "NUMBER": "a number: write for example 500, 5k, 1.5M or 2G",
    "SIZE": "a size: write for example 100B, 2KiB, 1.5MB or 4GiB",
}


class Quantity(click.ParamType):
    """Number with a unit: NUMBER, SIZE or TIME."""

    def __init__(self, name: str, *, zero: bool = True) -> None:
        self.name = name
        self._zero = zero

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse a value. Failures are usage errors."""
        if isinstance(value, float):
            return value
        found = self._read(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value[:20]}… is too large to calculate with", param, ctx)
        if not (found or self._zero):
            self.fail("0 needs no plan: give more", param, ctx)
        return found

    def _read(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if self.name == "TIME":
            try:
                return span(value)
            except ConfigurationError as error:
                self.fail(str(error), param, ctx)
        parts = _NUMBER.fullmatch(value.strip())
        if parts is None or parts[2] not in _UNITS[self.name]:
            self.fail(f"{value!r} is not {_EXAMPLES[self.name]}", param, ctx)
        return float(parts[1]) * _UNITS[self.name][parts[2]]


_SHARE: Final = NumberRange(0, 1)
_CORES: Final = NumberRange(0, 10_000, min_open=True)
_POSITIVE: Final = Quantity("SIZE", zero=False)
_OPTIONS: Final = (
    click.option("--rate", type=Quantity("NUMBER", zero=False), required=True, help="Messages/s in the busiest minutes: 500, 5k, 1.5M."),
    click.option("--size", type=_POSITIVE, default="100B", show_default=True, help="Bytes of a message: key, value, headers."),
    click.option("--ids", type=Quantity("NUMBER"), help="IDs to remember, all lanes together: 80k, 100M."),
    click.option("--resends-within", "within", type=Quantity("TIME"), help="Instead of --ids: all IDs of that time, such as 30m, 2h, 7d."),
    click.option("--outage", "outage_s", type=Quantity("TIME"), default="1h", show_default=True, help="How long workers or consumers may be away."),
    click.option("--catch-up", "catch_up_s", type=Quantity("TIME", zero=False), help="Time for workers to catch up afterwards; the length of the outage without it."),
    click.option("--largest-group", type=_SHARE, default=0.0, help="Share of all messages that the largest group has, 0 to 1."),
    click.option("--forwarded", type=_SHARE, default=0.0, help="Share of messages that producers send to another partition than their home, 0 to 1."),
    click.option("--path", type=click.Choice(["native", "python"]), default="native", show_default=True),
    click.option("--readers", type=click.IntRange(0), default=1, show_default=True, help="Number of consumer groups."),
    click.option("--replicas", type=click.IntRange(1), default=3, show_default=True, help="Copies of each topic."),
    click.option("--brokers", type=click.IntRange(1), default=3, show_default=True),
    click.option("--broker-cores", type=_CORES, default=8.0, show_default=True),
    click.option("--broker-network", type=_POSITIVE, default="1250MB", show_default=True, help="Bytes a second of each broker, in each direction."),
    click.option("--worker-memory", type=Quantity("SIZE"), default="2GiB", show_default=True, help="Memory of each worker, at most."),
    click.option("--json", "as_json", is_flag=True, help="One JSON document for programs; bytes, seconds, cores."),
)  # fmt: skip


def _options(verb: Callable[..., int]) -> Callable[..., int]:
    for option in reversed(_OPTIONS):
        verb = option(verb)
    return verb


@click.command()
@_options
@config_option
def plan(
    config: Path,
    as_json: bool,
    ids: float | None,
    within: float | None,
    path: str,
    catch_up_s: float | None,
    **given: Any,
) -> int:
    """Calculate partitions, workers, memory, disk, traffic of brokers and restore times for a load.

    It asks no broker. It calculates from measured figures (docs/sizing.md has the rules), and names the first limit and
    quantities beyond every measurement. Exit code 1: the brokers or workers cannot carry the load; 2: no number of workers can. Without --ids and --resends-within: the IDs of the configuration's addresses.
    """
    refuse_connection("plan", "which asks no broker")
    settings = settings_if_any(config)
    from tables.table import IN_PYTHON_MAX

    if given["replicas"] > given["brokers"]:
        raise click.UsageError(
            f"--replicas {given['replicas']} needs as many brokers, and there are {given['brokers']}"
        )
    if ids is not None and within is not None:
        raise click.UsageError("--ids and --resends-within: choose one")
    if within is not None:
        ids = given["rate"] * within
    elif ids is None and settings.addresses:
        ids = float(
            sum(
                (address.lanes or address.partitions) * address.ring_capacity
                for address in settings.addresses
            )
        )
    if ids is None:
        raise click.UsageError(
            f"the number of IDs is missing: give --ids 10M or --resends-within 2h, as {config} has no "
            "addresses"
        )
    demand = Demand(
        ids=ids,
        catch_up_s=catch_up_s or 0,
        native=path == "native",
        buffer_bytes=settings.app.buffer_bytes_max,
        resident_ids=min(settings.app.resident_ids_max, math.inf if path == "native" else IN_PYTHON_MAX),
        session_s=settings.app.session_timeout,
        **given,
    )
    found = plan_of(demand)
    if as_json:
        click.echo(json.dumps(document(demand, found), indent=2))
    else:
        show(demand, found)
    return DOES_NOT_FIT if limits(demand, found)[0].times < 1 else 0


class Assumption(NamedTuple):
    """Planned quantity above the largest measured one; ``measured`` is 1 if nothing was measured."""

    what: str
    planned: float
    measured: float


def assumptions(demand: Demand, found: Plan) -> list[Assumption]:
    """Return all quantities beyond the measured ones, the furthest first."""
    result = [
        Assumption("workers that share the lanes of one cluster", found.workers, 2),
        Assumption("messages/s through one cluster", demand.peak_rate, 318_648),
        Assumption("lanes of one worker", found.lanes, 1_000),
        Assumption("IDs of one lane", found.id_cache_size, 10_000_000),
        Assumption("IDs of one worker", demand.ids * found.worker_share, 10_000_000),
        Assumption("bytes of a message", demand.size, 10_000),
        Assumption("replicas", demand.replicas, 3),
        Assumption("brokers that share the load evenly", demand.brokers, 3),
    ]
    if found.id_cache_size > demand.resident_ids:
        result.append(Assumption("IDs of a lane, their index in RocksDB", found.id_cache_size, 1))
    beyond = (item for item in result if item.planned > item.measured)
    return sorted(beyond, key=lambda each: -each.planned / each.measured)


def document(demand: Demand, found: Plan) -> dict[str, Any]:
    """Return the document for programs. Units: bytes, seconds, cores."""
    return {
        "demand": asdict(demand),
        "plan": asdict(found),
        "limits": [limit._asdict() for limit in limits(demand, found)],
        "assumptions": [
            {**assumption._asdict(), "times": assumption.planned / assumption.measured}
            for assumption in assumptions(demand, found)
        ],
    }


def show(demand: Demand, found: Plan) -> None:
    """Print both tables, exceeded limits, and the weakest assumption."""
    from rich.table import Table

    from conf.terminal import print_table

    needed, first = (
        Table("", "needed", "because"),
        Table("limit", "times this load", "remedy"),
    )
    for row in rows(demand, found):
        needed.add_row(*row)
    for what, times, do in limits(demand, found):
        first.add_row(what, f"{times:.2g}" if times < ROUGH else f"{times:,.0f}", do)
    print_table(needed)
    print_table(first)
    for what, times, do in limits(demand, found):
        if times < 1:
            click.echo(f"Does not fit: {what} supports {times:.2g} times this load: {do}.")
    for assumption in assumptions(demand, found)[:1]:
        click.echo(
            f"Weakest assumption: {assumption.what}: {assumption.planned:,.0f} planned, {assumption.measured:,.0f} measured."
        )


def rows(demand: Demand, found: Plan) -> Iterator[tuple[str, str, str]]:
    """Yield the lines of the table: quantity, value, reason."""
    peak = f"; {demand.peak_rate:,.0f} messages/s while they catch up" if demand.outage_s else ""
    busiest = ", while workers catch up" if demand.outage_s else ""
    larger = "; transactions are larger, and messages wait longer" if found.stretched else ""
    disks = f"disks are too old after {age(STALE_S)}" if demand.outage_s > STALE_S else "with their disks"
    kept = f"input and accepted kept for {age(demand.outage_s + demand.recovery_s)}"
    yield from (
        ("partitions", f"{found.partitions:,}", f"by {found.lanes_by}; {found.lanes} lanes a worker"),
        ("lanes = 1 is enough", "no" if found.one_lane_limit else "yes", found.one_lane_limit or "one ring knows all IDs of the address"),
        ("id_cache_size", f"{found.id_cache_size:,}", f"{demand.ids:,.0f} IDs in all lanes together"),
        ("workers", f"{found.workers:,}", f"one of them may be away{peak}"),
        ("CPU of all workers, cores", f"{found.worker_cpu:.1f}", f"{found.catch_up_cpu:.1f} while they catch up{larger}"),
        ("memory of a worker", sized(found.worker_memory), f"{100 * found.worker_share:.3g} % of the IDs, while one is away"),
        ("disk of a worker", sized(found.worker_disk), "a cache: it may be lost"),
        ("CPU of all brokers, cores", f"{found.broker_cpu:.1f}", f"{found.broker_catch_up_cpu:.1f} while workers catch up, copies included"),
        ("brokers receive, /s", sized(found.broker_in), f"{counted(demand.replicas, 'replica')}, nothing compressed{busiest}"),
        ("brokers send, /s", sized(found.broker_out), f"to workers, replicas and {counted(demand.readers, 'group')} of consumers"),
        ("disk of all brokers", sized(found.broker_disk), kept if demand.outage_s else "plus input and accepted"),
        ("... the changelog of it", sized(found.changelog), "compacted"),
        ("a worker is killed", age(found.killed_s), f"session time-out of {demand.session_s:.0f} s, then a restore"),
        ("all workers start", age(found.restart_s), disks),
        ("... with empty disks", age(found.empty_s), "from the changelog"),
    )  # fmt: skip
    if demand.outage_s:
        backlog = demand.rate * demand.outage_s
        yield "after the outage", age(found.catch_up_s), f"until {backlog:,.0f} messages are processed"


def sized(value: float) -> str:
    """Return bytes in the largest unit with a value of 1 or more."""
    for name, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= size:
            return f"{value / size:.0f} {name}" if value >= 10 * size else f"{value / size:.1f} {name}"
    return f"{value:.0f} B"
